//! Deletes a session whose log accepts no more commits: writes a tombstone, and keeps the damaged bytes until the
//! session is purged. Every step can be repeated. After a crash before the tombstone is written, the session is still
//! damaged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, Timestamp, WorkspaceId, WriteOutcome};

use crate::error::{corrupt, failed};
use crate::io::{IoFile, Kind, OpenMode, copy, is_no_file};
use crate::log::commit::not_found;
use crate::log::place::{self, SessionFolder};
use crate::medium::env::{Env, parent};
use crate::medium::layout::{self, id_of};
use crate::medium::lock::{self, Attempt, Locked};
use crate::medium::log::{Backward, COMMIT_MAX, Forward};
use crate::medium::record::{self, write_tombstone};
use crate::owner::Owner;
use crate::shared::changes::{self, Change};
use crate::shared::slot::WriterState;
use crate::shared::summaries;
use crate::shared::tenant::{SharedSession, Tenant};

/// Deletes a damaged session, unless another process or handle has it locked.
pub(crate) fn delete_damaged(
    tenant: &Tenant,
    cell: &SharedSession,
    slot: &mut WriterState,
    id: SessionId,
    (at, reason): (Timestamp, Reason),
) -> Result<Attempt<Arc<SessionRecord>>> {
    slot.check_poison(id)?;
    let env = &tenant.env;
    let place = place::locate(tenant, id)?;
    if let SessionFolder::Nowhere = place {
        return Err(not_found(id));
    }
    tenant.prepare()?;
    slot.open = None;
    let folder = match place {
        SessionFolder::At(folder, _) if is_link(tenant, &folder)? && is_damaged(tenant, &folder, id)? => {
            // The link may lead to another session.
            let kept = folder.with_file_name(format!(
                "{id}{}{:016x}",
                layout::LINK_DAMAGED,
                env.effects.random_u64()
            ));
            env.io.rename(&folder, &kept).map_err(|e| failed("keep aside", &folder, e))?;
            empty(tenant, id, folder)?
        }
        SessionFolder::At(folder, _) => Some(folder),
        SessionFolder::Missing(workspace) => empty(tenant, id, tenant.layout.session(workspace, id))?,
        SessionFolder::Nowhere => None,
    };
    let Some(folder) = folder else { return Ok(Attempt::Busy) };
    lock::under(env, &folder, |folder| delete_locked(tenant, cell, id, folder, (at, reason)))
}

/// Returns whether a session's folder is a symbolic link.
fn is_link(tenant: &Tenant, folder: &Path) -> Result<bool> {
    let names = tenant.env.list(parent(folder))?;
    Ok(names.iter().any(|(name, kind)| folder.file_name() == Some(name) && *kind == Kind::Other))
}

fn is_damaged(tenant: &Tenant, folder: &Path, id: SessionId) -> Result<bool> {
    match record::load(&tenant.env, folder, tenant.layout.owner(id)) {
        Ok(loaded) => Ok(loaded.is_some_and(|loaded| loaded.bad.is_some_and(|bad| bad.middle))),
        Err(error) if *error.kind() == ErrorKind::Corrupt => Ok(true),
        Err(error) => Err(error),
    }
}

/// Creates the folder of a session that has none, with an empty log. The session is then damaged, and can be deleted.
/// Returns `None` if the creation lock for such ids is held.
fn empty(tenant: &Tenant, id: SessionId, folder: PathBuf) -> Result<Option<PathBuf>> {
    let env = &tenant.env;
    let sessions = parent(&folder);
    env.ensure_dir(sessions)?;
    let Some(_making) = place::take_create_lock(tenant, id)? else { return Ok(None) };
    if env.kind(&folder)?.is_none() {
        let (temp, ()) = env
            .fresh(sessions, &id.to_string(), |temp| env.io.create_dir(temp))
            .map_err(|e| failed("create a folder in", sessions, e))?;
        let log = temp.join(layout::LOG);
        let made = env.io.open(&log, OpenMode::CreateNew).and_then(|log| env.sync_file(&*log));
        let named = made.and_then(|()| env.sync_dir(&temp)).and_then(|()| env.io.rename(&temp, &folder));
        if let Err(error) = named {
            env.discard_all(&temp, Kind::Folder);
            return Err(failed("create the folder", &folder, error));
        }
    }
    env.sync_dir(sessions).map_err(|e| failed("make durable the name of", &folder, e))?;
    Ok(Some(folder))
}

fn delete_locked(
    tenant: &Tenant,
    cell: &SharedSession,
    id: SessionId,
    locked: Locked<'_>,
    (at, reason): (Timestamp, Reason),
) -> Result<Attempt<Arc<SessionRecord>>> {
    let (env, folder, owner) = (&tenant.env, locked.path, tenant.layout.owner(id));
    let known = match record::load(env, folder, owner) {
        Ok(None) => return Err(not_found(id)),
        Ok(Some(loaded)) if loaded.bad.is_none_or(|bad| !bad.middle) => {
            if loaded.record.status.state == SessionState::Deleted {
                return Ok(Attempt::Done(loaded.record));
            }
            return Err(Error::invalid(format!("session {id} can be read; delete it by a commit")));
        }
        Ok(Some(loaded)) => Some(loaded.record),
        // A session that was deleted before and of which the log is damaged has its tombstone.
        Err(error) if *error.kind() == ErrorKind::Corrupt => {
            record::read_tombstone(env, folder, owner).ok().flatten().map(Arc::new)
        }
        Err(error) => return Err(error),
    };
    let workspace = parent(parent(folder)).file_name().and_then(id_of::<WorkspaceId>);
    let workspace = workspace.ok_or_else(|| corrupt(folder, "lies in no workspace"))?;
    let log = folder.join(layout::LOG);
    let last = last_event(env, &log, owner)?;
    let tombstone = match known.as_deref().filter(|known| known.status.state == SessionState::Deleted) {
        // It was deleted before its log was damaged.
        Some(deleted) => deleted.tombstone(),
        None => SessionRecord::tombstone_of_damaged(id, workspace, known.as_deref(), last, at, reason),
    };
    changes::announce(tenant, Some((workspace, id)), Change::Renews);
    match summaries::erase(env, &tenant.layout) {
        Ok(true) => {}
        other => {
            changes::announce(tenant, Some((workspace, id)), Change::Ends);
            return other.map(|_| Attempt::Busy);
        }
    }
    let done = renew_log(env, locked, &log, owner)
        .and_then(|()| keep_tombstone(env, locked))
        .and_then(|()| write_tombstone(env, locked, owner, &tombstone));
    cell.forget();
    let announced = changes::announce(tenant, Some((workspace, id)), Change::Ends);
    changes::confirm(tenant, Some((workspace, id)), announced);
    done.map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
    Ok(Attempt::Done(Arc::new(tombstone)))
}

/// Returns the sequence number of the last event with a readable header; zero if there is none.
fn last_event(env: &Env, log: &Path, owner: Owner) -> Result<Seq> {
    let file = match env.io.open(log, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_no_file(&error) => return Ok(Seq::ZERO),
        Err(error) => return Err(failed("open", log, error)),
    };
    let len = file.stat().map_err(|e| failed("look at", log, e))?.len;
    let mut lines = Backward::new(owner, &*file, len);
    while let Some(line) = lines.next().map_err(|e| failed("read", log, e))? {
        if let Some(header) = line.header() {
            return Ok(Seq::new(header.seq));
        }
    }
    Ok(Seq::ZERO)
}

/// Replaces the log by a copy, byte for byte. Other handles see the new file and discard what they have cached of the
/// session. A missing log becomes an empty one. So does anything that is not a file, which is moved to a new name. A log with
/// a line that is longer than any commit is copied up to that line, and also kept whole under a new name.
fn renew_log(env: &Env, folder: Locked<'_>, log: &Path, owner: Owner) -> Result<()> {
    let old = match env.io.open(log, OpenMode::Read) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if is_no_file(&error) => {
            keep_aside(env, folder, log, layout::LOG_DAMAGED)?;
            None
        }
        Err(error) => return Err(failed("open", log, error)),
    };
    let (temp, new) = env.create_temp(log)?;
    let copied = match &old {
        Some(old) => copy_lines(&**old, &*new, owner),
        None => Ok(true),
    };
    let named = copied.and_then(|is_whole| {
        env.sync_file(&*new)?;
        if is_whole { Ok(()) } else { env.io.hard_link(log, &aside(env, folder, layout::LOG_DAMAGED)) }
    });
    if let Err(error) = named {
        env.discard(&temp);
        return Err(failed("write", log, error));
    }
    env.publish(folder, &temp, log)
}

/// Copies a log, up to a line that is longer than any commit. Returns whether there is none.
fn copy_lines(from: &dyn IoFile, to: &dyn IoFile, owner: Owner) -> io::Result<bool> {
    let len = from.stat()?.len;
    let mut end = len;
    if len > COMMIT_MAX {
        let mut lines = Forward::new(owner, from, 0, len);
        while let Some(line) = lines.next()? {
            if line.end - line.offset > COMMIT_MAX {
                end = line.offset;
                break;
            }
        }
    }
    copy(from, to, end)?;
    Ok(end == len)
}

/// Returns a new name that begins with `prefix`.
fn aside(env: &Env, folder: Locked<'_>, prefix: &str) -> PathBuf {
    folder.path.join(format!("{prefix}{:016x}", env.effects.random_u64()))
}

/// Moves the old tombstone, if any, to a new name.
fn keep_tombstone(env: &Env, folder: Locked<'_>) -> Result<()> {
    let path = folder.path.join(layout::TOMBSTONE);
    match env.kind(&path)? {
        Some(_) => keep_aside(env, folder, &path, layout::TOMBSTONE_DAMAGED),
        None => Ok(()),
    }
}

/// Moves a damaged file to a new name that begins with `prefix`.
fn keep_aside(env: &Env, folder: Locked<'_>, path: &Path, prefix: &str) -> Result<()> {
    let kept = aside(env, folder, prefix);
    folder.check(env)?;
    env.io.rename(path, &kept).map_err(|e| failed("keep aside", path, e))?;
    env.sync_name(&kept)
}
