//! Measures the file backend against the least that any implementation has to do, in turns in one run.
//!
//! `cargo run --release -p benches [-- --json] [NAME …]`; `TMPDIR` says on which disk.

#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "this measures real time")]

mod rounds;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use agent_core::{
    Commit, Effects, Event, LeaseRequest, NewEvent, NewSession, ReadEvents, Reason, Result, RunEnd, Seq,
    Session, SessionId, SessionStore, SessionStoreExt, Trigger, WorkspaceId,
};
use agent_storage_fs::FsConfig;
use futures::TryStreamExt;
use rounds::{Figure, Side};

const ROUNDS: u32 = 21;
const BATCH: u32 = 50;

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let folder = tempfile::tempdir()?;
    let at = folder.path();
    if !json {
        println!("microseconds each: median (quartiles), {ROUNDS} rounds in turns; full durability");
        println!("{:<34} {:>30} {:>30} {:>7} {:>6}", "workload", "ours", "floor", "ratio", "aim");
    }
    for name in ["append", "turn", "last-1000", "last-100000", "load", "fork"] {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| *wanted == name) {
            continue;
        }
        let figure = match name {
            "append" => append(at).await?,
            "turn" => turn(at).await?,
            "last-1000" => last_50(at, "last 50 of 1,000", 1_000).await?,
            "last-100000" => last_50(at, "last 50 of 100,000", 100_000).await?,
            "load" => full_load(at).await?,
            _ => fork(at).await?,
        };
        println!("{}", if json { figure.json() } else { figure.row() });
    }
    let (bytes, content) = bytes_per_message(at).await?;
    println!("bytes in the log for each message of {content} bytes: {bytes}");
    Ok(())
}

/// Text of one KiB.
fn text() -> String {
    "The quick brown fox jumps over the lazy dog. ".repeat(24).chars().take(1024).collect()
}

/// Our store in a folder of its own, and a session in it.
struct Bench {
    store: agent_storage_fs::FsStore,
    effects: Effects,
    session: Session,
}

impl Bench {
    async fn new(folder: &Path, name: &str) -> Result<Self> {
        let store = FsConfig::new(folder.join(name)).open().await?;
        let effects = Effects::default();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = SessionStoreExt::create(&store, &effects, new).await?;
        Ok(Self { store, effects, session })
    }

    fn id(&self) -> SessionId {
        self.session.id
    }

    fn seal(&self) -> Commit {
        Commit::seal(&self.effects, self.session.id, self.session.head)
    }

    async fn commit(&mut self, commit: Commit) -> Result<()> {
        self.session = self.store.commit(commit).await?.session;
        Ok(())
    }

    /// Appends messages, many in a commit, until there are `count` events.
    async fn fill(&mut self, count: u64) -> Result<()> {
        while self.session.head.get() < count {
            let left = (count - self.session.head.get()).min(1000);
            let commit = self.seal().events((0..left).map(|_| NewEvent::agent_message(text())));
            self.commit(commit).await?;
        }
        Ok(())
    }
}

/// A file that is written and synced by hand: what every durable append costs at least.
struct Floor(File);

impl Floor {
    fn new(folder: &Path, name: &str) -> std::io::Result<Self> {
        File::create(folder.join(name)).map(Self)
    }

    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.sync_data()
    }
}

async fn append(folder: &Path) -> std::result::Result<Figure, Box<dyn std::error::Error>> {
    let mut bench = Bench::new(folder, "append").await?;
    let mut floor = Floor::new(folder, "append.floor")?;
    let line = [text().as_bytes(), &[b' '; 250]].concat();
    let (mut ours, mut least) = (Side::default(), Side::default());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..BATCH {
            floor.append(&line)?;
        }
        least.add(start.elapsed(), BATCH);
        let start = Instant::now();
        for _ in 0..BATCH {
            let commit = bench.seal().event(NewEvent::agent_message(text()));
            bench.commit(commit).await?;
        }
        ours.add(start.elapsed(), BATCH);
    }
    Ok(Figure { name: "append 1 KiB", ours, floor: least, aim: Some(1.2) })
}

async fn turn(folder: &Path) -> std::result::Result<Figure, Box<dyn std::error::Error>> {
    let mut bench = Bench::new(folder, "turn").await?;
    let mut floor = Floor::new(folder, "turn.floor")?;
    let line = [text().as_bytes(), &[b' '; 250]].concat();
    let (mut ours, mut least) = (Side::default(), Side::default());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..BATCH {
            floor.append(&line)?;
            floor.append(&line)?;
        }
        least.add(start.elapsed(), BATCH);
        let start = Instant::now();
        for _ in 0..BATCH {
            let run = bench.effects.new_run_id();
            let prompt = bench
                .seal()
                .event(NewEvent::user_message(text()))
                .trigger(Trigger::BeginRun(LeaseRequest::new("bench", run)));
            bench.commit(prompt).await?;
            let answer = bench
                .seal()
                .fence(run, bench.session.epoch)
                .event(NewEvent::agent_message(text()))
                .trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
            bench.commit(answer).await?;
        }
        ours.add(start.elapsed(), BATCH);
    }
    Ok(Figure { name: "turn: two commits, with a lease", ours, floor: least, aim: Some(1.2) })
}

async fn last_50(
    folder: &Path,
    name: &'static str,
    count: u64,
) -> std::result::Result<Figure, Box<dyn std::error::Error>> {
    let mut bench = Bench::new(folder, &format!("last-{count}")).await?;
    bench.fill(count).await?;
    let tail = folder.join(format!("last-{count}.floor"));
    std::fs::write(&tail, vec![b'x'; 50 * 1274])?;
    let (mut ours, mut least) = (Side::default(), Side::default());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..BATCH {
            std::hint::black_box(std::fs::read(&tail)?);
        }
        least.add(start.elapsed(), BATCH);
        let start = Instant::now();
        for _ in 0..BATCH {
            let page = bench.store.read(bench.id(), ReadEvents::last(50)).await?;
            assert_eq!(page.events.len(), 50);
        }
        ours.add(start.elapsed(), BATCH);
    }
    Ok(Figure { name, ours, floor: least, aim: None })
}

async fn full_load(folder: &Path) -> std::result::Result<Figure, Box<dyn std::error::Error>> {
    let mut bench = Bench::new(folder, "load").await?;
    bench.fill(10_000).await?;
    let events: Vec<Event> = bench.store.events(bench.id(), Seq::ZERO).try_collect().await?;
    let lines: Vec<String> = events.iter().map(Event::to_json).collect();
    let file = folder.join("load.floor");
    std::fs::write(&file, lines.join("\n"))?;
    let (mut ours, mut least) = (Side::default(), Side::default());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let text = std::fs::read_to_string(&file)?;
        let parsed: Vec<Event> = text.lines().map(Event::from_json).collect::<Result<_>>()?;
        assert_eq!(parsed.len(), 10_000);
        least.add(start.elapsed(), 1);
        let start = Instant::now();
        let loaded: Vec<Event> = bench.store.events(bench.id(), Seq::ZERO).try_collect().await?;
        assert_eq!(loaded.len(), 10_000);
        ours.add(start.elapsed(), 1);
    }
    Ok(Figure { name: "load 10,000 (floor: typed parse)", ours, floor: least, aim: Some(1.3) })
}

async fn fork(folder: &Path) -> std::result::Result<Figure, Box<dyn std::error::Error>> {
    let mut bench = Bench::new(folder, "fork").await?;
    bench.fill(10_000).await?;
    let (mut ours, mut least) = (Side::default(), Side::default());
    for round in 0..ROUNDS {
        let start = Instant::now();
        let name = folder.join(format!("fork-{round}.floor"));
        let mut file = File::create(folder.join("fork.tmp"))?;
        file.write_all(&[b'x'; 600])?;
        file.sync_all()?;
        std::fs::rename(folder.join("fork.tmp"), name)?;
        File::open(folder)?.sync_all()?;
        least.add(start.elapsed(), 1);
        let start = Instant::now();
        bench.store.fork(&bench.effects, bench.id(), None).await?;
        ours.add(start.elapsed(), 1);
    }
    Ok(Figure { name: "fork of 10,000 (floor: new file)", ours, floor: least, aim: None })
}

/// The bytes that a message takes in the log, and those of its text.
async fn bytes_per_message(folder: &Path) -> std::result::Result<(u64, usize), Box<dyn std::error::Error>> {
    let mut bench = Bench::new(folder, "bytes").await?;
    let log = |bench: &Bench| {
        let session = format!("workspaces/default/sessions/{}/events.jsonl", bench.id());
        std::fs::metadata(folder.join("bytes").join(session)).map(|metadata| metadata.len())
    };
    let before = log(&bench)?;
    for _ in 0..100 {
        let commit = bench.seal().event(NewEvent::agent_message(text()));
        bench.commit(commit).await?;
    }
    Ok(((log(&bench)? - before) / 100, text().len()))
}
