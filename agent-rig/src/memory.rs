//! Conversations of rig's agents in the stores of this project.

use agent_core::commit::{Commit, Trigger};
use agent_core::event::{EventPayload, EventType, Message as StoredMessage, NewEvent};
use agent_core::json::{RawFields, RawJson};
use agent_core::session::{ConversationKey, NewSession, SessionRecord};
use agent_core::state::SessionState;
use agent_core::{Error, ErrorKind, Result, SessionStoreExt, Storage, WorkspaceId};
use agent_runtime::WorkspaceManager;
use futures::TryStreamExt;
use rig_core::completion::Message;
use rig_core::id::ConversationId;
use rig_core::memory::{ConversationMemory, MemoryError};
use rig_core::message::{AssistantContent, UserContent};
use rig_core::wasm_compat::WasmBoxedFuture;
use std::sync::Arc;

/// Name of the metadata in which an event holds rig's message.
const METADATA: &str = "rig";

/// Type of the events that hold a message without a text, like the results of tools.
const TEXTLESS: &str = "rig.message";

/// Times that an append is tried if others create or delete the conversation at the same time.
const ATTEMPTS: u32 = 16;

/// Memory of rig's agents in a store: files, SQLite, S3 or any other.
///
/// A conversation is the session of its id as a [key](ConversationKey): the one that
/// [`AgentRuntime::conversation`](agent_runtime::AgentRuntime::conversation) opens. Its messages are events of people and
/// agents, so that lists, searches, exports and the models of this library read them; each event holds rig's own message in
/// addition, byte for byte as rig serializes it, and gives that back. A session that this library wrote is read as texts.
///
/// ```
/// use agent_core::{MemoryStore, Storage};
/// use agent_rig::RigMemory;
/// use agent_rig::rig_core::completion::Message;
/// use agent_rig::rig_core::memory::ConversationMemory;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let storage = Storage::from(MemoryStore::new()); // or files, SQLite, S3
/// // For an agent of rig: `AgentBuilder::new(model).memory(RigMemory::new(storage)).conversation("support/4711")`.
/// let memory = RigMemory::new(storage);
/// let messages = vec![Message::user("Hello"), Message::assistant("Hi")];
/// memory.append(&"support/4711".into(), messages.clone()).await?;
/// assert_eq!(memory.load(&"support/4711".into()).await?, messages);
/// memory.clear(&"support/4711".into()).await?;
/// assert!(memory.load(&"support/4711".into()).await?.is_empty());
/// # Ok(()) }
/// ```
///
/// # Guarantees
///
/// - An append is one commit: all of its messages are stored, or none. It waits for no run, and is sent again until its
///   outcome is known.
/// - Clearing keeps the log, the title and the labels; deleting and erasing are methods of this library.
/// - The append after a deletion begins a new conversation of the same id.
///
/// # Errors
///
/// [`MemoryError::Backend`] with an [`agent_core::Error`]. An append fails while a run of this library has the session, or
/// waits for an answer or a timer there; with more than 1,024 messages; and for an id that is empty, longer than 512 bytes,
/// or has control characters.
#[derive(Clone, Debug)]
pub struct RigMemory {
    storage: Storage,
    workspace: WorkspaceId,
}

impl RigMemory {
    /// Creates a memory in the default workspace of a store, with the times and ids of the storage's effects.
    pub fn new(storage: impl Into<Storage>) -> Self {
        Self { storage: storage.into(), workspace: WorkspaceId::DEFAULT }
    }

    /// Sets the workspace of the conversations, which must exist.
    #[must_use]
    pub fn with_workspace(mut self, workspace: WorkspaceId) -> Self {
        self.workspace = workspace;
        self
    }

    /// Returns the session of a conversation, or the session to create for it. Reads one record for each session that was
    /// deleted before.
    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<std::result::Result<Arc<SessionRecord>, NewSession>> {
        let key: ConversationKey = conversation.as_str().parse()?;
        let mut generation = 0;
        loop {
            match self.storage.sessions.load(key.session_id(self.workspace, generation)).await {
                Ok(session) if session.status.state != SessionState::Deleted => return Ok(Ok(session)),
                Ok(_) => generation += 1,
                Err(error) if *error.kind() == ErrorKind::Deleted => generation += 1,
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    return Ok(Err(NewSession::conversation(&key, self.workspace, generation)));
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn load_all(&self, conversation: &ConversationId) -> Result<Vec<Message>> {
        let Ok(session) = self.find(conversation).await? else { return Ok(Vec::new()) };
        let mut events = self.storage.sessions.events(session.id, session.visible_from);
        let mut messages = Vec::new();
        while let Some(event) = events.try_next().await? {
            messages.extend(message_of(&event.decode()?)?);
        }
        Ok(messages)
    }

    async fn append_all(&self, conversation: &ConversationId, messages: &[Message]) -> Result<()> {
        let events = messages.iter().map(event_of).collect::<Result<Vec<_>>>()?;
        if events.is_empty() {
            return Ok(());
        }
        let sessions = &self.storage.sessions;
        for _ in 0..ATTEMPTS {
            let commit = match self.find(conversation).await? {
                Ok(session) => sessions.seal(session.id, session.head),
                Err(new) => {
                    self.need_workspace().await?;
                    Commit::create(sessions.effects(), new)
                }
            };
            match sessions
                .commit_new_with_retry(commit.with_trigger(Trigger::ImportEvents(events.clone())))
                .await
            {
                Ok(_) => return Ok(()),
                // Another one created it, or deleted it.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. } | ErrorKind::Deleted) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::unavailable("the conversation is created and deleted again and again; try again later"))
    }

    async fn need_workspace(&self) -> Result<()> {
        let workspaces = WorkspaceManager::new(self.storage.clone());
        match self.workspace {
            WorkspaceId::DEFAULT => workspaces.default_workspace().await.map(drop),
            other => workspaces.load(other).await.map(drop),
        }
    }

    async fn clear_all(&self, conversation: &ConversationId) -> Result<()> {
        match self.find(conversation).await? {
            Ok(session) => self.storage.sessions.clear(session.id).await.map(drop),
            Err(_) => Ok(()),
        }
    }
}

/// Returns the event of a message.
fn event_of(message: &Message) -> Result<NewEvent> {
    let json = RawJson::of(message)?;
    let text = match message {
        Message::System { .. } => String::new(),
        Message::User { content } => joined(content.iter().filter_map(|part| match part {
            UserContent::Text(text) => Some(&*text.text),
            _ => None,
        })),
        Message::Assistant(turn) => joined(turn.content.iter().filter_map(|part| match part {
            AssistantContent::Text(text) => Some(&*text.text),
            _ => None,
        })),
    };
    if text.trim().is_empty() {
        let payload = RawFields::from_iter([("message", json)]);
        return Ok(NewEvent::new(TEXTLESS.parse::<EventType>()?, RawJson::of(&payload)?));
    }
    let stored = StoredMessage::new(text).with_metadata(METADATA, json);
    Ok(NewEvent::of(&match message {
        Message::Assistant(_) => EventPayload::AgentMessage(stored),
        _ => EventPayload::UserMessage(stored),
    }))
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the message of an event; `None` for an event that is none.
fn message_of(event: &EventPayload) -> Result<Option<Message>> {
    let own = |message: &StoredMessage| message.metadata.get(METADATA).map(RawJson::to).transpose();
    Ok(match event {
        EventPayload::UserMessage(message) => {
            own(message)?.or_else(|| Some(Message::user(message.text_view())))
        }
        EventPayload::AgentMessage(message) => {
            own(message)?.or_else(|| Some(Message::assistant(message.text_view())))
        }
        EventPayload::Other(kind, payload) if kind.as_str() == TEXTLESS => {
            payload.to::<RawFields>()?.get("message").map(RawJson::to).transpose()?
        }
        _ => None,
    })
}

impl ConversationMemory for RigMemory {
    fn load<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
    ) -> WasmBoxedFuture<'a, std::result::Result<Vec<Message>, MemoryError>> {
        Box::pin(async move { self.load_all(conversation_id).await.map_err(MemoryError::backend) })
    }

    fn append<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
        messages: Vec<Message>,
    ) -> WasmBoxedFuture<'a, std::result::Result<(), MemoryError>> {
        Box::pin(
            async move { self.append_all(conversation_id, &messages).await.map_err(MemoryError::backend) },
        )
    }

    fn clear<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
    ) -> WasmBoxedFuture<'a, std::result::Result<(), MemoryError>> {
        Box::pin(async move { self.clear_all(conversation_id).await.map_err(MemoryError::backend) })
    }
}
