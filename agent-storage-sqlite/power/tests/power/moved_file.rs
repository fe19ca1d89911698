//! The file is moved in the middle of a commit: after any of SQLite's calls to the system.

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::{ErrorKind, SessionStore, WorkspaceId, WriteOutcome};
use agent_storage_sqlite::Sync;

use crate::fault::Call;
use crate::model::Disk;
use crate::script::{START, open};
use crate::vfs;

/// A commit during which the file is moved is not acknowledged; what the error says of it is so.
#[tokio::test]
async fn a_file_moved_during_a_commit_acknowledges_nothing() {
    let (mut refused, mut unknown) = (0, 0);
    for n in 0.. {
        let (folder, disk) = (tempfile::tempdir().unwrap(), Disk::new());
        vfs::note(folder.path(), &disk);
        let (path, away) = (folder.path().join("agent.db"), folder.path().join("away.db"));
        let effects = Effects::seeded(1, START);
        let store = open(&path, Sync::Full).await.unwrap();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = store.commit(Commit::create(&effects, new)).await.unwrap().session;

        let (mut number, from, to) = (0, path.clone(), away.clone());
        disk.fail(move |_, _: &Call| {
            if number == n {
                std::fs::rename(&from, &to).unwrap();
            }
            number += 1;
            None
        });
        let commit =
            Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message("moved"));
        let done = store.commit(commit).await;
        disk.heal();
        if !away.exists() {
            done.unwrap();
            assert!(unknown > 0, "no call was in the middle of a commit, only {refused} before it");
            return;
        }
        let error = done.expect_err("the file is not there any more");
        assert_eq!(*error.kind(), ErrorKind::Unavailable, "{n}: {error}");
        drop(store);
        let found =
            SessionStore::load(&open(&away, Sync::Full).await.unwrap(), session.id).await.unwrap().head;
        match error.write_outcome() {
            WriteOutcome::NotApplied => {
                assert_eq!(found, session.head, "{n}: {error}");
                refused += 1;
            }
            _ => unknown += 1,
        }
    }
}
