//! Tenants in several databases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_admin::copy::StoreCopy;
use agent_admin::verify;
use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, Shards};
use agent_core::{Backend, TenantId, WorkspaceId};

use crate::Database;

/// A tenant moves to another database: it is copied, checked, and then found there; its sessions go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_moves_to_another_database() {
    let (from, to) = (Database::new().await, Database::new().await);
    let stores: [Arc<dyn Backend>; 2] = [Arc::new(from.open().await), Arc::new(to.open().await)];
    let (acme, effects): (TenantId, _) = ("acme".parse().unwrap(), Effects::default());
    let place = Arc::new(AtomicUsize::new(0));
    let (of_acme, name) = (place.clone(), acme.clone());
    let route = move |tenant: &TenantId| if *tenant == name { of_acme.load(Ordering::SeqCst) } else { 0 };
    let backend = Shards::new(stores.to_vec(), route).unwrap();
    let id = effects.new_session_id();
    let append = async |text: &str| {
        let sessions = backend.tenant(&acme).sessions;
        let head = sessions.load(id).await.unwrap().head;
        let commit = Commit::seal(&effects, id, head).with_event(NewEvent::user_message(text));
        sessions.commit(commit).await.unwrap()
    };
    backend.tenant(&acme).sessions.create(NewSession::new(id, WorkspaceId::DEFAULT)).await.unwrap();
    append("before").await;

    let [old, new] = &stores;
    let report = StoreCopy::new(old.tenant(&acme), new.tenant(&acme)).run().await.unwrap();
    assert!(report.is_whole(), "{report:?}");
    let found = verify::verify(&new.tenant(&acme), |_| ()).await.unwrap();
    assert!(found.is_sound(), "{found:?}");
    place.store(1, Ordering::SeqCst);
    append("after").await;
    old.delete_tenant(&acme).await.unwrap();

    let events = backend.tenant(&acme).sessions.read(id, ReadEvents::first(10)).await.unwrap().events;
    let texts: Vec<_> = events.iter().skip(1).map(|event| event.payload.get().to_owned()).collect();
    assert!(texts.len() == 2 && texts[0].contains("before") && texts[1].contains("after"), "{texts:?}");
    assert_eq!(backend.tenants(None).await.unwrap().items, [acme]);
}
