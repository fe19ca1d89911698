//! Files that are moved, removed or replaced while a store has them open. No write is acknowledged into a file that is
//! no longer under its name, and what was acknowledged before is kept.

#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::Site;
use agent_core::commit::Precondition;
use agent_core::session::SessionRecord;
use agent_core::store::{Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{Backend, BindingStore, Error, ErrorKind, SessionStore, WorkspaceStore, WriteOutcome};
use agent_storage_sqlite::SqliteStore;

/// Times before and after a read, before something happens to the files. After the second ones the store looks at the
/// folder only, which has not changed for some seconds.
const WAITS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(4)];
/// After how long a test is stuck.
const STUCK: Duration = Duration::from_secs(60);

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What happens to the files of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Renamed,
    Removed,
    /// By a backup that another program puts in its place.
    Replaced,
    /// The folder that it lies in is renamed, and another takes its place.
    Folder,
    LogRemoved,
    IndexRemoved,
    BothRemoved,
    LogReplaced,
}

const ALL: [What; 8] = [
    What::Renamed,
    What::Removed,
    What::Replaced,
    What::Folder,
    What::LogRemoved,
    What::IndexRemoved,
    What::BothRemoved,
    What::LogReplaced,
];

/// Does it; returns where the database file is then.
fn strike(site: &Site, path: &Path, what: What) -> Option<PathBuf> {
    let (elsewhere, backup) = (site.folder.path().join("moved.db"), site.folder.path().join("backup.db"));
    match what {
        What::Renamed => fs::rename(path, &elsewhere).unwrap(),
        What::Removed => {
            fs::remove_file(path).unwrap();
            return None;
        }
        What::Replaced => {
            fs::rename(path, &elsewhere).unwrap();
            fs::rename(&backup, path).unwrap();
        }
        What::Folder => {
            let (folder, moved) = (path.parent().unwrap(), site.folder.path().join("moved"));
            fs::rename(folder, &moved).unwrap();
            fs::create_dir(folder).unwrap();
            return Some(moved.join("agent.db"));
        }
        What::LogRemoved => fs::remove_file(beside(path, "-wal")).unwrap(),
        What::IndexRemoved => fs::remove_file(beside(path, "-shm")).unwrap(),
        What::BothRemoved => {
            fs::remove_file(beside(path, "-wal")).unwrap();
            fs::remove_file(beside(path, "-shm")).unwrap();
        }
        What::LogReplaced => {
            let log = beside(path, "-wal");
            fs::rename(&log, beside(path, "-old")).unwrap();
            fs::write(&log, "").unwrap();
        }
    }
    Some(if elsewhere.exists() { elsewhere } else { path.to_owned() })
}

/// Store that is open for some time, with a session.
struct Opened {
    what: What,
    site: Site,
    path: PathBuf,
    store: SqliteStore,
    session: Arc<SessionRecord>,
}

/// Opens a store for each case, with a backup beside it, waits, reads, and waits again.
async fn opened(wait: Duration) -> Vec<Opened> {
    let mut opened = Vec::new();
    for what in ALL {
        let site = Site::new();
        let (path, store) = store_in_a_folder(&site).await;
        let session = site.session(&store).await;
        store.backup(site.folder.path().join("backup.db")).await.unwrap();
        let session = site.append_text(&store, &session, "acknowledged").await;
        opened.push(Opened { what, site, path, store, session });
    }
    tokio::time::sleep(wait).await;
    for opened in &opened {
        SessionStore::load(&opened.store, opened.session.id).await.unwrap();
    }
    tokio::time::sleep(wait).await;
    opened
}

async fn store_in_a_folder(site: &Site) -> (PathBuf, SqliteStore) {
    let path = site.folder.path().join("data").join("agent.db");
    let store = SqliteStore::open(&path).await.unwrap();
    (path, store)
}

/// Nothing is acknowledged into a file that its path does not name any more: not a commit, not a purge, not a binding.
#[tokio::test]
async fn moved_file_refuses_writes() {
    for wait in WAITS {
        for Opened { what, site, path, store, session } in opened(wait).await {
            let session = site.append_text(&store, &session, "also acknowledged").await;
            let now = strike(&site, &path, what);

            let device = "laptop".parse().unwrap();
            for round in 0..2 {
                let case = format!("{what:?} after {wait:?}, {round}");
                let refused = |error: Error| {
                    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{case}: {error}");
                    assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{case}: {error}");
                    let text = error.to_string();
                    assert!(text.contains(path.to_str().unwrap()), "{case}: {text}");
                    assert!(text.contains("open it again"), "{case}: {text}");
                };
                refused(
                    store.commit(site.text_commit(&session, "into nowhere")).await.expect_err("a commit"),
                );
                refused(store.leases().heartbeat(session.id, session.epoch).await.expect_err("a heartbeat"));
                refused(store.purge(Purge::new(session.id, session.head)).await.expect_err("a purge"));
                let bound =
                    store.bind(&device, site.effects.new_workspace_id(), Precondition::MustNotExist).await;
                refused(bound.expect_err("a binding"));
            }
            store.close().await.unwrap();
            drop(store);

            // What was acknowledged before is in the file, wherever that is now.
            let Some(now) = now else { continue };
            let store = SqliteStore::open(&now).await.unwrap();
            let found = SessionStore::load(&store, session.id).await.unwrap();
            assert_eq!(found, session, "{what:?}");
            let events = store.read(session.id, ReadEvents::first(9)).await.unwrap().events;
            assert_eq!(events.len(), 3, "{what:?}");
        }
    }
}

/// Readers say so, too, and do not answer from a file that is not there any more.
#[tokio::test]
async fn moved_file_refuses_reads() {
    for wait in WAITS {
        for Opened { what, site, path, store, session } in opened(wait).await {
            // One that has read before, and one whose threads have their files to open yet.
            let cold = SqliteStore::open(&path).await.unwrap();
            SessionStore::load(&store, session.id).await.unwrap();
            let waiting = tokio::spawn({
                let (store, id, head) = (store.clone(), session.id, session.head);
                async move { store.changed(id, head).await }
            });
            strike(&site, &path, what);
            let device = "laptop".parse().unwrap();
            for store in [&store, &cold, &store] {
                let errors = [
                    SessionStore::load(store, session.id).await.expect_err("a record"),
                    store.read(session.id, ReadEvents::last(5)).await.expect_err("events"),
                    SessionStore::list(store, SessionQuery::new()).await.expect_err("sessions"),
                    WorkspaceStore::list(store, WorkspaceQuery::new()).await.expect_err("workspaces"),
                    store.resolve(&device).await.expect_err("a binding"),
                    Backend::tenants(store, None).await.expect_err("tenants"),
                    store.leases().status(session.id, session.epoch).await.expect_err("signs of life"),
                    store.maintenance().check().await.expect_err("a check"),
                    store.backup(site.folder.path().join("late.db")).await.expect_err("a backup"),
                ];
                for error in errors {
                    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{what:?} after {wait:?}: {error}");
                    assert!(error.to_string().contains("open it again"), "{what:?} after {wait:?}: {error}");
                }
            }
            let error = tokio::time::timeout(STUCK, waiting).await.unwrap().unwrap().expect_err("news");
            assert_eq!(*error.kind(), ErrorKind::Unavailable, "{what:?} after {wait:?}: {error}");
            assert!(!site.folder.path().join("late.db").exists());
        }
    }
}

/// A file that comes back is written to again.
#[tokio::test]
async fn restored_file_is_used_again() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let away = site.folder.path().join("away.db");
    fs::rename(site.path(), &away).unwrap();
    let commit = site.text_commit(&session, "patience");
    store.commit(commit.clone()).await.unwrap_err();
    fs::rename(&away, site.path()).unwrap();
    assert!(!store.commit(commit).await.unwrap().replayed);
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap().head, session.head.next());
    let other = site.open().await;
    assert_eq!(SessionStore::load(&other, session.id).await.unwrap().head, session.head.next());
}

/// What was acknowledged is in the database file as soon as the store has noticed that the log beside it is gone: also if
/// the program is killed then.
#[tokio::test]
async fn removed_wal_loses_nothing_acknowledged() {
    for what in [What::LogRemoved, What::BothRemoved, What::Renamed] {
        let site = Site::new();
        let (path, store) = store_in_a_folder(&site).await;
        let session = site.session(&store).await;
        let session = site.append_text(&store, &session, "acknowledged").await;
        let now = strike(&site, &path, what).unwrap();
        store.commit(site.text_commit(&session, "into nowhere")).await.unwrap_err();
        // As it would be found after a kill: the database file without what lay beside it.
        let elsewhere = Site::new();
        fs::copy(&now, elsewhere.path()).unwrap();
        let copy = elsewhere.open().await;
        assert_eq!(SessionStore::load(&copy, session.id).await.unwrap(), session, "{what:?}");
        if what == What::Renamed {
            // A backup that is put there finds nothing of this file's log.
            assert_eq!(fs::metadata(beside(&path, "-wal")).unwrap().len(), 0);
        }
    }
}

/// A name that leads to another file by a link is no other file.
#[tokio::test]
async fn symlink_to_the_file_is_followed() {
    let site = Site::new();
    let folder = site.folder.path().join("real");
    fs::create_dir(&folder).unwrap();
    let real = folder.join("store.db");
    drop(SqliteStore::open(&real).await.unwrap());
    std::os::unix::fs::symlink(&real, site.path()).unwrap();
    let store = site.open().await;
    let session = site.session(&store).await;
    let session = site.append_text(&store, &session, "through a link").await;
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap(), session);
    // The link leads elsewhere.
    let other = folder.join("other.db");
    drop(SqliteStore::open(&other).await.unwrap());
    fs::remove_file(site.path()).unwrap();
    std::os::unix::fs::symlink(&other, site.path()).unwrap();
    let error = store.commit(site.text_commit(&session, "into nowhere")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
    store.close().await.unwrap();
    let store = SqliteStore::open(&real).await.unwrap();
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap(), session);
}

/// SQLite keeps a log for each name of a file, so that two names of one file lose what the other wrote: a file that has
/// several is refused when it is opened, and a store that has it open goes on.
#[tokio::test]
async fn file_with_two_hard_links_is_refused() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let other = site.folder.path().join("other.db");
    fs::hard_link(site.path(), &other).unwrap();
    for name in [other.clone(), site.path()] {
        let refused = SqliteStore::open(&name).await.expect_err("it has another name");
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{refused}");
        let text = refused.to_string();
        assert!(text.contains(&name.display().to_string()) && text.contains("hard link"), "{text}");
    }
    site.append_text(&store, &session, "still here").await;
    store.close().await.unwrap();
    fs::remove_file(&other).unwrap();
    let store = site.open().await;
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap().head, session.head.next());
}
