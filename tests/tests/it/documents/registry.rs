//! From addresses to stores.

use agent_core::clock::Effects;
use agent_core::session::NewSession;
use agent_core::store::Registry;
use agent_core::{ErrorKind, Storage, TenantId, WorkspaceId};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteConfig;

fn registry() -> Registry {
    let mut registry = Registry::new();
    FsConfig::register(&mut registry);
    SqliteConfig::register(&mut registry);
    registry
}

/// Each kind of address opens its store, and the same address the same store.
#[tokio::test]
async fn an_address_opens_its_store() {
    let (folder, effects, registry) = (tempfile::tempdir().unwrap(), Effects::default(), registry());
    // With what an address has to escape.
    let place = folder.path().join("a b?%41").display().to_string();
    let place = place.replace('%', "%25").replace(' ', "%20").replace('?', "%3F");
    for url in [
        format!("files:{place}/f?sync=off&transcripts=false&open_sessions=4&lock_wait_ms=100"),
        format!("sqlite:{place}.db?sync=off"),
    ] {
        let session = {
            let storage = registry.open(&url).await.unwrap();
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            storage.sessions.create(new).await.unwrap()
        };
        let again = registry.open(&url).await.unwrap();
        assert_eq!(again.sessions.load(session.id).await.unwrap(), session);
        // Another tenant of it.
        let tenants = registry.parse(&url).unwrap().open().await.unwrap();
        let other: Storage = tenants.tenant(&"acme".parse::<TenantId>().unwrap());
        assert_eq!(*other.sessions.load(session.id).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(registry.parse(&url).unwrap().to_string().contains("a b?%41"), "for a person");
    }
    assert!(folder.path().join("a b?%41/f/workspaces").is_dir());
    let stores = (registry.open("memory:").await.unwrap(), registry.open("memory:").await.unwrap());
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = stores.0.sessions.create(new).await.unwrap();
    assert!(stores.1.sessions.load(session.id).await.is_err(), "each is one of its own");
}

/// What is wrong with an address is said with what there is; what may be a secret in it is not repeated.
#[test]
fn wrong_address_lists_the_known_schemes() {
    let registry = registry();
    let wrong = [
        (
            "tape:reel?key=SECRET",
            "unknown kind of store \"tape\"; supported: files:PATH, memory:, sqlite:PATH",
        ),
        ("files:x?synch=SECRET", "unknown option \"synch\"; supported: sync=full|off, lock_wait_ms=NUMBER"),
        ("files:x?sync=fast", "invalid value \"fast\" for option sync; supported: sync=full|off"),
        ("files:x?open_sessions=0", "invalid value \"0\" for option open_sessions"),
        ("files:x?app=Aptove", "names a path and a program"),
        ("files:?app=../x", "application's name"),
        ("files:%00", "contains NUL"),
        ("sqlite:", "names no file"),
        ("sqlite:x?speed=SECRET", "busy_timeout_ms"),
        ("memory:x", "write memory:"),
        ("SECRET", "begins with its kind and a colon; supported: files:PATH"),
        ("", "begins with its kind"),
    ];
    for (url, expected) in wrong {
        let error = registry.parse(url).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{url}");
        assert!(
            error.to_string().contains(expected) && !error.to_string().contains("SECRET"),
            "{url}: {error}"
        );
    }
    assert_eq!(registry.syntaxes().collect::<Vec<_>>(), ["files:PATH", "memory:", "sqlite:PATH"]);
}

/// The platform's folder has to be asked for by name; an empty path is no folder.
#[test]
fn address_without_a_path_names_its_app() {
    let of = |url| FsConfig::from_url(url).unwrap().root().to_owned();
    assert!(FsConfig::from_url("files:").is_err());
    assert_eq!(of("files:?app=Aptove"), FsConfig::platform("Aptove").unwrap().root());
    assert_eq!(of("files:///srv/x"), std::path::Path::new("/srv/x"));
}

/// A host may put another in the place of one that is known.
#[tokio::test]
async fn a_scheme_can_be_replaced() {
    let mut registry = registry();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    registry.register("memory", "memory:, for a while", move |_| Ok(FsConfig::new(&root)));
    let address = registry.parse("memory:").unwrap();
    assert_eq!(address.to_string(), folder.path().display().to_string());
    assert!(format!("{registry:?}").contains("for a while"));
}
