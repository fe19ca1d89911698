//! Stores of sessions around other stores of sessions.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::base::{Epoch, Reason, Result, Seq, SessionId, Timestamp};
use crate::commit::{Commit, Committed};
use crate::session::{Session, SessionSummary};
use crate::store::page::{Damaged, Page};
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::{Capabilities, Pulse, Purge, Purged, Rebuilt, SessionQuery, SessionStore};

macro_rules! forwarded {
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        /// A [`SessionStore`] around another: it passes on every method that it does not implement itself, those too that a
        /// later version adds. For stores that note, count, check or change what is written; one that guards has to be looked at again
        /// when a method is added.
        ///
        /// It has methods of the same names. Name it by its path where you implement it, as below: where both traits are
        /// imported, each call has to say which one is meant.
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
            /// The store that is wrapped: another one, never `self`.
            fn inner(&self) -> &dyn SessionStore;

            /// Passes on to [`SessionStore::capabilities`].
            fn capabilities(&self) -> Capabilities {
                self.inner().capabilities()
            }
            $(
                #[doc = concat!("Passes on to [`SessionStore::", stringify!($name), "`].")]
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
    beat(id: SessionId, epoch: Epoch) -> ();
    pulse(id: SessionId, epoch: Epoch) -> Pulse;
    rebuild() -> Rebuilt;
    delete_damaged(id: SessionId, at: Timestamp, reason: Reason) -> Arc<Session>;
    check() -> Vec<Damaged>;
    changed(id: SessionId, seen: Seq) -> Seq;
    close() -> ();
}
