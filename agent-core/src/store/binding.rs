//! Bindings: which workspace a device belongs to.

use std::fmt::Debug;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::base::{DeviceId, Error, ErrorKind, Result, WorkspaceId};
use crate::commit::Expect;
use crate::store::page::{Cursor, Fingerprint, PAGE_MAX, Page, PageQuery};

/// A device, and the workspace that it is bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Binding {
    /// The device.
    pub device: DeviceId,
    /// The workspace.
    pub workspace: WorkspaceId,
}

impl Binding {
    /// Binds `device` to `workspace`.
    pub const fn new(device: DeviceId, workspace: WorkspaceId) -> Self {
        Self { device, workspace }
    }
}

/// Keeps which workspace each device is bound to.
///
/// # Contract
///
/// A handle is bound to one tenant. A device is bound to one workspace or none. A binding is visible to every handle
/// and process as soon as it is acknowledged, and never lost by a concurrent write to another's. A damaged store is
/// `Corrupt`, its bytes are kept, and no later write erases them.
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
pub trait BindingStore: Debug + Send + Sync + 'static {
    /// The workspace that `device` is bound to; `None` for a device that is bound to none.
    ///
    /// # Errors
    ///
    /// Only those of every method: an unknown device is no error.
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>>;

    /// Binds `device` to `to`, durable on return, and returns what is bound then.
    ///
    /// With `Expect::Absent` the first caller wins, and every caller gets the winner's workspace: that it is bound
    /// already is no error. With `Expect::Is(workspace)` it is bound anew only while bound to that one; with
    /// `Expect::Any` in any case. Binding to what is bound already is fine.
    ///
    /// # Errors
    ///
    /// `Conflict` where `Expect::Is` does not hold.
    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Expect<WorkspaceId>,
    ) -> Result<WorkspaceId>;

    /// Unbinds `device`; returns whether it was bound.
    ///
    /// # Errors
    ///
    /// Only those of every method.
    async fn unbind(&self, device: &DeviceId) -> Result<bool>;

    /// Unbinds every device of a workspace in one step, and leaves all others; returns how many.
    ///
    /// # Errors
    ///
    /// Only those of every method.
    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64>;

    /// Bindings in the order of the devices' bytes.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>>;

    /// Closes the backend of this store, as [`SessionStore::close`](crate::store::session::SessionStore::close) does. As provided
    /// it does nothing.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// Which bindings to list.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BindingQuery {
    /// Only to this workspace.
    pub workspace: Option<WorkspaceId>,
    /// The most on the page; at most 1,000. 0 gives an empty page, without a next one.
    pub limit: usize,
    /// Where the page starts.
    pub cursor: Option<Cursor>,
}

impl Default for BindingQuery {
    fn default() -> Self {
        Self { workspace: None, limit: 100, cursor: None }
    }
}

impl BindingQuery {
    /// All, 100 a page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only to this workspace.
    pub fn workspace(mut self, id: WorkspaceId) -> Self {
        self.workspace = Some(id);
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
        let workspace = self.workspace.map(|id| id.as_uuid().to_string());
        Fingerprint::of("bindings").field("workspace", workspace).finish()
    }

    /// The device behind which the page starts.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub fn after(&self) -> Result<Option<DeviceId>> {
        self.cursor
            .as_ref()
            .map(|cursor| Ok(cursor.key(self.fingerprint())?.parse::<DeviceId>()?))
            .transpose()
    }

    /// For backends that hold all bindings at hand: the page of those that match, from any order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
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
        self.cursor(Some(cursor))
    }
}

/// For backends: what binding `device` to `to` comes to, given what it is bound to now.
///
/// # Errors
///
/// `Conflict` where `Expect::Is` does not hold.
pub fn decide_bind(
    device: &DeviceId,
    now: Option<WorkspaceId>,
    to: WorkspaceId,
    expect: Expect<WorkspaceId>,
) -> Result<WorkspaceId> {
    match (expect, now) {
        (Expect::Absent, Some(winner)) => Ok(winner),
        (Expect::Is(expected), Some(now)) if now != expected && now != to => Err(Error::new(
            ErrorKind::Conflict { head: None },
            format!("device {device} is bound to {now}, not to {expected}; resolve it again"),
        )),
        (Expect::Is(expected), None) => Err(Error::new(
            ErrorKind::Conflict { head: None },
            format!("device {device} is not bound, though expected at {expected}; resolve it again"),
        )),
        _ => Ok(to),
    }
}
