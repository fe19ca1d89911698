//! Session stores around other session stores.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::base::{Epoch, Reason, Result, Seq, SessionId, Timestamp};
use crate::commit::{Commit, Committed};
use crate::model::BlobInfo;
use crate::session::{Session, SessionSummary};
use crate::store::blob::{BlobContent, BlobQuery, PutBlob, ReadBlob, SweepBlobs, SweptBlobs};
use crate::store::page::{Damaged, Page};
use crate::store::pending::Pending;
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::{Capabilities, LeaseStatus, Purge, Purged, Rebuilt, SessionQuery, SessionStore};

macro_rules! forwarded {
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        /// Wrapper of a [`SessionStore`]: forwards every method that it does not implement itself, including those
        /// that a later version adds.
        ///
        /// For stores that record, count, check or change what is written. Review a wrapper that guards access
        /// whenever a method is added.
        ///
        /// The trait has methods of the same names. Name it by its path in the implementation, as below: if both
        /// traits are imported, each call must name the trait.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
        /// use std::sync::atomic::{AtomicU64, Ordering};
        ///
        /// use agent_core::clock::Effects;
        /// use agent_core::commit::{Commit, Committed};
        /// use agent_core::session::NewSession;
        /// use agent_core::{MemoryStore, Result, SessionStore, SessionStoreExt, WorkspaceId, async_trait};
        ///
        /// #[derive(Debug, Default)]
        /// struct Counted {
        ///     store: MemoryStore,
        ///     commits: AtomicU64,
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
        /// let session = SessionStoreExt::create(&store, &effects, new).await?;
        /// assert_eq!(store.load(session.id).await?, session);
        /// assert_eq!(store.commits.into_inner(), 1);
        /// # Ok(()) }
        /// ```
        pub trait SessionStoreWrapper: Debug + Send + Sync + 'static {
            /// Returns the wrapped store: another one, never `self`.
            fn inner(&self) -> &dyn SessionStore;

            /// Forwards to [`SessionStore::capabilities`].
            fn capabilities(&self) -> Capabilities {
                self.inner().capabilities()
            }
            $(
                #[doc = concat!("Forwards to [`SessionStore::", stringify!($name), "`].")]
                fn $name<'a, 'f>(&'a self, $($argument: $type),*) -> BoxFuture<'f, Result<$output>>
                where
                    'a: 'f,
                    Self: 'f,
                {
                    self.inner().$name($($argument),*)
                }
            )*
        }

        impl<W: SessionStoreWrapper> SessionStore for W {
            fn capabilities(&self) -> Capabilities {
                SessionStoreWrapper::capabilities(self)
            }
            $(
                fn $name<'a, 'f>(&'a self, $($argument: $type),*) -> BoxFuture<'f, Result<$output>>
                where
                    'a: 'f,
                    Self: 'f,
                {
                    SessionStoreWrapper::$name(self, $($argument),*)
                }
            )*
        }
    };
}

forwarded! {
    commit(commit: Commit) -> Committed;
    load(id: SessionId) -> Arc<Session>;
    read(id: SessionId, read: ReadEvents) -> EventPage;
    list(query: SessionQuery) -> Page<SessionSummary>;
    purge(purge: Purge) -> Purged;
    heartbeat(id: SessionId, epoch: Epoch) -> ();
    lease_status(id: SessionId, epoch: Epoch) -> LeaseStatus;
    put_blob(put: PutBlob) -> ();
    read_blob(read: ReadBlob) -> BlobContent;
    list_blobs(query: BlobQuery) -> Page<BlobInfo>;
    sweep_blobs(sweep: SweepBlobs) -> SweptBlobs;
    rebuild() -> Rebuilt;
    delete_damaged(id: SessionId, at: Timestamp, reason: Reason) -> Arc<Session>;
    check() -> Vec<Damaged>;
    pending() -> Vec<Pending>;
    maintain() -> Vec<Pending>;
    changed(id: SessionId, seen: Seq) -> Seq;
    close() -> ();
}
