//! Beside other backends: the same sealed commits come to the same answers, and one may hold what the other does not.

use std::sync::Arc;

use crate::support::Site;
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{Decision, Event, EventPayload, NewEvent, ToolConfirmation, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{ActionId, ActionKind, CallId, Patch, PendingAction, Timer, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Binding, BindingQuery, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{DeviceId, MemoryStore, Result, Storage};
use agent_storage_fs::FsStore;

/// Everything that was written, sealed, so that it can be sent again elsewhere.
#[derive(Default)]
struct Script {
    workspaces: Vec<Workspace>,
    bindings: Vec<(DeviceId, agent_core::WorkspaceId)>,
    commits: Vec<Commit>,
}

/// What there is to see from outside.
#[derive(Debug, PartialEq)]
struct Seen {
    sessions: Vec<(Arc<SessionRecord>, Vec<Event>)>,
    list: String,
    workspaces: Vec<Workspace>,
    bindings: Vec<Binding>,
}

/// Writes a conversation of many kinds of steps, and a fork of it, and notes each sealed commit.
async fn write(storage: &Storage, effects: &Effects) -> Script {
    let mut script = Script::default();
    for (n, name) in ["laptop", "../phone", "Küche"].iter().enumerate() {
        let id = effects.new_workspace_id();
        let workspace = Workspace::new(id, format!("workspace {n}"), effects.new_session_id(), effects.now())
            .with_setting("n", RawJson::parse("12345678901234567890.5").unwrap());
        let device: DeviceId = name.parse().unwrap();
        storage.workspaces.put(workspace.clone(), Precondition::MustNotExist).await.unwrap();
        storage.bindings.bind(&device, id, Precondition::MustNotExist).await.unwrap();
        script.workspaces.push(workspace);
        script.bindings.push((device, id));
    }
    let new = NewSession::new(effects.new_session_id(), script.workspaces[0].id);
    let mut session = send(storage, &mut script, Commit::create(effects, new)).await;
    let call: CallId = "call 1".parse().unwrap();
    let action: ActionId = "question 1".parse().unwrap();
    let question = PendingAction::new(action.clone(), ActionKind::Approval, "Really?");
    let run = effects.new_run_id();
    let begin = move || Trigger::BeginRun(LeaseRequest::new("laptop", run));
    type Write = Box<dyn FnOnce(Commit) -> Commit + Send>;
    let answer = EventPayload::UserToolConfirmation(ToolConfirmation::new(action, Decision::Allow));
    let writes: Vec<(bool, Write)> = vec![
        (false, Box::new(|c| c.with_event(NewEvent::updated(Patch::new().with_label("project", "apollo"))))),
        (
            false,
            Box::new(move |c| {
                c.with_event(NewEvent::user_message("## User\r\n\u{0}한국어 🙂")).with_trigger(begin())
            }),
        ),
        (
            true,
            Box::new({
                let call = call.clone();
                move |c| c.with_event(NewEvent::tool_use(call, "ls", RawJson::empty_object()))
            }),
        ),
        (
            true,
            Box::new(|c| c.with_event(NewEvent::tool_result(call, ToolOutcome::Ok, RawJson::empty_object()))),
        ),
        (true, Box::new(|c| c.with_trigger(Trigger::EndRun(RunEnd::Await(question))))),
        (false, Box::new(move |c| c.with_event(NewEvent::of(&answer)).with_trigger(begin()))),
        (
            true,
            Box::new(|c| {
                c.with_event(NewEvent::agent_message("Done."))
                    .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)))
            }),
        ),
        (false, Box::new(|c| c.with_event(NewEvent::timer_scheduled(Timer::new("daily", c_at()))))),
    ];
    for (of_run, write) in writes {
        let mut commit = Commit::seal(effects, session.id, session.head);
        if of_run {
            commit = commit.with_fence(run, session.epoch);
        }
        session = send(storage, &mut script, write(commit)).await;
    }
    let fork = NewSession::fork(effects.new_session_id(), &session);
    let fork = send(storage, &mut script, Commit::create(effects, fork)).await;
    let append = Commit::seal(effects, fork.id, fork.head).with_event(NewEvent::user_message("another way"));
    send(storage, &mut script, append).await;
    script
}

fn c_at() -> agent_core::Timestamp {
    agent_core::Timestamp::from_micros(1_771_151_400_000_000)
}

async fn send(storage: &Storage, script: &mut Script, commit: Commit) -> Arc<SessionRecord> {
    script.commits.push(commit.clone());
    storage.sessions.commit(commit).await.unwrap().session
}

/// Sends everything again, to another store.
async fn send_again(storage: &Storage, script: &Script) -> Result<()> {
    for workspace in &script.workspaces {
        storage.workspaces.put(workspace.clone(), Precondition::MustNotExist).await?;
    }
    for (device, id) in &script.bindings {
        storage.bindings.bind(device, *id, Precondition::MustNotExist).await?;
    }
    for commit in &script.commits {
        assert!(!storage.sessions.commit(commit.clone()).await?.replayed);
    }
    for commit in script.commits.iter().rev().take(8) {
        assert!(storage.sessions.commit(commit.clone()).await?.replayed, "sent twice is once");
    }
    Ok(())
}

async fn read_all(storage: &Storage) -> Seen {
    let page = storage.sessions.list(SessionQuery::new().with_hidden().with_total()).await.unwrap();
    assert!(page.damaged.is_empty());
    let mut sessions = Vec::new();
    for item in &page.items {
        let events = storage.sessions.read(item.id, ReadEvents::first(1000)).await.unwrap();
        assert!(events.damaged.is_empty() && events.next.is_none());
        sessions.push((storage.sessions.load(item.id).await.unwrap(), events.events));
    }
    Seen {
        sessions,
        list: format!("{page:?}"),
        workspaces: storage.workspaces.list(WorkspaceQuery::new()).await.unwrap().items,
        bindings: storage.bindings.list(BindingQuery::new()).await.unwrap().items,
    }
}

/// Files to SQLite to files, by sending the same sealed commits again: sessions, events, workspaces and
/// bindings are equal, to those in memory too.
#[tokio::test]
async fn files_copied_to_sqlite_and_back_are_equal() {
    let site = Site::new();
    let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first: Storage = FsStore::open(folders.0.path()).await.unwrap().into();
    let script = write(&first, &site.effects).await;
    let before = read_all(&first).await;
    assert_eq!((before.sessions.len(), before.workspaces.len(), before.bindings.len()), (2, 3, 3));
    let sqlite: Storage = site.open().await.into();
    let back: Storage = FsStore::open(folders.1.path()).await.unwrap().into();
    let memory: Storage = MemoryStore::new().into();
    for (name, storage) in [("SQLite", &sqlite), ("files again", &back), ("memory", &memory)] {
        send_again(storage, &script).await.unwrap();
        assert_eq!(read_all(storage).await, before, "{name}");
    }
}

/// Workspaces in files, bindings in memory and sessions in SQLite behave like one store.
#[tokio::test]
async fn a_mixed_store_behaves_like_one() {
    let site = Site::new();
    let folder = tempfile::tempdir().unwrap();
    let files: Storage = FsStore::open(folder.path()).await.unwrap().into();
    let memory: Storage = MemoryStore::new().into();
    let sqlite: Storage = site.open().await.into();
    let mixed = Storage::new(files.workspaces, sqlite.sessions.store().clone(), memory.bindings);
    let script = write(&mixed, &site.effects).await;
    let other = Site::new();
    let single: Storage = other.open().await.into();
    send_again(&single, &script).await.unwrap();
    assert_eq!(read_all(&mixed).await, read_all(&single).await);
}

/// What two tenants name alike is kept apart, also where names could run into each other.
#[tokio::test]
async fn two_tenants_never_share_a_key() {
    let site = Site::new();
    let store = site.open().await;
    let tenants = ["a", "a-b", "a_b"].map(|name| store.for_tenant(&name.parse().unwrap()));
    let devices = ["b-c", "c", "_b", "a"];
    for (n, tenant) in tenants.iter().enumerate() {
        let storage: Storage = tenant.clone().into();
        for device in devices {
            let id = agent_core::WorkspaceId::from_uuid(*site.effects.new_session_id().as_uuid());
            let bound = storage
                .bindings
                .bind(&device.parse().unwrap(), id, Precondition::MustNotExist)
                .await
                .unwrap();
            assert_eq!(bound, id, "tenant {n}, device {device}: nobody was here before");
        }
    }
}
