//! Objects of other programs among those of a store: marks of folders, hidden files. They are ignored, and named by a check.

use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{BindingQuery, Damaged, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, ErrorKind, SessionStore, SessionStoreExt, TenantId, WorkspaceId, WorkspaceStore,
};
use s3_simulator::Simulator;

use crate::backend::config;

const NAMES: [&str; 6] =
    ["", ".DS_Store", "desktop.ini", "9", "81553255926290448384.bak", ".hidden/99999999999999999999"];

/// Whatever object of another program lies in whatever folder, everything is read and written as without it, in a store that
/// has known the sessions and in a new one, and a check names it.
#[tokio::test(start_paused = true)]
async fn keys_of_other_programs_are_ignored_and_named() {
    for name in NAMES {
        let simulator = Simulator::new(1);
        let effects = Effects::default();
        let store = config(&simulator, "a").open().await.unwrap();
        let id = effects.new_session_id();
        let workspace = Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now());
        store.put(workspace, Precondition::MustNotExist).await.unwrap();
        store.bind(&"laptop".parse().unwrap(), WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
        let mut session =
            store.sessions(&effects).create(NewSession::new(id, WorkspaceId::DEFAULT)).await.unwrap();
        for n in 0..12 {
            let events = vec![NewEvent::user_message(format!("message {n}"))];
            session = store.sessions(&effects).append(id, session.head, events).await.unwrap().session;
        }
        assert_eq!(store.maintenance().check().await.unwrap(), []);

        // Every folder below that of the tenant.
        let mut folders: Vec<String> = Vec::new();
        for key in simulator.keys().into_iter().filter(|key| key.starts_with("agents/v7/default/")) {
            for (at, _) in key.match_indices('/') {
                folders.push(key[..=at].to_owned());
            }
        }
        folders.retain(|folder| folder.starts_with("agents/v7/default/"));
        folders.sort();
        folders.dedup();
        for folder in &folders {
            simulator.put_object(&format!("{folder}{name}"), Vec::new());
        }
        simulator.put_object("agents/generations/.DS_Store", Vec::new());
        simulator.put_object("agents/work/v7/.DS_Store", Vec::new());

        for store in [store, config(&simulator, "b").open().await.unwrap()] {
            let loaded = SessionStore::load(&store, id).await.unwrap();
            assert_eq!(loaded.head, session.head, "{name:?}");
            for read in [
                ReadEvents::first(50),
                ReadEvents::last(3),
                ReadEvents::first(2).with_after(agent_core::Seq::new(4)),
            ] {
                let page = store.read(id, read).await.unwrap();
                assert!(!page.events.is_empty() && page.damaged.is_empty(), "{name:?}: {page:?}");
            }
            let events = vec![NewEvent::user_message("more")];
            session = store.sessions(&effects).append(id, session.head, events).await.unwrap().session;
            let page =
                SessionStore::list(&store, SessionQuery::new().with_hidden().with_total()).await.unwrap();
            assert_eq!((page.items.len(), page.damaged), (1, vec![]), "{name:?}");
            let page = WorkspaceStore::list(&store, WorkspaceQuery::new().with_total()).await.unwrap();
            assert_eq!((page.items.len(), page.damaged), (1, vec![]), "{name:?}");
            let page = BindingStore::list(&store, BindingQuery::new()).await.unwrap();
            assert_eq!((page.items.len(), page.damaged), (1, vec![]), "{name:?}");
            assert_eq!(
                Backend::tenants(&store, None).await.unwrap().items,
                [TenantId::default()],
                "{name:?}"
            );
            Backend::busy_tenants(&store, effects.now(), None).await.unwrap();
            assert_eq!(store.maintenance().rebuild().await.unwrap().damaged, [], "{name:?}");
            let damaged = store.maintenance().check().await.unwrap();
            for folder in &folders {
                // The client leaves out the slash at the end of a mark.
                let object = format!("object {}", format!("{folder}{name}").trim_end_matches('/'));
                // The mark of the folder that is listed is left out by the client.
                let is_root = folder == "agents/v7/default/" && name.is_empty();
                assert!(is_root || damaged.iter().any(|it| it.object == object), "{object}: {damaged:?}");
            }
            let is_foreign = |it: &Damaged| it.is_foreign && it.object.starts_with("object ");
            assert!(damaged.iter().all(is_foreign), "{name:?}: {damaged:?}");
        }

        let store = config(&simulator, "c").open().await.unwrap();
        let deleted =
            store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
        store.purge(Purge::new(id, deleted.last)).await.unwrap();
        assert_eq!(store.read(id, ReadEvents::first(50)).await.unwrap().events, []);
        for folder in &folders {
            simulator.put_object(&format!("{folder}{name}"), Vec::new());
        }
        let counted = store.delete_tenant(&TenantId::default()).await.unwrap();
        assert_eq!((counted.workspaces, counted.bindings), (1, 1), "{name:?}");
        let error = SessionStore::load(&store, id).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{name:?}: {error}");
    }
}

/// A fork that is refused because its parent is deleted leaves its id free, in a store that knows of the deletion, and in one
/// that does not; also after the parent was purged.
#[tokio::test(start_paused = true)]
async fn refused_fork_leaves_its_id_free() {
    for (is_known, is_purged) in [(true, false), (false, false), (true, true), (false, true)] {
        let simulator = Simulator::new(1);
        let effects = Effects::default();
        let store = config(&simulator, "a").open().await.unwrap();
        let other = config(&simulator, "b").open().await.unwrap();
        let parent = store
            .sessions(&effects)
            .create(NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT))
            .await
            .unwrap();
        assert_eq!(SessionStore::load(&other, parent.id).await.unwrap().head, parent.head);
        let by = if is_known { &store } else { &other };
        let deleted =
            store.sessions(&effects).trigger(parent.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
        let id = effects.new_session_id();
        let fork = agent_core::commit::Commit::create(&effects, NewSession::fork(id, &parent));
        for _ in 0..2 {
            let error = by.commit(fork.clone()).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.write_outcome()),
                (&ErrorKind::Deleted, agent_core::WriteOutcome::NotApplied)
            );
            assert!(error.to_string().contains(&parent.id.to_string()), "{error}");
        }
        if is_purged {
            store.purge(Purge::new(parent.id, deleted.last)).await.unwrap();
        }
        by.sessions(&effects).create(NewSession::new(id, WorkspaceId::DEFAULT)).await.unwrap();
    }
}

/// The client of the bucket reads no list with a key that has an empty part. The error names the key, and with it gone all is as before.
#[tokio::test(start_paused = true)]
async fn a_key_that_no_list_passes_over_is_named() {
    let simulator = Simulator::new(1);
    let effects = Effects::default();
    let store = config(&simulator, "a").open().await.unwrap();
    let id = effects.new_session_id();
    store.sessions(&effects).create(NewSession::new(id, WorkspaceId::DEFAULT)).await.unwrap();
    let listed = simulator.keys().into_iter().find(|key| key.contains("/idx/")).unwrap();
    let (folder, _) = listed.rsplit_once('/').unwrap();
    let key = format!("{folder}//0");
    simulator.put_object(&key, Vec::new());
    let store = config(&simulator, "b").open().await.unwrap();
    let error = SessionStore::list(&store, SessionQuery::new()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(&key) && error.to_string().ends_with("delete that object"), "{error}");
    simulator.remove_object(&key);
    assert_eq!(SessionStore::list(&store, SessionQuery::new()).await.unwrap().items.len(), 1);
}
