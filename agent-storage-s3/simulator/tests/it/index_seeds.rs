//! Many courses of events around the index, and each one the same again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use s3_simulator::Fault;

use crate::course::REPLAY;
use crate::index_course::{IndexCourse, run};

/// The variable that says how many courses are run, or which, such as `2000..4000`; 300 unless set.
const SEEDS: &str = "S3_INDEX_SEEDS";

/// Courses that once showed a defect.
const REMEMBERED: &[u64] = &[19_337, 19_716];

#[derive(Default)]
struct Sum {
    courses: u64,
    requests: usize,
    sessions: usize,
    commits: usize,
    pages: usize,
    purged: usize,
    blobs: usize,
    dropped: usize,
    needed: u64,
    changing: u64,
    fired: BTreeMap<Fault, u64>,
}

impl Sum {
    fn of(course: &IndexCourse) -> Self {
        Self {
            courses: 1,
            requests: course.simulator.requests(),
            sessions: course.sessions,
            commits: course.commits,
            pages: course.pages,
            purged: course.purged,
            blobs: course.blobs,
            dropped: course.dropped,
            needed: course.judged.needed,
            changing: course.judged.changing,
            fired: course.simulator.fired(),
        }
    }

    fn join(mut self, other: Self) -> Self {
        self.courses += other.courses;
        self.requests += other.requests;
        self.sessions += other.sessions;
        self.commits += other.commits;
        self.pages += other.pages;
        self.purged += other.purged;
        self.blobs += other.blobs;
        self.dropped += other.dropped;
        self.needed += other.needed;
        self.changing += other.changing;
        for (fault, times) in other.fired {
            *self.fired.entry(fault).or_default() += times;
        }
        self
    }

    fn table(&self) -> String {
        let mut text = format!(
            "proof: {} courses around the index of a bucket\n\
             {} requests, {} sessions of which {} were purged, {} commits, {} pages, {} blobs that were named\n\
             {} commits were dropped half-way; {} times a session had to be on a page, {} times one changed meanwhile\n",
            self.courses,
            self.requests,
            self.sessions,
            self.purged,
            self.commits,
            self.pages,
            self.blobs,
            self.dropped,
            self.needed,
            self.changing
        );
        for (fault, times) in &self.fired {
            let _ = writeln!(text, "{times} faults: {fault}");
        }
        text
    }
}

fn seeds() -> Range<u64> {
    let Ok(seeds) = std::env::var(SEEDS) else { return 0..100 };
    let number = |text: &str| text.parse().expect("S3_INDEX_SEEDS is a number, or two with .. between");
    seeds.split_once("..").map_or_else(|| 0..number(&seeds), |(first, end)| number(first)..number(end))
}

fn one(seed: u64) -> IndexCourse {
    run(seed).unwrap_or_else(|what| panic!("{REPLAY}={seed} in the courses around the index: {what}"))
}

/// Two writers, two listers, a worker and a collector on one bucket, in bursts with pauses of up to 8 days. Requests fail and arrive up to
/// 25 hours later, lists are cut short, deletions denied, a lister is cut off and goes on, processes end half-way.
///
/// Each list shows each session that belongs to it, as it was at some moment while the list was made, once, and no other; a
/// look for work misses none; no key in force is ever missing. In the end, after requests that were late have
/// landed, a sweep and a rebuild, the keys are those of the sessions and no others, and each blob that an event
/// names can be read.
#[test]
fn lists_stay_correct_under_any_faults() {
    if let Ok(seed) = std::env::var(REPLAY) {
        one(seed.parse().expect("S3_SEED is a number"));
        return;
    }
    let seeds = seeds();
    REMEMBERED.iter().for_each(|seed| drop(one(*seed)));
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = |of: u64| {
        let mine = seeds.clone().filter(|seed| seed % threads == of);
        mine.fold(Sum::default(), |sum, seed| {
            if seed > 0 && seed.is_multiple_of(5000) {
                println!("seed {seed}");
            }
            sum.join(Sum::of(&one(seed)))
        })
    };
    let sum = std::thread::scope(|scope| {
        let shares: Vec<_> = (0..threads).map(|of| scope.spawn(move || share(of))).collect();
        shares.into_iter().fold(Sum::default(), |sum, share| sum.join(share.join().unwrap()))
    });
    println!("{}", sum.table());
    // What does not happen tests nothing.
    for fault in Fault::ALL {
        let times = sum.fired.get(&fault).copied().unwrap_or_default();
        assert!(times * 4 >= sum.courses, "{fault} struck {times} times in {} courses", sum.courses);
    }
    assert!(sum.needed >= 50 * sum.courses && sum.changing >= 5 * sum.courses, "{}", sum.table());
    let rare = [sum.purged, sum.blobs, sum.dropped];
    assert!(rare.iter().all(|count| *count as u64 >= sum.courses / 4), "{}", sum.table());
}

/// A course is the same again, to the byte.
#[test]
fn same_seed_gives_the_same_lists() {
    for seed in 0..10 {
        assert_eq!(one(seed).simulator.trace(), one(seed).simulator.trace(), "seed {seed}");
    }
}
