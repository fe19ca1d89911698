//! One log in every store: the same sealed commits, sent to each store, read back equal to the byte.

use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{Event, NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{DeviceId, MemoryStore, Seq, SessionId, Storage};
use agent_storage_fs::FsStore;
use agent_storage_s3::S3Config;
use agent_storage_sqlite::SqliteStore;
use s3_simulator::Simulator;

/// What was written, sealed, so that it can be sent again elsewhere.
struct Script {
    workspace: Workspace,
    device: DeviceId,
    commits: Vec<Commit>,
    purges: Vec<Purge>,
    sessions: Vec<SessionId>,
}

/// Conversations of many commits of one event and more, short ones and long ones, a fork, and a session that is deleted and
/// purged but for what its fork reads.
async fn write(storage: &Storage, effects: &Effects) -> Script {
    let ids = [(); 3].map(|()| effects.new_session_id());
    let workspace = Workspace::new(effects.new_workspace_id(), "Küche", ids[0], effects.now())
        .with_setting("n", RawJson::parse("12345678901234567890.5").unwrap());
    let mut script = Script {
        workspace,
        device: "../laptop".parse().unwrap(),
        commits: Vec::new(),
        purges: Vec::new(),
        sessions: ids.to_vec(),
    };
    storage.workspaces.put(script.workspace.clone(), Precondition::MustNotExist).await.unwrap();
    storage.bindings.bind(&script.device, script.workspace.id, Precondition::MustNotExist).await.unwrap();
    let mut heads = Vec::new();
    for id in &ids[..2] {
        let new = NewSession::new(*id, script.workspace.id);
        let mut session = send(storage, &mut script, Commit::create(effects, new)).await;
        for turn in 0..40usize {
            let run = effects.new_run_id();
            let text = "## User\r\n\u{0}한국어 🙂 ".repeat(1 + turn % 7 * 60);
            let begin = Commit::seal(effects, *id, session.head)
                .with_event(NewEvent::user_message(text))
                .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run)));
            session = send(storage, &mut script, begin).await;
            let call = format!("call {turn}").parse::<agent_core::model::CallId>().unwrap();
            let step = Commit::seal(effects, *id, session.head)
                .with_fence(run, session.epoch)
                .with_event(NewEvent::tool_use(call.clone(), "ls", RawJson::empty_object()))
                .with_event(NewEvent::tool_result(call, ToolOutcome::Ok, RawJson::empty_object()));
            session = send(storage, &mut script, step).await;
            let end = Commit::seal(effects, *id, session.head)
                .with_fence(run, session.epoch)
                .with_event(NewEvent::agent_message(format!("turn {turn}")))
                .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
            session = send(storage, &mut script, end).await;
        }
        heads.push(session);
    }
    let fork = send(storage, &mut script, Commit::create(effects, NewSession::fork(ids[2], &heads[1]))).await;
    let commit = Commit::seal(effects, fork.id, fork.head).with_event(NewEvent::user_message("another way"));
    send(storage, &mut script, commit).await;
    let delete =
        Commit::seal(effects, ids[1], heads[1].head).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = send(storage, &mut script, delete).await;
    let purge = Purge::new(ids[1], deleted.head).with_keep_through(Seq::new(70));
    storage.sessions.purge(purge.clone()).await.unwrap();
    script.purges.push(purge);
    script
}

async fn send(storage: &Storage, script: &mut Script, commit: Commit) -> Arc<SessionRecord> {
    script.commits.push(commit.clone());
    storage.sessions.commit(commit).await.unwrap().session
}

/// Sends everything again, to another store.
async fn send_again(storage: &Storage, script: &Script) {
    storage.workspaces.put(script.workspace.clone(), Precondition::MustNotExist).await.unwrap();
    storage.bindings.bind(&script.device, script.workspace.id, Precondition::MustNotExist).await.unwrap();
    for commit in &script.commits {
        assert!(!storage.sessions.commit(commit.clone()).await.unwrap().replayed);
        assert!(storage.sessions.commit(commit.clone()).await.unwrap().replayed, "sent twice is once");
    }
    for purge in &script.purges {
        storage.sessions.purge(purge.clone()).await.unwrap();
    }
}

/// What there is to see from outside: records, all events, read from both ends, lists, the workspace, the binding.
async fn read_all(
    storage: &Storage,
    script: &Script,
) -> (Vec<(Arc<SessionRecord>, Vec<Event>, Vec<Event>)>, String) {
    let mut sessions = Vec::new();
    for id in &script.sessions {
        let mut ways = Vec::new();
        for first in [ReadEvents::first(37), ReadEvents::last(37)] {
            let (mut events, mut next) = (Vec::new(), Some(first));
            while let Some(read) = next {
                let page = storage.sessions.read(*id, read).await.unwrap();
                assert!(page.damaged.is_empty(), "{:?}", page.damaged);
                events.extend(page.events);
                next = page.next;
            }
            ways.push(events);
        }
        let newest = ways.pop().unwrap();
        sessions.push((storage.sessions.load(*id).await.unwrap(), ways.pop().unwrap(), newest));
    }
    let lists = format!(
        "{:?} {:?} {:?}",
        storage.sessions.list(SessionQuery::new().with_hidden().with_total()).await.unwrap(),
        storage.workspaces.list(WorkspaceQuery::new()).await.unwrap(),
        storage.bindings.resolve(&script.device).await.unwrap(),
    );
    (sessions, lists)
}

/// In memory, in files, in SQLite and in a bucket the same commits come to the same records, events and lists.
#[tokio::test]
async fn the_same_commits_read_back_equal_from_every_store() {
    let effects = Effects::seeded(41, "2026-02-15T10:30:00Z".parse().unwrap());
    let memory: Storage = MemoryStore::new().into();
    let script = write(&memory, &effects).await;
    let before = read_all(&memory, &script).await;
    assert!(before.0[0].1.len() > 150 && before.0[1].1.len() == 161, "long enough to fill windows");

    let (files, file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let simulator = Simulator::new(1);
    let s3 = |client: &str| {
        let config = S3Config::new("bucket").with_http_connector(simulator.connector(client));
        let option = |config: S3Config, name| config.with_option(name, "any").unwrap();
        ["access_key_id", "secret_access_key", "region"].into_iter().fold(config, option)
    };
    let stores: [(&str, Storage); 3] = [
        ("files", FsStore::open(files.path()).await.unwrap().into()),
        ("SQLite", SqliteStore::open(file.path().join("agent.db")).await.unwrap().into()),
        ("a bucket", s3("writer").open().await.unwrap().into()),
    ];
    for (name, storage) in &stores {
        send_again(storage, &script).await;
        assert!(read_all(storage, &script).await == before, "{name} shows something else");
    }
    // Another machine, which knows no heads.
    let cold: Storage = s3("reader").open().await.unwrap().into();
    assert!(read_all(&cold, &script).await == before, "the bucket shows something else to another handle");
}
