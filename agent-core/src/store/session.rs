//! The trait that a backend implements for sessions, and its requests and answers.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::base::{
    Epoch, Error, ErrorKind, Reason, Result, Seq, SessionId, SessionState, Timestamp, WorkspaceId,
};
use crate::commit::{Commit, Committed};
use crate::model::Actor;
use crate::session::{Session, SessionSummary};
use crate::store::page::{Cursor, Damaged, Fingerprint, PAGE_MAX, Page, PageQuery};
use crate::store::read::{EventPage, ReadEvents};

/// Keeps sessions: their logs, and the records that the logs fold into.
///
/// # Contract
///
/// A handle is bound to one tenant, and sees nothing of another. What a commit means is decided by
/// [`plan`](crate::plan()) alone; a backend's whole duty is to make "read the record, plan, store events and
/// record" one atomic step, durable before it returns, and to hand back what was stored byte for byte. Two handles
/// on one store, in one process or several, behave like one.
///
/// Corrupt data is reported as `Corrupt` or among the damaged, never as absent, and never overwritten.
///
/// # Cancel safety
///
/// Every method may be dropped at any point. A dropped `commit` was applied wholly or not at all, or is still being
/// applied; the same commit sent again finds out.
///
/// # Errors
///
/// Each method returns `Unavailable` where the store cannot be reached, `Denied` and `Full` as the system reports
/// them, `Corrupt` for damage, `Poisoned` after a failure that left durability in doubt. Further kinds stand at the
/// methods. A store that has waited for others, or tried, for as long as it may says so with
/// [`Error::timed_out`](crate::base::error::Error::timed_out); [`settle`](crate::store::ext::SessionStoreExt::settle) tries
/// everything else that is `Unavailable` again.
///
/// # Wrappers
///
/// A store around another implements [`SessionStoreWrapper`](crate::store::wrapper::SessionStoreWrapper), which passes on what it
/// does not do itself.
#[async_trait]
pub trait SessionStore: Debug + Send + Sync + 'static {
    /// Applies a commit: all of it or nothing. The only write of events.
    ///
    /// On return the commit is durable, at the store's [durability](Capabilities::durability). The same commit sent
    /// twice is applied once, and answered alike. Of several commits with the same expectation one succeeds. A commit
    /// that creates a session with a [parent](crate::model::parts::Origin::parent) fails with `Deleted` where the parent is
    /// deleted, also where that happens at the same moment; an id that is in use in any workspace, or was, is not
    /// created again.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](crate::plan()). [`Error::write_outcome`](crate::base::error::Error::write_outcome) says whether a
    /// failed commit may have been applied.
    async fn commit(&self, commit: Commit) -> Result<Committed>;

    /// The record of a session; for a deleted one its tombstone, in state `Deleted`.
    ///
    /// # Errors
    ///
    /// `NotFound` where there was never such a session.
    async fn load(&self, id: SessionId) -> Result<Arc<Session>>;

    /// Events of the session's own log, in order. Those that lie in its ancestors are read by
    /// [`SessionStoreExt`](crate::store::ext::SessionStoreExt).
    ///
    /// Reads what the page holds, not the log. A deleted session's events can be read for as long as they are there.
    ///
    /// # Errors
    ///
    /// `NotFound`. Damage in the asked range ends the page before it and is named on the page; where the page would
    /// start with it, `Corrupt`.
    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage>;

    /// Sessions by recency, the latest first; those that are [due](SessionQuery::due) by that, the earliest first. Opens
    /// no log beyond its record's derived form.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>>;

    /// Removes the bytes of a deleted session; its [tombstone](Session::tombstone) stays, in the place of its record.
    ///
    /// What living forks read is never removed, whatever is asked for: a store begins with [`Purge::sparing_forks`], which
    /// finds that, then removes the events after [`Purge::keep`] and replaces the record in one atomic step. Doing it
    /// twice is fine, and removes what is needed no longer.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Conflict` where the head is not the one given; `InvalidInput` where the session is not deleted;
    /// `Corrupt` where damage may be a fork that reads it, and nothing is removed then.
    async fn purge(&self, purge: Purge) -> Result<Purged>;

    /// A sign of life of the run that holds the lease `epoch` and has nothing to commit. Advisory: not an event, not
    /// durable, and no effect where the lease is another's by now.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    async fn beat(&self, id: SessionId, epoch: Epoch) -> Result<()>;

    /// Looks for signs of life of the holder of the lease `epoch`, without leaving one.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    async fn pulse(&self, id: SessionId, epoch: Epoch) -> Result<Pulse>;

    /// Makes anew, from the logs and tombstones, what the store derives from them and keeps (records, lists, indexes).
    /// Returns of how many sessions, and names those that it left as they are because their logs are damaged. Others may
    /// read and write meanwhile.
    ///
    /// As provided it does nothing: for a store that keeps nothing of that kind.
    async fn rebuild(&self) -> Result<Rebuilt> {
        Ok(Rebuilt::default())
    }

    /// Deletes a session that no commit can delete, since its record cannot be read: leaves a tombstone with what is still
    /// known of its origin, and returns that. The damaged bytes are kept until the session is [purged](Self::purge). A run
    /// that goes on is fenced off. Hosts call `WorkspaceManager::delete_session`.
    ///
    /// Doing it twice is fine. As provided it refuses: for a store that cannot do it.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` if the record can be read: delete the session by a commit; `Unsupported` as provided.
    async fn delete_damaged(&self, id: SessionId, at: Timestamp, reason: Reason) -> Result<Arc<Session>> {
        let _ = (at, reason);
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "session {id} is damaged, and this store deletes no damaged sessions; restore it from a copy first"
            ),
        ))
    }

    /// What the store finds wrong with how it keeps things, where reading them all would not tell: an index without an
    /// entry, a page that is linked to none. Writes nothing; may read the whole store.
    ///
    /// As provided it finds nothing.
    async fn check(&self) -> Result<Vec<Damaged>> {
        Ok(Vec::new())
    }

    /// What this store promises.
    fn capabilities(&self) -> Capabilities;

    /// Waits until the session's head is past `seen`, and returns it.
    ///
    /// As provided it looks four times a second. A store that is told of changes overrides it.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        loop {
            let head = self.load(id).await?.head;
            if head > seen {
                return Ok(head);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Closes the backend of this store: for all of its tenants, clones and traits. Finishes the writes that have begun,
    /// and gives back threads, files, connections and the locks of leases. Calls after it fail with `Unavailable`. Closing
    /// again does nothing.
    ///
    /// As provided it does nothing, for a store that holds nothing of the kind.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the store is closing or closed; call it again to wait for the end.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Which sessions to list.
///
/// Archived and deleted ones are left out unless their states are asked for.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionQuery {
    /// Only of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only in one of these states, where any are given.
    pub states: Vec<SessionState>,
    /// Only with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only created by this actor.
    pub creator: Option<Actor>,
    /// Only forks and children of this session.
    pub parent: Option<SessionId>,
    /// Only those that want somebody to come by this time; and the list is in the order in which they do, the earliest
    /// first, where times are equal in the order of their ids.
    pub due: Option<Timestamp>,
    /// Whether to count all that match, on all pages. The first page of such a list also names the sessions that are missing:
    /// the store knows that they were there. It looks at every session of the tenant, and costs more.
    pub with_total: bool,
    /// The most sessions on the page; at most 1,000. 0 gives an empty page, without a next one.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<Cursor>,
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self {
            workspace: None,
            states: Vec::new(),
            labels: BTreeMap::new(),
            creator: None,
            parent: None,
            due: None,
            with_total: false,
            limit: 50,
            cursor: None,
        }
    }
}

impl SessionQuery {
    /// All sessions that are not hidden, 50 a page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only of this workspace.
    pub fn workspace(mut self, id: WorkspaceId) -> Self {
        self.workspace = Some(id);
        self
    }

    /// Only in one of these states.
    pub fn states(mut self, states: impl IntoIterator<Item = SessionState>) -> Self {
        self.states = states.into_iter().collect();
        self
    }

    /// In any state, hidden ones too.
    pub fn with_hidden(self) -> Self {
        self.states(SessionState::ALL.iter().copied())
    }

    /// Only with this label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Only created by this actor.
    pub fn creator(mut self, creator: Actor) -> Self {
        self.creator = Some(creator);
        self
    }

    /// Only forks and children of this session.
    pub fn parent(mut self, parent: SessionId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Only those that want somebody to come by `until`: inputs and answers that wait, wakes that are due, failed runs
    /// whose time to be tried again has come, questions whose time is over. In the order in which they do, the earliest
    /// first; see [`Session::due_at`].
    ///
    /// The list says where to look, not what to do: whether a session may run is decided when its run begins.
    pub fn due(mut self, until: Timestamp) -> Self {
        self.due = Some(until);
        self
    }

    /// Counts all that match, and has missing sessions named.
    pub fn with_total(mut self) -> Self {
        self.with_total = true;
        self
    }

    /// Sets the most sessions on the page.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit.min(PAGE_MAX);
        self
    }

    /// Starts the page here.
    pub fn cursor(mut self, cursor: Option<Cursor>) -> Self {
        self.cursor = cursor;
        self
    }

    /// Whether a session is among those asked for.
    pub fn wants(&self, session: &SessionSummary) -> bool {
        let state = session.status.state;
        let shown = if self.states.is_empty() { !state.is_hidden() } else { self.states.contains(&state) };
        shown
            && self.workspace.is_none_or(|workspace| session.workspace == workspace)
            && self.labels.iter().all(|(key, value)| session.attributes.labels.get(key) == Some(value))
            && self.creator.as_ref().is_none_or(|creator| session.creator == *creator)
            && self.parent.is_none_or(|parent| session.origin.parent() == Some(parent))
            && self.due.is_none_or(|until| session.due_at.is_some_and(|at| at <= until))
    }

    /// For backends: puts sessions in the list's order.
    pub fn sort(&self, sessions: &mut [SessionSummary]) {
        sessions.sort_by_key(|session| (self.place(session), session.id));
        if self.due.is_none() {
            sessions.reverse();
        }
    }

    /// By what the list is ordered, beside the id: latest first, unless it is of what is due.
    fn place(&self, session: &SessionSummary) -> Timestamp {
        match self.due {
            Some(_) => session.due_at.unwrap_or(Timestamp::UNIX_EPOCH),
            None => session.last_active_at,
        }
    }

    /// By what a cursor knows that it belongs to this query.
    pub fn fingerprint(&self) -> u64 {
        // A field that a later version adds is left out where it is not set, so that kept cursors stay good.
        let mut print = Fingerprint::of("sessions")
            .field("workspace", self.workspace.map(|id| id.as_uuid().to_string()))
            .field("creator", self.creator.as_ref().map(Actor::to_string))
            .field("parent", self.parent.map(|id| id.to_string()))
            .field("due", self.due.map(|at| at.as_micros().to_string()));
        let states: BTreeSet<_> = self.states.iter().map(|state| state.as_str()).collect();
        if states.len() == SessionState::ALL.len() {
            // A later version may know more of them.
            print = print.field("states", Some("all"));
        } else {
            print = states.into_iter().fold(print, |print, state| print.field("state", Some(state)));
        }
        for (key, value) in &self.labels {
            print = print.field("label", Some(key)).field("value", Some(value));
        }
        print.finish()
    }

    /// For backends that hold all summaries at hand: the page of those that match, from any order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub fn page(&self, sessions: impl IntoIterator<Item = SessionSummary>) -> Result<Page<SessionSummary>> {
        let print = self.fingerprint();
        let after = self.cursor.as_ref().map(|cursor| cursor.recent_key::<SessionId>(print)).transpose()?;
        let is_after = if self.due.is_some() { Ordering::is_gt } else { Ordering::is_lt };
        let limit = self.limit.min(PAGE_MAX);
        let (mut found, mut total) = (Vec::new(), 0);
        for session in sessions.into_iter().filter(|session| self.wants(session)) {
            total += 1;
            if after.is_none_or(|after| is_after((self.place(&session), session.id).cmp(&after))) {
                found.push(session);
            }
            // Never are many more held than the page has.
            if found.len() > 2 * limit {
                self.sort(&mut found);
                found.truncate(limit + 1);
            }
        }
        let total = self.with_total.then_some(total);
        self.sort(&mut found);
        let cursor = |last: &SessionSummary| Cursor::after_recent(print, self.place(last), last.id);
        Ok(Page::first(found, limit, cursor).with_total(total))
    }
}

impl PageQuery for SessionQuery {
    fn starting_at(self, cursor: Cursor) -> Self {
        self.cursor(Some(cursor))
    }
}

/// Which deleted session's bytes to remove. What living forks read of it stays in any case.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purge {
    /// The session.
    pub session: SessionId,
    /// Its head, as it was when the decision was made.
    pub head: Seq,
    /// Its events up to this are kept, whether a fork reads them or not; a fork that reads more keeps more.
    pub keep: Seq,
}

impl Purge {
    /// Removes all events of `session` that no living fork reads.
    pub fn new(session: SessionId, head: Seq) -> Self {
        Self { session, head, keep: Seq::ZERO }
    }

    /// For backends: checks that the session is deleted, and still at the head that was decided on.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, `Conflict`.
    pub fn check(&self, now: &Session) -> Result<()> {
        if now.status.state != SessionState::Deleted {
            return Err(Error::invalid(format!(
                "session {} is {}; delete it before it is purged",
                now.id, now.status
            )));
        }
        if now.head != self.head {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(now.head) },
                format!("session {} is at event {}, not at {}; decide again", now.id, now.head, self.head),
            ));
        }
        Ok(())
    }

    /// Keeps the events up to `keep` in any case.
    pub fn keep(mut self, keep: Seq) -> Self {
        self.keep = keep;
        self
    }
}

/// What a purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// How many events were removed.
    pub events: u64,
}

impl Purged {
    /// So many events were removed.
    pub const fn new(events: u64) -> Self {
        Self { events }
    }
}

/// Result of [`SessionStore::rebuild`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebuilt {
    /// Number of sessions of which everything derived was made anew.
    pub sessions: u64,
    /// Sessions that were left as they are because their logs or tombstones are damaged.
    pub damaged: Vec<Damaged>,
}

impl Rebuilt {
    /// So many sessions, and none left out.
    pub const fn new(sessions: u64) -> Self {
        Self { sessions, damaged: Vec::new() }
    }

    /// Names the sessions that were left as they are.
    #[must_use]
    pub fn with_damaged(mut self, damaged: Vec<Damaged>) -> Self {
        self.damaged = damaged;
        self
    }
}

/// Signs of life of a lease's holder. Two that are equal, a whole ttl apart by the watcher's own clock, say that the
/// holder is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulse {
    /// Changes with every beat.
    pub beat: u64,
    /// Whether the holder is proven dead; no need to wait then. `false` where the store cannot tell.
    pub dead: bool,
}

impl Pulse {
    /// A beat, and whether the holder is proven dead.
    pub const fn new(beat: u64, dead: bool) -> Self {
        Self { beat, dead }
    }
}

/// Which handles on a store behave like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scope {
    /// Those in one process.
    Process,
    /// Those on one machine.
    Host,
    /// Those on any machine.
    Network,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: it is gone with the process.
    None,
    /// The end of the process, `kill -9` too.
    ProcessCrash,
    /// The loss of power.
    PowerLoss,
}

/// How soon a list shows a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Consistency {
    /// When it is acknowledged.
    Immediate,
    /// Later.
    Eventual,
}

/// What a store promises. Tests, callers and the documentation read this one struct.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Which handles behave like one.
    pub scope: Scope,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How soon a list shows a write.
    pub listing: Consistency,
    /// How far the order of lists may lag behind `last_active_at`.
    pub recency: Duration,
    /// The newest level of the public suite that the store passes.
    pub suite: u32,
}

impl Capabilities {
    /// The newest level of the public suite.
    pub const SUITE: u32 = 1;

    /// A store of this scope and durability, whose lists are immediate and exact.
    pub const fn new(scope: Scope, durability: Durability) -> Self {
        Self {
            scope,
            durability,
            listing: Consistency::Immediate,
            recency: Duration::ZERO,
            suite: Self::SUITE,
        }
    }

    /// Sets how soon a list shows a write.
    pub const fn with_listing(mut self, listing: Consistency) -> Self {
        self.listing = listing;
        self
    }

    /// Sets how far the order of lists may lag.
    pub const fn with_recency(mut self, recency: Duration) -> Self {
        self.recency = recency;
        self
    }
}
