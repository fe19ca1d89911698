//! Pauses before a model call is repeated.

use std::time::Duration;

use agent_core::clock::Effects;

use crate::model::fault::ProviderFault;

/// Pause before the first repetition of a model call; doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Maximum pause before a model call is repeated.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Returns the pause before the call is repeated, after `retries` repetitions.
///
/// The pause is random, so that many runs that failed together do not return together.
pub(crate) fn pause_before_retry(fault: &ProviderFault, effects: &Effects, retries: u32) -> Duration {
    let (least, spread) = match fault.retry_after {
        Some(after) => (after, after / 10),
        None => {
            let half = PAUSE_FIRST.saturating_mul(1 << retries.min(16)) / 2;
            (half, half)
        }
    };
    let most = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX - 1);
    let more = Duration::from_micros(effects.random_u64() % (most + 1));
    least.saturating_add(more).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fault::FaultKind;
    use agent_core::Timestamp;

    #[test]
    fn pauses_double_are_random_and_bounded() {
        let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
        let fault = ProviderFault::new(FaultKind::Overloaded, "busy");
        for (retries, most) in [(0, 1), (1, 2), (2, 4), (5, 32), (9, 60), (u32::MAX, 60)] {
            let most = Duration::from_secs(most);
            let pauses: Vec<_> = (0..50).map(|_| pause_before_retry(&fault, &effects, retries)).collect();
            assert!(pauses.iter().all(|pause| *pause >= most / 2 && *pause <= most), "{retries}: {pauses:?}");
            assert!(most == PAUSE_MAX || pauses.windows(2).any(|two| two[0] != two[1]), "{pauses:?}");
        }
    }

    #[test]
    fn pause_is_what_the_provider_names_up_to_60_s() {
        let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
        for (named, least) in [(0, 0), (7, 7), (59, 59), (61, 60), (86_400, 60), (u64::MAX, 60)] {
            let fault = ProviderFault::new(FaultKind::RateLimited, "slow down");
            let fault = fault.with_retry_after(Duration::from_secs(named));
            let pause = pause_before_retry(&fault, &effects, 1);
            let least = Duration::from_secs(least);
            assert!(pause >= least && pause <= (least + least / 10).min(PAUSE_MAX), "{named}: {pause:?}");
        }
    }
}
