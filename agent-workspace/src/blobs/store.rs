//! Session store whose commits put their large content as blobs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::commit::{Commit, Committed};
use agent_core::store::{PutBlob, SessionStoreWrapper};
use agent_core::{
    BlobName, Error, ErrorKind, Result, SessionId, SessionStore, Storage, WriteOutcome, async_trait,
};
use bytes::Bytes;

use crate::blobs::inline::{Sources, may_be_large, move_out};

/// Number of times that a commit is sent whose blobs were removed between their put and the commit.
const ATTEMPTS: u32 = 4;

/// Number of blobs that are remembered as stored.
const REMEMBERED: usize = 256;

/// Returns the same stores, whose session store puts the large content of commits as blobs, if it has blobs.
///
/// The caller keeps the content with the commit: a commit that is sent again, by a retry or from a backlog, puts again
/// what is missing.
pub fn with_blobs(storage: Storage) -> Storage {
    if storage.sessions.capabilities().blob_max_bytes == 0 {
        return storage;
    }
    let store = WithBlobs { store: storage.sessions.store().clone(), stored: Mutex::default() };
    storage.with_session_store(Arc::new(store))
}

/// Session store, and the blobs that it was given last.
#[derive(Debug)]
struct WithBlobs {
    store: Arc<dyn SessionStore>,
    /// Blobs that need not be put again, unless a commit finds that they are missing.
    stored: Mutex<VecDeque<(SessionId, BlobName)>>,
}

impl WithBlobs {
    fn is_stored(&self, blob: (SessionId, BlobName)) -> bool {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).contains(&blob)
    }

    async fn put(&self, session: SessionId, content: &Bytes) -> Result<()> {
        let put = PutBlob::of_bytes(session, content.clone());
        let name = put.blob.name;
        self.store.blobs().put(put).await?;
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        if stored.len() == REMEMBERED {
            stored.pop_front();
        }
        stored.push_back((session, name));
        Ok(())
    }

    /// Puts what is not stored yet, then commits; repeats both if a blob was removed in between.
    async fn commit_with(&self, commit: Commit, sources: &Sources) -> Result<Committed> {
        let session = commit.session;
        let not_sent = |error: Error| error.with_outcome(WriteOutcome::NotApplied);
        let mut refused = None;
        for (name, content) in sources {
            if !self.is_stored((session, *name))
                && let Err(error) = self.put(session, content).await
            {
                if error.is_retryable() {
                    return Err(not_sent(error));
                }
                // The commit may be in the log already, from an earlier attempt; then it does not need the blob.
                refused = Some(error);
                break;
            }
        }
        let mut attempt = 1;
        loop {
            let error = match self.store.commit(commit.clone()).await {
                Ok(committed) => return Ok(committed),
                Err(error) => error,
            };
            let ErrorKind::BlobMissing { blobs } = error.kind() else { return Err(error) };
            if let Some(refused) = refused {
                return Err(not_sent(refused));
            }
            let mut missing = Vec::new();
            for name in blobs {
                missing.extend(sources.get(name));
            }
            if attempt == ATTEMPTS || missing.is_empty() {
                return Err(error);
            }
            for content in missing {
                self.put(session, content).await.map_err(not_sent)?;
            }
            attempt += 1;
        }
    }
}

#[async_trait]
impl SessionStoreWrapper for WithBlobs {
    fn inner(&self) -> &dyn SessionStore {
        &*self.store
    }

    async fn commit(&self, mut commit: Commit) -> Result<Committed> {
        if !commit.steps.iter().any(may_be_large) {
            return self.store.commit(commit).await;
        }
        let mut steps = Arc::unwrap_or_clone(commit.steps);
        let sources = move_out(&mut steps, self.store.capabilities().blob_max_bytes)?;
        commit.steps = Arc::new(steps);
        if sources.is_empty() {
            return self.store.commit(commit).await;
        }
        self.commit_with(commit, &sources).await
    }
}
