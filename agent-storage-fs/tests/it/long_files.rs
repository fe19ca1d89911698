//! Files that are far longer than any that the store writes.

use std::fs;

use crate::support::{folder_of, hasty, watched};
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{BindingQuery, SessionQuery};
use agent_core::{
    BindingStore, DeviceId, Epoch, Error, Seq, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore,
};

/// Any file of a store may be as long as the disk allows: each call names it at once, with the number of bytes that it may
/// have, or does without it.
#[tokio::test]
async fn file_of_20_gb_is_named_unread() {
    const LENGTH: u64 = 20_000_000_000;
    const MOST: usize = 2 << 20;
    let names = [
        ("bindings.changes", true),
        ("bindings.toml", true),
        ("config.toml", true),
        ("index/changes", false),
        ("workspaces/default/workspace.toml", true),
        ("workspaces/default/config.toml", true),
        ("workspaces/default/accessed", false),
        ("workspaces/default/session.md", false),
        ("session.json", false),
        ("lease", false),
        ("tombstone.json", true),
        ("pointer", false),
    ];
    let laptop: DeviceId = "laptop".parse().unwrap();
    for (name, is_named) in names {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::default();
        let id = {
            let store = hasty(folder.path()).await;
            let id = effects.new_session_id();
            let workspace = Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now());
            store.put(workspace, Precondition::MustNotExist).await.unwrap();
            let new = NewSession::new(id, WorkspaceId::DEFAULT);
            store.sessions(&effects).create(new).await.unwrap();
            store.bind(&laptop, WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
            store.close().await.unwrap();
            id
        };
        let session = folder_of(folder.path(), id);
        let path = match name {
            "session.json" | "lease" | "tombstone.json" => session.join(name),
            "pointer" => {
                let text = id.to_string();
                folder.path().join("index/sessions").join(&text[text.len() - 2..]).join(&text)
            }
            _ => folder.path().join(name),
        };
        let file = fs::File::options().write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(LENGTH).unwrap();
        let (store, spy) = watched(folder.path()).await;
        let mut messages = Vec::new();
        let mut note = |error: Option<Error>| messages.extend(error.map(|error| error.to_string()));
        note(store.resolve(&laptop).await.err());
        note(BindingStore::list(&store, BindingQuery::new()).await.err());
        note(store.bind(&"phone".parse().unwrap(), WorkspaceId::DEFAULT, Precondition::None).await.err());
        note(store.load_global_config().await.err());
        note(WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.err());
        note(store.load_config(WorkspaceId::DEFAULT).await.err());
        note(store.touch(WorkspaceId::DEFAULT, effects.now()).await.err());
        note(SessionStore::load(&store, id).await.err());
        note(store.leases().status(id, Epoch::new(1)).await.err());
        note(store.sessions(&effects).append(id, Seq::new(1), vec![NewEvent::user_message("x")]).await.err());
        note(SessionStore::list(&store, SessionQuery::new()).await.err());
        note(store.transcript_edits(WorkspaceId::DEFAULT).await.err());
        note(store.maintenance().rebuild().await.err());
        let read: usize = spy
            .take()
            .iter()
            .filter(|call| call.path == path && call.name == "read")
            .map(|call| call.bytes)
            .sum();
        assert!(read <= MOST, "{name}: {read} bytes were read");
        let is_bounded = |messages: &String| {
            messages.contains(&path.display().to_string()) && messages.contains("at most ")
        };
        assert_eq!(!messages.is_empty() && messages.iter().all(is_bounded), is_named, "{name}: {messages:?}");
    }
}
