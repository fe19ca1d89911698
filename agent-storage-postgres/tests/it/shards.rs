//! Tenants in two databases.

use std::sync::Arc;

use agent_core::store::Shards;
use agent_core::{Backend, ErrorKind, TenantId};

use crate::Scene;
use crate::support::OWNER;

#[tokio::test(flavor = "multi_thread")]
async fn tenants_lie_in_two_databases() {
    let scene = Scene::new();
    let mut stores: Vec<Arc<dyn Backend>> = Vec::new();
    for database in ["shard0", "shard1"] {
        scene.run(&format!("CREATE DATABASE {database} OWNER {OWNER}")).await;
        let address = scene.address(OWNER);
        let (server, _) = address.rsplit_once('/').unwrap();
        let config = scene.config_at(&format!("{server}/{database}")).with_migrate(true);
        stores.push(Arc::new(config.open().await.unwrap()));
    }
    let route = |tenant: &TenantId| usize::from(tenant.as_str().ends_with('1'));
    let backend = Shards::new(stores, route).unwrap();
    let names: Vec<TenantId> = ["a0", "b1", "c0", "d1"].map(|name| name.parse().unwrap()).into();
    for name in &names {
        let new = agent_core::session::NewSession::new(
            scene.effects.new_session_id(),
            agent_core::WorkspaceId::DEFAULT,
        );
        backend.tenant(name).sessions.create(new).await.unwrap();
    }
    assert_eq!(backend.tenants(None).await.unwrap().items, names);
    assert_eq!(backend.shards()[1].tenants(None).await.unwrap().items, [names[1].clone(), names[3].clone()]);
    assert_eq!(backend.delete_tenant(&names[1]).await.unwrap().sessions, 1);
    assert_eq!(backend.tenants(Some(names[0].clone())).await.unwrap().items, names[2..]);
    backend.close().await.unwrap();
    assert_eq!(*backend.tenants(None).await.unwrap_err().kind(), ErrorKind::Unavailable);
}
