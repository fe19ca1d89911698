//! Power cut: the choice of the unsynced writes that reach the disk.

use std::collections::BTreeSet;

use agent_core::Timestamp;
use agent_core::clock::Effects;

use crate::model::{Moment, Trace};

/// Whether every call, and not every third or so, is tried, which takes minutes: `AGENT_TEST_THOROUGH=1`.
pub(crate) fn is_thorough() -> bool {
    std::env::var_os("AGENT_TEST_THOROUGH").is_some()
}

/// The subsets of what is not safe at a moment: all of them where these are few, else none, all, all but one, only
/// one, and some by chance.
pub(crate) fn subsets(trace: &Trace, moment: Moment, most: usize) -> Vec<BTreeSet<(usize, u64)>> {
    let parts = trace.unsafe_parts(moment);
    let every = 1usize.checked_shl(u32::try_from(parts.len()).unwrap_or(u32::MAX)).unwrap_or(usize::MAX);
    let chosen = |keeps: &dyn Fn(usize) -> bool| {
        parts.iter().enumerate().filter(|(n, _)| keeps(*n)).map(|(_, part)| *part).collect()
    };
    if every <= most {
        return (0..every).map(|bits| chosen(&|n| bits >> n & 1 == 1)).collect();
    }
    let dice = Effects::seeded(moment.events as u64, Timestamp::UNIX_EPOCH);
    let mut sets = vec![chosen(&|_| false), chosen(&|_| true)];
    for one in 0..parts.len().min(most / 4) {
        sets.push(chosen(&|n| n != one));
        sets.push(chosen(&|n| n == one));
    }
    while sets.len() < most {
        let bits: Vec<bool> = parts.iter().map(|_| dice.random_u64() & 1 == 1).collect();
        sets.push(chosen(&|n| bits[n]));
    }
    sets.truncate(most);
    sets
}
