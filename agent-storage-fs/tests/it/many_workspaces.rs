//! Creating sessions among many workspaces: what it costs, and that no id is taken twice.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::support::{Call, EIO, Spy};
use agent_core::clock::Effects;
use agent_core::session::NewSession;
use agent_core::{ErrorKind, Result, SessionId, SessionStore, SessionStoreExt, WorkspaceId};
use agent_storage_fs::{FsConfig, FsStore, Sync};

const DEADLINE: Duration = Duration::from_secs(60);

async fn spied(root: &Path) -> (FsStore, Spy) {
    let spy = Spy::new();
    let config = FsConfig::new(root).with_sync(Sync::Off).with_io(Arc::new(spy.clone()));
    (config.open().await.unwrap(), spy)
}

async fn create(store: &FsStore, effects: &Effects, id: SessionId, workspace: WorkspaceId) -> Result<()> {
    store.sessions(effects).create(NewSession::new(id, workspace)).await.map(drop)
}

/// Makes so many workspaces, each with a session.
async fn fill(store: &FsStore, effects: &Effects, count: usize) -> Vec<WorkspaceId> {
    let mut workspaces = Vec::new();
    for _ in 0..count {
        let workspace = effects.new_workspace_id();
        create(store, effects, effects.new_session_id(), workspace).await.unwrap();
        workspaces.push(workspace);
    }
    workspaces
}

/// Whether this call begins to write the index file of a session.
fn is_of_the_index(call: &Call) -> bool {
    call.name == "create_dir" && call.path.to_string_lossy().contains("index/sessions")
}

/// Makes a process look into each workspace so often that it knows all sessions.
async fn learn(store: &FsStore, effects: &Effects, workspace: WorkspaceId) {
    for _ in 0..8 {
        create(store, effects, effects.new_session_id(), workspace).await.unwrap();
    }
}

/// A process that has created some sessions looks into no workspace but that of the next, be it new or a fork, also while
/// others create sessions; and into none for a session that does not exist.
#[tokio::test]
async fn a_creation_costs_the_same_among_many_workspaces() {
    let mut costs = Vec::new();
    for count in [40, 400] {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::default();
        let (other, _) = spied(folder.path()).await;
        let workspaces = fill(&other, &effects, count).await;
        let (store, spy) = spied(folder.path()).await;
        learn(&store, &effects, workspaces[3]).await;
        let parent = effects.new_session_id();
        create(&other, &effects, parent, workspaces[9]).await.unwrap();
        store.sessions(&effects).fork(parent, None).await.unwrap();
        spy.take();
        let mut cost = Vec::new();
        create(&store, &effects, effects.new_session_id(), workspaces[3]).await.unwrap();
        cost.push(spy.take().len());
        create(&other, &effects, effects.new_session_id(), workspaces[7]).await.unwrap();
        store.sessions(&effects).fork(parent, None).await.unwrap();
        cost.push(spy.take().len());
        // As the conversation of a key is opened: its id may be one of a session.
        let error = SessionStore::load(&store, effects.new_session_id()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound);
        cost.push(spy.take().len());
        costs.push(cost);
    }
    // The folders of the index, of which there is one for the last digits of an id, may be new.
    let is_same = |(few, many): (&usize, &usize)| few.abs_diff(*many) <= 4;
    assert!(costs[0].iter().zip(&costs[1]).all(is_same), "{costs:?}");
    assert!(costs[1].iter().all(|cost| *cost < 60), "{costs:?}");
}

/// A session of another process, which was killed before it wrote the index file, is not created again elsewhere: neither one
/// from before this process knew all sessions, nor one from after that.
#[tokio::test]
async fn a_session_without_its_index_file_is_not_created_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (other, killed) = spied(folder.path()).await;
    let workspaces = fill(&other, &effects, 40).await;
    let ids: Vec<SessionId> = (0..3).map(|_| effects.new_session_id()).collect();
    killed.fail(|_, call| is_of_the_index(call).then_some(EIO));
    let (store, _) = spied(folder.path()).await;
    let (reader, _) = spied(folder.path()).await;
    create(&other, &effects, ids[0], workspaces[1]).await.unwrap();
    for store in [&store, &reader] {
        learn(store, &effects, workspaces[3]).await;
    }
    create(&other, &effects, ids[1], workspaces[2]).await.unwrap();
    for id in &ids[..2] {
        assert_eq!(SessionStore::load(&reader, *id).await.unwrap().head.get(), 1);
        let error = create(&store, &effects, *id, workspaces[5]).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    }
    // Much happens, and the changes are written to another file.
    fs::remove_file(folder.path().join("index/changes")).unwrap();
    create(&other, &effects, ids[2], workspaces[2]).await.unwrap();
    assert!(killed.heal() >= 3, "else this shows nothing");
    for again in 0..2 {
        for id in &ids {
            let error = create(&store, &effects, *id, workspaces[5]).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{again}: {error}");
        }
        learn(&store, &effects, workspaces[3]).await;
    }
    let (fresh, _) = spied(folder.path()).await;
    for id in ids {
        assert_eq!(SessionStore::load(&fresh, id).await.unwrap().head.get(), 1);
    }
}

/// Another program cuts the file of changes, so that the line of a session is lost to a process that knows all others. The
/// session is not created again: its index file tells of it, also if it is written at the last moment; without one,
/// the process notices that the file is another.
#[tokio::test]
async fn a_session_whose_line_was_cut_off_is_not_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (other, killed) = spied(folder.path()).await;
    let workspaces = fill(&other, &effects, 40).await;
    let (store, spy) = spied(folder.path()).await;
    learn(&store, &effects, workspaces[3]).await;
    let changes = folder.path().join("index/changes");
    let known = fs::read(&changes).unwrap();

    let id = effects.new_session_id();
    create(&other, &effects, id, workspaces[1]).await.unwrap();
    fs::OpenOptions::new().write(true).open(&changes).unwrap().set_len(known.len() as u64).unwrap();
    let text = id.to_string();
    let pointer = folder.path().join("index/sessions").join(&text[text.len() - 2..]).join(&text);
    let away = folder.path().join("away");
    fs::rename(&pointer, &away).unwrap();
    let come_back = pointer.clone();
    spy.fail(move |_, call| {
        if call.path.to_string_lossy().contains("index/locks/") {
            fs::rename(&away, &come_back).ok();
        }
        None
    });
    let error = create(&store, &effects, id, workspaces[5]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    assert!(pointer.exists(), "else it was not read at the last moment");
    spy.heal();

    // Killed before its index file; then the file is cut, and is as long again.
    killed.fail(|_, call| is_of_the_index(call).then_some(EIO));
    let id = effects.new_session_id();
    create(&other, &effects, id, workspaces[1]).await.unwrap();
    assert!(killed.heal() > 0, "else its index file would tell");
    learn(&store, &effects, workspaces[3]).await;
    let unseen = effects.new_session_id();
    killed.fail(|_, call| is_of_the_index(call).then_some(EIO));
    create(&other, &effects, unseen, workspaces[2]).await.unwrap();
    assert!(killed.heal() > 0, "else its index file would tell");
    // The same lines, of other sessions.
    let lines = fs::read_to_string(&changes).unwrap();
    let of_another = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        format!("{} {} {}\n", words[0], effects.new_session_id(), words[2..].join(" "))
    };
    let others: String = lines.lines().map(of_another).collect();
    assert_eq!(others.len(), lines.len());
    fs::write(&changes, others).unwrap();
    let error = create(&store, &effects, unseen, workspaces[5]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
}

/// A writer stops between its line and the folder's name, for so long that its line is among those that nobody reads who begins to
/// read. Whoever learns all sessions meanwhile does not miss its session.
#[tokio::test]
async fn a_session_that_gets_its_name_late_is_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (other, slow) = spied(folder.path()).await;
    let workspaces = fill(&other, &effects, 40).await;
    let id = effects.new_session_id();
    let (reached, is_reached) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let (reached, may_go) = (Mutex::new(reached), Mutex::new(may_go));
    slow.fail(move |_, call| {
        if is_of_the_index(call) {
            return Some(EIO);
        }
        if call.name == "rename" && call.path.to_string_lossy().contains(&id.to_string()) {
            reached.lock().unwrap().send(()).unwrap();
            may_go.lock().unwrap().recv_timeout(DEADLINE).unwrap();
        }
        None
    });
    let (maker, effects_of_maker, home) = (other.clone(), effects.clone(), workspaces[1]);
    let made = tokio::spawn(async move { create(&maker, &effects_of_maker, id, home).await });
    tokio::task::spawn_blocking(move || is_reached.recv_timeout(DEADLINE).unwrap()).await.unwrap();
    let line = format!("default {} grows 1\n", effects.new_session_id());
    let many = line.repeat((100 << 10) / line.len());
    let mut changes = fs::OpenOptions::new().append(true).open(folder.path().join("index/changes")).unwrap();
    std::io::Write::write_all(&mut changes, many.as_bytes()).unwrap();

    let (store, _) = spied(folder.path()).await;
    for n in 0..8 {
        // Under another lock than the one that is held: those with the same last digits wait.
        let last = |id: SessionId| id.as_uuid().as_bytes()[15];
        let mut new = effects.new_session_id();
        while last(new) == last(id) {
            new = effects.new_session_id();
        }
        create(&store, &effects, new, workspaces[3 + n]).await.unwrap();
    }
    go.send(()).unwrap();
    made.await.unwrap().unwrap();
    assert!(slow.heal() > 0, "else its index file would tell");
    let error = create(&store, &effects, id, workspaces[5]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
}

/// A writer whose file of changes has lost its name is killed as soon as its session has its name. Who knows all sessions by then
/// learns of it.
#[tokio::test]
async fn a_session_is_announced_before_it_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (other, killed) = spied(folder.path()).await;
    let workspaces = fill(&other, &effects, 40).await;
    fs::remove_file(folder.path().join("index/changes")).unwrap();
    let (store, _) = spied(folder.path()).await;
    create(&store, &effects, effects.new_session_id(), workspaces[3]).await.unwrap();
    learn(&store, &effects, workspaces[3]).await;
    let id = effects.new_session_id();
    let is_dead = AtomicBool::new(false);
    killed.fail(move |_, call| {
        let is_named = call.name == "rename" && call.file().contains(&id.to_string());
        (is_dead.fetch_or(is_named, Ordering::SeqCst)).then_some(EIO)
    });
    create(&other, &effects, id, workspaces[1]).await.unwrap_err();
    assert!(killed.heal() > 0, "else this shows nothing");
    let error = create(&store, &effects, id, workspaces[5]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
}

/// A folder of workspaces that was moved away is not made anew, and what is in the one that took its place is not created again.
#[tokio::test]
async fn moved_workspaces_are_not_taken_for_none() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let effects = Effects::default();
    let (store, _) = spied(folder.path()).await;
    let workspaces = fill(&store, &effects, 40).await;
    learn(&store, &effects, workspaces[3]).await;
    let (here, away) = (folder.path().join("workspaces"), folder.path().join("away"));
    fs::rename(&here, &away).unwrap();
    let error = create(&store, &effects, effects.new_session_id(), workspaces[3]).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!here.exists());

    let (other, _) = spied(elsewhere.path()).await;
    let id = effects.new_session_id();
    create(&other, &effects, id, workspaces[7]).await.unwrap();
    fs::rename(elsewhere.path().join("workspaces"), &here).unwrap();
    let error = create(&store, &effects, id, workspaces[3]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
}

/// Among few workspaces nothing is read but their names: a look into each costs no more.
#[tokio::test]
async fn a_creation_among_few_workspaces_reads_no_changes() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = spied(folder.path()).await;
    let workspaces = fill(&store, &effects, 10).await;
    learn(&store, &effects, workspaces[3]).await;
    spy.take();
    learn(&store, &effects, workspaces[3]).await;
    let read = spy.take().into_iter().filter(|call| call.name == "read" && call.file() == "changes");
    assert_eq!(read.count(), 0);
}

/// A main session that a person moved away before this process knew all sessions, with its index file, is known by the
/// transcript, and not taken for none.
#[tokio::test]
async fn a_moved_main_session_is_missed_among_many_workspaces() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (other, _) = spied(folder.path()).await;
    let workspaces = fill(&other, &effects, 40).await;
    let (store, _) = spied(folder.path()).await;
    let id = effects.new_session_id();
    let transcript = folder.path().join(format!("workspaces/{}/session.md", workspaces[7]));
    fs::write(transcript, format!("---\nformat: 2\nsession: {id}\n---\n")).unwrap();
    learn(&store, &effects, workspaces[3]).await;
    let error = SessionStore::load(&store, id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
}
