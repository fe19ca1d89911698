//! Applies a retention policy, a dry run first, then exports and erases one conversation and searches the store's bytes for it.
#![allow(clippy::print_stdout, reason = "it is an example")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::admin::manifest::Manifest;
use agent::core::Timestamp;
use agent::core::clock::{Clock, Effects};
use agent::core::model::Patch;
use agent::runtime::retention::{InactivityPolicy, SweepPolicy};
use agent::{AgentBuilder, AgentRuntime, EchoProvider, SqliteStore};

const DAY: Duration = Duration::from_secs(24 * 3600);
const SECRET: &str = "Rumpelstiltskin";

/// Clock that is some days late, to create old sessions.
#[derive(Debug)]
struct DaysAgo(i64);

impl Clock for DaysAgo {
    fn now(&self) -> Timestamp {
        Effects::default().now().plus_micros(-self.0 * 24 * 3600 * 1_000_000)
    }
}

async fn build(folder: &Path, days_ago: i64) -> Result<AgentRuntime, agent::Error> {
    AgentBuilder::new()
        .with_llm(EchoProvider::new())
        .with_storage(SqliteStore::open(folder.join("agent.db")).await?)
        .with_effects(Effects::default().with_clock(Arc::new(DaysAgo(days_ago))))
        .build()
}

/// Returns `true` if any file of the store contains the word.
fn stored(folder: &Path, word: &str) -> std::io::Result<bool> {
    let files =
        std::fs::read_dir(folder)?.map(|file| std::fs::read(file?.path())).collect::<Result<Vec<_>, _>>()?;
    Ok(files.iter().any(|bytes| bytes.windows(word.len()).any(|found| found == word.as_bytes())))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("retention-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;

    // Half a year ago: one session for each rule, and one that is pinned.
    let past = build(&folder, 180).await?;
    for key in ["idle", "archived", "deleted", "pinned"] {
        let chat = past.conversation(key).await?;
        chat.prompt(format!("I am {key}")).await?.finish().await?;
        match key {
            "archived" => chat.archive().await?,
            "deleted" => chat.delete().await?,
            "pinned" => chat.update(Patch::new().pin("legal hold 4711")).await?,
            _ => {}
        }
    }
    past.close().await?;

    let agent = build(&folder, 0).await?;
    let policy = SweepPolicy::new()
        .with_inactive(90 * DAY, InactivityPolicy::Suspend)
        .with_delete_archived(90 * DAY)
        .with_purge_deleted(30 * DAY);
    for (name, policy) in [("dry run", policy.clone().with_dry_run()), ("sweep", policy)] {
        let report = agent.workspaces().sweep(&policy).await?;
        println!("{name}: {} examined, {} damaged", report.examined, report.damaged.len());
        for entry in &report.swept {
            println!(
                "  {} {:?} -> {:?}, last used {}",
                entry.session, entry.state, entry.action, entry.last_used
            );
        }
        for kept in &report.retained {
            println!("  {} kept: {}", kept.id, kept.reason);
        }
        assert_eq!((report.swept.len(), report.retained.len()), (3, 1));
    }

    let chat = agent.conversation("customer/9").await?;
    chat.prompt(format!("My name is {SECRET}")).await?.finish().await?;
    let document = Manifest::export(&*agent.storage().sessions, chat.id()).await?.to_json()?;
    assert!(document.contains(SECRET));
    let erased = agent.erase_conversation("customer/9").now().await?;
    println!("exported {} bytes, then erased {} events", document.len(), erased.events);
    // A fork would still read a part of it: erase the fork, then this conversation once more.
    assert_eq!(erased.needed_by, None);
    agent.close().await?;
    // Only now: SQLite loses its locks if its own process opens the file beside it.
    assert!(!stored(&folder, SECRET)?, "the word is still in the store");
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
