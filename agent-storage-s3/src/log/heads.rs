//! Cache of the heads that a store saw last. Searches start there, and commits are planned on it. It may be out of
//! date.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::{Epoch, Seq, SessionId};

use crate::layout::keys::Slot;
use crate::log::slot::Entry;

/// Limit on the bytes of heads that are cached.
const MOST: usize = 32 << 20;
/// Limit on the bytes of earlier objects that are cached.
const WINDOWS_MOST: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Heads {
    kept: Mutex<CachedHeads>,
    windows: Mutex<Windows>,
    /// Counter of recorded heads; callers that wait for a head check again when it changes.
    changed: tokio::sync::watch::Sender<u64>,
}

/// Head of a session, and the object that closed the window before it if that was seen.
#[derive(Clone, Debug)]
struct Known {
    head: Arc<Entry>,
    base: Option<Arc<Entry>>,
    /// Last heartbeat that this store has written for the head's lease.
    heartbeat: Option<Heartbeat>,
}

/// Heartbeat that this store has written.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) epoch: Epoch,
    /// Name of the object, and its tag.
    pub(crate) name: String,
    pub(crate) tag: String,
}

#[derive(Debug, Default)]
struct CachedHeads {
    heads: HashMap<SessionId, (u64, Known)>,
    bytes: usize,
    clock: u64,
}

/// Earlier objects of sessions that closed a window, each with the time of its last use.
#[derive(Debug, Default)]
struct Windows {
    kept: BTreeMap<(SessionId, Slot), (u64, Arc<Entry>)>,
    bytes: usize,
    clock: u64,
}

impl Heads {
    fn kept(&self) -> MutexGuard<'_, CachedHeads> {
        // A panic while the lock is held leaves a cache, which need not be complete.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, session: SessionId) -> Option<Arc<Entry>> {
        let mut kept = self.kept();
        kept.clock += 1;
        let clock = kept.clock;
        let (used, known) = kept.heads.get_mut(&session)?;
        *used = clock;
        Some(known.head.clone())
    }

    /// Returns the object in a slot that closed the window before the known head's.
    pub(crate) fn base(&self, session: SessionId, slot: Slot) -> Option<Arc<Entry>> {
        let kept = self.kept();
        let (_, known) = kept.heads.get(&session)?;
        known.base.clone().filter(|base| base.head.slot == slot)
    }

    /// Returns the last heartbeat that this store has written for a lease.
    pub(crate) fn heartbeat(&self, session: SessionId, epoch: Epoch) -> Option<Heartbeat> {
        let kept = self.kept();
        let (_, known) = kept.heads.get(&session)?;
        known.heartbeat.clone().filter(|heartbeat| heartbeat.epoch == epoch)
    }

    /// Records a heartbeat for the lease of the known head.
    pub(crate) fn note_heartbeat(&self, session: SessionId, heartbeat: Heartbeat) {
        let mut kept = self.kept();
        if let Some((_, known)) = kept.heads.get_mut(&session)
            && known.head.has_lease(heartbeat.epoch)
        {
            known.heartbeat = Some(heartbeat);
        }
    }

    /// Records a head, unless a newer one is known.
    pub(crate) fn note(&self, session: SessionId, head: &Arc<Entry>) {
        let mut kept = self.kept();
        kept.clock += 1;
        let clock = kept.clock;
        let before = kept.heads.get(&session).map(|(_, known)| known.clone());
        if before.as_ref().is_some_and(|before| before.head.head.slot > head.head.slot) {
            return;
        }
        let (mut base, mut heartbeat) = (None, None);
        if let Some(before) = before {
            kept.bytes = kept.bytes.saturating_sub(cost(&before));
            heartbeat = before.heartbeat.filter(|heartbeat| head.has_lease(heartbeat.epoch));
            let seen = [Some(before.head), before.base].into_iter().flatten();
            base = seen.into_iter().find(|seen| Some(seen.head.slot) == head.head.previous);
        }
        let known = Known { head: head.clone(), base, heartbeat };
        kept.bytes += cost(&known);
        kept.heads.insert(session, (clock, known));
        while kept.bytes > MOST && kept.heads.len() > 1 {
            let oldest = kept.heads.iter().min_by_key(|(_, (used, _))| *used).map(|(id, _)| *id);
            let Some((_, gone)) = oldest.and_then(|id| kept.heads.remove(&id)) else { break };
            kept.bytes = kept.bytes.saturating_sub(cost(&gone));
        }
        drop(kept);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Removes a session from the cache.
    pub(crate) fn forget(&self, session: SessionId) {
        let mut kept = self.kept();
        if let Some((_, gone)) = kept.heads.remove(&session) {
            kept.bytes = kept.bytes.saturating_sub(cost(&gone));
        }
    }

    fn windows(&self) -> MutexGuard<'_, Windows> {
        // As for the heads.
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an earlier object of a session that closed a window.
    pub(crate) fn window(&self, session: SessionId, slot: Slot) -> Option<Arc<Entry>> {
        let mut windows = self.windows();
        windows.clock += 1;
        let clock = windows.clock;
        if let Some((used, entry)) = windows.kept.get_mut(&(session, slot)) {
            *used = clock;
            return Some(entry.clone());
        }
        drop(windows);
        let base = self.base(session, slot)?;
        // It is forgotten with the next head that names another one.
        self.keep_window(session, &base);
        Some(base)
    }

    /// Returns an earlier object of a session that carries an event.
    pub(crate) fn window_with(&self, session: SessionId, seq: Seq) -> Option<Arc<Entry>> {
        let mut windows = self.windows();
        windows.clock += 1;
        let clock = windows.clock;
        let all = windows.kept.range_mut((session, Slot::FIRST)..=(session, Slot(u64::MAX)));
        let mut carriers = all.map(|(_, kept)| kept);
        let (used, entry) = carriers.find(|(_, entry)| entry.head.window <= seq && seq <= entry.last())?;
        *used = clock;
        Some(entry.clone())
    }

    /// Keeps an object that closed a window. The object in a slot is never changed, but for a purge, which each reader
    /// finds by the head.
    pub(crate) fn keep_window(&self, session: SessionId, entry: &Arc<Entry>) {
        let mut windows = self.windows();
        windows.clock += 1;
        let clock = windows.clock;
        if windows.kept.insert((session, entry.head.slot), (clock, entry.clone())).is_none() {
            windows.bytes += size(entry);
        }
        while windows.bytes > WINDOWS_MOST && windows.kept.len() > 1 {
            let oldest = windows.kept.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
            let Some((_, gone)) = oldest.and_then(|key| windows.kept.remove(&key)) else { break };
            windows.bytes = windows.bytes.saturating_sub(size(&gone));
        }
    }

    pub(crate) fn watch(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// Returns the memory that a head takes, in bytes: its objects, and their decoded records.
fn cost(known: &Known) -> usize {
    size(&known.head) + known.base.as_deref().map_or(0, size)
}

/// Returns the memory that an object takes, in bytes.
fn size(entry: &Entry) -> usize {
    entry.size + 4096
}
