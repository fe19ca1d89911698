//! Removes the bytes of a deleted session. Every step can be repeated. After a crash between two steps, the session is
//! still deleted and can be purged.

use std::path::Path;

use agent_core::store::{Purge, Purged};
use agent_core::{Result, WriteOutcome};

use crate::blobs::sweep;
use crate::error::failed;
use crate::io::{Kind, OpenMode, copy};
use crate::log::commit::not_found;
use crate::log::place;
use crate::medium::env::Env;
use crate::medium::layout;
use crate::medium::lock::{Attempt, Locked};
use crate::medium::log::{COMMIT_MAX, Forward};
use crate::medium::record::write_tombstone;
use crate::owner::Owner;
use crate::shared::changes::{self, Change};
use crate::shared::slot::{OpenFiles, WriterState};
use crate::shared::summaries;
use crate::shared::tenant::{SharedSession, Tenant};
use crate::shared::transcript_mark;

/// Purges a session, unless another process or handle has it locked.
pub(crate) fn purge(
    tenant: &Tenant,
    cell: &SharedSession,
    slot: &mut WriterState,
    purge: &Purge,
) -> Result<Attempt<Purged>> {
    let id = purge.session;
    slot.check_poison(id)?;
    if slot.open.is_none() {
        let folder = place::find(tenant, id)?.ok_or_else(|| not_found(id))?;
        tenant.prepare()?;
        slot.open = Some(OpenFiles::existing(&tenant.env, folder, tenant.layout.owner(id))?);
    }
    let purged = slot.under_lock(|open| {
        let place = open.place;
        changes::announce(tenant, place, Change::Renews);
        // Before the record is replaced: what the summaries were read from is still the same then.
        let erased = summaries::erase(&tenant.env, &tenant.layout);
        let purged = erased.and_then(|done| if done { purge_locked(tenant, open, purge) } else { Ok(None) });
        let announced = changes::announce(tenant, place, Change::Ends);
        changes::confirm(tenant, place, announced);
        purged
    });
    let Attempt::Done(done) = purged? else { return Ok(Attempt::Busy) };
    cell.forget();
    if done.is_ok() {
        // If the names lead to other files now, those must be purged, too.
        slot.open = None;
    }
    Ok(done?.map_or(Attempt::Busy, Attempt::Done))
}

fn purge_locked(tenant: &Tenant, open: &mut OpenFiles, purge: &Purge) -> Result<Option<Purged>> {
    let (env, owner) = (&tenant.env, tenant.layout.owner(purge.session));
    let Some(state) = open.refresh()? else { return Ok(None) };
    purge.check(&state.record)?;
    let (tombstone, purged) = (purge.tombstone_of(&state.record), state.purged);
    let is_buried = purged && *state.record == tombstone;
    // The log will be another file.
    open.leave();
    let folder = open.locked();
    // The tombstone comes first, then the bytes: after that, the log no longer holds the record.
    let buried = if is_buried { Ok(()) } else { write_tombstone(env, folder, owner, &tombstone) };
    let removed = buried.and_then(|()| {
        let removed = cut(env, (folder, owner), purge.keep_through.get(), is_buried).and_then(|removed| {
            sweep(env, folder.path)?;
            sweep::purge(tenant, folder.path, owner)?;
            transcript_mark::remove(tenant, &tombstone)?;
            Ok(removed)
        });
        // A part may be removed; the next purge removes the rest.
        removed.map_err(|error| error.with_outcome(WriteOutcome::Unknown))
    });
    match folder.still_ours(env) {
        Ok(true) => removed.map(|removed| Some(Purged::new(removed))),
        // The names lead to other files now, which must be purged.
        Ok(false) => Ok(None),
        Err(error) => removed.and(Err(error.with_outcome(WriteOutcome::Unknown))),
    }
}

/// Replaces the log by its events up to `keep`; returns the number of removed events. The first purge replaces the
/// file even if it removes none, so that all handles with a cached record see that the log has changed.
fn cut(env: &Env, (folder, owner): (Locked<'_>, Owner), keep: u64, again: bool) -> Result<u64> {
    let log = folder.path.join(layout::LOG);
    let file = env.io.open(&log, OpenMode::Read).map_err(|e| failed("open", &log, e))?;
    let len = file.stat().map_err(|e| failed("look at", &log, e))?.len;
    let (mut kept, mut removed, mut before) = (0, 0, 0u64);
    let mut lines = Forward::new(owner, &*file, 0, len);
    while let Some(line) = lines.next().map_err(|e| failed("read", &log, e))? {
        // A damaged line counts as the event that belongs there, and is kept with its neighbours.
        let seq = line.header().map_or(before.saturating_add(1), |header| header.seq);
        before = seq;
        if removed == 0 && seq <= keep && line.end - line.offset <= COMMIT_MAX {
            kept = line.end;
        } else {
            removed += 1;
        }
    }
    if removed > 0 || !again {
        let (temp, new) = env.create_temp(&log)?;
        let copied = copy(&*file, &*new, kept).and_then(|()| env.sync_file(&*new));
        if let Err(error) = copied {
            env.discard(&temp);
            return Err(failed("write", &log, error));
        }
        env.publish(folder, &temp, &log)?;
    } else {
        // The purge that cut it may have ended before that was durable.
        env.sync_name(&log)?;
    }
    Ok(removed)
}

/// Removes all other files that were derived from the log.
fn sweep(env: &Env, folder: &Path) -> Result<()> {
    for (name, kind) in env.list(folder)? {
        let Some(name) = name.to_str() else { continue };
        let derived = [layout::SNAPSHOT, layout::SUSPECT, layout::LEASE].contains(&name)
            || name.starts_with(layout::TAIL_PREFIX)
            || name.starts_with(layout::TOMBSTONE_DAMAGED)
            || name.starts_with(layout::LOG_DAMAGED)
            || name.contains(layout::NEW);
        if derived {
            let path = folder.join(name);
            match kind {
                Kind::Folder => env.remove_tree(&path, kind).and_then(|()| env.sync_name(&path))?,
                _ => env.remove(&path)?,
            }
        }
    }
    Ok(())
}
