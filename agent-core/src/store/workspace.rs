//! The trait that a backend implements for workspaces.

use std::fmt;
use std::fmt::Debug;
use std::future::Future;

use async_trait::async_trait;

use crate::base::{Error, ErrorKind, Result, Revision, Timestamp, WorkspaceId};
use crate::commit::Expect;
use crate::model::{Workspace, WorkspaceStatus};
use crate::store::page::{Cursor, Fingerprint, PAGE_MAX, Page, PageQuery};

/// Keeps workspaces and their configuration.
///
/// # Contract
///
/// A handle is bound to one tenant. A record and its areas exist together or not at all, at every moment and after
/// any crash. `Corrupt` is never reported as absent and never overwritten.
///
/// # Cancel safety
///
/// Every method may be dropped at any point; a dropped write happened wholly or not at all, or is still happening.
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
    /// The record of a workspace.
    ///
    /// # Errors
    ///
    /// `NotFound` where there was never such a workspace, `Deleted` where there was.
    async fn load(&self, id: WorkspaceId) -> Result<Workspace>;

    /// Creates (`Expect::Absent`) or replaces a record; durable on return. Returns it with its new revision, one more
    /// than the former. `last_accessed` never steps back.
    ///
    /// # Errors
    ///
    /// `Conflict` where the expectation does not hold; `NotFound` for anything but `Absent` where there is none;
    /// `Deleted` for the id of a deleted workspace; `InvalidInput`, `LimitExceeded`.
    async fn put(&self, workspace: Workspace, expect: Expect<Revision>) -> Result<Workspace>;

    /// Notes that the workspace was used at `at`: keeps the later of this and what is there, and changes neither the
    /// revision nor what a concurrent `load` may see of the rest. May be coalesced, and lost in a crash.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted`.
    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()>;

    /// Workspaces by last access, the latest first; damaged ones are named on the page.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>>;

    /// Deletes the workspace's record, configuration and areas; a tombstone stays, and the id is never used again.
    /// Its sessions and bindings are the manager's to remove first. Deleting twice is fine.
    ///
    /// # Errors
    ///
    /// `NotFound` where there was never such a workspace.
    async fn delete(&self, id: WorkspaceId) -> Result<()>;

    /// The workspace's own configuration as text; `None` where it has none.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Deleted` for the workspace.
    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>>;

    /// Replaces the workspace's own configuration, or removes it with `None`; durable on return. People edit it too,
    /// so the expectation is a hash of what the caller has read.
    ///
    /// # Errors
    ///
    /// `Conflict` where the expectation does not hold; `NotFound`, `Deleted` for the workspace; `LimitExceeded` over
    /// [`ContentHash::CONFIG_MAX_BYTES`].
    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Expect<ContentHash>,
    ) -> Result<()>;

    /// Closes the backend of this store, as [`SessionStore::close`](crate::store::session::SessionStore::close) does. As provided
    /// it does nothing.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Conveniences for every [`WorkspaceStore`]; not to be implemented.
pub trait WorkspaceStoreExt: WorkspaceStore {
    /// Creates a workspace; changes nothing where its id exists.
    ///
    /// # Errors
    ///
    /// `Conflict` where it exists.
    fn create(&self, workspace: Workspace) -> impl Future<Output = Result<Workspace>> + Send {
        self.put(workspace, Expect::Absent)
    }

    /// Replaces a record that was loaded, if nobody else has meanwhile.
    ///
    /// # Errors
    ///
    /// `Conflict` where somebody has: load again.
    fn update(&self, workspace: Workspace) -> impl Future<Output = Result<Workspace>> + Send {
        let revision = workspace.revision;
        self.put(workspace, Expect::Is(revision))
    }
}

impl<T: WorkspaceStore + ?Sized> WorkspaceStoreExt for T {}

/// A hash of a text that people edit too: tells whether it is still what was read. Guards against
/// mistakes, not against malice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash(u64, u64);

impl ContentHash {
    /// The most bytes that a configuration may have.
    pub const CONFIG_MAX_BYTES: usize = 1 << 20;

    /// The hash of a text: FNV-1a in 64 bits, and the length.
    pub fn of(text: &str) -> Self {
        Self(Fingerprint::of(text).finish(), text.len() as u64)
    }

    /// For backends: refuses a configuration that is too large.
    ///
    /// # Errors
    ///
    /// `LimitExceeded`.
    pub fn check_size(text: Option<&str>) -> Result<()> {
        match text.map(str::len) {
            Some(bytes) if bytes > Self::CONFIG_MAX_BYTES => Err(Error::limit(format!(
                "a configuration of {bytes} bytes; at most {} are kept",
                Self::CONFIG_MAX_BYTES
            ))),
            _ => Ok(()),
        }
    }

    /// For backends: checks `expect` against the text that is there.
    ///
    /// # Errors
    ///
    /// `Conflict` where it does not hold.
    pub fn check(expect: Expect<Self>, now: Option<&str>, object: &dyn fmt::Display) -> Result<()> {
        let holds = match expect {
            Expect::Any => true,
            Expect::Absent => now.is_none(),
            Expect::Is(hash) => now.map(Self::of) == Some(hash),
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

/// Which workspaces to list.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkspaceQuery {
    /// Whether to list those whose deletion has begun too.
    pub with_deleting: bool,
    /// Whether to count all that match, on all pages.
    pub with_total: bool,
    /// The most on the page; at most 1,000. 0 gives an empty page, without a next one.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<Cursor>,
}

impl Default for WorkspaceQuery {
    fn default() -> Self {
        Self { with_deleting: false, with_total: false, limit: 50, cursor: None }
    }
}

impl WorkspaceQuery {
    /// All that are in use, 50 a page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those whose deletion has begun too.
    pub fn with_deleting(mut self) -> Self {
        self.with_deleting = true;
        self
    }

    /// Counts all that match.
    pub fn with_total(mut self) -> Self {
        self.with_total = true;
        self
    }

    /// Sets the most on the page.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit.min(PAGE_MAX);
        self
    }

    /// Starts the page here.
    pub fn cursor(mut self, cursor: Option<Cursor>) -> Self {
        self.cursor = cursor;
        self
    }

    /// By what a cursor knows that it belongs to this query.
    pub fn fingerprint(&self) -> u64 {
        let deleting = self.with_deleting.then_some("deleting");
        Fingerprint::of("workspaces").field("with", deleting).finish()
    }

    /// For backends that hold all records at hand: the page of those that match, from any order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub fn page(&self, workspaces: impl IntoIterator<Item = Workspace>) -> Result<Page<Workspace>> {
        let print = self.fingerprint();
        let after = self.cursor.as_ref().map(|cursor| cursor.recent_key::<WorkspaceId>(print)).transpose()?;
        let mut found: Vec<_> = workspaces
            .into_iter()
            .filter(|workspace| self.with_deleting || workspace.status == WorkspaceStatus::Active)
            .collect();
        let total = self.with_total.then_some(found.len() as u64);
        found.sort_by_key(|workspace| std::cmp::Reverse((workspace.last_accessed, workspace.id)));
        if let Some(after) = after {
            found.retain(|workspace| (workspace.last_accessed, workspace.id) < after);
        }
        let cursor = |last: &Workspace| Cursor::after_recent(print, last.last_accessed, last.id);
        Ok(Page::first(found, self.limit, cursor).with_total(total))
    }
}

impl PageQuery for WorkspaceQuery {
    fn starting_at(self, cursor: Cursor) -> Self {
        self.cursor(Some(cursor))
    }
}
