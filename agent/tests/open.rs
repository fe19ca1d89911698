//! Stores opened by their addresses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use agent::{ErrorKind, TenantId};

/// The addresses of the enabled features open a store; those of the others name the feature.
#[tokio::test]
async fn an_address_opens_its_store_or_names_its_feature() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    let cases = [
        (format!("files:{place}/files"), "fs", cfg!(feature = "fs")),
        (format!("sqlite:{place}/agent.db"), "sqlite", cfg!(feature = "sqlite")),
    ];
    for (url, feature, is_enabled) in cases {
        let opened = agent::open_storage(&url).await;
        if is_enabled {
            let storage = opened.unwrap();
            let device = "laptop".parse().unwrap();
            assert_eq!(storage.bindings.resolve(&device).await.unwrap(), None);
            storage.close().await.unwrap();
            continue;
        }
        let error = opened.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(
            error.to_string().contains(&format!("the feature `{feature}` of the crate `agent`")),
            "{error}"
        );
    }
    for (url, name, feature, is_enabled) in [
        ("s3://bucket/prefix", "S3", "s3", cfg!(feature = "s3")),
        ("postgres://user@host/database", "PostgreSQL", "postgres", cfg!(feature = "postgres")),
        ("postgresql://user@host/database", "PostgreSQL", "postgres", cfg!(feature = "postgres")),
    ] {
        let parsed = agent::registry().parse(url);
        assert_eq!(parsed.is_ok(), is_enabled, "{url}");
        if let Err(error) = parsed {
            assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
            let text = error.to_string();
            assert!(
                text.contains(&format!("built without {name}"))
                    && text.contains(&format!("the feature `{feature}`")),
                "{text}"
            );
        }
    }
}

/// A backend has many tenants, which a closed one refuses; an unknown kind of store is refused with the known ones.
#[tokio::test]
async fn a_backend_is_opened_for_all_tenants() {
    let backend = agent::open_backend("memory:").await.unwrap();
    let tenant: TenantId = "acme".parse().unwrap();
    let storage = backend.tenant(&tenant);
    storage
        .bindings
        .bind(
            &"laptop".parse().unwrap(),
            agent::WorkspaceId::DEFAULT,
            agent::core::commit::Precondition::None,
        )
        .await
        .unwrap();
    assert_eq!(backend.tenants(None).await.unwrap().items, std::slice::from_ref(&tenant));
    assert_eq!(backend.delete_tenant(&tenant).await.unwrap().bindings, 1);
    backend.close().await.unwrap();
    let error = backend.tenants(None).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);

    let error = agent::open_storage("tape:7").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("supported: ") && error.to_string().contains("memory:"), "{error}");
    let is_known = agent::registry().syntaxes().any(|form| form.starts_with("sqlite:"));
    assert_eq!(is_known, cfg!(feature = "sqlite"));
}

/// Compiled, not called: a handler of a server and a spawned task may await these.
#[expect(dead_code, reason = "compiling it is the test")]
fn futures_can_be_sent_to_another_thread() {
    fn send(_: impl Future + Send) {}
    send(agent::open_storage(""));
    send(agent::open_backend(""));
}
