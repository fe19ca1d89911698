//! Printed results: a table for people, a line of JSON for each figure for programs.

use std::fmt::Write;

use crate::ours::Backend;
use crate::rounds::{ROUNDS, Side};

/// A figure, with what it is held against.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) backend: Backend,
    pub(crate) name: String,
    pub(crate) measured: Measured,
    /// What we aim for, in words.
    pub(crate) aim: &'static str,
    /// The best peer's figure, from its own run on another day: elsewhere, and so a hint only.
    pub(crate) peer: &'static str,
    /// What else is worth knowing.
    pub(crate) note: String,
}

/// What was measured.
#[derive(Debug)]
pub(crate) enum Measured {
    /// Microseconds for each operation, in rounds.
    Time { ours: Side, floor: Option<Side> },
    /// One value, in a unit.
    Value(f64, &'static str),
}

impl Figure {
    pub(crate) fn new(backend: Backend, name: impl Into<String>, measured: Measured) -> Self {
        Self { backend, name: name.into(), measured, aim: "", peer: "", note: String::new() }
    }

    pub(crate) fn timed(backend: Backend, name: impl Into<String>, (ours, floor): (Side, Side)) -> Self {
        Self::new(backend, name, Measured::Time { ours, floor: Some(floor) })
    }

    pub(crate) fn aim(mut self, aim: &'static str) -> Self {
        self.aim = aim;
        self
    }

    pub(crate) fn peer(mut self, peer: &'static str) -> Self {
        self.peer = peer;
        self
    }

    pub(crate) fn note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    /// The table's head.
    pub(crate) fn head() -> String {
        format!(
            "times in microseconds for each operation: median (quartiles) of {ROUNDS} rounds in turns\n\
             syncs and bytes: for each operation, ours / floor; syncs are the device's own count, bytes what the process wrote\n\
             peers were measured elsewhere, on another day: a hint only\n\n\
             {:<7} {:<30} {:>28} {:>28} {:>6} {:>13} {:>17}  aim; best peer; notes",
            "store", "workload", "ours", "floor", "ratio", "syncs", "bytes"
        )
    }

    /// One line of the table.
    pub(crate) fn row(&self) -> String {
        let mut row = format!("{:<7} {:<30} ", self.backend.name(), self.name);
        // Writing to a string cannot fail.
        let _ = match &self.measured {
            Measured::Value(value, unit) => write!(row, "{:>28}{:69}", format!("{value:.2} {unit}"), ""),
            Measured::Time { ours, floor: None } => {
                let [syncs, bytes] = ours.counts();
                write!(row, "{:>28} {:>28} {:>6} {syncs:>13.2} {bytes:>17.0}", times(ours), "-", "-")
            }
            Measured::Time { ours, floor: Some(floor) } => {
                let ([syncs, bytes], [least_syncs, least_bytes]) = (ours.counts(), floor.counts());
                let syncs = format!("{syncs:.2} / {least_syncs:.2}");
                let bytes = format!("{bytes:.0} / {least_bytes:.0}");
                let ratio = ratio(ours, floor);
                write!(row, "{:>28} {:>28} {ratio:>6.2} {syncs:>13} {bytes:>17}", times(ours), times(floor))
            }
        };
        for words in [self.aim, self.peer, &self.note].into_iter().filter(|words| !words.is_empty()) {
            row.push_str("  ");
            row.push_str(words);
            row.push(';');
        }
        row.trim_end_matches(';').to_owned()
    }

    /// The same as a line of JSON.
    pub(crate) fn json(&self) -> String {
        let mut line = serde_json::json!({
            "store": self.backend.name(), "name": self.name, "aim": self.aim,
            "peer_measured_elsewhere": self.peer, "note": self.note,
        });
        match &self.measured {
            Measured::Value(value, unit) => {
                line["value"] = (*value).into();
                line["unit"] = (*unit).into();
            }
            Measured::Time { ours, floor } => {
                line["rounds"] = ROUNDS.into();
                line["ours"] = side(ours);
                if let Some(floor) = floor {
                    line["floor"] = side(floor);
                    line["ratio"] = ratio(ours, floor).into();
                }
            }
        }
        line.to_string()
    }
}

fn times(side: &Side) -> String {
    let [low, median, high] = side.quartiles();
    format!("{median:.1} ({low:.1} to {high:.1})")
}

/// The ratio of the medians.
fn ratio(ours: &Side, floor: &Side) -> f64 {
    ours.quartiles()[1] / floor.quartiles()[1]
}

fn side(side: &Side) -> serde_json::Value {
    let [syncs, bytes] = side.counts();
    let mut line = serde_json::json!({ "us": side.quartiles(), "syncs": syncs, "bytes": bytes });
    if let (Some(half), Some(most)) = (side.latency(500), side.latency(990)) {
        line["latency_ms"] = serde_json::json!({ "p50": half, "p99": most });
    }
    line
}
