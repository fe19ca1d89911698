//! Measurements as they are stored: lines of JSON, from which tables and plots are made.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bench_worker::{Round, Task};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::outcome::Outcome;

/// One task with one library.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub(crate) struct Measurement {
    pub(crate) task: String,
    /// Number of messages, sessions or writers.
    pub(crate) size: u32,
    /// Name of the store or library.
    pub(crate) store: String,
    pub(crate) rounds: u32,
    /// Quartiles of the microseconds of one operation.
    pub(crate) us: [f64; 3],
    /// Syncs of one operation: the device's own count, which includes those of other programs.
    pub(crate) syncs: f64,
    /// Syncs of one operation by the system calls, if they were traced.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) syncs_exact: Option<f64>,
    /// Bytes of one operation that the process wrote.
    pub(crate) bytes: f64,
    /// The 99th percentile of the latency, in milliseconds, if operations ran at once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) p99_ms: Option<f64>,
    /// Number of calls that were refused and repeated, in all rounds.
    pub(crate) refused: u32,
}

impl Measurement {
    /// Returns the head of the table of measurements.
    pub(crate) fn head() -> String {
        format!(
            "microseconds for each operation: median (quartiles) of the rounds; the syncs are the device's own count, and include those \
             of other programs\n\n{:<8} {:>7} {:<22} {:>32} {:>6} {:>8} {:>10}  notes",
            "task", "size", "store", "us", "rounds", "syncs", "bytes"
        )
    }

    /// Returns one line of the table.
    pub(crate) fn row(&self) -> String {
        let [low, median, high] = self.us;
        let times = format!("{median:.1} ({low:.1} to {high:.1})");
        let Self { task, size, store, rounds, syncs, bytes, .. } = self;
        let mut row =
            format!("{task:<8} {size:>7} {store:<22} {times:>32} {rounds:>6} {syncs:>8.2} {bytes:>10.0}");
        if let Some(p99) = self.p99_ms {
            row += &format!("  {:.0}/s, p99 {p99:.2} ms, {} refused", 1e6 / median, self.refused);
        }
        if let Some(syncs) = self.syncs_exact {
            row += &format!("  {syncs} syncs by the system calls");
        }
        row
    }

    /// Returns the same as a line of JSON.
    pub(crate) fn json(&self) -> Outcome<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Returns the median of the microseconds of one operation.
    pub(crate) fn median(&self) -> f64 {
        self.us[1]
    }
}

/// The rounds of one library at one task.
pub(super) struct Rounds {
    task: Task,
    micros: Vec<f64>,
    latencies: Vec<Duration>,
    operations: u64,
    syncs: u64,
    bytes: u64,
    refused: u32,
}

impl Rounds {
    pub(super) fn new(task: Task) -> Self {
        let (micros, latencies) = (Vec::new(), Vec::new());
        Self { task, micros, latencies, operations: 0, syncs: 0, bytes: 0, refused: 0 }
    }

    pub(super) fn add(&mut self, round: &Round, times: u32, syncs: u64) {
        let operations = times * self.task.operations();
        self.micros.push(round.time.as_secs_f64() * 1e6 / f64::from(operations));
        self.latencies.extend(&round.at_once.latencies);
        self.operations += u64::from(operations);
        self.syncs += syncs;
        self.bytes += round.bytes;
        self.refused += round.at_once.refused;
    }

    /// Returns whether a round takes longer than this, so that fewer rounds must do.
    pub(super) fn are_slow(&self, micros: f64) -> bool {
        quartiles(&self.micros)[1] * f64::from(self.task.operations()) > micros
    }

    pub(super) fn measurement(&self, store: &str) -> Measurement {
        let each = |count: u64| round_to(count as f64 / self.operations.max(1) as f64, 2);
        let mut latencies = self.latencies.clone();
        latencies.sort();
        let p99 = latencies.get(latencies.len() * 99 / 100);
        Measurement {
            task: self.task.name().to_owned(),
            size: self.task.size(),
            store: store.to_owned(),
            rounds: self.micros.len() as u32,
            us: quartiles(&self.micros).map(|micros| round_to(micros, 2)),
            syncs: each(self.syncs),
            syncs_exact: None,
            bytes: each(self.bytes),
            p99_ms: p99.map(|latency| round_to(latency.as_secs_f64() * 1e3, 3)),
            refused: self.refused,
        }
    }
}

fn round_to(value: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (value * unit).round() / unit
}

fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| sorted.get(sorted.len() * quarter / 4).copied().unwrap_or(f64::NAN))
}

/// All measurements of one run, with the machine they were made on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurements {
    /// Machine, settings and libraries of the run.
    pub(crate) run: Value,
    pub(crate) all: Vec<Measurement>,
}

impl Measurements {
    /// Reads a file of one JSON object a line: the run first, then each measurement.
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut lines = text.lines();
        let run = serde_json::from_str(lines.next().unwrap_or_default())?;
        let all = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { run, all })
    }

    /// Writes the same.
    pub(crate) fn write(&self, path: &Path) -> Outcome {
        let mut text = format!("{}\n", self.run);
        for measurement in &self.all {
            text.push_str(&measurement.json()?);
            text.push('\n');
        }
        Ok(fs::write(path, text)?)
    }

    /// Finds the measurement of a task.
    pub(crate) fn find(&self, task: Task, store: &str) -> Option<&Measurement> {
        let (name, size) = (task.name(), task.size());
        self.all.iter().find(|one| one.task == name && one.size == size && one.store == store)
    }

    /// Returns the names of stores and libraries, each with its version, as the run has them.
    pub(crate) fn stores(&self) -> Vec<(String, String)> {
        let stores = self.run["stores"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        stores.map(|store| (text(&store["name"]), text(&store["version"]))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_medians_of_one_operation() {
        let mut rounds = Rounds::new(Task::Writers(2));
        for millis in [32, 64, 96] {
            let latencies = vec![Duration::from_millis(2); 32];
            let at_once = bench_worker::AtOnce { latencies, refused: 1 };
            rounds.add(&Round { time: Duration::from_millis(millis), bytes: 3200, at_once }, 1, 64);
        }
        let one = rounds.measurement("files");
        assert_eq!((one.us[1], one.syncs, one.bytes, one.refused), (2000.0, 2.0, 100.0, 3));
        assert_eq!((one.p99_ms, one.rounds), (Some(2.0), 3));
        assert!(rounds.are_slow(60_000.0) && !rounds.are_slow(65_000.0));
    }

    #[test]
    fn measurements_are_read_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("measurements.jsonl");
        let mut rounds = Rounds::new(Task::Load(10));
        rounds.add(&Round { time: Duration::from_millis(3), ..Round::default() }, 1, 0);
        let run = serde_json::json!({ "stores": [{ "name": "files", "version": "" }] });
        let written = Measurements { run, all: vec![rounds.measurement("files")] };
        written.write(&path).unwrap();
        let read = Measurements::read(&path).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.find(Task::Load(10), "files").unwrap().median(), 3000.0);
        assert_eq!(read.find(Task::Load(11), "files"), None);
        assert_eq!(read.stores(), [("files".to_owned(), String::new())]);
    }
}
