//! Registry of the active runs of this process: how to cancel one, wait for its end, and go back to its stream.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, watch};

use crate::run::handle::Run;
use crate::run::live::Answering;
use crate::run::queue::Lines;
use crate::run::updates::UpdateSender;
use agent_core::{Epoch, RunId, SessionId};

/// Active runs of an agent on all stores.
#[derive(Debug, Default)]
pub(crate) struct ActiveRuns {
    runs: Mutex<HashMap<RunId, Active>>,
    /// Runs whose first commit is under way: the log may have them already.
    beginning: Mutex<HashSet<RunId>>,
    /// Notified when one of these is registered, or has not begun.
    begun: Notify,
}

#[derive(Debug)]
struct Active {
    session: SessionId,
    /// Identifies the stores of the session: two tenants can have a session of the same id.
    stores: Weak<Lines>,
    epoch: Epoch,
    /// Streams of the run; the run alone keeps them open.
    updates: Weak<UpdateSender>,
    cancel: watch::Sender<bool>,
    /// Becomes `true`, or loses its sender, when the run has ended.
    ended: watch::Receiver<bool>,
}

impl Active {
    fn stream(&self, run: RunId) -> Option<Run> {
        let updates = self.updates.upgrade()?.subscribe()?;
        Some(Run::started(self.session, run, updates, self.cancel.clone()))
    }
}

/// First commit of a run.
#[derive(Debug)]
pub(crate) struct Beginning<'a> {
    runs: &'a ActiveRuns,
    run: RunId,
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.runs.beginning().remove(&self.run);
        self.runs.begun.notify_waiters();
    }
}

/// Registration of one run, until it is dropped at the end of the run.
#[derive(Debug)]
pub(crate) struct Registration {
    runs: Arc<ActiveRuns>,
    run: RunId,
    ended: watch::Sender<bool>,
}

impl ActiveRuns {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Active>> {
        // Each use is a single operation on the map, so a panic leaves none half done.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beginning(&self) -> MutexGuard<'_, HashSet<RunId>> {
        self.beginning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the first commit of a run is under way, until the result is dropped.
    pub(crate) fn begin(&self, run: RunId) -> Beginning<'_> {
        self.beginning().insert(run);
        Beginning { runs: self, run }
    }

    /// Waits until a run that begins here is registered, or has not begun. Returns at once for any other run.
    pub(crate) async fn begun(&self, run: RunId) {
        loop {
            // Before the look, so that no notification is missed.
            let begun = self.begun.notified();
            if !self.beginning().contains(&run) {
                return;
            }
            begun.await;
        }
    }

    /// Registers a run that begins.
    pub(crate) fn register(
        self: &Arc<Self>,
        (stores, session): (&Arc<Lines>, SessionId),
        (run, epoch): (RunId, Epoch),
        updates: &Arc<UpdateSender>,
        cancel: watch::Sender<bool>,
    ) -> Registration {
        let (sender, ended) = watch::channel(false);
        let (stores, updates) = (Arc::downgrade(stores), Arc::downgrade(updates));
        self.lock().insert(run, Active { session, stores, epoch, updates, cancel, ended });
        Registration { runs: self.clone(), run, ended: sender }
    }

    /// Returns a new stream of the session's active run; `None` if there is none. If an earlier run has lost its lease
    /// and not yet ended, the later one is meant.
    pub(crate) fn attach(&self, stores: &Arc<Lines>, session: SessionId) -> Option<Run> {
        let runs = self.lock();
        let here =
            |active: &Active| active.session == session && active.stores.as_ptr() == Arc::as_ptr(stores);
        let (run, active) =
            runs.iter().filter(|(_, active)| here(active)).max_by_key(|(_, active)| active.epoch)?;
        active.stream(*run)
    }

    /// Returns a new stream of a run of which the caller has read in its own log, whichever handle of the stores started it;
    /// `None` if it is not active here.
    pub(crate) fn stream(&self, run: RunId) -> Option<Run> {
        self.lock().get(&run)?.stream(run)
    }

    /// Returns the epoch of a run, and the answers that it writes; `None` if the run is not active here. The caller has read
    /// in its own log that it is one of the session: the log of a fork names runs of its ancestors, too.
    pub(crate) fn answer(
        &self,
        run: RunId,
        session: SessionId,
    ) -> Option<(Epoch, watch::Receiver<Answering>)> {
        let runs = self.lock();
        let active = runs.get(&run).filter(|active| active.session == session)?;
        Some((active.epoch, active.updates.upgrade()?.answer().subscribe()))
    }

    /// Returns a receiver that becomes `true`, or is closed, when the run has ended; `None` if it is not active here.
    pub(crate) fn ended(&self, run: RunId) -> Option<watch::Receiver<bool>> {
        self.lock().get(&run).map(|active| active.ended.clone())
    }

    /// Returns `true` if the run is active here, on whichever stores.
    pub(crate) fn is_active(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Cancels a run, if it is active here.
    pub(crate) fn cancel(&self, run: RunId) {
        if let Some(active) = self.lock().get(&run) {
            active.cancel.send_replace(true);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.run);
        self.ended.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::clock::Effects;

    const FIRST: Epoch = Epoch::new(1);

    /// A run is found until it ends, and nothing is kept of it after that.
    #[test]
    fn nothing_is_kept_of_a_run_that_ended() {
        let (runs, stores, effects) = (Arc::new(ActiveRuns::default()), Arc::default(), Effects::default());
        let (session, run) = (effects.new_session_id(), effects.new_run_id());
        let (updates, _) = UpdateSender::new();
        let (updates, cancel) = (Arc::new(updates), watch::Sender::new(false));
        let registration = runs.register((&stores, session), (run, FIRST), &updates, cancel.clone());
        assert_eq!(runs.attach(&stores, session).map(|run| run.id()), Some(Some(run)));
        runs.cancel(run);
        assert!(runs.is_active(run) && *cancel.borrow());
        let ended = runs.ended(run);
        drop(registration);
        assert!(runs.attach(&stores, session).is_none() && runs.lock().is_empty());
        assert!(ended.is_some_and(|ended| *ended.borrow()));
    }

    /// A run that lost its lease and the one that took over are both registered; a reader gets the later one.
    #[test]
    fn a_reader_gets_the_run_that_took_over() {
        let (runs, stores, effects) = (Arc::new(ActiveRuns::default()), Arc::default(), Effects::default());
        let (session, early, late) = (effects.new_session_id(), effects.new_run_id(), effects.new_run_id());
        let (updates, _) = UpdateSender::new();
        let (updates, cancel) = (Arc::new(updates), watch::Sender::new(false));
        let at = (&stores, session);
        let _second = runs.register(at, (late, Epoch::new(2)), &updates, cancel.clone());
        let first = runs.register(at, (early, FIRST), &updates, cancel);
        assert_eq!(runs.attach(&stores, session).map(|run| run.id()), Some(Some(late)));
        drop(first);
        assert_eq!(runs.attach(&stores, session).map(|run| run.id()), Some(Some(late)));
        assert!(runs.ended(early).is_none() && runs.ended(late).is_some());
    }

    /// A key names the same session id in each tenant: the run of one is no run of the other.
    #[test]
    fn the_run_of_another_tenant_is_not_found() {
        let (runs, effects) = (Arc::new(ActiveRuns::default()), Effects::default());
        let (ours, theirs) = (Arc::default(), Arc::default());
        let (session, run) = (effects.new_session_id(), effects.new_run_id());
        let (updates, _) = UpdateSender::new();
        let cancel = watch::Sender::new(false);
        let _one = runs.register((&theirs, session), (run, FIRST), &Arc::new(updates), cancel);
        assert!(runs.attach(&ours, session).is_none());
    }
}
