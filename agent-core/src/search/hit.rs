//! Searches, and the pages of hits that they return.

use serde::{Deserialize, Serialize};

use crate::base::{Error, Result, Seq, SessionId, SessionState, Timestamp, WorkspaceId};
use crate::event::EventType;
use crate::model::Actor;
use crate::search::snippet::Snippet;
use crate::session::SessionSummary;
use crate::setters;
use crate::store::hidden::HiddenSession;
use crate::store::page::{Cursor, Damaged, Fingerprint, PAGE_MAX};
use crate::store::session::SessionQuery;

/// Search for what was said and written, newest first.
///
/// The texts of people, agents and the system are searched, the first 8 KiB of the results of tools, titles, and documents of sessions;
/// neither reasoning nor the inputs of tools. What was purged is not found. A fork is searched without what it has of its parent, which
/// is found there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Search {
    /// Words to look for; see [`Query`](crate::search::Query).
    pub text: String,
    /// Session to search; `None` for all.
    pub session: Option<SessionId>,
    /// Workspace of the sessions; `None` for any.
    pub workspace: Option<WorkspaceId>,
    /// Creator of the sessions; `None` for any.
    pub creator: Option<Actor>,
    /// True to search only sessions that have no owner.
    pub without_owner: bool,
    /// Earliest time of the events; `None` for any.
    pub since: Option<Timestamp>,
    /// Time before which the events are; `None` for any.
    pub until: Option<Timestamp>,
    /// Maximum number of hits on the page; 20 by default, at most 1,000.
    pub limit: usize,
    /// Most bytes of events that are read for a page: 64 MiB by default.
    pub max_bytes: usize,
    /// Start of the page.
    pub cursor: Option<Cursor>,
}

impl Search {
    /// Default of [`max_bytes`](Self::max_bytes): 64 MiB.
    pub const MAX_BYTES: usize = 64 << 20;

    /// Creates a search for words in all sessions.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            session: None,
            workspace: None,
            creator: None,
            without_owner: false,
            since: None,
            until: None,
            limit: 20,
            max_bytes: Self::MAX_BYTES,
            cursor: None,
        }
    }

    setters! {
        /// Searches one session only.
        pub fn with_session(id: SessionId) => session = Some(id);

        /// Searches the sessions of a workspace only.
        pub fn with_workspace(id: WorkspaceId) => workspace = Some(id);

        /// Searches the sessions that an actor created only.
        pub fn with_creator(creator: Actor) => creator = Some(creator);

        /// Searches sessions that have no owner only.
        pub fn without_owner() => without_owner = true;

        /// Searches events of this time and later only.
        pub fn with_since(at: Timestamp) => since = Some(at);

        /// Searches events before this time only.
        pub fn with_until(at: Timestamp) => until = Some(at);

        /// Sets the maximum number of hits on the page.
        pub fn with_limit(limit: usize) => limit = limit.min(PAGE_MAX);

        /// Sets how many bytes of events are read for a page, at most. A page has read at least one piece of the log.
        pub fn with_max_bytes(bytes: usize) => max_bytes = bytes;

        /// Sets the start of the page: [`SearchPage::next`] of the one before.
        pub fn with_cursor(cursor: Option<Cursor>) => cursor = cursor;
    }

    /// Number by which a cursor knows its search.
    pub(crate) fn fingerprint(&self) -> u64 {
        Fingerprint::of("search")
            .field("text", Some(&self.text))
            .field("session", self.session.map(|id| id.to_string()))
            .field("workspace", self.workspace.map(|id| id.as_uuid().to_string()))
            .field("creator", self.creator.as_ref().map(Actor::to_string))
            .field("owner", self.without_owner.then_some("none"))
            .field("since", self.since.map(|at| at.as_micros().to_string()))
            .field("until", self.until.map(|at| at.as_micros().to_string()))
            .finish()
    }

    /// Returns the list of the sessions that are searched.
    pub(crate) fn sessions(&self) -> SessionQuery {
        let states = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
        let mut query = SessionQuery::new().with_states(states).with_limit(100);
        query.workspace = self.workspace;
        query.creator.clone_from(&self.creator);
        query
    }

    /// Returns whether a session is searched.
    pub(crate) fn covers(&self, session: &SessionSummary) -> bool {
        let is_hidden = HiddenSession::of(session.id, session.workspace, &session.attributes).is_some();
        let is_owned = self.without_owner && session.owner.is_some();
        !is_hidden && !is_owned && self.sessions().matches(session)
    }
}

/// Place of an event in the order of a search: later ones come first. Its time is that of the event, or of an earlier one that comes after it in
/// the session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) at: Timestamp,
    pub(crate) session: SessionId,
    pub(crate) seq: Seq,
}

impl Place {
    /// Reads the place before which a page begins.
    pub(crate) fn of(cursor: &Cursor, fingerprint: u64) -> Result<Self> {
        let key = cursor.key(fingerprint)?;
        let mut parts = key.split(' ');
        let mut part = || parts.next().unwrap_or_default();
        let place = (part().parse(), part().parse(), part().parse::<u64>());
        let (Ok(at), Ok(session), Ok(seq)) = place else {
            return Err(Error::invalid("the cursor of the search is malformed; search from the start"));
        };
        Ok(Self { at: Timestamp::from_micros(at), session, seq: Seq::new(seq) })
    }

    pub(crate) fn cursor(&self, fingerprint: u64) -> Cursor {
        let Self { at, session, seq } = self;
        Cursor::after(fingerprint, &format!("{} {session} {seq}", at.as_micros()))
    }
}

/// Event that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hit {
    /// Session of the event.
    pub session: SessionId,
    /// Workspace of the session.
    pub workspace: WorkspaceId,
    /// Sequence number of the event.
    pub seq: Seq,
    /// Time of the event, by the writer's clock.
    pub at: Timestamp,
    /// Type of the event.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// Actor that caused the event.
    pub actor: Actor,
    /// Title of the session, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Part of the text with what was found.
    pub snippet: Snippet,
}

/// Page of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SearchPage {
    /// Hits, newest first.
    pub hits: Vec<Hit>,
    /// Start of the next page; `None` on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
    /// True if nothing newer than the last hit was left out, and nothing at all if there is no next page. False if the search has read as
    /// much as it may; then the next page goes on, and there may be more hits also if this page has none.
    pub is_complete: bool,
    /// Time down to which everything was searched, if the search is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched_through: Option<Timestamp>,
    /// Sessions that could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
}
