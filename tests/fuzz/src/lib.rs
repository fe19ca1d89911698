//! Targets for fuzzers: every format that people or other programs write.
//!
//! A target reads an input, and fails by a panic. It asserts that what is read is written again and then read as an equal value, that an
//! error names the object, and that the memory in use stays below a small multiple of the input. The tests of this crate run each target
//! on mutated seeds; `.ci/fuzz` runs them under libFuzzer, which is guided by coverage (`libfuzzer`), and counts instructions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a target fails by panicking")]

mod grown;
pub mod mutation;
mod seal;
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use agent_core::{Error, ErrorKind};
use peak_alloc::PeakAlloc;

pub use grown::{Grown, shapes};

/// Counts what Rust code allocates.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes that a target may use beside its multiple of the input: tables, errors, buffers of a fixed size.
const ROOM: usize = 256 << 10;
/// Maximum length of an error text, in bytes: an object, a reason, a remedy, and a quotation of at most 60 characters.
const TEXT_MAX: usize = 700;

/// One format, and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name, also of its folder of inputs.
    pub name: &'static str,
    /// Maximum memory for one byte of input, in bytes.
    pub factor: usize,
    /// Rounds of mutation on each change.
    pub rounds: u64,
    /// Valid inputs from which mutations start.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads an input.
    pub run: fn(&[u8]),
}

/// Returns all targets.
pub fn targets() -> Vec<Target> {
    let all = [targets::core::TARGETS, targets::documents::TARGETS, targets::stores::TARGETS];
    all.concat()
}

impl Target {
    /// Runs the target on one input.
    ///
    /// # Panics
    ///
    /// Panics if an assertion of the target fails.
    pub fn check(&self, input: &[u8]) {
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        (self.run)(input);
        let used = HEAP.peak_usage().saturating_sub(before);
        let max = ROOM + self.factor * input.len();
        assert!(
            used <= max,
            "{} used {used} bytes of memory for {} bytes; at most {max}",
            self.name,
            input.len()
        );
    }
}

/// Checks that an error names the object by one of these words, is short, and is of a kind for what comes from outside.
fn check_error(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert!(words.iter().any(|word| text.contains(word)), "the error names none of {words:?}: {text}");
    assert!(text.len() <= TEXT_MAX, "the error has {} bytes: {text}", text.len());
    let kind = error.kind();
    let is_of_input = matches!(
        kind,
        ErrorKind::Corrupt | ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::LimitExceeded
    );
    assert!(is_of_input, "{kind:?}: {text}");
}

/// Folder of the golden files.
fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden")
}

/// Returns the number of a stored form, and the folder of its golden files: the newest, if there are several.
fn newest(form: &str) -> (u32, PathBuf) {
    let numbers = fs::read_dir(golden().join(form)).unwrap().map(|entry| entry.unwrap().file_name());
    let number = numbers.map(|name| name.to_str().unwrap().parse().unwrap()).max().unwrap();
    (number, golden().join(form).join(number.to_string()))
}

/// Returns the files below a folder, by their paths from it.
fn files_below(root: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
