//! Opening: tables that are missing, of another format, or created by several at once.

use agent_core::ErrorKind;
use agent_core::store::SessionQuery;
use agent_core::{Backend, SessionStore, TenantId};
use agent_storage_postgres::PostgresConfig;

use crate::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_created_only_if_that_is_wanted() {
    let scene = Scene::new();
    let config = || scene.config_of_owner().with_migrate(false);
    let error = config().open().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("migrate=true"), "{error}");
    scene.migrate().await;
    config().open().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_formats_are_refused_by_number() {
    let scene = Scene::new();
    scene.open().await;
    for format in [0, 2] {
        scene.run(&format!("UPDATE @.meta SET format = {format}")).await;
        let error = scene.config().open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(&format!("format {format}")), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_eight_that_create_the_tables_one_does() {
    let scene = Scene::new();
    let openings: Vec<_> = (0..8).map(|_| tokio::spawn(scene.config_of_owner().open())).collect();
    for opening in openings {
        let store = opening.await.unwrap().unwrap();
        assert!(store.list(SessionQuery::new()).await.unwrap().items.is_empty());
    }
    assert_eq!(scene.number("SELECT count(*) FROM @.meta").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_unavailable() {
    // No server listens on the port 1.
    let config = PostgresConfig::from_url("postgres://nobody:secret@127.0.0.1:1/nothing").unwrap();
    assert!(!format!("{config:?} {config}").contains("secret"));
    let error = config.open().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_refuses_calls() {
    let scene = Scene::new();
    let store = scene.open().await;
    let other = store.for_tenant(&"acme".parse::<TenantId>().unwrap());
    store.close().await.unwrap();
    let error = other.tenants(None).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);
    // The server sees the end of a connection shortly after.
    let connections = format!(
        "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation \
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{}'",
        scene.schema
    );
    assert_eq!(scene.number(&connections).await, 0, "a transaction is open");
}
