//! Pace of the steps that write or delete the bytes of blobs.
//!
//! A large blob is thousands of such steps, each of which takes as long as many commits. While others write, the steps
//! together take a fourth of the writer's time, so that a commit takes a third longer; otherwise they do not wait.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::connections::request::{Request, Task};

/// Most bytes in one transaction. A commit may have to wait for that.
const BYTES: usize = 512 << 10;
/// Time for others after a step, as a multiple of what the step took.
const OTHERS: u32 = 3;

/// Steps that wait for their turn.
#[derive(Default)]
pub(crate) struct Pace {
    /// In the order in which they were asked for: what deletes a blob comes after what writes it.
    steps: VecDeque<Task>,
    /// Time until which others come first, if they write at all.
    until: Option<Instant>,
    /// True if anybody else has written since the last step.
    others: bool,
}

impl Pace {
    /// Keeps a task that writes or deletes the bytes of a blob; returns any other, which is now to be executed.
    pub(crate) fn divert(&mut self, task: Task) -> Option<Task> {
        if !task.request.is_step_of_bytes() {
            // Who puts one blob after the other does not wait for itself.
            self.others |= !matches!(task.request, Request::Blob(_));
            return Some(task);
        }
        self.steps.push_back(task);
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns the time until the next step; `None` if none waits.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let until = self.until.filter(|_| self.others).unwrap_or(now);
        (!self.is_empty()).then(|| until.saturating_duration_since(now))
    }

    /// Takes the steps of the next transaction, if it is their turn, or the store is `closing`.
    pub(crate) fn take(&mut self, now: Instant, closing: bool) -> Vec<Task> {
        let mut taken = Vec::new();
        if !closing && self.wait(now).is_some_and(|wait| !wait.is_zero()) {
            return taken;
        }
        let mut bytes = 0;
        while let Some(step) = self.steps.front() {
            bytes += step.request.size_bytes();
            if bytes > BYTES && !taken.is_empty() {
                break;
            }
            taken.extend(self.steps.pop_front());
        }
        taken
    }

    /// Notes how long a step took.
    pub(crate) fn took(&mut self, from: Instant, to: Instant) {
        self.until = Some(to + (to - from) * OTHERS);
        self.others = false;
    }

    /// Notes that another process has written.
    pub(crate) fn others_wrote(&mut self) {
        self.others = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_core::model::BlobInfo;
    use agent_core::{SessionId, Timestamp};
    use bytes::Bytes;
    use tokio::sync::oneshot;

    use super::*;
    use crate::connections::blob_steps::BlobStep;

    fn task(step: BlobStep) -> Task {
        asked(Request::Blob(step))
    }

    fn asked(request: Request) -> Task {
        let (reply, _) = oneshot::channel();
        Task { tenant: Arc::from(""), request, until: Instant::now(), reply }
    }

    fn session() -> SessionId {
        "01a208a3-4aa5-7814-babc-6dd973d226d8".parse().unwrap()
    }

    fn chunk(index: u64) -> Task {
        let (session, at) = (session(), Timestamp::from_micros(0));
        let bytes = Bytes::from(vec![0; 256 << 10]);
        let name = BlobInfo::of(&bytes).name;
        task(BlobStep::Chunk { session, name, blob: 1, index, checksum: 0, bytes, at })
    }

    /// While others write, steps take a fourth of the time, and keep their order; alone, and at the end, they do not wait.
    #[test]
    fn steps_wait_only_if_others_write() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let millis = Duration::from_millis;
        assert_eq!(pace.wait(now), None);
        let begin = BlobStep::Begin(session(), BlobInfo::of(b""), Timestamp::from_micros(0));
        assert!(pace.divert(task(begin)).is_some());
        for index in 0..3 {
            assert!(pace.divert(chunk(index)).is_none());
        }
        assert!(pace.divert(task(BlobStep::Discard(1))).is_none());
        assert_eq!(pace.wait(now), Some(Duration::ZERO));
        assert_eq!(pace.take(now, false).len(), 2, "512 KiB");
        let end = now + millis(10);
        pace.took(now, end);
        let begin = BlobStep::Begin(session(), BlobInfo::of(b""), Timestamp::from_micros(0));
        assert!(pace.divert(task(begin)).is_some());
        assert_eq!(pace.wait(end), Some(Duration::ZERO), "nobody else writes");
        assert!(pace.divert(asked(Request::RebuildIndexes)).is_some());
        assert_eq!(pace.wait(end), Some(millis(30)));
        assert!(pace.take(end + millis(29), false).is_empty());
        let last = pace.take(end + millis(30), false);
        assert_eq!(last.len(), 2, "the discard comes after the chunk");
        assert!(matches!(last[1].request, Request::Blob(BlobStep::Discard(1))));
        pace.took(end, end + millis(10));
        pace.others_wrote();
        assert!(pace.divert(chunk(4)).is_none());
        assert_eq!(pace.take(end, true).len(), 1, "closing waits for nobody");
        assert!(pace.is_empty());
    }
}
