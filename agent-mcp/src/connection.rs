//! Connection to one server: opened, asked and closed, each with a deadline.

use std::error::Error as StdError;
use std::fmt;
use std::io::ErrorKind as IoKind;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, Implementation,
    JsonObject, ListToolsRequest, PaginatedRequestParams, PingRequest, ProtocolVersion, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, NotificationContext, Peer, PeerRequestOptions, RequestHandle, RoleClient,
    RunningService, ServiceError, serve_client,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::io::InspectWriter;
use tracing::Dispatch;

use crate::backlog::Backlog;
use crate::child::ChildProcess;
use crate::hub::Groups;
use crate::last_words::last_words;
use crate::lines::{GROWTH, Lines};
use crate::mend::is_unreadable;
use crate::resolved::{Resolved, ResolvedTarget};
use crate::tool::{ToolList, ToolListReader, cut};
use crate::web::HttpClient;

/// Maximum number of pages of a list of tools.
const PAGES_MAX: usize = 100;
/// Time in which a cancellation or a ping is sent.
const SENDING: Duration = Duration::from_secs(5);
/// Time in which the last output of a server that ended is read.
const LAST: Duration = Duration::from_millis(200);
/// Time in which a connection is closed: the input of a child process, or the session of a server over HTTP.
const CLOSING: Duration = Duration::from_millis(500);
/// Maximum bytes of the text with which a server refuses a request.
const REFUSAL_MAX_BYTES: usize = 4 << 10;

/// Failure of a request. Its text names no address, and nothing that a server sent but a refusal of a call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The program was not started.
    NotStarted(IoKind),
    /// The server ended, or closed its output, or sent a message that is too large.
    Ended,
    /// No answer in time.
    Silent(Duration),
    /// The server refused the request, with this text.
    Refused(String),
    /// Status of an HTTP answer.
    Status(u16),
    /// The server wants a person to log in.
    Unauthorized,
    /// The request could not be sent, or no answer could be read.
    Unsent,
    /// The answer is not one of the protocol.
    Broken,
    /// The answer is no JSON.
    Unreadable,
}

/// Result of a request.
type Result<T, E = Failure> = std::result::Result<T, E>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(IoKind::NotFound) => {
                f.write_str("its program was not found; install it, or correct command and cwd")
            }
            Self::NotStarted(kind) => write!(f, "its program could not be started: {kind}"),
            Self::Ended => f.write_str("it ended, or sent a message that is too large"),
            Self::Silent(time) => write!(f, "it gave no answer in {time:?}"),
            Self::Refused(text) => write!(f, "it refused the request: {text}"),
            Self::Status(status) => write!(f, "it answered with HTTP status {status}"),
            Self::Unauthorized => f.write_str("it wants an authorization; set the header Authorization"),
            Self::Unreadable => {
                f.write_str("its answer is no valid JSON, or is too large, or is no message of the protocol")
            }
            Self::Unsent | Self::Broken => {
                f.write_str("it could not be reached, or does not follow the protocol")
            }
        }
    }
}

impl Failure {
    /// Returns the failure without the text of a server.
    pub(crate) fn for_logs(&self) -> String {
        match self {
            Self::Refused(_) => "it refused the request".to_owned(),
            other => other.to_string(),
        }
    }

    fn of_source(error: &(dyn StdError + 'static)) -> Self {
        let mut sources = iter::successors(Some(error), |&error| error.source());
        // The error of a status stands in one that is generic over the HTTP client, and is shown by that as it is.
        let status = sources.find_map(|error| error.to_string().strip_prefix("HTTP ")?.parse().ok());
        status.map_or(Self::Unsent, Self::Status)
    }

    fn of_start(error: &ClientInitializeError) -> Self {
        match error {
            error if error.is_authorization_required() || error.auth_challenge().is_some() => {
                Self::Unauthorized
            }
            ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled => Self::Ended,
            ClientInitializeError::TransportError { error, .. } => Self::of_source(error.error.as_ref()),
            _ => Self::Broken,
        }
    }

    fn of_request(error: &ServiceError) -> Self {
        match error {
            error if error.is_authorization_required() || error.auth_challenge().is_some() => {
                Self::Unauthorized
            }
            ServiceError::McpError(refusal) if is_unreadable(refusal.code.0, refusal.data.as_ref()) => {
                Self::Unreadable
            }
            ServiceError::McpError(refusal) => {
                Self::Refused(format!("{} ({})", cut(&refusal.message, REFUSAL_MAX_BYTES), refusal.code.0))
            }
            ServiceError::TransportClosed => Self::Ended,
            ServiceError::TransportSend(error) => Self::of_source(error.error.as_ref()),
            _ => Self::Broken,
        }
    }
}

/// What the agent is to a server: a client that can do nothing for it.
#[derive(Debug, Default)]
struct Client {
    /// Whether the list of tools changed since it was last read.
    changed: AtomicBool,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let info = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // The newest version that begins with a handshake, which every server has.
        ClientConfig::new(ClientCapabilities::default(), info)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Release);
    }
}

/// Connection to one server. Everything of it happens on the thread of the connections.
#[derive(Debug)]
pub(crate) struct Connection {
    service: RunningService<RoleClient, Client>,
    child: Option<Arc<ChildProcess>>,
}

/// Way to send requests on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    peer: Peer<RoleClient>,
    child: Option<Arc<ChildProcess>>,
}

/// Failure of a start.
#[derive(Debug)]
pub(crate) struct StartFailure {
    pub(crate) failure: Failure,
    /// Last words of the program, for a person and for no log.
    pub(crate) last_words: Option<String>,
}

impl From<Failure> for StartFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, last_words: None }
    }
}

impl Connection {
    /// Starts or contacts a server.
    pub(crate) async fn open(
        server: &Resolved,
        groups: &Arc<Groups>,
        log: &Dispatch,
    ) -> Result<Self, StartFailure> {
        let client = Client::default();
        let most = server.limits.message_bytes;
        let connect = server.limits.connect;
        let silent = |_| Failure::Silent(connect);
        match &server.target {
            ResolvedTarget::Command { command, args, cwd, env } => {
                let program = (command.as_str(), args.as_slice(), cwd.as_deref());
                let (child, pipes) = ChildProcess::start(&server.name, program, env, groups, log)
                    .map_err(|error| Failure::NotStarted(error.kind()))?;
                let backlog = Backlog::default();
                let output = Lines::new(pipes.output, most, backlog.clone());
                let input = InspectWriter::new(pipes.input, move |bytes: &[u8]| backlog.written(bytes));
                let transport = AsyncRwTransport::new_client(output, input)
                    .with_max_line_length(most.saturating_mul(GROWTH));
                let started = tokio::select! {
                    started = timeout(connect, serve_client(client, transport)) => match started {
                        Ok(Ok(service)) => Ok(service),
                        Ok(Err(error)) => Err(explained(Some(&child), Failure::of_start(&error)).await),
                        Err(elapsed) => Err(silent(elapsed)),
                    },
                    () = child.ended() => Err(Failure::Ended),
                };
                match started {
                    Ok(service) => Ok(Self { service, child: Some(Arc::new(child)) }),
                    Err(failure) => {
                        Err(StartFailure { failure, last_words: last_words(&child, &server.hidden).await })
                    }
                }
            }
            ResolvedTarget::Url { url, headers } => {
                let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(headers.clone());
                let http = HttpClient::new(most).map_err(|_| Failure::Unsent)?;
                let transport = StreamableHttpClientTransport::with_client(http, config);
                let started = timeout(connect, serve_client(client, transport)).await.map_err(silent)?;
                let service = started.map_err(|error| Failure::of_start(&error))?;
                Ok(Self { service, child: None })
            }
        }
    }

    /// Returns the last words of the server, if it is a child process.
    pub(crate) async fn last_words(&self, server: &Resolved) -> Option<String> {
        last_words(self.child.as_deref()?, &server.hidden).await
    }

    /// Returns whether requests can be sent.
    pub(crate) fn is_alive(&self) -> bool {
        !self.service.peer().is_transport_closed()
            && !self.child.as_ref().is_some_and(|child| child.has_ended())
    }

    /// Returns whether the server has said that its list of tools changed, since the last time.
    pub(crate) fn take_changed(&self) -> bool {
        self.service.service().changed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn line(&self) -> Line {
        Line { peer: self.service.peer().clone(), child: self.child.clone() }
    }

    /// Closes the connection, and ends the server if it is a child process.
    pub(crate) async fn close(mut self) {
        let _ = self.service.close_with_timeout(CLOSING).await;
        // If a call holds it too, it ends the server when it is dropped.
        if let Some(child) = self.child.take().and_then(Arc::into_inner) {
            child.end().await;
        }
    }
}

impl Line {
    /// Reads all pages of the list of tools.
    pub(crate) async fn list(&self, server: &Resolved) -> Result<ToolList> {
        let mut reader = ToolListReader::new(&server.name, &server.identity, server.limits.tools);
        let has_tools = self.peer.peer_info().is_some_and(|info| info.capabilities.tools.is_some());
        if !has_tools {
            return Ok(reader.finish());
        }
        let until = Instant::now() + server.limits.list;
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params =
                cursor.clone().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let request =
                ListToolsRequest { method: Default::default(), params, extensions: Default::default() };
            let request = ClientRequest::ListToolsRequest(request);
            let next = match self.request(request, until, server.limits.list).await? {
                ServerResult::ListToolsResult(page) => {
                    page.tools.iter().for_each(|tool| reader.push(tool));
                    page.next_cursor
                }
                // A page with a tool that the protocol crate does not read.
                ServerResult::CustomResult(page) => {
                    let Some(tools) = page.0.get("tools").and_then(|tools| tools.as_array()) else {
                        return Err(Failure::Broken);
                    };
                    tools.iter().for_each(|tool| reader.push_value(tool));
                    page.0.get("nextCursor").and_then(|cursor| cursor.as_str()).map(str::to_owned)
                }
                _ => return Err(Failure::Broken),
            };
            if next.is_none() || next == cursor || !reader.has_room() {
                break;
            }
            cursor = next;
        }
        Ok(reader.finish())
    }

    /// Calls a tool.
    pub(crate) async fn call(
        &self,
        server: &Resolved,
        tool: &str,
        arguments: JsonObject,
    ) -> Result<ServerResult> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = CallToolRequest::new(params);
        let time = server.limits.call;
        self.request(ClientRequest::CallToolRequest(request), Instant::now() + time, time).await
    }

    /// Returns whether the server answers a ping.
    pub(crate) async fn answers(&self) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let answer = self.request(ping, Instant::now() + SENDING, SENDING).await;
        // A server that refuses it is there, too.
        matches!(answer, Ok(_) | Err(Failure::Refused(_)))
    }

    /// Sends a request, and waits for its answer until the deadline, which is `time` after the beginning. A request
    /// without an answer is cancelled, also if the future is dropped.
    async fn request(&self, request: ClientRequest, until: Instant, time: Duration) -> Result<ServerResult> {
        let options = PeerRequestOptions::no_options();
        let sent = timeout_at(until, self.peer.send_cancellable_request(request, options)).await;
        let sent = sent.map_err(|_| Failure::Silent(time))?.map_err(|error| Failure::of_request(&error))?;
        let mut pending = Pending(Some(sent));
        let Some(handle) = &mut pending.0 else { return Err(Failure::Ended) };
        let ended = async {
            match &self.child {
                Some(child) => child.ended().await,
                None => std::future::pending().await,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = timeout_at(until, &mut handle.rx) => answer.map_err(|_| Failure::Silent(time))?,
            // A process that it has started may hold its output open. The last thing that it wrote may be the answer.
            () = ended => {
                timeout(LAST, &mut handle.rx).await.unwrap_or(Ok(Err(ServiceError::TransportClosed)))
            }
        };
        pending.0 = None;
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(explained(self.child.as_deref(), Failure::of_request(&error)).await),
            Err(_) => Err(Failure::Ended),
        }
    }
}

/// Returns the failure of a request to a process: that it ended, if the request could not be sent because of that.
async fn explained(child: Option<&ChildProcess>, failure: Failure) -> Failure {
    match (failure, child) {
        (Failure::Unsent, Some(child)) if timeout(LAST, child.ended()).await.is_ok() => Failure::Ended,
        (failure, _) => failure,
    }
}

/// Request without an answer. It is cancelled when this is dropped.
struct Pending(Option<RequestHandle<RoleClient>>);

impl Drop for Pending {
    fn drop(&mut self) {
        // There is no runtime while the thread ends; then the server ends too.
        if let (Some(handle), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            // A server that does not read its input would delay every caller that waits for this.
            runtime.spawn(timeout(SENDING, handle.cancel(Some("no answer in time".to_owned()))));
        }
    }
}
