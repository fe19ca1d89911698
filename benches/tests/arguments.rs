//! Command line of the benchmarks: its help lists the arguments, and unknown ones are refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a deadline for another process")]

use std::process::{Command, Stdio};
use std::time::Duration;

/// What it comes to, which must be within a minute: neither help nor a refusal measures anything.
fn run(args: &[&str]) -> (i32, String, String) {
    run_with(args, None)
}

/// The same with another variable.
fn run_with(args: &[&str], variable: Option<(&str, &str)>) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_benches"))
        .args(args)
        .envs(variable)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reads = 0;
    while child.try_wait().unwrap().is_none() {
        if reads == 3000 {
            child.kill().unwrap();
            panic!("{args:?}: it measures");
        }
        reads += 1;
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
        for wording in ["--quick", "--json", "--store", "sqlite", "list"] {
            assert!(out.contains(wording), "{wording}: {out}");
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

/// The whole help says of each workload what it measures.
#[test]
fn help_describes_every_workload() {
    let source = include_str!("../src/workloads/mod.rs");
    let lines = source.lines().filter_map(|line| line.trim().strip_prefix("new(\"")?.strip_suffix("\"),"));
    let workloads: Vec<_> = lines.map(|line| line.split_once("\", \"").unwrap()).collect();
    assert!(workloads.len() > 10);
    let (_, out, _) = run(&["--help"]);
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, about) in workloads {
        assert!(words.contains(&format!("- {name}: {about}")), "{name}: {out}");
    }
}

/// A figure means nothing without the machine it was measured on.
#[test]
fn output_begins_with_the_machine() {
    let (code, out, err) = run(&["--quick", "--json", "--store=files", "size"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{out}");
    for (part, name) in
        [("machine", "cpu"), ("machine", "disk"), ("compiler", "profile"), ("settings", "durability")]
    {
        assert!(lines[0][part][name].is_string(), "{part}.{name}: {out}");
    }
    let (_, out, _) = run(&["--quick", "--store=files", "size"]);
    assert!(out.starts_with("machine: ") && out.contains("settings: "), "{out}");
}

/// The tasks that other libraries do as well are described, and nothing is measured.
#[test]
fn help_describes_every_task() {
    let (code, out, err) = run(&["beside", "--help"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for name in ["turn", "writers", "load", "fork", "last", "list", "agents"] {
        assert!(out.contains(&format!("- {name}:")), "{name}: {out}");
    }
    let (code, out, _) = run(&["plots", "--help"]);
    assert!(code == 0 && out.contains("--measure"), "{out}");
    let (_, out, _) = run(&["--help"]);
    assert!(out.contains("  beside ") && out.contains("  plots "), "{out}");
}

/// Both stores do a task in processes of their own.
#[test]
fn stores_are_measured_in_turns() {
    let (code, out, err) = run(&["beside", "--quick", "--ours-only", "--json", "load"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{out}");
    for (line, store) in lines[1..].iter().zip(["files", "sqlite"]) {
        assert_eq!((&line["store"], &line["task"]), (&store.into(), &"load".into()), "{out}");
    }
}

/// Without a server of PostgreSQL the other stores are measured, and a line says what is missing. Whoever names the store is told.
#[test]
fn store_without_its_server_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = Some(("PG_BIN", folder.path().to_str().unwrap()));
    let (code, out, err) = run_with(&["--quick", "--json", "size"], nowhere);
    assert_eq!((code, out.lines().count()), (0, 3), "{out}{err}");
    assert!(err.starts_with("postgres is left out: ") && err.contains("PG_BIN"), "{err}");
    for args in [&["--quick", "--store=postgres", "append"][..], &["beside", "--postgres", "load"]] {
        let (code, out, err) = run_with(args, nowhere);
        assert!(code == 1 && out.is_empty() && err.contains("PG_BIN"), "{args:?}: {out}{err}");
    }
}

/// The store is measured on a server that the program starts, against inserts by hand on the same server.
#[test]
fn store_in_postgres_is_measured_on_a_server_of_the_program() {
    let (code, out, err) = run(&["--quick", "--store=postgres", "--json", "last"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert_eq!(lines[1]["store"], "postgres", "{out}");
    for side in ["ours", "floor"] {
        assert_eq!(lines[1][side]["us"].as_array().unwrap().len(), 3, "{out}");
    }
}

/// Plots cannot be drawn of nothing, and the message names the file.
#[test]
fn plots_need_measurements() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, err) = run(&["plots", folder.path().to_str().unwrap()]);
    assert!(code == 1 && err.contains("measurements.jsonl"), "{err}");
}
