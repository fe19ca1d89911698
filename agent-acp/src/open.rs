//! Sessions that one client has open, their turns, and the requests that are worked on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::Error;
use agent_core::{DeviceId, SessionId};
use agent_runtime::AgentRuntime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use crate::fault;
use crate::servers::{ClientServers, GivenServers};
use crate::wire::Flow;

/// Sessions that a client has open.
#[derive(Debug)]
pub(crate) struct OpenSessions {
    agent: AgentRuntime,
    servers: ClientServers,
    flow: Flow,
    state: Mutex<State>,
    /// Work on requests; a request is answered before the connection ends.
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// Device that the client named when it connected.
    device: Option<DeviceId>,
    /// Whether the client shows notices.
    takes_notices: bool,
    /// Sessions that the client has created, loaded or resumed.
    open: HashMap<SessionId, OpenSession>,
    is_ending: bool,
}

/// Session that a client has open.
#[derive(Debug, Default)]
struct OpenSession {
    turn: Option<Active>,
    /// Held as long as the session is open.
    servers: GivenServers,
}

/// Turn of a session.
#[derive(Debug)]
struct Active {
    cancel: watch::Sender<bool>,
    done: watch::Sender<bool>,
}

/// Permit for the one turn that a session has on a connection. Dropping it ends the turn.
#[derive(Debug)]
pub(crate) struct TurnPermit {
    pub(crate) open: Arc<OpenSessions>,
    pub(crate) session: SessionId,
    /// True if the client wants the turn to end, or is gone.
    cancelled: watch::Receiver<bool>,
}

impl TurnPermit {
    /// Waits until the client wants the turn to end, or is gone.
    pub(crate) async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        // A sender that is dropped belongs to a connection that has ended.
        let _ = cancelled.wait_for(|cancelled| *cancelled).await;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.open.flow.is_gone()
    }
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        let mut state = self.open.state();
        if let Some(active) = state.open.get_mut(&self.session).and_then(|open| open.turn.take()) {
            active.done.send_replace(true);
        }
    }
}

impl OpenSessions {
    pub(crate) fn new(agent: AgentRuntime, servers: ClientServers) -> Arc<Self> {
        Arc::new(Self { agent, servers, flow: Flow::new(), state: Mutex::default(), tasks: Mutex::default() })
    }

    pub(crate) const fn agent(&self) -> &AgentRuntime {
        &self.agent
    }

    pub(crate) const fn servers(&self) -> &ClientServers {
        &self.servers
    }

    pub(crate) const fn flow(&self) -> &Flow {
        &self.flow
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device that the client named when it connected.
    pub(crate) fn device(&self) -> Option<DeviceId> {
        self.state().device.clone()
    }

    /// Returns whether the client shows notices.
    pub(crate) fn takes_notices(&self) -> bool {
        self.state().takes_notices
    }

    /// Records what the client said when it connected.
    pub(crate) fn set_client(&self, device: Option<DeviceId>, takes_notices: bool) {
        let mut state = self.state();
        (state.device, state.takes_notices) = (device, takes_notices);
    }

    /// Opens a session with the servers of its client, in place of those that it had.
    pub(crate) fn add(&self, session: SessionId, servers: GivenServers) {
        // Dropped when the state is free again.
        let _before = {
            let mut state = self.state();
            let open = state.open.entry(session).or_default();
            std::mem::replace(&mut open.servers, servers)
        };
    }

    /// Returns whether the client has a session open.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.state().open.contains_key(&session)
    }

    /// Refuses a session that has a turn.
    pub(crate) fn check_idle(&self, session: SessionId) -> Result<(), Error> {
        if self.state().open.get(&session).is_some_and(|open| open.turn.is_some()) {
            let text =
                format!("session {session} has a turn that has not ended; cancel it, or wait for its end");
            return Err(fault::refused(session, text));
        }
        Ok(())
    }

    /// Works on a request in a task of its own.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Cancels all turns, and waits until all requests are answered.
    pub(crate) async fn end(&self) {
        self.leave();
        loop {
            let mut tasks = std::mem::take(&mut *self.tasks());
            if tasks.is_empty() {
                return;
            }
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended {
                    warn!(%error, "a request was not answered");
                }
            }
        }
    }

    /// Cancels all turns. No new ones begin.
    pub(crate) fn leave(&self) {
        self.flow.leave();
        let mut state = self.state();
        state.is_ending = true;
        for active in state.open.values().filter_map(|open| open.turn.as_ref()) {
            active.cancel.send_replace(true);
        }
    }

    /// Begins the one turn that a session has at a time.
    pub(crate) fn begin_turn(self: &Arc<Self>, session: SessionId) -> Result<TurnPermit, Error> {
        let mut state = self.state();
        if state.is_ending {
            return Err(fault::refused(session, format!("session {session}: the connection is ending")));
        }
        let slot = &mut state.open.get_mut(&session).ok_or_else(|| fault::not_open(session))?.turn;
        if slot.is_some() {
            let text = format!(
                "session {session} has a turn that has not ended; answer its permission request, cancel it, or wait \
                 for its end"
            );
            return Err(fault::refused(session, text));
        }
        let cancel = watch::Sender::new(false);
        let cancelled = cancel.subscribe();
        *slot = Some(Active { cancel, done: watch::Sender::new(false) });
        Ok(TurnPermit { open: self.clone(), session, cancelled })
    }

    /// Requests the end of the turn of a session. Does nothing if it has none.
    pub(crate) fn cancel(&self, session: SessionId) {
        if let Some(active) = self.state().open.get(&session).and_then(|open| open.turn.as_ref()) {
            active.cancel.send_replace(true);
        }
    }

    /// Ends the turn of a session and forgets the session. Returns whether it was open.
    pub(crate) async fn forget(&self, session: SessionId) -> bool {
        let done = match self.state().open.get(&session).map(|open| &open.turn) {
            None => return false,
            Some(None) => None,
            Some(Some(active)) => {
                active.cancel.send_replace(true);
                Some(active.done.subscribe())
            }
        };
        if let Some(mut done) = done {
            // The sender is dropped with the turn.
            let _ = done.wait_for(|done| *done).await;
        }
        let _closed = self.state().open.remove(&session);
        true
    }
}
