//! Two things measured in turns, round by round, so that both meet the same noise: medians, quartiles, their ratio.

use std::time::Duration;

/// What a round of one side took, per operation.
#[derive(Debug, Default)]
pub(crate) struct Side {
    micros: Vec<f64>,
}

impl Side {
    /// Adds a round of `operations` that took `time`.
    pub(crate) fn add(&mut self, time: Duration, operations: u32) {
        self.micros.push(time.as_secs_f64() * 1e6 / f64::from(operations));
    }

    /// The lower quartile, the median and the upper quartile, in microseconds.
    pub(crate) fn quartiles(&self) -> [f64; 3] {
        let mut sorted = self.micros.clone();
        sorted.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| sorted.get(sorted.len() * quarter / 4).copied().unwrap_or(f64::NAN))
    }
}

/// A workload's name, ours and the floor it is held against.
#[derive(Debug)]
pub(crate) struct Figure {
    /// What was done.
    pub(crate) name: &'static str,
    /// Ours.
    pub(crate) ours: Side,
    /// The least that any implementation has to do.
    pub(crate) floor: Side,
    /// The ratio to the floor that we aim for.
    pub(crate) aim: Option<f64>,
}

impl Figure {
    /// The ratio of the medians.
    pub(crate) fn ratio(&self) -> f64 {
        self.ours.quartiles()[1] / self.floor.quartiles()[1]
    }

    /// One line of a table.
    pub(crate) fn row(&self) -> String {
        let side = |side: &Side| {
            let [low, median, high] = side.quartiles();
            format!("{median:>9.1} ({low:.1} to {high:.1})")
        };
        let aim = self.aim.map_or_else(|| "-".to_owned(), |aim| format!("{aim:.2}"));
        format!(
            "{:<34} {:>30} {:>30} {:>7.2} {aim:>6}",
            self.name,
            side(&self.ours),
            side(&self.floor),
            self.ratio()
        )
    }

    /// The same as a line of JSON.
    pub(crate) fn json(&self) -> String {
        let (ours, floor) = (self.ours.quartiles(), self.floor.quartiles());
        serde_json::json!({
            "name": self.name, "ours_us": ours, "floor_us": floor, "ratio": self.ratio(), "aim": self.aim,
        })
        .to_string()
    }
}
