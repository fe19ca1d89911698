//! A new session of what can be read of a damaged one.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::instrument;

use crate::walk::{Step, Walk};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Expect, Trigger};
use agent_core::event::{Body, DocumentWritten, Event, NewEvent, SystemMessage, ToolResult};
use agent_core::model::{Actor, CallId};
use agent_core::session::{NewSession, OPEN_CALLS_MAX, Session};
use agent_core::state::SessionState;
use agent_core::store::ReadEvents;
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, Storage, WorkspaceId};

pub use crate::gap::Gap;

/// The label of a salvaged session; its value is the id of the damaged one.
pub const SALVAGED_LABEL: &str = "salvage.of";

/// How many events go into one commit, and how many bytes of payload, at most.
const EVENTS: usize = 500;
const BYTES: usize = 4 << 20;

/// The result of a salvage: the session that was made, and what could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Salvaged {
    /// The new session.
    pub session: Arc<Session>,
    /// How many events of the damaged one could be read.
    pub read: u64,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// Makes a new session in the workspace `into`, or else in that of the damaged one, of all that can be read of the
/// conversation in the session `id`: messages, thoughts, tool calls with their results, events of the host's own types,
/// and the last version of each document. What was cleared stays cleared. For each stretch that cannot be read a message
/// of the system says so; what is wrong there stands in [`Salvaged::gaps`] only. Nothing in the new session waits for a
/// run. The damaged one stays as it is.
///
/// What belongs to runs (states, usage, questions, wakes) is not taken over. A call whose result is lost gets one that
/// says it was interrupted; a result whose call is lost is left out.
///
/// After an error or a crash the new session may be there in part; delete it, and salvage again. If the damaged one is
/// the main session of its workspace, make the new one that.
///
/// # Errors
///
/// `NotFound`; `Deleted`; `Corrupt` where nothing can be read, or, without `into`, where the workspace cannot; those of
/// [`SessionStore::commit`](agent_core::SessionStore::commit), `Conflict` too: somebody else wrote to the new session.
#[instrument(name = "salvage", skip(storage, effects))]
pub async fn salvage(
    storage: &Storage,
    effects: &Effects,
    id: SessionId,
    into: Option<WorkspaceId>,
) -> Result<Salvaged> {
    let store = &*storage.sessions;
    let record = match store.load(id).await {
        Err(error) if *error.kind() == ErrorKind::Corrupt => outline(storage, id).await?,
        record => Some(record?),
    };
    if record.as_ref().is_some_and(|record| record.status.state == SessionState::Deleted) {
        return Err(Error::new(ErrorKind::Deleted, format!("session {id} was deleted")));
    }
    let workspace = into.or(record.as_ref().map(|record| record.workspace)).ok_or_else(|| {
        Error::corrupt(format!(
            "the workspace of session {id} cannot be read; say into which one to salvage it"
        ))
    })?;
    let mut walk = match &record {
        Some(record) => Walk::history(store, record),
        None => Walk::own(store, id, Seq::ZERO, last(storage, id).await?),
    };
    let mut new = NewSession::new(effects.new_session_id(), workspace);
    if let Some(record) = &record {
        new.created.attributes = record.attributes.clone();
    }
    new.created.attributes.labels.insert(SALVAGED_LABEL.to_owned(), id.to_string());
    let session = storage.sessions.create(effects, new).await?;
    let mut saved = Saved {
        storage,
        effects,
        session,
        visible_from: record.as_ref().map_or(Seq::ZERO, |record| record.visible_from),
        ready: Vec::new(),
        bytes: 0,
        open: Vec::new(),
        documents: BTreeMap::new(),
    };
    let (mut read, mut gaps) = (0, Vec::new());
    while let Some(step) = walk.next().await? {
        match step {
            Step::Event(event) => {
                read += 1;
                saved.take(&event).await?;
            }
            Step::Gap(gap) => {
                // What is wrong is for the operator: it names files of the server.
                let lost = SystemMessage::injected(format!("[Lost: {}]", gap.place()));
                saved.add(NewEvent::of(&Body::SystemMessage(lost))).await?;
                gaps.push(gap);
            }
        }
    }
    Ok(Salvaged { session: saved.finish().await?, read, gaps })
}

/// A session without a readable record, as its first event and the number of its last tell: where its history lies,
/// and how far it goes. `None` where the first cannot be read either.
async fn outline(storage: &Storage, id: SessionId) -> Result<Option<Arc<Session>>> {
    let first = match storage.sessions.read(id, ReadEvents::first(1)).await {
        Err(error) if *error.kind() == ErrorKind::Corrupt => return Ok(None),
        first => first?.events.pop(),
    };
    let Some(mut session) = first.and_then(|event| Session::begin(id, &event).ok()) else {
        return Ok(None);
    };
    session.head = last(storage, id).await?;
    Ok(Some(Arc::new(session)))
}

/// The last event that can be read.
async fn last(storage: &Storage, id: SessionId) -> Result<Seq> {
    let last = storage.sessions.read(id, ReadEvents::last(1)).await?.events.pop();
    Ok(last.map_or(Seq::ZERO, |event| event.seq))
}

/// The new session, and what is to be added to it next.
struct Saved<'a> {
    storage: &'a Storage,
    effects: &'a Effects,
    session: Arc<Session>,
    /// What was said up to here in the damaged one was cleared.
    visible_from: Seq,
    ready: Vec<NewEvent>,
    bytes: usize,
    /// Calls without a result so far, in order.
    open: Vec<CallId>,
    /// The last version of each document, and who wrote it.
    documents: BTreeMap<String, (DocumentWritten, Actor)>,
}

impl Saved<'_> {
    async fn take(&mut self, event: &Event) -> Result<()> {
        // What was read and is not understood is no damage: a later version may have written it.
        let Ok(body) = event.body() else { return Ok(()) };
        let visible = event.seq > self.visible_from;
        match body {
            Body::SessionDocumentWritten(written) => {
                self.documents.insert(written.name.clone(), (written, event.actor.clone()));
                return Ok(());
            }
            _ if !visible => return Ok(()),
            Body::AgentToolUse(call) | Body::AgentCustomToolUse(call) => {
                if self.open.len() == OPEN_CALLS_MAX {
                    // Only where results are lost.
                    self.close_calls().await?;
                }
                if self.open.contains(&call.call) {
                    return Ok(());
                }
                self.open.push(call.call);
            }
            Body::AgentToolResult(result) => {
                let Some(at) = self.open.iter().position(|open| *open == result.call) else { return Ok(()) };
                self.open.remove(at);
            }
            Body::UserMessage(_)
            | Body::UserDefineOutcome(_)
            | Body::AgentMessage(_)
            | Body::AgentThinking(_)
            | Body::SystemMessage(_)
            | Body::SessionHistoryCleared(_) => {}
            Body::Other(kind, _) if !kind.is_of("session") => {}
            _ => return Ok(()),
        }
        let mut new = NewEvent::new(event.kind.clone(), event.data.clone()).with_actor(event.actor.clone());
        new.extra = event.extra.clone();
        self.add(new).await
    }

    async fn add(&mut self, event: NewEvent) -> Result<()> {
        self.bytes += event.data.get().len();
        self.ready.push(event);
        if self.ready.len() >= EVENTS || self.bytes >= BYTES {
            self.store().await?;
        }
        Ok(())
    }

    /// Gives every open call a result that says what is known of it.
    async fn close_calls(&mut self) -> Result<()> {
        for call in std::mem::take(&mut self.open) {
            let result = Body::AgentToolResult(ToolResult::interrupted(call));
            self.add(NewEvent::of(&result).with_actor(Actor::SYSTEM)).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<Arc<Session>> {
        for (written, actor) in std::mem::take(&mut self.documents).into_values() {
            let mut anew = DocumentWritten::after(None, written.name, written.text);
            (anew.format, anew.limit) = (written.format, written.limit);
            self.add(NewEvent::document_written(anew).with_actor(actor)).await?;
        }
        self.close_calls().await?;
        self.store().await?;
        Ok(self.session)
    }

    async fn store(&mut self) -> Result<()> {
        let events = std::mem::take(&mut self.ready);
        self.bytes = 0;
        if events.is_empty() {
            return Ok(());
        }
        let now = &self.session;
        let commit = Commit::seal(self.effects, now.id, now.head).expect(Expect::Is(now.head));
        let commit = commit.trigger(Trigger::Adopt(events));
        self.session = self.storage.sessions.settle(commit).await?.session;
        Ok(())
    }
}
