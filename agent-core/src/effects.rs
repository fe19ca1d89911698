//! The clock and the randomness that the library uses: injected, so that a test can set them and a seed replays them.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, SecondsFormat, Utc};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::id::{CommitId, RunId, SessionId, WorkspaceId};

/// A moment in UTC, in whole microseconds, between the years 0 and 9999.
///
/// Times are data; they never order anything (a [`Seq`](crate::Seq) does). Prints and parses as RFC 3339.
///
/// ```
/// use agent_core::Timestamp;
///
/// let at: Timestamp = "2026-02-15T10:30:00Z".parse()?;
/// assert_eq!(at.to_string(), "2026-02-15T10:30:00.000000Z");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(0);
    /// The earliest moment: the start of the year 0.
    pub const MIN: Self = Self(-62_167_219_200_000_000);
    /// The latest moment: the last microsecond of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// The moment `micros` microseconds after 1970, clamped to [`Timestamp::MIN`] and [`Timestamp::MAX`].
    pub const fn from_micros(micros: i64) -> Self {
        if micros < Self::MIN.0 {
            Self::MIN
        } else if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This moment moved by `micros` microseconds, clamped to what a timestamp can hold.
    #[must_use]
    pub const fn plus_micros(self, micros: i64) -> Self {
        Self::from_micros(self.0.saturating_add(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::<Utc>::from_timestamp_micros(self.0).unwrap_or_default();
        f.pad(&time.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({self})")
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    /// Parses RFC 3339; digits beyond the microsecond are dropped.
    fn from_str(text: &str) -> Result<Self> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|source| {
            Error::invalid(format!("{} is not an RFC 3339 time", crate::id::quoted(text))).with_source(source)
        })?;
        let micros = time.timestamp_micros();
        if Self::from_micros(micros).0 != micros {
            return Err(Error::invalid(format!(
                "time {} is outside the years 0 to 9999",
                crate::id::quoted(text)
            )));
        }
        Ok(Self(micros))
    }
}

use crate::id::text_serde;
use serde::{Deserialize, Serialize};
text_serde!(Timestamp);

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
    #[must_use]
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
    use super::{Clock, Random, Timestamp};

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

    /// X05: any number is a time, and any time prints as one that parses to the same.
    #[test]
    fn x05_any_number_is_a_time() {
        for micros in [i64::MIN, -1, 0, 1, 1_771_151_400_000_000, i64::MAX] {
            let at = Timestamp::from_micros(micros);
            assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        }
        for text in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-02-15"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_seed_replays_ids_and_times() {
        let (a, b) = (Effects::seeded(7, Timestamp::UNIX_EPOCH), Effects::seeded(7, Timestamp::UNIX_EPOCH));
        let ids: Vec<_> = (0..100).map(|_| a.new_uuid()).collect();
        assert_eq!(ids, (0..100).map(|_| b.new_uuid()).collect::<Vec<_>>());
        assert_ne!(Effects::seeded(8, Timestamp::UNIX_EPOCH).new_uuid(), ids[0]);
        assert_eq!(ids[0].get_version_num(), 7);
    }
}
