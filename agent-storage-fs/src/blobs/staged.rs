//! Blobs: a file each, with its name, and beside it the checksums of its chunks. The synchronous core of putting,
//! reading, listing and sweeping them, and of the check that a commit needs.
//!
//! A blob gets its name, and loses it, under the lock that commits of its session take: that of the session's folder,
//! or, while there is no session, the one under which the session is created.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::state::SessionState;
use agent_core::store::{BLOB_CHUNK_BYTES, BlobChunk, BlobInfo, BlobQuery, Damaged, Page, ReadBlob};
use agent_core::{BlobName, Error, ErrorKind, Result, SessionId, WriteOutcome};

use crate::blobs::names::named;
use crate::error::{failed, in_doubt};
use crate::io::{IoFile, OpenMode, read_full, write_full};
use crate::log::blob_files::{SUM, file_len, is_there, link, make_folder, sums_len, sums_of};
use crate::log::{commit, place};
use crate::medium::env::{Env, held, parent, unsure};
use crate::medium::layout;
use crate::medium::lock::{Attempt, Locked};
use crate::owner::Owner;
use crate::shared::slot::{OpenFiles, WriterState};
use crate::shared::tenant::{SharedSession, Tenant};

// --- put -------------------------------------------------------------------------------------------------------------

/// Blob that is being put, under a temporary name. Dropping it removes what is stored of it, unless it was published.
#[derive(Debug)]
pub(crate) struct Staged {
    env: Arc<Env>,
    id: SessionId,
    blob: BlobInfo,
    folder: PathBuf,
    temp: PathBuf,
    progress: Mutex<Progress>,
    is_published: AtomicBool,
}

#[derive(Debug)]
struct Progress {
    /// Open until all bytes are durable.
    file: Option<Box<dyn IoFile>>,
    chunks: u64,
    /// Checksums of the chunks so far.
    sums: Vec<u8>,
    sums_temp: Option<PathBuf>,
    /// True if the session was deleted meanwhile, so that its folder of blobs goes if it is empty.
    is_refused: bool,
}

/// Refuses a blob that no event names which is left of a deleted session. Forks may read one that is named.
fn check_named(env: &Env, session: &Path, owner: Owner, name: BlobName) -> Result<()> {
    if named(env, session, owner, None)?.contains(&name) { Ok(()) } else { Err(deleted(owner.id)) }
}

fn deleted(id: SessionId) -> Error {
    Error::deleted(format!(
        "session {id} was deleted; it takes no blobs but those that its remaining events name"
    ))
}

/// Creates the temporary file of a blob.
pub(crate) fn begin(tenant: &Tenant, cell: &SharedSession, id: SessionId, blob: BlobInfo) -> Result<Staged> {
    let env = &tenant.env;
    let session = match commit::load(tenant, cell, id) {
        Ok(record) => {
            let session = commit::folder(tenant, cell, id)?;
            if record.status.state == SessionState::Deleted {
                // Checked again when the blob is published; here, so that no content is read in vain.
                check_named(env, &session, tenant.layout.owner(id), blob.name)?;
            }
            Some(session)
        }
        Err(error) if *error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    tenant.prepare()?;
    let folder = match session {
        Some(session) => session.join(layout::BLOBS),
        None => {
            let all = tenant.layout.early_blobs();
            is_there(env, &all)?;
            // Also if it exists: the process that created it may have ended before its name was durable.
            env.ensure_dir(&all)?;
            tenant.layout.early_blobs_of(id)
        }
    };
    let mut tries = 0;
    let (temp, file) = loop {
        make_folder(env, &folder)?;
        let made = env.fresh(&folder, &blob.name.to_string(), |temp| env.io.open(temp, OpenMode::CreateNew));
        match made {
            Ok(made) => break made,
            // A sweep has removed the empty folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 3 => tries += 1,
            Err(error) => return Err(failed("create a file in", &folder, error)),
        }
    };
    let progress =
        Progress { file: Some(file), chunks: 0, sums: Vec::new(), sums_temp: None, is_refused: false };
    let progress = Mutex::new(progress);
    Ok(Staged { env: env.clone(), id, blob, folder, temp, progress, is_published: AtomicBool::new(false) })
}

impl Staged {
    /// Writes the next chunk.
    pub(crate) fn write(&self, chunk: &[u8]) -> Result<()> {
        let mut progress = held(&self.progress);
        let index = progress.chunks;
        let Some(file) = &progress.file else { return Err(self.ended()) };
        write_full(&**file, chunk, index * BLOB_CHUNK_BYTES as u64)
            .map_err(|e| failed("write", &self.temp, e))?;
        progress.sums.extend_from_slice(&self.blob.checksum(index, chunk).to_le_bytes());
        progress.chunks += 1;
        Ok(())
    }

    /// Makes the bytes and their checksums durable.
    fn finish(&self) -> Result<()> {
        let mut progress = held(&self.progress);
        let Some(file) = progress.file.take() else { return Err(self.ended()) };
        self.env.sync_file(&*file).map_err(|e| failed("write", &self.temp, e))?;
        if sums_len(self.blob).is_some() {
            let path = sums_of(&self.folder.join(self.blob.name.to_string()));
            progress.sums_temp = Some(self.env.write_temp(&path, &progress.sums, true)?);
        }
        Ok(())
    }

    fn ended(&self) -> Error {
        let text = format!("blob {} of session {} is complete already", self.blob.name, self.id);
        Error::invalid(text)
    }

    /// Gives the blob its name in `folder`, durably, under the lock `locked`.
    fn publish(&self, locked: Locked<'_>, folder: &Path) -> Result<()> {
        let (env, path) = (&self.env, folder.join(self.blob.name.to_string()));
        let mut names = vec![(self.temp.clone(), path.clone())];
        if let Some(temp) = &held(&self.progress).sums_temp {
            // First, so that a blob with its name has its checksums. Those of a blob that is replaced are the same.
            names.insert(0, (temp.clone(), sums_of(&path)));
        }
        make_folder(env, folder)?;
        for (_, name) in &names {
            file_len(env, name)?;
        }
        let is_moved = folder != self.folder;
        let mut brought = Ok(());
        if is_moved {
            brought = names.iter_mut().try_for_each(|(temp, name)| {
                *temp = self.bring(temp, name)?;
                Ok(())
            });
        }
        let done = brought.and_then(|()| locked.check(env)).and_then(|()| {
            for (temp, name) in &names {
                env.io.rename(temp, name).map_err(|e| not_renamed(name, e))?;
                env.sync_dir(folder).map_err(|e| in_doubt("make durable the name of", name, e))?;
            }
            env.sync_dir(parent(folder)).map_err(|e| in_doubt("make durable the name of", folder, e))
        });
        if done.is_err() {
            if is_moved {
                names.iter().for_each(|(temp, _)| env.discard(temp));
            }
            if names.len() > 1 && matches!(file_len(env, &path), Ok(None)) {
                env.discard(&sums_of(&path));
            }
        } else if !is_moved {
            self.is_published.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Gives a temporary file a temporary name beside `name`, in another folder, and returns it.
    fn bring(&self, temp: &Path, name: &Path) -> Result<PathBuf> {
        let text = name.file_name().unwrap_or_default().to_string_lossy();
        let new = parent(name).join(format!(".{text}{}{:016x}", layout::NEW, self.env.effects.random_u64()));
        if link(&self.env, temp, &new)? {
            return Ok(new);
        }
        Err(failed("publish", temp, io::ErrorKind::NotFound.into()))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_published.load(Ordering::Relaxed) {
            return;
        }
        self.env.discard(&self.temp);
        if let Some(temp) = held(&self.progress).sums_temp.take() {
            self.env.discard(&temp);
        }
        // Stays if anything else was put. That of a session stays with it, unless the session was deleted.
        if parent(&self.folder).ends_with(layout::BLOBS) || held(&self.progress).is_refused {
            let _ = self.env.io.remove_dir(&self.folder);
        }
    }
}

/// Error for a file that did not get its name.
fn not_renamed(name: &Path, source: io::Error) -> Error {
    let is_certain = source.kind() == io::ErrorKind::NotFound;
    let error = failed("replace", name, source);
    if is_certain { error } else { unsure(error) }
}

/// Makes the bytes of a blob and their checksums durable. Call it once the content was checked.
pub(crate) fn finish(tenant: &Tenant, cell: &SharedSession, staged: &Staged) -> Result<()> {
    staged.finish().map_err(|error| {
        let is_deleted = commit::load(tenant, cell, staged.id)
            .is_ok_and(|record| record.status.state == SessionState::Deleted);
        // A purge has removed the folder.
        let refused = is_deleted.then(|| {
            let session = commit::folder(tenant, cell, staged.id)?;
            check_named(&tenant.env, &session, tenant.layout.owner(staged.id), staged.blob.name)
        });
        match refused {
            Some(Err(refused)) if *refused.kind() == ErrorKind::Deleted => refused,
            _ => error,
        }
    })
}

/// Gives a blob its name, unless another process or handle has the required lock.
pub(crate) fn publish(
    tenant: &Tenant,
    cell: &SharedSession,
    slot: &mut WriterState,
    staged: &Staged,
) -> Result<Attempt<()>> {
    let id = staged.id;
    slot.check_poison(id)?;
    if !open_session(tenant, slot, id)? {
        return publish_early(tenant, staged);
    }
    let Attempt::Done(done) = slot.under_lock(|open| publish_locked(open, staged))? else {
        return Ok(Attempt::Busy);
    };
    if done? {
        return Ok(Attempt::Done(()));
    }
    // The names lead to other files now, which the next attempt opens.
    slot.open = None;
    cell.forget();
    Ok(Attempt::Busy)
}

/// Opens the files of a session; returns `false` if there is no such session.
pub(crate) fn open_session(tenant: &Tenant, slot: &mut WriterState, id: SessionId) -> Result<bool> {
    if slot.open.is_none() {
        let Some(folder) = place::find(tenant, id)? else { return Ok(false) };
        tenant.prepare()?;
        slot.open = Some(OpenFiles::existing(&tenant.env, folder, tenant.layout.owner(id))?);
    }
    Ok(true)
}

/// Returns `false` if the open files are no longer the session's.
fn publish_locked(open: &mut OpenFiles, staged: &Staged) -> Result<bool> {
    let Some(state) = open.refresh()? else { return Ok(false) };
    let is_deleted = state.record.status.state == SessionState::Deleted;
    let owner = open.owner();
    let folder = open.locked();
    if is_deleted && let Err(error) = check_named(&staged.env, folder.path, owner, staged.blob.name) {
        held(&staged.progress).is_refused = true;
        return Err(error);
    }
    staged.publish(folder, &folder.path.join(layout::BLOBS))?;
    let still_ours = folder.still_ours(&staged.env);
    still_ours.map_err(|error| error.with_outcome(WriteOutcome::Unknown))
}

fn publish_early(tenant: &Tenant, staged: &Staged) -> Result<Attempt<()>> {
    let id = staged.id;
    let Some(creating) = place::take_create_lock(tenant, id)? else { return Ok(Attempt::Busy) };
    // If the session was created meanwhile, the next attempt finds it.
    if place::search(tenant, id)?.is_some() {
        return Ok(Attempt::Busy);
    }
    staged.publish(creating.locked(), &tenant.layout.early_blobs_of(id))?;
    Ok(Attempt::Done(()))
}

// --- read and list ---------------------------------------------------------------------------------------------------

/// Returns the folders that have blobs of a session, or of an id without one.
fn folders(tenant: &Tenant, cell: &SharedSession, id: SessionId) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    match commit::folder(tenant, cell, id) {
        Ok(session) => folders.push(session.join(layout::BLOBS)),
        Err(error) if *error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if is_there(&tenant.env, &tenant.layout.early_blobs())? {
        folders.push(tenant.layout.early_blobs_of(id));
    }
    let mut there = Vec::new();
    for folder in folders {
        if is_there(&tenant.env, &folder)? {
            there.push(folder);
        }
    }
    Ok(there)
}

/// Blob that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenBlob {
    pub(crate) blob: BlobInfo,
    path: PathBuf,
    file: Box<dyn IoFile>,
    /// Checksums of the chunks; `None` if the blob is checked by its name alone.
    sums: Option<Box<dyn IoFile>>,
}

/// Opens a blob of a session, or of an id without one.
pub(crate) fn open(tenant: &Tenant, cell: &SharedSession, read: &ReadBlob) -> Result<OpenBlob> {
    let mut last = open_once(tenant, cell, read);
    if last.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt)) {
        // A commit may have moved the blob to the other folder between the looks at the two.
        last = open_once(tenant, cell, read);
    }
    last
}

fn open_once(tenant: &Tenant, cell: &SharedSession, read: &ReadBlob) -> Result<OpenBlob> {
    let mut damage = None;
    for folder in folders(tenant, cell, read.session)? {
        match open_in(&tenant.env, &folder, read) {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => {}
            // The other folder may have it whole.
            Err(error) if *error.kind() == ErrorKind::Corrupt => damage = damage.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(damage.unwrap_or_else(|| read.not_found()))
}

fn open_in(env: &Env, folder: &Path, read: &ReadBlob) -> Result<Option<OpenBlob>> {
    let name = read.name;
    let open = |path: &Path| match env.io.open(path, OpenMode::Read) {
        Ok(file) => {
            let len = file.stat().map_err(|e| failed("look at", path, e))?.len;
            Ok(Some((file, len)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("open", path, error)),
    };
    let path = folder.join(name.to_string());
    let Some((file, bytes)) = open(&path)? else { return Ok(None) };
    let blob = BlobInfo::new(name, bytes);
    if bytes == 0 && name != BlobName::of(b"") {
        return Err(damaged(&path, "is empty"));
    }
    let sums = match sums_len(blob) {
        None => None,
        Some(wanted) => match open(&sums_of(&path))? {
            Some((sums, len)) if len == wanted => Some(sums),
            Some((_, len)) => {
                let what = format!(
                    "has {} chunks, and there are checksums of {} beside it: one of the files is damaged",
                    blob.chunks(),
                    len / SUM as u64
                );
                return Err(damaged(&path, &what));
            }
            None => return Err(damaged(&path, "cannot be checked: the checksums beside it are missing")),
        },
    };
    let opened = OpenBlob { blob, path, file, sums };
    if !read.range.is_empty() && read.range.start >= bytes && bytes > 0 {
        // Nothing of the blob is in the range, unless the blob was cut off. The last chunk tells.
        opened.chunk(blob.chunks() - 1)?;
    }
    Ok(Some(opened))
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::corrupt(format!("{} {what}; put the blob again, or restore it from a backup", path.display()))
}

impl OpenBlob {
    /// Returns a chunk that has the right checksum.
    pub(crate) fn chunk(&self, index: u64) -> Result<BlobChunk> {
        let mut bytes = vec![0; self.blob.chunk_len(index)];
        let read = |file: &dyn IoFile, buffer: &mut [u8], offset| {
            read_full(file, buffer, offset).map_err(|e| failed("read", &self.path, e))
        };
        let count = read(&*self.file, &mut bytes, index * BLOB_CHUNK_BYTES as u64)?;
        let mut sum = [0; SUM];
        let (is_right, checksum) = match &self.sums {
            Some(sums) => {
                let whole = read(&**sums, &mut sum, index * SUM as u64)? == SUM;
                let checksum = u32::from_le_bytes(sum);
                (whole && checksum == self.blob.checksum(index, &bytes), Some(checksum))
            }
            None => (BlobName::of(&bytes) == self.blob.name, None),
        };
        if count < bytes.len() || !is_right {
            let what = format!("is damaged in chunk {index} of {}", self.blob.chunks());
            return Err(damaged(&self.path, &what));
        }
        Ok(BlobChunk::new(bytes.into(), checksum))
    }
}

/// Returns one page of the blobs of a session, or of an id without one.
pub(crate) fn list(tenant: &Tenant, cell: &SharedSession, query: &BlobQuery) -> Result<Page<BlobInfo>> {
    let (mut found, mut odd) = (BTreeMap::new(), Vec::new());
    for folder in folders(tenant, cell, query.session)? {
        for (name, _) in tenant.env.list(&folder)? {
            let Some(name) = name.to_str().and_then(|name| name.parse::<BlobName>().ok()) else { continue };
            let path = folder.join(name.to_string());
            match file_len(&tenant.env, &path) {
                Ok(Some(bytes)) => drop(found.entry(name).or_insert(bytes)),
                // It was removed meanwhile.
                Ok(None) => {}
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    odd.push(Damaged::of(path.display().to_string(), &error));
                }
                Err(error) => return Err(error),
            }
        }
    }
    let page = query.page(found.into_iter().map(|(name, bytes)| BlobInfo::new(name, bytes)))?;
    Ok(if query.cursor.is_none() { page.with_damaged(odd) } else { page })
}
