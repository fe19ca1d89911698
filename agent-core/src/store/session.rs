//! Trait that a backend implements for sessions, and its requests and answers.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use serde::{Deserialize, Serialize};

use crate::base::json::millis;
use crate::base::text::words;
use crate::base::{Error, ErrorKind, OwnerId, Result, Seq, SessionId, SessionState, Timestamp, WorkspaceId};
use crate::commit::{Commit, Committed};
use crate::model::{Actor, INACTIVE_AFTER_LABEL};
use crate::sealing::marked_label;
use crate::session::{SessionRecord, SessionSummary};
use crate::setters;
use crate::store::blob::BLOB_MAX_BYTES;
use crate::store::blob_store::{BlobStore, NoBlobs};
use crate::store::lease::LeaseStore;
use crate::store::maintenance::{Maintenance, NoMaintenance};
use crate::store::page::{Cursor, Fingerprint, PAGE_MAX, Page, PageQuery};
use crate::store::read::{EventPage, ReadEvents};

/// Store of sessions: their logs, and the records that the logs fold into.
///
/// # Contract
///
/// A handle belongs to one tenant, and does not see data of another. [`plan`](crate::plan()) alone decides what a
/// commit means. A backend makes "read the record, plan, store events and record" one atomic step, durable before it
/// returns, and returns stored data byte for byte. Two handles on one store, in one process or several, behave like
/// one.
///
/// Corrupt data is reported as `Corrupt` or listed as damaged, never as absent, and never overwritten.
///
/// # Cancel safety
///
/// Every method may be dropped at any point. A dropped `commit` was applied completely or not at all, or is still
/// being applied; sending the same commit again determines which.
///
/// # Errors
///
/// Each method returns `Unavailable` if the store cannot be reached, `Denied` and `Full` as the system reports them,
/// `Corrupt` for damage, and `Poisoned` after a failure that left durability in doubt. Each method documents its
/// further kinds. A store that has waited for others, or tried, for as long as it may marks the error with
/// [`Error::timed_out`](crate::base::error::Error::timed_out);
/// [`commit_with_retry`](crate::store::ext::SessionStoreExt::commit_with_retry) retries all other errors of kind
/// `Unavailable`.
///
/// # Wrappers
///
/// A store around another implements [`SessionStoreWrapper`](crate::store::wrapper::SessionStoreWrapper), which
/// forwards the methods that the wrapper does not implement.
#[async_trait]
pub trait SessionStore: Debug + Send + Sync + 'static {
    /// Applies a commit, completely or not at all. The only method that writes events.
    ///
    /// On return the commit is durable, at the store's [durability](Capabilities::durability). A commit that is sent
    /// twice is applied once, and both calls get the same answer. Of several commits with the same expected head, one
    /// succeeds. A commit whose events name [blobs](crate::store::BlobStore::put) fails with `BlobMissing` if one of them is not there. A commit that creates a session with a [parent](crate::model::parts::Origin::parent) fails with
    /// `Deleted` if the parent is deleted, also if that happens concurrently. An id that is or was in use, in any
    /// workspace, cannot be created again; one whose creation was refused can. If the parent is deleted while the session is
    /// created from it, a store may give up the id, so that nothing comes to be under it later: use another one then.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](crate::plan()). [`Error::write_outcome`](crate::base::error::Error::write_outcome) tells
    /// whether a failed commit may have been applied.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    /// use agent_core::event::NewEvent;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let commit = Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message("Hello"));
    /// let committed = store.commit(commit).await?;
    /// assert_eq!(committed.session.inputs_open, 1);
    /// # Ok(()) }
    /// ```
    async fn commit(&self, commit: Commit) -> Result<Committed>;

    /// Returns the record of a session; for a deleted session its tombstone, in state `Deleted`.
    ///
    /// # Errors
    ///
    /// `NotFound` if there was never such a session.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    ///
    /// # let (store, effects, session) = session().await?;
    /// assert_eq!(store.load(session.id).await?, session);
    /// assert!(store.load(effects.new_session_id()).await.unwrap_err().is_absent());
    /// # Ok(()) }
    /// ```
    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>>;

    /// Returns events of the session's own log, in order. [`SessionStoreExt`](crate::store::ext::SessionStoreExt)
    /// also reads those in its ancestors.
    ///
    /// The cost depends on the page, not on the length of the log. Events of a deleted session can be read until they
    /// are purged.
    ///
    /// # Errors
    ///
    /// `NotFound` if there was never such a session. Damage in the requested range ends the page before it and is
    /// listed on the page; `Corrupt` if the page would start with it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    /// use agent_core::store::ReadEvents;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let page = store.read(session.id, ReadEvents::first(100)).await?;
    /// assert_eq!(page.events[0].kind.as_str(), "session.created");
    /// # Ok(()) }
    /// ```
    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage>;

    /// Returns a page of sessions, ordered by last activity, latest first; sessions that are
    /// [due](SessionQuery::with_due), ordered by due time, earliest first.
    ///
    /// Reads the data derived for lists, and opens no log beyond that.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    /// use agent_core::store::SessionQuery;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let page = store.list(SessionQuery::new()).await?;
    /// assert_eq!(page.items[0].id, session.id);
    /// # Ok(()) }
    /// ```
    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>>;

    /// Removes the bytes of a deleted session; its [tombstone](SessionRecord::tombstone) stays, in the place of its record.
    ///
    /// Blobs that no remaining event names are removed, too.
    ///
    /// Events that living forks read are never removed, whatever the request. A store first calls
    /// [`Purge::sparing_forks`], which finds them, then removes the events after
    /// [`keep_through`](Purge::keep_through) and replaces the record in one atomic step. A repeated purge succeeds, and
    /// removes what is not needed any more.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Conflict` if the head is not the given one; `InvalidInput` if the session is not deleted;
    /// `Corrupt` if damaged data may be a fork that reads the session; nothing is removed then.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    /// use agent_core::store::{Purge, ReadEvents};
    ///
    /// # let (store, effects, session) = session().await?;
    /// let deleted = store.trigger(session.id, Trigger::Delete(Reason::UserDeleted)).await?;
    /// let purged = store.purge(Purge::new(session.id, deleted.last)).await?;
    /// assert_eq!(purged.events, deleted.last.get());
    /// assert!(store.read(session.id, ReadEvents::first(100)).await?.events.is_empty());
    /// # Ok(()) }
    /// ```
    async fn purge(&self, purge: Purge) -> Result<Purged>;

    /// Returns the heartbeats of the runs that hold leases.
    fn leases(&self) -> &dyn LeaseStore;

    /// Returns the blobs of the sessions: large content, which events name.
    ///
    /// They are those of this store, never of another one, so that a commit can check that the blobs are there which
    /// it names. The default keeps none, and refuses every request as `Unsupported`.
    fn blobs(&self) -> &dyn BlobStore {
        &NoBlobs
    }

    /// Returns the maintenance of the store: check, repair and put-off work. The default needs none.
    fn maintenance(&self) -> &dyn Maintenance {
        &NoMaintenance
    }

    /// Returns the guarantees of this store.
    ///
    /// ```
    /// use agent_core::store::{Durability, Scope};
    /// use agent_core::{MemoryStore, SessionStore};
    ///
    /// let guarantees = MemoryStore::new().capabilities();
    /// assert_eq!((guarantees.scope, guarantees.durability), (Scope::Process, Durability::None));
    /// ```
    fn capabilities(&self) -> Capabilities;

    /// Waits until the session's head is greater than `seen`, and returns the head.
    ///
    /// The default loads the record four times a second. A store that is notified of changes overrides it.
    ///
    /// # Errors
    ///
    /// `NotFound` if there was never such a session.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let events = vec![NewEvent::user_message("Hello")];
    /// let (changed, appended) = tokio::join!(
    ///     store.changed(session.id, session.head),
    ///     store.append(session.id, session.head, events),
    /// );
    /// assert_eq!(changed?, appended?.last);
    /// # Ok(()) }
    /// ```
    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        loop {
            let head = self.load(id).await?.head;
            if head > seen {
                return Ok(head);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Returns this store narrowed to what one owner may use, if the backend itself keeps owners apart, as PostgreSQL does by row
    /// security. [`Storage::for_owner`](crate::Storage::for_owner) then does through it what it has allowed. `None` by default,
    /// and for wrappers: then only `for_owner` keeps owners apart. No I/O.
    fn of_owner(&self, owner: &OwnerId) -> Option<Arc<dyn SessionStore>> {
        let _ = owner;
        None
    }

    /// Closes the backend of this store, for all of its tenants, clones and traits.
    ///
    /// Finishes the writes that have begun, and releases threads, files, connections and the locks of leases. Later
    /// calls fail with `Unavailable`. Closing again does nothing.
    ///
    /// The default does nothing, for a store that holds no such resources.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, the store is closing or closed; call it again to wait for the end.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{ErrorKind, MemoryStore, Storage};
    ///
    /// let storage = Storage::from(MemoryStore::new());
    /// storage.sessions.close().await?;
    /// let error = storage.bindings.resolve(&"laptop".parse()?).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Query for a list of sessions.
///
/// Archived and deleted sessions are left out unless their states are requested.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::clock::Effects;
/// use agent_core::model::{Actor, Patch};
/// use agent_core::session::NewSession;
/// use agent_core::state::SessionState;
/// use agent_core::store::SessionQuery;
/// use agent_core::{MemoryStore, SessionStore, SessionStoreExt, WorkspaceId};
///
/// let (store, effects) = (MemoryStore::new().sessions(&Effects::default()), Effects::default());
/// let patch = Patch::new().with_label("project", "travel");
/// for _ in 0..3 {
///     let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with_patch(&patch);
///     store.create(new).await?;
/// }
/// let query = SessionQuery::new()
///     .with_workspace(WorkspaceId::DEFAULT)
///     .with_label("project", "travel")
///     .with_states([SessionState::Idle, SessionState::Queued])
///     .with_creator(Actor::SYSTEM)
///     .with_total()
///     .with_limit(2);
/// let first = store.list(query.clone()).await?;
/// let second = store.list(query.with_cursor(first.next)).await?;
/// assert_eq!((first.total, first.items.len(), second.items.len()), (Some(3), 2, 1));
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionQuery {
    /// Workspace of the sessions; `None` for any.
    pub workspace: Option<WorkspaceId>,
    /// Owner of the sessions; `None` for any.
    pub owner: Option<OwnerId>,
    /// States of the sessions; empty for all that are not hidden.
    pub states: Vec<SessionState>,
    /// Labels that the sessions must have, all of them.
    pub labels: BTreeMap<String, String>,
    /// Creator of the sessions; `None` for any.
    pub creator: Option<Actor>,
    /// Parent of the sessions, which are its forks and children; `None` for any.
    pub parent: Option<SessionId>,
    /// Latest due time of the sessions; `None` for any.
    ///
    /// If it is set, the list contains only sessions that are due by this time, ordered by due time, earliest first,
    /// and for equal times by id.
    pub due: Option<Timestamp>,
    /// Time since which the sessions had no activity, for sweeps; see [`with_inactive_since`](Self::with_inactive_since).
    /// `None` for any.
    pub inactive_since: Option<Timestamp>,
    /// True to count all matching sessions, on all pages.
    ///
    /// The first page of such a list also reports missing sessions, which have existed but cannot be found. The store
    /// checks every session of the tenant, so the query costs more.
    pub with_total: bool,
    /// Maximum number of sessions on the page; 50 by default, at most 1,000. 0 returns an empty page without a next
    /// one.
    pub limit: usize,
    /// Start of the page.
    pub cursor: Option<Cursor>,
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self {
            workspace: None,
            owner: None,
            states: Vec::new(),
            labels: BTreeMap::new(),
            creator: None,
            parent: None,
            due: None,
            inactive_since: None,
            with_total: false,
            limit: 50,
            cursor: None,
        }
    }
}

impl SessionQuery {
    /// Creates a query for all sessions that are not hidden, 50 a page.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Selects sessions of this workspace only.
        pub fn with_workspace(id: WorkspaceId) => workspace = Some(id);

        /// Selects sessions of this owner only.
        pub fn with_owner(owner: OwnerId) => owner = Some(owner);

        /// Selects sessions in one of these states only.
        pub fn with_states(states: impl IntoIterator<Item = SessionState>) => states = states.into_iter().collect();
    }

    /// Selects sessions in any state, hidden ones included.
    pub fn with_hidden(self) -> Self {
        self.with_states(SessionState::ALL.iter().copied())
    }

    /// Selects sessions with this label only.
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    setters! {
        /// Selects sessions created by this actor only.
        pub fn with_creator(creator: Actor) => creator = Some(creator);

        /// Selects forks and children of this session only.
        pub fn with_parent(parent: SessionId) => parent = Some(parent);

        /// Selects sessions that are due by `until`, ordered by due time, earliest first; see [`SessionRecord::next_due_at`].
        ///
        /// These are sessions with waiting inputs or answers, due timers, failed runs whose next attempt is due, or
        /// expired questions, and finished children that were not reported to their parents.
        ///
        /// The list contains the sessions to check. Whether a session may run is decided when its run begins.
        pub fn with_due(until: Timestamp) => due = Some(until);

        /// Selects sessions whose last activity was before `until`, and those with
        /// [a time of their own](crate::model::Patch::with_inactive_after), whenever they were active.
        ///
        /// These are the sessions that a sweep looks at. One that gets or loses such a time while pages are read may be on
        /// two of them. In a bucket a page of them costs what it shows, however many sessions were active since.
        pub fn with_inactive_since(until: Timestamp) => inactive_since = Some(until);

        /// Counts all matching sessions, and lists missing ones.
        ///
        /// A page costs what it shows; a total counts all that match, so its cost grows with them. The stores in memory and in
        /// files look at each session of the query's workspace, or of the tenant. SQLite counts rows. A bucket
        /// reads the newest commit of each session that may match, one or two requests for each, and keeps the ids of those in
        /// memory: ask once, not with each page.
        pub fn with_total() => with_total = true;

        /// Sets the maximum number of sessions on the page.
        pub fn with_limit(limit: usize) => limit = limit.min(PAGE_MAX);

        /// Sets the start of the page.
        pub fn with_cursor(cursor: Option<Cursor>) => cursor = cursor;
    }

    /// Returns the query as an encrypted store asks it of the one around which it is: with the marks of labels that `label` gives, as
    /// [`Sealing::label`](crate::sealing::Sealing::label) does.
    pub fn with_marked_labels(mut self, label: impl Fn(&str, Option<&str>) -> String) -> Self {
        let labels = std::mem::take(&mut self.labels);
        self.labels = labels.into_iter().map(|(key, value)| marked_label(&label, key, value)).collect();
        self
    }

    /// Returns whether a session matches the query.
    #[doc(alias = "wants")]
    pub fn matches(&self, session: &SessionSummary) -> bool {
        let state = session.status.state;
        let shown = if self.states.is_empty() { !state.is_hidden() } else { self.states.contains(&state) };
        shown
            && self.workspace.is_none_or(|workspace| session.workspace == workspace)
            && self.owner.as_ref().is_none_or(|owner| session.owner.as_ref() == Some(owner))
            && self.labels.iter().all(|(key, value)| session.attributes.labels.get(key) == Some(value))
            && self.creator.as_ref().is_none_or(|creator| session.creator == *creator)
            && self.parent.is_none_or(|parent| session.origin.parent() == Some(parent))
            && self.due.is_none_or(|until| session.next_due_at.is_some_and(|at| at <= until))
            && self.inactive_since.is_none_or(|until| {
                session.last_active_at < until || session.attributes.labels.contains_key(INACTIVE_AFTER_LABEL)
            })
    }

    /// For backends: sorts sessions in the list's order.
    pub fn sort(&self, sessions: &mut [SessionSummary]) {
        sessions.sort_by_key(|session| (self.place(session), session.id));
        if self.due.is_none() {
            sessions.reverse();
        }
    }

    /// Returns the time by which the list is ordered, before the id: latest first, or earliest first in a list of due
    /// sessions.
    fn place(&self, session: &SessionSummary) -> Timestamp {
        match self.due {
            Some(_) => session.next_due_at.unwrap_or(Timestamp::UNIX_EPOCH),
            None => session.last_active_at,
        }
    }

    /// Returns the fingerprint by which a cursor recognizes its query.
    pub fn fingerprint(&self) -> u64 {
        // A field that a later version adds is left out if it is not set, so that stored cursors stay valid.
        let mut print = Fingerprint::of("sessions")
            .field("workspace", self.workspace.map(|id| id.as_uuid().to_string()))
            .field("owner", self.owner.as_ref().map(OwnerId::as_str))
            .field("creator", self.creator.as_ref().map(Actor::to_string))
            .field("parent", self.parent.map(|id| id.to_string()))
            .field("due", self.due.map(|at| at.as_micros().to_string()))
            .field("inactive", self.inactive_since.map(|at| at.as_micros().to_string()));
        let states: BTreeSet<_> = self.states.iter().map(|state| state.as_str()).collect();
        if states.len() == SessionState::ALL.len() {
            // A later version may have more states.
            print = print.field("states", Some("all"));
        } else {
            print = states.into_iter().fold(print, |print, state| print.field("state", Some(state)));
        }
        for (key, value) in &self.labels {
            print = print.field("label", Some(key)).field("value", Some(value));
        }
        print.finish()
    }

    /// For backends that hold all summaries in memory: returns the page of the matching ones, given in any order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    /// use agent_core::session::SessionSummary;
    /// use agent_core::store::SessionQuery;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let summaries = vec![SessionSummary::from(&*session)];
    /// let query = SessionQuery::new();
    /// assert!(query.matches(&summaries[0]));
    /// assert_eq!(query.page(summaries)?.items[0].id, session.id);
    /// # Ok(()) }
    /// ```
    pub fn page(&self, sessions: impl IntoIterator<Item = SessionSummary>) -> Result<Page<SessionSummary>> {
        let print = self.fingerprint();
        let after = self.cursor.as_ref().map(|cursor| cursor.recent_key::<SessionId>(print)).transpose()?;
        let is_after = if self.due.is_some() { Ordering::is_gt } else { Ordering::is_lt };
        let limit = self.limit.min(PAGE_MAX);
        let (mut found, mut total) = (Vec::new(), 0);
        for session in sessions.into_iter().filter(|session| self.matches(session)) {
            total += 1;
            if after.is_none_or(|after| is_after((self.place(&session), session.id).cmp(&after))) {
                found.push(session);
            }
            // Holds at most about twice as many sessions as the page.
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
        self.with_cursor(Some(cursor))
    }
}

/// Request to remove the bytes of a deleted session. Events that living forks read are kept in any case.
///
/// ```
/// use agent_core::Seq;
/// use agent_core::clock::Effects;
/// use agent_core::store::Purge;
///
/// let session = Effects::default().new_session_id();
/// let purge = Purge::new(session, Seq::new(40)).with_rewrite().with_keep_through(Seq::new(10));
/// assert_eq!((purge.rewrite, purge.keep_through), (true, Seq::new(10)));
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purge {
    /// Id of the session.
    pub session: SessionId,
    /// Head of the session at the time of the decision.
    pub head: Seq,
    /// Last event that is kept in any case, whether a fork reads it or not; a fork that reads more keeps more. Zero by
    /// default, which keeps none.
    pub keep_through: Seq,
    /// True to also remove copies of the bytes in unused parts of the store's files, at once, if necessary by rewriting a
    /// whole file; see [`with_rewrite`](Self::with_rewrite). False by default.
    pub rewrite: bool,
    /// Name that the tombstone has in the place of its owner's; `None` by default, which keeps the owner.
    pub pseudonym: Option<OwnerId>,
}

impl Purge {
    /// Creates a request to remove all events of `session` that no living fork reads.
    pub fn new(session: SessionId, head: Seq) -> Self {
        Self { session, head, keep_through: Seq::ZERO, rewrite: false, pseudonym: None }
    }

    /// For backends: checks that the session is deleted, and that its head is still the given one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the session is not deleted, `Conflict` if its head is another one.
    pub fn check(&self, now: &SessionRecord) -> Result<()> {
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

    setters! {
        /// Also removes copies of the bytes in unused parts of the store's files, at once.
        ///
        /// A store that moves events within a shared file may have left copies of them there, which no one can read
        /// through the store. Without this flag, such a store reports
        /// [`rewrite_pending`](Purged::rewrite_pending), and the copies stay until
        /// [`maintain`](Maintenance::maintain). With it, the store rewrites the file in this call: the cost grows with the
        /// whole file, and other writers wait. A store that leaves no such copies ignores the flag.
        pub fn with_rewrite() => rewrite = true;

        /// Keeps the events up to `keep` in any case.
        pub fn with_keep_through(keep: Seq) => keep_through = keep;

        /// Also replaces the owner's name in the tombstone, for an erasure. A session without an owner gets none.
        ///
        /// Nobody is this owner, so that the session is absent to every owner from then on, and no list of the owner has it. A purge
        /// of a session that was purged before does so, too; one without a pseudonym changes no owner.
        pub fn with_pseudonym(name: OwnerId) => pseudonym = Some(name);
    }

    /// For backends: returns what remains of the record: its [tombstone](SessionRecord::tombstone), with the pseudonym if there is one.
    #[must_use]
    pub fn tombstone_of(&self, session: &SessionRecord) -> SessionRecord {
        let mut tombstone = session.tombstone();
        if let (Some(owner), Some(name)) = (&mut tombstone.owner, &self.pseudonym) {
            owner.clone_from(name);
        }
        tombstone
    }
}

/// Result of a purge.
///
/// ```
/// use agent_core::store::Purged;
///
/// let purged = Purged::new(40);
/// assert_eq!((purged.events, purged.rewrite_pending), (40, false));
/// assert!(purged.with_rewrite_pending(true).rewrite_pending);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Purged {
    /// Number of removed events.
    pub events: u64,
    /// True if copies of bytes that this call or an earlier one removed may be in unused parts of the store's files, until
    /// [`maintain`](Maintenance::maintain) rewrites them. No call of the store returns such a copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewrite_pending: bool,
}

impl Purged {
    /// Creates the result for this number of removed events, of which no copy is left.
    pub const fn new(events: u64) -> Self {
        Self { events, rewrite_pending: false }
    }

    /// Sets whether copies of removed bytes may be left.
    #[must_use]
    pub const fn with_rewrite_pending(mut self, pending: bool) -> Self {
        self.rewrite_pending = pending;
        self
    }
}

words! {
    /// Scope in which handles on a store behave like one.
    Scope {
        /// Handles in one process.
        Process = "process",
        /// Handles on one machine.
        Host = "host",
        /// Handles on any machine.
        Network = "network",
    } newer = None
}

words! {
    /// Failures that an acknowledged write survives.
    Durability {
        /// None: the data is lost with the process.
        None = "none",
        /// End of the process, also by `kill -9`.
        ProcessCrash = "process_crash",
        /// Loss of power.
        PowerLoss = "power_loss",
    } newer = None
}

words! {
    /// Delay after which a list shows a write.
    Consistency {
        /// None: a list shows a write once it is acknowledged.
        Immediate = "immediate",
        /// Some: a list shows a write later.
        Eventual = "eventual",
    } newer = None
}

/// Second wall, beside this library, between the tenants of a store and between the owners of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// Nothing: a defect of the library, or of a program beside it, may show one the data of another.
    #[default]
    None,
    /// The database, which shows rows of the tenant and the owner of a call, and no others.
    Database,
}

/// Guarantees of a store. Tests, callers and the documentation use this one struct.
///
/// ```
/// use std::time::Duration;
/// use agent_core::store::{Capabilities, Consistency, Durability, Scope};
///
/// let guarantees = Capabilities::new(Scope::Network, Durability::PowerLoss)
///     .with_listing(Consistency::Eventual)
///     .with_recency(Duration::from_secs(60));
/// assert!(guarantees.durability >= Durability::ProcessCrash);
/// assert_eq!(guarantees.suite, Capabilities::SUITE);
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Capabilities {
    /// Scope in which handles behave like one.
    pub scope: Scope,
    /// Failures that an acknowledged write survives.
    pub durability: Durability,
    /// Delay after which a list shows a write.
    pub listing: Consistency,
    /// Maximum delay of the order of lists behind `last_active_at` of sessions and `last_accessed` of workspaces; in JSON,
    /// `recency_ms` in milliseconds. A runtime records the use of a workspace once in this time.
    #[serde(rename = "recency_ms", with = "millis")]
    pub recency: Duration,
    /// Shortest ttl of a lease that is sensible on this store; in JSON, `min_lease_ms` in milliseconds.
    ///
    /// A store whose heartbeats cost money or time names one; zero for all others. The store takes shorter leases, too.
    /// A runtime raises the ttl of its leases to it, and thus the time after which the session of a lost holder is
    /// continued, unless the store [proves it dead](crate::store::LeaseStatus::holder_proven_dead).
    #[serde(rename = "min_lease_ms", with = "millis")]
    pub min_lease: Duration,
    /// Maximum number of bytes of a blob; 0 if the store has no blobs, and refuses them as `Unsupported`.
    pub blob_max_bytes: u64,
    /// Newest level of the public conformance suite that the store passes.
    pub suite: u32,
    /// Second wall between tenants, and between owners, beside this library.
    #[serde(default)]
    pub isolation: Isolation,
}

impl Capabilities {
    /// Newest level of the public conformance suite.
    pub const SUITE: u32 = 1;

    /// Creates the guarantees of a store with this scope and durability, whose lists are immediate and exact, which has
    /// no blobs, and on which a lease of any ttl is sensible.
    pub const fn new(scope: Scope, durability: Durability) -> Self {
        Self {
            scope,
            durability,
            listing: Consistency::Immediate,
            recency: Duration::ZERO,
            min_lease: Duration::ZERO,
            blob_max_bytes: 0,
            suite: Self::SUITE,
            isolation: Isolation::None,
        }
    }

    /// Sets the delay after which a list shows a write.
    pub const fn with_listing(mut self, listing: Consistency) -> Self {
        self.listing = listing;
        self
    }

    /// Sets the maximum number of bytes of a blob, at most [`BLOB_MAX_BYTES`].
    pub const fn with_blobs(mut self, most: u64) -> Self {
        self.blob_max_bytes = if most < BLOB_MAX_BYTES { most } else { BLOB_MAX_BYTES };
        self
    }

    setters! {
        /// Sets the maximum delay of the order of lists.
        pub const fn with_recency(recency: Duration) => recency = recency;

        /// Sets the shortest ttl of a lease that is sensible on this store.
        pub const fn with_min_lease(ttl: Duration) => min_lease = ttl;

        /// Sets the second wall between tenants and between owners.
        pub const fn with_isolation(isolation: Isolation) => isolation = isolation;
    }
}
