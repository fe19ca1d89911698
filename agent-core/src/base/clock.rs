//! The clock and the randomness that the library uses: injected, so that a test can set them and a seed replays them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use crate::base::id::{CommitId, RunId, SessionId, WorkspaceId};
use crate::base::timestamp::Timestamp;

/// Tells the time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment. It may step back; nothing but timestamps changes when it does.
    fn now(&self) -> Timestamp;
}

/// Makes random bytes.
pub trait Random: fmt::Debug + Send + Sync + 'static {
    /// Fills `bytes`. For ids, so a source that must not be guessed has to be unpredictable.
    fn fill(&self, bytes: &mut [u8]);
}

/// Where the library takes the time, ids and randomness from. Cheap to clone.
///
/// The default is the machine's clock and the operating system's randomness.
#[must_use]
#[derive(Clone, Debug)]
pub struct Effects {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Default for Effects {
    fn default() -> Self {
        Self { clock: Arc::new(ambient::SystemClock), random: Arc::new(ambient::SystemRandom) }
    }
}

impl Effects {
    /// Uses a clock and a random source of the caller's.
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random }
    }

    /// For tests: a clock that starts at `start` and moves one millisecond with every look, and ids that follow
    /// from `seed`. Two of the same seed behave alike.
    pub fn seeded(seed: u64, start: Timestamp) -> Self {
        Self {
            clock: Arc::new(SteppingClock(Mutex::new(start))),
            random: Arc::new(SeededRandom(Mutex::new(seed))),
        }
    }

    /// This, with another clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Fills `bytes` with randomness.
    pub fn fill(&self, bytes: &mut [u8]) {
        self.random.fill(bytes);
    }

    /// A random number, uniform over all of `u64`.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A new UUID of version 7: the time in milliseconds, then 74 random bits.
    pub fn new_uuid(&self) -> Uuid {
        let millis = u64::try_from(self.now().as_micros() / 1000).unwrap_or(0);
        let mut random = [0; 10];
        self.fill(&mut random);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// A new session id.
    pub fn new_session_id(&self) -> SessionId {
        SessionId::from_uuid(self.new_uuid())
    }

    /// A new workspace id.
    pub fn new_workspace_id(&self) -> WorkspaceId {
        WorkspaceId::from_uuid(self.new_uuid())
    }

    /// A new commit id.
    pub fn new_commit_id(&self) -> CommitId {
        CommitId::from_uuid(self.new_uuid())
    }

    /// A new run id.
    pub fn new_run_id(&self) -> RunId {
        RunId::from_uuid(self.new_uuid())
    }
}

/// The one place that reads the machine's clock and randomness.
mod ambient {
    use super::{Clock, Random};
    use crate::base::timestamp::Timestamp;

    #[derive(Debug)]
    pub(super) struct SystemClock;

    impl Clock for SystemClock {
        #[allow(clippy::disallowed_methods, reason = "the default source that Effects injects")]
        fn now(&self) -> Timestamp {
            let now = std::time::SystemTime::now();
            let micros = match now.duration_since(std::time::UNIX_EPOCH) {
                Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
                Err(before) => {
                    i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros)
                }
            };
            Timestamp::from_micros(micros)
        }
    }

    #[derive(Debug)]
    pub(super) struct SystemRandom;

    impl Random for SystemRandom {
        #[allow(clippy::disallowed_methods, reason = "the default source that Effects injects")]
        #[allow(clippy::expect_used, reason = "without the system's randomness no id is safe to make")]
        fn fill(&self, bytes: &mut [u8]) {
            getrandom::fill(bytes).expect("the operating system gives randomness");
        }
    }
}

#[derive(Debug)]
struct SteppingClock(Mutex<Timestamp>);

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.plus_micros(1000);
        *now
    }
}

#[derive(Debug)]
struct SeededRandom(Mutex<u64>);

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            // SplitMix64 (Steele, Lea, Flood 2014): every seed gives a full-period sequence.
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_ids_and_times() {
        let (a, b) = (Effects::seeded(7, Timestamp::UNIX_EPOCH), Effects::seeded(7, Timestamp::UNIX_EPOCH));
        let ids: Vec<_> = (0..100).map(|_| a.new_uuid()).collect();
        assert_eq!(ids, (0..100).map(|_| b.new_uuid()).collect::<Vec<_>>());
        assert_ne!(Effects::seeded(8, Timestamp::UNIX_EPOCH).new_uuid(), ids[0]);
        assert_eq!(ids[0].get_version_num(), 7);
    }
}
