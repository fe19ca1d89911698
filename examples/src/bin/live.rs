//! Watches a conversation from another process that is killed and started again, and misses nothing: `live FOLDER`.
#![allow(clippy::print_stdout, reason = "it is an example")]

use std::{fs, io::Write, path::Path, time::Duration};

use agent::core::Seq;
use agent::{AgentBuilder, AgentRuntime, EchoProvider, FsStore};
use futures::TryStreamExt;
use tokio::{process::Command, time::sleep};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

async fn build(folder: &Path) -> Outcome<AgentRuntime> {
    let store = FsStore::open(folder.join("store")).await?;
    Ok(AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(store).build()?)
}

/// The numbers of the events in the log, which is the watcher's bookmark too.
fn logged(folder: &Path) -> Vec<u64> {
    let log = fs::read_to_string(folder.join("room.log")).unwrap_or_default();
    log.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}

/// Prints and logs each event as it happens. A line is one write, so a kill leaves all of it or nothing.
async fn watch(folder: &Path) -> Outcome<()> {
    let mut log = fs::File::options().create(true).append(true).open(folder.join("room.log"))?;
    let last = Seq::new(logged(folder).last().copied().unwrap_or(0));
    let agent = build(folder).await?;
    let mut events = agent.conversation("room").await?.follow(last);
    while let Some(event) = events.try_next().await? {
        let line = format!("{} {} {:?}\n", event.seq, event.kind, event.text().unwrap_or_default());
        log.write_all(line.as_bytes())?;
        print!("{line}");
    }
    Ok(())
}

async fn send(folder: &Path) -> Outcome<()> {
    let agent = build(folder).await?;
    let chat = agent.conversation("room").await?;
    for number in 1..=10 {
        chat.ask(format!("message {number}")).await?;
        sleep(Duration::from_millis(200)).await;
    }
    Ok(agent.close().await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: live FOLDER [watch|send]")?;
    let folder = Path::new(&folder);
    match args.next().as_deref() {
        Some("watch") => return watch(folder).await,
        Some("send") => return send(folder).await,
        _ => fs::create_dir_all(folder)?,
    }
    let program = std::env::current_exe()?;
    let start = |role| Command::new(&program).arg(folder).arg(role).kill_on_drop(true).spawn();
    let mut sender = start("send")?;
    for _ in 0..3 {
        let mut watcher = start("watch")?;
        sleep(Duration::from_millis(500)).await;
        watcher.kill().await?; // SIGKILL
        sleep(Duration::from_millis(300)).await;
    }
    sender.wait().await?;
    let _watcher = start("watch")?;
    let agent = build(folder).await?;
    let head = agent.conversation("room").await?.record().head.get();
    agent.close().await?;
    while logged(folder).last().is_none_or(|last| *last < head) {
        sleep(Duration::from_millis(50)).await;
    }
    assert!(logged(folder).into_iter().eq(1..=head), "missed or doubled: {:?}", logged(folder));
    println!("{head} events, each once");
    Ok(())
}
