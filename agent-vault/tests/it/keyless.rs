//! Sessions of encrypted stores without a key, or with the key of another one, are named and removed; tenants without one are refused.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::Trigger;
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Title};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BlobQuery, PutBlob, ReadEvents, SessionQuery};
use agent_core::{
    Backend, Error, ErrorKind, MemoryStore, Result, SessionId, SessionStoreExt, Storage, TenantId,
    WorkspaceId,
};
use agent_vault::{KeyPlace, KeyQuery, KeyRing, StorePlace, Vault, WorkspaceSecrets};
use agent_workspace::WorkspaceManager;
use agent_workspace::erasure::{Eraser, Look, Subject, verify_erased};
use agent_workspace::secrets::Secret;

use crate::hooked::{Call, Hooked};
use crate::sealed::{SharedKeys, acme, ring};
use crate::support::{STORES, Site};

const WORD: &str = "treasure-4711";
const ALICE: &str = "alice-0815";

/// The place of the keys of the tenant, and its name.
async fn key_place(raw: &dyn Backend) -> (TenantId, StorePlace) {
    for tenant in raw.tenants(None).await.unwrap().items.into_iter().filter(Vault::is_of_keys) {
        let place = StorePlace::new(raw.tenant(&tenant).workspaces);
        if place.get("tenant/acme").await.unwrap().is_some() {
            return (tenant, place);
        }
    }
    panic!("the tenant has no keys")
}

/// All rows of the keys of the tenant, by their names.
async fn rows(place: &StorePlace) -> Vec<(String, String)> {
    let page = place.list(KeyQuery::new().with_limit(1000)).await.unwrap();
    let mut rows: Vec<_> = page.items.into_iter().map(|row| (row.name, row.text)).collect();
    rows.sort();
    rows
}

/// Loses the rows with such names, as a backup that is older than they are would.
async fn lose(raw: &dyn Backend, is_lost: impl Fn(&str) -> bool) {
    let (tenant, place) = key_place(raw).await;
    let all = rows(&place).await;
    raw.delete_tenant(&tenant).await.unwrap();
    put(raw, &tenant, all.into_iter().filter(|(name, _)| !is_lost(name))).await;
}

async fn put(raw: &dyn Backend, tenant: &TenantId, rows: impl Iterator<Item = (String, String)>) {
    let place = StorePlace::new(raw.tenant(tenant).workspaces);
    for (name, text) in rows {
        place.put_if_absent(&name, &text).await.unwrap();
    }
}

async fn opened(raw: &Arc<dyn Backend>) -> Arc<dyn Backend> {
    Arc::new(Vault::open(raw.clone(), ring()).await.unwrap())
}

/// A session of the person with a message, a title, a label, a blob and a run of another.
async fn said(storage: &Storage) -> Arc<SessionRecord> {
    let storage = storage.for_owner(&ALICE.parse().unwrap());
    let patch = Patch::new().with_title(Title::by_user(WORD)).with_label("topic", WORD);
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT).with_patch(&patch);
    let session = storage.sessions.create(new).await.unwrap();
    storage.sessions.blobs().put(PutBlob::of_bytes(session.id, WORD.repeat(100))).await.unwrap();
    let events = vec![NewEvent::user_message(WORD), NewEvent::agent_message(WORD)];
    storage.sessions.append(session.id, session.head, events).await.unwrap().session
}

/// How a session lost its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The row of its key is not there any more.
    LostRow,
    /// The row of its key is damaged.
    DamagedRow,
    /// It has the key of another session.
    OtherKey,
    /// Its key was dropped, and the session lives.
    Dropped,
    /// A program without the keys wrote it.
    Open,
    /// The same, and it is a fork of one.
    OpenFork,
}

const LOSSES: [Loss; 6] =
    [Loss::LostRow, Loss::DamagedRow, Loss::OtherKey, Loss::Dropped, Loss::Open, Loss::OpenFork];

/// Makes a session that does not open.
async fn unopened(raw: &Arc<dyn Backend>, loss: Loss) -> SessionId {
    let vault = Vault::open(raw.clone(), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let row = |id: SessionId| format!("session/acme/{id}");
    let session = said(&storage).await;
    let place = key_place(&**raw).await.1;
    match loss {
        Loss::LostRow => lose(&**raw, |name| name.contains(&session.id.to_string())).await,
        Loss::DamagedRow => {
            let text = place.get(&row(session.id)).await.unwrap();
            let Some(agent_vault::KeyRow::Present(text)) = text else { panic!("it has a key") };
            place.swap(&row(session.id), &text, &text[..text.len() - 4]).await.unwrap();
        }
        Loss::OtherKey => {
            lose(&**raw, |name| name.contains(&session.id.to_string())).await;
            // Made by a program that did not know of the session.
            let elsewhere = SharedKeys(raw.clone(), MemoryStore::new());
            let other = Vault::open(Arc::new(elsewhere), ring()).await.unwrap().tenant(&acme());
            other.sessions.create(NewSession::new(session.id, WorkspaceId::DEFAULT)).await.unwrap();
        }
        Loss::Dropped => assert!(vault.keys(&acme()).drop_session(session.id).await.unwrap()),
        Loss::Open => {
            let open = said(&raw.tenant(&acme())).await;
            return open.id;
        }
        Loss::OpenFork => {
            let open = raw.tenant(&acme());
            let of = said(&open).await;
            return open.sessions.fork(of.id, None).await.unwrap().id;
        }
    }
    session.id
}

fn is_unopened(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Denied | ErrorKind::Deleted)
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(300), work).await.expect("the test is stuck")
}

#[tokio::test]
async fn a_session_that_does_not_open_is_removed_on_request() {
    for (store, loss) in STORES.into_iter().flat_map(|store| LOSSES.map(|loss| (store, loss))) {
        within(async {
            let site = Site::new(store).await;
            let raw = &site.backends[0];
            let id = unopened(raw, loss).await;
            let storage = opened(&site.backends[1]).await.tenant(&acme());
            let error = storage.sessions.load(id).await.unwrap_err();
            assert!(is_unopened(&error), "{store} {loss:?}: {error}");
            let error = storage.sessions.trigger(id, Trigger::Archive).await.unwrap_err();
            assert!(is_unopened(&error), "{store} {loss:?}: {error}");
            // No new key comes in the place of a lost one.
            if loss != Loss::OtherKey {
                let again = NewSession::new(id, WorkspaceId::DEFAULT);
                assert!(is_unopened(&storage.sessions.create(again).await.unwrap_err()), "{store} {loss:?}");
                let put = PutBlob::of_bytes(id, WORD);
                assert!(storage.sessions.blobs().put(put).await.is_err(), "{store} {loss:?}");
                assert!(is_unopened(&storage.sessions.load(id).await.unwrap_err()), "{store} {loss:?}");
            }

            let (care, at) = (storage.sessions.maintenance(), storage.effects().now());
            for _ in 0..2 {
                let tombstone = care.delete_damaged(id, at, Reason::UserDeleted).await;
                let tombstone = tombstone.unwrap_or_else(|error| panic!("{store} {loss:?}: {error}"));
                assert_eq!(tombstone.status.state, SessionState::Deleted, "{store} {loss:?}");
                assert_eq!(tombstone.owner.as_ref().unwrap().as_str(), ALICE);
                assert!(!tombstone.to_json().contains(WORD), "{store} {loss:?}");
            }
            // Its events stay until the purge, and nobody writes them any more.
            assert!(storage.sessions.append(id, agent_core::Seq::new(3), vec![]).await.is_err());
            let raw = raw.tenant(&acme()).sessions;
            assert!(!raw.read(id, ReadEvents::first(1)).await.unwrap().events.is_empty());
            let erased = WorkspaceManager::new(storage.clone()).erase(id).now().await;
            let erased = erased.unwrap_or_else(|error| panic!("{store} {loss:?}: {error:?}"));
            assert!(erased.events > 0 && erased.needed_by.is_none(), "{store} {loss:?}: {erased:?}");
            assert!(raw.read(id, ReadEvents::first(1)).await.unwrap().events.is_empty());
            assert!(raw.blobs().list(BlobQuery::new(id)).await.unwrap().items.is_empty());
            let query = SessionQuery::new().with_states([SessionState::Deleted]);
            let listed = storage.sessions.list(query).await.unwrap();
            assert_eq!((listed.items.len(), listed.damaged.len()), (1, 0), "{store} {loss:?}");
            assert_eq!(raw.maintenance().check().await.unwrap(), [], "{store} {loss:?}");
            if loss == Loss::Open {
                assert_eq!(
                    site.places_with(WORD.as_bytes()).await,
                    Vec::<std::path::PathBuf>::new(),
                    "{store}"
                );
            }
        })
        .await;
    }
}

#[tokio::test]
async fn sessions_without_keys_are_named_by_a_verification() {
    for (store, loss) in STORES.into_iter().flat_map(|store| LOSSES.map(|loss| (store, loss))) {
        within(async {
            let site = Site::new(store).await;
            let id = unopened(&site.backends[0], loss).await;
            let storage = opened(&site.backends[1]).await.tenant(&acme());
            let found = agent_admin::verify::verify(&storage, |_| {}).await.unwrap();
            let named = found.findings.iter().any(|finding| finding.to_string().contains(&id.to_string()));
            assert!(named, "{store} {loss:?}: {:?}", found.findings);
            assert!(WorkspaceManager::new(storage.clone()).erase(id).await.unwrap().needed_by.is_none());
            let found = agent_admin::verify::verify(&storage, |_| {}).await.unwrap();
            let named = found.findings.iter().any(|finding| finding.to_string().contains(&id.to_string()));
            assert!(!named, "{store} {loss:?}: {:?}", found.findings);
        })
        .await;
    }
}

#[tokio::test]
async fn a_session_that_opens_is_deleted_by_a_commit_alone() {
    let site = Site::new("files").await;
    let storage = opened(&site.backends[0]).await.tenant(&acme());
    let session = said(&storage).await;
    let care = storage.sessions.maintenance();
    let error =
        care.delete_damaged(session.id, storage.effects().now(), Reason::UserDeleted).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    let nobody = storage.effects().new_session_id();
    let error = care.delete_damaged(nobody, storage.effects().now(), Reason::UserDeleted).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(storage.sessions.load(session.id).await.unwrap(), session);
}

/// The row of the tenant is wrapped by a root key that this process has not.
#[tokio::test]
async fn nothing_is_removed_with_another_root_key() {
    for store in STORES {
        for loss in LOSSES {
            within(async {
                let site = Site::new(store).await;
                let id = unopened(&site.backends[0], loss).await;
                let vault = Vault::open(site.backends[0].clone(), ring()).await.unwrap();
                let readable = said(&vault.tenant(&acme())).await;
                let next = KeyRing::from_bytes([9; 32]).with_older(ring());
                Vault::open(site.backends[0].clone(), next)
                    .await
                    .unwrap()
                    .keys(&acme())
                    .rotate()
                    .await
                    .unwrap();
                // The row of the root key is not replaced yet, so that the store opens.
                let storage = opened(&site.backends[1]).await.tenant(&acme());
                let (care, at) = (storage.sessions.maintenance(), storage.effects().now());
                let raw = site.backends[0].tenant(&acme()).sessions;
                for id in [id, readable.id] {
                    let before = raw.load(id).await.unwrap();
                    let error = care.delete_damaged(id, at, Reason::UserDeleted).await.unwrap_err();
                    assert_eq!(*error.kind(), ErrorKind::Denied, "{store} {loss:?}: {error}");
                    let error = WorkspaceManager::new(storage.clone()).erase(id).await.unwrap_err();
                    assert!(is_unopened(&error), "{store} {loss:?}: {error}");
                    let purge = agent_core::store::Purge::new(id, before.head);
                    let error = storage.sessions.purge(purge).await.unwrap_err();
                    assert_eq!(*error.kind(), ErrorKind::Denied, "{store} {loss:?}: {error}");
                    assert_eq!(raw.load(id).await.unwrap(), before, "{store} {loss:?}");
                }
                // Nor what was deleted before.
                let mine = vault.tenant(&acme());
                let gone = mine.sessions.trigger(readable.id, Trigger::Delete(Reason::UserDeleted));
                let gone = gone.await.unwrap().session;
                let purge = agent_core::store::Purge::new(gone.id, gone.head);
                let error = storage.sessions.purge(purge).await.unwrap_err();
                assert_eq!(*error.kind(), ErrorKind::Denied, "{store} {loss:?}: {error}");
                assert!(!raw.read(gone.id, ReadEvents::first(1)).await.unwrap().events.is_empty());
            })
            .await;
        }
    }
}

#[tokio::test]
async fn what_a_fork_reads_of_a_session_without_a_key_is_kept_until_the_fork_is_gone() {
    for store in STORES {
        within(async {
            let site = Site::new(store).await;
            let storage = opened(&site.backends[0]).await.tenant(&acme());
            let session = said(&storage).await;
            let mut fork = NewSession::fork(storage.effects().new_session_id(), &session);
            fork.created.owner = Some("bob".parse().unwrap());
            let fork = storage.sessions.create(fork).await.unwrap();
            let (tenant, place) = key_place(&*site.backends[0]).await;
            let before = rows(&place).await;
            lose(&*site.backends[0], |name| name.contains(&session.id.to_string())).await;
            let backend = opened(&site.backends[1]).await;
            let storage = backend.tenant(&acme());
            let manager = WorkspaceManager::new(storage.clone());
            let erased = manager.erase(session.id).await.unwrap();
            assert_eq!(erased.needed_by, Some(fork.id), "{store}");
            // The row, put back from a backup, opens what the fork reads.
            put(&*site.backends[0], &tenant, before.into_iter()).await;
            let again = opened(&site.backends[0]).await.tenant(&acme());
            let read = again.sessions.history(fork.id, ReadEvents::first(20)).await.unwrap();
            assert!(read.events.iter().any(|event| event.to_json().contains(WORD)), "{store}");
            // A fork without a key is removed like any other session.
            lose(&*site.backends[0], |name| name.contains(&fork.id.to_string())).await;
            let backend = opened(&site.backends[1]).await;
            let manager = WorkspaceManager::new(backend.tenant(&acme()));
            assert_eq!(manager.erase(fork.id).await.unwrap().needed_by, None, "{store}");
            assert_eq!(manager.erase(session.id).await.unwrap().needed_by, None, "{store}");
            let raw = site.backends[0].tenant(&acme()).sessions;
            for id in [session.id, fork.id] {
                assert!(raw.read(id, ReadEvents::first(1)).await.unwrap().events.is_empty(), "{store}");
            }
        })
        .await;
    }
}

/// Whose a session is can be read without its key.
#[tokio::test]
async fn an_erasure_takes_sessions_along_that_do_not_open() {
    for (store, loss) in STORES.into_iter().flat_map(|store| LOSSES.map(|loss| (store, loss))) {
        within(async {
            let site = Site::new(store).await;
            let id = unopened(&site.backends[0], loss).await;
            let backend = opened(&site.backends[1]).await;
            let eraser = Eraser::new(backend.clone(), acme(), Subject::Owner(ALICE.parse().unwrap()));
            let receipt = eraser.run().await.unwrap_or_else(|error| panic!("{store} {loss:?}: {error}"));
            eraser.settle().await.unwrap();
            assert!(
                receipt.sessions.contains(&id) && receipt.kept.is_empty(),
                "{store} {loss:?}: {receipt:?}"
            );
            let look = Look::new().with_words([WORD]).with_files([site.folder.path()]);
            let left = verify_erased(&*backend, &receipt, look).await.unwrap().left;
            assert_eq!(left, [], "{store} {loss:?}");
        })
        .await;
    }
}

/// What is stored of a tenant: its sessions and the rows of its keys.
async fn stored(raw: &dyn Backend, place: &StorePlace) -> (Vec<String>, Vec<(String, String)>) {
    let query = SessionQuery::new().with_hidden().with_states(SessionState::ALL.iter().copied());
    let listed = raw.tenant(&acme()).sessions.list(query).await.unwrap();
    (listed.items.iter().map(|session| format!("{session:?}")).collect(), rows(place).await)
}

async fn a_write(storage: &Storage, of: SessionId) -> Result<()> {
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    let created = storage.sessions.create(new).await.map(drop);
    let said = storage.sessions.append(of, agent_core::Seq::new(3), vec![NewEvent::user_message(WORD)]).await;
    let put = storage.sessions.blobs().put(PutBlob::of_bytes(storage.effects().new_session_id(), WORD)).await;
    let now = storage.effects().now();
    let id = storage.effects().new_workspace_id();
    let workspace = agent_core::model::Workspace::new(id, WORD, storage.effects().new_session_id(), now);
    let kept = storage.workspaces.put(workspace, agent_core::commit::Precondition::MustNotExist).await;
    for error in [created.clone(), said.map(drop), put, kept.map(drop)] {
        let error = error.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    }
    created
}

#[tokio::test]
async fn a_tenant_whose_row_of_keys_is_lost_is_refused_and_nothing_is_written() {
    for store in STORES {
        within(async {
            let site = Site::new(store).await;
            let raw = &site.backends[0];
            let session = said(&opened(raw).await.tenant(&acme())).await;
            let (tenant, place) = key_place(&**raw).await;
            let all = rows(&place).await;
            lose(&**raw, |name| name == "tenant/acme").await;
            let place = StorePlace::new(raw.tenant(&tenant).workspaces);
            let before = stored(&**raw, &place).await;
            let vault = Vault::open(site.backends[1].clone(), ring()).await.unwrap();
            let storage = vault.tenant(&acme());
            let mut errors = vec![a_write(&storage, session.id).await.unwrap_err()];
            errors.push(storage.sessions.load(session.id).await.unwrap_err());
            errors.push(storage.sessions.list(SessionQuery::new()).await.unwrap_err());
            errors.push(storage.sessions.list(SessionQuery::new().with_label("a", "b")).await.unwrap_err());
            errors.push(vault.rotate().await.unwrap_err());
            let care = storage.sessions.maintenance();
            let at = storage.effects().now();
            errors.push(care.delete_damaged(session.id, at, Reason::UserDeleted).await.unwrap_err());
            for error in errors {
                assert_eq!(*error.kind(), ErrorKind::Corrupt, "{store}: {error}");
                let text = error.to_string();
                let says =
                    ["key row tenant/acme is missing", "restore it from a backup, or delete the tenant"];
                assert!(says.iter().all(|says| text.contains(says)), "{store}: {text}");
            }
            assert_eq!(stored(&**raw, &place).await, before, "{store}: nothing is written");
            // The row, put back, opens everything, old and new.
            put(&**raw, &tenant, all.into_iter()).await;
            assert_eq!(storage.sessions.load(session.id).await.unwrap(), session, "{store}");
            said(&storage).await;
            // Or the tenant is deleted, and its name used again.
            lose(&**raw, |name| name == "tenant/acme").await;
            let vault = Vault::open(raw.clone(), ring()).await.unwrap();
            vault.delete_tenant(&acme()).await.unwrap();
            said(&vault.tenant(&acme())).await;
        })
        .await;
    }
}

/// A process that knew the row says the same, and secrets need it as well as sessions.
#[tokio::test]
async fn a_row_of_keys_that_is_lost_meanwhile_is_missed() {
    let raw: Arc<dyn Backend> = Arc::new(MemoryStore::new());
    let vault = Vault::open(raw.clone(), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let session = said(&storage).await;
    lose(&*raw, |name| name == "tenant/acme").await;
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    let error = storage.sessions.create(new).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::Corrupt && error.to_string().contains("tenant/acme"), "{error}");
    let error = storage.sessions.load(session.id).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::Corrupt && error.to_string().contains("tenant/acme"), "{error}");

    let raw: Arc<dyn Backend> = Arc::new(MemoryStore::new());
    let vault = Vault::open(raw.clone(), ring()).await.unwrap();
    let secrets = WorkspaceSecrets::new(
        vault.keys(&acme()),
        &vault.tenant(&"other".parse().unwrap()),
        "user:host".parse().unwrap(),
    );
    let (name, value) = ("github".parse().unwrap(), Secret::new("ghp_0123456789").unwrap());
    secrets.set(WorkspaceId::DEFAULT, &name, &value, None).await.unwrap();
    lose(&*raw, |name| name == "tenant/acme").await;
    let vault = Vault::open(raw.clone(), ring()).await.unwrap();
    let error = said_or(&vault.tenant(&acme())).await.unwrap_err();
    assert!(*error.kind() == ErrorKind::Corrupt && error.to_string().contains("secret/acme/"), "{error}");
}

async fn said_or(storage: &Storage) -> Result<Arc<SessionRecord>> {
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    storage.sessions.create(new).await
}

/// A row of a session that was never created is no reason to refuse a tenant: whoever put it ended, beside the tenant's deletion.
#[tokio::test]
async fn a_row_of_no_session_does_not_close_its_tenant() {
    let raw: Arc<dyn Backend> = Arc::new(MemoryStore::new());
    let vault = Vault::open(raw.clone(), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let first = said(&storage).await;
    storage.sessions.blobs().put(PutBlob::of_bytes(storage.effects().new_session_id(), WORD)).await.unwrap();
    lose(&*raw, |name| name == "tenant/acme" || name.contains(&first.id.to_string())).await;
    let storage = opened(&raw).await.tenant(&acme());
    said(&storage).await;
}

/// Another process deletes the tenant while a session is created with the keys that it had.
#[tokio::test]
async fn a_session_that_is_created_beside_the_deletion_of_its_tenant_is_removed() {
    let raw: Arc<dyn Backend> = Arc::new(MemoryStore::new());
    let other = Vault::open(raw.clone(), ring()).await.unwrap();
    said(&other.tenant(&acme())).await;
    let hooked = Hooked::new(raw.clone(), |call| *call == Call::Commit(acme()), async move {
        other.delete_tenant(&acme()).await.unwrap();
    });
    let storage = Vault::open(Arc::new(hooked.clone()), ring()).await.unwrap().tenant(&acme());
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    let id = new.id;
    let error = within(storage.sessions.create(new)).await.unwrap_err();
    assert!(hooked.has_come());
    assert_eq!(*error.kind(), ErrorKind::Deleted, "{error}");
    let left = raw.tenant(&acme()).sessions;
    assert_eq!(left.load(id).await.unwrap().status.state, SessionState::Deleted);
    assert!(left.read(id, ReadEvents::first(1)).await.unwrap().events.is_empty());
    let listed = opened(&raw).await.tenant(&acme()).sessions.list(SessionQuery::new()).await.unwrap();
    assert_eq!((listed.items.len(), listed.damaged.len()), (0, 0));
}

/// What is written between the deletion of a tenant's data and that of its keys goes with them.
#[tokio::test]
async fn what_is_written_beside_the_deletion_of_a_tenant_goes_with_its_keys() {
    let raw: Arc<dyn Backend> = Arc::new(MemoryStore::new());
    let other = Vault::open(raw.clone(), ring()).await.unwrap();
    said(&other.tenant(&acme())).await;
    let hooked = Hooked::new(
        raw.clone(),
        |call| matches!(call, Call::DeleteTenant(tenant) if Vault::is_of_keys(tenant)),
        async move {
            let storage = other.tenant(&acme());
            said(&storage).await;
            let id = storage.effects().new_workspace_id();
            let (main, now) = (storage.effects().new_session_id(), storage.effects().now());
            let workspace = agent_core::model::Workspace::new(id, WORD, main, now);
            storage.workspaces.put(workspace, agent_core::commit::Precondition::MustNotExist).await.unwrap();
        },
    );
    let vault = Vault::open(Arc::new(hooked.clone()), ring()).await.unwrap();
    let deleted = within(vault.delete_tenant(&acme())).await.unwrap();
    assert!(hooked.has_come());
    assert_eq!((deleted.sessions, deleted.workspaces), (2, 1));
    assert_eq!(vault.tenants(None).await.unwrap().items, []);
    let query = SessionQuery::new().with_states(SessionState::ALL.iter().copied());
    assert_eq!(raw.tenant(&acme()).sessions.list(query).await.unwrap().items.len(), 0);
}

/// A process that dies between the creation and its check leaves a session without a key: it is named, and can be removed.
#[tokio::test]
async fn a_session_of_a_process_that_died_beside_the_deletion_of_its_tenant_is_named_and_removed() {
    for store in STORES {
        within(async {
            let site = Site::new(store).await;
            let raw = &site.backends[0];
            let other = Vault::open(site.backends[1].clone(), ring()).await.unwrap();
            said(&other.tenant(&acme())).await;
            let hooked = Hooked::new(raw.clone(), |call| *call == Call::Commit(acme()), async move {
                other.delete_tenant(&acme()).await.unwrap();
            });
            let hooked = hooked.losing_the_reply();
            let storage = Vault::open(Arc::new(hooked), ring()).await.unwrap().tenant(&acme());
            let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
            let id = new.id;
            storage.sessions.create(new).await.unwrap_err();
            let storage = opened(&site.backends[1]).await.tenant(&acme());
            let listed = storage.sessions.list(SessionQuery::new()).await.unwrap();
            let [damaged] = &listed.damaged[..] else { panic!("{store}: {listed:?}") };
            assert!(damaged.to_string().contains(&id.to_string()), "{store}: {damaged}");
            assert!(damaged.to_string().contains("has no key"), "{store}: {damaged}");
            let manager = WorkspaceManager::new(storage.clone());
            assert_eq!(manager.erase(id).await.unwrap().needed_by, None, "{store}");
            let listed = storage.sessions.list(SessionQuery::new()).await.unwrap();
            assert_eq!((listed.items.len(), listed.damaged.len()), (0, 0), "{store}");
            said(&storage).await;
        })
        .await;
    }
}
