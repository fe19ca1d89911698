//! No reader takes the square of the input: the instructions for inputs of one shape, counted by valgrind, grow like their sizes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::process::Command;

use agent_fuzz::shapes;

const SMALL: usize = 16 << 10;
const TIMES: usize = 8;

/// Counts the instructions of reading an input with this many bytes.
fn instructions(shape: usize, bytes: usize) -> u64 {
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", env!("CARGO_BIN_EXE_read")])
        .args([shape.to_string(), bytes.to_string()])
        .output()
        .expect("valgrind is installed");
    let printed = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{printed}");
    let count = printed.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    count.unwrap_or_else(|| panic!("nothing was counted: {printed}"))
}

/// Sorting and maps may add a logarithm; a loop in a loop takes `TIMES` times as many again.
#[test]
#[ignore = "counts with valgrind for minutes; `.ci/full` runs it"]
fn instructions_grow_like_the_input() {
    let mut found = Vec::new();
    for (n, shape) in shapes().iter().enumerate() {
        let base = instructions(n, 0);
        let [small, large] = [SMALL, SMALL * TIMES].map(|bytes| instructions(n, bytes).saturating_sub(base));
        let line = format!("{} of {}: {small} and {large}", shape.shape, shape.target);
        eprintln!("{line}");
        if large > small * (TIMES as u64) * 3 / 2 {
            found.push(line);
        }
    }
    eprintln!(
        "proof: {} shapes of inputs whose instructions grow like their size",
        shapes().len() - found.len()
    );
    assert!(found.is_empty(), "these grow faster than their input: {found:#?}");
}
