//! Extension methods of every [`SessionStore`], built only on its own methods, and the same for each backend.

use std::future::Future;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::base::{Effects, Error, ErrorKind, Result, Seq, SessionId};
use crate::commit::{Commit, Committed};
use crate::event::Event;
use crate::session::SessionRecord;
use crate::store::blob::{BlobContent, ReadBlob};
use crate::store::history::{PAGE, PAGE_BYTES, check_position, coming_events};
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::SessionStore;
use crate::store::sessions::Sessions;
use crate::store::{history, retry};

/// Extension methods of every [`SessionStore`]; not to be implemented. Those that need times and ids are methods of
/// [`Sessions`].
///
/// Each method returns the errors of the store methods that it calls.
///
/// # Cancel safety
///
/// Every method may be dropped at any point. A dropped write was applied completely or not at all, or is still being
/// applied.
pub trait SessionStoreExt: SessionStore {
    /// Returns the store as a trait object.
    fn as_store(&self) -> &dyn SessionStore;

    /// Returns a handle on the sessions of this store, whose clones share their data. It takes times and ids from
    /// `effects`.
    ///
    /// ```
    /// use agent_core::clock::Effects;
    /// use agent_core::{MemoryStore, SessionStoreExt};
    ///
    /// let sessions = MemoryStore::new().sessions(&Effects::default());
    /// # let _ = sessions;
    /// ```
    fn sessions(&self, effects: &Effects) -> Sessions
    where
        Self: Clone + Sized,
    {
        Sessions::new(Arc::new(self.clone()), effects.clone())
    }

    /// Sends a commit until its outcome is known. A commit is never applied twice.
    ///
    /// After `Unavailable`, a panic of the store or an unknown outcome, the commit is sent again with the same id: at
    /// most five attempts, with growing pauses. If the store has used all the time that it [may](Error::is_timeout),
    /// there is one more attempt if the outcome is unknown, and none otherwise.
    ///
    /// If the record does not show any more whether the commit was applied, the log is read from [`Commit::seen`] on.
    /// If the commit is not there, it is sent again, up to a thousand times while other commits overtake it.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::commit`]; after the last attempt, its error. The error's outcome is unknown if that
    /// of an earlier attempt was unknown and no later attempt could decide it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::Commit;
    /// use agent_core::event::NewEvent;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let commit = Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message("Hello"));
    /// // Keep the commit until it is acknowledged: after a crash, the same commit is sent again.
    /// let committed = store.commit_with_retry(commit.clone()).await?;
    /// assert!(store.commit_with_retry(commit).await?.replayed);
    /// # assert!(!committed.replayed);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "settle")]
    fn commit_with_retry(&self, commit: Commit) -> impl Future<Output = Result<Committed>> + Send {
        retry::commit_with_retry(self.as_store(), false, commit)
    }

    /// Sends a commit that was sealed for this call, like [`commit_with_retry`](Self::commit_with_retry).
    ///
    /// Such a commit cannot be in the log before its first attempt. Therefore the log is read only if the outcome of
    /// an attempt is unknown, however old [`Commit::seen`] is.
    ///
    /// # Errors
    ///
    /// Those of [`commit_with_retry`](Self::commit_with_retry).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::commit::{Commit, Trigger};
    /// use agent_core::state::SessionState;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let archive = Commit::seal(&effects, session.id, session.head).with_trigger(Trigger::Archive);
    /// let archived = store.commit_new_with_retry(archive).await?.session;
    /// assert_eq!(archived.status.state, SessionState::Archived);
    /// # Ok(()) }
    /// ```
    fn commit_new_with_retry(&self, commit: Commit) -> impl Future<Output = Result<Committed>> + Send {
        retry::commit_with_retry(self.as_store(), true, commit)
    }

    /// Returns one page of the whole history, including the events in ancestors, like [`SessionStore::read`].
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::read`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::store::ReadEvents;
    ///
    /// # let (store, effects, session) = greeted().await?;
    /// let fork = store.fork(session.id, None).await?;
    /// let page = store.history(fork.id, ReadEvents::first(100)).await?;
    /// assert!(page.events.iter().any(|event| event.text().as_deref() == Some("Hello")));
    /// # Ok(()) }
    /// ```
    fn history(&self, id: SessionId, read: ReadEvents) -> impl Future<Output = Result<EventPage>> + Send {
        async move { history::history(self.as_store(), id, read).await }
    }

    /// Returns one page of the whole history, like [`history`](Self::history), of a session whose record is loaded
    /// already.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::read`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::store::ReadEvents;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let newest = store.history_of(&session, ReadEvents::last(1)).await?;
    /// assert_eq!(newest.events[0].seq, session.head);
    /// # Ok(()) }
    /// ```
    fn history_of(
        &self,
        session: &SessionRecord,
        read: ReadEvents,
    ) -> impl Future<Output = Result<EventPage>> + Send {
        let (id, head, lineage) = (session.id, session.head, session.lineage.clone());
        async move { history::part_of(self.as_store(), id, head, lineage, read).await }
    }

    /// Reads a blob that the event `seq` of the session's whole history names, from the log to which the event belongs:
    /// the session's own, or that of an ancestor.
    ///
    /// # Errors
    ///
    /// Those of [`BlobStore::read`](crate::store::BlobStore::read): `Corrupt` also if the event names the blob and the log does not have it;
    /// `NotFound` if the event does not name it. Putting the same bytes for the session of the log, which the error names,
    /// restores a blob.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::SessionStore;
    /// use agent_core::store::{PutBlob, ReadBlob};
    ///
    /// # let (store, effects, session) = session().await?;
    /// let put = PutBlob::of_bytes(session.id, "hello");
    /// let note = Media::blob("text/plain", put.blob.name, put.blob.bytes);
    /// store.blobs().put(put).await?;
    /// let event = NewEvent::from(Message::new("My note").with_part(Part::Resource(note)));
    /// let seq = store.append(session.id, session.head, vec![event]).await?.last;
    ///
    /// let fork = store.fork(session.id, None).await?;
    /// let page = store.history(fork.id, agent_core::store::ReadEvents::last(2)).await?;
    /// let event = page.events.iter().find(|event| event.seq == seq).unwrap();
    /// let read = store.event_blob(event.seq, ReadBlob::new(fork.id, event.blobs[0])).await?;
    /// assert_eq!(read.into_bytes(1024).await?, "hello");
    /// # Ok(()) }
    /// ```
    fn event_blob(&self, seq: Seq, read: ReadBlob) -> impl Future<Output = Result<BlobContent>> + Send {
        async move {
            let session = self.load(read.session).await?;
            let (owner, _) = session.lineage.locate(session.id, seq);
            let read = ReadBlob { session: owner, ..read };
            match self.blobs().read(read.clone()).await {
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    let one = ReadEvents::first(1).with_after(Seq::new(seq.get().saturating_sub(1)));
                    let page = self.read(owner, one).await?;
                    let is_named =
                        page.events.iter().any(|event| event.seq == seq && event.blobs.contains(&read.name));
                    Err(if is_named { read.lost(seq) } else { error })
                }
                content => content,
            }
        }
    }

    /// Returns all events after `after`, including those in ancestors, up to the current end. Holds one page in
    /// memory.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::Seq;
    /// use futures::TryStreamExt;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let mut events = store.events(session.id, Seq::ZERO);
    /// let mut last = Seq::ZERO;
    /// while let Some(event) = events.try_next().await? {
    ///     last = event.seq;
    /// }
    /// assert_eq!(last, session.head);
    /// # Ok(()) }
    /// ```
    fn events(&self, id: SessionId, after: Seq) -> BoxStream<'_, Result<Event>> {
        let first = ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES).with_after(after);
        let pages = stream::try_unfold((None, Some(first)), move |(session, read)| async move {
            let Some(read) = read else { return Ok(None) };
            let session = match session {
                Some(session) => session,
                None => self.load(id).await?,
            };
            let mut page = self.history_of(&session, read.clone()).await?;
            if let (None, Some(damage)) = (&page.next, page.damaged.first()) {
                let Some(last) = page.events.last() else {
                    return Err(Error::corrupt(format!("session {id}: {damage}")));
                };
                // Readable events come first; then the page that starts with the damage, which is an error.
                page.next = Some(read.with_after(last.seq));
            }
            Ok(Some((stream::iter(page.events.into_iter().map(Ok)), (Some(session), page.next))))
        });
        pages.try_flatten().boxed()
    }

    /// Returns all events after `after`, then each new event as it is committed; the stream does not end, but by an error:
    /// `Deleted` if the next events were purged, `InvalidInput` at once if `after` is [beyond](super::check_position) the
    /// session's last event.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::event::NewEvent;
    /// use futures::TryStreamExt;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let mut live = store.follow(session.id, session.head);
    /// store.append(session.id, session.head, vec![NewEvent::user_message("Hello")]).await?;
    /// let event = live.try_next().await?.unwrap();
    /// assert_eq!(event.text().as_deref(), Some("Hello"));
    /// # Ok(()) }
    /// ```
    fn follow(&self, id: SessionId, after: Seq) -> BoxStream<'_, Result<Event>> {
        let pages = stream::try_unfold((after, false), move |(seen, is_checked)| async move {
            if !is_checked {
                check_position(&*self.as_store().load(id).await?, seen)?;
            }
            let (events, seen) = coming_events(self.as_store(), id, seen).await?;
            Ok::<_, Error>(Some((stream::iter(events.into_iter().map(Ok)), (seen, true))))
        });
        pages.try_flatten().boxed()
    }
}

impl<T: SessionStore> SessionStoreExt for T {
    fn as_store(&self) -> &dyn SessionStore {
        self
    }
}

impl SessionStoreExt for dyn SessionStore + '_ {
    fn as_store(&self) -> &dyn SessionStore {
        self
    }
}
