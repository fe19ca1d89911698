//! Trait that a backend implements for blobs.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::base::{Error, Result, SessionId};
use crate::model::BlobInfo;
use crate::store::blob::{BlobContent, BlobQuery, PutBlob, ReadBlob, SweepBlobs, SweptBlobs};
use crate::store::page::Page;

/// Large content of the sessions of a store, handed out by [`SessionStore::blobs`](crate::SessionStore::blobs).
///
/// A blob is put first; then a commit to the same store names it. Errors and cancel safety are those of
/// [`SessionStore`](crate::SessionStore#errors).
#[async_trait]
pub trait BlobStore: Debug + Send + Sync + 'static {
    /// Stores a blob of the session, before the commit that names it.
    ///
    /// On return the blob is durable, at the store's [durability](crate::store::Capabilities::durability). The session may be created
    /// later, by the commit that names the blob. A blob that is there already is stored again, which repairs it if it
    /// is damaged. Holds at most 4 MiB of the content in memory, and a store that uploads it in parts 16 MiB.
    ///
    /// A blob belongs to the log of one session: a fork reads those of its ancestors, and puts its own. Nobody sees a
    /// blob before all of its bytes are stored and checked. A blob that no event names is removed by
    /// [`sweep`](Self::sweep).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the content does not have the name and the size that the request gives; `LimitExceeded` if it
    /// is larger than [`Capabilities::blob_max_bytes`](crate::store::Capabilities::blob_max_bytes); `Deleted`, unless an event that is left of the deleted session, which
    /// its forks read, names the blob; the errors of the content. Nothing is stored then.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the blob is stored completely or not at all. What is left of it is removed by a later
    /// sweep.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    /// use agent_core::event::{Media, Message, NewEvent, Part};
    /// use agent_core::store::PutBlob;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let put = PutBlob::of_bytes(session.id, vec![0x89; 3_000_000]);
    /// let cat = Media::blob("image/png", put.blob.name, put.blob.bytes).with_name("cat.png");
    /// store.blobs().put(put).await?;
    /// let asked = NewEvent::from(Message::new("What is this?").with_part(Part::Image(cat)));
    /// store.append(session.id, session.head, vec![asked]).await?;
    /// # Ok(()) }
    /// ```
    async fn put(&self, put: PutBlob) -> Result<()>;

    /// Returns the bytes of a blob of the session's own log, or a range of them.
    /// [`SessionStoreExt`](crate::store::ext::SessionStoreExt::event_blob) also reads those of its ancestors.
    ///
    /// The bytes are read as the stream is polled, at most 4 MiB ahead. Each chunk is checked before it is handed out.
    ///
    /// # Errors
    ///
    /// `NotFound` if the session has no such blob, also while it is being put; `Corrupt` for damage, in place of the
    /// damaged chunk.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// use agent_core::store::{PutBlob, ReadBlob};
    /// use agent_core::{BlobName, MemoryStore, SessionStore};
    ///
    /// # let (store, session) = (MemoryStore::new(), Effects::default().new_session_id());
    /// store.blobs().put(PutBlob::of_bytes(session, "hello")).await?;
    /// let read = store.blobs().read(ReadBlob::new(session, BlobName::of(b"hello"))).await?;
    /// assert_eq!(read.into_bytes(1 << 20).await?, "hello");
    /// # Ok(()) }
    /// ```
    async fn read(&self, read: ReadBlob) -> Result<BlobContent>;

    /// Returns a page of the blobs of a session's own log, ordered by name: those that events name and those that none
    /// names yet.
    ///
    /// Reads no bytes of the blobs. The page is empty if there is no such session and nothing was put for it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// use agent_core::store::{BlobInfo, BlobQuery, PutBlob};
    /// use agent_core::{MemoryStore, SessionStore};
    ///
    /// # let (store, session) = (MemoryStore::new(), Effects::default().new_session_id());
    /// store.blobs().put(PutBlob::of_bytes(session, "hello")).await?;
    /// let page = store.blobs().list(BlobQuery::new(session)).await?;
    /// assert_eq!(page.items, [BlobInfo::of(b"hello")]);
    /// # Ok(()) }
    /// ```
    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>>;

    /// Removes the blobs that no event names: of one session, or of all ids of which no session was created.
    ///
    /// A blob that an event names is never removed, also if the event is committed at the same time: either the commit
    /// comes first, or it fails with [`BlobMissing`](crate::ErrorKind::BlobMissing), and its writer puts the blob again. Also
    /// removes what is left of puts that did not end.
    ///
    /// A store that cannot exclude commits while it sweeps keeps a blob that a commit under way may name until the
    /// session has gone on, and counts it as [unfinished](SweptBlobs::unfinished); and one that was put before its session
    /// for a week. If the session was not created by then, a sweep of all such ids gives the id up: puts and the creation
    /// fail with `Deleted` from then on.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the log is damaged, so that it is unknown what it names; nothing is removed then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// use agent_core::store::{PutBlob, SweepBlobs, SweptBlobs};
    /// use agent_core::{MemoryStore, SessionStore};
    ///
    /// # let (store, session) = (MemoryStore::new(), Effects::default().new_session_id());
    /// store.blobs().put(PutBlob::of_bytes(session, "hello")).await?;
    /// let swept = store.blobs().sweep(SweepBlobs::without_session()).await?;
    /// assert_eq!(swept, SweptBlobs::new(1, 5), "the session was not created");
    /// # Ok(()) }
    /// ```
    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs>;
}

/// Blobs of a store that keeps none: refuses every request.
#[derive(Debug)]
pub(crate) struct NoBlobs;

impl NoBlobs {
    fn refused<T>(session: Option<SessionId>) -> Result<T> {
        let of = session.map_or_else(String::new, |session| format!("session {session}: "));
        Err(Error::unsupported(format!(
            "{of}this store keeps no blobs; use a store that does, or give the address of the content"
        )))
    }
}

#[async_trait]
impl BlobStore for NoBlobs {
    async fn put(&self, put: PutBlob) -> Result<()> {
        Self::refused(Some(put.session))
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        Self::refused(Some(read.session))
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        Self::refused(Some(query.session))
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        Self::refused(sweep.session)
    }
}
