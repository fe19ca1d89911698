//! Many sessions, with real processes that are really killed. Ten thousand take a while: set `AGENT_TEST_COPY_SESSIONS`.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;

use agent_admin::copy::{CopyStage, StoreCopy};
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::store::{BindingQuery, SessionQuery, WorkspaceQuery};
use agent_core::{Revision, Storage, WorkspaceId};
use agent_runtime::{NewWorkspace, WorkspaceManager};
use futures::{StreamExt, TryStreamExt};
use s3_simulator::Simulator;
use tokio::sync::Notify;

use crate::common::Dice;
use crate::copy::world::{bucket, files, sqlite};

/// The most memory that a process may take that copies, however much there is.
const MEMORY_KIB: u64 = 64 << 10;

/// How many sessions there are.
fn count() -> u64 {
    std::env::var("AGENT_TEST_COPY_SESSIONS").map_or(400, |count| count.parse().unwrap())
}

/// A few workspaces with a device each, and that many sessions, each tenth a fork; some are large.
async fn fill(storage: &Storage, count: u64) {
    let effects = Effects::default();
    let manager = WorkspaceManager::new(storage.clone().with_effects(effects.clone()));
    let mut workspaces = Vec::new();
    for n in 0..20 {
        let workspace = manager.create(NewWorkspace::new(format!("workspace {n}"))).await.unwrap();
        manager.bind(&format!("device {n}").parse().unwrap(), workspace.id).await.unwrap();
        let config = format!("n = {n}\n");
        storage.workspaces.save_config(workspace.id, Some(config), Precondition::MustNotExist).await.unwrap();
        workspaces.push(workspace.id);
    }
    let all = futures::stream::iter(0..count / 10 * 9).map(|n| {
        let (effects, workspace) = (&effects, workspaces[n as usize % workspaces.len()]);
        async move {
            let new = NewSession::new(effects.new_session_id(), workspace);
            let mut session = storage.sessions.create(new).await.unwrap();
            let (turns, size) = if n % 500 == 7 { (20, 200 << 10) } else { (2, 100) };
            for turn in 0..turns {
                let event = NewEvent::user_message(format!("{turn} {}", "안".repeat(size / 3)));
                let committed = storage.sessions.append(session.id, session.head, vec![event]).await;
                session = committed.unwrap().session;
            }
            if n % 9 == 0 {
                let fork = storage.sessions.fork(session.id, None).await.unwrap();
                let events = vec![NewEvent::user_message("in the fork")];
                storage.sessions.append(fork.id, fork.head, events).await.unwrap();
            }
        }
    });
    all.buffer_unordered(16).collect::<()>().await;
}

/// A copy in a process of its own.
struct Copying {
    child: Child,
    progress: Lines<BufReader<ChildStderr>>,
}

impl Copying {
    fn start(from: &str, to: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_chat-with-s3"))
            .args(["copy", from, to, "--progress", "lines", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let progress = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, progress }
    }

    /// `kill -9`, when it has done with the `n`-th session.
    fn kill_at(mut self, n: u64) {
        let line = format!("sessions {n} of");
        let found = self.progress.any(|text| text.unwrap().starts_with(&line));
        assert!(found, "it tells of session {n}");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has done all; returns the report and the most memory that it took, in KiB.
    fn finish(self) -> (serde_json::Value, u64) {
        let (mut most, mut last) = (0, String::new());
        for (n, line) in self.progress.enumerate() {
            last = line.unwrap();
            // It only grows; and while it tells, the process is there.
            if n % 20 == 0 || last.starts_with("bindings") {
                most = most.max(peak_kib(self.child.id()).unwrap_or(0));
            }
        }
        let output = self.child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{last}");
        (serde_json::from_slice(&output.stdout).unwrap(), most)
    }
}

/// The most memory that a process has had at any moment.
fn peak_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Copies in this process, and drops the copy when it has done with the `n`-th session.
async fn drop_at(from: &Storage, to: &Storage, n: u64) {
    let reached = Arc::new(Notify::new());
    let report = reached.clone();
    let copy = StoreCopy::new(from.clone(), to.clone()).with_progress(move |progress| {
        if progress.stage == CopyStage::Sessions && progress.done == n {
            report.notify_one();
        }
    });
    tokio::select! {
        _ = copy.run() => {}
        () = reached.notified() => {}
    }
}

/// 160 sessions of a mebibyte are copied to SQLite and back by processes that take less than a third of that; how many there are
/// changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_memory_stays_below_a_third_of_the_data() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let path = |name: &str| folder.path().join(name);
    let store = files(&path("first")).await;
    for _ in 0..160 {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let mut session = store.sessions.create(new).await.unwrap();
        for _ in 0..16 {
            let events = vec![NewEvent::user_message("x".repeat(64 << 10))];
            let messages = store.sessions.append(session.id, session.head, events).await;
            session = messages.unwrap().session;
        }
    }
    let stores = [
        format!("files:{}?sync=off", path("first").display()),
        format!("sqlite:{}?sync=off", path("store.db").display()),
        format!("files:{}?sync=off", path("last").display()),
    ];
    for pair in stores.windows(2) {
        let (report, most) = Copying::start(&pair[0], &pair[1]).finish();
        let bytes = report["bytes"].as_u64().unwrap();
        println!("a copy of {bytes} bytes took {most} KiB");
        assert!(bytes > 160 << 20 && (1..bytes >> 10).contains(&(3 * most)), "{bytes} bytes, {most} KiB");
    }
}

/// Files to SQLite, killed four times with -9, to a bucket in memory and back to files, each cut off three
/// times at a random session: the files are identical, to the byte where they are the truth. A process that copies all
/// at once takes less than 64 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_copies_through_all_stores_are_identical() {
    let (count, mut dice, folder) = (count(), Dice::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let first = files(&path("first")).await;
    fill(&first, count).await;
    let total =
        first.sessions.list(SessionQuery::new().with_total().with_limit(1)).await.unwrap().total.unwrap();
    assert_eq!(total, count);

    let from = format!("files:{}?sync=off", path("first").display());
    let to = |name: &str| format!("sqlite:{}?sync=off", path(name).display());
    let (report, most) = Copying::start(&from, &to("at-once.db")).finish();
    assert_eq!(report["copied"]["sessions"], total, "{report}");
    println!("a copy of {total} sessions, {} bytes, took {most} KiB", report["bytes"]);
    assert!((1..MEMORY_KIB).contains(&most), "{most} KiB");

    for _ in 0..4 {
        Copying::start(&from, &to("store.db")).kill_at(1 + dice.below(total));
    }
    let (report, _) = Copying::start(&from, &to("store.db")).finish();
    assert!(report["refused"] == serde_json::json!([]) && report["damaged"] == serde_json::json!([]));

    let simulator = Simulator::new(1);
    let (middle, last) = (sqlite(&path("store.db")).await, files(&path("last")).await);
    for (from, to) in [(middle, bucket(&simulator).await), (bucket(&simulator).await, last)] {
        for _ in 0..3 {
            drop_at(&from, &to, 1 + dice.below(total)).await;
        }
        let report = StoreCopy::new(from, to).run().await.unwrap();
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(report.copied.sessions + report.present.sessions, total);
    }
    compare(&path("first"), &path("last"), total).await;
}

/// Checks that two folders hold the same.
async fn compare(first: &Path, last: &Path, total: u64) {
    let (one, two) = (files(first).await, files(last).await);
    let (mut next, mut seen) = (Some(SessionQuery::new().with_hidden().with_total().with_limit(1000)), 0);
    while let Some(query) = next {
        let page = one.sessions.list(query.clone()).await.unwrap();
        assert_eq!(page, two.sessions.list(query.clone()).await.unwrap());
        assert_eq!(page.total, Some(total));
        let each = futures::stream::iter(page.items.iter().map(Ok::<_, agent_core::Error>));
        let compare = each.try_for_each(async |item| {
            assert_eq!(one.sessions.load(item.id).await?, two.sessions.load(item.id).await?);
            let log = format!("workspaces/{}/sessions/{}/events.jsonl", item.workspace, item.id);
            assert!(fs::read(first.join(&log)).unwrap() == fs::read(last.join(&log)).unwrap(), "{log}");
            Ok(())
        });
        compare.await.unwrap();
        seen += page.items.len() as u64;
        next = page.next.map(|cursor| query.with_cursor(Some(cursor)));
    }
    assert_eq!(seen, total);
    let mut workspaces = Vec::new();
    for storage in [&one, &two] {
        let mut page = storage.workspaces.list(WorkspaceQuery::new()).await.unwrap().items;
        page.iter_mut().for_each(|workspace| workspace.revision = Revision::ZERO);
        workspaces.push(page);
    }
    assert_eq!(workspaces[0], workspaces[1]);
    for workspace in &workspaces[0] {
        let config = format!("workspaces/{}/config.toml", workspace.id);
        assert_eq!(fs::read(first.join(&config)).unwrap(), fs::read(last.join(&config)).unwrap());
    }
    let bindings = [one.bindings, two.bindings];
    let [one, two] =
        bindings.map(|bindings| async move { bindings.list(BindingQuery::new()).await.unwrap() });
    assert_eq!(one.await, two.await);
}
