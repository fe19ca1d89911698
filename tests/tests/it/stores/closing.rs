//! Closed agents and storages leave nothing open, on every kind of store.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::store::{SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, Storage, WriteOutcome};
use agent_runtime::{Config, EchoProvider};
use agent_tests::{Site, each_store};

use crate::stores::shared::{agent, new_session};

const STUCK: Duration = Duration::from_secs(60);

/// An agent that is closed ends its runs and its stores, for all holders of their clones; what was stored is there.
async fn closed_agent_refuses_calls_and_keeps_data(site: Site) {
    let storage = site.open().await;
    let agent = agent(&storage, EchoProvider::new(), Config::default());
    let chat = agent.open(&"laptop".parse().unwrap()).await.unwrap();
    chat.prompt("hello").await.unwrap().finish().await.unwrap();
    let head = chat.refresh().await.unwrap().head;
    let waiting = tokio::spawn({
        let (storage, id) = (storage.clone(), chat.id());
        async move { storage.sessions.changed(id, head).await }
    });
    tokio::time::timeout(STUCK, agent.close()).await.unwrap().unwrap();
    agent.close().await.unwrap();
    let late = vec![NewEvent::user_message("late")];
    let errors = [
        storage.sessions.append(chat.id(), head, late).await.unwrap_err(),
        storage.sessions.list(SessionQuery::new()).await.unwrap_err(),
        storage.workspaces.list(WorkspaceQuery::new()).await.unwrap_err(),
        storage.bindings.resolve(&"laptop".parse().unwrap()).await.unwrap_err(),
        chat.prompt("late").await.unwrap_err(),
        tokio::time::timeout(STUCK, waiting).await.unwrap().unwrap().unwrap_err(),
    ];
    for error in errors {
        let claim = (error.kind(), error.write_outcome());
        assert_eq!(claim, (&ErrorKind::Unavailable, WriteOutcome::NotApplied), "{}: {error}", site.name);
    }
    if site.name != "memory" {
        assert_eq!(site.open().await.sessions.load(chat.id()).await.unwrap().head, head, "{}", site.name);
    }
}

each_store!(closed_agent_refuses_calls_and_keeps_data and files, flavor = "multi_thread");

/// A storage of stores of three backends closes each of them.
#[tokio::test]
async fn a_mixed_storage_closes_all_its_backends() {
    let (mut sites, mut parts) = (Vec::new(), Vec::new());
    for name in ["memory", "files", "sqlite"] {
        let site = Site::new(name).await;
        let storage = site.open().await;
        sites.push(site);
        new_session(&storage, &Effects::default()).await;
        parts.push(storage);
    }
    let [a, b, c] = &parts[..] else { unreachable!() };
    let mixed = Storage::new(a.workspaces.clone(), b.sessions.store().clone(), c.bindings.clone());
    mixed.close().await.unwrap();
    for part in &parts {
        let error = part.sessions.list(SessionQuery::new()).await.unwrap_err();
        assert!(error.to_string().ends_with("was closed; open it again"), "{error}");
    }
}
