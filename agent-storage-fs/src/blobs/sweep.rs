//! Removes blobs that no event names, and finds what is no blob.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use agent_core::store::{Damaged, SweepBlobs, SweptBlobs};
use agent_core::{BlobName, Error, ErrorKind, Result, SessionId, WriteOutcome};

use crate::blobs::names::named;
use crate::blobs::staged::open_session;
use crate::error::failed;
use crate::io::{Kind, not_a_file};
use crate::log::blob_files::{is_there, sync};
use crate::log::{commit, place};
use crate::medium::env::{Env, parent};
use crate::medium::layout;
use crate::medium::lock::Attempt;
use crate::owner::Owner;
use crate::shared::slot::{OpenFiles, WriterState};
use crate::shared::tenant::{SharedSession, Tenant};

/// Returns the objects in a folder of blobs that are not files.
pub(crate) fn odd(env: &Env, folder: &Path) -> Vec<Damaged> {
    let report = |path: &Path, error: &Error| Damaged::of(path.display().to_string(), error);
    let names = match is_there(env, folder) {
        Ok(true) => env.list(folder),
        Ok(false) => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    match names {
        Ok(names) => names
            .iter()
            .filter(|(name, kind)| *kind != Kind::File && !matches!(Entry::of(name), Entry::Other))
            .map(|(name, kind)| {
                let path = folder.join(name);
                report(&path, &failed("use the blob", &path, not_a_file(*kind)))
            })
            .collect(),
        Err(error) => vec![report(folder, &error)],
    }
}

/// Like [`odd`], for the blobs that were put before their sessions were created.
pub(crate) fn odd_early(tenant: &Tenant) -> Vec<Damaged> {
    match early_ids(tenant) {
        Ok(ids) => ids.iter().flat_map(|id| odd(&tenant.env, &tenant.layout.early_blobs_of(*id))).collect(),
        Err(error) => {
            vec![Damaged::of(tenant.layout.early_blobs().display().to_string(), &error)]
        }
    }
}

/// Meaning of a name in a folder of blobs.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Blob(BlobName),
    Sums(BlobName),
    /// Temporary name; true for that of a blob, false for that of its checksums.
    Temp(bool),
    /// A name that is not of this store.
    Other,
}

impl Entry {
    fn of(name: &std::ffi::OsStr) -> Self {
        let Some(name) = name.to_str() else { return Self::Other };
        if layout::is_temp(name) {
            return Self::Temp(!name.contains(layout::SUMS));
        }
        match name.strip_suffix(layout::SUMS) {
            Some(blob) => blob.parse().map_or(Self::Other, Self::Sums),
            None => name.parse().map_or(Self::Other, Self::Blob),
        }
    }
}

/// Returns the ids for which blobs were put before their sessions were created.
pub(crate) fn early_ids(tenant: &Tenant) -> Result<Vec<SessionId>> {
    let all = tenant.layout.early_blobs();
    if !is_there(&tenant.env, &all)? {
        return Ok(Vec::new());
    }
    Ok(tenant.env.list(&all)?.iter().filter_map(|(name, _)| layout::id_of(name)).collect())
}

/// Removes the blobs that no event names, unless another process or handle has a required lock: those that were put
/// before the session was created, and those of the session if the request is for it.
pub(crate) fn sweep(
    tenant: &Tenant,
    cell: &SharedSession,
    slot: &mut WriterState,
    id: SessionId,
    sweep: SweepBlobs,
) -> Result<Attempt<SweptBlobs>> {
    let env = &tenant.env;
    let early = tenant.layout.early_blobs_of(id);
    let mut creating = None;
    if is_there(env, &tenant.layout.early_blobs())? && is_there(env, &early)? {
        creating = place::take_create_lock(tenant, id)?;
        if creating.is_none() {
            return Ok(Attempt::Busy);
        }
    }
    let mut swept = SweptBlobs::default();
    let dry_run = sweep.dry_run;
    // Most sessions have no blobs; they are neither opened nor locked.
    let of_session = sweep.session.is_some()
        && match commit::folder(tenant, cell, id) {
            Ok(session) => is_there(env, &session.join(layout::BLOBS))?,
            Err(error) if *error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
    if of_session {
        slot.check_poison(id)?;
        if open_session(tenant, slot, id)? {
            let done = match slot.under_lock(|open| sweep_locked(env, open, dry_run))? {
                Attempt::Done(done) => done?,
                Attempt::Busy => return Ok(Attempt::Busy),
            };
            let Some(done) = done else {
                slot.open = None;
                cell.forget();
                return Ok(Attempt::Busy);
            };
            swept += done;
        }
    }
    if creating.is_some() {
        // What the session's events name is in its own folder.
        let none = HashSet::new();
        let cleared = Clearing { env, folder: &early, keep: &none, young: false, dry_run }.run(true);
        swept += match cleared {
            // A part was done.
            Err(error) if swept.blobs > 0 => return Err(error.with_outcome(WriteOutcome::Unknown)),
            cleared => cleared?,
        };
    }
    Ok(Attempt::Done(swept))
}

/// Returns `None` if the open files are no longer the session's.
fn sweep_locked(env: &Env, open: &mut OpenFiles, dry_run: bool) -> Result<Option<SweptBlobs>> {
    let Some(state) = open.refresh()? else { return Ok(None) };
    let head = (!state.purged).then(|| state.record.head.get());
    let owner = open.owner();
    let session = open.locked();
    let folder = session.path.join(layout::BLOBS);
    if !is_there(env, &folder)? {
        return Ok(Some(SweptBlobs::default()));
    }
    let keep = named(env, session.path, owner, head)?;
    if !dry_run {
        // Otherwise a commit that was taken back may be in the log again after the loss of power, and name what was
        // removed.
        open.sync_log()?;
    }
    session.check(env)?;
    let swept = Clearing { env, folder: &folder, keep: &keep, young: false, dry_run }.run(false)?;
    let still_ours = session.still_ours(env).map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
    Ok(still_ours.then_some(swept))
}

/// Removes, under the lock of a session's folder, the blobs that its purged log does not name, and all leftovers.
pub(crate) fn purge(tenant: &Tenant, session: &Path, owner: Owner) -> Result<()> {
    let (env, own, early) =
        (&tenant.env, session.join(layout::BLOBS), tenant.layout.early_blobs_of(owner.id));
    if is_there(env, &own)? {
        match named(env, session, owner, None) {
            Ok(keep) => {
                Clearing { env, folder: &own, keep: &keep, young: true, dry_run: false }.run(true)?;
            }
            // A fork may read them.
            Err(error) if *error.kind() == ErrorKind::Corrupt => tracing::warn!(
                session = %owner.id,
                %error,
                "what is left of a log is damaged, so the blobs of the session stay"
            ),
            Err(error) => return Err(error),
        }
    }
    let all = tenant.layout.early_blobs();
    if is_there(env, &all)? {
        if is_there(env, &early)? {
            let none = HashSet::new();
            Clearing { env, folder: &early, keep: &none, young: true, dry_run: false }.run(true)?;
        }
        // What a commit removed there is removed for good, too.
        sync(env, &all)?;
    }
    Ok(())
}

/// Removal of blobs from a folder.
struct Clearing<'a> {
    env: &'a Env,
    folder: &'a Path,
    /// Blobs that stay.
    keep: &'a HashSet<BlobName>,
    /// True if leftovers are removed that another process may still be writing.
    young: bool,
    dry_run: bool,
}

impl Clearing<'_> {
    /// Removes the blobs, durably; and the folder, if it is empty then and `with_folder`.
    fn run(&self, with_folder: bool) -> Result<SweptBlobs> {
        let names = self.env.list(self.folder)?;
        let blobs: HashSet<_> = names.iter().filter_map(|(name, _)| blob_of(name)).collect();
        let (mut swept, mut gone, mut sums) = (SweptBlobs::default(), Vec::new(), Vec::new());
        for (name, kind) in &names {
            let path = self.folder.join(name);
            let entry = Entry::of(name);
            let is_leftover = match entry {
                Entry::Blob(blob) | Entry::Sums(blob) if self.keep.contains(&blob) => continue,
                Entry::Other => continue,
                Entry::Blob(_) => false,
                Entry::Sums(blob) => !blobs.contains(&blob),
                Entry::Temp(_) => true,
            };
            let stat = match self.env.io.stat(&path) {
                Ok(stat) => stat,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("look at", &path, error)),
            };
            if *kind != Kind::File && !self.young {
                return Err(failed("remove the blob", &path, not_a_file(*kind)));
            }
            if is_leftover && !self.young && !self.env.is_old(stat) {
                swept.unfinished += stat.len;
                continue;
            }
            match entry {
                Entry::Sums(_) if is_leftover => swept += SweptBlobs::new(0, stat.len),
                // Counted with its blob.
                Entry::Sums(_) => {}
                Entry::Temp(false) => swept += SweptBlobs::new(0, stat.len),
                _ => swept += SweptBlobs::new(1, stat.len),
            }
            if matches!(entry, Entry::Sums(_)) { &mut sums } else { &mut gone }.push((path, *kind));
        }
        if self.dry_run {
            return Ok(swept);
        }
        let is_empty = gone.len() + sums.len() == names.len();
        // The checksums last, so that no blob is left without them.
        let removed = self.remove(&gone).and_then(|()| self.remove(&sums)).and_then(|()| {
            if with_folder && is_empty {
                // Somebody may put a blob at this moment.
                let _ = self.env.io.remove_dir(self.folder);
                sync(self.env, parent(self.folder))?;
            }
            Ok(())
        });
        removed.map(|()| swept).map_err(|error| error.with_outcome(WriteOutcome::Unknown))
    }

    fn remove(&self, paths: &[(PathBuf, Kind)]) -> Result<()> {
        for (path, kind) in paths {
            self.env.remove_tree(path, *kind)?;
        }
        // A purge also makes durable what an earlier one removed. What comes back otherwise, a later sweep removes.
        if paths.is_empty() && !self.young { Ok(()) } else { sync(self.env, self.folder) }
    }
}

fn blob_of(name: &std::ffi::OsStr) -> Option<BlobName> {
    match Entry::of(name) {
        Entry::Blob(name) => Some(name),
        _ => None,
    }
}
