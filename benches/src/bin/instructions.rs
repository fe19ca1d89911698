//! Counts the instructions of the operations that every store repeats, and compares them with their limits.
//!
//! `cargo run --release -p benches --bin instructions` needs `valgrind`; `-- --write` makes the counts of now the limits. Unlike a
//! time, a count is the same on a busy machine.

#![allow(clippy::print_stdout, reason = "a program that prints what it counted")]

use std::hint::black_box;
use std::process::{Command, ExitCode};

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::{Event, NewEvent};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::{Plan, Timestamp, WorkspaceId, plan};
use bench_limits::{Count, Limits};
use bench_worker::{Outcome, text};

const LIMITS: Limits = Limits {
    file: concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt"),
    about: "Instructions of one operation",
    tolerance: 5,
    command: ".ci/counts",
};
const START: Timestamp = Timestamp::from_micros(1_771_151_400_000_000);
const EVENTS: usize = 10_000;

/// An operation that is counted.
struct Operation {
    name: &'static str,
    /// Description, in one line.
    about: &'static str,
    /// Number of repetitions that are counted together.
    times: u64,
    /// Prepares it, and does it this many times.
    run: fn(u64) -> Outcome,
}

const OPERATIONS: [Operation; 4] = [
    Operation {
        name: "plan",
        about: "plan the commit of a turn in a session of 10,000 events",
        times: 200,
        run: plans,
    },
    Operation { name: "fold", about: "fold 10,000 events into a session's record", times: 1, run: folds },
    Operation {
        name: "encode",
        about: "encode an event with a message of 1 KiB as a line",
        times: 1_000,
        run: encodes,
    },
    Operation { name: "parse", about: "parse the same line", times: 1_000, run: parses },
];

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let should_write = match words.as_slice() {
        [] => false,
        ["--write"] => true,
        ["--operation", name, times] => {
            let operation =
                OPERATIONS.iter().find(|operation| operation.name == *name).ok_or("no such operation")?;
            (operation.run)(times.parse()?)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => return Err("usage: instructions [--write]".into()),
    };
    let mut counts = Vec::new();
    for Operation { name, about, times, .. } in &OPERATIONS {
        // The preparation is counted alone and taken off.
        let [alone, with] = [count(name, 0)?, count(name, *times)?];
        let count = with.saturating_sub(alone) / times;
        counts.push(Count { name: (*name).to_owned(), about: (*about).to_owned(), count });
    }
    if should_write {
        LIMITS.write(&counts)?;
        println!("written: {}", LIMITS.file);
    }
    let (table, holds) = LIMITS.compare(&counts)?;
    println!("{table}");
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts the instructions of a process of this program that does an operation this many times.
fn count(name: &str, times: u64) -> Outcome<u64> {
    let done = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["--operation", name, &times.to_string()])
        .output()
        .map_err(|error| {
            format!("valgrind cannot be run ({error}); install it, for example by `apt-get install valgrind`")
        })?;
    let printed = String::from_utf8_lossy(&done.stderr);
    let collected = printed.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    match (done.status.success(), collected) {
        (true, Some(count)) => Ok(count),
        _ => Err(format!("valgrind counted nothing for {name}: {printed}").into()),
    }
}

/// Makes a session of [`EVENTS`] events and more, ten messages of 1 KiB in a commit: its log and its record.
fn session(effects: &Effects) -> Outcome<(Vec<Event>, SessionRecord)> {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let (id, mut log, mut now) = (new.id, Vec::new(), None::<SessionRecord>);
    let mut commit = Commit::create(effects, new);
    loop {
        let Plan::Write { events, after, .. } = plan(now.as_ref(), &commit)? else {
            return Err("a commit wrote nothing".into());
        };
        log.extend(events);
        if log.len() >= EVENTS {
            return Ok((log, SessionRecord::clone(&after)));
        }
        let event = (0..5).flat_map(|_| [NewEvent::user_message(text()), NewEvent::agent_message(text())]);
        commit = Commit::seal(effects, id, after.head).with_events(event);
        now = Some(SessionRecord::clone(&after));
    }
}

fn plans(times: u64) -> Outcome {
    let effects = Effects::seeded(1, START);
    let (_, now) = session(&effects)?;
    let turn = [NewEvent::user_message(text()), NewEvent::agent_message(text())];
    let commit = Commit::seal(&effects, now.id, now.head).with_events(turn);
    for _ in 0..times {
        black_box(plan(Some(black_box(&now)), black_box(&commit))?);
    }
    Ok(())
}

fn folds(times: u64) -> Outcome {
    let (log, now) = session(&Effects::seeded(1, START))?;
    for _ in 0..times {
        let mut folded = SessionRecord::begin(now.id, &log[0])?;
        for event in black_box(&log[1..EVENTS]) {
            folded.apply(event)?;
        }
        black_box(folded);
    }
    Ok(())
}

/// Makes one event with a message.
fn message() -> Outcome<Event> {
    let effects = Effects::seeded(1, START);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let commit = Commit::create(&effects, new).with_event(NewEvent::agent_message(text()));
    let Plan::Write { events, .. } = plan(None, &commit)? else {
        return Err("a commit wrote nothing".into());
    };
    Ok(events.into_iter().last().ok_or("a commit wrote nothing")?)
}

fn encodes(times: u64) -> Outcome {
    let event = message()?;
    for _ in 0..times {
        black_box(black_box(&event).to_json());
    }
    Ok(())
}

fn parses(times: u64) -> Outcome {
    let line = message()?.to_json();
    for _ in 0..times {
        black_box(Event::from_json(black_box(&line))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_do_something() {
        for operation in &OPERATIONS {
            (operation.run)(1).unwrap();
        }
    }
}
