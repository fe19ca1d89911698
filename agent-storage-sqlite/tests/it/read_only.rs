//! Files without write permission: they are read, and the error of a write names the reason and the remedy.

#![cfg(unix)]

use agent_admin::verify::verify;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::support::{MARK, Site, Worker};
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::event::NewEvent;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{
    BindingStore, ErrorKind, SessionStore, SessionStoreExt, Storage, WorkspaceId, WriteOutcome,
};
use agent_storage_sqlite::SqliteConfig;

fn set_mode(site: &Site, mode: u32) {
    fs::set_permissions(site.path(), Permissions::from_mode(mode)).unwrap();
}

fn files(site: &Site) -> Vec<String> {
    let names = fs::read_dir(site.folder.path()).unwrap();
    let mut names: Vec<_> = names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All that reads works on a read-only file and leaves nothing beside it; all that writes is `Denied`, with the path and the
/// remedy.
#[tokio::test]
async fn read_only_file_allows_reads_and_denies_writes() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let session = site.append_text(&store, &session, "hello").await;
    store.close().await.unwrap();
    set_mode(&site, 0o444);
    let bytes = fs::read(site.path()).unwrap();

    let store = site.config().with_create(false).open().await.unwrap();
    for _ in 0..3 {
        assert_eq!(SessionStore::load(&store, session.id).await.unwrap(), session);
        let page = store.read(session.id, ReadEvents::first(10)).await.unwrap();
        assert_eq!(page.events.len() as u64, session.head.get());
        let listed = SessionStore::list(&store, SessionQuery::new().with_total()).await.unwrap();
        assert_eq!((listed.items.len(), listed.total), (1, Some(1)));
        assert_eq!(store.resolve(&"laptop".parse().unwrap()).await.unwrap(), None);
    }
    let found = verify(&Storage::from(store.clone()), |_| ()).await.unwrap();
    assert_eq!((found.sessions, found.events), (1, 2), "{found:?}");
    let device = "laptop".parse().unwrap();
    for refused in [
        store.commit(site.text_commit(&session, "no")).await.map(drop).unwrap_err(),
        store.bind(&device, WorkspaceId::DEFAULT, Precondition::MustNotExist).await.map(drop).unwrap_err(),
        store.maintenance().rebuild().await.map(drop).unwrap_err(),
        store.sessions(&site.effects).fork(session.id, None).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
        assert_eq!(refused.write_outcome(), WriteOutcome::NotApplied);
        let text = refused.to_string();
        assert!(text.contains(site.path().to_str().unwrap()), "{text}");
        assert!(text.contains("read-only") && text.contains("copy"), "{text}");
    }
    let copy = site.folder.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    fs::remove_file(&copy).unwrap();
    store.close().await.unwrap();
    assert_eq!(files(&site), ["agent.db"]);
    assert!(fs::read(site.path()).unwrap() == bytes);

    set_mode(&site, 0o600);
    let store = site.open().await;
    site.append_text(&store, &session, "yes").await;
}

/// One that is written to by somebody who may is not shown as it was: the reader is told to open it again.
#[tokio::test]
async fn change_under_a_read_only_handle_is_reported() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    store.close().await.unwrap();
    set_mode(&site, 0o444);
    let reader = site.open().await;
    assert_eq!(SessionStore::load(&reader, session.id).await.unwrap(), session);
    set_mode(&site, 0o600);
    let writer = site.open().await;
    let session = site.append_text(&writer, &session, "changed").await;
    let stale = SessionStore::load(&reader, session.id).await.unwrap_err();
    assert_eq!(*stale.kind(), ErrorKind::Unavailable, "{stale}");
    assert!(stale.to_string().contains("open it again"), "{stale}");
    // With its log beside it, it is read as it is now.
    set_mode(&site, 0o444);
    let again = site.open().await;
    assert_eq!(SessionStore::load(&again, session.id).await.unwrap(), session);
    set_mode(&site, 0o600);
    let session = site.append_text(&writer, &session, "once more").await;
    assert_eq!(SessionStore::load(&again, session.id).await.unwrap(), session);
}

/// A log without its index cannot be read without writing beside it; what to do is said.
#[tokio::test]
async fn wal_without_its_index_is_refused_with_a_remedy() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let from = |suffix: &str| format!("{}{suffix}", site.path().display());
    let crashed = Site::new();
    let to = |suffix: &str| format!("{}{suffix}", crashed.path().display());
    for suffix in ["", "-wal"] {
        fs::copy(from(suffix), to(suffix)).unwrap();
    }
    set_mode(&crashed, 0o444);
    let error = crashed.config().open().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
    let text = error.to_string();
    assert!(text.contains("-wal") && text.contains("copy"), "{text}");
    assert_eq!(files(&crashed), ["agent.db", "agent.db-wal"], "nothing was made");
    set_mode(&crashed, 0o600);
    assert_eq!(SessionStore::load(&crashed.open().await, session.id).await.unwrap(), session);
}

/// What would be made again elsewhere is named as damage where nothing can be written.
#[tokio::test]
async fn damage_in_a_read_only_file_is_named() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    store.close().await.unwrap();
    site.raw().execute_batch("UPDATE sessions SET record = 'x', summary = 'x'").unwrap();
    set_mode(&site, 0o444);
    let store = site.open().await;
    let error = SessionStore::load(&store, session.id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    let found = verify(&Storage::from(store.clone()), |_| ()).await.unwrap();
    assert!(found.findings.iter().any(|it| it.object.contains(&session.id.to_string())), "{found:?}");
}

/// Not a test by itself: what another user does, where the environment says so.
#[tokio::test]
async fn reader() {
    let Ok(path) = std::env::var("READER_PATH") else { return };
    let seen = async {
        let store = SqliteConfig::new(path).with_create(false).open().await?;
        let listed = SessionStore::list(&store, SessionQuery::new()).await?;
        let id = listed.items[0].id;
        let page = store.read(id, ReadEvents::first(10)).await?;
        let session = SessionStore::load(&store, id).await?;
        let messages = vec![NewEvent::user_message("no")];
        let refused =
            store.sessions(&Effects::default()).append(id, session.head, messages).await.unwrap_err();
        Ok::<_, agent_core::Error>(format!("{} events, {}", page.events.len(), refused.kind().name()))
    };
    println!("{MARK}{}", seen.await.unwrap_or_else(|error| format!("{error}")));
}

/// Another user, who may not write to the file, reads it, while its owner has it open and after.
#[tokio::test]
async fn other_user_reads_what_the_owner_writes() {
    let site = Site::new();
    if fs::metadata("/proc/self").map_or(1, |own| own.uid()) != 0 {
        eprintln!("NOT TESTED: only root can start a process as another user");
        return;
    }
    let place = site.folder.path();
    fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
    let store = site.open().await;
    let session = site.session(&store).await;
    site.append_text(&store, &session, "hello").await;
    for name in files(&site) {
        fs::set_permissions(place.join(name), Permissions::from_mode(0o644)).unwrap();
    }
    let orders = [("READER_PATH", site.path().display().to_string())];
    let seen = || Worker::start_as(65_534, place, "read_only::reader", &orders).answer();
    assert_eq!(seen().as_deref(), Some("2 events, denied"), "while it is open");
    store.close().await.unwrap();
    assert_eq!(seen().as_deref(), Some("2 events, denied"), "when it is closed");
    assert_eq!(files(&site), ["agent.db", "worker"]);
}
