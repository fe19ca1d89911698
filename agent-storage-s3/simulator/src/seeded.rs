//! Numbers that follow from a seed.

use std::time::Duration;

/// Numbers that follow from a seed, for what a test draws by lot.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// Two of the same seed draw alike.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn next_u64(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014): every seed gives a full-period sequence.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next_u64() % end }
    }

    /// Returns `true` with a probability of so many in a thousand.
    pub const fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as u64
    }

    /// A time from `low` to `high`, in whole milliseconds.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = u64::try_from(high.saturating_sub(low).as_millis()).unwrap_or(u64::MAX - 1);
        low + Duration::from_millis(self.below(span + 1))
    }
}
