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

/// A store of which somebody has removed a part is refused by the name of that part, and nothing is created in its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_one_of_its_parts_is_refused_by_name() {
    let scene = Scene::new();
    scene.config_of_owner().with_partitions(4).open().await.unwrap().close().await.unwrap();
    let parts = "SELECT format('table %s', relname) FROM pg_class WHERE relnamespace = '@schema'::regnamespace AND relkind IN ('r', 'p') \
        UNION SELECT format('policy %s of table %s', polname, relname) FROM pg_policy JOIN pg_class c ON c.oid = polrelid \
        WHERE relnamespace = '@schema'::regnamespace \
        UNION SELECT format('function %s', proname) FROM pg_proc WHERE pronamespace = '@schema'::regnamespace \
        AND proname <> 'readable' ORDER BY 1";
    let mut conn = scene.connect().await;
    let parts = parts.replace("@schema", &scene.schema);
    let parts: Vec<String> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(parts)).fetch_all(&mut conn).await.unwrap();
    let count = |kind: &str| parts.iter().filter(|part| part.starts_with(kind)).count();
    assert_eq!((count("table"), count("policy"), count("function")), (11 + 4, 29, 6));
    for part in &parts {
        let words: Vec<_> = part.split(' ').collect();
        // Moved, as what depends on it stays.
        let (away, back) = match words[..] {
            ["policy", policy, "of", "table", table] => (
                format!("ALTER POLICY {policy} ON @.{table} RENAME TO away"),
                format!("ALTER POLICY away ON @.{table} RENAME TO {policy}"),
            ),
            [kind, name] => (
                format!("ALTER {kind} @.{name} RENAME TO away"),
                format!("ALTER {kind} @.away RENAME TO {name}"),
            ),
            _ => panic!("{part}"),
        };
        scene.run(&away).await;
        for config in [scene.config(), scene.config_of_owner()] {
            let error = config.open().await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{part}: {error}");
            let text = format!(": {part} of the store is missing; restore it from a backup");
            assert!(error.to_string().contains(&text), "{part}: {error}");
        }
        scene.run(&back).await;
    }
    scene.config().open().await.unwrap();
    // Without all of its partitions it has one that is missing.
    scene.run("DROP TABLE @.events_0, @.events_1, @.events_2, @.events_3").await;
    let error = scene.config().open().await.unwrap_err();
    assert!(error.to_string().contains("table events_0 of the store is missing"), "{error}");
    scene.run("DROP TABLE @.events CASCADE").await;
    let error = scene.config_of_owner().open().await.unwrap_err();
    assert!(error.to_string().contains("table events of the store is missing"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_eight_that_create_the_tables_one_does() {
    let scene = Scene::new();
    let openings: Vec<_> = (0..8).map(|_| tokio::spawn(scene.config_of_owner().open())).collect();
    let mut created = 0;
    for opening in openings {
        let store = opening.await.unwrap().unwrap();
        created += usize::from(store.has_created_tables());
        assert!(store.list(SessionQuery::new()).await.unwrap().items.is_empty());
    }
    assert_eq!((scene.number("SELECT count(*) FROM @.meta").await, created), (1, 1));
    assert!(!scene.config_of_owner().open().await.unwrap().has_created_tables());
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
