//! Deletion of index keys in the background, later than they go out of force.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::medium::object::{AT_ONCE, Bucket};

/// Time between the moment at which a key is seen to be superseded, and its deletion: a list that has begun may still
/// come to it.
pub(crate) const DELAY: Duration = Duration::from_secs(120);
/// Time limit of the deletion of keys that were superseded long ago, which the end of a process waits for.
const DELETION: Duration = Duration::from_secs(10);
/// Limit on the keys that wait. Others are left to a later list.
const MOST: usize = 10_000;

/// Keys that wait for their deletion.
#[derive(Debug)]
pub(crate) struct Background {
    bucket: Arc<Bucket>,
    waiting: Arc<Mutex<Waiting>>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// Keys that are being deleted.
    begun: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The oldest are first.
    queue: VecDeque<(Instant, Arc<str>)>,
    /// Those in the queue: who meets a key often does not delete it often.
    keys: HashSet<Arc<str>>,
}

impl Waiting {
    fn push(&mut self, at: Instant, key: String) {
        let key: Arc<str> = key.into();
        if self.queue.len() < MOST && self.keys.insert(key.clone()) {
            self.queue.push_back((at, key));
        }
    }

    /// Takes some of the keys that are due.
    fn take(&mut self) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        while due.len() < AT_ONCE && self.queue.front().is_some_and(|(at, _)| *at <= Instant::now()) {
            due.extend(self.queue.pop_front().map(|(_, key)| key));
        }
        for key in &due {
            self.keys.remove(key);
        }
        due
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is a single call, so a panic leaves no partial change.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Background {
    pub(crate) fn new(bucket: Arc<Bucket>) -> Self {
        Self { bucket, waiting: Arc::default(), task: Mutex::default(), begun: Mutex::default() }
    }

    /// Waits until the keys are deleted whose deletion has begun.
    pub(crate) async fn finish(&self) {
        let begun = std::mem::take(&mut *held(&self.begun));
        futures::future::join_all(begun).await;
    }

    /// Begins to delete keys, and returns before that is done. [`finish`](Self::finish) waits for it, but not for long, since
    /// nothing depends on it.
    pub(crate) fn delete_now(&self, keys: Vec<String>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if keys.is_empty() {
            return;
        }
        let mut begun = held(&self.begun);
        begun.retain(|task| !task.is_finished());
        let bucket = self.bucket.clone();
        begun.push(runtime.spawn(async move {
            let until = bucket.deadline().min(Instant::now() + DELETION);
            let bucket = &bucket;
            let deletions = keys.into_iter().map(|key| async move { remove(bucket, &key, until).await });
            futures::stream::iter(deletions).buffer_unordered(AT_ONCE).collect::<()>().await;
        }));
    }

    /// Deletes keys later. If the store is closed or dropped before, they stay; nothing depends on their deletion.
    pub(crate) fn delete(&self, keys: impl IntoIterator<Item = String>) {
        let at = Instant::now() + DELAY;
        let mut waiting = held(&self.waiting);
        keys.into_iter().for_each(|key| waiting.push(at, key));
        if waiting.queue.is_empty() {
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
        *held(&self.waiting) = Waiting::default();
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

async fn work(bucket: Arc<Bucket>, waiting: Arc<Mutex<Waiting>>) {
    loop {
        let Some(at) = held(&waiting).queue.front().map(|(at, _)| *at) else { return };
        tokio::time::sleep_until(at).await;
        let due = held(&waiting).take();
        let until = bucket.deadline();
        futures::future::join_all(due.iter().map(|key| remove(&bucket, key, until))).await;
    }
}

/// Deletes a key that is not in force.
async fn remove(bucket: &Bucket, key: &str, until: Instant) {
    if let Err(error) = bucket.delete(key, until).await {
        tracing::debug!(%error, "a superseded key was left behind");
    }
}
