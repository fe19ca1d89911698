//! Stores around other stores.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::base::{DeviceId, Epoch, Reason, Result, Revision, Seq, SessionId, Timestamp, WorkspaceId};
use crate::commit::{Commit, Committed, Precondition};
use crate::model::{BlobInfo, Workspace};
use crate::session::{SessionRecord, SessionSummary};
use crate::store::binding::{Binding, BindingQuery, BindingStore};
use crate::store::blob::{BlobContent, BlobQuery, PutBlob, ReadBlob, SweepBlobs, SweptBlobs};
use crate::store::blob_store::BlobStore;
use crate::store::lease::{LeaseStatus, LeaseStore};
use crate::store::maintenance::{Maintenance, Pending, Rebuilt};
use crate::store::page::{Damaged, Page};
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::{Capabilities, Purge, Purged, SessionQuery, SessionStore};
use crate::store::workspace::{ContentHash, WorkspaceQuery, WorkspaceStore};

/// Declares a trait that forwards each method of another one, and implements the other for all that implement it.
macro_rules! wrapper {
    (
        $(#[$doc:meta])*
        $wrapper:ident of $store:ident;
        $(get $getter:ident -> $answer:ty;)*
        $(call $name:ident $([$life:lifetime])? ($($argument:ident: $type:ty),*) -> $output:ty;)*
    ) => {
        $(#[$doc])*
        pub trait $wrapper: Debug + Send + Sync + 'static {
            /// Returns the wrapped store: another one, never `self`.
            fn inner(&self) -> &dyn $store;
            $(
                #[doc = concat!("Forwards to [`", stringify!($store), "::", stringify!($getter), "`].")]
                fn $getter(&self) -> $answer {
                    self.inner().$getter()
                }
            )*
            $(
                #[doc = concat!("Forwards to [`", stringify!($store), "::", stringify!($name), "`].")]
                fn $name<'a, $($life,)? 'f>(&'a self, $($argument: $type),*) -> BoxFuture<'f, Result<$output>>
                where
                    'a: 'f,
                    $($life: 'f,)?
                    Self: 'f,
                {
                    self.inner().$name($($argument),*)
                }
            )*
        }

        impl<W: $wrapper> $store for W {
            $(
                fn $getter(&self) -> $answer {
                    $wrapper::$getter(self)
                }
            )*
            $(
                fn $name<'a, $($life,)? 'f>(&'a self, $($argument: $type),*) -> BoxFuture<'f, Result<$output>>
                where
                    'a: 'f,
                    $($life: 'f,)?
                    Self: 'f,
                {
                    $wrapper::$name(self, $($argument),*)
                }
            )*
        }
    };
}

wrapper! {
    /// Wrapper of a [`SessionStore`]: forwards every method that it does not implement itself, including those
    /// that a later version adds.
    ///
    /// For stores that record, count, check or change what is written. Review a wrapper that guards access
    /// whenever a method is added.
    ///
    /// The stores that it hands out are those of the wrapped store, unless the wrapper implements [`LeaseStoreWrapper`],
    /// [`BlobStoreWrapper`] or [`MaintenanceWrapper`], too, and hands out itself.
    ///
    /// The trait has methods of the same names. Name it by its path in the implementation, as below: if both
    /// traits are imported, each call must name the trait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use agent_core::clock::Effects;
    /// use agent_core::commit::{Commit, Committed};
    /// use agent_core::session::NewSession;
    /// use agent_core::{MemoryStore, Result, SessionStore, SessionStoreExt, WorkspaceId, async_trait};
    ///
    /// #[derive(Clone, Debug, Default)]
    /// struct Counted {
    ///     store: MemoryStore,
    ///     commits: Arc<AtomicU64>,
    /// }
    ///
    /// #[async_trait]
    /// impl agent_core::store::SessionStoreWrapper for Counted {
    ///     fn inner(&self) -> &dyn SessionStore {
    ///         &self.store
    ///     }
    ///
    ///     async fn commit(&self, commit: Commit) -> Result<Committed> {
    ///         self.commits.fetch_add(1, Ordering::Relaxed);
    ///         self.store.commit(commit).await
    ///     }
    /// }
    ///
    /// let (store, effects) = (Counted::default(), Effects::default());
    /// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// let session = store.sessions(&effects).create(new).await?;
    /// assert_eq!(store.load(session.id).await?, session);
    /// assert_eq!(store.commits.load(Ordering::Relaxed), 1);
    /// # Ok(()) }
    /// ```
    SessionStoreWrapper of SessionStore;
    get leases -> &dyn LeaseStore;
    get blobs -> &dyn BlobStore;
    get maintenance -> &dyn Maintenance;
    get capabilities -> Capabilities;
    call commit(commit: Commit) -> Committed;
    call load(id: SessionId) -> Arc<SessionRecord>;
    call read(id: SessionId, read: ReadEvents) -> EventPage;
    call list(query: SessionQuery) -> Page<SessionSummary>;
    call purge(purge: Purge) -> Purged;
    call changed(id: SessionId, seen: Seq) -> Seq;
    call close() -> ();
}

wrapper! {
    /// Wrapper of a [`LeaseStore`]: forwards every method that it does not implement itself; see [`SessionStoreWrapper`].
    LeaseStoreWrapper of LeaseStore;
    call heartbeat(id: SessionId, epoch: Epoch) -> ();
    call status(id: SessionId, epoch: Epoch) -> LeaseStatus;
}

wrapper! {
    /// Wrapper of a [`BlobStore`]: forwards every method that it does not implement itself; see [`SessionStoreWrapper`].
    BlobStoreWrapper of BlobStore;
    call put(put: PutBlob) -> ();
    call read(read: ReadBlob) -> BlobContent;
    call list(query: BlobQuery) -> Page<BlobInfo>;
    call sweep(sweep: SweepBlobs) -> SweptBlobs;
}

wrapper! {
    /// Wrapper of a [`Maintenance`]: forwards every method that it does not implement itself; see
    /// [`SessionStoreWrapper`].
    MaintenanceWrapper of Maintenance;
    call check() -> Vec<Damaged>;
    call rebuild() -> Rebuilt;
    call delete_damaged(id: SessionId, at: Timestamp, reason: Reason) -> Arc<SessionRecord>;
    call pending() -> Vec<Pending>;
    call maintain() -> Vec<Pending>;
}

wrapper! {
    /// Wrapper of a [`WorkspaceStore`]: forwards every method that it does not implement itself; see
    /// [`SessionStoreWrapper`].
    WorkspaceStoreWrapper of WorkspaceStore;
    call load(id: WorkspaceId) -> Workspace;
    call put(workspace: Workspace, expect: Precondition<Revision>) -> Workspace;
    call touch(id: WorkspaceId, at: Timestamp) -> ();
    call list(query: WorkspaceQuery) -> Page<Workspace>;
    call delete(id: WorkspaceId) -> ();
    call load_config(id: WorkspaceId) -> Option<String>;
    call load_with_config(id: WorkspaceId) -> (Workspace, Option<String>);
    call save_config(id: WorkspaceId, text: Option<String>, expect: Precondition<ContentHash>) -> ();
    call close() -> ();
}

wrapper! {
    /// Wrapper of a [`BindingStore`]: forwards every method that it does not implement itself; see
    /// [`SessionStoreWrapper`].
    BindingStoreWrapper of BindingStore;
    call resolve['d](device: &'d DeviceId) -> Option<WorkspaceId>;
    call bind['d](device: &'d DeviceId, to: WorkspaceId, expect: Precondition<WorkspaceId>) -> WorkspaceId;
    call unbind['d](device: &'d DeviceId) -> bool;
    call last_session['d](device: &'d DeviceId) -> Option<SessionId>;
    call set_last_session['d](device: &'d DeviceId, session: SessionId) -> ();
    call unbind_workspace(id: WorkspaceId) -> u64;
    call list(query: BindingQuery) -> Page<Binding>;
    call close() -> ();
}
