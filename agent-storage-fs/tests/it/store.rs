//! The file store as a host uses it.

use std::path::Path;
use std::time::Duration;

use crate::support::{append_text, hasty, session, texts, watched};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, ErrorKind, Seq, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore,
};
use agent_storage_fs::{FsConfig, FsStore};

/// A text that looks like the end of a line of the log, and the beginning of another, is text.
#[tokio::test]
async fn text_that_resembles_log_lines_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let content = ["\"crc\":\"00000000\"}\n{\"seq\":1,", "after it"];
    let mut seen = Seq::new(1);
    for text in content {
        seen = append_text(&store, &effects, id, seen, text).await;
    }
    assert_eq!(texts(&store, id).await, content);
    drop(store);
    assert_eq!(texts(&hasty(folder.path()).await, id).await, content);
}

/// What is private is private, whatever the umask.
#[cfg(unix)]
#[tokio::test]
async fn files_are_private_to_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    fn check(folder: &Path) -> usize {
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            count += 1;
            if path.is_dir() {
                assert_eq!(mode, 0o700, "{}", path.display());
                count += check(&path);
            } else {
                assert_eq!(mode, 0o600, "{}", path.display());
            }
        }
        count
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("a").join("b");
    let effects = Effects::default();
    let store = FsStore::open(&root).await.unwrap();
    let record = Workspace::new(WorkspaceId::DEFAULT, "home", effects.new_session_id(), effects.now());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    store.save_config(WorkspaceId::DEFAULT, Some("a = 1".into()), Precondition::MustNotExist).await.unwrap();
    store.touch(WorkspaceId::DEFAULT, effects.now()).await.unwrap();
    store.bind(&"laptop".parse().unwrap(), WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
    let id = session(&store, &effects).await.id;
    crate::support::fill(&store, &effects, id, 100).await;
    let request = LeaseRequest::new("me", effects.new_run_id());
    let commit = Commit::seal(&effects, id, Seq::new(100)).with_trigger(Trigger::BeginRun(request));
    store.commit(commit).await.unwrap();
    let found = check(folder.path());
    assert!(found > 20, "{found} names");
}

/// Two handles that bind at once never lose each other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_handles_never_lose_each_others_binds() {
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = Vec::new();
    for handle in 0..2 {
        let store = hasty(folder.path()).await;
        tasks.push(tokio::spawn(async move {
            for n in 0..100 {
                let device = format!("{handle} {n}").parse().unwrap();
                store.bind(&device, WorkspaceId::DEFAULT, Precondition::MustNotExist).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let store = hasty(folder.path()).await;
    let page =
        BindingStore::list(&store, agent_core::store::BindingQuery::new().with_limit(1000)).await.unwrap();
    assert_eq!(page.items.len(), 200);
}

/// While eight tasks touch a workspace, and one replaces its record, no load fails, none sees a time step
/// back, and no list misses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_load_fails_while_others_touch() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsStore::open(folder.path()).await.unwrap();
    let id = effects.new_workspace_id();
    let record = Workspace::new(id, "work", effects.new_session_id(), effects.now());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (store, effects) = (FsStore::open(folder.path()).await.unwrap(), effects.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..50 {
                store.touch(id, effects.now()).await.unwrap();
            }
        }));
    }
    let (writer, names) = (hasty(folder.path()).await, store.clone());
    tasks.push(tokio::spawn(async move {
        for n in 0..20 {
            let now = WorkspaceStore::load(&names, id).await.unwrap();
            writer.put(now.with_name(format!("work {n}")), Precondition::MustExist).await.unwrap();
        }
    }));
    let mut last = agent_core::Timestamp::MIN;
    let mut loads = 0;
    while tasks.iter().any(|task| !task.is_finished()) {
        let now = WorkspaceStore::load(&store, id).await.unwrap();
        assert!(now.last_accessed >= last);
        last = now.last_accessed;
        assert_eq!(WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap().items.len(), 1);
        loads += 1;
    }
    assert!(loads > 10);
    for task in tasks {
        task.await.unwrap();
    }
}

/// Tenants with equal ids do not see each other.
#[tokio::test]
async fn tenants_with_equal_ids_do_not_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    assert_eq!(Backend::tenants(&store, None).await.unwrap().items, []);
    let id = effects.new_session_id();
    for name in ["alice", "default", "bob"] {
        let tenant = store.for_tenant(&name.parse().unwrap());
        let new = NewSession::new(id, WorkspaceId::DEFAULT);
        tenant.sessions(&effects).create(new).await.unwrap();
        append_text(&tenant, &effects, id, Seq::new(1), name).await;
    }
    for name in ["alice", "default", "bob"] {
        assert_eq!(texts(&store.for_tenant(&name.parse().unwrap()), id).await, [name]);
    }
    let names: Vec<_> =
        Backend::tenants(&store, None).await.unwrap().items.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["alice", "bob", "default"]);
    let stranger = store.for_tenant(&"carol".parse().unwrap());
    assert_eq!(*SessionStore::load(&stranger, id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!folder.path().join("tenants").join("carol").exists(), "looking makes nothing");
}

/// An id that is in use in one workspace is not created in another, also where both happen at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn session_id_is_unique_across_workspaces() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    for round in 0..20 {
        let id = effects.new_session_id();
        let mut tasks = Vec::new();
        for n in 0..4 {
            // The derived files gone at the worst moment.
            if round % 2 == 0 {
                let _ = std::fs::remove_dir_all(folder.path().join("index").join("sessions"));
            }
            let store = hasty(folder.path()).await;
            let workspace = WorkspaceId::from_uuid(*effects.new_workspace_id().as_uuid());
            let create = Commit::create(&effects, NewSession::new(id, workspace));
            tasks.push(tokio::spawn(async move { (n, store.commit(create).await) }));
        }
        let mut won = 0;
        for task in tasks {
            match task.await.unwrap() {
                (_, Ok(_)) => won += 1,
                (n, Err(error)) => {
                    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{n}: {error:?}");
                }
            }
        }
        assert_eq!(won, 1);
    }
    let store = hasty(folder.path()).await;
    let page = SessionStore::list(&store, SessionQuery::new().with_limit(1000)).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (20, 0));
}

/// A session that another process holds locked is waited for, and not for ever.
#[tokio::test]
async fn waiting_for_a_lock_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let config = FsConfig::new(folder.path()).with_lock_wait(Duration::from_millis(50));
    let store = config.open().await.unwrap();
    let id = session(&store, &effects).await.id;
    let path = crate::support::folder_of(folder.path(), id);
    let other = std::fs::File::open(path).unwrap();
    other.lock().unwrap();
    let commit = Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message("x"));
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);
    assert!(error.is_retryable() && error.to_string().contains(&id.to_string()), "{error}");
    assert_eq!(SessionStore::load(&store, id).await.unwrap().head, Seq::new(1), "readers do not wait");
    other.unlock().unwrap();
    store.commit(commit).await.unwrap();
}

/// More sessions than are kept open, written in turn; leases survive it, since they are held.
#[tokio::test]
async fn sessions_beyond_the_open_limit_keep_their_leases() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = FsConfig::new(folder.path()).with_open_sessions(4).open().await.unwrap();
    let leased = session(&store, &effects).await.id;
    let commit = Commit::seal(&effects, leased, Seq::new(1))
        .with_event(NewEvent::user_message("hello"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("me", effects.new_run_id())));
    let epoch = store.commit(commit).await.unwrap().epoch.unwrap();
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(session(&store, &effects).await.id);
    }
    for round in 0..5 {
        for id in &ids {
            append_text(&store, &effects, *id, Seq::new(1 + round), "hello").await;
        }
    }
    for id in &ids {
        assert_eq!(SessionStore::load(&store, *id).await.unwrap().counts.user, 5);
    }
    let elsewhere = FsStore::open(folder.path()).await.unwrap();
    assert!(!elsewhere.leases().status(leased, epoch).await.unwrap().holder_proven_dead);
}

/// Whoever waits for a change is told of one that is made through another handle.
#[tokio::test]
async fn a_change_through_another_handle_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.changed(id, Seq::new(1)).await.unwrap() }
    });
    let other = FsStore::open(folder.path()).await.unwrap();
    append_text(&other, &effects, id, Seq::new(1), "hello").await;
    let outcome = tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it is told").unwrap();
    assert_eq!(outcome, Seq::new(2));
    assert_eq!(SessionStore::load(&store, id).await.unwrap().head, Seq::new(2));
    spy.take();
    let waiting = tokio::time::timeout(Duration::from_millis(400), store.changed(id, Seq::new(2)));
    assert!(waiting.await.is_err());
    let names: Vec<_> = spy.take().iter().map(|call| call.name).collect();
    assert!(names.iter().all(|name| *name == "stat") && names.len() < 10, "{names:?}");
}

/// The platform's directory is asked for by a plain name only.
#[test]
fn platform_directory_name_must_be_plain() {
    for name in ["", ".", "..", "../x", "a/b", "a\\b", ".hidden", "a\0b"] {
        assert_eq!(*FsConfig::platform(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
    }
    let aptove = FsConfig::platform("Aptove").unwrap();
    assert!(aptove.root().ends_with("Aptove") && aptove.root().is_absolute());
}

/// No call touches a file on the caller's thread, so that none blocks an executor.
#[tokio::test]
async fn no_file_is_touched_on_the_callers_thread() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let elsewhere = |what: &str| {
        let calls = spy.take();
        assert!(!calls.is_empty(), "{what} touches no file, so that nothing is shown");
        let here = calls.iter().find(|call| call.thread == std::thread::current().id());
        assert_eq!(here, None, "{what}");
    };
    let workspace = Workspace::new(effects.new_workspace_id(), "a", effects.new_session_id(), effects.now());
    let workspace = store.put(workspace, Precondition::MustNotExist).await.unwrap().id;
    elsewhere("opening, and a new workspace");
    let session = session(&store, &effects).await;
    elsewhere("a new session");
    let commit = Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message("on"));
    let head = store.commit(commit).await.unwrap().session.head;
    elsewhere("a commit");
    SessionStore::load(&store, session.id).await.unwrap();
    elsewhere("a record");
    store.read(session.id, ReadEvents::last(1)).await.unwrap();
    elsewhere("events");
    SessionStore::list(&store, SessionQuery::new()).await.unwrap();
    elsewhere("a list");
    store.leases().heartbeat(session.id, session.epoch).await.unwrap();
    elsewhere("a sign of life");
    store.leases().status(session.id, session.epoch).await.unwrap();
    elsewhere("the look for a sign of life");
    tokio::select! {
        _ = store.changed(session.id, head) => panic!("nobody changed it"),
        () = spy.checked() => {}
    }
    elsewhere("the wait for a change");
    WorkspaceStore::load(&store, workspace).await.unwrap();
    elsewhere("a workspace");
    WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap();
    elsewhere("the workspaces");
    store.touch(workspace, effects.now()).await.unwrap();
    elsewhere("an access");
    store.bind(&"laptop".parse().unwrap(), workspace, Precondition::None).await.unwrap();
    elsewhere("a bind");
    store.resolve(&"laptop".parse().unwrap()).await.unwrap();
    elsewhere("a binding");
}
