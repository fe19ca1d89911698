//! One server of one session: connected when it is needed, and again after it failed.

use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use agent_core::{Error, ErrorKind, Result};
use agent_runtime::ToolOutput;
use rmcp::model::JsonObject;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tracing::Dispatch;

use crate::connection::{Connection, Failure, Line, StartFailure};
use crate::content;
use crate::hub::Groups;
use crate::resolved::Resolved;
use crate::tool::{McpTool, ToolList};

/// Pause before the second restart; the first is immediate. It doubles with each further failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause before a restart, after failures that took no time.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Pause after a failure, as a multiple of the time that it took: a run must not spend its time on a server that stalls.
const PAUSE_TIMES: u32 = 4;
/// Time in which a connection that is in use can be closed.
const CLOSING: Duration = Duration::from_secs(4);

/// State of a server in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Name of the server in the configuration.
    pub name: String,
    /// Number of its tools that are offered.
    pub tools: usize,
    /// Number of its tools that are left out: too many, twice the same name, a wrong schema.
    pub left_out: usize,
    /// Notes on its tools: those that are left out, with the reason, and arguments that the model is given under other
    /// names. At most 20.
    pub notes: Vec<String>,
    /// Reason for which it cannot be used now; `None` if it can.
    pub error: Option<String>,
    /// Exit status of its program, and the last lines that it wrote to its standard error, if it could not be used when it
    /// was last started. The server's own text, without control characters and secrets: show it to a person, and do not log it.
    pub last_words: Option<String>,
}

impl ServerStatus {
    /// Creates the status of a server without tools.
    pub(crate) const fn new(name: String, error: Option<String>) -> Self {
        Self { name, tools: 0, left_out: 0, notes: Vec::new(), error, last_words: None }
    }
}

/// One server of one session. Its methods are called on the thread of the connections.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) server: Resolved,
    groups: Arc<Groups>,
    log: Dispatch,
    state: Mutex<State>,
    status: StdMutex<ServerStatus>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Connection>,
    tools: Arc<ToolList>,
    /// Failures since the last call that was answered.
    failures: u32,
    retry_at: Option<Instant>,
}

impl Link {
    pub(crate) fn new(server: Resolved, groups: Arc<Groups>, log: Dispatch) -> Self {
        let status = ServerStatus::new(server.name.clone(), None);
        Self { server, groups, log, state: Mutex::default(), status: StdMutex::new(status) }
    }

    /// Returns what the server last was.
    pub(crate) fn status(&self) -> ServerStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the tools of the server. Connects first if necessary. With `again`, the list is read in any case, since a
    /// server may change it and say nothing.
    pub(crate) async fn tools(&self, again: bool) -> Result<Arc<ToolList>, Failed> {
        self.ready(again).await.map(|(_, tools)| tools)
    }

    async fn ready(&self, again: bool) -> Result<(Line, Arc<ToolList>), Failed> {
        let mut state = self.state.lock().await;
        let ready = self.connected(&mut state, again).await;
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let name = self.server.name.clone();
        *status = match &ready {
            Ok((_, tools)) => ServerStatus {
                tools: tools.tools.len(),
                left_out: tools.left_out,
                notes: tools.notes.clone(),
                ..ServerStatus::new(name, None)
            },
            Err(failed) => {
                let before = status.last_words.take().filter(|_| !failed.is_new);
                let last_words = failed.last_words.clone().or(before);
                ServerStatus { last_words, ..ServerStatus::new(name, Some(failed.text.clone())) }
            }
        };
        ready
    }

    async fn connected(&self, state: &mut State, again: bool) -> Result<(Line, Arc<ToolList>), Failed> {
        if let Some(connection) = state.connection.take_if(|connection| !connection.is_alive()) {
            connection.close().await;
            count_failure(state, Duration::ZERO);
        }
        let start = Instant::now();
        if let Some(wait) = state.retry_at.and_then(|at| at.checked_duration_since(start))
            && state.connection.is_none()
            && !wait.is_zero()
        {
            let last = self.status().error.unwrap_or_else(|| Failure::Ended.to_string());
            let last = last.split("; it is not tried").next().unwrap_or_default().to_owned();
            let text = format!("{last}; it is not tried again for {} seconds", wait.as_secs() + 1);
            return Err(Failed { text, last_words: None, is_new: false });
        }
        self.listed(state, again).await.map_err(|StartFailure { failure, last_words }| {
            count_failure(state, start.elapsed());
            Failed { text: failure.for_logs(), last_words, is_new: true }
        })
    }

    async fn listed(&self, state: &mut State, again: bool) -> Result<(Line, Arc<ToolList>), StartFailure> {
        let is_new = state.connection.is_none();
        let connection = match &mut state.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(&self.server, &self.groups, &self.log).await?),
        };
        let line = connection.line();
        if connection.take_changed() || again || is_new {
            match line.list(&self.server).await {
                Ok(tools) => state.tools = Arc::new(tools),
                Err(failure) => {
                    // Taken before the wait: a dropped call must leave no connection that cannot list.
                    let mut last_words = None;
                    if let Some(connection) = state.connection.take() {
                        last_words = connection.last_words(&self.server).await;
                        connection.close().await;
                    }
                    return Err(StartFailure { failure, last_words });
                }
            }
        }
        Ok((line, state.tools.clone()))
    }

    /// Calls a tool, if it still is what was offered.
    pub(crate) async fn call(&self, offered: &McpTool, arguments: JsonObject) -> Result<ToolOutput> {
        let name = &self.server.name;
        let unavailable = |text: String| Error::unavailable(text);
        let (line, tools) = self.ready(false).await.map_err(|failed| {
            unavailable(format!("not called: MCP server {name} cannot be used: {}", failed.text))
        })?;
        if !tools.tools.iter().any(|tool| tool.tool == offered.tool && tool.digest == offered.digest) {
            return Err(changed(offered));
        }
        let called = line.call(&self.server, &offered.tool, arguments).await;
        if matches!(called, Ok(_) | Err(Failure::Refused(_))) {
            self.state.lock().await.failures = 0;
        }
        match called {
            Ok(result) => content::output(name, result),
            Err(Failure::Refused(text)) => {
                let text = format!("MCP server {name} refused the call: {text}");
                Err(Error::new(ErrorKind::Provider, text))
            }
            Err(failure) => {
                if matches!(failure, Failure::Silent(_)) && !line.answers().await {
                    let mut state = self.state.lock().await;
                    if let Some(connection) = state.connection.take() {
                        connection.close().await;
                        count_failure(&mut state, Duration::ZERO);
                    }
                }
                Err(unavailable(format!(
                    "MCP server {name}: {failure}; it is not known whether the tool took effect"
                )))
            }
        }
    }

    /// Closes the connection; ends the server if it is a child process.
    pub(crate) async fn close(&self) {
        let close = async {
            let connection = self.state.lock().await.connection.take();
            if let Some(connection) = connection {
                connection.close().await;
            }
        };
        let _ = timeout(CLOSING, close).await;
    }
}

/// Counts a failure that took so long, and sets when the server may be started again.
fn count_failure(state: &mut State, took: Duration) {
    state.failures = state.failures.saturating_add(1);
    state.tools = Arc::default();
    let doubled = match state.failures {
        0 | 1 => Duration::ZERO,
        failures => PAUSE.saturating_mul(1 << (failures - 2).min(16)).min(PAUSE_MAX),
    };
    let pause = if took < PAUSE { doubled } else { doubled.max(took * PAUSE_TIMES) };
    state.retry_at = (!pause.is_zero()).then(|| Instant::now() + pause);
}

/// Returns the error of a call of a tool that is not what was offered any more.
pub(crate) fn changed(offered: &McpTool) -> Error {
    let text = format!(
        "not called: MCP server {} has changed tool {} since it was offered, or has removed it; look at the tools again",
        offered.server, offered.name
    );
    Error::new(ErrorKind::Provider, text)
}

/// Reason for which a server cannot be used.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) text: String,
    /// Last words of the program, for a person and for no log.
    pub(crate) last_words: Option<String>,
    /// True if it was found out now.
    pub(crate) is_new: bool,
}
