//! Sessions: the synchronous core of commit, create, load and purge.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::event::Event;
use agent_core::model::NeededBlob;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::LeaseStatus;
use agent_core::{Epoch, Error, ErrorKind, Plan, Result, Seq, SessionId, WorkspaceId};

use crate::error::{cut_off, failed, in_doubt, missing};
use crate::io::{FileId, IoFile, Kind, OpenMode, Stat, still_ours, write_full};
use crate::log::{blob_files, place};
use crate::medium::cached::Cached;
use crate::medium::env::{held, parent, unsure};
use crate::medium::lock::{Attempt, HeldLock};
use crate::medium::record::{self, fold};
use crate::medium::{layout, lease, lock, log};
use crate::shared::changes::{self, Announced, Change};
use crate::shared::slot::{Doubt, OpenFiles, State, WriterState};
use crate::shared::tenant::{SharedSession, Tenant};
use crate::shared::transcript_mark::session_of;

pub(crate) fn not_found(id: SessionId) -> Error {
    Error::not_found(format!("session {id} does not exist"))
}

/// Adds to an error for a session that does not exist that its tenant has no data, if so. Another process may have deleted the
/// tenant while this one had the session open.
fn of_tenant(tenant: &Tenant, error: Error) -> Error {
    let is_empty = || tenant.env.list(&tenant.layout.workspaces()).is_ok_and(|names| names.is_empty());
    if *error.kind() != ErrorKind::NotFound || !is_empty() {
        return error;
    }
    let id = tenant.layout.tenant();
    let text =
        format!("{error}, and its tenant {id} has no data: it was deleted, or nothing was written to it");
    Error::not_found(text)
}

// --- commit ----------------------------------------------------------------------------------------------------------

/// Applies a commit, unless another process or handle has the session locked.
pub(crate) fn commit(
    tenant: &Tenant,
    cell: &SharedSession,
    slot: &mut WriterState,
    commit: &Commit,
) -> Result<Attempt<Committed>> {
    let id = commit.session;
    slot.check_poison(id)?;
    // Twice, since the files may have been replaced, or the session may exist already.
    for _ in 0..2 {
        let pointed = match open_or_create(tenant, cell, slot, commit)? {
            Opened::There { pointed } => pointed,
            Opened::Created(committed) => return Ok(Attempt::Done(*committed)),
            Opened::Busy => return Ok(Attempt::Busy),
        };
        let Attempt::Done(done) = slot.under_lock(|open| commit_locked(tenant, cell, open, commit))? else {
            return Ok(Attempt::Busy);
        };
        match done {
            Ok(Some(committed)) => {
                if !pointed {
                    place::point(tenant, id, committed.session.workspace);
                    place::unpoint_if_gone(tenant, id, committed.session.workspace);
                }
                if let Some(open) = &mut slot.open {
                    open.refresh_snapshot();
                }
                return Ok(Attempt::Done(committed));
            }
            Ok(None) => {
                slot.open = None;
                cell.forget();
            }
            Err(Doubt(error, doubt)) => {
                if doubt {
                    poison(cell, slot);
                }
                return Err(error);
            }
        }
    }
    Err(Error::unavailable(format!(
        "session {id} was moved or removed by another program while it was written; try again"
    )))
}

/// Result of looking for the files that a commit is written to.
enum Opened {
    /// The files are open. `pointed` is whether the index file names their folder.
    There {
        pointed: bool,
    },
    /// There were no files; they were created with the commit in them.
    Created(Box<Committed>),
    Busy,
}

fn open_or_create(
    tenant: &Tenant,
    cell: &SharedSession,
    slot: &mut WriterState,
    commit: &Commit,
) -> Result<Opened> {
    if slot.open.is_some() {
        return Ok(Opened::There { pointed: true });
    }
    let id = commit.session;
    let found = match commit.precondition {
        Precondition::MustNotExist => place::find_to_make(tenant, id)?,
        _ => place::find_to_write(tenant, id)?,
    };
    let (folder, pointed) = match found {
        Some(found) => found,
        None => match create(tenant, cell, slot, commit)? {
            Created::Done(committed) => return Ok(Opened::Created(committed)),
            Created::Busy => return Ok(Opened::Busy),
            Created::Exists(folder) => (folder, true),
        },
    };
    tenant.prepare()?;
    match OpenFiles::existing(&tenant.env, folder.clone(), tenant.layout.owner(id)) {
        // The tenant may have been deleted since it was found.
        Err(_) if is_gone(tenant.env.io.stat(&folder)) => return Ok(Opened::Busy),
        open => slot.open = Some(open?),
    }
    Ok(Opened::There { pointed })
}

/// Applies a commit under the lock. Returns `None` if the open files are no longer the session's.
fn commit_locked(
    tenant: &Tenant,
    cell: &SharedSession,
    open: &mut OpenFiles,
    commit: &Commit,
) -> Result<Option<Committed>, Doubt> {
    let plain = |error| Doubt(error, false);
    let Some(state) = open.refresh().map_err(plain)? else { return Ok(None) };
    let position = state.end();
    let planned = agent_core::plan(Some(&state.record), commit).map_err(plain)?;
    match &planned {
        Plan::Write { events, after, blobs, .. } => {
            blob_files::require(tenant, &open.folder, commit.session, blobs).map_err(plain)?;
            let place = open.place;
            let announced = changes::announce(tenant, place, Change::Grows(position.offset));
            let appended = open.append(events, after);
            match appended {
                Ok(true) => changes::confirm(tenant, place, announced),
                _ => drop(changes::announce(tenant, place, Change::Ends)),
            }
            if !appended? {
                return Ok(None);
            }
            // Followers of the session read on from here.
            held(&cell.known).remember(position);
        }
        // Another process may have written the commit and ended before it was durable.
        _ => open.sync_pending()?,
    }
    learn(cell, open);
    Ok(Some(planned.committed()))
}

/// Updates the readers of this process with the writer's latest state.
fn learn(cell: &SharedSession, open: &OpenFiles) {
    if let Some(state) = open.state() {
        cell.learn(state.cached());
    }
    held(&cell.known).folder = Some(open.folder.clone());
    cell.pinned.store(open.holds_lease(), Ordering::Relaxed);
}

/// Refuses all writes until the store is opened again, because a failure left in doubt what is durable.
fn poison(cell: &SharedSession, slot: &mut WriterState) {
    *slot = WriterState { open: None, poisoned: true };
    cell.pinned.store(true, Ordering::Relaxed);
}

// --- rebuild ---------------------------------------------------------------------------------------------------------

/// Rebuilds the files that are derived from the log of a session, which was found in a workspace. Returns whether the
/// session still exists.
pub(crate) fn rebuild(
    tenant: &Tenant,
    cell: &SharedSession,
    slot: &mut WriterState,
    workspace: WorkspaceId,
    id: SessionId,
) -> Result<Attempt<bool>> {
    let folder = tenant.layout.session(workspace, id);
    if tenant.env.io.stat(&folder).is_err() {
        return Ok(Attempt::Done(false));
    }
    place::point(tenant, id, workspace);
    place::unpoint_if_gone(tenant, id, workspace);
    if slot.open.is_none() {
        slot.open = Some(OpenFiles::existing(&tenant.env, folder, tenant.layout.owner(id))?);
    }
    let renew = |open: &mut OpenFiles| open.renew().map(|state| state.map(State::cached));
    let Attempt::Done(renewed) = slot.under_lock(renew)? else { return Ok(Attempt::Busy) };
    if !matches!(&renewed, Ok(Some(_))) {
        slot.open = None;
    }
    let Some(cached) = renewed? else {
        // The names lead to other files now, which the next attempt opens.
        cell.forget();
        return Ok(Attempt::Busy);
    };
    cell.learn(cached);
    let announced = changes::announce(tenant, Some((workspace, id)), Change::Ends);
    changes::confirm(tenant, Some((workspace, id)), announced);
    Ok(Attempt::Done(true))
}

// --- create ----------------------------------------------------------------------------------------------------------

enum Created {
    Done(Box<Committed>),
    Busy,
    /// Another process or handle created the session first, in this folder.
    Exists(PathBuf),
}

/// Applies a commit to a session that does not exist, as far as is known.
fn create(tenant: &Tenant, cell: &SharedSession, slot: &mut WriterState, commit: &Commit) -> Result<Created> {
    let (env, id) = (&tenant.env, commit.session);
    let planned = match agent_core::plan(None, commit) {
        Ok(planned) => planned,
        Err(error) => {
            // If the session exists after all, its own record decides.
            let there = if commit.precondition == Precondition::MustNotExist {
                place::search(tenant, id)?
            } else {
                None
            };
            return there.map(Created::Exists).ok_or_else(|| of_tenant(tenant, error));
        }
    };
    let Plan::Write { events, after, blobs, .. } = &planned else {
        return Ok(Created::Done(Box::new(planned.committed())));
    };
    // The transcript shows that a main session existed, also if the derived file was removed.
    if session_of(tenant, after.workspace) == Some(id) && place::search(tenant, id)?.is_none() {
        return Err(missing(&tenant.layout.session(after.workspace, id), id));
    }
    tenant.prepare()?;
    // Held until the child has its name, so that its parent is not deleted meanwhile.
    let _parent = match after.origin.parent() {
        Some(parent) => match lock_parent(tenant, parent)? {
            Some(lock) => Some(lock),
            None => return Ok(Created::Busy),
        },
        None => None,
    };
    let Some(creating) = place::take_create_lock(tenant, id)? else { return Ok(Created::Busy) };
    if let Some(folder) = place::search_to_make(tenant, &creating, id)? {
        return Ok(Created::Exists(folder));
    }
    let folder = tenant.layout.session(after.workspace, id);
    blob_files::require_early(tenant, id, blobs)?;
    let Some((made, announced)) = make(tenant, &creating, &folder, (events, blobs), after)? else {
        return Ok(Created::Exists(folder));
    };
    if let Err(error) = env.sync_dir(parent(&folder)) {
        if error.kind() == io::ErrorKind::NotFound {
            // The folders above were removed meanwhile: the session is created in the current ones.
            return Ok(Created::Busy);
        }
        poison(cell, slot);
        return Err(in_doubt("make durable the name of", &folder, error));
    }
    place::point(tenant, id, after.workspace);
    changes::confirm(tenant, layout::place_of(&folder), announced);
    match still_ours(&*env.io, made.lock.1, &folder) {
        Ok(Some(_)) => {}
        // The folders above were replaced meanwhile: the session is created in the current ones.
        Ok(None) => {
            place::unpoint_if_gone(tenant, id, after.workspace);
            return Ok(Created::Busy);
        }
        Err(error) => return Err(in_doubt("look at", &folder, error)),
    }
    blob_files::remove_early(tenant, id, blobs);
    let Made { log, lock, lease } = made;
    let open = OpenFiles::made(env, (folder, tenant.layout.owner(id)), log, lock, after.clone(), lease);
    learn(cell, &open);
    slot.open = Some(open);
    Ok(Created::Done(Box::new(planned.committed())))
}

/// Creates a session's folder under its name. The name is not durable yet. Returns `None` if another process or handle
/// created it first.
fn make(
    tenant: &Tenant,
    creating: &HeldLock,
    folder: &Path,
    (events, blobs): (&[Event], &[NeededBlob]),
    after: &SessionRecord,
) -> Result<Option<(Made, Announced)>> {
    let (env, sessions) = (&tenant.env, parent(folder));
    env.ensure_dir(sessions)?;
    env.sweep(sessions);
    let (temp, ()) = env
        .fresh(sessions, &after.id.to_string(), |temp| env.io.create_dir(temp))
        .map_err(|e| failed("create a folder in", sessions, e))?;
    let named = build(tenant, &temp, (events, blobs), after).and_then(|made| {
        // The lock's file may have been removed meanwhile, and another process may have created the session.
        if !creating.locked().still_ours(env)? && place::search(tenant, after.id)?.is_some() {
            return Ok(None);
        }
        let place = layout::place_of(folder);
        let announced = changes::announce(tenant, place, Change::Begins);
        // The next creation of the same session may find it by that line alone, if this process is killed.
        changes::confirm(tenant, place, announced);
        let renamed = env.io.rename(&temp, folder);
        if renamed.is_err() {
            changes::announce(tenant, place, Change::Ends);
        }
        match renamed {
            Ok(()) => Ok(Some((made, announced))),
            Err(error) if is_taken(&error) => Ok(None),
            Err(error) => Err(unsure(failed("create the folder", folder, error))),
        }
    });
    if !matches!(named, Ok(Some(_))) {
        env.discard_all(&temp, Kind::Folder);
    }
    named
}

struct Made {
    log: (Box<dyn IoFile>, Stat),
    lock: (Box<dyn IoFile>, FileId),
    lease: Option<lease::Mine>,
}

/// Creates a session's folder under a temporary name, whole and durable before it is renamed.
fn build(
    tenant: &Tenant,
    temp: &Path,
    (events, blobs): (&[Event], &[NeededBlob]),
    after: &SessionRecord,
) -> Result<Made> {
    let env = &tenant.env;
    let lines = log::lines(tenant.layout.owner(after.id), events)?;
    let lock = env.io.open_lock(temp).map_err(|e| failed("open", temp, e))?;
    let lock_id = lock.stat().map_err(|e| failed("look at", temp, e))?.id;
    let path = temp.join(layout::LOG);
    let log = env.io.open(&path, OpenMode::CreateNew).map_err(|e| failed("create", &path, e))?;
    let stat = write_full(&*log, &lines, 0)
        .and_then(|()| env.sync_file(&*log))
        .and_then(|()| log.stat())
        .map_err(|e| failed("write", &path, e))?;
    let mut lease = None;
    if let Some(live) = &after.lease {
        lease::take(env, temp, live.epoch, &mut lease)?;
    }
    blob_files::bring_early(tenant, temp, after.id, blobs)?;
    env.sync_dir(temp).map_err(|e| failed("make durable", temp, e))?;
    Ok(Made { log: (log, stat), lock: (lock, lock_id), lease })
}

fn is_gone(stat: io::Result<Stat>) -> bool {
    stat.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

/// Locks the session that another session is about to be created from; `None` if the lock is held.
fn lock_parent(tenant: &Tenant, id: SessionId) -> Result<Option<HeldLock>> {
    let folder = place::find(tenant, id)?.ok_or_else(|| not_found(id))?;
    let Some(lock) = lock::take_folder(&tenant.env, &folder)? else { return Ok(None) };
    let parent = load_folder(tenant, &folder, id)?.ok_or_else(|| not_found(id))?;
    if parent.record.status.state == SessionState::Deleted {
        return Err(Error::deleted(format!("session {id} was deleted; it has no new forks or children")));
    }
    Ok(Some(lock))
}

// --- load ------------------------------------------------------------------------------------------------------------

/// Returns the record of a session, as of the current log. Waits for no lock.
pub(crate) fn load(tenant: &Tenant, cell: &SharedSession, id: SessionId) -> Result<Arc<SessionRecord>> {
    current(tenant, cell, id).map(|cached| cached.record)
}

/// Returns the record of a session, and the offset at which its log ends.
pub(crate) fn current(tenant: &Tenant, cell: &SharedSession, id: SessionId) -> Result<Cached> {
    let (folder, known) = {
        let known = held(&cell.known);
        (known.folder.clone(), known.record.clone())
    };
    if let (Some(folder), Some(known)) = (&folder, known.clone())
        && let Some(cached) = catch_up(tenant, folder, id, known)?
    {
        cell.learn(cached.clone());
        return Ok(cached);
    }
    let folder = match folder {
        Some(folder) if tenant.env.io.stat(&folder).is_ok() => folder,
        _ => place::find(tenant, id)?.ok_or_else(|| not_found(id))?,
    };
    let mut cached = load_folder(tenant, &folder, id)?.ok_or_else(|| not_found(id))?;
    if let Some(known) = known.filter(|known| known.id == cached.id && !known.purged && !cached.purged) {
        if cached.end < known.sure && cached.end < cached.len {
            return Err(cut_off(&folder.join(layout::LOG), known.sure, cached.end));
        }
        cached.sure = known.sure;
    }
    held(&cell.known).folder = Some(folder);
    cell.learn(cached.clone());
    Ok(cached)
}

/// Updates a cached session with what was appended since; `None` if its log is no longer the same file.
fn catch_up(tenant: &Tenant, folder: &Path, id: SessionId, known: Cached) -> Result<Option<Cached>> {
    let log = folder.join(layout::LOG);
    let Ok(stat) = tenant.env.io.stat(&log) else { return Ok(None) };
    if stat.id != known.id || stat.len < known.len {
        return Ok(None);
    }
    if stat.len == known.len && known.len == known.end {
        return Ok(Some(known));
    }
    let Ok(file) = tenant.env.io.open(&log, OpenMode::Read) else { return Ok(None) };
    let stat = file.stat_at_open().map_err(|e| failed("look at", &log, e))?;
    if stat.id != known.id || stat.len < known.end || known.purged {
        return Ok(None);
    }
    let folded = fold(&*file, &log, tenant.layout.owner(id), Some(known.record), known.end, stat.len)?;
    match (folded.record, folded.bad) {
        (Some(record), None) => Ok(Some(Cached {
            record,
            end: folded.end,
            len: stat.len,
            sure: known.sure,
            id: stat.id,
            purged: false,
        })),
        // Damage, a commit that is being written, or a writer that undid what was read and wrote other events: the
        // whole log is folded again.
        _ => Ok(None),
    }
}

/// Loads a session from its folder.
pub(crate) fn load_folder(tenant: &Tenant, folder: &Path, id: SessionId) -> Result<Option<Cached>> {
    let mut again = true;
    loop {
        let Some(loaded) = record::load(&tenant.env, folder, tenant.layout.owner(id))? else {
            return Ok(None);
        };
        match loaded.bad {
            Some(bad) if bad.middle => {
                // A writer may have removed a torn end and appended between two reads.
                if std::mem::take(&mut again) {
                    continue;
                }
                return Err(bad.error(&folder.join(layout::LOG)));
            }
            _ => {}
        }
        return Ok(Some(Cached {
            record: loaded.record,
            end: loaded.end,
            len: loaded.stat.len,
            sure: 0,
            id: loaded.stat.id,
            purged: loaded.purged,
        }));
    }
}

// --- heartbeats ------------------------------------------------------------------------------------------------------

/// Returns the folder of a session.
pub(crate) fn folder(tenant: &Tenant, cell: &SharedSession, id: SessionId) -> Result<PathBuf> {
    let known = held(&cell.known).folder.clone();
    if let Some(folder) = known.filter(|folder| tenant.env.io.stat(folder).is_ok()) {
        return Ok(folder);
    }
    let folder = place::find(tenant, id)?.ok_or_else(|| not_found(id))?;
    held(&cell.known).folder = Some(folder.clone());
    Ok(folder)
}

pub(crate) fn heartbeat(tenant: &Tenant, cell: &SharedSession, id: SessionId, epoch: Epoch) -> Result<()> {
    lease::heartbeat(&tenant.env, &folder(tenant, cell, id)?, epoch)
}

pub(crate) fn lease_status(
    tenant: &Tenant,
    cell: &SharedSession,
    id: SessionId,
    epoch: Epoch,
) -> Result<LeaseStatus> {
    lease::lease_status(&tenant.env, &folder(tenant, cell, id)?, epoch)
}

/// Returns the head, if it is after `seen`.
pub(crate) fn head_after(
    tenant: &Tenant,
    cell: &SharedSession,
    id: SessionId,
    seen: Seq,
) -> Result<Option<Seq>> {
    let head = load(tenant, cell, id)?.head;
    Ok((head > seen).then_some(head))
}
