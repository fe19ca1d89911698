//! Copies of the file: their side files, several copies at once, and the remains of one that was killed.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::support::{MARK, Site, Worker};
use agent_core::{ErrorKind, SessionStore};
use agent_storage_sqlite::SqliteStore;
use futures::future::join_all;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether it is what a killed copy leaves, as the documentation says: NAME.<16 hexadecimal digits>.part, and what SQLite
/// puts beside that.
fn is_part(name: &str, of: &str) -> bool {
    let rest = name.strip_prefix(of).and_then(|rest| rest.strip_prefix('.'));
    let Some((digits, end)) = rest.and_then(|rest| rest.split_once('.')) else { return false };
    digits.len() == 16
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && matches!(end, "part" | "part-journal")
}

/// Whatever has a name like that of the copy belongs to somebody else, and stays as it is.
#[tokio::test]
async fn copy_overwrites_no_other_file() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let folder = site.folder.path().join("copies");
    fs::create_dir(&folder).unwrap();
    let to = folder.join("copy.db");
    let precious = ["copy.db.part", "copy.db-journal", "copy.db.0123456789abcdef.part", "copy.part"];
    for name in precious {
        fs::write(folder.join(name), name).unwrap();
    }
    store.backup(&to).await.unwrap();
    let error = store.backup(&to).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    for name in precious {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), name);
    }
    assert_eq!(names(&folder).len(), precious.len() + 1);
    for name in precious {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let copy = SqliteStore::open(&to).await.unwrap();
    assert_eq!(SessionStore::load(&copy, session.id).await.unwrap(), session);
    // A link that leads nowhere is somebody's, too.
    #[cfg(unix)]
    {
        let link = folder.join("link.db");
        std::os::unix::fs::symlink(folder.join("nowhere"), &link).unwrap();
        let error = store.backup(&link).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}

/// Of many copies to one name at once exactly one is made; the others are told that the name is taken.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_copies_to_one_name_succeeds() {
    for round in 0..10 {
        let site = Site::new();
        // Two of them with the same random numbers.
        let stores = [
            site.config().open().await.unwrap(),
            site.config().with_effects(site.effects.clone()).open().await.unwrap(),
        ];
        let session = site.session(&stores[0]).await;
        let folder = site.folder.path().join("copies");
        fs::create_dir(&folder).unwrap();
        let to = folder.join("copy.db");
        let copies = (0..8).map(|n| {
            let (store, to) = (stores[n % 2].clone(), to.clone());
            tokio::spawn(async move { store.backup(to).await })
        });
        let mut made = 0;
        for done in join_all(copies).await {
            match done.unwrap() {
                Ok(()) => made += 1,
                Err(error) => {
                    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{round}: {error}");
                    assert!(error.to_string().contains("copy.db exists"), "{round}: {error}");
                }
            }
        }
        assert_eq!((made, names(&folder)), (1, vec!["copy.db".to_owned()]), "{round}");
        let copy = SqliteStore::open(&to).await.unwrap();
        assert_eq!(SessionStore::load(&copy, session.id).await.unwrap(), session);
    }
}

/// Not a test by itself: another process, which makes copies until it is killed.
#[tokio::test]
async fn worker() {
    let Ok(path) = std::env::var("WORKER_PATH") else { return };
    let folder = std::env::var("WORKER_ORDER").unwrap();
    let store = SqliteStore::open(path).await.unwrap();
    for n in 0.. {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{MARK}{n}").and_then(|()| out.flush()).unwrap();
        drop(out);
        let done = store.backup(Path::new(&folder).join("copy.db")).await;
        done.unwrap();
        fs::remove_file(Path::new(&folder).join("copy.db")).unwrap();
    }
}

/// What a copy that is killed leaves has a name that says so, never that of the copy, and is in nobody's way.
#[tokio::test]
async fn killed_copy_leaves_a_recognizable_part_file() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    site.append_text(&store, &session, "x".repeat(3 << 20)).await;
    let folder = site.folder.path().join("copies");
    fs::create_dir(&folder).unwrap();
    let path = site.path().to_str().unwrap().to_owned();
    let orders = [("WORKER_PATH", path), ("WORKER_ORDER", folder.to_str().unwrap().to_owned())];
    let mut parts = 0;
    for round in 0..20 {
        let mut worker = Worker::start("backup::worker", &orders);
        worker.answer().expect("it works");
        tokio::time::sleep(std::time::Duration::from_micros(site.effects.random_u64() % 40_000)).await;
        worker.kill();
        for name in names(&folder) {
            if name == "copy.db" {
                // If the kill came between the two names of the finished copy, the error names the remedy.
                let copy = match SqliteStore::open(folder.join(&name)).await {
                    Err(error) if error.to_string().contains(".part of a backup that was killed") => {
                        let part = names(&folder).into_iter().find(|name| is_part(name, "copy.db")).unwrap();
                        fs::remove_file(folder.join(part)).unwrap();
                        SqliteStore::open(folder.join(&name)).await.unwrap()
                    }
                    opened => opened.unwrap(),
                };
                assert_eq!(SessionStore::load(&copy, session.id).await.unwrap().head, session.head.next());
                copy.close().await.unwrap();
            } else {
                assert!(is_part(&name, "copy.db"), "round {round}: {name}");
                parts += 1;
            }
            if (name == "copy.db" || round % 2 == 0) && folder.join(&name).exists() {
                fs::remove_file(folder.join(name)).unwrap();
            }
        }
        store.backup(folder.join("copy.db")).await.unwrap();
        fs::remove_file(folder.join("copy.db")).unwrap();
    }
    assert!(parts > 0, "no kill was in the middle of a copy");
}
