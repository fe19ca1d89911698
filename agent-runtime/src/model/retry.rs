//! Pauses before a model call is repeated.

use std::time::Duration;

use agent_core::clock::{Backoff, Effects};

use crate::model::fault::ProviderFault;

/// Maximum pause before a model call is repeated.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Pauses before a model call is repeated, if the provider names none.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), PAUSE_MAX);

/// Returns the pause before the call is repeated, after `retries` repetitions.
///
/// The pause is random, so that many runs that failed together do not return together: up to a tenth longer than the one
/// that the provider names.
pub(crate) fn pause_before_retry(fault: &ProviderFault, effects: &Effects, retries: u32) -> Duration {
    match fault.retry_after {
        Some(after) => after.saturating_add(effects.random_part(after / 10)).min(PAUSE_MAX),
        None => PAUSES.pause(retries, effects),
    }
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
