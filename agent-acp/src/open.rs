//! Sessions that one client has open, their turns, and the requests that are worked on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::Result;
use agent_core::{DeviceId, SessionId};
use agent_runtime::AgentRuntime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;

use crate::fault;
use crate::servers::{ClientServers, GivenServers};
use crate::wire::Flow;

/// What a host chooses.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) agent: AgentRuntime,
    pub(crate) device: Option<DeviceId>,
    pub(crate) per_directory: bool,
    /// Name and version that clients are told.
    pub(crate) info: (String, String),
    pub(crate) servers: ClientServers,
}

/// Sessions that a client has open.
#[derive(Debug)]
pub(crate) struct OpenSessions {
    pub(crate) options: Options,
    pub(crate) flow: Flow,
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
}

/// Session that a client has open.
#[derive(Debug, Default)]
struct OpenSession {
    /// True for a turn that is to end; dropped when it has ended.
    turn: Option<watch::Sender<bool>>,
    /// Held as long as the session is open.
    servers: GivenServers,
}

impl OpenSession {
    fn cancel(&self) {
        if let Some(turn) = &self.turn {
            turn.send_replace(true);
        }
    }
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
        if let Some(open) = self.open.state().open.get_mut(&self.session) {
            open.turn = None;
        }
    }
}

impl OpenSessions {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self { options, flow: Flow::new(), state: Mutex::default(), tasks: Mutex::default() })
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
    pub(crate) fn check_idle(&self, session: SessionId) -> Result<()> {
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

    /// Cancels all turns, and records that nothing more can be written to the client.
    pub(crate) fn abandon(&self) {
        self.flow.cut();
        self.leave();
    }

    /// Cancels all turns. No new ones begin.
    pub(crate) fn leave(&self) {
        self.flow.leave();
        self.state().open.values().for_each(OpenSession::cancel);
    }

    /// Begins the one turn that a session has at a time.
    pub(crate) fn begin_turn(self: &Arc<Self>, session: SessionId) -> Result<TurnPermit> {
        let mut state = self.state();
        if self.flow.is_gone() {
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
        *slot = Some(cancel);
        Ok(TurnPermit { open: self.clone(), session, cancelled })
    }

    /// Requests the end of the turn of a session. Does nothing if it has none.
    pub(crate) fn cancel(&self, session: SessionId) {
        self.state().open.get(&session).map(OpenSession::cancel);
    }

    /// Ends the turn of a session and forgets the session. Returns whether it was open.
    pub(crate) async fn forget(&self, session: SessionId) -> bool {
        let turn = match self.state().open.get(&session) {
            None => return false,
            Some(open) => {
                open.cancel();
                open.turn.as_ref().map(watch::Sender::subscribe)
            }
        };
        if let Some(mut turn) = turn {
            // The sender is dropped with the turn.
            while turn.changed().await.is_ok() {}
        }
        let _closed = self.state().open.remove(&session);
        true
    }
}
