//! Deletion of index keys that are not in force any more, later and in the background.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::object::{AT_ONCE, Bucket};

/// Time between the moment at which a key is seen to be superseded, and its deletion: a list that has begun may still
/// come to it.
pub(crate) const DELAY: Duration = Duration::from_secs(120);
/// Limit on the keys that wait. Others are left to a later list.
const MOST: usize = 10_000;

/// Keys that wait for their deletion.
#[derive(Debug)]
pub(crate) struct Background {
    bucket: Arc<Bucket>,
    waiting: Arc<Mutex<VecDeque<(Instant, String)>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is a single call, so a panic leaves no partial change.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Background {
    pub(crate) fn new(bucket: Arc<Bucket>) -> Self {
        Self { bucket, waiting: Arc::default(), task: Mutex::default() }
    }

    /// Deletes keys later. If the store is closed or dropped before, they stay; nothing depends on their deletion.
    pub(crate) fn delete(&self, keys: impl IntoIterator<Item = String>) {
        let at = Instant::now() + DELAY;
        let mut waiting = held(&self.waiting);
        for key in keys {
            if waiting.len() < MOST && !waiting.iter().any(|(_, other)| *other == key) {
                waiting.push_back((at, key));
            }
        }
        if waiting.is_empty() {
            return;
        }
        drop(waiting);
        let mut task = held(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            *task = Some(runtime.spawn(work(self.bucket.clone(), self.waiting.clone())));
        }
    }

    /// Forgets what waits.
    pub(crate) fn stop(&self) {
        held(&self.waiting).clear();
        if let Some(task) = held(&self.task).take() {
            task.abort();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn work(bucket: Arc<Bucket>, waiting: Arc<Mutex<VecDeque<(Instant, String)>>>) {
    loop {
        // The oldest come first.
        let Some(at) = held(&waiting).front().map(|(at, _)| *at) else { return };
        tokio::time::sleep_until(at).await;
        let mut due = Vec::new();
        {
            let mut waiting = held(&waiting);
            while due.len() < AT_ONCE && waiting.front().is_some_and(|(at, _)| *at <= Instant::now()) {
                due.extend(waiting.pop_front().map(|(_, key)| key));
            }
        }
        let delete = |key: String| {
            let bucket = &bucket;
            async move {
                if let Err(error) = bucket.delete(&key, bucket.deadline()).await {
                    tracing::debug!(%error, "a superseded key was left behind");
                }
            }
        };
        futures::future::join_all(due.into_iter().map(delete)).await;
    }
}
