//! Counts what one turn needs on each store, and compares the counts with their limits.
//!
//! A turn is a prompt of 600 bytes, its answer by a model that echoes, and the end of the run. `cargo run --release -p benches --bin
//! turn` needs `strace`; `-- --write` makes the counts of now the limits. `--count STORE TURNS KEPT TIMES` counts so many turns of one
//! store in this process.

#![allow(clippy::print_stdout, reason = "a program that prints what it counted")]

use std::alloc::System;
use std::fs;
use std::process::{Command, ExitCode};

use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::{MemoryStore, Storage};
use agent_runtime::{AgentBuilder, Config, Conversation, EchoProvider};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteStore;
use bench_limits::{Count, Limits};
use bench_worker::Outcome;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const LIMITS: Limits = Limits {
    file: concat!(env!("CARGO_MANIFEST_DIR"), "/turn.txt"),
    about: "Needs of one turn of a conversation",
    tolerance: 5,
    command: ".ci/counts",
};

const STORES: [&str; 3] = ["memory", "files", "SQLite"];

/// Conversations: how many turns they have, and the bytes of contexts that are kept between turns.
const CONVERSATIONS: [(&str, usize, usize); 3] = [
    ("after 10 turns", 10, 128 << 20),
    ("after 400 turns", 400, 128 << 20),
    ("after 400 turns, with no context kept", 400, 0),
];

/// Turns before any is counted, and those that are.
const WARM: usize = 5;
const TURNS: u64 = 20;

/// System calls that are not counted: how often a thread waits, starts or gets memory depends on the load of the machine.
const NOT_COUNTED: [&str; 26] = [
    "futex",
    "epoll_wait",
    "epoll_pwait",
    "epoll_ctl",
    "sched_yield",
    "sched_getaffinity",
    "clock_nanosleep",
    "restart_syscall",
    "ppoll",
    "brk",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "clone",
    "clone3",
    "set_robust_list",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "sigaltstack",
    "prctl",
    "gettid",
    "exit",
    "exit_group",
];

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let should_write = match words.as_slice() {
        [] => false,
        ["--write"] => true,
        ["--count", store, turns, kept, times] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let counts = count(store, turns.parse()?, kept.parse()?, times.parse()?);
            println!("{}", runtime.block_on(counts)?.map(|count| count.to_string()).join(" "));
            return Ok(ExitCode::SUCCESS);
        }
        _ => return Err("usage: turn [--write]".into()),
    };
    let mut counts = Vec::new();
    for store in STORES {
        for (about, turns, kept) in CONVERSATIONS {
            let anew = if kept == 0 { "-anew" } else { "" };
            for (what, count) in counted(store, turns, kept)? {
                let name = format!("{}-{turns}{anew}-{}", store.to_lowercase(), what.replace(' ', "-"));
                counts.push(Count { name, about: format!("{what} of a turn {about}, on {store}"), count });
            }
        }
    }
    if should_write {
        LIMITS.write(&counts)?;
        println!("written: {}", LIMITS.file);
    }
    let (table, holds) = LIMITS.compare(&counts)?;
    println!("{table}");
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts in processes of their own, the system calls by `strace`.
fn counted(store: &str, turns: usize, kept: usize) -> Outcome<Vec<(&'static str, u64)>> {
    let [turns, kept] = [turns, kept].map(|number| number.to_string());
    let order = |times: u64| [store.to_owned(), turns.clone(), kept.clone(), times.to_string()];
    let done = Command::new(std::env::current_exe()?).arg("--count").args(order(TURNS)).output()?;
    let printed = String::from_utf8_lossy(&done.stdout);
    let numbers: Vec<u64> = printed.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [allocations, bytes] = numbers[..] else {
        return Err(format!("{store}: {}", String::from_utf8_lossy(&done.stderr)).into());
    };
    // The preparation is counted alone and taken off.
    let (alone, with) = (calls(&order(0))?, calls(&order(TURNS))?);
    let each = |n: usize| with[n].saturating_sub(alone[n]).div_ceil(TURNS);
    Ok(vec![
        ("allocations", allocations),
        ("allocated bytes", bytes),
        ("reads", each(0)),
        ("writes", each(1)),
        ("system calls", each(2)),
    ])
}

/// Counts the system calls of a process of this program that counts turns: those that read, those that write, and all. How often threads
/// wake each other, which goes through a file of its own, depends on what else the machine does, and is not counted.
fn calls(order: &[String]) -> Outcome<[u64; 3]> {
    let trace = tempfile::NamedTempFile::new()?;
    let done = Command::new("strace")
        .args(["--follow-forks", "--decode-fds=path", "--signal=none", "--string-limit=0", "--output"])
        .arg(trace.path())
        .arg(std::env::current_exe()?)
        .arg("--count")
        .args(order)
        .output()
        .map_err(|error| {
            format!("strace cannot be run ({error}); install it, for example by `apt-get install strace`")
        })?;
    if !done.status.success() {
        return Err(format!("strace counted nothing: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    let mut counts = [0; 3];
    for line in fs::read_to_string(trace.path())?.lines() {
        // The number of the thread, then the call; the second half of a call that another one has cut begins with `<...`.
        let call = line.split_once(' ').map(|(_, call)| call.trim_start());
        let Some((name, arguments)) = call.and_then(|call| call.split_once('(')) else { continue };
        let wakes = arguments.split(',').next().is_some_and(|file| file.contains("anon_inode:[eventfd]"));
        if name.contains(' ') || wakes || NOT_COUNTED.contains(&name) {
            continue;
        }
        counts[0] += u64::from(["read", "readv", "pread64", "preadv"].contains(&name));
        counts[1] += u64::from(["write", "writev", "pwrite64", "pwritev"].contains(&name));
        counts[2] += 1;
    }
    Ok(counts)
}

/// Counts so many turns of a conversation that has some already: allocations and allocated bytes of one.
async fn count(store: &str, turns: usize, kept: usize, times: u64) -> Outcome<[u64; 2]> {
    let folder = tempfile::tempdir()?;
    let storage: Storage = match store {
        "memory" => MemoryStore::new().into(),
        // The view for people is written by time, and not by turns.
        "files" => FsConfig::new(folder.path().join("files")).with_transcripts(false).open().await?.into(),
        _ => SqliteStore::open(folder.path().join("agent.db")).await?.into(),
    };
    let config = Config::new().with_context_cache_bytes(kept);
    let builder = AgentBuilder::new().with_llm(EchoProvider::new()).with_config(config);
    let agent = builder.with_storage(storage).build()?;
    let chat = agent.conversation("counted").await?;
    let history =
        (WARM..turns).flat_map(|_| [NewEvent::user_message(text()), NewEvent::agent_message(text())]);
    let sessions = &agent.storage().sessions;
    let commit = Commit::seal(sessions.effects(), chat.id(), chat.record().head);
    sessions.commit(commit.with_trigger(Trigger::ImportEvents(history.collect()))).await?;
    for _ in 0..WARM {
        turn(&chat).await?;
    }
    let heap = Region::new(ALLOCATOR);
    for _ in 0..times {
        turn(&chat).await?;
    }
    let heap = heap.change();
    agent.close().await?;
    let allocations = (heap.allocations + heap.reallocations) as u64;
    Ok([allocations, heap.bytes_allocated as u64].map(|count| count.div_ceil(times.max(1))))
}

fn text() -> String {
    "x".repeat(600)
}

async fn turn(chat: &Conversation) -> Outcome {
    chat.prompt(text()).await?.finish().await?;
    Ok(())
}
