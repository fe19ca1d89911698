//! Reader of exports of the former version: folders that a copy has made.

use std::fs;
use std::path::{Path, PathBuf};

use agent_core::{Backend, Error, Result, SessionId, SessionStore, TenantId};
use memchr::memchr;

use crate::error::{corrupt, failed};
use crate::medium::layout::{self, Layout};
use crate::medium::log;
use crate::medium::record::TOMBSTONE_FORMAT;
use crate::owner::{FORMAT, Owner};
use crate::places::workspace_toml;
use crate::store::FsStore;

/// Format of the logs of exports that are read.
const FORMER: i64 = 5;

impl FsStore {
    /// Copies an export of the former version, a folder with logs of format 5, to a new folder of this version's format.
    ///
    /// All tenants are copied, with all that is stored; what is derived is made anew. Nobody owns the sessions and
    /// workspaces. The export is not changed. Open the new folder as a store, or copy it into another one, which also checks it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// use agent_core::ErrorKind;
    /// use agent_storage_fs::FsStore;
    ///
    /// let (path, new) = (folder.path().join("agent"), folder.path().join("new"));
    /// std::fs::create_dir(&path).unwrap();
    /// // A folder without logs of the former version needs no conversion.
    /// let error = FsStore::convert_export(&path, &new).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unsupported);
    /// assert!(!new.exists());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the copy may go on, or a part of it may be left: remove the folder `to`.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a folder that is no such export, also for a store of this version; `InvalidInput` if `to` exists;
    /// `Corrupt` for a log with a line that is not of format 5. After an error, a part of the copy may be left.
    pub async fn convert_export(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Result<()> {
        let (from, to) = (from.into(), to.into());
        let new = to.clone();
        let converted = tokio::task::spawn_blocking(move || convert(&from, &to)).await;
        let tenants = converted.map_err(|error| {
            Error::unavailable("the conversion of an export ended unexpectedly").with_source(error)
        })??;
        let store = Self::open(new).await?;
        for tenant in tenants {
            store.for_tenant(&tenant).maintenance().rebuild().await?;
        }
        Backend::close(&store).await
    }
}

/// Converts all tenants; returns them.
fn convert(from: &Path, to: &Path) -> Result<Vec<TenantId>> {
    let mut tenants = vec![TenantId::default()];
    tenants.extend(names(&Layout::tenants(from))?.iter().filter_map(|name| name.parse().ok()));
    let first = tenants.iter().find_map(|tenant| first_format(&Layout::new(from, tenant)).transpose());
    if FORMER == FORMAT || first.transpose()? != Some(FORMER) {
        return Err(Error::unsupported(format!(
            "{} is no export with logs of format {FORMER}, which are converted here; open it as it is",
            from.display()
        )));
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(Error::invalid(format!("{} exists already; name another folder", to.display())));
    }
    for tenant in &tenants {
        let (from, to) = (Layout::new(from, tenant), Layout::new(to, tenant));
        copy(&from, from.root(), to.root())?;
    }
    Ok(tenants)
}

/// Returns the names in a folder, in order; none if there is no folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", folder, error)),
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<_> =
        names.collect::<std::io::Result<_>>().map_err(|error| failed("list", folder, error))?;
    names.sort();
    Ok(names)
}

/// Returns the format of a tenant's first log, if it has one.
fn first_format(layout: &Layout) -> Result<Option<i64>> {
    let workspaces = layout.root().join(layout::WORKSPACES);
    for workspace in names(&workspaces)? {
        let sessions = workspaces.join(workspace).join(layout::SESSIONS);
        for session in names(&sessions)? {
            let Ok(id) = session.parse::<SessionId>() else { continue };
            let path = sessions.join(session).join(layout::LOG);
            let Ok(log) = fs::read(&path) else { continue };
            let line = log.split(|byte| *byte == b'\n').next().unwrap_or_default();
            if let Some(format) = log::other_format(layout.owner(id), line) {
                return Ok(Some(format));
            }
        }
    }
    Ok(None)
}

/// Copies what is true in a folder of a tenant. Links, and what is neither a file nor a folder, are left out.
fn copy(layout: &Layout, from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(|error| failed("make the folder", to, error))?;
    for name in names(from)? {
        let (path, to) = (from.join(&name), to.join(&name));
        let meta = fs::symlink_metadata(&path).map_err(|error| failed("look at", &path, error))?;
        let is_derived = match &*name {
            layout::INDEX | "tenants" => from == layout.root(),
            layout::SNAPSHOT | layout::LEASE => true,
            _ => layout::is_temp(&name),
        };
        if is_derived {
            continue;
        }
        match &*name {
            _ if meta.is_dir() => copy(layout, &path, &to)?,
            _ if !meta.is_file() => {}
            layout::LOG | layout::TOMBSTONE => {
                let session = from.file_name().and_then(|name| name.to_str()?.parse().ok());
                match session {
                    Some(id) => reframe(layout.owner(id), &path, &to)?,
                    None => copy_file(&path, &to)?,
                }
            }
            layout::RECORD => renumber(&path, &to)?,
            layout::BINDING_CHANGES => reframe(layout.owner_of_bindings(), &path, &to)?,
            _ => copy_file(&path, &to)?,
        }
    }
    Ok(())
}

/// Copies the record of a workspace, which has the same fields, under its present number.
fn renumber(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(from).map_err(|error| failed("read", from, error))?;
    let number = |line: &str| match line.trim_end() {
        "format = 1" => format!("format = {}\n", workspace_toml::FORMAT),
        _ => line.to_owned(),
    };
    let text: String = text.split_inclusive('\n').map(number).collect();
    fs::write(to, text).map_err(|error| failed("write", to, error))
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).map_err(|error| failed("copy", from, error))
}

/// Copies the lines of a file with checksums of this version's format.
fn reframe(owner: Owner, from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).map_err(|error| failed("read", from, error))?;
    let (mut rest, mut lines) = (&*bytes, Vec::with_capacity(bytes.len()));
    while let Some(end) = memchr(b'\n', rest) {
        log::renew(owner, FORMER, TOMBSTONE_FORMAT, &rest[..end], &mut lines)
            .ok_or_else(|| corrupt(from, &format!("has a line that is not of format {FORMER}")))?;
        rest = &rest[end + 1..];
    }
    // What follows was never acknowledged.
    fs::write(to, lines).map_err(|error| failed("write", to, error))
}
