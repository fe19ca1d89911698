//! Salvage: a new session from the readable part of a damaged one.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::instrument;

use crate::blobs;
use crate::walk::{Step, Walk};
use agent_core::commit::{COMMIT_MAX_BLOBS, Trigger};
use agent_core::event::{
    DocumentWritten, Event, EventPayload, Message, NewEvent, Part, SystemMessage, ToolResult,
};
use agent_core::model::{Actor, CallId, Lineage};
use agent_core::session::{NewSession, OPEN_CALLS_MAX, SessionRecord};
use agent_core::state::SessionState;
use agent_core::store::{PAGE_MAX, PutBlob, ReadBlob, ReadEvents};
use agent_core::{BlobName, Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, Storage, WorkspaceId};

pub use crate::gap::LostRange;

/// Label of a salvaged session; its value is the id of the damaged session.
pub const SALVAGED_LABEL: &str = "salvage.of";

/// Maximum number of events in one commit, and of bytes of payload.
const EVENTS: usize = 500;
const BYTES: usize = 4 << 20;

/// Result of a salvage: the new session, and the events that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Salvaged {
    /// New session.
    pub session: Arc<SessionRecord>,
    /// Number of events of the damaged session that could be read.
    pub read: u64,
    /// Events that could not be read, or of which a blob could not.
    pub lost: Vec<LostRange>,
}

/// Creates a new session from the readable part of the conversation in the damaged session `id`.
///
/// The new session is created in the workspace `into`, or by default in that of the damaged session. It receives
/// messages, thoughts, tool calls with their results, events of the host's own types, and the last version of each
/// document, and the blobs that these events name. Cleared history stays cleared. A system message marks each range that
/// cannot be read; the cause is only in [`Salvaged::lost`], which also has the events of which a blob is lost: a text takes
/// the place of such a part. Blobs to which the text of a document refers are not copied. No input in the new session waits for a run. The damaged session is not changed.
///
/// Data of runs (states, usage, questions, timers, origins of answers) is not copied: the events get other numbers and may
/// have gaps, so that no answer follows what its model was given. If the result of a call is lost, the call gets the
/// result `interrupted`; if the call of a result is lost, the result is left out.
///
/// After an error or a crash, or if the future is dropped, the new session may exist in part; delete it, and salvage
/// again. If the damaged session is the main session of its workspace, make the new one the main session by
/// `WorkspaceManager::set_main_session`. The cost is one read of the history and one write of the readable part.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// # chat.prompt("Hello").await?.finish().await?;
/// use agent_admin::salvage::{SALVAGED_LABEL, salvage};
///
/// // A session that is not damaged is salvaged completely.
/// let salvaged = salvage(agent.storage(), chat.id(), None).await?;
/// assert!(salvaged.lost.is_empty());
/// assert_eq!(salvaged.session.counts.messages(), 2);
/// assert_eq!(salvaged.session.attributes.labels[SALVAGED_LABEL], chat.id().to_string());
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// `NotFound`; `Deleted`; `Corrupt` if no event can be read or, without `into`, if the workspace cannot be read; errors
/// of [`SessionStore::commit`](agent_core::SessionStore::commit), including `Conflict` if another process wrote to the
/// new session.
#[instrument(name = "salvage", skip(storage))]
pub async fn salvage(storage: &Storage, id: SessionId, into: Option<WorkspaceId>) -> Result<Salvaged> {
    let record = readable(storage, id).await?;
    let workspace = into.or(record.as_ref().map(|record| record.workspace)).ok_or_else(|| {
        Error::corrupt(format!(
            "the workspace of session {id} cannot be read; name a workspace for the salvaged session (`--workspace ID`)"
        ))
    })?;
    let mut new = NewSession::new(storage.effects().new_session_id(), workspace);
    if let Some(record) = &record {
        new.created.owner.clone_from(&record.owner);
        new.creator = Some(record.creator.clone());
    }
    take_over(storage, id, record.as_deref(), storage, new).await
}

/// Creates the session `new` in the store `to` from the conversation in the session `id` of the store `from`, such as a backup.
///
/// For a session that is damaged or deleted in the store `to`, where its id cannot be used again. It receives what [`salvage`] takes, from a session that
/// is whole or damaged; its attributes, of which the title, labels and references of `new` take precedence; and the label [`SALVAGED_LABEL`]. The owner is
/// that of `new`.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// # chat.prompt("Hello").await?.finish().await?;
/// # let backup = Storage::from(MemoryStore::new());
/// # agent_admin::copy::StoreCopy::new(agent.storage().clone(), backup.clone()).run().await?;
/// use agent_admin::salvage::restore;
/// use agent_core::session::NewSession;
///
/// chat.erase().await?;
/// let new = NewSession::new(agent.effects().new_session_id(), WorkspaceId::DEFAULT);
/// let restored = restore(&backup, chat.id(), agent.storage(), new).await?;
/// assert_eq!(restored.session.counts.messages(), 2);
/// assert_eq!(restored.session.first_words.as_deref(), Some("Hello"));
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`salvage`]; `Conflict` if the session `new` exists.
#[instrument(name = "restore", skip(from, to, new), fields(new = %new.id))]
pub async fn restore(from: &Storage, id: SessionId, to: &Storage, new: NewSession) -> Result<Salvaged> {
    let record = readable(from, id).await?;
    take_over(from, id, record.as_deref(), to, new).await
}

/// Returns the record of a session, or what can be told of it; refuses a deleted one.
async fn readable(storage: &Storage, id: SessionId) -> Result<Option<Arc<SessionRecord>>> {
    let record = match storage.sessions.load(id).await {
        Err(error) if *error.kind() == ErrorKind::Corrupt => outline(storage, id).await?,
        record => Some(record?),
    };
    match record {
        Some(record) if record.status.state == SessionState::Deleted => {
            Err(Error::deleted(format!("session {id} was deleted; there is nothing to salvage")))
        }
        record => Ok(record),
    }
}

/// Creates a session of what can be read of another one.
async fn take_over(
    source: &Storage,
    id: SessionId,
    record: Option<&SessionRecord>,
    target: &Storage,
    mut new: NewSession,
) -> Result<Salvaged> {
    let store = &*source.sessions;
    let mut walk = match record {
        Some(record) => Walk::history(store, record),
        None => Walk::own(store, id, Seq::ZERO, last(source, id).await?),
    };
    let own = std::mem::take(&mut new.created.attributes);
    let mut attributes = record.map(|record| record.attributes.inherited()).unwrap_or_default();
    attributes.title = own.title.or(attributes.title);
    attributes.labels.extend(own.labels);
    attributes.references.extend(own.references);
    attributes.labels.insert(SALVAGED_LABEL.to_owned(), id.to_string());
    new.created.attributes = attributes;
    let session = target.sessions.create(new).await?;
    let mut saved = Saved {
        source,
        target,
        session,
        visible_from: record.map_or(Seq::ZERO, |record| record.visible_from),
        ready: Vec::new(),
        bytes: 0,
        blobs: 0,
        from: id,
        lineage: record.map(|record| record.lineage.clone()).unwrap_or_default(),
        lost: Vec::new(),
        open: Vec::new(),
        documents: BTreeMap::new(),
    };
    let read = saved.take_all(&mut walk).await?;
    let mut lost = std::mem::take(&mut saved.lost);
    lost.sort_by_key(|gap| gap.first);
    Ok(Salvaged { session: saved.finish().await?, read, lost })
}

/// Reconstructs a session without a readable record from its first event and the number of its last: its lineage and
/// its head. `None` if the first event cannot be read either.
async fn outline(storage: &Storage, id: SessionId) -> Result<Option<Arc<SessionRecord>>> {
    let first = match storage.sessions.read(id, ReadEvents::first(1)).await {
        Err(error) if *error.kind() == ErrorKind::Corrupt => return Ok(None),
        first => first?.events.pop(),
    };
    let Some(mut session) = first.and_then(|event| SessionRecord::begin(id, &event).ok()) else {
        return Ok(None);
    };
    session.head = last(storage, id).await?;
    Ok(Some(Arc::new(session)))
}

/// Returns the number of the last event that can be read.
async fn last(storage: &Storage, id: SessionId) -> Result<Seq> {
    let last = match storage.sessions.read(id, ReadEvents::last(1)).await {
        // The newest cannot be told; those before it may be there.
        Err(error) if *error.kind() == ErrorKind::Corrupt => return last_from_the_first(storage, id).await,
        page => page?.events.pop(),
    };
    Ok(last.map_or(Seq::ZERO, |event| event.seq))
}

/// Returns the number of the last event that can be read from the first one on.
async fn last_from_the_first(storage: &Storage, id: SessionId) -> Result<Seq> {
    let (mut last, mut read) = (Seq::ZERO, Some(ReadEvents::first(PAGE_MAX)));
    while let Some(next) = read {
        let page = storage.sessions.read(id, next).await?;
        last = page.events.last().map_or(last, |event| event.seq);
        read = page.next;
    }
    Ok(last)
}

/// New session, and the events that are to be added next.
struct Saved<'a> {
    source: &'a Storage,
    target: &'a Storage,
    session: Arc<SessionRecord>,
    /// Sequence number up to which the history of the damaged session was cleared.
    visible_from: Seq,
    ready: Vec<NewEvent>,
    bytes: usize,
    /// Number of blobs that these events name.
    blobs: usize,
    /// Damaged session.
    from: SessionId,
    /// Its ancestors.
    lineage: Lineage,
    /// Events that are lost, or of which a blob is.
    lost: Vec<LostRange>,
    /// Calls without a result so far, in order.
    open: Vec<CallId>,
    /// Last version of each document, with its author.
    documents: BTreeMap<String, (DocumentWritten, Actor)>,
}

impl Saved<'_> {
    /// Takes what can be read, and notes what is lost. Returns the number of events that were read.
    async fn take_all(&mut self, walk: &mut Walk<'_>) -> Result<u64> {
        let mut read = 0;
        while let Some(step) = walk.next().await? {
            match step {
                Step::Event(event) => {
                    read += 1;
                    self.take(&event).await?;
                }
                Step::LostRange(gap) => {
                    // The reason may name files of the server; it is not written to the conversation.
                    let lost = SystemMessage::injected(format!("[Lost: {}]", gap.place()));
                    self.add(NewEvent::of(&EventPayload::SystemMessage(lost))).await?;
                    self.lost.push(gap);
                }
            }
        }
        Ok(read)
    }

    async fn take(&mut self, event: &Event) -> Result<()> {
        // An event that cannot be decoded is not damaged: a later version may have written it.
        let Ok(body) = event.decode() else { return Ok(()) };
        let visible = event.seq > self.visible_from;
        match body {
            EventPayload::SessionDocumentWritten(written) => {
                self.documents.insert(written.name.clone(), (written, event.actor.clone()));
                return Ok(());
            }
            _ if !visible => return Ok(()),
            EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
                if self.open.len() == OPEN_CALLS_MAX {
                    // This happens only if results are lost.
                    self.close_calls().await?;
                }
                if self.open.contains(&call.call) {
                    return Ok(());
                }
                self.open.push(call.call);
            }
            EventPayload::AgentToolResult(result) => {
                let Some(at) = self.open.iter().position(|open| *open == result.call) else { return Ok(()) };
                self.open.remove(at);
            }
            EventPayload::UserMessage(_)
            | EventPayload::UserDefineOutcome(_)
            | EventPayload::AgentMessage(_)
            | EventPayload::AgentThinking(_)
            | EventPayload::AgentPart(_)
            | EventPayload::SystemMessage(_)
            | EventPayload::SessionHistoryCleared(_) => {}
            EventPayload::Other(kind, _) if !kind.is_of("session") => {}
            _ => return Ok(()),
        }
        let mut new =
            NewEvent::new(event.kind.clone(), event.payload.clone()).with_actor(event.actor.clone());
        new.extra = event.clone().with_import_end(None).extra;
        self.blobs(event, &mut new).await?;
        self.add_with_blobs(new, event.blobs.len()).await
    }

    /// Brings the blobs that an event names. What is said of a lost one takes the place of its part.
    async fn blobs(&mut self, event: &Event, new: &mut NewEvent) -> Result<()> {
        let (mut kept, mut lost) = (Vec::new(), Vec::new());
        for name in &event.blobs {
            let (owner, _) = self.lineage.locate(self.from, event.seq);
            let put = async {
                let read = self.source.sessions.blobs().read(ReadBlob::new(owner, *name)).await?;
                let put = PutBlob::new(self.session.id, read.blob, read.content);
                self.target.sessions.blobs().put(put).await
            };
            match put.await {
                Ok(()) => kept.push(*name),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {
                    let reason = format!("blob {name}, which it names, is lost or damaged");
                    self.lost.push(LostRange { first: event.seq, last: event.seq, reason });
                    lost.push(*name);
                }
                Err(error) => return Err(error),
            }
        }
        if !lost.is_empty() {
            new.payload = without_blobs(event.decode()?, &lost).to_json();
        }
        // Those that the payload names are found there.
        let mut event = event.clone();
        event.payload = new.payload.clone();
        let found = blobs::stated_sizes(&event);
        new.blobs = kept.into_iter().filter(|name| !found.iter().any(|(found, _)| found == name)).collect();
        Ok(())
    }

    async fn add(&mut self, event: NewEvent) -> Result<()> {
        self.add_with_blobs(event, 0).await
    }

    /// Adds an event that names at most this number of blobs.
    async fn add_with_blobs(&mut self, event: NewEvent, blobs: usize) -> Result<()> {
        if self.blobs + blobs > COMMIT_MAX_BLOBS {
            self.store().await?;
        }
        self.blobs += blobs;
        self.bytes += event.payload.get().len();
        self.ready.push(event);
        if self.ready.len() >= EVENTS || self.bytes >= BYTES {
            self.store().await?;
        }
        Ok(())
    }

    /// Adds a result to every open call, which says that it was interrupted.
    async fn close_calls(&mut self) -> Result<()> {
        for call in std::mem::take(&mut self.open) {
            let result = EventPayload::AgentToolResult(ToolResult::interrupted(call));
            self.add(NewEvent::of(&result).with_actor(Actor::SYSTEM)).await?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<Arc<SessionRecord>> {
        for (written, actor) in std::mem::take(&mut self.documents).into_values() {
            let mut rewritten = DocumentWritten::after(None, written.name, written.text);
            (rewritten.format, rewritten.limit) = (written.format, written.limit);
            self.add(NewEvent::document_written(rewritten).with_actor(actor)).await?;
        }
        self.close_calls().await?;
        self.store().await?;
        Ok(self.session)
    }

    async fn store(&mut self) -> Result<()> {
        let events = std::mem::take(&mut self.ready);
        (self.bytes, self.blobs) = (0, 0);
        if events.is_empty() {
            return Ok(());
        }
        let now = &self.session;
        let import = Trigger::ImportEvents(events);
        let commit = self.target.sessions.seal_unchanged(now.id, now.head).with_trigger(import);
        self.session = self.target.sessions.commit_with_retry(commit).await?.session;
        Ok(())
    }
}

/// Returns a payload with a text in the place of each part whose blob is lost.
fn without_blobs(mut payload: EventPayload, lost: &[BlobName]) -> EventPayload {
    let replace = |part: &mut Part| {
        let is_lost = blobs::blob_of(part).is_some_and(|(name, _)| lost.contains(&name));
        if is_lost && let Some(line) = part.text_view("") {
            *part = Part::text(format!("[Lost: {}]", line.trim_matches(['[', ']'])));
        }
    };
    match &mut payload {
        EventPayload::UserMessage(message)
        | EventPayload::UserDefineOutcome(message)
        | EventPayload::AgentMessage(message)
        | EventPayload::AgentThinking(message) => {
            let (text, mut parts) = (message.text.clone(), std::mem::take(&mut message.parts));
            for part in &mut parts {
                // Texts are spelled out, since there are several now.
                if matches!(part, Part::Text { text: None, .. }) {
                    *part = Part::text(&text);
                }
                replace(part);
            }
            let Message { text, parts, .. } = Message::of_parts(parts);
            (message.text, message.parts) = (text, parts);
            // They refer to places in the text, and to all that was there.
            message.citations.clear();
            (message.native, message.shown) = (None, None);
        }
        EventPayload::AgentPart(part) => {
            replace(&mut part.content);
            part.native = None;
        }
        EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
            result.content.iter_mut().for_each(replace);
            if result.full.as_ref().is_some_and(|full| full.sha256.is_some_and(|name| lost.contains(&name))) {
                result.full = None;
            }
        }
        _ => {}
    }
    payload
}
