//! What an agent found out, shared by all its sessions; and the part of it that was taken into its shared note.

use std::sync::Arc;

use crate::holdings::documents::{Document, Documents};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Expect};
use agent_core::event::{Body, DocumentWritten, Event, EventType, Learning, LearningPromoted, NewEvent};
use agent_core::model::Actor;
use agent_core::session::Session;
use agent_core::store::{ReadEvents, Shelf};
use agent_core::{Error, ErrorKind, Result, Seq, SessionStore, SessionStoreExt, Timestamp, WorkspaceId};

/// How often a change that somebody else was quicker with is tried again.
const ATTEMPTS: usize = 64;
/// How many events are read at a time.
const PAGE: usize = 500;

/// The learnings of one agent in one workspace, on its [shelf](Shelf::agent). They are only ever added to, each once.
///
/// Cheap to clone. Every method may be dropped at any point; a dropped write was applied wholly or not at all.
#[derive(Clone, Debug)]
pub struct Learnings {
    sessions: Arc<dyn SessionStore>,
    effects: Effects,
    shelf: Shelf,
}

/// A learning on the shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownLearning {
    /// What was found out, and where.
    pub learning: Learning,
    /// Its event on the shelf, by which it is named.
    pub seq: Seq,
    /// Who added it.
    pub by: Actor,
    /// When, by that clock.
    pub at: Timestamp,
}

/// What came of adding a learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Added {
    /// Its event on the shelf: its own, or that of the same one that was there.
    pub seq: Seq,
    /// Whether it was not there before.
    pub new: bool,
}

/// Learnings, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LearningPage {
    /// The learnings.
    pub learnings: Vec<KnownLearning>,
    /// Where the next page starts: before this event; `None` on the last.
    pub next: Option<Seq>,
}

impl Learnings {
    /// The name of the note on the shelf that learnings are promoted to.
    pub const MEMORY: &'static str = "memory";

    /// The learnings of `agent` in `workspace`. No I/O.
    pub fn new(
        sessions: Arc<dyn SessionStore>,
        effects: Effects,
        workspace: WorkspaceId,
        agent: impl Into<String>,
    ) -> Self {
        Self { sessions, effects, shelf: Shelf::agent(workspace, agent) }
    }

    /// Adds a learning, unless [the same one](Learning::is_same) is there. Of many that add it at once, one does.
    ///
    /// Reads the learnings that there are, a page at a time.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for a text that is empty or too long; `InvalidInput` for a bad key or name of the agent; those of
    /// the store, `Corrupt` too: what cannot be read may be the same.
    pub async fn add(&self, learning: Learning, actor: Actor) -> Result<Added> {
        learning.check()?;
        let mut checked = Seq::ZERO;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let now = self.shelf.open(&self.sessions, &self.effects).await?;
            let known = self.search(
                &now,
                EventType::SESSION_LEARNING_ADDED,
                checked,
                |body| matches!(body, Body::SessionLearningAdded(known) if known.is_same(&learning)),
            );
            if let Some(event) = known.await? {
                return Ok(Added { seq: event.seq, new: false });
            }
            checked = now.head;
            let event = NewEvent::of(&Body::SessionLearningAdded(learning.clone())).with_actor(actor.clone());
            match self.commit(&now, vec![event]).await {
                Ok(seq) => return Ok(Added { seq, new: true }),
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::invalid("the learning was not stored; try again")))
    }

    /// The learnings, the newest first, `limit` a page.
    ///
    /// # Errors
    ///
    /// Those of the store; `Corrupt` for damage among those asked for.
    pub async fn list(&self, limit: usize, before: Option<Seq>) -> Result<LearningPage> {
        let Some(now) = self.shelf.find(&*self.sessions).await? else { return Ok(LearningPage::default()) };
        let end = before.unwrap_or_else(|| now.head.next());
        let read = ReadEvents::last(limit).before(end).kinds([EventType::SESSION_LEARNING_ADDED]);
        let page = self.sessions.read(now.id, read).await?;
        if let Some(damage) = page.damaged.first() {
            return Err(Error::corrupt(format!("session {}: {damage}", now.id)));
        }
        let learnings = page.events.iter().rev().map(KnownLearning::of).collect::<Result<_>>()?;
        Ok(LearningPage { learnings, next: page.next.and_then(|next| next.before) })
    }

    /// Takes a learning into the agent's shared note, once: with its kind and where it comes from. Returns whether it was
    /// not there before.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is no such learning; `LimitExceeded` where the note is full; those of the store.
    pub async fn promote(&self, learning: Seq, actor: Actor) -> Result<bool> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let missing = || {
                Error::new(
                    ErrorKind::NotFound,
                    format!("there is no learning at event {learning} of the shelf"),
                )
            };
            let now = self.shelf.find(&*self.sessions).await?.ok_or_else(missing)?;
            let is_it =
                |body: &Body| matches!(body, Body::SessionLearningPromoted(it) if it.learning == learning);
            let promoted = self.search(&now, EventType::SESSION_LEARNING_PROMOTED, learning, is_it);
            if promoted.await?.is_some() {
                return Ok(false);
            }
            let before = Seq::new(learning.get().saturating_sub(1));
            let read = ReadEvents::first(1).after(before).before(learning.next());
            let event = self.sessions.read(now.id, read).await?.events.pop().ok_or_else(missing)?;
            if event.kind != EventType::SESSION_LEARNING_ADDED {
                return Err(missing());
            }
            let known = KnownLearning::of(&event)?;
            let note = self.documents().get(Self::MEMORY).await?;
            let text = note.map_or_else(String::new, |note| note.text) + &known.line();
            let head = now.document(Self::MEMORY);
            let written = DocumentWritten::after(head, Self::MEMORY, Some(text));
            let promoted = Body::SessionLearningPromoted(LearningPromoted::new(learning, Self::MEMORY));
            let events = [NewEvent::document_written(written), NewEvent::of(&promoted)];
            let events = events.map(|event| event.with_actor(actor.clone())).into();
            match self.commit(&now, events).await {
                Ok(_) => return Ok(true),
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::invalid(format!("the learning at event {learning} was not promoted; try again"))
        }))
    }

    /// The agent's shared note; `None` where nothing was promoted yet.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn memory(&self) -> Result<Option<Document>> {
        match self.shelf.find(&*self.sessions).await? {
            Some(_) => self.documents().get(Self::MEMORY).await,
            None => Ok(None),
        }
    }

    /// The documents on the agent's shelf, its shared note among them.
    pub fn documents(&self) -> Documents {
        Documents::new(self.sessions.clone(), self.effects.clone(), self.shelf.id())
    }

    /// Commits where the shelf is as it was.
    async fn commit(&self, now: &Session, events: Vec<NewEvent>) -> Result<Seq> {
        let commit =
            Commit::seal(&self.effects, now.id, now.head).expect(Expect::Is(now.head)).events(events);
        Ok(self.sessions.settle(commit).await?.last)
    }

    /// The first event of a type after `after`, up to the head, whose payload is wanted.
    async fn search(
        &self,
        now: &Session,
        kind: EventType,
        after: Seq,
        is_wanted: impl Fn(&Body) -> bool,
    ) -> Result<Option<Event>> {
        let mut next = Some(ReadEvents::first(PAGE).after(after).before(now.head.next()).kinds([kind]));
        while let Some(read) = next {
            let page = self.sessions.read(now.id, read).await?;
            for event in page.events {
                if is_wanted(&event.body()?) {
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
        match event.body()? {
            Body::SessionLearningAdded(learning) => {
                Ok(Self { learning, seq: event.seq, by: event.actor.clone(), at: event.at })
            }
            _ => Err(Error::corrupt(format!("event {} of type {} adds no learning", event.seq, event.kind))),
        }
    }

    /// As it stands in the shared note: an item of a list, with where it comes from.
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
