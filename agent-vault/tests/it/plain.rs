//! Sizes of pages and hashes of configurations are those of the opened form.

use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{ContentHash, ReadEvents};
use agent_core::{Backend, ErrorKind, MemoryStore, Storage, WorkspaceId};
use agent_vault::Vault;

use crate::sealed::{acme, ring};

/// The numbers of the events on each page of a session, whose messages have 100 to 2,000 bytes.
async fn pages(storage: &Storage, read: impl Fn() -> ReadEvents) -> Vec<Vec<u64>> {
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    let session = storage.sessions.create(new).await.unwrap();
    let events = (0..40_usize).map(|n| NewEvent::user_message("x".repeat(100 + n * 523 % 1900))).collect();
    storage.sessions.append(session.id, session.head, events).await.unwrap();
    let (mut found, mut next) = (Vec::new(), Some(read()));
    while let Some(read) = next {
        let page = storage.sessions.read(session.id, read).await.unwrap();
        found.push(page.events.iter().map(|event| event.seq.get()).collect());
        next = page.next;
    }
    found
}

#[tokio::test]
async fn pages_of_events_have_the_sizes_that_they_have_without_keys() {
    let plain: Arc<dyn Backend> = Arc::new(MemoryStore::new());
    let vault = Vault::open(Arc::new(MemoryStore::new()), ring()).await.unwrap();
    let mut several = 0;
    for max_bytes in [1, 300, 1_000, 2_500, 5_000, 20_000, 1 << 20] {
        for limit in [1, 3, 100] {
            for is_newest in [false, true] {
                let read = || {
                    let read = if is_newest { ReadEvents::last(limit) } else { ReadEvents::first(limit) };
                    read.with_max_bytes(max_bytes)
                };
                let expected = pages(&plain.tenant(&acme()), read).await;
                assert_eq!(
                    pages(&vault.tenant(&acme()), read).await,
                    expected,
                    "{limit} events of {max_bytes} bytes, newest: {is_newest}"
                );
                several += usize::from(expected.iter().any(|page| (2..20).contains(&page.len())));
            }
        }
    }
    assert!(several > 10, "{several}: the pages have several events and end before the last");
}

#[tokio::test]
async fn a_configuration_is_compared_by_the_hash_of_its_text() {
    let plain = Arc::new(MemoryStore::new());
    let vault = Vault::open(plain.clone(), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let (effects, texts) = (storage.effects(), ["model = 1", "model = 2", "model = 3"]);
    let workspace =
        Workspace::new(effects.new_workspace_id(), "notes", effects.new_session_id(), effects.now());
    let id = storage.workspaces.put(workspace, Precondition::MustNotExist).await.unwrap().id;
    let save =
        async |text: &str, expect| storage.workspaces.save_config(id, Some(text.to_owned()), expect).await;
    save(texts[0], Precondition::MustNotExist).await.unwrap();
    save(texts[1], Precondition::Matches(ContentHash::of(texts[0]))).await.unwrap();
    let sealed = Backend::tenant(&*plain, &acme()).workspaces.load_config(id).await.unwrap().unwrap();
    for text in [texts[0], &sealed] {
        let error = save(texts[2], Precondition::Matches(ContentHash::of(text))).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    }
    assert_eq!(storage.workspaces.load_config(id).await.unwrap().as_deref(), Some(texts[1]));
    storage.workspaces.save_config(id, None, Precondition::Matches(ContentHash::of(texts[1]))).await.unwrap();
    assert_eq!(storage.workspaces.load_config(id).await.unwrap(), None);
}
