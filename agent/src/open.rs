//! Opens stores by their addresses, with the backends of the enabled features.

use std::sync::Arc;

use agent_core::store::Registry;
use agent_core::{Backend, Result, Storage, TenantId};

/// Returns the registry of all backends of this crate: `memory:`, and those of the enabled features.
///
/// The addresses of the others are refused with `Unsupported`, which names the feature to enable. Backends of the host
/// can be [registered](Registry::register) too.
///
/// ```
/// let registry = agent::registry();
/// assert!(registry.syntaxes().any(|syntax| syntax == "memory:"));
/// ```
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    #[cfg(feature = "fs")]
    agent_storage_fs::FsConfig::register(&mut registry);
    #[cfg(not(feature = "fs"))]
    missing(&mut registry, "files", "the file store", "fs");
    #[cfg(feature = "sqlite")]
    agent_storage_sqlite::SqliteConfig::register(&mut registry);
    #[cfg(not(feature = "sqlite"))]
    missing(&mut registry, "sqlite", "SQLite", "sqlite");
    #[cfg(feature = "s3")]
    agent_storage_s3::S3Config::register(&mut registry);
    #[cfg(not(feature = "s3"))]
    for (scheme, name, feature) in
        [("s3", "S3", "s3"), ("gs", "Google Cloud Storage", "gcs"), ("az", "Azure Blob Storage", "azure")]
    {
        missing(&mut registry, scheme, name, feature);
    }
    #[cfg(feature = "postgres")]
    agent_storage_postgres::PostgresConfig::register(&mut registry);
    #[cfg(not(feature = "postgres"))]
    for scheme in ["postgres", "postgresql"] {
        missing(&mut registry, scheme, "PostgreSQL", "postgres");
    }
    registry
}

#[cfg(not(all(feature = "fs", feature = "sqlite", feature = "s3", feature = "postgres")))]
fn missing(registry: &mut Registry, scheme: &str, name: &str, feature: &str) {
    let remedy = format!(
        "this program was built without {name}; build it with the feature `{feature}` of the crate `agent`"
    );
    registry.register_missing(scheme, remedy);
}

/// Opens the store at an address, for the tenant `default`: `files:PATH`, `sqlite:PATH`, `s3://BUCKET/PREFIX`,
/// `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, `postgres://USER@HOST/DATABASE` or `memory:`.
///
/// A store that does not exist is created, unless the address says `?create=false`. In PostgreSQL it is created only if the
/// address says `?migrate=true`.
/// The documentation of each backend lists its options. Each `memory:` is a new, empty store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use agent::{AgentBuilder, Config, EchoProvider};
/// # let url = "memory:";
/// let agent = AgentBuilder::new()
///     .with_llm(EchoProvider::new())
///     .with_storage(agent::open_storage(url).await?)
///     .build()?;
/// let chat = agent.open(&"laptop".parse()?).await?;
/// assert_eq!(chat.prompt("Hello").await?.finish().await?.text, "Hello");
/// agent.close().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// `Unsupported` if the feature of the backend is not enabled (the text names it); `InvalidInput` for a malformed
/// address, an unknown backend or an unknown option (the text lists the known ones). Errors of the backend, unchanged:
/// `NotFound`, `Denied`, `Corrupt`, `Unavailable`.
pub async fn open_storage(url: &str) -> Result<Storage> {
    Ok(open_backend(url).await?.tenant(&TenantId::default()))
}

/// Opens the store at an address for all of its tenants, for servers and schedulers.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent::Result<()> {
/// use agent::TenantId;
///
/// let backend = agent::open_backend("memory:").await?;
/// let storage = backend.tenant(&TenantId::derived("alice@example.com"));
/// assert_eq!(storage.bindings.resolve(&"laptop".parse()?).await?, None);
/// backend.close().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// As for [`open_storage`].
pub async fn open_backend(url: &str) -> Result<Arc<dyn Backend>> {
    #[cfg(feature = "vault")]
    if let Some(vault) = agent_vault::VaultConfig::from_url(url, |url| registry().parse(url))? {
        return agent_core::store::BackendConfig::open(&vault).await;
    }
    registry().parse(url)?.open().await
}
