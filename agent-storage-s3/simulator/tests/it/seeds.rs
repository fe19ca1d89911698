//! Many courses of events, and each one the same again.

use std::collections::BTreeMap;
use std::fmt::Write;

use s3_simulator::{Dialect, Fault};

use crate::course::{Course, REPLAY, run};

/// The variable that says how many courses are run; 500 unless set.
const SEEDS: &str = "S3_SEEDS";

/// Courses that once showed a defect.
const REMEMBERED: &[u64] = &[532, 1109];

#[derive(Default)]
struct Sum {
    courses: u64,
    calls: usize,
    requests: usize,
    unknown: usize,
    events: usize,
    /// How often a fault struck, and in how many courses.
    fired: BTreeMap<Fault, (u64, u64)>,
}

impl Sum {
    fn add(&mut self, course: &Course) {
        self.courses += 1;
        self.calls += course.calls;
        self.unknown += course.unknown;
        self.events += course.commits;
        self.requests += course.simulator.requests();
        for (fault, times) in course.simulator.fired() {
            let sum = self.fired.entry(fault).or_default();
            *sum = (sum.0 + times, sum.1 + 1);
        }
    }

    fn join(mut self, other: Self) -> Self {
        self.courses += other.courses;
        self.calls += other.calls;
        self.unknown += other.unknown;
        self.events += other.events;
        self.requests += other.requests;
        for (fault, (times, courses)) in other.fired {
            let sum = self.fired.entry(fault).or_default();
            *sum = (sum.0 + times, sum.1 + courses);
        }
        self
    }

    fn table(&self) -> String {
        let mut text = format!(
            "proof: {} courses on a bucket\n{} calls, {} requests, {} answers in doubt\n",
            self.courses, self.calls, self.requests, self.unknown
        );
        for (fault, (times, courses)) in &self.fired {
            let _ = writeln!(text, "proof: {times} faults of a bucket: {fault}\nin {courses} courses");
        }
        text
    }
}

fn one(seed: u64) -> Course {
    run(Dialect::S3, seed).unwrap_or_else(|what| panic!("{REPLAY}={seed}: {what}"))
}

/// Three writers, two readers and a purger on one bucket. Whatever goes wrong, what
/// was acknowledged is in the log, nothing is there twice, what was refused is not there, a fenced writer writes
/// nothing, every answer was true at some moment while it was given, all doubt is settled, and a minute after the last
/// fault every handle has got on.
#[test]
fn log_stays_correct_under_any_faults() {
    if let Ok(seed) = std::env::var(REPLAY) {
        one(seed.parse().expect("S3_SEED is a number"));
        return;
    }
    let seeds = std::env::var(SEEDS).map_or(200, |seeds| seeds.parse().expect("S3_SEEDS is a number"));
    REMEMBERED.iter().for_each(|seed| drop(one(*seed)));
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = |of: u64| {
        (0..seeds).filter(|seed| seed % threads == of).fold(Sum::default(), |mut sum, seed| {
            sum.add(&one(seed));
            sum
        })
    };
    let sum = std::thread::scope(|scope| {
        let shares: Vec<_> = (0..threads).map(|of| scope.spawn(move || share(of))).collect();
        shares.into_iter().fold(Sum::default(), |sum, share| sum.join(share.join().unwrap()))
    });
    println!("{}", sum.table());
    // A fault that does not strike tests nothing.
    for fault in Fault::ALL {
        let (_, courses) = sum.fired.get(&fault).copied().unwrap_or_default();
        assert!(courses * 5 >= sum.courses, "{fault} struck in {courses} of {} courses", sum.courses);
    }
    assert!(sum.unknown as u64 >= sum.courses / 10, "hardly any doubt: {}", sum.unknown);
}

/// The same on Google Cloud Storage, by a fifth of the seeds.
#[test]
fn log_stays_correct_on_gcs_under_any_faults() {
    let one = |seed| run(Dialect::Gcs, seed).unwrap_or_else(|what| panic!("{REPLAY}={seed} on GCS: {what}"));
    if let Ok(seed) = std::env::var(REPLAY) {
        one(seed.parse().expect("S3_SEED is a number"));
        return;
    }
    let seeds = std::env::var(SEEDS).map_or(200, |seeds| seeds.parse().expect("S3_SEEDS is a number"));
    let mut sum = Sum::default();
    (0..(seeds / 5).max(1)).for_each(|seed: u64| sum.add(&one(seed)));
    for fault in Fault::ALL {
        assert!(sum.fired.contains_key(&fault), "{fault} never struck");
    }
}

/// A course is the same again, to the byte.
#[test]
fn same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(one(seed).simulator.trace(), one(seed).simulator.trace(), "seed {seed}");
    }
}
