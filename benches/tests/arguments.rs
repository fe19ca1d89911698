//! The command line of the benchmarks: it says what it takes, and refuses what it does not know.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a deadline for another process")]

use std::process::{Command, Stdio};
use std::time::Duration;

/// What it comes to, which must be within a minute: neither help nor a refusal measures anything.
fn run(args: &[&str]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_benches"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut looks = 0;
    while child.try_wait().unwrap().is_none() {
        if looks == 3000 {
            child.kill().unwrap();
            panic!("{args:?}: it measures");
        }
        looks += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn help_measures_nothing() {
    for flag in ["--help", "-h"] {
        let (code, out, err) = run(&[flag]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        for said in ["--quick", "--json", "--store", "sqlite", "list"] {
            assert!(out.contains(said), "{said}: {out}");
        }
    }
}

#[test]
fn unknown_arguments_are_refused() {
    for (args, named) in [
        (&["--quik"][..], "--quik"),
        (&["--store=tape"], "tape"),
        (&["--store", "tape"], "tape"),
        (&["no-such-workload"], "no-such-workload"),
        (&["--quick", "no-such-workload"], "no-such-workload"),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(named) && err.contains("--help"), "{args:?}: {err}");
    }
}
