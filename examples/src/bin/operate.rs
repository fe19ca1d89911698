//! Nightly job: verifies, backs up and sweeps a SQLite store that is in use, reports as JSON, then restores the backup and continues.
//!
//! Exit code: 0 if all is well, 5 if stored data is damaged, 1 for any other failure.
#![allow(clippy::print_stdout, reason = "it is an example")]

use std::path::Path;
use std::time::Duration;

use agent::admin::verify::{Verification, verify};
use agent::runtime::retention::{InactivityPolicy, SweepPolicy};
use agent::{AgentBuilder, AgentRuntime, EchoProvider, SqliteStore, Storage};
use serde_json::{Value, json};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn build(store: SqliteStore) -> Result<AgentRuntime, agent::Error> {
    AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(store).build()
}

fn verification(found: &Verification) -> Value {
    let findings: Vec<_> = found.findings.iter().map(ToString::to_string).collect();
    json!({ "sessions": found.sessions, "events": found.events, "findings": findings })
}

/// Does the work of one night. Returns the report, and `true` if everything is sound.
async fn nightly(store: &Path, backup: &Path) -> Result<(Value, bool), agent::Error> {
    let source = SqliteStore::open(store).await?;
    let agent = build(source.clone())?;
    let before = verify(agent.storage(), |_| {}).await?;
    let mut report = json!({ "store": store, "verify": verification(&before) });
    if before.is_sound() {
        source.backup(backup).await?;
        let copy = Storage::from(SqliteStore::open(backup).await?);
        let after = verify(&copy, |_| {}).await?;
        copy.close().await?;
        let policy = SweepPolicy::new()
            .with_inactive(90 * DAY, InactivityPolicy::Suspend)
            .with_purge_deleted(30 * DAY);
        let dry = agent.workspaces().sweep(&policy.clone().with_dry_run()).await?;
        let real = agent.workspaces().sweep(&policy).await?;
        report["backup"] = json!({ "file": backup, "verify": verification(&after) });
        report["sweep"] =
            json!({ "examined": real.examined, "planned": dry.swept.len(), "swept": real.swept.len() });
        agent.close().await?;
        return Ok((report, after.is_sound()));
    }
    agent.close().await?;
    Ok((report, false))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [store, backup] = &args[..] {
        if !Path::new(store).exists() {
            return Err(format!("{store} does not exist").into());
        }
        let (report, sound) = nightly(Path::new(store), Path::new(backup)).await?;
        println!("{report}");
        std::process::exit(if sound { 0 } else { 5 });
    }

    // Without arguments: a demonstration, while another agent writes.
    let folder = std::env::temp_dir().join(format!("nightly-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (live, backup, restored) =
        (folder.join("agent.db"), folder.join("backup.db"), folder.join("restored.db"));
    let agent = build(SqliteStore::open(&live).await?)?;
    let chat = agent.conversation("support/1").await?;
    chat.prompt("Before the night").await?.finish().await?;
    let writer = tokio::spawn({
        let chat = chat.clone();
        async move {
            for number in 0..200 {
                chat.prompt(format!("message {number}")).await?.finish().await?;
            }
            Ok::<_, agent::runtime::RunError>(())
        }
    });
    let (report, sound) = nightly(&live, &backup).await?;
    println!("{report:#}");
    writer.await??;
    agent.close().await?;

    std::fs::copy(&backup, &restored)?;
    let agent = build(SqliteStore::open(&restored).await?)?;
    let chat = agent.conversation("support/1").await?;
    let had = chat.record().counts.messages();
    let answer = chat.prompt("After the restore").await?.finish().await?;
    println!("restored {had} messages, and went on: {}", answer.text);
    agent.close().await?;
    std::fs::remove_dir_all(&folder)?;
    std::process::exit(if sound { 0 } else { 5 });
}
