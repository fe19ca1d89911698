//! Pipes, sockets, links and folders under a name that SQLite uses beside the database: named at once, without a wait.
#![cfg(unix)]

use std::fs;
use std::future::Future;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::Site;
use agent_core::commit::{LeaseRequest, Trigger};
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{Error, ErrorKind, SessionStore};

const ODD: [&str; 5] = ["pipe", "socket", "link", "dangling link", "folder"];

fn put(kind: &str, path: &Path) {
    let aside = path.with_file_name("aside");
    match kind {
        "pipe" => rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap(),
        "socket" => {
            drop(UnixListener::bind(&aside).unwrap());
            fs::rename(&aside, path).unwrap();
        }
        "link" => {
            fs::write(&aside, "").unwrap();
            symlink(&aside, path).unwrap();
        }
        "dangling link" => symlink("nowhere", path).unwrap(),
        _ => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("mine"), "mine").unwrap();
        }
    }
}

fn beside(site: &Site, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", site.path().display()))
}

/// Runs something that must not wait without end; if it does, the test ends all the same.
fn in_time<F: Future<Output = ()>>(what: &str, work: impl FnOnce() -> F + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work());
        drop(runtime);
        let _ = done.send(());
    });
    match wait.recv_timeout(Duration::from_secs(30)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        _ => thread.join().unwrap_or_else(|_| panic!("{what}: it failed")),
    }
}

fn assert_names(error: &Error, kind: &str, path: &Path) {
    let text = error.to_string();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{kind}: {text}");
    for wording in [kind.trim_start_matches("dangling "), &path.display().to_string(), "move it away"] {
        assert!(text.contains(wording), "{kind}: {text}");
    }
}

/// What stands under the name of a file of SQLite is named when the store is opened, for writing or for reading, and also if
/// the database is new, empty or damaged. It is left as it is, and the store opens once it is moved away.
#[test]
fn special_file_beside_the_database_is_named_on_opening() {
    for kind in ODD {
        for suffix in ["-journal", "-wal", "-shm"] {
            for database in ["whole", "read-only", "missing", "empty", "damaged", "behind a link"] {
                in_time(&format!("{kind} at {suffix}, {database}"), move || async move {
                    let site = Site::new();
                    let store = site.open().await;
                    let session = site.session(&store).await;
                    store.close().await.unwrap();
                    let mut config = site.config();
                    match database {
                        "read-only" => {
                            let mut mode = fs::metadata(site.path()).unwrap().permissions();
                            mode.set_readonly(true);
                            fs::set_permissions(site.path(), mode).unwrap();
                        }
                        "missing" => fs::remove_file(site.path()).unwrap(),
                        "empty" => fs::write(site.path(), "").unwrap(),
                        "damaged" => fs::write(site.path(), [7; 4096]).unwrap(),
                        "behind a link" => {
                            let link = site.folder.path().join("link.db");
                            symlink(site.path(), &link).unwrap();
                            config = agent_storage_sqlite::SqliteConfig::new(link);
                        }
                        _ => {}
                    }
                    let path = beside(&site, suffix);
                    put(kind, &path);
                    let before = fs::symlink_metadata(&path).unwrap().file_type();
                    let created = [true].into_iter().chain((database == "whole").then_some(false));
                    for create in created {
                        let error = config.clone().with_create(create).open().await.unwrap_err();
                        assert_names(&error, kind, &path);
                    }
                    assert_eq!(fs::symlink_metadata(&path).unwrap().file_type(), before);
                    assert_eq!(site.path().exists(), database != "missing", "a database was created");
                    fs::rename(&path, site.folder.path().join("away")).unwrap();
                    if database != "damaged" {
                        let store = config.open().await.unwrap();
                        let list = store.list(SessionQuery::new()).await.unwrap();
                        let is_kept = !["missing", "empty"].contains(&database);
                        assert_eq!(list.items.iter().any(|found| found.id == session.id), is_kept);
                        store.close().await.unwrap();
                    }
                });
            }
        }
    }
}

/// A journal that is none, and that comes while the store is open, keeps a new connection from reading, and is named; the
/// connections that are open go on.
#[test]
fn special_file_that_comes_later_blocks_no_call() {
    for kind in ODD {
        in_time(kind, move || async move {
            let site = Site::new();
            let store = site.open().await;
            let session = site.session(&store).await;
            let path = beside(&site, "-journal");
            put(kind, &path);
            // The first long read opens a connection.
            let error = store.list(SessionQuery::new()).await.unwrap_err();
            assert_names(&error, kind, &path);
            let error = store.backup(site.folder.path().join("copy.db")).await.unwrap_err();
            assert_names(&error, kind, &path);
            let session = site.append_text(&store, &session, "goes on").await;
            fs::rename(&path, site.folder.path().join("away")).unwrap();
            assert_eq!(store.list(SessionQuery::new()).await.unwrap().items.len(), 1);
            assert_eq!(store.read(session.id, ReadEvents::last(1)).await.unwrap().events.len(), 1);
            store.close().await.unwrap();
        });
    }
}

/// What has the name of a lease holder's file, and is none, is neither waited for nor removed.
#[test]
fn special_file_with_the_name_of_a_holder_is_left() {
    for kind in ODD {
        in_time(kind, move || async move {
            let site = Site::new();
            let store = site.open().await;
            let session = site.session(&store).await;
            let path = beside(&site, "-holder-00ff");
            put(kind, &path);
            let lease = LeaseRequest::new("runner", site.effects.new_run_id());
            let run = site.text_commit(&session, "run").with_trigger(Trigger::BeginRun(lease));
            store.commit(run).await.unwrap();
            store.close().await.unwrap();
            assert!(fs::symlink_metadata(&path).is_ok(), "{kind}: it was removed");
        });
    }
}
