//! Golden files: the bytes that this version writes, and those of earlier versions, which it reads.
//!
//! `tests/golden/<format>` holds the files of each format. A format that was released is never changed there.

use std::path::{Path, PathBuf};

use crate::support::{files, texts};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Actor, Workspace};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, SessionQuery};
use agent_core::{BindingStore, SessionId, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore};
use agent_storage_fs::FsStore;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("golden").join("6")
}

/// A workspace, a binding, a session with two turns, one that was purged, one that is running.
async fn write(root: &Path) -> [SessionId; 3] {
    let effects = Effects::seeded(1, "2026-02-15T10:30:00Z".parse().unwrap());
    let store = FsStore::open(root).await.unwrap();
    let ids = [(); 3].map(|()| effects.new_session_id());
    let record = Workspace::new(WorkspaceId::DEFAULT, "Küche", ids[0], effects.now())
        .with_provider("claude")
        .with_description("two\nlines")
        .with_creator(Actor::USER)
        .with_setting("number", RawJson::parse("12345678901234567890.10").unwrap());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    store
        .save_config(WorkspaceId::DEFAULT, Some("provider = \"gemini\"\n".into()), Precondition::MustNotExist)
        .await
        .unwrap();
    store.touch(WorkspaceId::DEFAULT, effects.now()).await.unwrap();
    store
        .bind(&"laptop \"2\"".parse().unwrap(), WorkspaceId::DEFAULT, Precondition::MustNotExist)
        .await
        .unwrap();
    for id in ids {
        let new = NewSession::new(id, WorkspaceId::DEFAULT);
        let session = store.sessions(&effects).create(new).await.unwrap();
        let run = effects.new_run_id();
        let begin = Commit::seal(&effects, id, session.head)
            .with_event(NewEvent::user_message("안녕"))
            .with_trigger(Trigger::BeginRun(LeaseRequest::new("golden", run)));
        let begun = store.commit(begin).await.unwrap();
        if id == ids[2] {
            store.leases().heartbeat(id, begun.epoch.unwrap()).await.unwrap();
            continue;
        }
        let end = Commit::seal(&effects, id, begun.last)
            .with_fence(run, begun.epoch.unwrap())
            .with_event(NewEvent::agent_message("Hello.\n"))
            .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
        store.commit(end).await.unwrap();
    }
    let deleted =
        store.sessions(&effects).trigger(ids[1], Trigger::Delete(Reason::UserDeleted)).await.unwrap().session;
    store.purge(Purge::new(ids[1], deleted.head).with_keep_through(agent_core::Seq::new(1))).await.unwrap();
    // As it is in the end, not as it was on the way.
    store.transcript_edits(WorkspaceId::DEFAULT).await.unwrap();
    ids
}

/// The files are those of the format, byte for byte. `AGENT_STORAGE_FS_BLESS=1` writes them anew, for a
/// format that was not released.
#[tokio::test]
async fn written_files_match_the_golden_files() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let mut written = files(folder.path());
    // Locks, and what can be deleted; but the transcript, which people read.
    written.retain(|(path, _)| !path.ends_with("lock") && path.extension() != Some("lock".as_ref()));
    written.retain(|(path, _)| !path.starts_with("index"));
    if std::env::var_os("AGENT_STORAGE_FS_BLESS").is_some() {
        for (path, bytes) in &written {
            let path = golden().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    let expected = files(&golden());
    let names = |files: &[(PathBuf, Vec<u8>)]| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(names(&written), names(&expected));
    for ((path, written), (_, expected)) in written.iter().zip(&expected) {
        let (written, expected) = (String::from_utf8_lossy(written), String::from_utf8_lossy(expected));
        assert_eq!(written, expected, "{}", path.display());
    }
    // The page about the format shows these very bytes.
    let page = include_str!("../../FORMAT.md");
    for name in ["events.jsonl", "session.md", "workspace.toml", "bindings.toml"] {
        let shown = expected.iter().any(|(path, bytes)| {
            path.ends_with(name) && page.contains(std::str::from_utf8(bytes).unwrap().trim_end())
        });
        assert!(shown, "FORMAT.md shows no {name}");
    }
}

/// What was written in this format is read.
#[tokio::test]
async fn golden_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for (path, bytes) in files(&golden()) {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let store = FsStore::open(folder.path()).await.unwrap();
    let workspace = WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.unwrap();
    assert_eq!((workspace.name.as_str(), workspace.description.as_deref()), ("Küche", Some("two\nlines")));
    assert_eq!(workspace.settings.get("number").unwrap().get(), "12345678901234567890.10");
    assert!(workspace.last_accessed > workspace.created_at);
    let device = "laptop \"2\"".parse().unwrap();
    assert_eq!(store.resolve(&device).await.unwrap(), Some(WorkspaceId::DEFAULT));
    let page = SessionStore::list(&store, SessionQuery::new().with_hidden()).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (3, 0));
    for summary in page.items {
        let record = SessionStore::load(&store, summary.id).await.unwrap();
        match record.status.state {
            SessionState::Idle => assert_eq!(texts(&store, record.id).await, ["안녕"]),
            SessionState::Deleted => assert_eq!(texts(&store, record.id).await, [""; 0]),
            _ => {
                let lease_status = store.leases().status(record.id, record.epoch).await.unwrap();
                assert_eq!(
                    (lease_status.heartbeat, lease_status.holder_proven_dead),
                    (1, true),
                    "its process is gone"
                );
            }
        }
    }
}
