//! Counts what one turn costs on each store: a prompt, its answer by a model that echoes, and the end of the run.
//!
//! `cargo run --release -p benches --bin turn`; `-- SQLite` counts one store, as for `strace -f -c`.

#![allow(clippy::print_stdout, reason = "a program that prints what it counted")]

use std::alloc::System;
use std::fs;
use std::sync::Arc;

use agent_core::{MemoryStore, Result, Storage};
use agent_runtime::{AgentBuilder, EchoProvider};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Turns before any is counted, and those that are.
const WARM: u32 = 50;
const TURNS: u32 = 500;

/// System calls of this process that read, and that write.
fn calls() -> (u64, u64) {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let figure = |name| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0);
    (figure("syscr:"), figure("syscw:"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:<8}{:>8}{:>14}{:>14}{:>10}{:>10}",
        "store", "prompt", "allocations", "bytes", "reads", "writes"
    );
    for size in [32, 4096] {
        let folder = tempfile::tempdir()?;
        let stores: [(&str, Storage); 3] = [
            ("memory", MemoryStore::new().into()),
            ("files", FsStore::open(folder.path().join("files")).await?.into()),
            ("SQLite", SqliteStore::open(folder.path().join("agent.db")).await?.into()),
        ];
        let only = std::env::args().nth(1);
        for (name, storage) in stores {
            if only.as_ref().is_some_and(|only| only != name) {
                continue;
            }
            let model = Arc::new(EchoProvider::new());
            let agent = AgentBuilder::new().with_llm(model).with_storage(storage).build()?;
            let chat = agent.open(&"laptop".parse()?).await?;
            let text = "x".repeat(size);
            let (mut allocations, mut bytes, mut reads, mut writes) = (0, 0, 0, 0);
            for turn in 0..WARM + TURNS {
                let (heap, before) = (Region::new(ALLOCATOR), calls());
                chat.prompt(&*text).await?.finish().await?;
                let (heap, after) = (heap.change(), calls());
                if turn >= WARM {
                    allocations += heap.allocations + heap.reallocations;
                    bytes += heap.bytes_allocated;
                    reads += after.0 - before.0;
                    writes += after.1 - before.1;
                }
                // So that each turn has as little to read as the first.
                agent.storage().sessions.clear(chat.id()).await?;
            }
            let turns = u64::from(TURNS);
            println!(
                "{name:<8}{size:>8}{:>14}{:>14}{:>10}{:>10}",
                allocations as u64 / turns,
                bytes as u64 / turns,
                reads / turns,
                writes / turns,
            );
            agent.close().await?;
        }
    }
    Ok(())
}
