//! Erasure of a session: deletion and removal of its bytes in one call.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use serde::Serialize;
use tracing::instrument;

use crate::manager::WorkspaceManager;
use crate::retention::has_events;
use crate::retention::lease::is_abandoned;
use agent_core::model::Lease;
use agent_core::session::SessionRecord;
use agent_core::store::{NeededBy, Purge, needed_by_forks};
use agent_core::{Error, ErrorKind, Result, SessionId};

/// Result of the erasure of a session.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Erasure {
    /// Number of events that this call removed.
    pub events: u64,
    /// Number of bytes of content that this call removed, as the [record](agent_core::session::SessionRecord::content_bytes) counts them: messages, results of
    /// tools, reasoning and blobs. 0 if events are kept for a fork, and of those also when they
    /// go later. The disk has some more free, once the store has given the
    /// place back.
    pub bytes: u64,
    /// Session that still reads a part of the events; `None` if nothing is left.
    ///
    /// It was forked from the erased one, or from a deleted fork of it. Erase it, then erase the first session again.
    pub needed_by: Option<SessionId>,
    /// True if copies of erased bytes may be in unused parts of the store's files, until
    /// [`maintain`](agent_core::store::Maintenance::maintain) rewrites them. No call of the store returns such a copy. False
    /// after an erasure [`now`](Erase::now), and on each store but SQLite.
    pub rewrite_pending: bool,
}

impl Erasure {
    /// Returns the result of both erasures together; `later` was done after this one.
    pub fn and(self, later: Self) -> Self {
        Self {
            events: self.events + later.events,
            bytes: self.bytes.saturating_add(later.bytes),
            needed_by: self.needed_by.or(later.needed_by),
            rewrite_pending: later.rewrite_pending,
        }
    }
}

/// Erasure that begins when it is awaited.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let agent = echo_agent()?;
/// let chat = agent.conversation("support/4711").await?;
/// let erased = chat.erase().now().await?;
/// assert!(!erased.rewrite_pending);
/// # Ok(()) }
/// ```
#[must_use = "an erasure begins when it is awaited"]
pub struct Erase<'a> {
    begin: Box<dyn FnOnce(bool) -> BoxFuture<'a, Result<Erasure>> + Send + 'a>,
    now: bool,
}

impl<'a> Erase<'a> {
    /// Creates an erasure of a function, that receives whether to rewrite files at once.
    pub fn new<F: Future<Output = Result<Erasure>> + Send + 'a>(
        begin: impl FnOnce(bool) -> F + Send + 'a,
    ) -> Self {
        Self { begin: Box::new(move |now| Box::pin(begin(now))), now: false }
    }

    /// Also removes the copies of erased bytes in unused parts of the store's files before the call returns.
    ///
    /// On SQLite this [rewrites the whole file](agent_core::store::Purge::with_rewrite) if a rewrite is pending, which takes
    /// several seconds for each gigabyte, during which other writers wait, and needs free space of up to twice the file's
    /// size. For a host that must prove the erasure. To erase many sessions, erase all but the last without it.
    pub fn now(mut self) -> Self {
        self.now = true;
        self
    }
}

impl<'a> IntoFuture for Erase<'a> {
    type Output = Result<Erasure>;
    type IntoFuture = BoxFuture<'a, Result<Erasure>>;

    fn into_future(self) -> Self::IntoFuture {
        (self.begin)(self.now)
    }
}

impl fmt::Debug for Erase<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Erase").field("now", &self.now).finish_non_exhaustive()
    }
}

impl WorkspaceManager {
    /// Erases a session: deletes it and removes its bytes from the store, in one call.
    ///
    /// The call removes all events, the title, labels, metadata, references and documents, and everything that the store
    /// derives from them. When the call returns, no call of the store returns a text of the session, and no file of the
    /// file store, no row of the SQLite file and no object of the bucket holds one, except:
    ///
    /// - in SQLite, copies of rows that it has moved earlier, in unused parts of the file, and in its write-ahead log
    ///   while other processes read it. The result says [`rewrite_pending`](Erasure::rewrite_pending) then, until
    ///   [`maintain`](agent_core::store::Maintenance::maintain) rewrites the file. [`now`](Erase::now) does that before the call
    ///   returns;
    /// - events that living forks read; the result names one of these forks;
    /// - the [tombstone](agent_core::session::SessionRecord::tombstone): ids, state, origin, times and counts. The id of a
    ///   [conversation by a key](agent_core::session::ConversationKey) is a hash of the key, so a reader who guesses the
    ///   key can tell that there was a conversation;
    /// - texts in other sessions: the task of a child, the report to a parent, a salvaged copy,
    ///   [areas](crate::files::WorkspaceFiles) and [learnings](crate::learnings::Learnings);
    /// - exports, backups and copies of the store, versions that a bucket keeps of overwritten objects, and blocks of
    ///   the disk that belong to no file.
    ///
    /// The sessions that it has [superseded](Self::superseded) are erased with it. A damaged session is erased, too. The call can be repeated, also after an error or a crash at any step; it then
    /// removes the rest, for example events that a fork needed until then.
    ///
    /// The cost is that of a deletion and a [purge](Self::purge).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (storage, _, manager) = two_storages();
    /// # manager.default_workspace().await?;
    /// let id = manager.new_session(WorkspaceId::DEFAULT, &Patch::new().with_label("user", "ann")).await?.id;
    /// storage.sessions.append(id, Seq::ZERO, vec![NewEvent::user_message("my address")]).await?;
    ///
    /// let erased = manager.erase(id).now().await?;
    /// assert_eq!((erased.events, erased.needed_by, erased.rewrite_pending), (3, None, false));
    /// assert!(storage.sessions.read(id, ReadEvents::first(10)).await?.events.is_empty());
    /// assert!(storage.sessions.load(id).await?.attributes.labels.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, the session may be deleted, and a part of its bytes may be left;
    /// call it again.
    ///
    /// # Errors
    ///
    /// - `NotFound`; `InvalidInput` for a [hidden session](agent_core::store::HiddenSession).
    /// - `Busy` if a living holder runs or prepares the session: interrupt it first. A silent holder is watched for one
    ///   ttl of its lease.
    /// - `Corrupt` if damaged data may be a fork that reads its events: the session is deleted, and no byte is removed.
    /// - `Unavailable` on SQLite, of an erasure [`now`](Erase::now), if other processes read or wrote for too long: the
    ///   session is deleted, and copies of its bytes may be left.
    /// - Errors of [`delete_session`](Self::delete_session).
    pub fn erase(&self, id: SessionId) -> Erase<'_> {
        Erase::new(move |now| self.erase_unless_held(id, now, |_| false))
    }

    /// Erases a session, with a rewrite of files if `now` is true. A lease for which `is_own` returns true does not
    /// protect it.
    ///
    /// # Errors
    ///
    /// Errors of [`erase`](Self::erase).
    #[instrument(name = "erase", skip(self, is_own))]
    pub async fn erase_unless_held(
        &self,
        id: SessionId,
        now: bool,
        is_own: impl Fn(&Lease) -> bool + Send + Sync,
    ) -> Result<Erasure> {
        let (session, former) = self.with_superseded(id).await?;
        // The lease of a damaged record is unknown; the deletion fences its run.
        if let Some(session) = &session {
            self.check_free(session.clone(), is_own).await?;
        }
        self.delete_all(id, session.as_deref(), &former).await?;
        // Each reads a part of those that it has superseded.
        let mut erased = self.purge_deleted(id, now && former.is_empty()).await?;
        for (n, session) in (1..).zip(&former) {
            erased = erased.and(self.purge_deleted(session.id, now && n == former.len()).await?);
        }
        Ok(erased)
    }

    /// Removes the bytes of a deleted session.
    async fn purge_deleted(&self, id: SessionId, now: bool) -> Result<Erasure> {
        let sessions = &*self.storage.sessions;
        let deleted = sessions.load(id).await?;
        let purge = Purge::new(id, deleted.head);
        let purged = sessions.purge(if now { purge.with_rewrite() } else { purge }).await?;
        // Usually no event is left, and no search for forks is needed.
        let needed_by = match has_events(sessions, id).await? {
            true => match needed_by_forks(sessions, &deleted).await?.by {
                Some(NeededBy::Fork(fork)) => Some(fork),
                // The fork was deleted meanwhile, or the purge would have failed.
                _ => None,
            },
            false => None,
        };
        let bytes = if needed_by.is_none() { deleted.content_bytes.total() } else { 0 };
        Ok(Erasure { events: purged.events, bytes, needed_by, rewrite_pending: purged.rewrite_pending })
    }

    /// Refuses a session whose lease is held by a living holder, unless the lease is the caller's own.
    pub(crate) async fn check_free(
        &self,
        now: Arc<SessionRecord>,
        is_own: impl Fn(&Lease) -> bool + Send + Sync,
    ) -> Result<()> {
        let is_free = |now: &SessionRecord| now.lease.as_ref().is_none_or(&is_own);
        if is_free(&now) || is_abandoned(&*self.storage.sessions, &now).await? {
            return Ok(());
        }
        // Its run may have ended meanwhile.
        let now = self.storage.sessions.load(now.id).await?;
        match &now.lease {
            Some(lease) if !is_own(lease) => Err(held(now.id, lease)),
            _ => Ok(()),
        }
    }
}

fn held(id: SessionId, lease: &Lease) -> Error {
    let holder = &lease.holder;
    Error::new(
        ErrorKind::Busy { holder: holder.clone() },
        format!(
            "session {id} is run by {holder} and was not erased; interrupt the run or wait for its end, then erase the session"
        ),
    )
}
