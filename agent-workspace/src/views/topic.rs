//! Topic of a session: its recent work, status and pending action.

use std::sync::Arc;

use crate::views::artifacts::RegisteredArtifact;
use crate::views::runs::RunEntry;
use crate::views::session_view::SessionView;
use agent_core::event::{Event, EventPayload, EventType, Message};
use agent_core::model::{Actor, DocumentHead, PendingAction, Status, Timer};
use agent_core::session::SessionRecord;
use agent_core::store::ReadEvents;
use agent_core::{Error, Result, Seq, SessionStoreExt, Timestamp};

/// Number of newest runs and artifacts in a topic.
const NEWEST: usize = 5;

/// Outcome that a session is to achieve, defined by a person.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Text of the outcome.
    pub message: Message,
    /// Author of the definition.
    pub by: Actor,
    /// Time of the definition, by its author's clock.
    pub at: Timestamp,
    /// Sequence number of the event that defines it.
    pub seq: Seq,
}

impl Outcome {
    fn of(event: &Event) -> Result<Self> {
        match event.decode()? {
            EventPayload::UserDefineOutcome(message) => {
                Ok(Self { message, by: event.actor.clone(), at: event.at, seq: event.seq })
            }
            _ => Err(Error::corrupt(format!(
                "event {} of type {} does not define an outcome; run `verify`, then `salvage`",
                event.seq, event.kind
            ))),
        }
    }
}

/// Summary of a session for a person who returns to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topic {
    /// Record, with all other data: title, labels, counts, references.
    pub session: Arc<SessionRecord>,
    /// Outcome that the session is to achieve; `None` if none was defined.
    pub outcome: Option<Outcome>,
    /// Last visible message of a person.
    pub asked: Option<Event>,
    /// Last visible message of the agent.
    pub said: Option<Event>,
    /// Newest runs, at most five, newest first.
    pub runs: Vec<RunEntry>,
    /// Newest artifacts, at most five, newest first.
    pub artifacts: Vec<RegisteredArtifact>,
}

impl Topic {
    /// Returns the session's state and its reason.
    pub fn status(&self) -> Status {
        self.session.status
    }

    /// Returns the pending action of the session; `None` if the session waits for no answer.
    pub fn action(&self) -> Option<&PendingAction> {
        self.session.action.as_ref()
    }

    /// Returns the number of inputs that wait to be answered.
    pub fn pending(&self) -> u64 {
        self.session.inputs_open
    }

    /// Returns the timers: scheduled times at which the session is to run.
    pub fn timers(&self) -> &[Timer] {
        &self.session.timers
    }

    /// Returns the notes and other documents of the session.
    pub fn documents(&self) -> &[DocumentHead] {
        &self.session.documents
    }
}

impl SessionView {
    /// Returns the topic of the session: its last messages, newest runs and artifacts, status and pending action.
    ///
    /// All parts are as of one moment. Cleared messages are not included.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let view = chat.view();
    /// chat.define_outcome("A list of plants with the day of their next watering").await?;
    /// chat.prompt("Which plants need water today?").await?.finish().await?;
    ///
    /// let topic = view.topic().await?;
    /// assert_eq!(topic.asked.as_ref().and_then(|event| event.text()).as_deref(), Some("Which plants need water today?"));
    /// assert_eq!(topic.runs.len(), 1);
    /// assert!(topic.said.is_some() && topic.outcome.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn topic(&self) -> Result<Topic> {
        let session = self.sessions.load(self.id).await?;
        let asked = self.last_of(&session, EventType::USER_MESSAGE, session.counts.user).await?;
        let said = self.last_of(&session, EventType::AGENT_MESSAGE, session.counts.agent).await?;
        let runs = self.runs_of(&session, NEWEST, None, None).await?.runs;
        let artifacts = self.artifacts_of(&session, None, NEWEST, None).await?.artifacts;
        Ok(Topic { outcome: self.outcome_of(&session).await?, asked, said, runs, artifacts, session })
    }

    /// Returns the outcome that was defined last; `None` if none was defined. Reads the record and one event.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let view = chat.view();
    /// assert_eq!(view.outcome().await?, None);
    /// chat.define_outcome("A list of plants").await?;
    /// assert_eq!(view.outcome().await?.map(|outcome| outcome.message.text).as_deref(), Some("A list of plants"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn outcome(&self) -> Result<Option<Outcome>> {
        let session = self.sessions.load(self.id).await?;
        self.outcome_of(&session).await
    }

    /// Returns at most `limit` defined outcomes, newest first.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let view = chat.view();
    /// chat.define_outcome("A list of plants").await?;
    /// chat.define_outcome("A list of plants with their days").await?;
    /// let outcomes = view.outcomes(10).await?;
    /// assert_eq!(outcomes.len(), 2);
    /// assert_eq!(outcomes[0].message.text, "A list of plants with their days");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn outcomes(&self, limit: usize) -> Result<Vec<Outcome>> {
        let session = self.sessions.load(self.id).await?;
        let (mut outcomes, mut end) = (Vec::new(), session.outcome.next());
        while outcomes.len() < limit && end > Seq::new(1) {
            let read = ReadEvents::last(limit - outcomes.len()).with_before(end);
            let page =
                self.sessions.history_of(&session, read.with_types([EventType::USER_DEFINE_OUTCOME])).await?;
            for event in page.events.iter().rev() {
                outcomes.push(Outcome::of(event)?);
            }
            let Some(next) = page.next.and_then(|next| next.before) else { break };
            end = next;
        }
        Ok(outcomes)
    }

    async fn outcome_of(&self, session: &SessionRecord) -> Result<Option<Outcome>> {
        if session.outcome == Seq::ZERO {
            return Ok(None);
        }
        Outcome::of(&self.event(session, session.outcome).await?).map(Some)
    }

    async fn last_of(&self, session: &SessionRecord, kind: EventType, count: u64) -> Result<Option<Event>> {
        if count == 0 {
            return Ok(None);
        }
        let read = ReadEvents::last(1).with_after(session.visible_from).with_before(session.head.next());
        Ok(self.sessions.history_of(session, read.with_types([kind])).await?.events.pop())
    }
}
