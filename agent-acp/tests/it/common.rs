//! Stores, agents and clients of the tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_acp::AcpAgent;
use agent_client_protocol::v1::{ConnectionTo, Responder, schema};
use agent_client_protocol::{Agent, ByteStreams, Client, on_receive_notification, on_receive_request};
use agent_core::event::Event;
use agent_core::json::RawJson;
use agent_core::store::ReadEvents;
use agent_core::{MemoryStore, SessionId, Storage, async_trait};
use agent_runtime::{AgentBuilder, AgentRuntime, Plugin, ScriptedProvider, ToolContext, ToolMode, ToolSpec};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use schema::{ContentBlock, ContentChunk, SessionNotification, SessionUpdate};
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// How long to wait before a test is given up as stuck. Never what a test is about.
pub(crate) const STUCK: Duration = Duration::from_secs(60);

/// Makes a test for each kind of store.
macro_rules! each_store {
    ($test:ident) => {
        mod $test {
            crate::common::each_store!(@ $test memory);
            crate::common::each_store!(@ $test files);
            crate::common::each_store!(@ $test sqlite);
        }
    };
    (@ $test:ident $store:ident) => {
        #[tokio::test]
        async fn $store() {
            super::$test(crate::common::Site::new(stringify!($store))).await;
        }
    };
}
pub(crate) use each_store;

/// Data of a store, for the time of a test.
pub(crate) struct Site {
    kind: &'static str,
    folder: TempDir,
    memory: MemoryStore,
}

impl Site {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, folder: tempfile::tempdir().unwrap(), memory: MemoryStore::new() }
    }

    /// Opens the store anew.
    pub(crate) async fn open(&self) -> Storage {
        match self.kind {
            "memory" => self.memory.clone().into(),
            "files" => FsStore::open(self.folder.path()).await.unwrap().into(),
            _ => SqliteStore::open(self.folder.path().join("agent.db")).await.unwrap().into(),
        }
    }

    /// Ends the process of an agent. What is in memory stays for the next one.
    pub(crate) async fn end(&self, agent: AgentRuntime) {
        match self.kind {
            "memory" => agent.shutdown(Duration::ZERO).await.unwrap(),
            _ => agent.close().await.unwrap(),
        }
    }

    /// Builds an agent of a new process.
    pub(crate) async fn agent(&self, model: ScriptedProvider, tool: &Arc<Counter>) -> AgentRuntime {
        let builder = AgentBuilder::new().with_llm(model).with_plugin(tool.clone());
        builder.with_storage(self.open().await).build().unwrap()
    }
}

/// Tools that count their calls: `look`, and `pay`, which needs consent.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicUsize);

impl Counter {
    pub(crate) fn calls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Plugin for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("look", "Looks."), ToolSpec::new("pay", "Pays.").with_mode(ToolMode::Confirm)]
    }

    async fn call(&self, tool: &str, _: RawJson, _: ToolContext) -> agent_core::Result<RawJson> {
        self.0.fetch_add(1, Ordering::SeqCst);
        RawJson::of(&format!("{tool}: done"))
    }
}

/// Serves one client. Returns the client's end, and the end of the service.
pub(crate) fn serve(agent: AcpAgent) -> (DuplexStream, JoinHandle<agent_core::Result<()>>) {
    let (client, ours) = tokio::io::duplex(4096);
    let served = tokio::spawn(async move {
        let (reader, writer) = tokio::io::split(ours);
        agent.serve(reader, writer).await
    });
    (client, served)
}

/// What a client was sent.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    updates: Arc<Mutex<Vec<SessionUpdate>>>,
    came: Arc<Notify>,
}

/// What a client answers to a permission request; `None` does not answer.
pub(crate) type Answer = Option<&'static str>;

impl Seen {
    pub(crate) fn take(&self) -> Vec<SessionUpdate> {
        std::mem::take(&mut self.updates.lock().unwrap())
    }

    /// Waits until an update is there that fits.
    pub(crate) async fn until(&self, fits: impl Fn(&SessionUpdate) -> bool) {
        let wait = async {
            loop {
                let mut came = std::pin::pin!(self.came.notified());
                came.as_mut().enable();
                if self.updates.lock().unwrap().iter().any(&fits) {
                    return;
                }
                came.await;
            }
        };
        timeout(STUCK, wait).await.expect("the update comes");
    }

    fn add(&self, update: SessionUpdate) {
        self.updates.lock().unwrap().push(update);
        self.came.notify_waiters();
    }
}

/// Runs a client of the protocol crate against an agent, until its part is done. Returns when the service has ended.
pub(crate) async fn client<R>(
    agent: AcpAgent,
    answer: Answer,
    part: impl AsyncFnOnce(ConnectionTo<Agent>, Seen) -> R,
) -> R {
    let (stream, served) = serve(agent);
    let (reader, writer) = tokio::io::split(stream);
    let seen = Seen::default();
    let (updates, asked) = (seen.clone(), seen.clone());
    let transport = ByteStreams::new(writer.compat_write(), reader.compat());
    let connected = Client
        .v1()
        .on_receive_notification(
            async move |sent: SessionNotification, _: ConnectionTo<Agent>| {
                updates.add(sent.update);
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: schema::RequestPermissionRequest,
                        responder: Responder<_>,
                        connection: ConnectionTo<Agent>| {
                // Seen among the updates, by the state of its call.
                asked.add(SessionUpdate::ToolCallUpdate(request.tool_call));
                match answer {
                    Some(option) => {
                        let chosen = schema::SelectedPermissionOutcome::new(option);
                        let outcome = schema::RequestPermissionOutcome::Selected(chosen);
                        responder.respond(schema::RequestPermissionResponse::new(outcome))
                    }
                    None => connection.spawn(async move {
                        let _unanswered = responder;
                        std::future::pending().await
                    }),
                }
            },
            on_receive_request!(),
        )
        .connect_with(transport, async move |connection| {
            let version = agent_client_protocol::schema::ProtocolVersion::V1;
            connection.send_request(schema::InitializeRequest::new(version)).block_task().await?;
            Ok(part(connection, seen).await)
        });
    let result = timeout(STUCK, connected).await.expect("the client is done").unwrap();
    timeout(STUCK, served).await.expect("the service ends").unwrap().unwrap();
    result
}

/// Creates a session in `/work`.
pub(crate) async fn created(connection: &ConnectionTo<Agent>) -> schema::SessionId {
    let new = schema::NewSessionRequest::new("/work");
    connection.send_request(new).block_task().await.unwrap().session_id
}

pub(crate) fn prompt(session: &schema::SessionId, text: &str) -> schema::PromptRequest {
    schema::PromptRequest::new(session.clone(), vec![text.into()])
}

pub(crate) fn load(session: &schema::SessionId) -> schema::LoadSessionRequest {
    schema::LoadSessionRequest::new(session.clone(), "/work")
}

pub(crate) fn id(session: &schema::SessionId) -> SessionId {
    session.0.parse().unwrap()
}

/// Returns the whole log of a session.
pub(crate) async fn log(agent: &AgentRuntime, session: &schema::SessionId) -> Vec<Event> {
    let chat = agent.conversation_by_id(id(session)).await.unwrap();
    chat.history(ReadEvents::first(1000)).await.unwrap().events
}

/// Returns the types of the events of a session's log.
pub(crate) async fn kinds(agent: &AgentRuntime, session: &schema::SessionId) -> Vec<String> {
    log(agent, session).await.iter().map(|event| event.kind.to_string()).collect()
}

pub(crate) fn empty() -> RawJson {
    RawJson::empty_object()
}

/// What a client shows: one line for each message, by its id, and one for each state of a call.
pub(crate) fn shown(updates: &[SessionUpdate]) -> Vec<String> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut append = |who: &str, chunk: &ContentChunk| {
        let id = format!("{who} {}", chunk.message_id.as_ref().expect("messages have ids"));
        let piece = match &chunk.content {
            ContentBlock::Text(text) => text.text.clone(),
            ContentBlock::Image(image) => format!("[{} {}]", image.mime_type, image.data),
            ContentBlock::ResourceLink(link) => format!("[{} {}]", link.name, link.uri),
            other => format!("{other:?}"),
        };
        match lines.iter_mut().find(|(known, _)| *known == id) {
            Some((_, text)) => text.push_str(&piece),
            None => lines.push((id, piece)),
        }
    };
    let mut calls = Vec::new();
    for update in updates {
        match update {
            SessionUpdate::UserMessageChunk(chunk) => append("user", chunk),
            SessionUpdate::AgentMessageChunk(chunk) => append("agent", chunk),
            SessionUpdate::AgentThoughtChunk(chunk) => append("thought", chunk),
            SessionUpdate::ToolCall(call) => {
                calls.push(format!("{} {} {:?}", call.tool_call_id, call.title, call.status));
            }
            SessionUpdate::ToolCallUpdate(update) => {
                calls.push(format!("{} {:?}", update.tool_call_id, update.fields.status.unwrap()));
            }
            _ => {}
        }
    }
    lines.into_iter().map(|(id, text)| format!("{id}: {text}")).chain(calls).collect()
}

/// Whether a call has this status.
pub(crate) fn has_status(update: &SessionUpdate, status: schema::ToolCallStatus) -> bool {
    matches!(update, SessionUpdate::ToolCallUpdate(update) if update.fields.status == Some(status))
}
