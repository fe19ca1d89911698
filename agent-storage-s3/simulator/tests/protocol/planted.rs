//! T18: mistakes that are made on purpose are noticed.

use agent_storage_s3::Planted;

use crate::course::{Terms, run};

/// Each mistake is noticed within so many courses.
const SEEDS: u64 = 200;

/// Each mistake that a commit protocol is known to make is noticed by the same courses that find nothing wrong
/// without it.
#[test]
fn every_planted_mistake_is_noticed() {
    for planted in Planted::ALL.iter().copied().filter(|planted| *planted != Planted::EqualBodies) {
        let terms = Terms { planted: Some(planted) };
        let noticed = (0..SEEDS).find_map(|seed| run(seed, &terms).err().map(|what| (seed, what)));
        let (seed, what) = noticed.unwrap_or_else(|| panic!("{planted:?} goes unnoticed in {SEEDS} courses"));
        println!("{planted:?}: seed {seed}: {}", what.chars().take(300).collect::<String>());
    }
}
