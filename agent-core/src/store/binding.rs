//! Device bindings: the workspace that each device belongs to.

use std::fmt::Debug;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::base::{DeviceId, Error, ErrorKind, Result, SessionId, WorkspaceId};
use crate::commit::Precondition;
use crate::setters;
use crate::store::page::{Cursor, Fingerprint, PAGE_MAX, Page, PageQuery};

/// Device binding: a device and the workspace that it is bound to.
///
/// ```
/// use agent_core::WorkspaceId;
/// use agent_core::store::Binding;
///
/// let binding = Binding::new("laptop".parse()?, WorkspaceId::DEFAULT);
/// assert_eq!(binding.device.as_str(), "laptop");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Binding {
    /// Id of the device.
    pub device: DeviceId,
    /// Id of the workspace.
    pub workspace: WorkspaceId,
}

impl Binding {
    /// Creates a binding of `device` to `workspace`.
    pub const fn new(device: DeviceId, workspace: WorkspaceId) -> Self {
        Self { device, workspace }
    }
}

/// Store of device bindings.
///
/// # Contract
///
/// A handle belongs to one tenant. A device is bound to one workspace or none. A binding is visible to every handle
/// and process as soon as the write returns, and is never lost by a concurrent write to another device's binding. A
/// damaged store is reported as `Corrupt`; its bytes are kept, and no later write erases them.
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
pub trait BindingStore: Debug + Send + Sync + 'static {
    /// Returns the workspace that `device` is bound to; `None` if it is bound to none.
    ///
    /// # Errors
    ///
    /// Only those of every method: an unknown device is no error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::WorkspaceId;
    /// # use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, DeviceId, MemoryStore};
    ///
    /// # let store = MemoryStore::new();
    /// let laptop: DeviceId = "laptop".parse()?;
    /// assert_eq!(store.resolve(&laptop).await?, None);
    /// store.bind(&laptop, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// assert_eq!(store.resolve(&laptop).await?, Some(WorkspaceId::DEFAULT));
    /// # Ok(()) }
    /// ```
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>>;

    /// Binds `device` to `to`, durable on return, and returns the workspace that it is bound to afterwards.
    ///
    /// With `Precondition::MustNotExist` the first caller wins, and every caller gets the winner's workspace: an
    /// existing binding is no error. With `Precondition::Matches(workspace)` the binding changes only if the device is
    /// bound to that workspace; with `Precondition::MustExist` it changes if there is one; with `Precondition::None` it
    /// always changes. Binding a device to its current workspace succeeds.
    ///
    /// # Errors
    ///
    /// `Conflict` if `Precondition::Matches` or `Precondition::MustExist` does not hold.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::clock::Effects;
    /// use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, DeviceId, MemoryStore};
    ///
    /// # let (store, effects) = (MemoryStore::new(), Effects::default());
    /// let (home, office) = (effects.new_workspace_id(), effects.new_workspace_id());
    /// let laptop: DeviceId = "laptop".parse()?;
    /// assert_eq!(store.bind(&laptop, home, Precondition::MustNotExist).await?, home);
    /// // The first caller won.
    /// assert_eq!(store.bind(&laptop, office, Precondition::MustNotExist).await?, home);
    /// assert_eq!(store.bind(&laptop, office, Precondition::Matches(home)).await?, office);
    /// # Ok(()) }
    /// ```
    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId>;

    /// Unbinds `device`; returns whether it was bound.
    ///
    /// # Errors
    ///
    /// Only those of every method.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, DeviceId, MemoryStore, WorkspaceId};
    ///
    /// let (store, laptop): (_, DeviceId) = (MemoryStore::new(), "laptop".parse()?);
    /// store.bind(&laptop, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// assert!(store.unbind(&laptop).await?);
    /// assert!(!store.unbind(&laptop).await?);
    /// # Ok(()) }
    /// ```
    async fn unbind(&self, device: &DeviceId) -> Result<bool>;

    /// Returns the session that was [recorded](Self::set_last_session) last for the device, in the workspace that it is
    /// bound to; `None` if there is none, or the store has lost it.
    ///
    /// The session may have ended since. The default keeps none.
    ///
    /// # Errors
    ///
    /// Only those of every method.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::WorkspaceId;
    /// # use agent_core::clock::Effects;
    /// # use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, DeviceId, MemoryStore};
    ///
    /// # let store = MemoryStore::new();
    /// let laptop: DeviceId = "laptop".parse()?;
    /// let session = Effects::default().new_session_id();
    /// store.bind(&laptop, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// store.set_last_session(&laptop, session).await?;
    /// assert_eq!(store.last_session(&laptop).await?, Some(session));
    /// // It belongs to the binding.
    /// store.unbind(&laptop).await?;
    /// assert_eq!(store.last_session(&laptop).await?, None);
    /// # Ok(()) }
    /// ```
    async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        let _ = device;
        Ok(None)
    }

    /// Records the session that a device uses, so that the next program on it continues there.
    ///
    /// Does nothing for a device that is bound to no workspace. The session is not checked. A store may lose it in a
    /// crash, and forgets it when the device is unbound, or bound to another workspace. The default does nothing.
    ///
    /// # Errors
    ///
    /// Only those of every method.
    async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        let _ = (device, session);
        Ok(())
    }

    /// Unbinds every device of a workspace in one atomic step, and no others; returns their number.
    ///
    /// # Errors
    ///
    /// Only those of every method.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, DeviceId, MemoryStore, WorkspaceId};
    ///
    /// let (store, laptop): (_, DeviceId) = (MemoryStore::new(), "laptop".parse()?);
    /// store.bind(&laptop, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// assert_eq!(store.unbind_workspace(WorkspaceId::DEFAULT).await?, 1);
    /// assert_eq!(store.resolve(&laptop).await?, None);
    /// # Ok(()) }
    /// ```
    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64>;

    /// Returns a page of bindings, in an order of the store's own.
    ///
    /// The place of a binding in that order does not change while the device stays bound to the workspace. So pages show
    /// each such binding exactly once, whatever else is bound meanwhile. The stores in memory, in files and in SQLite
    /// order bindings by the bytes of the device ids; a store in a bucket orders them by workspace, then by a hash of the
    /// id. Damaged bindings that the store finds on the way are listed on the page.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::Precondition;
    /// use agent_core::store::BindingQuery;
    /// use agent_core::{BindingStore, DeviceId, MemoryStore, WorkspaceId};
    ///
    /// let (store, laptop): (_, DeviceId) = (MemoryStore::new(), "laptop".parse()?);
    /// store.bind(&laptop, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// let page = store.list(BindingQuery::new()).await?;
    /// assert_eq!(page.items[0].device, laptop);
    /// # Ok(()) }
    /// ```
    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>>;

    /// Closes the backend of this store, like [`SessionStore::close`](crate::store::session::SessionStore::close).
    /// The default does nothing.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Query for a list of bindings.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::commit::Precondition;
/// use agent_core::store::BindingQuery;
/// use agent_core::{BindingStore, MemoryStore, WorkspaceId};
///
/// let store = MemoryStore::new();
/// for device in ["laptop", "phone", "watch"] {
///     store.bind(&device.parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
/// }
/// let query = BindingQuery::new().with_workspace(WorkspaceId::DEFAULT).with_limit(2);
/// let first = store.list(query.clone()).await?;
/// let second = store.list(query.with_cursor(first.next)).await?;
/// assert_eq!((first.items.len(), second.items.len(), second.next), (2, 1, None));
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BindingQuery {
    /// Workspace of the bindings; `None` for any.
    pub workspace: Option<WorkspaceId>,
    /// Maximum number of bindings on the page; 100 by default, at most 1,000. 0 returns an empty page without a next
    /// one.
    pub limit: usize,
    /// Start of the page.
    pub cursor: Option<Cursor>,
}

impl Default for BindingQuery {
    fn default() -> Self {
        Self { workspace: None, limit: 100, cursor: None }
    }
}

impl BindingQuery {
    /// Creates a query for all bindings, 100 a page.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Selects bindings to this workspace only.
        pub fn with_workspace(id: WorkspaceId) => workspace = Some(id);

        /// Sets the maximum number of bindings on the page.
        pub fn with_limit(limit: usize) => limit = limit.min(PAGE_MAX);

        /// Sets the start of the page.
        pub fn with_cursor(cursor: Option<Cursor>) => cursor = cursor;
    }

    /// Returns the fingerprint by which a cursor recognizes its query.
    pub fn fingerprint(&self) -> u64 {
        let workspace = self.workspace.map(|id| id.as_uuid().to_string());
        Fingerprint::of("bindings").field("workspace", workspace).finish()
    }

    /// Returns the device after which the page starts.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub fn after(&self) -> Result<Option<DeviceId>> {
        self.cursor.as_ref().map(|cursor| cursor.id::<DeviceId>(self.fingerprint())).transpose()
    }

    /// For backends that hold all bindings in memory: returns the page of the matching ones, given in any order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    ///
    /// ```
    /// use agent_core::WorkspaceId;
    /// use agent_core::store::{Binding, BindingQuery};
    ///
    /// let (phone, laptop) = ("phone".parse()?, "laptop".parse()?);
    /// let bindings = [Binding::new(phone, WorkspaceId::DEFAULT), Binding::new(laptop, WorkspaceId::DEFAULT)];
    /// let page = BindingQuery::new().with_limit(1).page(bindings)?;
    /// assert_eq!(page.items[0].device.as_str(), "laptop");
    /// let next = BindingQuery::new().with_cursor(page.next);
    /// assert_eq!(next.after()?.unwrap().as_str(), "laptop");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn page(&self, bindings: impl IntoIterator<Item = Binding>) -> Result<Page<Binding>> {
        let after = self.after()?;
        let mut found: Vec<_> = bindings
            .into_iter()
            .filter(|binding| self.workspace.is_none_or(|workspace| binding.workspace == workspace))
            .filter(|binding| after.as_ref().is_none_or(|after| binding.device > *after))
            .collect();
        found.sort();
        Ok(Page::first(found, self.limit, |last| Cursor::after(self.fingerprint(), last.device.as_str())))
    }
}

impl PageQuery for BindingQuery {
    fn starting_at(self, cursor: Cursor) -> Self {
        self.with_cursor(Some(cursor))
    }
}

/// For backends: returns the workspace that `device` is bound to after a request to bind it to `to`.
///
/// `now` is its current workspace.
///
/// # Errors
///
/// `Conflict` if `Precondition::Matches` or `Precondition::MustExist` does not hold.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::commit::Precondition;
/// use agent_core::store::decide_bind;
///
/// let effects = Effects::default();
/// let (home, office) = (effects.new_workspace_id(), effects.new_workspace_id());
/// let laptop = "laptop".parse()?;
/// assert_eq!(decide_bind(&laptop, Some(home), office, Precondition::MustNotExist)?, home);
/// assert_eq!(decide_bind(&laptop, Some(home), office, Precondition::Matches(home))?, office);
/// assert!(decide_bind(&laptop, None, office, Precondition::MustExist).is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
pub fn decide_bind(
    device: &DeviceId,
    now: Option<WorkspaceId>,
    to: WorkspaceId,
    expect: Precondition<WorkspaceId>,
) -> Result<WorkspaceId> {
    match (expect, now) {
        (Precondition::MustNotExist, Some(winner)) => Ok(winner),
        (Precondition::Matches(expected), Some(now)) if now != expected && now != to => Err(Error::new(
            ErrorKind::Conflict { head: None },
            format!("device {device} is bound to {now}, not to {expected}; resolve it again"),
        )),
        (Precondition::MustExist, None) => Err(Error::new(
            ErrorKind::Conflict { head: None },
            format!("device {device} is not bound; bind it with `MustNotExist` or without a precondition"),
        )),
        (Precondition::Matches(expected), None) => Err(Error::new(
            ErrorKind::Conflict { head: None },
            format!("device {device} is not bound, though expected at {expected}; resolve it again"),
        )),
        _ => Ok(to),
    }
}
