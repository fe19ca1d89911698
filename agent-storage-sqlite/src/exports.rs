//! Reader of exports of the former version: database files that a copy or a backup has made.

use std::path::{Path, PathBuf};

use agent_core::clock::Effects;
use agent_core::{Error, Result};
use rusqlite::OpenFlags;
use tokio::sync::oneshot;

use crate::care::backup;
use crate::error::{failed, failed_to_write, gone};
use crate::log::rebuild;
use crate::medium::files;
use crate::medium::threads::Threads;
use crate::schema::{self, APPLICATION_ID, VERSION};
use crate::store::SqliteStore;

/// Schema of the exports that are read.
const FORMER: usize = 5;

/// Tables that are true, with the columns of [`FORMER`]. Their rows and checksums have not changed since.
const TRUE: [(&str, &str); 8] = [
    ("logs", "log, tenant, session"),
    ("events", "log, seq, type, crc, json"),
    ("tombstones", "tenant, session, kept, crc, record"),
    ("blobs", "blob, tenant, session, state, name, bytes, named, at, crc"),
    ("blob_chunks", "blob, n, crc, data"),
    ("workspaces", "tenant, id, name, status, last_accessed, crc, record, config_crc, config"),
    ("bindings", "tenant, device, workspace, crc"),
    ("deletions", "tenant"),
];

impl SqliteStore {
    /// Copies an export of the former version, a file of schema 5, to a new file of this version's schema.
    ///
    /// All tenants are copied, with all that is stored; what is derived is made anew. Nobody owns the sessions and
    /// workspaces. The export is not changed, and no file is made beside it. Open the new file as a store, or copy it into
    /// another one, which also checks it. As [`backup`](Self::backup), the call leaves at most `TO.<16 hexadecimal
    /// digits>.part` if the process is killed, and never touches existing files.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// use agent_core::ErrorKind;
    /// use agent_storage_sqlite::SqliteStore;
    ///
    /// let (path, new) = (folder.path().join("agent.db"), folder.path().join("new.db"));
    /// SqliteStore::open(&path).await?.close().await?;
    /// // A file of this version needs no conversion.
    /// let error = SqliteStore::convert_export(&path, &new).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unsupported);
    /// assert!(!new.exists());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the copy continues on its thread.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a file of another schema, also of this version's; `InvalidInput` if `to` exists, if `from` is no
    /// database of this library, or if a write-ahead log beside it has a part of it; `NotFound`, `Full`, `Denied`, `Corrupt`,
    /// `Unavailable`.
    pub async fn convert_export(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Result<()> {
        let (from, to) = (from.into(), to.into());
        let (done, result) = oneshot::channel();
        let work = move || backup::make(&Effects::default(), &to, |part| convert(&from, part));
        Threads::default()
            .spawn("agent-sqlite-export", "convert an export with", move || drop(done.send(work())))?;
        result.await.map_err(|_| gone())?
    }
}

fn convert(from: &Path, part: &Path) -> Result<()> {
    check(from)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    let copy = || {
        let conn = schema::connect(part, flags)?;
        // The file is synced when it is whole.
        conn.execute_batch("PRAGMA synchronous = OFF")?;
        conn.execute("ATTACH ? AS export", [schema::still_uri(from)])?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        schema::create(&conn, 0)?;
        for (table, columns) in TRUE {
            // A workspace that nobody owns has an empty owner.
            let (column, value) = if table == "workspaces" { ("owner, ", "'', ") } else { ("", "") };
            conn.execute_batch(&format!(
                "INSERT INTO main.{table} ({column}{columns}) SELECT {value}{columns} FROM export.{table} ORDER BY rowid"
            ))?;
        }
        rebuild::missing(&conn)?;
        conn.execute_batch("COMMIT; DETACH export")
    };
    copy().map_err(|error| {
        failed_to_write(part, &format!("convert {} to {}", from.display(), part.display()), error)
    })
}

/// Checks that a file is an export of the former version, and that all of it is in the file.
fn check(from: &Path) -> Result<()> {
    let shown = from.display();
    if !from.is_file() {
        return Err(Error::not_found(format!("{shown} is not there, or is no file; name an export")));
    }
    for suffix in ["-wal", "-journal"] {
        if files::len(&files::beside(from, suffix)?).unwrap_or(0) > 0 {
            return Err(Error::invalid(format!(
                "{shown} is not the whole export: a part is in {shown}{suffix}; open and close it with the version that wrote it"
            )));
        }
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let numbers = || -> rusqlite::Result<(i64, i64)> {
        let conn = schema::connect(Path::new(&schema::still_uri(from)), flags)?;
        let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok((number("application_id")?, number("user_version")?))
    };
    let (application, version) = numbers().map_err(|error| failed(&format!("read {shown}"), error))?;
    if application != APPLICATION_ID {
        return Err(Error::invalid(format!("{shown} is no database of this library; name an export")));
    }
    let remedy = match usize::try_from(version).unwrap_or(usize::MAX) {
        FORMER => return Ok(()),
        VERSION => "open it as it is",
        1..VERSION => "use the version that wrote it",
        _ => "update the library",
    };
    Err(Error::unsupported(format!(
        "{shown} has schema {version}, and an export of schema {FORMER} is converted here; {remedy}"
    )))
}
