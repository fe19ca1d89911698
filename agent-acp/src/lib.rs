//! Bridge to the [Agent Client Protocol](https://agentclientprotocol.com) (ACP): an agent of [`agent_runtime`] in
//! editors like Zed, and in every other client of the protocol.
//!
//! [`AcpAgent`] serves one client over any pair of byte streams. Sessions are those of the store: the id of a session of
//! the protocol is its [`SessionId`](agent_core::SessionId), and every program with the same store can go on with it. Only the whole id is taken: both
//! sides name the session by it in every message, and two names would be two sessions to an editor.
//!
//! ```no_run
//! use agent_acp::AcpAgent;
//! use agent_core::MemoryStore;
//! use agent_runtime::{AgentBuilder, EchoProvider};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! let agent = AgentBuilder::new()
//!     .with_llm(EchoProvider::new()) // any `LlmProvider`
//!     .with_storage(MemoryStore::new()) // or files, SQLite, S3
//!     .build()?;
//! let (reader, writer) = tokio::io::split(tokio::net::TcpStream::connect("127.0.0.1:4711").await.unwrap());
//! AcpAgent::new(agent.clone()).with_device("laptop".parse()?).serve(reader, writer).await?;
//! agent.close().await?;
//! # Ok(()) }
//! ```
//!
//! # Methods
//!
//! | Method | What it does |
//! |---|---|
//! | `initialize` | names the capabilities; `_meta` may name the device |
//! | `session/new` | creates a session, and answers when it is stored |
//! | `session/load` | sends the visible history in its order, and then answers |
//! | `session/resume` | opens a session and sends nothing of its history |
//! | `session/list` | pages of 50 sessions, last active first, of one directory or of all |
//! | `session/prompt` | stores the prompt, runs the agent, and answers when the end of the run is stored |
//! | `session/cancel` | cancels the turn; what the model has said is stored |
//! | `session/close` | cancels the turn, waits for its end, and forgets the session on this connection |
//! | `session/delete` | deletes the session from lists; a session that does not exist, or is not listed, is no error |
//! | `session/fork` | creates a session that shares the history; unstable in the protocol |
//!
//! Modes, configuration options, authentication and the client's file system and terminals are not used.
//!
//! # MCP servers of the client
//!
//! With the feature `mcp` and `AcpAgent::with_mcp`, a session has the MCP servers that its client names when it creates,
//! loads, resumes or forks the session, over stdio and over HTTP; without, they are ignored with a warning. They are
//! started with the next prompt, in the session's directory, and end when the session is closed or the client is gone.
//! A server of the host's configuration with the same name goes before. In names, what is no letter or digit of ASCII
//! becomes `-`. Nothing of them is stored.
//!
//! # What is stored when an update is sent
//!
//! | Update | Stored before it is sent |
//! |---|---|
//! | pieces of text and of reasoning in a turn, with `_meta: {"agent": {"streamed": true}}` | no: the answer is stored when it is complete |
//! | media and other parts of an answer in a turn | no |
//! | `tool_call` | yes, with the text before it |
//! | `tool_call_update` with the status `completed` or `failed` | yes |
//! | `tool_call_update` with the status `in_progress` | yes: the permission is stored |
//! | answer to `session/prompt` | yes: the whole turn |
//! | notices | no |
//! | everything that `session/load` sends | yes |
//!
//! A prompt that waits behind the run of another client is sent the events of that run, and the pieces of its answer if it is
//! one of this process, as a prompt of its own is.
//!
//! Updates have the same ids in a turn and when the session is loaded. The id of a message of the agent is
//! `{commit}/{number}`: the commit that stores the answer, and the number of the message in it. A message of a person has
//! the id of its event. The id of a tool call is that of the call in the log.
//!
//! # Notices
//!
//! A person is told why an answer is not all that they may expect: it was cut by a limit, refused or empty, the provider
//! says why it refused the request, or older messages are left out for the model. A client with the capability
//! `session.notices` is sent a `notice`; every other one a message of the agent, with `_meta: {"agent": {"notice": true}}`.
//! A call of a cut answer is sent as a call that failed.
//!
//! # Permissions
//!
//! A tool with [`ToolMode::Confirm`](agent_runtime::ToolMode::Confirm) is made after `session/request_permission`, whose
//! `rawInput` holds the whole arguments of the call. Its `content` is the same as text, as it stands in the log, with
//! marks like `<U+200B>` in place of characters that nobody sees.
//!
//! The session waits durably: if the client goes away, it goes on waiting, and whoever loads or resumes the session is
//! asked again. The answer and the run that goes on with it are one commit. Options are `allow` and `reject`, each for
//! this call only, or one for each choice of the question. For a tool of an MCP server there is `allow-always`, too, which
//! is stored in the session and holds while the tool has the same description and schema.
//!
//! If another program answers meanwhile, the turn goes on with that answer: the client's later answer changes nothing.
//!
//! If the client answers with an error, or with an option that it was not offered, the turn ends with an error and the
//! question stays open; the next prompt, or loading the session, asks again first.
//!
//! If the turn is cancelled while it waits, the pending action is discarded, as by
//! [`interrupt`](agent_runtime::Conversation::interrupt), with inputs that wait and timers.
//!
//! # Directories and devices
//!
//! The client's working directory is kept as the label [`DIRECTORY_LABEL`] of the session; when a session is loaded in
//! another directory, the label follows. A session that no client has opened is listed with the directory `/`.
//!
//! A new session belongs to the workspace of the device: the one that the request names in
//! `_meta: {"agent": {"device": "laptop"}}`, or else the one that `initialize` names there, or else that of
//! [`AcpAgent::with_device`]. A device that is bound to no workspace is bound to a new one. Without a device, sessions
//! belong to the default workspace. With [`AcpAgent::with_workspace_per_directory`], each directory has a workspace.
//!
//! A client may use the sessions that its list shows: those of that workspace, or of all workspaces if each directory has
//! one, that are neither archived nor deleted. It may use the sessions that it has open, too. Any other session is
//! answered as one that does not exist, by every method. This keeps the devices of one person apart, and is no
//! protection: a client names its device itself. Give people who must not see each other's sessions tenants of their own.
//!
//! # Clients that fail
//!
//! - A request that is wrong is answered with an error that names its object: `-32002` for a session that does not exist
//!   or is not open, `-32602` for wrong parameters, `-32600` for a prompt while a turn runs and for a message that is too
//!   large, `-32700` for what is not JSON. U+FFFD stands for half of a surrogate pair and for bytes that are not UTF-8,
//!   as in what editors cut inside a character: the rest of the message is read. `data` has the member `sessionId` if a
//!   session is concerned, and `kind` for an error of the store or of the runtime.
//! - If the input ends, or the output breaks, all turns are cancelled: what the model has said is stored, open calls get
//!   a result, and the sessions become idle, or go on waiting for a permission. Requests that were read are answered
//!   before [`AcpAgent::serve`] returns; not if the client reads nothing for ten seconds then.
//! - A process that is killed leaves its sessions as any other: the next prompt takes over, and answers what was open.
//! - A client that reads slowly holds up the stream, and not the agent: of a turn, 4 MiB wait in memory; what is left out
//!   is sent from the log when the turn ends.

use agent_client_protocol::Channel;
use agent_core::{DeviceId, Error, Result};
use agent_runtime::AgentRuntime;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::connection::Connection;
use crate::open::{OpenSessions, Options};
use crate::servers::ClientServers;

pub use agent_client_protocol;
pub use connection::DIRECTORY_LABEL;

mod connection;
mod content;
mod fault;
mod meta;
mod open;
mod servers;
mod turn;
mod updates;
mod wire;

/// Agent that clients of the Agent Client Protocol use. Cloning is cheap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use agent_acp::AcpAgent;
/// # use agent_core::MemoryStore;
/// # use agent_runtime::{AgentBuilder, EchoProvider};
/// use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
///
/// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
/// let (client, ours) = tokio::io::duplex(1 << 16);
/// let (reader, writer) = tokio::io::split(ours);
/// let served = tokio::spawn(async move { AcpAgent::new(agent).serve(reader, writer).await });
///
/// let (answers, mut requests) = tokio::io::split(client);
/// let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
/// requests.write_all(format!("{initialize}\n").as_bytes()).await?;
/// let answer = BufReader::new(answers).lines().next_line().await?.expect("an answer");
/// assert!(answer.contains(r#""loadSession":true"#), "{answer}");
///
/// requests.shutdown().await?; // the client has gone
/// served.await??;
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct AcpAgent {
    options: Options,
    message_max_bytes: usize,
}

impl AcpAgent {
    /// Maximum bytes of a message of a client, if no other is set.
    pub const DEFAULT_MESSAGE_MAX_BYTES: usize = 64 << 20;

    /// Creates an agent without a device.
    pub fn new(agent: AgentRuntime) -> Self {
        let info = (env!("CARGO_PKG_NAME").to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let servers = ClientServers::default();
        let options = Options { agent, device: None, per_directory: false, info, servers };
        Self { options, message_max_bytes: Self::DEFAULT_MESSAGE_MAX_BYTES }
    }

    /// Sets the device of clients that name none. New sessions belong to its workspace.
    pub fn with_device(mut self, device: DeviceId) -> Self {
        self.options.device = Some(device);
        self
    }

    /// Gives each working directory a workspace of its own, in place of that of the device.
    ///
    /// The directory is bound as a device with the name `directory PATH`, and lists show the sessions of all workspaces.
    pub const fn with_workspace_per_directory(mut self) -> Self {
        self.options.per_directory = true;
        self
    }

    /// Uses the MCP servers that clients name for their sessions. `mcp` must be a clone of the agent's plugin.
    ///
    /// A client that may name servers runs programs as the host: use this only for clients that may do so, like an editor
    /// that has started the host.
    ///
    /// ```
    /// # use agent_core::MemoryStore;
    /// use agent_acp::AcpAgent;
    /// use agent_mcp::{Mcp, McpServers};
    /// use agent_runtime::{AgentBuilder, EchoProvider};
    ///
    /// let mcp = Mcp::new(McpServers::new()); // or with servers of the host
    /// let agent = AgentBuilder::new()
    ///     .with_llm(EchoProvider::new())
    ///     .with_storage(MemoryStore::new())
    ///     .with_plugin(mcp.clone())
    ///     .build()?;
    /// let agent = AcpAgent::new(agent).with_mcp(mcp);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    #[cfg(feature = "mcp")]
    pub fn with_mcp(mut self, mcp: agent_mcp::Mcp) -> Self {
        self.options.servers = ClientServers { mcp: Some(mcp) };
        self
    }

    /// Sets the maximum bytes of a message of a client. A longer one is refused, and is not held in memory.
    pub const fn with_message_max_bytes(mut self, bytes: usize) -> Self {
        self.message_max_bytes = bytes;
        self
    }

    /// Sets the name and the version that clients are told.
    pub fn with_info(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.options.info = (name.into(), version.into());
        self
    }

    /// Serves one client: messages are lines of JSON. Returns when the client is gone and its turns have ended.
    ///
    /// The client is gone when the reader ends or the writer fails; that the other end was closed is no error. The agent
    /// stays open. Several clients may be served at the same time, by the same value or by clones.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the turns of the client are cancelled, and end in tasks of their own.
    ///
    /// # Errors
    ///
    /// `Unavailable` if reading or writing failed; the turns have ended then, too.
    pub async fn serve<R, W>(&self, reader: R, writer: W) -> Result<()>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send,
    {
        let connection = Connection::new(self.options.clone());
        let open = &*connection.open;
        let left = Left(open);
        let (ours, peer) = Channel::duplex();
        let (to_client, from_client) = ours.into_parts();
        let input = async {
            let read = tokio::select! {
                read = wire::read_frames(reader, &from_client, self.message_max_bytes) => read,
                () = open.flow.gone() => Ok(()),
            };
            open.end().await;
            // What was read is answered; the connection ends with its input.
            drop(from_client);
            read
        };
        let output = async {
            let written = wire::write_frames(to_client, writer, &open.flow).await;
            open.abandon();
            written
        };
        let (read, written, served) = tokio::join!(input, output, connection.serve(peer));
        drop(left);
        for (doing, done) in [("read from", read), ("write to", written)] {
            match done {
                Err(error) if !is_closed(&error) => {
                    let text = format!("cannot {doing} the client: {error}");
                    return Err(Error::unavailable(text).with_source(error));
                }
                _ => {}
            }
        }
        if let Err(error) = served {
            // The other end was closed while something was sent to it.
            tracing::debug!(?error, "the connection ended early");
        }
        Ok(())
    }
}

/// Ends the turns of a connection when it is dropped.
struct Left<'a>(&'a OpenSessions);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Returns whether the other end was closed.
fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Is;
    matches!(error.kind(), Is::BrokenPipe | Is::ConnectionReset | Is::ConnectionAborted | Is::UnexpectedEof)
}
