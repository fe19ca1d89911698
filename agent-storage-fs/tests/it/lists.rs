//! Lists of more sessions than a list checks each time: their costs, and that they are complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{EIO, Spy, append_text, folder_of, session};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Patch, Role};
use agent_core::session::{NewSession, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{Purge, SessionQuery};
use agent_core::{MemoryStore, SessionId, SessionStore, SessionStoreExt, Sessions, Timestamp, WorkspaceId};
use agent_storage_fs::{FsConfig, FsStore, Sync};

/// A store whose lists look at no session that has not changed.
async fn indexed(root: &Path) -> FsStore {
    config(root).open().await.unwrap()
}

fn config(root: &Path) -> FsConfig {
    FsConfig::new(root).with_sync(Sync::Off).with_list_scan_max(0)
}

async fn listed(store: &FsStore, query: SessionQuery) -> Vec<SessionSummary> {
    let page = SessionStore::list(store, query).await.unwrap();
    assert_eq!(page.damaged, []);
    page.items
}

/// Among 2,000 sessions, a list costs the calls that it costs among 200: the files of the page, and some more.
#[tokio::test]
async fn a_list_costs_the_same_among_many_sessions() {
    let mut costs = Vec::new();
    for count in [200, 2_000] {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::default();
        let writer = indexed(folder.path()).await;
        let mut newest = session(&writer, &effects).await;
        for _ in 1..count {
            newest = session(&writer, &effects).await;
        }
        let spy = Spy::new();
        let store = config(folder.path()).with_io(Arc::new(spy.clone())).open().await.unwrap();
        let first = listed(&store, SessionQuery::new()).await;
        assert_eq!((first.len(), first[0].id), (50, newest.id));
        spy.take();
        assert_eq!(listed(&store, SessionQuery::new()).await, first);
        let again = spy.take().len();
        append_text(&writer, &effects, newest.id, newest.head, "hello").await;
        assert_eq!(listed(&store, SessionQuery::new()).await[0].counts.user, 1);
        costs.push((again, spy.take().len()));
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].0 <= 70 && costs[0].1 <= 90, "{costs:?}");
}

fn changes(root: &Path) -> PathBuf {
    root.join("index/changes")
}

/// What a random program does to sessions; the same on every store.
async fn step(store: &Sessions, effects: &Effects, ids: &mut Vec<SessionId>) {
    let dice = effects.random_u64();
    let workspace = match dice % 3 {
        0 => WorkspaceId::DEFAULT,
        n => format!("019c60d9-9c46-853c-b6d7-6cec99e0758{n}").parse().unwrap(),
    };
    let new = || {
        let mut patch = Patch::new();
        for (key, values) in [("team", 2), ("topic", 3)] {
            if dice >> 8 & 1 == 1 {
                patch = patch.with_label(key, format!("{}", (dice >> 9) % values));
            }
        }
        let new = NewSession::new(effects.new_session_id(), workspace).with_patch(&patch);
        Commit::create(effects, new).with_actor(person(if dice >> 16 & 1 == 0 { "alice" } else { "bob" }))
    };
    let chosen = (!ids.is_empty()).then(|| ids[(dice >> 24) as usize % ids.len()]);
    match (dice >> 4 & 15, chosen) {
        (0..4, _) | (_, None) => ids.push(store.commit(new()).await.unwrap().session.id),
        (4..10, Some(id)) => {
            let head = store.load(id).await.unwrap().head;
            let event = match dice >> 40 & 1 {
                0 => NewEvent::user_message("hello"),
                _ => NewEvent::agent_message("noted"),
            };
            // A session that was deleted takes no more.
            let _ = store.append(id, head, vec![event]).await;
        }
        (10..12, Some(id)) => {
            if let Ok(fork) = store.fork(id, None).await {
                ids.push(fork.id);
            }
        }
        (12..14, Some(id)) => drop(store.trigger(id, Trigger::Archive).await),
        (14, Some(id)) => drop(store.trigger(id, Trigger::Delete(Reason::UserDeleted)).await),
        (_, Some(id)) => {
            let head = store.load(id).await.unwrap().head;
            let _ = store.purge(Purge::new(id, head)).await;
        }
    }
}

fn person(name: &str) -> Actor {
    Actor::named(Role::User, name).unwrap()
}

fn queries(ids: &[SessionId]) -> Vec<SessionQuery> {
    let new = SessionQuery::new;
    let later: Timestamp = "2026-02-15T10:30:00.100Z".parse().unwrap();
    let mut queries = vec![
        new(),
        new().with_hidden(),
        new().with_total(),
        new().with_workspace(WorkspaceId::DEFAULT),
        new().with_label("team", "1"),
        new().with_label("team", "1").with_label("topic", "2"),
        new().with_creator(person("alice")).with_workspace(WorkspaceId::DEFAULT),
        new().with_states([agent_core::state::SessionState::Archived, agent_core::state::SessionState::Idle]),
        new().with_due(later),
        new().with_inactive_since(later),
    ];
    queries.extend(ids.first().map(|id| new().with_parent(*id)));
    queries.into_iter().map(|query| query.with_limit(7)).collect()
}

/// All pages of a query.
async fn all(store: &dyn SessionStore, mut query: SessionQuery) -> Vec<SessionSummary> {
    let mut found = Vec::new();
    loop {
        let page = store.list(query.clone()).await.unwrap();
        assert_eq!(page.damaged, [], "{query:?}");
        found.extend(page.items);
        match page.next {
            Some(next) => query = query.with_cursor(Some(next)),
            None => return found,
        }
    }
}

/// Two handles change sessions at random and list them, and a third one lists only: all lists are those of a store in memory
/// to which the same was done.
#[tokio::test]
async fn lists_of_all_handles_are_those_of_a_store_in_memory() {
    for seed in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (indexed(folder.path()).await, indexed(folder.path()).await);
        let reader = indexed(folder.path()).await;
        let memory = MemoryStore::new();
        let start = "2026-02-15T10:30:00Z".parse::<Timestamp>().unwrap();
        let (effects, same) = (Effects::seeded(seed, start), Effects::seeded(seed, start));
        let (mut ids, mut same_ids) = (Vec::new(), Vec::new());
        for n in 0..80 {
            let store = if n % 2 == 0 { &one } else { &two };
            step(&store.sessions(&effects), &effects, &mut ids).await;
            step(&memory.sessions(&same), &same, &mut same_ids).await;
            assert_eq!(ids, same_ids);
            let listing = if n % 3 == 0 { &reader } else { store };
            for query in queries(&ids) {
                let expected = all(&memory, query.clone()).await;
                assert_eq!(all(listing, query.clone()).await, expected, "seed {seed}, step {n}: {query:?}");
            }
        }
    }
}

/// What another program does to the files of sessions: seen at once on the page and where folders come and go; elsewhere by
/// exact lists, and after some others.
#[tokio::test]
async fn changes_by_another_program_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = indexed(folder.path()).await;
    let mut made = Vec::new();
    for _ in 0..100 {
        made.push(session(&store, &effects).await.id);
    }
    let top = SessionQuery::new().with_limit(3);
    assert_eq!(listed(&store, top.clone()).await[0].id, made[99]);
    // The log of the newest is another one, as of an earlier time.
    let newest = folder_of(folder.path(), made[99]);
    let earlier = fs::read(newest.join("events.jsonl")).unwrap();
    append_text(&store, &effects, made[99], agent_core::Seq::new(1), "hello").await;
    assert_eq!(listed(&store, top.clone()).await[0].counts.user, 1);
    fs::remove_file(newest.join("session.json")).ok();
    fs::write(newest.join("events.jsonl"), earlier).unwrap();
    assert_eq!(listed(&store, top.clone()).await[0].counts.user, 0);
    // One is moved away, and one is put there.
    let (there, away) = (folder_of(folder.path(), made[98]), folder.path().join("away"));
    fs::rename(&there, &away).unwrap();
    assert_eq!(listed(&store, top.clone()).await[1].id, made[97]);
    fs::rename(&away, &there).unwrap();
    assert_eq!(listed(&store, top.clone()).await[1].id, made[98]);
    // Far from the page, a log is damaged: in the end that is reported.
    let log = folder_of(folder.path(), made[5]).join("events.jsonl");
    let mut bytes = fs::read(&log).unwrap();
    bytes[40] ^= 1;
    bytes.extend_from_slice(b"\n");
    fs::write(&log, &bytes).unwrap();
    let exact = store.list(top.clone().with_hidden()).await.unwrap();
    assert_eq!(exact.damaged.len(), 1);
    let other = indexed(folder.path()).await;
    assert_eq!(
        other.list(top.clone()).await.unwrap().damaged.len(),
        1,
        "a store that is opened looks at all"
    );
    let mut lists = 0;
    let log = folder_of(folder.path(), made[6]).join("events.jsonl");
    fs::write(&log, "").unwrap();
    while store.list(top.clone()).await.unwrap().damaged.len() < 2 {
        lists += 1;
        assert!(lists < 100, "not seen");
    }
}

/// A workspace that is moved away takes all of its sessions out of lists, and one that is put back brings them.
#[tokio::test]
async fn sessions_of_a_moved_workspace_are_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = indexed(folder.path()).await;
    let kept = session(&store, &effects).await.id;
    let workspace = effects.new_workspace_id();
    for _ in 0..20 {
        let new = NewSession::new(effects.new_session_id(), workspace);
        store.sessions(&effects).create(new).await.unwrap();
    }
    let top = SessionQuery::new().with_limit(1);
    assert_eq!(listed(&store, top.clone()).await[0].workspace, workspace);
    let (there, away) =
        (folder.path().join("workspaces").join(workspace.to_string()), folder.path().join("away"));
    for round in 0..2 {
        fs::rename(&there, &away).unwrap();
        if round == 1 {
            fs::remove_file(changes(folder.path())).unwrap();
        }
        assert_eq!(listed(&store, top.clone()).await[0].id, kept, "round {round}");
        assert_eq!(listed(&store, SessionQuery::new()).await.len(), 1, "round {round}");
        assert!(listed(&store, top.clone().with_workspace(workspace)).await.is_empty());
        fs::rename(&away, &there).unwrap();
        assert_eq!(listed(&store, top.clone()).await[0].workspace, workspace, "round {round}");
        assert_eq!(listed(&store, SessionQuery::new()).await.len(), 21, "round {round}");
    }
}

/// The file of changes is derived: lists are right without it, with anything in its place, and while it cannot be written.
#[tokio::test]
async fn lists_are_right_without_the_file_of_changes() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let spy = Spy::new();
    let one = config(folder.path()).with_io(Arc::new(spy.clone())).open().await.unwrap();
    let two = indexed(folder.path()).await;
    let path = changes(folder.path());
    let top = SessionQuery::new().with_limit(1);
    let mut sessions = Vec::new();
    for _ in 0..60 {
        sessions.push(session(&two, &effects).await);
    }
    for round in 0..8 {
        match round {
            0 => {}
            1 => fs::remove_file(&path).unwrap(),
            2 => fs::write(&path, "no line of ours\n\0\0").unwrap(),
            3 => {
                fs::remove_file(&path).unwrap();
                fs::create_dir(&path).unwrap();
            }
            4 => fs::remove_dir(&path).unwrap(),
            5 => fs::remove_dir_all(folder.path().join("index")).unwrap(),
            6 => spy.fail(|_, call| (call.name == "append").then_some(EIO)),
            _ => drop(spy.heal()),
        }
        let made = session(&one, &effects).await;
        for store in [&two, &one] {
            assert_eq!(listed(store, top.clone()).await[0].id, made.id, "round {round}");
        }
        let used = &sessions[59 - round];
        let seen = append_text(&one, &effects, used.id, used.head, "hello").await;
        for store in [&two, &one] {
            let first = listed(store, top.clone()).await.remove(0);
            assert_eq!((first.id, first.head), (used.id, seen), "round {round}");
        }
    }
}

/// The file of changes begins anew before it gets large; no handle misses a change by that.
#[tokio::test]
async fn file_of_changes_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (one, two) = (indexed(folder.path()).await, indexed(folder.path()).await);
    let mut others = Vec::new();
    for _ in 0..60 {
        others.push(session(&one, &effects).await);
    }
    let made = session(&one, &effects).await;
    let path = changes(folder.path());
    let top = SessionQuery::new().with_limit(2);
    let line = format!("{} {} grows 1\n", WorkspaceId::DEFAULT, made.id);
    let mut seen = made.head;
    for round in 0..3 {
        assert_eq!(listed(&two, top.clone()).await[0].head, seen);
        let other = &others[59 - round];
        append_text(&one, &effects, other.id, other.head, "named only in the file that is removed").await;
        let mut large = fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut large, line.repeat((4 << 20) / line.len() + 1).as_bytes()).unwrap();
        let store = if round % 2 == 0 { &one } else { &two };
        for _ in 0..2 {
            seen = append_text(store, &effects, made.id, seen, "hello").await;
        }
        assert!(fs::metadata(&path).unwrap().len() < 1000, "round {round}");
        for store in [&two, &one] {
            let page = listed(store, top.clone()).await;
            assert_eq!((page[0].head, page[1].id), (seen, other.id), "round {round}");
        }
    }
}

/// A commit that began before another thread made the file of changes anew is told in the new one, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_under_way_is_logged_in_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let spy = Spy::new();
    let store = config(folder.path()).with_io(Arc::new(spy.clone())).open().await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..80 {
        sessions.push(session(&store, &effects).await);
    }
    let (slow, quick) = (sessions[40].clone(), sessions[70].clone());
    let line = format!("default {} grows 1\n", quick.id);
    let large = line.repeat((4 << 20) / line.len() + 1);
    let mut file = fs::OpenOptions::new().append(true).open(changes(folder.path())).unwrap();
    std::io::Write::write_all(&mut file, large.as_bytes()).unwrap();
    // The log was opened when its folder had another name.
    let own = slow.id.to_string();
    let (reached, is_reached) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    spy.fail(move |_, call| {
        if call.name == "write" && call.path.to_string_lossy().contains(&own) && call.file() == "events.jsonl"
        {
            reached.send(()).unwrap();
            may_go.lock().unwrap().recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        }
        None
    });
    let (writer, written) = (store.clone(), effects.clone());
    let (id, head) = (slow.id, slow.head);
    let commit = tokio::spawn(async move { append_text(&writer, &written, id, head, "hello").await });
    tokio::task::spawn_blocking(move || is_reached.recv_timeout(std::time::Duration::from_secs(60)).unwrap())
        .await
        .unwrap();
    append_text(&store, &effects, quick.id, quick.head, "makes the file anew").await;
    assert!(fs::metadata(changes(folder.path())).unwrap().len() < 1000);
    let reader = indexed(folder.path()).await;
    let top = SessionQuery::new().with_limit(2);
    assert_eq!(listed(&reader, top.clone()).await[0].id, quick.id);
    go.send(()).unwrap();
    commit.await.unwrap();
    // Sealed before the other one.
    let second = listed(&reader, top).await.remove(1);
    assert_eq!((second.id, second.head), (slow.id, slow.head.next()));
}

/// A session in the folder of another workspace, where a person has moved it, is on no list of a workspace, whatever else the
/// list asks for and whatever was listed before.
#[tokio::test]
async fn session_in_the_folder_of_another_workspace_is_on_no_list_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = indexed(folder.path()).await;
    let (home, other) = (effects.new_workspace_id(), effects.new_workspace_id());
    let patch = Patch::new().with_label("team", "a");
    let mut made = Vec::new();
    for (workspace, patch) in
        [(home, &patch), (home, &Patch::new()), (home, &Patch::new()), (other, &Patch::new())]
    {
        let new = NewSession::new(effects.new_session_id(), workspace).with_patch(patch);
        made.push(store.sessions(&effects).create(new).await.unwrap().id);
    }
    let at =
        |workspace: WorkspaceId| folder.path().join(format!("workspaces/{workspace}/sessions/{}", made[0]));
    fs::rename(at(home), at(other)).unwrap();
    for with_all in [false, true] {
        if with_all {
            // The index has it from now on.
            assert_eq!(listed(&store, SessionQuery::new()).await.len(), 4);
        }
        for query in [SessionQuery::new(), SessionQuery::new().with_total()] {
            for (workspace, count) in [(home, 2), (other, 1)] {
                let query = query.clone().with_workspace(workspace);
                let page = store.list(query.clone()).await.unwrap();
                assert_eq!(page.items.len(), count, "{query:?}");
                assert!(page.total.is_none_or(|total| total == count as u64), "{page:?}");
                // Only the one that was moved has the label.
                let page = store.list(query.with_label("team", "a")).await.unwrap();
                assert_eq!((page.items.len(), page.total.unwrap_or(0)), (0, 0));
            }
        }
    }
}

/// A writer that has told of a change and has not written it, and one that dies after it has written, are waited for.
#[tokio::test]
async fn changes_under_way_are_checked_until_present() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (one, two) = (indexed(folder.path()).await, indexed(folder.path()).await);
    let mut sessions = Vec::new();
    for _ in 0..80 {
        sessions.push(session(&one, &effects).await);
    }
    // None that the first lists look at in turn.
    let made = &sessions[40];
    let top = SessionQuery::new().with_limit(1);
    listed(&two, top.clone()).await;
    // What a process leaves that is killed after its write: the line, the write, and nothing else.
    let log = folder_of(folder.path(), made.id).join("events.jsonl");
    let (len, line) = (fs::metadata(&log).unwrap().len(), changes(folder.path()));
    let announce = |text: String| {
        let mut file = fs::OpenOptions::new().append(true).open(&line).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    };
    announce(format!("default {} grows {len}\n", made.id));
    assert_ne!(listed(&two, top.clone()).await[0].id, made.id);
    let copy = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), copy.path());
    let elsewhere = indexed(copy.path()).await;
    append_text(&elsewhere, &effects, made.id, made.head, "hello").await;
    fs::copy(folder_of(copy.path(), made.id).join("events.jsonl"), &log).unwrap();
    assert_eq!(listed(&two, top.clone()).await[0].id, made.id);
    // The same, seen by a process that begins between the line and the write.
    let len = fs::metadata(&log).unwrap().len();
    announce(format!("default {} grows {len}\n", made.id));
    for _ in 0..3 {
        session(&one, &effects).await;
    }
    let late = indexed(folder.path()).await;
    assert_ne!(listed(&late, top.clone()).await[0].id, made.id);
    append_text(&elsewhere, &effects, made.id, agent_core::Seq::new(2), "again").await;
    fs::copy(folder_of(copy.path(), made.id).join("events.jsonl"), &log).unwrap();
    for store in [&late, &two] {
        assert_eq!(listed(store, top.clone()).await[0].id, made.id);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
