//! Reader of exports of the former version: folders that a copy has made.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use agent_core::clock::Effects;
use agent_core::{Backend, Error, Result, SessionId, SessionStore, TenantId};

use crate::error::{corrupt, failed, in_doubt};
use crate::io::{Io, IoFile, OpenMode, RealIo, append_full};
use crate::medium::env::parent;
use crate::medium::layout::{self, Layout};
use crate::medium::log::{self, COMMIT_MAX};
use crate::medium::record::TOMBSTONE_FORMAT;
use crate::owner::{FORMAT, Owner};
use crate::places::workspace_toml;
use crate::store::FsStore;

/// Format of the logs of exports that are read.
const FORMER: i64 = 5;
/// Format of the records of workspaces in them.
const FORMER_RECORD: &str = "format = 1";
/// Lines are written when they have as many bytes.
const WRITE_BYTES: usize = 1 << 20;

impl FsStore {
    /// Copies an export of the former version, a folder with logs of format 5, to a new folder of this version's format.
    ///
    /// All tenants are copied, with all that is stored; what is derived is made anew. Nobody owns the sessions and
    /// workspaces. The export is not changed. The new folder gets its name when all of it is there and durable. Open it as a store,
    /// or copy it into another one, which also checks it.
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
    /// If the future is dropped, the new folder may still be made, or not at all. After a crash a folder beside it, whose name
    /// begins with that of `to` and ends with `.part`, may be left: remove it.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a folder that is no such export, also for a store of this version; `InvalidInput` if `to` exists;
    /// `Corrupt` for a log with a line that is not of format 5. After an error nothing is left; if its outcome is unknown, the
    /// whole new folder may be there.
    pub async fn convert_export(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Result<()> {
        let (from, to) = (from.into(), to.into());
        let (part, tenants) = on_thread(move || convert(&from, &to)).await?;
        let store = Self::open(&part.path).await?;
        for tenant in tenants {
            store.for_tenant(&tenant).maintenance().rebuild().await?;
        }
        Backend::close(&store).await?;
        on_thread(move || part.publish()).await
    }
}

async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        Error::unavailable("the conversion of an export ended unexpectedly").with_source(error)
    })?
}

/// The new folder under another name, under which it goes when this is dropped.
struct Part {
    path: PathBuf,
    to: PathBuf,
}

impl Part {
    fn make(to: &Path) -> Result<Self> {
        check_unused(to)?;
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let path = to.with_file_name(format!("{name}.{:016x}.part", Effects::default().random_u64()));
        RealIo.create_dir(&path).map_err(|error| failed("make the folder", &path, error))?;
        Ok(Self { path, to: to.to_owned() })
    }

    /// Gives the folder its name.
    fn publish(self) -> Result<()> {
        check_unused(&self.to)?;
        RealIo.rename(&self.path, &self.to).map_err(|error| failed("make the folder", &self.to, error))?;
        let synced = RealIo.sync_dir(parent(&self.to));
        synced.map_err(|error| in_doubt("make durable the name of", &self.to, error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn check_unused(to: &Path) -> Result<()> {
    match fs::symlink_metadata(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("look at", to, error)),
        Ok(_) => Err(Error::invalid(format!("{} exists already; name another folder", to.display()))),
    }
}

/// Converts all tenants; returns them.
fn convert(from: &Path, to: &Path) -> Result<(Part, Vec<TenantId>)> {
    let mut tenants = vec![TenantId::default()];
    tenants.extend(names(&Layout::tenants(from))?.iter().filter_map(|name| name.parse().ok()));
    let first = tenants.iter().find_map(|tenant| format_of(&Layout::new(from, tenant)).transpose());
    if FORMER == FORMAT || first.transpose()? != Some(FORMER) {
        return Err(Error::unsupported(format!(
            "{} is no export with logs of format {FORMER}, which are converted here; open it as it is",
            from.display()
        )));
    }
    let part = Part::make(to)?;
    if tenants.len() > 1 {
        let folder = Layout::tenants(&part.path);
        RealIo.create_dir(&folder).map_err(|error| failed("make the folder", &folder, error))?;
    }
    for tenant in &tenants {
        let (from, to) = (Layout::new(from, tenant), Layout::new(&part.path, tenant));
        copy(&from, from.root(), to.root())?;
    }
    sync_dir(&Layout::tenants(&part.path))?;
    sync_dir(&part.path)?;
    Ok((part, tenants))
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

/// Returns the format of a tenant's logs, by the first of its records of workspaces and logs that tells.
fn format_of(layout: &Layout) -> Result<Option<i64>> {
    let workspaces = layout.root().join(layout::WORKSPACES);
    for workspace in names(&workspaces)? {
        let folder = workspaces.join(workspace);
        if first_line(&folder.join(layout::RECORD))?.is_some_and(|line| line == FORMER_RECORD.as_bytes()) {
            return Ok(Some(FORMER));
        }
        let sessions = folder.join(layout::SESSIONS);
        for session in names(&sessions)? {
            let Ok(id) = session.parse::<SessionId>() else { continue };
            let Some(line) = first_line(&sessions.join(session).join(layout::LOG))? else { continue };
            let format = log::format_of(layout.owner(id), &line);
            if format.is_some() {
                return Ok(format);
            }
        }
    }
    Ok(None)
}

/// Returns the first line of a file, without its end; `None` if there is no file.
fn first_line(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path, error)),
    };
    let mut line = Vec::new();
    next_line(&mut BufReader::new(file), path, &mut line)?;
    Ok(Some(line))
}

/// Reads a line into `line`, without its end; `false` if there is no further line that has one.
fn next_line(file: &mut impl BufRead, path: &Path, line: &mut Vec<u8>) -> Result<bool> {
    line.clear();
    file.take(COMMIT_MAX + 1).read_until(b'\n', line).map_err(|error| failed("read", path, error))?;
    if line.len() as u64 > COMMIT_MAX {
        return Err(corrupt(path, "has a line that is longer than any that is written"));
    }
    Ok(line.pop_if(|last| *last == b'\n').is_some())
}

/// Copies what is true in a folder of a tenant. Links, and what is neither a file nor a folder, are left out.
fn copy(layout: &Layout, from: &Path, to: &Path) -> Result<()> {
    match RealIo.create_dir(to) {
        // The root and the folder of tenants are there.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("make the folder", to, error));
        }
        _ => {}
    }
    let folder = to;
    for name in names(from)? {
        let (path, to) = (from.join(&name), folder.join(&name));
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
    sync_dir(folder)
}

fn sync_dir(folder: &Path) -> Result<()> {
    match RealIo.sync_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("sync", folder, error)),
        _ => Ok(()),
    }
}

/// Copies the record of a workspace, which has the same fields, under its present number.
fn renumber(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read_to_string(from).map_err(|error| failed("read", from, error))?;
    let number = |line: &str| match line.trim_end() {
        FORMER_RECORD => format!("format = {}\n", workspace_toml::FORMAT),
        _ => line.to_owned(),
    };
    let text: String = text.split_inclusive('\n').map(number).collect();
    make(to, |new| append_full(new, text.as_bytes()).map_err(|error| failed("write", to, error)))
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let file = RealIo.open(from, OpenMode::Read).map_err(|error| failed("read", from, error))?;
    let copied = |new: &dyn IoFile| crate::io::copy(&*file, new, file.stat()?.len);
    make(to, |new| copied(new).map_err(|error| failed("copy", from, error)))
}

/// Copies the lines of a file with checksums of this version's format.
fn reframe(owner: Owner, from: &Path, to: &Path) -> Result<()> {
    let mut file = BufReader::new(fs::File::open(from).map_err(|error| failed("read", from, error))?);
    let (mut line, mut lines) = (Vec::new(), Vec::new());
    make(to, |new| {
        let write = |lines: &mut Vec<u8>| {
            append_full(new, lines).map_err(|error| failed("write", to, error))?;
            lines.clear();
            Ok(())
        };
        // What follows the last whole line was never acknowledged.
        while next_line(&mut file, from, &mut line)? {
            log::renew(owner, FORMER, TOMBSTONE_FORMAT, &line, &mut lines)
                .ok_or_else(|| corrupt(from, &format!("has a line that is not of format {FORMER}")))?;
            if lines.len() >= WRITE_BYTES {
                write(&mut lines)?;
            }
        }
        write(&mut lines)
    })
}

/// Makes a durable file, whose content `fill` appends.
fn make(path: &Path, fill: impl FnOnce(&dyn IoFile) -> Result<()>) -> Result<()> {
    let file = RealIo.open(path, OpenMode::CreateNew).map_err(|error| failed("make", path, error))?;
    fill(&*file)?;
    file.sync().map_err(|error| failed("sync", path, error))
}
