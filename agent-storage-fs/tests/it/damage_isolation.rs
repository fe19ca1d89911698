//! Damage affects no sound object beside it: tenants, workspaces, sessions.

use agent_admin::verify::verify;
use std::fs;
use std::path::Path;

use crate::support::{append_text, folder_of, hasty, session};
use agent_admin::verify::FindingKind;
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{Purge, SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, Storage, TenantId,
    WorkspaceId, WorkspaceStore,
};
use agent_storage_fs::FsStore;

/// Puts a folder with something in it in the place of what is there.
fn folder_at(path: &Path) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else {
        let _ = fs::remove_file(path);
    }
    fs::create_dir(path).unwrap();
    fs::write(path.join("mine"), "mine").unwrap();
}

/// Puts a file in the place of a folder.
fn file_at(path: &Path) {
    let _ = fs::remove_dir_all(path);
    fs::write(path, "mine").unwrap();
}

/// Whatever is wrong with one tenant, the list names it and all others, and its own calls say what is wrong.
#[tokio::test]
async fn a_damaged_tenant_hides_no_other() {
    for damage in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let (store, effects) = (hasty(folder.path()).await, Effects::default());
        let names: Vec<TenantId> = ["default", "one", "two"].map(|name| name.parse().unwrap()).to_vec();
        for tenant in &names {
            let store = store.for_tenant(tenant);
            store
                .bind(&"laptop".parse().unwrap(), WorkspaceId::DEFAULT, Precondition::MustNotExist)
                .await
                .unwrap();
            session(&store, &effects).await;
        }
        store.close().await.unwrap();
        let one = folder.path().join("tenants/one");
        match damage {
            0 => folder_at(&one.join("bindings.toml")),
            1 => {
                fs::remove_file(one.join("bindings.toml")).unwrap();
                file_at(&one.join("workspaces"));
            }
            2 => file_at(&one),
            3 => folder_at(&folder.path().join("bindings.toml")),
            _ => file_at(&one.join("workspaces/default")),
        }
        let store = hasty(folder.path()).await;
        let page = Backend::tenants(&store, None).await.unwrap();
        assert_eq!(page.items, names, "{damage}");
        let bad = TenantId::default();
        let bad = if damage == 3 { &bad } else { &names[1] };
        for tenant in &names {
            let storage = Backend::tenant(&store, tenant);
            match verify(&storage, |_| {}).await {
                Ok(found) => assert_eq!(
                    found.findings.iter().any(|found| found.kind == FindingKind::Damaged),
                    tenant == bad,
                    "{damage} {tenant}: {found:?}"
                ),
                Err(error) => {
                    assert_eq!((tenant, error.kind()), (bad, &ErrorKind::Corrupt), "{damage}: {error}");
                }
            }
        }
        session(&store.for_tenant(&names[2]), &effects).await;
    }
}

/// What stands for all tenants' folder and is none is named beside the tenant that is there.
#[tokio::test]
async fn file_in_place_of_tenants_hides_no_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (hasty(folder.path()).await, Effects::default());
    session(&store, &effects).await;
    file_at(&folder.path().join("tenants"));
    let page = Backend::tenants(&store, None).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (1, 1));
    assert_eq!(Backend::tenants(&store, page.items.last().cloned()).await.unwrap().damaged, []);
}

/// One workspace that is damaged, in whatever way, is named by lists, and sessions and workspaces are made
/// and found beside it.
#[tokio::test]
async fn a_damaged_workspace_blocks_no_other() {
    for damage in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let (store, effects) = (hasty(folder.path()).await, Effects::default());
        let [good, bad] = [effects.new_workspace_id(), effects.new_workspace_id()];
        let mut ids: Vec<SessionId> = Vec::new();
        for id in [good, bad] {
            let record = Workspace::new(id, "home", effects.new_session_id(), effects.now());
            store.put(record, Precondition::MustNotExist).await.unwrap();
            let new = NewSession::new(effects.new_session_id(), id);
            ids.push(store.sessions(&effects).create(new).await.unwrap().id);
        }
        store.close().await.unwrap();
        let path = folder.path().join("workspaces").join(bad.to_string());
        match damage {
            0 => file_at(&path),
            1 => file_at(&path.join("sessions")),
            2 => folder_at(&path.join("workspace.toml")),
            _ => folder_at(&path.join("deleted")),
        }
        let store = hasty(folder.path()).await;
        let page = WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap();
        let damaged = usize::from(damage != 1);
        assert_eq!((page.items.len(), page.damaged.len()), (2 - damaged, damaged), "{damage}: {page:?}");
        let page = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
        let damaged = usize::from(damage < 2);
        assert_eq!((page.items.len(), page.damaged.len()), (2 - damaged, damaged), "{damage}: {page:?}");
        // Made anew, and looked for, and not there.
        let new = NewSession::new(effects.new_session_id(), good);
        let made = store.sessions(&effects).create(new).await.unwrap();
        append_text(&store, &effects, made.id, made.head, "hello").await;
        let error = SessionStore::load(&store, effects.new_session_id()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{damage}: {error}");
        append_text(&store, &effects, ids[0], Seq::new(1), "hello").await;
        let record =
            Workspace::new(effects.new_workspace_id(), "new", effects.new_session_id(), effects.now());
        store.put(record, Precondition::MustNotExist).await.unwrap();
        let rebuilt = store.maintenance().rebuild().await.unwrap();
        assert_eq!(rebuilt.damaged.len(), usize::from(damage < 2), "{damage}: {rebuilt:?}");
        if damage < 2 {
            // What was in there is not said to be absent.
            let error = SessionStore::load(&store, ids[1]).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
        }
    }
}

/// A damaged session refuses the purges of what it may have been forked from, and no others.
#[tokio::test]
async fn damaged_session_blocks_only_related_purges() {
    let folder = tempfile::tempdir().unwrap();
    let (store, effects) = (hasty(folder.path()).await, Effects::default());
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = session(&store, &effects).await.id;
        let seen = append_text(&store, &effects, id, Seq::new(1), "first").await;
        append_text(&store, &effects, id, seen, "second").await;
        ids.push(id);
    }
    let fork = store.sessions(&effects).fork(ids[0], None).await.unwrap().id;
    let seen = append_text(&store, &effects, fork, Seq::new(4), "of the fork").await;
    append_text(&store, &effects, fork, seen, "last").await;
    // The fork, and a session of nobody, are damaged behind their beginning.
    for id in [fork, ids[1]] {
        let log = folder_of(folder.path(), id).join("events.jsonl");
        let text = fs::read_to_string(&log).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let middle = lines.len() - 2;
        lines[middle] = lines[middle].replacen("text", "tex!", 1);
        fs::write(&log, lines.join("\n") + "\n").unwrap();
        let _ = fs::remove_file(log.with_file_name("session.json"));
    }
    store.close().await.unwrap();
    let store: FsStore = hasty(folder.path()).await;
    for id in [fork, ids[1]] {
        assert_eq!(*SessionStore::load(&store, id).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let purge = async |id| {
        let deleted =
            store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
        store.purge(Purge::new(id, deleted.last)).await
    };
    // Nothing was forked from this one; of the first that is not certain, since its fork cannot be read.
    assert_eq!(purge(ids[2]).await.unwrap().events, 4);
    let error = purge(ids[0]).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains(&fork.to_string()), "{error}");
    assert!(!error.to_string().contains(&ids[1].to_string()), "{error}");
    let storage = Storage::from(store.clone());
    agent_runtime::WorkspaceManager::new(storage.with_effects(effects.clone()))
        .delete_session(fork)
        .await
        .unwrap();
    let head = SessionStore::load(&store, ids[0]).await.unwrap().head;
    assert_eq!(store.purge(Purge::new(ids[0], head)).await.unwrap().events, 4);
}
