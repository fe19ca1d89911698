//! Sessions: the synchronous core of commit, create, load and purge.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_core::commit::{Commit, Committed, Expect};
use agent_core::event::Event;
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::store::Pulse;
use agent_core::{Epoch, Error, ErrorKind, Plan, Result, Seq, SessionId, WorkspaceId};

use crate::cached::Cached;
use crate::env::{held, parent, unsure};
use crate::error::{cut_off, failed, in_doubt, missing};
use crate::io::{FileId, IoFile, Kind, OpenMode, Stat, still_ours, write_full};
use crate::lock::{Attempt, Held};
use crate::record::{self, fold};
use crate::slot::{Doubt, Open, Slot, State};
use crate::tenant::{Cell, Tenant};
use crate::transcript::mark::session_of;
use crate::{layout, lease, lock, log, place};

pub(crate) fn not_found(id: SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("session {id} does not exist"))
}

// --- commit ----------------------------------------------------------------------------------------------------------

/// Applies a commit, if nobody else is at work on the session.
pub(crate) fn commit(
    tenant: &Tenant,
    cell: &Cell,
    slot: &mut Slot,
    commit: &Commit,
) -> Result<Attempt<Committed>> {
    let id = commit.session;
    slot.check_poison(id)?;
    // Twice: the files may turn out to be another's, or the session to be there already.
    for _ in 0..2 {
        let pointed = match open_or_create(tenant, cell, slot, commit)? {
            Opened::There { pointed } => pointed,
            Opened::Created(committed) => return Ok(Attempt::Done(*committed)),
            Opened::Busy => return Ok(Attempt::Busy),
        };
        let Attempt::Done(done) = slot.under_lock(|open| commit_locked(cell, open, commit))? else {
            return Ok(Attempt::Busy);
        };
        match done {
            Ok(Some(committed)) => {
                if !pointed {
                    place::point(tenant, id, committed.session.workspace);
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
    Err(Error::new(
        ErrorKind::Unavailable,
        format!("session {id} is moved or removed by somebody else while it is written; try again"),
    ))
}

/// What came of looking for the files that a commit goes to.
enum Opened {
    /// They are open; and whether the derived file says where they are.
    There {
        pointed: bool,
    },
    /// There were none, and they were made with the commit in them.
    Created(Box<Committed>),
    Busy,
}

fn open_or_create(tenant: &Tenant, cell: &Cell, slot: &mut Slot, commit: &Commit) -> Result<Opened> {
    if slot.open.is_some() {
        return Ok(Opened::There { pointed: true });
    }
    let id = commit.session;
    let found = match commit.expect {
        Expect::Absent => place::find_to_make(tenant, id)?,
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
    slot.open = Some(Open::existing(&tenant.env, folder, tenant.layout.owner(id))?);
    Ok(Opened::There { pointed })
}

/// Under the lock. `None` where the files are no longer the session's.
fn commit_locked(cell: &Cell, open: &mut Open, commit: &Commit) -> Result<Option<Committed>, Doubt> {
    let plain = |error| Doubt(error, false);
    let Some(state) = open.refresh().map_err(plain)? else { return Ok(None) };
    let planned = agent_core::plan(Some(&state.record), commit).map_err(plain)?;
    match &planned {
        Plan::Write { events, after, .. } => {
            if !open.append(events, after)? {
                return Ok(None);
            }
        }
        // Somebody else may have written it and died before it was durable.
        _ => open.settle()?,
    }
    learn(cell, open);
    Ok(Some(planned.committed()))
}

/// Tells the readers of this process what its writer has come to.
fn learn(cell: &Cell, open: &Open) {
    if let Some(state) = open.state() {
        cell.learn(state.cached());
    }
    held(&cell.known).folder = Some(open.folder.clone());
    cell.pinned.store(open.holds_lease(), Ordering::Relaxed);
}

/// Lets nobody write until the store is opened anew: a failure left in doubt what is durable.
fn poison(cell: &Cell, slot: &mut Slot) {
    *slot = Slot { open: None, poisoned: true };
    cell.pinned.store(true, Ordering::Relaxed);
}

// --- rebuild ---------------------------------------------------------------------------------------------------------

/// Makes anew what is derived from the log of a session that was found in a workspace; whether it is still there.
pub(crate) fn rebuild(
    tenant: &Tenant,
    cell: &Cell,
    slot: &mut Slot,
    workspace: WorkspaceId,
    id: SessionId,
) -> Result<Attempt<bool>> {
    let folder = tenant.layout.session(workspace, id);
    if tenant.env.io.stat(&folder).is_err() {
        return Ok(Attempt::Done(false));
    }
    place::point(tenant, id, workspace);
    held(&tenant.summaries).remove(&id);
    if slot.open.is_none() {
        slot.open = Some(Open::existing(&tenant.env, folder, tenant.layout.owner(id))?);
    }
    let renew = |open: &mut Open| open.renew().map(|state| state.map(State::cached));
    let Attempt::Done(renewed) = slot.under_lock(renew)? else { return Ok(Attempt::Busy) };
    if !matches!(&renewed, Ok(Some(_))) {
        slot.open = None;
    }
    let Some(cached) = renewed? else {
        // The names lead to other files now, which are looked at next.
        cell.forget();
        return Ok(Attempt::Busy);
    };
    cell.learn(cached);
    Ok(Attempt::Done(true))
}

// --- create ----------------------------------------------------------------------------------------------------------

enum Created {
    Done(Box<Committed>),
    Busy,
    /// Somebody was first, here.
    Exists(PathBuf),
}

/// Applies a commit to a session that there is none of, as far as is known.
fn create(tenant: &Tenant, cell: &Cell, slot: &mut Slot, commit: &Commit) -> Result<Created> {
    let (env, id) = (&tenant.env, commit.session);
    let planned = match agent_core::plan(None, commit) {
        Ok(planned) => planned,
        Err(error) => {
            // Where it exists after all, its own record decides.
            let there = if commit.expect == Expect::Absent { place::search(tenant, id)? } else { None };
            return there.map(Created::Exists).ok_or(error);
        }
    };
    let Plan::Write { events, after, .. } = &planned else {
        return Ok(Created::Done(Box::new(planned.committed())));
    };
    // A main session has left this, also if the derived file was removed.
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
    let create_lock = tenant.layout.create_lock(id);
    env.ensure_dir(parent(&create_lock))?;
    let Some(creating) = lock::take(env, &create_lock)? else { return Ok(Created::Busy) };
    if let Some(folder) = place::search(tenant, id)? {
        return Ok(Created::Exists(folder));
    }
    let folder = tenant.layout.session(after.workspace, id);
    let Some(made) = make(tenant, &creating, &folder, events, after)? else {
        return Ok(Created::Exists(folder));
    };
    if let Err(error) = env.sync_dir(parent(&folder)) {
        poison(cell, slot);
        return Err(in_doubt("make durable the name of", &folder, error));
    }
    match still_ours(&*env.io, made.lock.1, &folder) {
        Ok(Some(_)) => {}
        // The folders above were replaced meanwhile: it is to be made in those that are there now.
        Ok(None) => return Ok(Created::Busy),
        Err(error) => return Err(in_doubt("look at", &folder, error)),
    }
    place::point(tenant, id, after.workspace);
    let Made { log, lock, lease } = made;
    let open = Open::made(env, (folder, tenant.layout.owner(id)), log, lock, after.clone(), lease);
    learn(cell, &open);
    slot.open = Some(open);
    Ok(Created::Done(Box::new(planned.committed())))
}

/// Makes a session's folder and gives it its name, which is not durable yet; `None` where somebody was first.
fn make(
    tenant: &Tenant,
    creating: &Held,
    folder: &Path,
    events: &[Event],
    after: &Session,
) -> Result<Option<Made>> {
    let (env, sessions) = (&tenant.env, parent(folder));
    env.ensure_dir(sessions)?;
    env.sweep(sessions);
    let (temp, ()) = env
        .fresh(sessions, &after.id.to_string(), |temp| env.io.create_dir(temp))
        .map_err(|e| failed("create a folder in", sessions, e))?;
    let named = build(tenant, &temp, events, after).and_then(|made| {
        // Somebody may have removed the lock's file meanwhile, and another made the same elsewhere.
        if !creating.locked().still_ours(env)? && place::search(tenant, after.id)?.is_some() {
            return Ok(None);
        }
        match env.io.rename(&temp, folder) {
            Ok(()) => Ok(Some(made)),
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

/// Makes a session's folder under another name: whole and durable before it gets its own.
fn build(tenant: &Tenant, temp: &Path, events: &[Event], after: &Session) -> Result<Made> {
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
    let lease = match &after.lease {
        Some(lease) => Some(lease::take(env, temp, lease.epoch)?),
        None => None,
    };
    env.sync_dir(temp).map_err(|e| failed("make durable", temp, e))?;
    Ok(Made { log: (log, stat), lock: (lock, lock_id), lease })
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
}

/// The lock of a session that another is about to be made from; `None` where somebody has it.
fn lock_parent(tenant: &Tenant, id: SessionId) -> Result<Option<Held>> {
    let folder = place::find(tenant, id)?.ok_or_else(|| not_found(id))?;
    let Some(lock) = lock::take_folder(&tenant.env, &folder)? else { return Ok(None) };
    let parent = load_folder(tenant, &folder, id)?.ok_or_else(|| not_found(id))?;
    if parent.record.status.state == SessionState::Deleted {
        return Err(Error::new(
            ErrorKind::Deleted,
            format!("session {id} was deleted; nothing is made from it"),
        ));
    }
    Ok(Some(lock))
}

// --- load ------------------------------------------------------------------------------------------------------------

/// The record of a session, as the log stands at this moment. Waits for nobody.
pub(crate) fn load(tenant: &Tenant, cell: &Cell, id: SessionId) -> Result<Arc<Session>> {
    current(tenant, cell, id).map(|cached| cached.record)
}

/// The record, and where its log ends.
pub(crate) fn current(tenant: &Tenant, cell: &Cell, id: SessionId) -> Result<Cached> {
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

/// What was known of a session, with what was appended since; `None` where its log is not what it was.
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
    let stat = file.stat().map_err(|e| failed("look at", &log, e))?;
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
        // Damage, a commit that is being written, or a writer that took back what was read and wrote something else:
        // the whole log tells.
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
                // A writer may have cut off a torn end and written on between two reads.
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

// --- signs of life ---------------------------------------------------------------------------------------------------

fn folder(tenant: &Tenant, cell: &Cell, id: SessionId) -> Result<PathBuf> {
    let known = held(&cell.known).folder.clone();
    if let Some(folder) = known.filter(|folder| tenant.env.io.stat(folder).is_ok()) {
        return Ok(folder);
    }
    let folder = place::find(tenant, id)?.ok_or_else(|| not_found(id))?;
    held(&cell.known).folder = Some(folder.clone());
    Ok(folder)
}

pub(crate) fn beat(tenant: &Tenant, cell: &Cell, id: SessionId, epoch: Epoch) -> Result<()> {
    lease::beat(&tenant.env, &folder(tenant, cell, id)?, epoch)
}

pub(crate) fn pulse(tenant: &Tenant, cell: &Cell, id: SessionId, epoch: Epoch) -> Result<Pulse> {
    lease::pulse(&tenant.env, &folder(tenant, cell, id)?, epoch)
}

/// The head, where it is past `seen`.
pub(crate) fn head_after(tenant: &Tenant, cell: &Cell, id: SessionId, seen: Seq) -> Result<Option<Seq>> {
    let head = load(tenant, cell, id)?.head;
    Ok((head > seen).then_some(head))
}
