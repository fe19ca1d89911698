//! Learnings of an agent, shared by its sessions, and the shared note to which learnings are promoted.

use crate::contested::Attempts;
use crate::documents::{Document, Documents};
use agent_core::event::{
    DocumentWritten, Event, EventPayload, EventType, Learning, LearningPromoted, NewEvent,
};
use agent_core::model::Actor;
use agent_core::session::SessionRecord;
use agent_core::store::{HiddenSession, ReadEvents};
use agent_core::{Error, Result, Seq, SessionStoreExt, Sessions, Storage, Timestamp, WorkspaceId};

/// Maximum number of attempts of a change, if other writers interfere.
const ATTEMPTS: usize = 64;
/// Number of events in one page.
const PAGE: usize = 500;

/// Learnings of one agent in one workspace, shared by its sessions. Learnings are only added, each once.
///
/// The learnings are events of a [hidden session](HiddenSession::agent), which is deleted with the workspace.
///
/// Cloning is cheap. Every method may be dropped at any point; a dropped write was applied wholly or not at all.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// use agent_core::event::{Learning, LearningKind};
/// use agent_core::model::Actor;
/// use agent_runtime::learnings::Learnings;
///
/// // `chat` is a conversation of the agent "support".
/// let workspace = chat.record().workspace;
/// let learnings = Learnings::new(agent.storage(), workspace, "support");
/// let lesson = Learning::new(LearningKind::Lesson, "Ask for the order number first.");
/// let added = learnings.add(lesson, Actor::AGENT).await?;
/// learnings.promote(added.seq, Actor::USER).await?;
///
/// // The note is shared by all sessions of the agent in this workspace.
/// let note = learnings.memory().await?.expect("a learning was promoted");
/// assert!(note.text.starts_with("- Ask for the order number first."));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Learnings {
    sessions: Sessions,
    hidden: HiddenSession,
}

/// Stored learning, with its author and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownLearning {
    /// Content of the learning, and its origin.
    pub learning: Learning,
    /// Sequence number of the learning's event in the hidden session, which identifies it.
    pub seq: Seq,
    /// Author of the entry.
    pub by: Actor,
    /// Time of the entry, by its author's clock.
    pub at: Timestamp,
}

/// Result of adding a learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Added {
    /// Sequence number of the learning's event in the hidden session: a new one, or that of an identical learning.
    pub seq: Seq,
    /// True if the learning is new.
    pub new: bool,
}

/// Page of learnings, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LearningPage {
    /// Learnings.
    pub learnings: Vec<KnownLearning>,
    /// Start of the next page: before this event; `None` on the last page.
    pub next: Option<Seq>,
}

impl Learnings {
    /// Name of the note in the hidden session to which learnings are promoted.
    pub const MEMORY: &'static str = "memory";

    /// Creates a handle to the learnings of `agent` in `workspace`. No I/O.
    pub fn new(storage: &Storage, workspace: WorkspaceId, agent: impl Into<String>) -> Self {
        let hidden = HiddenSession::agent(workspace, agent);
        Self { sessions: storage.sessions.clone(), hidden }
    }

    /// Adds a learning, unless [an identical one](Learning::is_same) exists. Returns its position, and whether it is new.
    ///
    /// If several callers add a learning at once, it is stored once. Reads the existing learnings, a page at a time.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// # let workspace = chat.record().workspace;
    /// let learnings = Learnings::new(agent.storage(), workspace, "support");
    /// let lesson = Learning::new(LearningKind::Lesson, "Ask for the order number first.").with_session(chat.id(), None);
    /// let added = learnings.add(lesson.clone(), Actor::AGENT).await?;
    /// let again = learnings.add(lesson, Actor::AGENT).await?;
    /// assert_eq!((added.new, again.new, again.seq), (true, false, added.seq));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for a text that is empty or too long; `InvalidInput` for an invalid key or name of the agent;
    /// errors of the store, including `Corrupt`, because an unreadable learning may be identical.
    pub async fn add(&self, learning: Learning, actor: Actor) -> Result<Added> {
        learning.check()?;
        let mut checked = Seq::ZERO;
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = self.hidden.open(&self.sessions).await?;
            let known = self.search(
                &now,
                EventType::SESSION_LEARNING_ADDED,
                checked,
                |body| matches!(body, EventPayload::SessionLearningAdded(known) if known.is_same(&learning)),
            );
            if let Some(event) = known.await? {
                return Ok(Added { seq: event.seq, new: false });
            }
            checked = now.head;
            let event =
                NewEvent::of(&EventPayload::SessionLearningAdded(learning.clone())).with_actor(actor.clone());
            if let Some(added) = attempts.outcome(self.commit(&now, vec![event]).await) {
                return added.map(|seq| Added { seq, new: true });
            }
        }
    }

    /// Lists the learnings, newest first, `limit` on a page. `before` is [`LearningPage::next`] of the page before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// # let workspace = chat.record().workspace;
    /// let learnings = Learnings::new(agent.storage(), workspace, "support");
    /// for text in ["Be brief.", "Ask first.", "Cite sources."] {
    ///     learnings.add(Learning::new(LearningKind::Lesson, text), Actor::AGENT).await?;
    /// }
    /// let page = learnings.list(2, None).await?;
    /// assert_eq!(page.learnings[0].learning.text, "Cite sources.");
    /// let rest = learnings.list(2, page.next).await?;
    /// assert_eq!((rest.learnings[0].learning.text.as_str(), rest.next), ("Be brief.", None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Corrupt` for damage in the page.
    pub async fn list(&self, limit: usize, before: Option<Seq>) -> Result<LearningPage> {
        let Some(now) = self.hidden.find(&*self.sessions).await? else { return Ok(LearningPage::default()) };
        let end = before.unwrap_or_else(|| now.head.next());
        let read = ReadEvents::last(limit).with_before(end).with_types([EventType::SESSION_LEARNING_ADDED]);
        let page = self.sessions.read(now.id, read).await?;
        if let Some(damage) = page.damaged.first() {
            return Err(Error::corrupt(format!("session {}: {damage}", now.id)));
        }
        let learnings = page.events.iter().rev().map(KnownLearning::of).collect::<Result<_>>()?;
        Ok(LearningPage { learnings, next: page.next.and_then(|next| next.before) })
    }

    /// Adds a learning to the agent's shared note, once, with its kind and its origin. Returns whether it was added now.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such learning; `LimitExceeded` if the note is full; errors of the store.
    pub async fn promote(&self, learning: Seq, actor: Actor) -> Result<bool> {
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let missing = || {
                Error::not_found(format!(
                    "event {learning} is not a learning of this agent; use the number of a listed learning"
                ))
            };
            let now = self.hidden.find(&*self.sessions).await?.ok_or_else(missing)?;
            let is_it = |body: &EventPayload| matches!(body, EventPayload::SessionLearningPromoted(it) if it.learning == learning);
            let promoted = self.search(&now, EventType::SESSION_LEARNING_PROMOTED, learning, is_it);
            if promoted.await?.is_some() {
                return Ok(false);
            }
            let before = Seq::new(learning.get().saturating_sub(1));
            let read = ReadEvents::first(1).with_after(before).with_before(learning.next());
            let event = self.sessions.read(now.id, read).await?.events.pop().ok_or_else(missing)?;
            if event.kind != EventType::SESSION_LEARNING_ADDED {
                return Err(missing());
            }
            let known = KnownLearning::of(&event)?;
            let note = self.documents().get(Self::MEMORY).await?;
            let text = note.map_or_else(String::new, |note| note.text) + &known.line();
            let head = now.document(Self::MEMORY);
            let written = DocumentWritten::after(head, Self::MEMORY, Some(text));
            let promoted =
                EventPayload::SessionLearningPromoted(LearningPromoted::new(learning, Self::MEMORY));
            let events = [NewEvent::document_written(written), NewEvent::of(&promoted)];
            let events = events.map(|event| event.with_actor(actor.clone())).into();
            if let Some(promoted) = attempts.outcome(self.commit(&now, events).await) {
                return promoted.map(|_| true);
            }
        }
    }

    /// Returns the agent's shared note; `None` if no learning was promoted yet.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn memory(&self) -> Result<Option<Document>> {
        match self.hidden.find(&*self.sessions).await? {
            Some(_) => self.documents().get(Self::MEMORY).await,
            None => Ok(None),
        }
    }

    /// Returns the documents in the agent's hidden session, including its shared note. No I/O.
    ///
    /// The hidden session is created by the first learning; before that, calls of the documents fail with `NotFound`.
    pub fn documents(&self) -> Documents {
        Documents::new(self.sessions.clone(), self.hidden.id())
    }

    /// Commits events if the hidden session has not changed.
    async fn commit(&self, now: &SessionRecord, events: Vec<NewEvent>) -> Result<Seq> {
        let commit = self.sessions.seal_unchanged(now.id, now.head).with_events(events);
        Ok(self.sessions.commit_with_retry(commit).await?.last)
    }

    /// Returns the first event of a type after `after`, up to the head, whose payload satisfies `is_wanted`.
    async fn search(
        &self,
        now: &SessionRecord,
        kind: EventType,
        after: Seq,
        is_wanted: impl Fn(&EventPayload) -> bool,
    ) -> Result<Option<Event>> {
        let mut next =
            Some(ReadEvents::first(PAGE).with_after(after).with_before(now.head.next()).with_types([kind]));
        while let Some(read) = next {
            let page = self.sessions.read(now.id, read).await?;
            for event in page.events {
                if is_wanted(&event.decode()?) {
                    return Ok(Some(event));
                }
            }
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!("session {}: {damage}", now.id)));
            }
            next = page.next;
        }
        Ok(None)
    }
}

impl KnownLearning {
    fn of(event: &Event) -> Result<Self> {
        match event.decode()? {
            EventPayload::SessionLearningAdded(learning) => {
                Ok(Self { learning, seq: event.seq, by: event.actor.clone(), at: event.at })
            }
            _ => Err(Error::corrupt(format!(
                "event {} of type {} does not add a learning; run `verify`",
                event.seq, event.kind
            ))),
        }
    }

    /// Returns the line for the shared note: a list item with the learning's origin.
    fn line(&self) -> String {
        let Learning { kind, text, session, seq, .. } = &self.learning;
        let mut from = format!("{kind} {}", self.seq);
        if let Some(session) = session {
            from.push_str(&format!(", from session {session}"));
        }
        if let Some(seq) = seq {
            from.push_str(&format!(", event {seq}"));
        }
        format!("- {} ({from})\n", text.trim().replace('\n', "\n  "))
    }
}
