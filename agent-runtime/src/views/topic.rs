//! Return to a topic: what was done, how it stands, what is waited for.

use std::sync::Arc;

use crate::views::artifacts::RegisteredArtifact;
use crate::views::runs::RunEntry;
use crate::views::session_view::SessionView;
use agent_core::event::{Body, Event, EventType, Message};
use agent_core::model::{Actor, DocumentHead, PendingAction, Status, Wake};
use agent_core::session::Session;
use agent_core::store::ReadEvents;
use agent_core::{Error, Result, Seq, SessionStoreExt, Timestamp};

/// How many of the newest runs and artifacts a topic tells.
const NEWEST: usize = 5;

/// What the session is to achieve, as a person defined it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// In words.
    pub message: Message,
    /// Who defined it.
    pub by: Actor,
    /// When, by that clock.
    pub at: Timestamp,
    /// The event that says so.
    pub seq: Seq,
}

impl Outcome {
    fn of(event: &Event) -> Result<Self> {
        match event.body()? {
            Body::UserDefineOutcome(message) => {
                Ok(Self { message, by: event.actor.clone(), at: event.at, seq: event.seq })
            }
            _ => {
                Err(Error::corrupt(format!("event {} of type {} defines no outcome", event.seq, event.kind)))
            }
        }
    }
}

/// What somebody who comes back needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topic {
    /// The record, for all that is not below: title, labels, counts, references.
    pub session: Arc<Session>,
    /// What it is to achieve.
    pub outcome: Option<Outcome>,
    /// The last thing that a person said.
    pub asked: Option<Event>,
    /// The last thing that the agent said.
    pub said: Option<Event>,
    /// Its newest runs, at most five, the newest first.
    pub runs: Vec<RunEntry>,
    /// What was made last, at most five, the newest first.
    pub artifacts: Vec<RegisteredArtifact>,
}

impl Topic {
    /// Its state, and why.
    pub fn status(&self) -> Status {
        self.session.status
    }

    /// What it waits for.
    pub fn action(&self) -> Option<&PendingAction> {
        self.session.action.as_ref()
    }

    /// How many inputs wait to be answered.
    pub fn pending(&self) -> u64 {
        self.session.pending
    }

    /// When it wants to run by itself.
    pub fn wakes(&self) -> &[Wake] {
        &self.session.wakes
    }

    /// The notes and other documents that there are.
    pub fn documents(&self) -> &[DocumentHead] {
        &self.session.documents
    }
}

impl SessionView {
    /// What was done, what was made, how the session stands and what it waits for, at one moment. What was cleared is
    /// not among what was said last.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn topic(&self) -> Result<Topic> {
        let session = self.sessions.load(self.id).await?;
        let asked = self.last_of(&session, EventType::USER_MESSAGE, session.counts.user).await?;
        let said = self.last_of(&session, EventType::AGENT_MESSAGE, session.counts.agent).await?;
        let runs = self.runs_of(&session, NEWEST, None, None).await?.runs;
        let artifacts = self.artifacts_of(&session, None, NEWEST, None).await?.artifacts;
        Ok(Topic { outcome: self.outcome_of(&session).await?, asked, said, runs, artifacts, session })
    }

    /// What the session is to achieve: the outcome that was defined last. Reads the record and one event.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn outcome(&self) -> Result<Option<Outcome>> {
        let session = self.sessions.load(self.id).await?;
        self.outcome_of(&session).await
    }

    /// The outcomes that were defined, the newest first, at most `limit`.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub async fn outcomes(&self, limit: usize) -> Result<Vec<Outcome>> {
        let session = self.sessions.load(self.id).await?;
        let (mut outcomes, mut end) = (Vec::new(), session.outcome.next());
        while outcomes.len() < limit && end > Seq::new(1) {
            let read = ReadEvents::last(limit - outcomes.len()).before(end);
            let page =
                self.sessions.history_of(&session, read.kinds([EventType::USER_DEFINE_OUTCOME])).await?;
            for event in page.events.iter().rev() {
                outcomes.push(Outcome::of(event)?);
            }
            let Some(next) = page.next.and_then(|next| next.before) else { break };
            end = next;
        }
        Ok(outcomes)
    }

    async fn outcome_of(&self, session: &Session) -> Result<Option<Outcome>> {
        if session.outcome == Seq::ZERO {
            return Ok(None);
        }
        Outcome::of(&self.event(session, session.outcome).await?).map(Some)
    }

    async fn last_of(&self, session: &Session, kind: EventType, count: u64) -> Result<Option<Event>> {
        if count == 0 {
            return Ok(None);
        }
        let read = ReadEvents::last(1).after(session.visible_from).before(session.head.next());
        Ok(self.sessions.history_of(session, read.kinds([kind])).await?.events.pop())
    }
}
