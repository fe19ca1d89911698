//! The tables: whose a file is, of which version, what is missing, and the migrations.

use std::collections::HashSet;
use std::path::Path;

use agent_core::{Error, ErrorKind, Result};
use rusqlite::Connection;

use crate::error::{Step, corrupt};
use crate::rows::first_number;

/// `AGNT`: by this a file says whose it is.
pub(crate) const APPLICATION_ID: i64 = 0x4147_4e54;

/// The scripts that lead from each version of the schema to the next, from the first on.
pub(super) const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_first.sql")];

pub(super) const INDEXES: &str = include_str!("indexes.sql");

pub(super) const VIEWS: &str = include_str!("views.sql");

/// The first version of SQLite without the WAL-reset bug that could damage a file.
pub(super) const SQLITE_MIN: [u32; 3] = [3, 51, 3];

pub(super) fn check_sqlite(version: &str) -> Result<()> {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let number = [(); 3].map(|()| parts.next().unwrap_or(0));
    if number >= SQLITE_MIN {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("SQLite {version} has a bug that can damage the file; build with 3.51.3 or newer"),
    ))
}

/// Whose the file is, and of which version of the schema.
pub(super) fn check(conn: &Connection, path: &Path) -> rusqlite::Result<Result<usize>> {
    // In one statement, so that all three are of one moment: another opener may be at work.
    let (application, version, objects): (i64, i64, i64) = conn.query_row(
        "SELECT a.application_id, u.user_version, (SELECT count(*) FROM sqlite_schema) \
         FROM pragma_application_id a, pragma_user_version u",
        [],
        |row| row.try_into(),
    )?;
    if application != APPLICATION_ID && (application != 0 || version != 0 || objects != 0) {
        return Ok(Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{} is a database of another application; name another file", path.display()),
        )));
    }
    match usize::try_from(version) {
        Ok(0) if objects != 0 => Ok(Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} has schema 0, and tables of this library: another program has set its version; if that is all that \
                 was changed, take it back with PRAGMA user_version = {}, else restore the file from a backup",
                path.display(),
                MIGRATIONS.len()
            ),
        ))),
        Ok(version) if version <= MIGRATIONS.len() => Ok(Ok(version)),
        _ => Ok(Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} has schema {version}, this version knows up to {}; update the library",
                path.display(),
                MIGRATIONS.len()
            ),
        ))),
    }
}

/// The names of all that is in the schema.
pub(super) fn names(conn: &Connection) -> rusqlite::Result<HashSet<String>> {
    let mut statement = conn.prepare("SELECT name FROM sqlite_schema")?;
    let names = statement.query_map([], |row| row.get(0))?;
    names.collect()
}

/// The names of what a script makes by these words.
pub(super) fn made_by(script: &'static str, words: &str) -> impl Iterator<Item = &'static str> {
    script.split(words).skip(1).filter_map(|rest| rest.split_whitespace().next())
}

/// Whether all indexes and views are there.
pub(super) fn has_derived(names: &HashSet<String>) -> bool {
    made_by(INDEXES, "CREATE INDEX IF NOT EXISTS ")
        .chain(made_by(VIEWS, "CREATE VIEW IF NOT EXISTS "))
        .all(|name| names.contains(name))
}

/// Fails if a table is not there.
pub(super) fn check_tables(names: &HashSet<String>, path: &Path) -> Result<()> {
    let mut tables = MIGRATIONS.iter().flat_map(|script| made_by(script, "CREATE TABLE "));
    let missing = tables.find(|table| !names.contains(*table));
    missing.map_or(Ok(()), |table| {
        Err(corrupt(&path.display().to_string(), &format!("has no table {table} any more")))
    })
}

/// Inside a write transaction, after another connection has written: whether the file is still of this version, and whose.
/// `seen` is SQLite's `schema_version` when all of the schema was there; indexes and views that another program has dropped
/// since are made anew. Three statements, unless something is wrong.
pub(crate) fn check_again(
    conn: &Connection,
    path: &Path,
    seen: &mut Option<i64>,
) -> rusqlite::Result<Result<()>> {
    let number = |sql| first_number(conn, sql, []);
    let version = number("PRAGMA user_version")?;
    if number("PRAGMA application_id")? != Some(APPLICATION_ID)
        || version.and_then(|version| usize::try_from(version).ok()) != Some(MIGRATIONS.len())
    {
        return Ok(check(conn, path)?.and_then(|version| {
            let text = format!(
                "{} has schema {version}, and had {} when it was opened; open it again",
                path.display(),
                MIGRATIONS.len()
            );
            Err(Error::new(ErrorKind::Unsupported, text))
        }));
    }
    if *seen != number("PRAGMA schema_version")? {
        let names = names(conn)?;
        if let Err(error) = check_tables(&names, path) {
            return Ok(Err(error));
        }
        if !has_derived(&names) {
            tracing::warn!(file = %path.display(), "another program dropped indexes or views; they are made anew");
            make_derived(conn)?;
        }
        *seen = number("PRAGMA schema_version")?;
    }
    Ok(Ok(()))
}

/// What of a schema there is: type, name, table, and the statement that makes it.
pub(super) type Object = (String, String, String, String);

pub(super) fn objects(conn: &Connection) -> rusqlite::Result<Vec<Object>> {
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
    let mut statement = conn.prepare(sql)?;
    let objects = statement.query_map([], |row| row.try_into())?;
    objects.collect()
}

/// What in the schema is not as this library makes it, and bears on what it stores.
pub(crate) fn foreign(conn: &Connection) -> Step<Vec<String>> {
    let model = Connection::open_in_memory()?;
    for script in MIGRATIONS {
        model.execute_batch(script)?;
    }
    make_derived(&model)?;
    let (ours, there) = (objects(&model)?, objects(conn)?);
    let mut found = Vec::new();
    for object in &there {
        let (kind, name, table, sql) = object;
        let is_on_ours = ours.iter().any(|(_, ours, ..)| ours == table);
        let is_unique =
            || sql.split_whitespace().nth(1).is_some_and(|word| word.eq_ignore_ascii_case("UNIQUE"));
        if ours.iter().any(|(_, ours, ..)| ours == name) {
            if !ours.contains(object) {
                found.push(format!(
                    "the {kind} {name} is not as this library makes it; restore it from a backup"
                ));
            }
        } else if is_on_ours && kind == "trigger" {
            found.push(format!(
                "another program has put the trigger {name} on {table}; this library does not run it, others that write \
                 to the file do: remove it with DROP TRIGGER {name}"
            ));
        } else if is_on_ours && kind == "index" && is_unique() {
            found.push(format!(
                "another program has put the index {name} on {table}, which may refuse rows; remove it with DROP INDEX {name}"
            ));
        }
    }
    Ok(found)
}

pub(super) fn make_derived(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(INDEXES)?;
    conn.execute_batch(VIEWS)
}

pub(super) fn migrate(conn: &Connection, from: usize) -> rusqlite::Result<()> {
    for script in &MIGRATIONS[from..] {
        conn.execute_batch(script)?;
    }
    make_derived(conn)?;
    conn.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {}",
        MIGRATIONS.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_sqlite_is_refused() {
        assert!(check_sqlite("3.51.3").is_ok());
        assert!(check_sqlite("3.52.0").is_ok());
        for old in ["3.51.2", "3.9.99", "2.99.99", "", "x.y.z"] {
            assert_eq!(*check_sqlite(old).unwrap_err().kind(), ErrorKind::Unsupported, "{old}");
        }
    }
}
