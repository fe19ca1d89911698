//! Faults of blobs.

#![allow(clippy::unwrap_used, reason = "a test's helper")]

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use agent_core::commit::{Commit, Committed, Precondition, Step, Trigger};
use agent_core::model::NeededBlob;
use agent_core::session::SessionRecord;
use agent_core::store::{
    BlobContent, BlobInfo, BlobQuery, Page, Purge, Purged, PutBlob, ReadBlob, ReadEvents, SessionQuery,
    SweepBlobs, SweptBlobs,
};
use agent_core::{
    BlobName, CommitId, Error, ErrorKind, MemoryStore, Plan, Result, SessionId, SessionStore, plan,
};
use futures::{StreamExt, TryStreamExt, stream};

use crate::store::{Fault, Handle};

type Key = (SessionId, BlobName);

/// What the handles on one broken store have in common about blobs.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Blobs that are lost, though the store under this one has them.
    lost: Set<Key>,
    /// Puts that have begun and have not ended.
    begun: Set<Key>,
    /// Blobs that are left, though the store under this one has removed them.
    left: MemoryStore,
    /// Blobs that each commit needed when it was sent first.
    needed: Mutex<HashMap<CommitId, Vec<NeededBlob>>>,
}

#[derive(Debug)]
struct Set<T>(Mutex<HashSet<T>>);

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Eq + Hash> Set<T> {
    fn has(&self, item: &T) -> bool {
        self.0.lock().unwrap().contains(item)
    }

    fn insert(&self, item: T) -> bool {
        self.0.lock().unwrap().insert(item)
    }

    fn remove(&self, item: &T) {
        self.0.lock().unwrap().remove(item);
    }
}

/// Number of blobs that a broken list ends with.
const LISTED: usize = 1000;

impl Handle {
    fn keeps_blobs(&self) -> Result<()> {
        if self.is(Fault::NoBlobs) {
            return Err(Error::new(ErrorKind::Unsupported, "this store keeps no blobs"));
        }
        Ok(())
    }

    /// Loses all blobs of a session.
    async fn lose_blobs(&self, session: SessionId) -> Result<()> {
        for blob in self.blobs_below(session).await? {
            self.shared.blobs.lost.insert((session, blob.name));
        }
        Ok(())
    }

    async fn blobs_below(&self, session: SessionId) -> Result<Vec<BlobInfo>> {
        Ok(self.store.blobs().list(BlobQuery::new(session).with_limit(LISTED)).await?.items)
    }

    async fn size_of(&self, session: SessionId, name: BlobName) -> Option<u64> {
        self.blobs().read(ReadBlob::new(session, name)).await.ok().map(|read| read.blob.bytes)
    }

    /// Commits with a fault of blobs; `None` if it has none.
    pub(crate) async fn commit_of_blobs(&self, commit: &Commit) -> Option<Result<Committed>> {
        let id = commit.session;
        let now = self.now(id).await;
        let planned = plan(now.as_deref(), commit);
        match self.fault {
            Fault::EarlyBlobsLost => {
                let done = self.store.commit(commit.clone()).await;
                if now.is_none() && done.is_ok() {
                    self.lose_blobs(id).await.unwrap();
                }
                Some(done)
            }
            Fault::BlobsCheckedBeforeReplay => {
                if let Ok(Plan::Write { blobs, .. }) = planned {
                    self.shared.blobs.needed.lock().unwrap().insert(commit.id, blobs);
                }
                let needed = self.shared.blobs.needed.lock().unwrap().get(&commit.id).cloned();
                let checked = self.check_blobs(id, &needed.unwrap_or_default()).await;
                Some(match checked {
                    Ok(()) => self.store.commit(commit.clone()).await,
                    Err(error) => Err(error),
                })
            }
            // A sweep has removed them.
            Fault::SweepDecidesEarly => match planned {
                Ok(Plan::Write { blobs, .. }) => match self.check_blobs(id, &blobs).await {
                    Ok(()) => None,
                    Err(error) => Some(Err(error)),
                },
                _ => None,
            },
            Fault::MissingBlobsAccepted
            | Fault::MissingBlobsOfCreationsAccepted
            | Fault::MissingBlobsOfRestoredAccepted
            | Fault::OneMissingBlobNamed
            | Fault::BlobSizeUnchecked
            | Fault::BlobsOfParentsAccepted => {
                let error = match self.store.commit(commit.clone()).await {
                    Err(error) => error,
                    done => return Some(done),
                };
                Some(self.despite(commit, now.as_deref(), planned, error).await)
            }
            _ => None,
        }
    }

    async fn check_blobs(&self, id: SessionId, needed: &[NeededBlob]) -> Result<()> {
        let mut sizes = HashMap::new();
        for blob in needed {
            sizes.insert(blob.name, self.size_of(id, blob.name).await);
        }
        NeededBlob::check(id, needed, |name| Ok(sizes[&name]))
    }

    /// Answers a commit that the store under this one refused.
    async fn despite(
        &self,
        commit: &Commit,
        now: Option<&SessionRecord>,
        planned: Result<Plan>,
        error: Error,
    ) -> Result<Committed> {
        let is_creation = commit.precondition == Precondition::MustNotExist;
        let restores = |step: &Step| matches!(step, Step::Trigger(Trigger::Restore(_)));
        let is_restored = commit.steps.iter().any(restores);
        match (self.fault, error.kind(), planned) {
            (Fault::MissingBlobsAccepted, ErrorKind::BlobMissing { .. }, Ok(planned)) => {
                Ok(planned.committed())
            }
            (Fault::MissingBlobsOfCreationsAccepted, ErrorKind::BlobMissing { .. }, Ok(planned))
                if is_creation && !is_restored =>
            {
                Ok(planned.committed())
            }
            (Fault::MissingBlobsOfRestoredAccepted, ErrorKind::BlobMissing { .. }, Ok(planned))
                if is_restored =>
            {
                Ok(planned.committed())
            }
            (Fault::BlobSizeUnchecked, ErrorKind::InvalidInput, Ok(planned)) => Ok(planned.committed()),
            (Fault::OneMissingBlobNamed, ErrorKind::BlobMissing { blobs }, _) => {
                Err(Error::new(ErrorKind::BlobMissing { blobs: blobs[..1].to_vec() }, error.to_string()))
            }
            (Fault::BlobsOfParentsAccepted, ErrorKind::BlobMissing { blobs }, _) => {
                let Some(parent) = now.and_then(|now| now.origin.parent()) else { return Err(error) };
                for name in blobs {
                    let Ok(read) = self.store.blobs().read(ReadBlob::new(parent, *name)).await else {
                        return Err(error);
                    };
                    self.store.blobs().put(PutBlob::new(commit.session, read.blob, read.content)).await?;
                }
                self.store.commit(commit.clone()).await
            }
            _ => Err(error),
        }
    }

    pub(crate) async fn put_blob(&self, mut put: PutBlob) -> Result<()> {
        self.keeps_blobs()?;
        let (key, shared) = ((put.session, put.blob.name), &self.shared.blobs);
        if self.is(Fault::LargeBlobReadFirst)
            && let Some(first) = put.content.try_next().await?
        {
            put.content = stream::iter([Ok(first)]).chain(put.content).boxed();
        }
        let is_first = shared.begun.insert(key);
        if self.is(Fault::ConcurrentPutRefused) && !is_first {
            return Err(Error::new(ErrorKind::Unavailable, "another put of this blob is going on"));
        }
        let done = self.store.blobs().put(put).await;
        shared.begun.remove(&key);
        match (self.fault, done) {
            (Fault::WrongContentAccepted, Err(error)) if *error.kind() == ErrorKind::InvalidInput => Ok(()),
            (Fault::DeletedTakesBlobs, Err(error)) if *error.kind() == ErrorKind::Deleted => Ok(()),
            (_, done) => {
                done?;
                shared.lost.remove(&key);
                if self.is(Fault::SweepDecidesEarly) {
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
        }
    }

    pub(crate) async fn read_blob(&self, mut read: ReadBlob) -> Result<BlobContent> {
        self.keeps_blobs()?;
        let (shared, not_found) = (self.shared.clone(), read.not_found());
        if shared.blobs.lost.has(&(read.session, read.name)) {
            return Err(not_found);
        }
        if self.is(Fault::BlobRangeOffByOne) && read.range.end < u64::MAX {
            read.range.end += 1;
        }
        if self.is(Fault::DroppedReaderBlocks) && shared.busy.swap(true, Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "a blob is being read"));
        }
        let again = read.clone();
        let mut found = match self.store.blobs().read(read).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                shared.busy.store(false, Ordering::SeqCst);
                shared.blobs.left.blobs().read(again.clone()).await.map_err(|_| not_found)?
            }
            found => found?,
        };
        found.content = match self.fault {
            Fault::BlobCutToOneChunk => found.content.take(1).boxed(),
            Fault::DroppedReaderBlocks => {
                let ended = stream::once(async move {
                    shared.busy.store(false, Ordering::SeqCst);
                    Ok(Default::default())
                });
                found.content.chain(ended).boxed()
            }
            Fault::RemovalEndsReaders => {
                let store = self.store.clone();
                let is_there = move |_: &_| {
                    let (store, again) = (store.clone(), again.clone());
                    async move { store.blobs().read(again).await.is_ok() }
                };
                found.content.take_while(is_there).boxed()
            }
            _ => found.content,
        };
        Ok(found)
    }

    pub(crate) async fn list_blobs(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let id = query.session;
        self.keeps_blobs()?;
        let mut page = self.store.blobs().list(query.clone()).await?;
        page.items.extend(self.shared.blobs.left.blobs().list(query).await?.items);
        page.items.retain(|blob| !self.shared.blobs.lost.has(&(id, blob.name)));
        match self.fault {
            Fault::BlobListUnordered => page.items.reverse(),
            Fault::LongBlobListCut => {
                let first = self.blobs_below(id).await?;
                page.items.retain(|blob| first.last().is_some_and(|last| blob.name <= last.name));
                if page.items.last() == first.last() {
                    page.next = None;
                }
            }
            Fault::UnfinishedPutListed => {
                let begun = self.shared.blobs.begun.0.lock().unwrap();
                let of_session = begun.iter().filter(|(session, _)| *session == id);
                // The size that the clause puts.
                page.items.extend(of_session.map(|(_, name)| BlobInfo::new(*name, 600_000)));
            }
            _ => {}
        }
        Ok(page)
    }

    pub(crate) async fn sweep_blobs(&self, mut sweep: SweepBlobs) -> Result<SweptBlobs> {
        self.keeps_blobs()?;
        match self.fault {
            Fault::SweepKeepsOrphans => sweep.dry_run = true,
            Fault::DryRunSweeps => sweep.dry_run = false,
            _ => {}
        }
        match (self.fault, sweep.session) {
            (Fault::SweepRemovesNamed, Some(id)) if !sweep.dry_run => self.lose_blobs(id).await?,
            (Fault::SweepOfNoneSweepsAll, None) => {
                for session in SessionStore::list(&self.store, SessionQuery::new()).await?.items {
                    self.store.blobs().sweep(SweepBlobs::of(session.id)).await?;
                }
            }
            (Fault::SweepDecidesEarly, Some(id)) if !sweep.dry_run && self.now(id).await.is_some() => {
                let there = self.blobs_below(id).await?;
                let events = self.store.read(id, ReadEvents::first(1000)).await?.events;
                let named: HashSet<_> = events.into_iter().flat_map(|event| event.blobs).collect();
                tokio::task::yield_now().await;
                let mut swept = SweptBlobs::default();
                for blob in there.into_iter().filter(|blob| !named.contains(&blob.name)) {
                    if self.shared.blobs.lost.insert((id, blob.name)) {
                        swept += SweptBlobs::new(1, blob.bytes);
                    }
                }
                return Ok(swept);
            }
            _ => {}
        }
        self.store.blobs().sweep(sweep).await
    }

    /// Purges with a fault of blobs.
    pub(crate) async fn purge_blobs(&self, purge: Purge) -> Result<Purged> {
        let id = purge.session;
        if self.is(Fault::PurgeKeepsBlobs) {
            for blob in self.blobs_below(id).await? {
                let read = self.store.blobs().read(ReadBlob::new(id, blob.name)).await?;
                self.shared.blobs.left.blobs().put(PutBlob::new(id, blob, read.content)).await?;
            }
        }
        let done = self.store.purge(purge).await?;
        if self.is(Fault::PurgeTakesBlobsFromForks) {
            self.lose_blobs(id).await?;
        }
        Ok(done)
    }
}
