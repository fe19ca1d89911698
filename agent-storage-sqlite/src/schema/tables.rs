//! Tables: the application and version of a file, missing objects, and the schema.

use std::collections::HashSet;
use std::path::Path;

use agent_core::{Error, Result};
use rusqlite::Connection;

use crate::error::{Step, corrupt};
use crate::medium::rows::first_number;

/// Application id, `AGNT`, that marks a file as belonging to this library.
pub(crate) const APPLICATION_ID: i64 = 0x4147_4e54;

/// Version of the schema, in SQLite's `user_version`; 0 in a file without tables. Versions 1 to 7 were never released.
pub(crate) const VERSION: usize = 8;

const TABLES: &str = include_str!("tables.sql");

pub(super) const INDEXES: &str = include_str!("indexes.sql");

pub(super) const VIEWS: &str = include_str!("views.sql");

/// First version of SQLite without the WAL-reset bug that could damage a file.
pub(super) const SQLITE_MIN: [u32; 3] = [3, 51, 3];

pub(super) fn check_sqlite(version: &str) -> Result<()> {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let number = [(); 3].map(|()| parts.next().unwrap_or(0));
    if number >= SQLITE_MIN {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "SQLite {version} has a bug that can damage the file; build with 3.51.3 or newer"
    )))
}

/// Checks that the file belongs to this library, and returns the version of its schema.
pub(super) fn check(conn: &Connection, path: &Path) -> rusqlite::Result<Result<usize>> {
    // In one statement, so that all three belong to one moment: another process may be opening the file.
    let (application, version, objects): (i64, i64, i64) = conn.query_row(
        "SELECT a.application_id, u.user_version, (SELECT count(*) FROM sqlite_schema) \
         FROM pragma_application_id a, pragma_user_version u",
        [],
        |row| row.try_into(),
    )?;
    if application != APPLICATION_ID && (application != 0 || version != 0 || objects != 0) {
        return Ok(Err(Error::invalid(format!(
            "{} is a database of another application; name another file",
            path.display()
        ))));
    }
    match usize::try_from(version) {
        Ok(0) if objects != 0 => Ok(Err(Error::unsupported(format!(
            "{} has schema 0, and tables of this library: another program has set its version; if that is all that \
             was changed, take it back with PRAGMA user_version = {VERSION}, else restore the file from a backup",
            path.display()
        )))),
        Ok(version @ (0 | VERSION)) => Ok(Ok(version)),
        Ok(1..VERSION) => Ok(Err(Error::unsupported(format!(
            "{} has schema {version}, which was never released; this version reads schema {VERSION}: use the \
             version that wrote it, or name another file",
            path.display()
        )))),
        _ => Ok(Err(Error::unsupported(format!(
            "{} has schema {version}, this version knows {VERSION}; update the library",
            path.display()
        )))),
    }
}

/// Returns the names of all objects in the schema.
pub(super) fn names(conn: &Connection) -> rusqlite::Result<HashSet<String>> {
    let mut statement = conn.prepare("SELECT name FROM sqlite_schema")?;
    let names = statement.query_map([], |row| row.get(0))?;
    names.collect()
}

/// Returns the names of the objects that a script creates with these words.
pub(super) fn made_by(script: &'static str, words: &str) -> impl Iterator<Item = &'static str> {
    script.split(words).skip(1).filter_map(|rest| rest.split_whitespace().next())
}

/// Returns whether all indexes and views exist.
pub(super) fn has_derived(names: &HashSet<String>) -> bool {
    made_by(INDEXES, "CREATE INDEX IF NOT EXISTS ")
        .chain(made_by(VIEWS, "CREATE VIEW IF NOT EXISTS "))
        .all(|name| names.contains(name))
}

/// Fails if a table is missing.
pub(super) fn check_tables(names: &HashSet<String>, path: &Path) -> Result<()> {
    let missing = made_by(TABLES, "CREATE TABLE ").find(|table| !names.contains(*table));
    missing.map_or(Ok(()), |table| {
        Err(corrupt(&path.display().to_string(), &format!("has no table {table} any more")))
    })
}

/// Checks again, inside a write transaction and after another connection has written, that the file belongs to this
/// library and has this version. `seen` is SQLite's `schema_version` when the schema was last complete. Indexes and
/// views that another program has dropped since are created again. Runs three statements, unless something is wrong.
pub(crate) fn check_again(
    conn: &Connection,
    path: &Path,
    seen: &mut Option<i64>,
) -> rusqlite::Result<Result<()>> {
    let number = |sql| first_number(conn, sql, []);
    let version = number("PRAGMA user_version")?;
    if number("PRAGMA application_id")? != Some(APPLICATION_ID)
        || version.and_then(|version| usize::try_from(version).ok()) != Some(VERSION)
    {
        return Ok(check(conn, path)?.and_then(|version| {
            let text = format!(
                "{} has schema {version}, and had {VERSION} when it was opened; open it again",
                path.display()
            );
            Err(Error::unsupported(text))
        }));
    }
    if *seen != number("PRAGMA schema_version")? {
        let names = names(conn)?;
        if let Err(error) = check_tables(&names, path) {
            return Ok(Err(error));
        }
        if !has_derived(&names) {
            tracing::warn!(file = %path.display(), "another program dropped indexes or views; they are created again");
            make_derived(conn)?;
        }
        *seen = number("PRAGMA schema_version")?;
    }
    Ok(Ok(()))
}

/// Object of a schema: type, name, table, and the statement that creates it.
pub(super) type Object = (String, String, String, String);

pub(super) fn objects(conn: &Connection) -> rusqlite::Result<Vec<Object>> {
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
    let mut statement = conn.prepare(sql)?;
    let objects = statement.query_map([], |row| row.try_into())?;
    objects.collect()
}

/// Returns the differences of the schema from this library's that affect the stored data.
pub(crate) fn foreign(conn: &Connection) -> Step<Vec<String>> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(TABLES)?;
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
                    "the {kind} {name} is not as this library creates it; restore it from a backup"
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

/// Creates what is missing in a file of this version, given as `from`, or in one without tables, where that is 0.
pub(crate) fn create(conn: &Connection, from: usize) -> rusqlite::Result<()> {
    if from == 0 {
        conn.execute_batch(TABLES)?;
    }
    make_derived(conn)?;
    conn.execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::ErrorKind;

    #[test]
    fn an_old_sqlite_is_refused() {
        assert!(check_sqlite("3.51.3").is_ok());
        assert!(check_sqlite("3.52.0").is_ok());
        for old in ["3.51.2", "3.9.99", "2.99.99", "", "x.y.z"] {
            assert_eq!(*check_sqlite(old).unwrap_err().kind(), ErrorKind::Unsupported, "{old}");
        }
    }
}
