//! Servers of one session, and what it was offered and asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::model::CallId;
use agent_core::{RunId, SessionStore};
use agent_runtime::SessionContext;
use tokio::time::Instant;

use crate::config::McpServers;
use crate::consent;
use crate::link::Link;
use crate::tool::McpTool;

/// Tools by name.
pub(crate) type Tools = Arc<BTreeMap<String, McpTool>>;

/// Digests of tools by name.
pub(crate) type Digests = Arc<consent::Permissions>;

/// Servers of one session.
#[derive(Debug)]
pub(crate) struct SessionServers {
    /// Store of the session. It is held, so that no other one gets its address.
    pub(crate) store: Arc<dyn SessionStore>,
    state: Mutex<SessionState>,
}

#[derive(Debug, Default)]
pub(crate) struct SessionState {
    pub(crate) links: BTreeMap<String, Arc<Link>>,
    /// Servers without a link, each with the reason.
    pub(crate) faults: BTreeMap<String, String>,
    /// Run that was the last to read the configuration.
    pub(crate) run: Option<RunId>,
    /// Tools that the model was last offered.
    pub(crate) offered: Tools,
    /// Digests of the tools that the model was offered so far, as they are stored; `None` if they were not read.
    pub(crate) digests: Option<Digests>,
    /// Calls of earlier runs that wait for an answer, each with the digests that the model was offered then.
    pub(crate) asked: BTreeMap<CallId, Digests>,
    /// Servers of the session alone, which no configuration has.
    pub(crate) added: Option<Arc<McpServers>>,
    /// Names of those of them that are used.
    pub(crate) added_links: Vec<String>,
    /// Calls that are being made.
    pub(crate) calls: usize,
    pub(crate) used: Option<Instant>,
}

impl SessionServers {
    pub(crate) fn new(store: Arc<dyn SessionStore>) -> Self {
        Self { store, state: Mutex::default() }
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a run. Its first calls are those that waited for an answer.
    pub(crate) fn begin(&self, context: &SessionContext) {
        let mut state = self.state();
        state.run = Some(context.run);
        state.offered = Tools::default();
        let mut before = std::mem::take(&mut state.asked);
        let now = state.digests.clone().unwrap_or_default();
        let waiting = context.session.open_calls.iter().map(|open| {
            let digests = before.remove(&open.call).unwrap_or_else(|| now.clone());
            (open.call.clone(), digests)
        });
        state.asked = waiting.collect();
    }

    pub(crate) fn take_links(&self) -> Vec<Arc<Link>> {
        let mut state = self.state();
        // The next run reads the configuration again.
        state.run = None;
        std::mem::take(&mut state.links).into_values().collect()
    }
}

/// Mark of a session whose call is being made: it loses no server.
pub(crate) struct Busy(Arc<SessionServers>);

impl Busy {
    pub(crate) fn new(servers: Arc<SessionServers>) -> Self {
        servers.state().calls += 1;
        Self(servers)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.calls -= 1;
        state.used = Some(Instant::now());
    }
}
