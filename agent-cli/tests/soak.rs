//! Soak test: writers in processes that are killed, stopped and limited, other programs that change the files, damage,
//! and forged documents. At the end every acknowledged event is stored once, and nothing is left over.
//! `AGENT_SOAK_SECONDS=600` makes it longer than by default.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent_admin::manifest::Manifest;
use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::session::NewSession;
use agent_core::store::SessionQuery;
use agent_core::{Error, ErrorKind, Seq, SessionId, SessionStoreExt, Storage, WorkspaceId};
use common::{Dice, database, homes, storage};
use futures::TryStreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

/// Number of sessions, and of processes that write to them.
const SESSIONS: usize = 6;
const WRITERS: usize = 3;
/// Maximum growth of the memory of the process between a third of the time and the end.
const MEMORY_KIB: u64 = 32 << 10;

fn seconds() -> u64 {
    std::env::var("AGENT_SOAK_SECONDS")
        .map_or(5, |text| text.parse().expect("AGENT_SOAK_SECONDS is a number"))
}

fn note(text: &str) -> NewEvent {
    NewEvent::new("x.soak.note".parse().unwrap(), RawJson::of(&text).unwrap())
}

/// Adds one note, and returns whether it was acknowledged. The commit is repeated until its outcome is known.
async fn write(storage: &Storage, id: SessionId, text: &str) -> Result<(), Error> {
    storage.sessions.append(id, Seq::ZERO, vec![note(text)]).await.map(drop)
}

/// Writer in its own process, which the soak test starts. Records each acknowledged note before the next one. In the
/// process of the soak test it does nothing, because its descriptors would be counted there.
#[test]
fn a_writer() {
    let Ok(folder) = std::env::var("AGENT_SOAK_FOLDER") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(write_on(PathBuf::from(folder)));
}

#[expect(clippy::print_stderr, reason = "a process of its own tells what it met")]
async fn write_on(folder: PathBuf) {
    // Numbers of processes are used again, within minutes on a busy machine.
    let me = format!("{}-{:x}", std::process::id(), Effects::default().random_u64());
    let ids: Vec<SessionId> =
        fs::read_to_string(folder.join("ids")).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    let mut acks =
        OpenOptions::new().create(true).append(true).open(folder.join(format!("acks-{me}"))).unwrap();
    let mut dice = Dice::new();
    let mut n = 0_u64;
    // The soak test may have been killed, and would then never stop the writer.
    let end = Instant::now() + Duration::from_secs(2 * seconds() + 60);
    let goes_on = || !folder.join("stop").exists() && Instant::now() < end;
    while goes_on() {
        let store = match open(&folder).await {
            Ok(store) => store,
            Err(error) => {
                eprintln!("{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        while goes_on() {
            let id = ids[usize::try_from(dice.below(ids.len() as u64)).unwrap()];
            n += 1;
            let text = format!("{me}-{n}{}", "x".repeat(usize::try_from(dice.below(2_000)).unwrap()));
            match write(&store, id, &text).await {
                // A single call, so that a kill leaves a whole line or none.
                Ok(()) => drop(acks.write_all(format!("{id} {me}-{n}\n").as_bytes())),
                Err(error) => {
                    eprintln!("{error}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    if *error.kind() == ErrorKind::Unavailable {
                        break;
                    }
                }
            }
        }
        drop(store.close().await);
    }
}

async fn open(folder: &Path) -> Result<Storage, Error> {
    let home = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let home = home.into_iter().find(|path| path.is_dir()).expect("the store's folder");
    match database(&home) {
        Some(path) => Ok(agent_storage_sqlite::SqliteStore::open(path).await?.into()),
        None => Ok(agent_storage_fs::FsStore::open(home).await?.into()),
    }
}

/// Process of a writer; killed when dropped.
struct Writer(Child);

impl Writer {
    /// Starts a writer; `blocks` of 512 bytes are the maximum size of a file.
    fn start(folder: &Path, blocks: Option<u64>) -> Self {
        let program = std::env::current_exe().unwrap();
        let limit = blocks.map_or_else(String::new, |blocks| format!("trap '' XFSZ; ulimit -f {blocks}; "));
        let log = OpenOptions::new().create(true).append(true).open(folder.join("errors")).unwrap();
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!("{limit}exec \"$0\" a_writer --exact --nocapture"))
            .arg(program)
            .env("AGENT_SOAK_FOLDER", folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns the memory of this process in KiB, and its number of open files.
fn used() -> (u64, usize) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let memory = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (memory, fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Collects all files below a folder.
fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&path, out),
            _ => out.push(path),
        }
    }
}

/// Returns the files of a session.
fn files_of(home: &Path, id: SessionId) -> Vec<PathBuf> {
    let mut all = Vec::new();
    files(home, &mut all);
    all.retain(|path| path.to_string_lossy().contains(&id.to_string()));
    all
}

/// Returns a forged document of a session, with a valid checksum.
async fn forge(storage: &Storage, id: SessionId) -> Option<Manifest> {
    let document = Manifest::export(&*storage.sessions, id).await.ok()?.to_json().ok()?;
    let body = document.get(..document.len().checked_sub(22)?)?;
    if !body.contains("x.soak.note") {
        // The session has no note yet that could be forged.
        return None;
    }
    let body = body.replace("x.soak.note", "x.soak.lies");
    let crc = crc32c::crc32c(body.as_bytes());
    Manifest::parse(&format!("{body},\"crc32c\":\"{crc:08x}\"}}\n")).ok()
}

/// Changes the store from outside: only derived data, lock files, and the session `victim`, which is not checked at the
/// end.
fn meddle(home: &Path, victim: SessionId, ids: &[SessionId], dice: &mut Dice) -> &'static str {
    let id = ids[usize::try_from(dice.below(ids.len() as u64)).unwrap()];
    if let Some(path) = database(home) {
        let Ok(connection) = rusqlite::Connection::open(&path) else { return "no connection" };
        drop(connection.busy_timeout(Duration::from_millis(200)));
        let (what, sql) = match dice.below(5) {
            0 => ("checkpoint", "PRAGMA wal_checkpoint(TRUNCATE)".to_owned()),
            1 => ("reader", "SELECT count(*) FROM events".to_owned()),
            2 => ("vacuum", "VACUUM".to_owned()),
            3 => {
                let name = connection
                    .query_row(
                        "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
                        [],
                        |row| row.get::<_, String>(0),
                    )
                    .unwrap_or_default();
                ("index dropped", format!("DROP INDEX IF EXISTS \"{name}\""))
            }
            _ => (
                "row damaged",
                format!(
                    "UPDATE events SET json = '{{' WHERE log IN (SELECT log FROM logs WHERE session = '{victim}') AND seq > 1"
                ),
            ),
        };
        drop(connection.execute_batch(&sql));
        return what;
    }
    match dice.below(4) {
        0 => {
            for path in files_of(home, id).iter().filter(|path| path.ends_with("lock")) {
                drop(fs::remove_file(path));
            }
            "lock removed"
        }
        1 => {
            let mut all = Vec::new();
            files(home, &mut all);
            all.iter().filter(|path| path.is_file()).for_each(|path| drop(fs::read(path)));
            "reader"
        }
        2 => {
            for path in files_of(home, victim) {
                drop(
                    OpenOptions::new()
                        .append(true)
                        .open(&path)
                        .and_then(|mut file| file.write_all(b"{\"seq\":")),
                );
            }
            "victim damaged"
        }
        _ => {
            for path in files_of(home, victim) {
                drop(fs::remove_file(&path));
                drop(std::os::unix::fs::symlink("/dev/zero", &path));
            }
            "victim replaced"
        }
    }
}

/// Whatever happens at the same time, acknowledged events are stored once, memory does not grow, and nothing is left
/// over.
#[tokio::test]
async fn soak_loses_no_acknowledged_event() {
    for home in homes() {
        let is_database = database(home.path()).is_some();
        let kind = if is_database { "SQLite" } else { "files" };
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join(home.path().file_name().unwrap());
        fs::create_dir(&inside).unwrap();
        let before = used().1;
        let own = storage(&inside).await;
        let effects = Effects::default();
        let mut ids = Vec::new();
        for _ in 0..=SESSIONS {
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            ids.push(own.sessions.create(new).await.unwrap().id);
        }
        let victim = ids.pop().unwrap();
        // A document holds a whole session in memory, so it is taken from a session that does not grow.
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let small = own.sessions.create(new).await.unwrap().id;
        for n in 0..20 {
            write(&own, small, &format!("small-{n}")).await.unwrap();
        }
        let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
        fs::write(folder.path().join("ids"), text).unwrap();
        // Notes of this process.
        let mut mine = Vec::new();

        let mut writers: Vec<_> = (0..WRITERS).map(|_| Writer::start(folder.path(), None)).collect();
        let _small = Writer::start(folder.path(), Some(256));
        let (mut dice, mut counts) = (Dice::new(), HashMap::<&str, u64>::new());
        let (start, time) = (Instant::now(), Duration::from_secs(seconds()));
        let mut settled = None;
        while start.elapsed() < time {
            let one = usize::try_from(dice.below(WRITERS as u64)).unwrap();
            let what = match dice.below(6) {
                0 => {
                    writers[one] = Writer::start(folder.path(), None);
                    "kill"
                }
                1 => {
                    writers[one].signal(Signal::STOP);
                    tokio::time::sleep(Duration::from_millis(dice.below(300))).await;
                    writers[one].signal(Signal::CONT);
                    "stop"
                }
                2 => {
                    if let Some(forged) = forge(&own, small).await {
                        let refused = forged.import(&*own.sessions).await;
                        assert!(refused.is_err(), "{kind}: a forged document was taken");
                    }
                    "forged document"
                }
                3 => {
                    let page = own.sessions.list(SessionQuery::new()).await;
                    assert!(
                        page.is_ok_and(|page| page.items.len() >= SESSIONS),
                        "{kind}: the list lacks sessions"
                    );
                    "list"
                }
                4 => meddle(&inside, victim, &ids, &mut dice),
                _ => {
                    let id = ids[usize::try_from(dice.below(ids.len() as u64)).unwrap()];
                    let text = format!("own-{}", mine.len());
                    if write(&own, id, &text).await.is_ok() {
                        mine.push(format!("{id} {text}"));
                    }
                    "write"
                }
            };
            *counts.entry(what).or_default() += 1;
            tokio::time::sleep(Duration::from_millis(dice.below(60))).await;
            if settled.is_none() && start.elapsed() > time / 3 {
                settled = Some(used().0);
            }
        }
        let memory = used().0;
        let settled = settled.unwrap_or(memory);
        File::create(folder.path().join("stop")).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        for writer in &mut writers {
            while writer.0.try_wait().unwrap().is_none() {
                assert!(Instant::now() < end, "{kind}: a writer does not end");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        drop((writers, _small));
        own.close().await.unwrap();
        drop(own);

        let mut acked = mine;
        for entry in fs::read_dir(folder.path()).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("acks-") {
                acked.extend(fs::read_to_string(entry.path()).unwrap().lines().map(str::to_owned));
            }
        }
        let store = storage(&inside).await;
        let mut found = HashMap::<String, u64>::new();
        for id in &ids {
            let events: Vec<_> = store.sessions.events(*id, Seq::ZERO).try_collect().await.unwrap();
            for event in events.iter().filter(|event| event.kind.as_str() == "x.soak.note") {
                let text: String = event.payload.to().unwrap();
                *found.entry(format!("{id} {}", text.trim_end_matches('x'))).or_default() += 1;
            }
        }
        let lost: Vec<_> = acked.iter().filter(|line| !found.contains_key(*line)).collect();
        assert!(
            lost.is_empty(),
            "{kind}: {} of {} acknowledged are lost: {:?}",
            lost.len(),
            acked.len(),
            &lost[0]
        );
        let twice = found.iter().find(|(_, count)| **count > 1);
        assert_eq!(twice, None, "{kind}: an event is there twice");
        assert!(acked.len() as u64 > seconds(), "{kind}: hardly anything was written: {}", acked.len());
        // Every lock is free: each session can be written to.
        for id in &ids {
            let written = tokio::time::timeout(Duration::from_secs(60), write(&store, *id, "end")).await;
            written.expect("a lock is held by nobody").unwrap();
        }
        store.close().await.unwrap();
        drop(store);
        let mut left = Vec::new();
        files(&inside, &mut left);
        left.retain(|path| {
            let name = path.to_string_lossy();
            ["-wal", "-shm", ".part", ".tmp"].iter().any(|end| name.ends_with(end))
        });
        assert!(left.is_empty(), "{kind}: files are left over: {left:?}");
        assert_eq!(used().1, before, "{kind}: descriptors are left over");
        println!(
            "proof: {} events of a soak on {kind}, {} s; memory {settled} KiB, then {memory}; {counts:?}",
            acked.len(),
            time.as_secs()
        );
        assert!(memory < settled + MEMORY_KIB, "{kind}: memory grew from {settled} to {memory} KiB");
    }
}
