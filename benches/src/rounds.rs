//! Two sides measured in turns, round by round, so that both meet the same noise: medians, quartiles, counts.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::counts::{Counts, Meter};
use crate::outcome::Outcome;

/// How many rounds each side has.
pub(crate) const ROUNDS: u32 = 21;

/// What the rounds of one side took and wrote, per operation.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Side {
    micros: Vec<f64>,
    counts: Counts,
    operations: u32,
    /// What each single operation took, where operations go on at once.
    latencies: Vec<Duration>,
}

impl Side {
    fn add(&mut self, time: Duration, counts: Counts, operations: u32) {
        self.micros.push(time.as_secs_f64() * 1e6 / f64::from(operations));
        self.counts = self.counts + counts;
        self.operations += operations;
    }

    /// The lower quartile, the median and the upper quartile, in microseconds.
    pub(crate) fn quartiles(&self) -> [f64; 3] {
        let mut sorted = self.micros.clone();
        sorted.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| sorted.get(sorted.len() * quarter / 4).copied().unwrap_or(f64::NAN))
    }

    /// Syncs and bytes of one operation, on average.
    pub(crate) fn counts(&self) -> [f64; 2] {
        let each = |count: u64| count as f64 / f64::from(self.operations.max(1));
        [each(self.counts.syncs), each(self.counts.bytes)]
    }

    /// The latency that so many of 1,000 operations do not exceed, in milliseconds.
    pub(crate) fn latency(&self, of_1000: usize) -> Option<f64> {
        let mut sorted = self.latencies.clone();
        sorted.sort();
        let at = (sorted.len() * of_1000 / 1000).min(sorted.len().saturating_sub(1));
        sorted.get(at).map(|latency| latency.as_secs_f64() * 1e3)
    }
}

/// Runs both sides in turns, each round with so many operations. A side may hand back the latencies of its operations.
pub(crate) async fn compare(
    meter: &Meter,
    operations: u32,
    mut ours: impl AsyncFnMut(u32) -> Outcome<Vec<Duration>>,
    mut floor: impl AsyncFnMut(u32) -> Outcome<Vec<Duration>>,
) -> Outcome<(Side, Side)> {
    // One round that does not count: caches are warm, files are there.
    floor(operations).await?;
    ours(operations).await?;
    let (mut ours_side, mut floor_side) = (Side::default(), Side::default());
    for _ in 0..ROUNDS {
        round(meter, operations, &mut floor, &mut floor_side).await?;
        round(meter, operations, &mut ours, &mut ours_side).await?;
    }
    Ok((ours_side, floor_side))
}

/// Runs one side that is held against no other.
pub(crate) async fn alone(
    meter: &Meter,
    operations: u32,
    mut ours: impl AsyncFnMut(u32) -> Outcome<Vec<Duration>>,
) -> Outcome<Side> {
    ours(operations).await?;
    let mut side = Side::default();
    for _ in 0..ROUNDS {
        round(meter, operations, &mut ours, &mut side).await?;
    }
    Ok(side)
}

async fn round(
    meter: &Meter,
    operations: u32,
    run: &mut impl AsyncFnMut(u32) -> Outcome<Vec<Duration>>,
    side: &mut Side,
) -> Outcome {
    let (before, start) = (meter.read(), Instant::now());
    let latencies = run(operations).await?;
    side.add(start.elapsed(), meter.read() - before, operations);
    side.latencies.extend(latencies);
    Ok(())
}
