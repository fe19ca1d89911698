//! Trait that a backend implements for workspaces.

use std::fmt;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;

use serde::{Deserialize, Serialize};

use crate::base::sealed::most_stored;
use crate::base::{Error, ErrorKind, OwnerId, Result, Revision, Timestamp, WorkspaceId};
use crate::commit::Precondition;
use crate::model::{Workspace, WorkspaceStatus};
use crate::setters;
use crate::store::page::{Cursor, Fingerprint, PAGE_MAX, Page, PageQuery};

/// Store of workspaces and their configuration.
///
/// # Contract
///
/// A handle belongs to one tenant. A record and its areas exist together or not at all, at every moment and after any
/// crash. `Corrupt` data is never reported as absent and never overwritten.
///
/// # Cancel safety
///
/// Every method may be dropped at any point; a dropped write was applied completely or not at all, or is still
/// running.
///
/// # Errors
///
/// As for [`SessionStore`](crate::store::session::SessionStore#errors).
///
/// # Wrappers
///
/// A wrapper forwards every method.
#[async_trait]
pub trait WorkspaceStore: Debug + Send + Sync + 'static {
    /// Returns the record of a workspace.
    ///
    /// # Errors
    ///
    /// `NotFound` if there was never such a workspace, `Deleted` if it was deleted.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{MemoryStore, WorkspaceStore};
    ///
    /// # let (store, effects, workspace) = workspace().await?;
    /// assert_eq!(store.load(WorkspaceId::DEFAULT).await?.name, "Travel");
    /// assert!(store.load(effects.new_workspace_id()).await.unwrap_err().is_absent());
    /// # Ok(()) }
    /// ```
    async fn load(&self, id: WorkspaceId) -> Result<Workspace>;

    /// Creates (`Precondition::MustNotExist`) or replaces a record; durable on return.
    ///
    /// Returns the record with its new revision, which is one more than the previous one. `last_accessed` never steps
    /// back.
    ///
    /// # Errors
    ///
    /// `Conflict` if the precondition does not hold; `NotFound` for any other precondition than `MustNotExist`
    /// if there is no record; `Deleted` for the id of a deleted workspace; `InvalidInput` and `LimitExceeded` for an
    /// invalid record.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::Revision;
    /// use agent_core::commit::Precondition;
    /// use agent_core::{MemoryStore, WorkspaceStore};
    ///
    /// # let (store, new) = (MemoryStore::new(), new_workspace());
    /// let workspace = store.put(new, Precondition::MustNotExist).await?;
    /// let renamed = workspace.with_name("Trips");
    /// let stored = store.put(renamed.clone(), Precondition::Matches(Revision::new(1))).await?;
    /// assert_eq!(stored.revision, Revision::new(2));
    /// // Somebody else has changed the record since revision 1.
    /// assert!(store.put(renamed, Precondition::Matches(Revision::new(1))).await.is_err());
    /// # Ok(()) }
    /// ```
    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace>;

    /// Records that the workspace was used at `at`.
    ///
    /// Keeps the later of `at` and the stored time. Changes neither the revision nor the rest of what a concurrent
    /// `load` returns. Calls may be merged, and lost in a crash.
    ///
    /// # Errors
    ///
    /// `NotFound` if there was never such a workspace, `Deleted` if it was deleted.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{MemoryStore, WorkspaceStore};
    ///
    /// # let (store, effects, workspace) = workspace().await?;
    /// let later = workspace.last_accessed.plus_micros(60_000_000);
    /// store.touch(workspace.id, later).await?;
    /// assert_eq!(store.load(workspace.id).await?.last_accessed, later);
    /// # Ok(()) }
    /// ```
    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()>;

    /// Returns a page of workspaces, ordered by last access, latest first; lists damaged ones on the page.
    ///
    /// The order is exact within a page. From page to page it may lag behind the last access by
    /// [`Capabilities::recency`](crate::store::Capabilities::recency), as that of sessions does: a workspace that was used
    /// within that time may be on a later page than its last access says. Workspaces that are not used while the pages are
    /// read are shown exactly once. A page costs what it shows; a [total](WorkspaceQuery::with_total) costs more.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{MemoryStore, WorkspaceStore};
    ///
    /// use agent_core::store::WorkspaceQuery;
    ///
    /// # let (store, effects, workspace) = workspace().await?;
    /// let page = store.list(WorkspaceQuery::new()).await?;
    /// assert_eq!(page.items, [workspace]);
    /// # Ok(()) }
    /// ```
    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>>;

    /// Deletes the workspace's record, configuration and areas. A tombstone stays, and the id is never used again.
    ///
    /// The manager removes the workspace's sessions and bindings before. A repeated deletion succeeds.
    ///
    /// # Errors
    ///
    /// `NotFound` if there was never such a workspace.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{MemoryStore, WorkspaceStore};
    ///
    /// use agent_core::ErrorKind;
    ///
    /// # let (store, effects, workspace) = workspace().await?;
    /// store.delete(workspace.id).await?;
    /// assert_eq!(*store.load(workspace.id).await.unwrap_err().kind(), ErrorKind::Deleted);
    /// # Ok(()) }
    /// ```
    async fn delete(&self, id: WorkspaceId) -> Result<()>;

    /// Returns the workspace's own configuration as text; `None` if it has none.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted` for the workspace.
    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>>;

    /// Returns the record of a workspace and its own configuration.
    ///
    /// The provided method reads the one and then the other; a store that keeps both in one place reads them at once.
    ///
    /// # Errors
    ///
    /// Those of [`load`](Self::load) and [`load_config`](Self::load_config).
    async fn load_with_config(&self, id: WorkspaceId) -> Result<(Workspace, Option<String>)> {
        Ok((self.load(id).await?, self.load_config(id).await?))
    }

    /// Replaces the workspace's own configuration, or removes it with `None`; durable on return.
    ///
    /// People edit the configuration too, so the precondition is a hash of what the caller has read.
    ///
    /// # Errors
    ///
    /// `Conflict` if the precondition does not hold; `NotFound`, `Deleted` for the workspace; `LimitExceeded` over
    /// [`ContentHash::CONFIG_MAX_BYTES`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{MemoryStore, WorkspaceStore};
    ///
    /// use agent_core::commit::Precondition;
    /// use agent_core::store::ContentHash;
    ///
    /// # let (store, effects, workspace) = workspace().await?;
    /// let text = "[agent]\nmodel = \"sonnet\"\n";
    /// store.save_config(workspace.id, Some(text.to_owned()), Precondition::MustNotExist).await?;
    /// // Replaces exactly the text that was read.
    /// let read = Precondition::Matches(ContentHash::of(text));
    /// store.save_config(workspace.id, None, read).await?;
    /// assert_eq!(store.load_config(workspace.id).await?, None);
    /// # Ok(()) }
    /// ```
    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()>;

    /// Returns this store narrowed to what one owner may use, if the backend itself keeps owners apart, like
    /// [`SessionStore::of_owner`](crate::store::session::SessionStore::of_owner). No I/O.
    fn of_owner(&self, owner: &OwnerId) -> Option<Arc<dyn WorkspaceStore>> {
        let _ = owner;
        None
    }

    /// Closes the backend of this store, like [`SessionStore::close`](crate::store::session::SessionStore::close).
    /// The default does nothing.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Extension methods of every [`WorkspaceStore`]; not to be implemented.
pub trait WorkspaceStoreExt: WorkspaceStore {
    /// Creates a workspace; changes nothing if its id exists.
    ///
    /// # Errors
    ///
    /// `Conflict` if the id exists.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::WorkspaceStoreExt;
    /// use agent_core::MemoryStore;
    ///
    /// # let (store, new) = (MemoryStore::new(), new_workspace());
    /// let workspace = store.create(new.clone()).await?;
    /// assert_eq!(workspace.name, "Travel");
    /// assert!(store.create(new).await.is_err());
    /// # Ok(()) }
    /// ```
    fn create(&self, workspace: Workspace) -> impl Future<Output = Result<Workspace>> + Send {
        self.put(workspace, Precondition::MustNotExist)
    }

    /// Replaces a loaded record, if it has not changed since it was loaded.
    ///
    /// # Errors
    ///
    /// `Conflict` if the record has changed: load it again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::WorkspaceStoreExt;
    /// use agent_core::MemoryStore;
    ///
    /// # let (store, effects, workspace) = workspace().await?;
    /// store.update(workspace.clone().with_name("Trips")).await?;
    /// // The record has changed since it was loaded.
    /// assert!(store.update(workspace.with_name("Journeys")).await.is_err());
    /// # Ok(()) }
    /// ```
    fn update(&self, workspace: Workspace) -> impl Future<Output = Result<Workspace>> + Send {
        let revision = workspace.revision;
        self.put(workspace, Precondition::Matches(revision))
    }
}

impl<T: WorkspaceStore + ?Sized> WorkspaceStoreExt for T {}

/// Hash of a text that people edit too; detects whether the text is still what was read. Protects against mistakes,
/// not against attacks.
///
/// ```
/// use agent_core::commit::Precondition;
/// use agent_core::store::ContentHash;
///
/// let read = ContentHash::of("model = 1");
/// assert_ne!(read, ContentHash::of("model = 2"));
/// ContentHash::check_size(Some("model = 1"))?;
/// ContentHash::check(Precondition::Matches(read), Some("model = 1"), &"the configuration")?;
/// assert!(ContentHash::check(Precondition::Matches(read), Some("model = 2"), &"the configuration").is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash(u64, u64);

impl ContentHash {
    /// Maximum number of bytes of a configuration.
    pub const CONFIG_MAX_BYTES: usize = 1 << 20;

    /// Returns the hash of a text: FNV-1a in 64 bits, and the length.
    pub fn of(text: &str) -> Self {
        Self(Fingerprint::of(text).finish(), text.len() as u64)
    }

    /// For backends: refuses a configuration that is too large.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` over [`CONFIG_MAX_BYTES`](Self::CONFIG_MAX_BYTES).
    pub fn check_size(text: Option<&str>) -> Result<()> {
        let most = text.map_or(0, |text| most_stored(text, Self::CONFIG_MAX_BYTES));
        match text.map(str::len) {
            Some(bytes) if bytes > most => Err(Error::limit(format!(
                "a configuration of {bytes} bytes; at most {} are kept",
                Self::CONFIG_MAX_BYTES
            ))),
            _ => Ok(()),
        }
    }

    /// For backends: checks `expect` against the current text.
    ///
    /// # Errors
    ///
    /// `Conflict` if the precondition does not hold; `InvalidInput` for [`Precondition::None`].
    pub fn check(expect: Precondition<Self>, now: Option<&str>, object: &dyn fmt::Display) -> Result<()> {
        let holds = match expect {
            Precondition::None => return Err(expect.refused(object)),
            Precondition::MustExist => now.is_some(),
            Precondition::MustNotExist => now.is_none(),
            Precondition::Matches(hash) => now.map(Self::of) == Some(hash),
        };
        if holds {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict { head: None },
            format!("{object} is not what was read; load it again and merge the change"),
        ))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentHash({:016x}, {} bytes)", self.0, self.1)
    }
}

/// Query for a list of workspaces.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspace.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::{MemoryStore, WorkspaceStore};
///
/// use agent_core::store::WorkspaceQuery;
///
/// # let (store, effects, workspace) = workspace().await?;
/// let query = WorkspaceQuery::new().with_deleting().with_total().with_limit(20);
/// let first = store.list(query.clone()).await?;
/// assert_eq!((first.total, first.items.len()), (Some(1), 1));
/// let next = query.with_cursor(first.next);
/// # assert_eq!(next.cursor, None);
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkspaceQuery {
    /// Owner of the workspaces; `None` for any. See also [`with_unowned`](Self::with_unowned()).
    pub owner: Option<OwnerId>,
    /// True to include the workspaces without an owner beside those of [`owner`](field@Self::owner).
    pub with_unowned: bool,
    /// True to include workspaces whose deletion has begun.
    pub with_deleting: bool,
    /// True to count all matching workspaces, on all pages; see [`with_total`](Self::with_total()) for the cost.
    pub with_total: bool,
    /// Maximum number of workspaces on the page; 50 by default, at most 1,000. 0 returns an empty page without a next
    /// one.
    pub limit: usize,
    /// Start of the page.
    pub cursor: Option<Cursor>,
}

impl Default for WorkspaceQuery {
    fn default() -> Self {
        Self {
            owner: None,
            with_unowned: false,
            with_deleting: false,
            with_total: false,
            limit: 50,
            cursor: None,
        }
    }
}

impl WorkspaceQuery {
    /// Creates a query for all workspaces in use, 50 a page.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Selects workspaces of this owner only.
        pub fn with_owner(owner: OwnerId) => owner = Some(owner);

        /// Includes the workspaces without an owner beside those of the owner.
        pub fn with_unowned() => with_unowned = true;

        /// Includes workspaces whose deletion has begun.
        pub fn with_deleting() => with_deleting = true;

        /// Counts all matching workspaces.
        ///
        /// The cost grows with the number of workspaces of the tenant. The stores in memory and in files read all records for
        /// every page, so a total adds nothing. SQLite counts rows. A bucket reads the object of each workspace, one request
        /// for each: ask once, not with each page.
        pub fn with_total() => with_total = true;

        /// Sets the maximum number of workspaces on the page.
        pub fn with_limit(limit: usize) => limit = limit.min(PAGE_MAX);

        /// Sets the start of the page.
        pub fn with_cursor(cursor: Option<Cursor>) => cursor = cursor;
    }

    /// Returns the fingerprint by which a cursor recognizes its query.
    pub fn fingerprint(&self) -> u64 {
        let deleting = self.with_deleting.then_some("deleting");
        let unowned = (self.owner.is_some() && self.with_unowned).then_some("unowned");
        Fingerprint::of("workspaces")
            .field("with", deleting)
            .field("owner", self.owner.as_ref().map(OwnerId::as_str))
            .field("and", unowned)
            .finish()
    }

    /// Returns whether a workspace matches the query.
    pub fn matches(&self, workspace: &Workspace) -> bool {
        let owned = self.owner.as_ref().is_none_or(|owner| match &workspace.owner {
            Some(of) => of == owner,
            None => self.with_unowned,
        });
        owned && (self.with_deleting || workspace.status == WorkspaceStatus::Active)
    }

    /// For backends: sorts workspaces in the list's order.
    pub fn sort(&self, workspaces: &mut [Workspace]) {
        workspaces.sort_by_key(|workspace| std::cmp::Reverse((workspace.last_accessed, workspace.id)));
    }

    /// For backends that hold all records in memory: returns the page of the matching ones, given in any order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    ///
    /// ```
    /// use agent_core::WorkspaceId;
    /// use agent_core::clock::Effects;
    /// use agent_core::model::Workspace;
    /// use agent_core::store::WorkspaceQuery;
    ///
    /// # let effects = Effects::default();
    /// let (id, main) = (WorkspaceId::DEFAULT, effects.new_session_id());
    /// let named = |name: &str| Workspace::new(id, name, main, effects.now());
    /// let page = WorkspaceQuery::new().with_limit(1).with_total().page([named("Travel"), named("Work")])?;
    /// assert_eq!((page.items.len(), page.total), (1, Some(2)));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn page(&self, workspaces: impl IntoIterator<Item = Workspace>) -> Result<Page<Workspace>> {
        let print = self.fingerprint();
        let after = self.cursor.as_ref().map(|cursor| cursor.recent_key::<WorkspaceId>(print)).transpose()?;
        let mut found: Vec<_> = workspaces.into_iter().filter(|workspace| self.matches(workspace)).collect();
        let total = self.with_total.then_some(found.len() as u64);
        self.sort(&mut found);
        if let Some(after) = after {
            found.retain(|workspace| (workspace.last_accessed, workspace.id) < after);
        }
        let cursor = |last: &Workspace| Cursor::after_recent(print, last.last_accessed, last.id);
        Ok(Page::first(found, self.limit, cursor).with_total(total))
    }
}

impl PageQuery for WorkspaceQuery {
    fn starting_at(self, cursor: Cursor) -> Self {
        self.with_cursor(Some(cursor))
    }
}
