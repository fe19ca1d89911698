//! Any byte of a store changed, cut off or zeroed. Each answer is unchanged, or reports damage, or is found to be wrong
//! by `verify`; nothing panics, and nothing reads on and on.
//!
//! `AGENT_STORAGE_DAMAGES=all` damages every byte, in three ways; a number damages so many of each file, other ones with
//! each run; `AGENT_STORAGE_SEED` repeats a run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a table of what was damaged, and the seed to do it again")]

mod answers;
mod arbitrary_input;
mod bucket;
mod fixture;

use agent_admin::verify::verify;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::Storage;
use agent_core::clock::Effects;
use answers::{Answers, Verdict};
use fixture::{Fixture, Guard, Kind, Names};
use tempfile::TempDir;

/// How many damages to each file of a store are tried by default.
const TRIES: usize = 120;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// One damage to one file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// One bit is another.
    Flip { at: usize, bit: u8 },
    /// The file ends here.
    Cut { at: usize },
    /// So many bytes are zero.
    Zero { at: usize, bytes: usize },
}

impl Damage {
    fn apply(self, sound: &[u8]) -> Vec<u8> {
        let mut bytes = sound.to_vec();
        match self {
            Self::Flip { at, bit } => bytes[at] ^= 1 << bit,
            Self::Cut { at } => bytes.truncate(at),
            Self::Zero { at, bytes: many } => {
                let end = bytes.len().min(at + many);
                bytes[at..end].fill(0);
            }
        }
        bytes
    }

    /// The first byte that may be another.
    pub(crate) fn first(self) -> usize {
        match self {
            Self::Flip { at, .. } | Self::Cut { at } | Self::Zero { at, .. } => at,
        }
    }

    /// The end of what may be another, in a file of so many bytes.
    pub(crate) fn end(self, len: usize) -> usize {
        match self {
            Self::Flip { at, .. } => at + 1,
            Self::Cut { .. } => len,
            Self::Zero { at, bytes } => len.min(at + bytes),
        }
    }

    /// Of every byte, or of some: a flipped bit, a cut, zeros.
    fn all(len: usize, effects: &Effects) -> Vec<Self> {
        let random = |below: usize| (effects.random_u64() % below.max(1) as u64) as usize;
        let of = |at: usize, what: usize| match what {
            0 => Self::Cut { at },
            1 => Self::Zero { at, bytes: [1, 16, 512][random(3)] },
            _ => Self::Flip { at, bit: random(8) as u8 },
        };
        let outcome = std::env::var("AGENT_STORAGE_DAMAGES").unwrap_or_default();
        if outcome == "all" {
            return (0..len).flat_map(|at| [of(at, 0), of(at, 1), of(at, 2)]).collect();
        }
        let tries = outcome.parse().unwrap_or(TRIES);
        (0..tries.min(len * 3)).map(|_| of(random(len), random(6))).collect()
    }
}

/// What became of all damages to the files of one name.
#[derive(Debug, Default)]
struct Tally {
    /// Each answer was as before.
    same: usize,
    /// Damage was named.
    named: usize,
    /// The last commit was taken for one that never ended.
    earlier: usize,
    /// It was taken for what somebody wrote there.
    edited: usize,
    /// An answer was another, and `verify` found it.
    found: usize,
}

/// A folder for thousands of small stores; in memory, where the system has such a place.
fn site() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            // What a store needs for a moment only may be gone by now.
            false => match fs::copy(entry.path(), target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            },
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// The answers of a store, or that it could not be opened, and why.
async fn ask(kind: Kind, folder: &Path, names: &Names) -> (Option<Storage>, Answers) {
    match kind.open(folder).await {
        Ok(storage) => {
            let answers = Answers::of(&storage, names).await;
            (Some(storage), answers)
        }
        Err(error) => (None, Answers::refused(&error)),
    }
}

/// Randomness, and the seed to have the same again.
fn seeded() -> (u64, Effects) {
    let seed = std::env::var("AGENT_STORAGE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| Effects::default().random_u64());
    eprintln!("AGENT_STORAGE_SEED={seed}");
    (seed, Effects::seeded(seed, Effects::default().now()))
}

async fn any_byte(kind: Kind) {
    let (seed, effects) = seeded();
    let site = site();
    let fixture = Fixture::make(kind, &site.path().join("sound")).await;
    let (_, sound) = ask(kind, &fixture.folder, &fixture.names).await;
    let mut tallies = BTreeMap::<String, Tally>::new();
    // Those beside a database come and go with who looks at it.
    for path in files(&fixture.folder).into_iter().filter(|path| path.exists()) {
        let name = path.strip_prefix(&fixture.folder).unwrap();
        let guard = fixture.guard(name);
        if guard == Guard::Unread {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let tally = tallies.entry(name.file_name().unwrap().to_string_lossy().into_owned()).or_default();
        for damage in Damage::all(bytes.len(), &effects) {
            let damaged = damage.apply(&bytes);
            if damaged == bytes {
                continue;
            }
            let what = || format!("AGENT_STORAGE_SEED={seed}, {}: {damage:?}", name.display());
            let folder = site.path().join("damaged");
            copy(&fixture.folder, &folder);
            fs::write(folder.join(name), &damaged).unwrap();
            let (storage, answers) = ask(kind, &folder, &fixture.names).await;
            match answers.judge(&sound) {
                Verdict::Same => tally.same += 1,
                Verdict::Named => tally.named += 1,
                Verdict::Wrong(_) if guard == Guard::Edited => tally.edited += 1,
                Verdict::Wrong(wrong) => {
                    let earlier = fixture.earlier(name, damage, bytes.len());
                    if earlier.is_some_and(|earlier| !matches!(answers.judge(earlier), Verdict::Wrong(_))) {
                        tally.earlier += 1;
                    } else {
                        let storage = storage.unwrap_or_else(|| panic!("{}: {wrong}", what()));
                        let seen = verify(&storage, |_| ()).await;
                        let found = seen.as_ref().is_ok_and(|seen| !seen.is_sound());
                        assert!(found, "{}: {wrong}\n{seen:?}", what());
                        tally.found += 1;
                    }
                }
            }
            assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{}", what());
            fs::remove_dir_all(&folder).unwrap();
        }
    }
    for (name, tally) in &tallies {
        eprintln!("{name}: {tally:?}");
    }
    // For `.ci/full`, on lines of their own.
    let sum = |count: fn(&Tally) -> usize| tallies.values().map(count).sum::<usize>();
    eprintln!("proof: {} damaged bytes that are named", sum(|tally| tally.named));
    eprintln!("proof: {} damaged bytes that change no answer", sum(|tally| tally.same));
    eprintln!("proof: {} damaged bytes that `verify` finds", sum(|tally| tally.found));
    assert!(tallies.values().any(|tally| tally.named > 0), "damage is named: {tallies:?}");
}

/// Counts panics, also those of threads that nobody waits for.
fn count_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        report(info);
    }));
}

/// Whatever byte of whatever file is damaged, no answer is wrong without `verify` seeing it, and nothing
/// panics; on files and in SQLite.
#[tokio::test]
async fn no_damaged_byte_gives_a_wrong_answer() {
    count_panics();
    for kind in [Kind::Files, Kind::Sqlite] {
        eprintln!("{kind:?}");
        any_byte(kind).await;
    }
}
