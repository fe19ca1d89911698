//! Files of blobs: their names, and what a commit needs of them.

use std::io;
use std::path::{Path, PathBuf};

use agent_core::model::{BlobInfo, NeededBlob};
use agent_core::{BlobName, Error, Result, SessionId};

use crate::error::{corrupt, failed};
use crate::io::{Kind, OpenMode, copy, is_no_file, not_a_file};
use crate::medium::env::Env;
use crate::medium::layout;
use crate::shared::tenant::Tenant;

/// Number of bytes of a chunk's checksum.
pub(crate) const SUM: usize = 4;

pub(crate) fn sums_of(blob: &Path) -> PathBuf {
    let mut path = blob.as_os_str().to_owned();
    path.push(layout::SUMS);
    path.into()
}

/// Returns the length of the file with the checksums; `None` for a blob that is checked by its name alone.
pub(crate) fn sums_len(blob: BlobInfo) -> Option<u64> {
    (blob.chunks() > 1).then(|| blob.chunks() * SUM as u64)
}

/// Returns whether a folder of blobs exists. It is not reached through a link, unlike other folders: a sweep or a purge
/// would remove what belongs to another session.
pub(crate) fn is_there(env: &Env, folder: &Path) -> Result<bool> {
    #[cfg(not(unix))]
    return match env.kind(folder)? {
        Some(Kind::Folder) => Ok(true),
        Some(_) => Err(no_folder(folder)),
        None => Ok(false),
    };
    #[cfg(unix)]
    match env.io.open(folder, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if !is_no_file(&error) => Err(failed("use the folder", folder, error)),
        _ => Err(no_folder(folder)),
    }
}

pub(crate) fn no_folder(path: &Path) -> Error {
    corrupt(path, "is a link or a file, where a folder with blobs should be")
}

/// Creates a folder of blobs, if it does not exist. Its name is made durable with the first blob in it.
pub(crate) fn make_folder(env: &Env, folder: &Path) -> Result<()> {
    if is_there(env, folder)? {
        return Ok(());
    }
    match env.io.create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed("create the folder", folder, error))
        }
        _ => Ok(()),
    }
}

/// Returns the length of a file; `None` if there is none. Anything else with that name is an error.
pub(crate) fn file_len(env: &Env, path: &Path) -> Result<Option<u64>> {
    match env.io.stat(path) {
        Ok(stat) if stat.kind == Kind::File => Ok(Some(stat.len)),
        Ok(stat) => Err(failed("use the blob", path, not_a_file(stat.kind))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("look at", path, error)),
    }
}

/// Returns a blob of a folder; `None` if it is not there. A blob that lacks the checksums of its chunks counts as
/// missing, so that its writer puts it again.
pub(crate) fn stored(env: &Env, folder: &Path, name: BlobName) -> Result<Option<BlobInfo>> {
    let path = folder.join(name.to_string());
    let Some(bytes) = file_len(env, &path)? else { return Ok(None) };
    let blob = BlobInfo::new(name, bytes);
    match sums_len(blob) {
        Some(len) if file_len(env, &sums_of(&path))? != Some(len) => Ok(None),
        _ => Ok(Some(blob)),
    }
}

pub(crate) fn sync(env: &Env, folder: &Path) -> Result<()> {
    env.sync_dir(folder).map_err(|e| failed("make durable", folder, e))
}

// --- what a commit needs ---------------------------------------------------------------------------------------------

/// Checks, under the lock of a session's folder, that the session has the blobs that a commit names, and makes their
/// names durable: who put them may have ended before that.
pub(crate) fn require(tenant: &Tenant, session: &Path, id: SessionId, needed: &[NeededBlob]) -> Result<()> {
    if needed.is_empty() {
        return Ok(());
    }
    let env = &tenant.env;
    let (own, early) = (session.join(layout::BLOBS), tenant.layout.early_blobs_of(id));
    let (has_own, mut brought) = (is_there(env, &own)?, Vec::new());
    NeededBlob::check::<Error>(id, needed, |name| {
        if has_own && let Some(blob) = stored(env, &own, name)? {
            return Ok(Some(blob.bytes));
        }
        // It may have been put before the session was created, by a commit that did not name it.
        let Some(blob) = early_blob(tenant, id, name)? else { return Ok(None) };
        make_folder(env, &own)?;
        if !bring(env, &early, &own, blob)? {
            return Ok(None);
        }
        brought.push(NeededBlob::new(name, Some(blob.bytes)));
        Ok(Some(blob.bytes))
    })?;
    sync(env, &own)?;
    sync(env, session)?;
    remove_early(tenant, id, &brought);
    Ok(())
}

/// Returns a blob that was put for an id before its session was created.
pub(crate) fn early_blob(tenant: &Tenant, id: SessionId, name: BlobName) -> Result<Option<BlobInfo>> {
    let folder = tenant.layout.early_blobs_of(id);
    let there = is_there(&tenant.env, &tenant.layout.early_blobs())? && is_there(&tenant.env, &folder)?;
    if there { stored(&tenant.env, &folder, name) } else { Ok(None) }
}

/// Checks, under the lock for creating sessions, that the blobs were put that a creating commit names.
pub(crate) fn require_early(tenant: &Tenant, id: SessionId, needed: &[NeededBlob]) -> Result<()> {
    NeededBlob::check(id, needed, |name| Ok(early_blob(tenant, id, name)?.map(|blob| blob.bytes)))
}

/// Gives the blobs that a creating commit names their names in the folder of the new session, and makes these durable
/// but for that of the folder of blobs.
pub(crate) fn bring_early(
    tenant: &Tenant,
    session: &Path,
    id: SessionId,
    needed: &[NeededBlob],
) -> Result<()> {
    if needed.is_empty() {
        return Ok(());
    }
    let (env, own, early) = (&tenant.env, session.join(layout::BLOBS), tenant.layout.early_blobs_of(id));
    make_folder(env, &own)?;
    NeededBlob::check::<Error>(id, needed, |name| {
        let Some(blob) = stored(env, &early, name)? else { return Ok(None) };
        Ok(bring(env, &early, &own, blob)?.then_some(blob.bytes))
    })?;
    sync(env, &own)
}

/// Removes the blobs that the folder of the session has now, durably. A failure is ignored, since a sweep removes them, too.
pub(crate) fn remove_early(tenant: &Tenant, id: SessionId, needed: &[NeededBlob]) {
    if needed.is_empty() {
        return;
    }
    let (env, early) = (&tenant.env, tenant.layout.early_blobs_of(id));
    let mut paths: Vec<_> = needed.iter().map(|blob| early.join(blob.name.to_string())).collect();
    paths.retain(|path| env.io.remove_file(path).is_ok());
    // No blob is left without its checksums.
    if paths.is_empty() || env.sync_dir(&early).is_err() {
        return;
    }
    paths.iter().for_each(|path| env.discard(&sums_of(path)));
    // Stays if anything else was put.
    if env.io.remove_dir(&early).is_ok() {
        let _ = env.sync_dir(&tenant.layout.early_blobs());
    }
}

/// Gives a blob of the folder `from` its name in the folder `to`, too. Returns `false` if it is not there any more. The
/// caller makes the name durable.
fn bring(env: &Env, from: &Path, to: &Path, blob: BlobInfo) -> Result<bool> {
    let name = blob.name.to_string();
    let (old, new) = (from.join(&name), to.join(&name));
    if sums_len(blob).is_some() {
        if !link(env, &sums_of(&old), &sums_of(&new))? {
            return Ok(false);
        }
        // Names become durable in any order, and a blob that has its name has its checksums.
        sync(env, to)?;
    }
    link(env, &old, &new)
}

/// Gives a durable file a second name, or, if the file system cannot, copies it. Returns `false` if it does not exist.
pub(crate) fn link(env: &Env, from: &Path, to: &Path) -> Result<bool> {
    match env.io.hard_link(from, to) {
        Ok(()) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        // There are no hard links, or another file has the name.
        Err(_) => {}
    }
    let file = match env.io.open(from, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed("open", from, error)),
    };
    let (temp, new) = env.create_temp(to)?;
    let copied = file
        .stat()
        .and_then(|stat| copy(&*file, &*new, stat.len))
        .and_then(|()| env.sync_file(&*new))
        .and_then(|()| env.io.rename(&temp, to));
    copied.map(|()| true).map_err(|error| {
        env.discard(&temp);
        failed("write", to, error)
    })
}
