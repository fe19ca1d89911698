//! Read-only view of one session.

use std::sync::Arc;

use agent_core::event::{Event, EventPayload, EventType};
use agent_core::model::Origin;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::{EventPage, PAGE_MAX, ReadEvents, SessionQuery};
use agent_core::{Error, Result, RunId, Seq, SessionId, SessionStore, SessionStoreExt};

use crate::views::artifacts::{ArtifactPage, RegisteredArtifact};
use crate::views::branches::{Branch, Branches};

/// Read-only view of one session: every method is one call that reads and writes nothing.
///
/// Cloning is cheap. Every method may be dropped at any point. Each returns the errors of the store: `NotFound`, and
/// `Corrupt` if data that it must read is damaged.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// chat.prompt("Hello").await?.finish().await?;
/// let view = chat.view();
/// assert_eq!(view.latest(50).await?.session.counts.messages(), 2);
/// assert_eq!(view.runs(10, None).await?.runs.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SessionView {
    pub(super) sessions: Arc<dyn SessionStore>,
    pub(super) id: SessionId,
}

/// Session at one moment: its record, and its last events at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Record of the session.
    pub session: Arc<SessionRecord>,
    /// Last events up to the record's head, in order.
    pub events: EventPage,
}

/// Events around one event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Around {
    /// Events before it, in order.
    pub before: Vec<Event>,
    /// The event itself.
    pub event: Event,
    /// Events after it, in order.
    pub after: Vec<Event>,
}

impl SessionView {
    /// Creates a view of `session`. No I/O.
    pub const fn new(sessions: Arc<dyn SessionStore>, session: SessionId) -> Self {
        Self { sessions, id: session }
    }

    /// Returns the record and at most `last` newest events of the history, both as of one moment.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let view = chat.view();
    /// chat.prompt("Hello").await?.finish().await?;
    /// let snapshot = view.latest(2).await?;
    /// assert_eq!(snapshot.session.counts.messages(), 2);
    /// assert_eq!(snapshot.events.events.last().map(|event| event.seq), Some(snapshot.session.head));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[doc(alias = "snapshot")]
    pub async fn latest(&self, last: usize) -> Result<Snapshot> {
        let session = self.sessions.load(self.id).await?;
        let read = ReadEvents::last(last).with_before(session.head.next());
        let events = self.sessions.history_of(&session, read).await?;
        Ok(Snapshot { session, events })
    }

    /// Returns the event `seq` with at most `count` events on either side.
    ///
    /// If `read` names types, the events around it are limited to these; its limit of bytes applies, too.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::event::EventType;
    /// use agent_core::store::ReadEvents;
    ///
    /// let view = chat.view();
    /// for text in ["one", "two", "three"] {
    ///     chat.prompt(text).await?.finish().await?;
    /// }
    /// let messages = ReadEvents::first(0).with_types([EventType::USER_MESSAGE]);
    /// let second = view.runs(2, None).await?.runs[1].first;
    /// let around = view.around(second, 1, &messages).await?;
    /// assert_eq!(around.event.text().as_deref(), Some("two"));
    /// assert_eq!((around.before[0].text().as_deref(), around.after[0].text().as_deref()), (Some("one"), Some("three")));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the history has no event `seq`; errors of the store.
    pub async fn around(&self, seq: Seq, count: usize, read: &ReadEvents) -> Result<Around> {
        let session = self.sessions.load(self.id).await?;
        let event = self.event(&session, seq).await?;
        let read = |page: ReadEvents| page.with_types(read.kinds.clone()).with_max_bytes(read.max_bytes);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if count > 0 {
            let page = read(ReadEvents::last(count)).with_before(seq);
            before = self.sessions.history_of(&session, page).await?.events;
            let page = read(ReadEvents::first(count)).with_after(seq).with_before(session.head.next());
            after = self.sessions.history_of(&session, page).await?.events;
        }
        Ok(Around { before, event, after })
    }

    pub(super) async fn event(&self, session: &SessionRecord, seq: Seq) -> Result<Event> {
        if seq == Seq::ZERO || seq > session.head {
            return Err(Error::invalid(format!(
                "session {} has the events 1 to {}, not {seq}",
                self.id, session.head
            )));
        }
        let read = ReadEvents::first(1).with_after(Seq::new(seq.get() - 1));
        let page = self.sessions.history_of(session, read).await?;
        let event = page.events.into_iter().next().filter(|event| event.seq == seq);
        event.ok_or_else(|| {
            Error::corrupt(format!(
                "session {}: event {seq} cannot be read; run `verify`, then `salvage`",
                self.id
            ))
        })
    }

    /// Lists the artifacts of the session and of those from which it was forked, newest first, `limit` on a page.
    ///
    /// With `run`, only the artifacts of that run are listed. `before` is [`ArtifactPage::next`] of the page before. No
    /// session outside this history is read.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::model::Artifact;
    ///
    /// let view = chat.view();
    /// chat.register_artifact(Artifact::new("out/report.pdf").with_media("application/pdf")).await?;
    /// let page = view.artifacts(None, 10, None).await?;
    /// assert_eq!(page.artifacts[0].artifact.path, "out/report.pdf");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn artifacts(
        &self,
        run: Option<RunId>,
        limit: usize,
        before: Option<Seq>,
    ) -> Result<ArtifactPage> {
        let session = self.sessions.load(self.id).await?;
        self.artifacts_of(&session, run, limit, before).await
    }

    pub(super) async fn artifacts_of(
        &self,
        session: &SessionRecord,
        run: Option<RunId>,
        limit: usize,
        before: Option<Seq>,
    ) -> Result<ArtifactPage> {
        let end = before.unwrap_or_else(|| session.head.next());
        let read =
            ReadEvents::last(limit).with_before(end).with_types([EventType::SESSION_ARTIFACT_REGISTERED]);
        let (mut page, mut next) = (ArtifactPage::default(), Some(read));
        while let Some(read) = next {
            let read = self.sessions.history_of(session, read).await?;
            for event in read.events.iter().rev() {
                let EventPayload::SessionArtifactRegistered(artifact) = event.decode()? else { continue };
                if run.is_some() && artifact.run != run {
                    continue;
                }
                page.artifacts.push(RegisteredArtifact { artifact, seq: event.seq, at: event.at });
                if page.artifacts.len() >= limit {
                    page.next = Some(event.seq);
                    return Ok(page);
                }
            }
            page.damaged.extend(read.damaged);
            next = read.next;
        }
        Ok(page)
    }

    /// Lists the branches of the conversation after event `point`: this session, and each session forked from it there.
    ///
    /// Archived sessions are included, deleted ones are not. The cost grows with the number of the session's forks.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let view = chat.view();
    /// let point = chat.record().head;
    /// chat.prompt("Make it formal").await?.finish().await?;
    /// let other = chat.fork(point).await?;
    /// other.prompt("Make it funny").await?.finish().await?;
    ///
    /// let found = view.branches(point).await?;
    /// let texts: Vec<_> = found.branches.iter().filter_map(|branch| branch.message.as_ref()?.text()).collect();
    /// assert_eq!(texts, ["Make it formal", "Make it funny"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn branches(&self, point: Seq) -> Result<Branches> {
        let session = self.sessions.load(self.id).await?;
        let mut found = Branches { point, ..Branches::default() };
        found.branches.push(self.branch(&session, point).await?);
        let live = SessionState::ALL.iter().copied();
        let query = SessionQuery::new()
            .with_parent(self.id)
            .with_states(live.filter(|state| *state != SessionState::Deleted));
        let (mut forks, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.sessions.list(query.clone().with_limit(PAGE_MAX).with_cursor(cursor)).await?;
            let is_here = |origin: &Origin| matches!(origin, Origin::Fork { at, .. } if *at == point);
            forks.extend(page.items.into_iter().filter(|it| is_here(&it.origin)).map(|it| it.id));
            found.damaged.extend(page.damaged);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        forks.sort_unstable();
        for id in forks {
            let view = Self::new(self.sessions.clone(), id);
            let fork = self.sessions.load(id).await?;
            found.branches.push(view.branch(&fork, point).await?);
        }
        Ok(found)
    }

    /// Lists the branches at the point where this session was forked; `None` if it is not a fork.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let fork = chat.fork(chat.record().head).await?;
    /// let siblings = fork.view().siblings().await?.expect("the session is a fork");
    /// assert_eq!(siblings.branches.len(), 2);
    /// assert_eq!(chat.view().siblings().await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `NotFound` if the session from which it was forked was purged.
    pub async fn siblings(&self) -> Result<Option<Branches>> {
        match self.sessions.load(self.id).await?.origin {
            Origin::Fork { parent, at, .. } => {
                Self::new(self.sessions.clone(), parent).branches(at).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    async fn branch(&self, session: &SessionRecord, point: Seq) -> Result<Branch> {
        let read = ReadEvents::first(1).with_after(point).with_before(session.head.next());
        let page = self.sessions.history_of(session, read.with_types([EventType::USER_MESSAGE])).await?;
        Ok(Branch { session: session.id, message: page.events.into_iter().next() })
    }
}
