//! Clock and randomness that the library uses. Both are injected, so that a test can set them and a seed replays
//! them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::base::id::{CommitId, RunId, SessionId, WorkspaceId};
use crate::base::timestamp::Timestamp;

/// Source of the current time.
///
/// ```
/// use std::sync::Arc;
/// use agent_core::Timestamp;
/// use agent_core::clock::{Clock, Effects};
///
/// #[derive(Debug)]
/// struct Noon;
///
/// impl Clock for Noon {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_micros(43_200_000_000)
///     }
/// }
///
/// let effects = Effects::default().with_clock(Arc::new(Noon));
/// assert_eq!(effects.now().to_string(), "1970-01-01T12:00:00.000000Z");
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time. The clock may step back; that affects timestamps and nothing else.
    fn now(&self) -> Timestamp;
}

/// Source of random bytes.
///
/// ```
/// use std::sync::Arc;
/// use agent_core::clock::{Clock, Effects, Random};
/// # use agent_core::Timestamp;
/// # #[derive(Debug)] struct Noon;
/// # impl Clock for Noon { fn now(&self) -> Timestamp { Timestamp::UNIX_EPOCH } }
///
/// #[derive(Debug)]
/// struct Sevens;
///
/// impl Random for Sevens {
///     fn fill(&self, bytes: &mut [u8]) {
///         bytes.fill(7);
///     }
/// }
///
/// let effects = Effects::new(Arc::new(Noon), Arc::new(Sevens));
/// assert_eq!(effects.random_u64(), 0x0707_0707_0707_0707);
/// ```
pub trait Random: fmt::Debug + Send + Sync + 'static {
    /// Fills `bytes` with random bytes. Ids are made of them; if ids must not be guessable, the source must be
    /// unpredictable.
    fn fill(&self, bytes: &mut [u8]);
}

/// Clock and random source from which the library takes times, ids and randomness. Cloning is cheap.
///
/// The default is the system clock and the operating system's randomness.
///
/// ```
/// use agent_core::clock::Effects;
///
/// let effects = Effects::default();
/// let (session, workspace) = (effects.new_session_id(), effects.new_workspace_id());
/// let (commit, run) = (effects.new_commit_id(), effects.new_run_id());
/// assert_ne!(session, effects.new_session_id());
/// # let _ = (workspace, commit, run);
/// let mut key = [0; 32];
/// effects.fill(&mut key);
/// assert!(effects.now() < effects.now().plus_micros(1_000_000));
/// ```
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
    /// Creates effects from a clock and a random source.
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random }
    }

    /// Creates effects for tests, with a stepping clock and seeded ids.
    ///
    /// The clock starts at `start` and advances by one millisecond at each call; ids are derived from `seed`. Two
    /// values with the same seed and start behave alike.
    ///
    /// ```
    /// use agent_core::Timestamp;
    /// use agent_core::clock::Effects;
    ///
    /// let (first, second) = (Effects::seeded(7, Timestamp::UNIX_EPOCH), Effects::seeded(7, Timestamp::UNIX_EPOCH));
    /// assert_eq!(first.new_session_id(), second.new_session_id());
    /// assert_eq!(first.now(), second.now());
    /// ```
    pub fn seeded(seed: u64, start: Timestamp) -> Self {
        Self {
            clock: Arc::new(SteppingClock(Mutex::new(start))),
            random: Arc::new(SeededRandom(Mutex::new(seed))),
        }
    }

    /// Replaces the clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&self, bytes: &mut [u8]) {
        self.random.fill(bytes);
    }

    /// Returns a random number, uniform over all of `u64`.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Returns a random part of a duration, from none to nearly all of it. Takes one random number.
    pub fn random_part(&self, of: Duration) -> Duration {
        let share = u32::try_from(self.random_u64() >> 40).unwrap_or(0);
        of.mul_f64(f64::from(share) / f64::from(1 << 24))
    }

    /// Returns a new UUID of version 7: the time in milliseconds, then 74 random bits.
    pub fn new_uuid(&self) -> Uuid {
        let millis = u64::try_from(self.now().as_micros() / 1000).unwrap_or(0);
        let mut random = [0; 10];
        self.fill(&mut random);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// Returns a new session id.
    pub fn new_session_id(&self) -> SessionId {
        SessionId::from_uuid(self.new_uuid())
    }

    /// Returns a new workspace id.
    pub fn new_workspace_id(&self) -> WorkspaceId {
        WorkspaceId::from_uuid(self.new_uuid())
    }

    /// Returns a new commit id.
    pub fn new_commit_id(&self) -> CommitId {
        CommitId::from_uuid(self.new_uuid())
    }

    /// Returns a new run id.
    pub fn new_run_id(&self) -> RunId {
        RunId::from_uuid(self.new_uuid())
    }
}

/// Pauses between the attempts of an operation: each may be twice as long as the one before, up to a limit.
///
/// Each pause is random, between half of its length and all of it, so that callers that failed together do not try again
/// together.
///
/// ```
/// use std::time::Duration;
/// use agent_core::clock::{Backoff, Effects};
///
/// const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
///
/// let effects = Effects::default();
/// for (attempt, most) in [(0, 50), (1, 100), (2, 200), (30, 5_000)] {
///     let (pause, most) = (PAUSES.pause(attempt, &effects), Duration::from_millis(most));
///     assert!(pause >= most / 2 && pause <= most);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// Creates pauses of which the first takes at most `first`, and each at most `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// Returns the length of the pause after `n` earlier ones. Takes one random number.
    pub fn pause(&self, n: u32, effects: &Effects) -> Duration {
        let half = self.first.saturating_mul(1 << n.min(16)).min(self.max) / 2;
        half + effects.random_part(half)
    }
}

/// Default sources: the only code that reads the system clock and the system's randomness.
mod ambient {
    use super::{Clock, Random};
    use crate::base::timestamp::Timestamp;

    #[derive(Debug)]
    pub(super) struct SystemClock;

    impl Clock for SystemClock {
        #[allow(clippy::disallowed_methods, reason = "the default source that Effects injects")]
        fn now(&self) -> Timestamp {
            let now = std::time::SystemTime::now();
            let beyond = if now < std::time::UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
            Timestamp::try_from(now).unwrap_or(beyond)
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
