//! State of a session without its log: exported from one session, and imported into another to replace its state.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
//! use agent_core::clock::Effects;
//! use agent_core::event::NewEvent;
//! use agent_core::model::Actor;
//! use agent_core::session::NewSession;
//! use agent_runtime::state_payload::StatePayload;
//!
//! let (store, effects) = (MemoryStore::new(), Effects::default());
//! let new = || NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
//! let (old, next) = (store.sessions(&effects).create(new()).await?, store.sessions(&effects).create(new()).await?);
//! store.sessions(&effects).append(old.id, old.head, vec![NewEvent::user_message("hello")]).await?;
//!
//! let text = StatePayload::export(&store, old.id).await?.to_json();
//! let imported = StatePayload::parse(&text)?.import(&store.sessions(&effects), next.id, Actor::USER).await?;
//! assert_eq!(StatePayload::export(&store, imported.id).await?.to_json(), text);
//! # Ok(()) }
//! ```
//!
//! # The document
//!
//! One JSON object: `format` (1), `kind` (`state`), and four parts, of which any may be missing, `null` or empty:
//! `history`, a list of `{"role", "text"}`; `core_memory` and `documents`, objects of `{"text", "format", "limit"}` by
//! name; `runtime`, `{"version", "state"}`. The parts are those of fleet-rlm's session manifest.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt;
use serde::{Deserialize, Deserializer, Serialize};

use crate::documents::{Document, Documents};
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::json::{JsonFault, RawJson, check_document, to_text};
use agent_core::model::Actor;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::{Error, Result, SessionId, SessionStore, SessionStoreExt, Sessions};
use agent_transcript::{Speaker, TranscriptMessage};

/// Version of the document format that is written.
pub const STATE_FORMAT: u64 = 1;

const KIND: &str = "state";

/// State of a session, in four parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatePayload {
    /// Visible messages, oldest first. Tool calls and their results stay in the log.
    pub history: Vec<TranscriptMessage>,
    /// Memory blocks: documents with a limit.
    pub core_memory: BTreeMap<String, StateText>,
    /// Documents without a limit, and the state of the user interface.
    pub documents: BTreeMap<String, StateText>,
    /// Position of the agent in its work: its checkpoint, if that is JSON. The library never interprets it.
    pub runtime: Option<RuntimeState>,
}

/// Named text of a [`StatePayload`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateText {
    /// Whole text.
    pub text: String,
    /// Version of the text's own format; default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub format: u32,
    /// Maximum bytes of the text; `None` (the default) for the general limit of 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// State of the program that runs the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RuntimeState {
    /// Version of the state's own format.
    pub version: u32,
    /// Any JSON, kept as it is written except for white space between its tokens.
    pub state: RawJson,
}

#[derive(Serialize, Deserialize)]
struct Message {
    role: Speaker,
    text: String,
}

#[derive(Deserialize)]
struct Parts {
    #[serde(default, deserialize_with = "or_default")]
    history: Vec<Message>,
    #[serde(default, deserialize_with = "or_default")]
    core_memory: BTreeMap<String, StateText>,
    #[serde(default, deserialize_with = "or_default")]
    documents: BTreeMap<String, StateText>,
    #[serde(default)]
    runtime: Option<RuntimeState>,
}

#[derive(Serialize)]
struct Written<'a> {
    format: u64,
    kind: &'static str,
    history: Vec<Message>,
    core_memory: &'a BTreeMap<String, StateText>,
    documents: &'a BTreeMap<String, StateText>,
    runtime: Option<&'a RuntimeState>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> std::result::Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl StateText {
    /// Creates a text of format 0 without a limit of its own.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Sets the maximum bytes of the text; by default the text has no limit of its own.
    #[must_use]
    pub const fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }
}

impl RuntimeState {
    /// Creates a state with the version of its own format.
    pub const fn new(version: u32, state: RawJson) -> Self {
        Self { version, state }
    }
}

impl StatePayload {
    /// Creates an empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Exports the state of a session at one moment: its visible history and its documents. Holds the state in memory.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// chat.documents().put(DocumentWrite::new("plan", "1. Greet", Actor::AGENT)).await?;
    ///
    /// let state = StatePayload::export(&*agent.storage().sessions, chat.id()).await?;
    /// assert_eq!((state.history.len(), state.documents["plan"].text.as_str()), (2, "1. Greet"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Deleted`, `NotFound`; `Corrupt` if a part of the session cannot be read.
    pub async fn export(store: &dyn SessionStore, id: SessionId) -> Result<Self> {
        let session = store.load(id).await?;
        if session.status.state == SessionState::Deleted {
            return Err(Error::deleted(format!("session {id} was deleted; there is nothing to export")));
        }
        let mut state = Self::new();
        let mut events = store.events(id, session.visible_from);
        while let Some(event) = events.try_next().await? {
            if event.seq > session.head {
                break;
            }
            state.history.extend(TranscriptMessage::of(event.decode()?));
        }
        for head in &session.documents {
            let Document { name, text, format, .. } = Document::at(store, &session, head.seq).await?;
            if name == Documents::CHECKPOINT
                && let Ok(json) = RawJson::parse(&text)
            {
                state.runtime = Some(RuntimeState::new(format, json));
                continue;
            }
            let is_block = head.limit.is_some() && name != Documents::UI;
            let part = if is_block { &mut state.core_memory } else { &mut state.documents };
            part.insert(name, StateText { text, format, limit: head.limit });
        }
        Ok(state)
    }

    /// Replaces the state of a session by this state, in one commit. Returns the session's new record.
    ///
    /// An empty part of this state empties that part of the session, and no document keeps its earlier versions. The log
    /// keeps all events; title, labels and metadata stay. None of the imported messages waits for a run.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// let sessions = &agent.storage().sessions;
    /// let state = StatePayload::export(&**sessions, chat.id()).await?;
    ///
    /// let copy = agent.conversation("support/4712").await?;
    /// let record = state.import(sessions, copy.id(), Actor::USER).await?;
    /// assert_eq!((record.counts.messages(), record.inputs_open), (2, 0));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the state was replaced wholly or not at all.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while the session runs or waits for an answer; `Conflict` if the session changed meanwhile;
    /// `LimitExceeded` if one commit cannot hold the change, which is limited to 1,024 events: the messages, and two
    /// for each document; errors of [`SessionStoreExt::commit_with_retry`].
    pub async fn import(
        &self,
        sessions: &Sessions,
        id: SessionId,
        actor: Actor,
    ) -> Result<Arc<SessionRecord>> {
        let now = sessions.load(id).await?;
        let history = self.history.iter().map(TranscriptMessage::to_event).collect();
        let mut commit = sessions
            .seal(id, now.head)
            .with_precondition(Precondition::Matches(now.head))
            .with_trigger(Trigger::Replace(history));
        let event = |written| NewEvent::document_written(written).with_actor(actor.clone());
        for head in &now.documents {
            commit = commit.with_event(event(DocumentWritten::after(Some(head), &head.name, None)));
        }
        let runtime = self.runtime.as_ref().map(|runtime| {
            let text = runtime.state.get().to_owned();
            (Documents::CHECKPOINT.to_owned(), StateText { text, format: runtime.version, limit: None })
        });
        let texts = self.core_memory.iter().chain(&self.documents);
        for (name, text) in texts.map(|(name, text)| (name.clone(), text.clone())).chain(runtime) {
            let written = DocumentWritten::after(None, name, Some(text.text));
            commit = commit.with_event(event(written.with_format(text.format).with_limit(text.limit)));
        }
        Ok(sessions.commit_with_retry(commit).await?.session)
    }

    /// Returns the state as a JSON document.
    ///
    /// ```
    /// use agent_runtime::state_payload::StatePayload;
    ///
    /// let text = StatePayload::new().to_json();
    /// assert!(text.starts_with(r#"{"format":1,"kind":"state""#));
    /// ```
    pub fn to_json(&self) -> String {
        let message =
            |message: &TranscriptMessage| Message { role: message.speaker, text: message.text.clone() };
        let written = Written {
            format: STATE_FORMAT,
            kind: KIND,
            history: self.history.iter().map(message).collect(),
            core_memory: &self.core_memory,
            documents: &self.documents,
            runtime: self.runtime.as_ref(),
        };
        to_text(&written)
    }

    /// Parses a JSON document.
    ///
    /// ```
    /// use agent_runtime::state_payload::StatePayload;
    ///
    /// let text = r#"{"format":1,"kind":"state","history":[{"role":"user","text":"Hello"}]}"#;
    /// let state = StatePayload::parse(text)?;
    /// assert_eq!((state.history[0].text.as_str(), state.documents.len()), ("Hello", 0));
    /// assert!(StatePayload::parse("{}").is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Corrupt` if the text is not a state document; `Unsupported` if the document has another format or kind.
    pub fn parse(text: &str) -> Result<Self> {
        check_document(text, KIND, &[STATE_FORMAT])?;
        let parts: Parts = serde_json::from_str(text).map_err(|source| {
            Error::corrupt(
                "the state document is damaged: a part is missing or has the wrong type; export the state again",
            )
                .with_source(JsonFault::from(source))
        })?;
        let named = |name: &String| parts.core_memory.contains_key(name);
        let twice = parts.documents.keys().find(|name| named(name) || is_checkpoint(name, &parts));
        let twice = twice.or_else(|| parts.core_memory.keys().find(|name| is_checkpoint(name, &parts)));
        if let Some(name) = twice {
            return Err(Error::corrupt(format!(
                "the state document has the document {name:?} in two parts; remove it from one of them"
            )));
        }
        let message = |Message { role, text }| TranscriptMessage::new(role, text);
        Ok(Self {
            history: parts.history.into_iter().map(message).collect(),
            core_memory: parts.core_memory,
            documents: parts.documents,
            runtime: parts.runtime,
        })
    }
}

/// Returns whether a document has the name of the runtime state, and the document has a runtime state.
fn is_checkpoint(name: &str, parts: &Parts) -> bool {
    name == Documents::CHECKPOINT && parts.runtime.is_some()
}
