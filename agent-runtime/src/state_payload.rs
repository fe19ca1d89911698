//! What a session holds, apart from its log: taken out of one session, put into another in place of what is there.
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
//! let (old, next) = (store.create(&effects, new()).await?, store.create(&effects, new()).await?);
//! store.append(&effects, old.id, old.head, vec![NewEvent::user_message("hello")]).await?;
//!
//! let text = StatePayload::export(&store, old.id).await?.to_json();
//! let imported = StatePayload::parse(&text)?.import(&store, &effects, next.id, Actor::USER).await?;
//! assert_eq!(StatePayload::export(&store, imported.id).await?.to_json(), text);
//! # Ok(()) }
//! ```
//!
//! # The document
//!
//! One JSON object: `format` (1), `kind` (`state`), and four parts, of which any may be missing, `null` or empty:
//! `history`, a list of `{"role", "text"}`; `core_memory` and `documents`, objects of `{"text", "format", "limit"}` by name;
//! `runtime`, `{"version", "state"}`. The parts are those of fleet-rlm's session manifest.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt;
use serde::{Deserialize, Deserializer, Serialize};

use crate::holdings::{Document, Documents};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Expect, Trigger};
use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::json::{JsonFault, RawJson, check_document, to_text};
use agent_core::model::Actor;
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::{Error, ErrorKind, Result, SessionId, SessionStore, SessionStoreExt};
use agent_transcript::{Speaker, TranscriptMessage};

/// The version of the document that is written.
pub const STATE_FORMAT: u64 = 1;

const KIND: &str = "state";

/// The state of a session, in four parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatePayload {
    /// The visible messages, oldest first. Tool calls and their results stay in the log.
    pub history: Vec<TranscriptMessage>,
    /// The memory blocks: documents with a limit.
    pub core_memory: BTreeMap<String, StateText>,
    /// All other documents.
    pub documents: BTreeMap<String, StateText>,
    /// Where the agent was in its work: its checkpoint, where that is JSON. The library never looks into it.
    pub runtime: Option<RuntimeState>,
}

/// A named text of a [`StatePayload`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateText {
    /// The whole text.
    pub text: String,
    /// The version of the text's own format.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub format: u32,
    /// The most bytes that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The state of whoever runs the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RuntimeState {
    /// The version of its format.
    pub version: u32,
    /// Any JSON, kept as it is written but for the spaces between its parts.
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
    /// A text without a limit.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Sets the most bytes that it may have.
    #[must_use]
    pub const fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }
}

impl RuntimeState {
    /// A state of a version of its own format.
    pub const fn new(version: u32, state: RawJson) -> Self {
        Self { version, state }
    }
}

impl StatePayload {
    /// A state with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the state of a session, as it is at one moment. Holds it in memory.
    ///
    /// # Errors
    ///
    /// `Deleted`, `NotFound`; `Corrupt` where a part of it cannot be read.
    pub async fn export<S: SessionStore + ?Sized>(store: &S, id: SessionId) -> Result<Self> {
        let session = store.load(id).await?;
        if session.status.state == SessionState::Deleted {
            return Err(Error::new(
                ErrorKind::Deleted,
                format!("session {id} was deleted; there is nothing to export"),
            ));
        }
        let mut state = Self::new();
        let mut events = store.events(id, session.visible_from);
        while let Some(event) = events.try_next().await? {
            if event.seq > session.head {
                break;
            }
            state.history.extend(TranscriptMessage::of(event.body()?));
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

    /// Puts this state in place of what the session holds: all of it or nothing, in one commit. A part that is empty here
    /// is empty there, and no document has a version of what was there before. The log keeps everything; title, labels
    /// and metadata stay. None of the messages waits for a run.
    ///
    /// # Errors
    ///
    /// `InvalidTransition` while the session runs or waits for an answer; `Conflict` where it changed meanwhile;
    /// `LimitExceeded` for more than one commit holds, which is 1,024 events: the messages, and two for each document;
    /// those of [`SessionStoreExt::settle`].
    pub async fn import<S: SessionStore + ?Sized>(
        &self,
        store: &S,
        effects: &Effects,
        id: SessionId,
        actor: Actor,
    ) -> Result<Arc<Session>> {
        let now = store.load(id).await?;
        let history = self.history.iter().map(TranscriptMessage::to_event).collect();
        let mut commit = Commit::seal(effects, id, now.head)
            .expect(Expect::Is(now.head))
            .trigger(Trigger::Replace(history));
        let event = |written| NewEvent::document_written(written).with_actor(actor.clone());
        for head in &now.documents {
            commit = commit.event(event(DocumentWritten::after(Some(head), &head.name, None)));
        }
        let runtime = self.runtime.as_ref().map(|runtime| {
            let text = runtime.state.get().to_owned();
            (Documents::CHECKPOINT.to_owned(), StateText { text, format: runtime.version, limit: None })
        });
        let texts = self.core_memory.iter().chain(&self.documents);
        for (name, text) in texts.map(|(name, text)| (name.clone(), text.clone())).chain(runtime) {
            let written = DocumentWritten::after(None, name, Some(text.text));
            commit = commit.event(event(written.with_format(text.format).with_limit(text.limit)));
        }
        Ok(store.settle(commit).await?.session)
    }

    /// The document.
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

    /// Reads a document.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is no state; `Unsupported` where it is of a newer version, or of another kind.
    pub fn parse(text: &str) -> Result<Self> {
        check_document(text, KIND, STATE_FORMAT)?;
        let parts: Parts = serde_json::from_str(text).map_err(|source| {
            Error::corrupt("a part of the state is not what it should be")
                .with_source(JsonFault::from(source))
        })?;
        let named = |name: &String| parts.core_memory.contains_key(name);
        let twice = parts.documents.keys().find(|name| named(name) || is_checkpoint(name, &parts));
        let twice = twice.or_else(|| parts.core_memory.keys().find(|name| is_checkpoint(name, &parts)));
        if let Some(name) = twice {
            return Err(Error::corrupt(format!("document {name:?} stands in two parts of the state")));
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

/// Whether a document has the name under which the state of the runtime is kept.
fn is_checkpoint(name: &str, parts: &Parts) -> bool {
    name == Documents::CHECKPOINT && parts.runtime.is_some()
}
