//! From addresses to stores.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

#[cfg(not(feature = "s3"))]
use agent_core::ErrorKind;
use agent_core::store::{Registry, StoreAddress};
use agent_core::{Storage, TenantId, Tenants};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteConfig;

/// Where a store is: checked, and not opened yet.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    address: Arc<dyn StoreAddress>,
    /// The same, but it is not made if it is not there.
    existing: Arc<dyn StoreAddress>,
    kind: Kind,
}

/// What commands need to know of some kinds.
#[derive(Clone, Debug)]
enum Kind {
    /// Files in this folder.
    Files(PathBuf),
    /// A database file.
    Sqlite(SqliteConfig),
    Other,
}

/// How much of a file of SQLite each connection keeps in memory during a copy, which comes to each page once or twice.
const COPY_CACHE_KIB: u32 = 1024;

/// The kinds of stores that this program knows.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::new();
    FsConfig::register(&mut registry);
    SqliteConfig::register(&mut registry);
    register_s3(&mut registry);
    registry
}

#[cfg(feature = "s3")]
fn register_s3(registry: &mut Registry) {
    agent_storage_s3::S3Config::register(registry);
}

/// Says what is missing.
#[cfg(not(feature = "s3"))]
fn register_s3(registry: &mut Registry) {
    registry.register("s3", "s3://BUCKET/PREFIX", |_| -> agent_core::Result<FsConfig> {
        let text = "this chat was built without S3; build it with `--features agent-cli/s3`";
        Err(agent_core::Error::new(ErrorKind::Unsupported, text))
    });
}

/// Checks an address; for the command line.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    checked(text, &registry())
}

/// Checks an address of a store that is copied, or copied to.
pub(crate) fn copy_address(text: &str) -> Result<Address, String> {
    let mut registry = registry();
    registry.register("sqlite", "sqlite:PATH", |url| {
        let config = SqliteConfig::from_url(url)?;
        // What was asked for is asked for.
        let asked = url.split_once('?').is_some_and(|(_, options)| options.contains("cache_kib="));
        Ok(if asked { config } else { config.with_cache_kib(COPY_CACHE_KIB) })
    });
    checked(text, &registry)
}

fn checked(text: &str, registry: &Registry) -> Result<Address, String> {
    let url = match text {
        "memory" => "memory:",
        "fs" | "files" => "files:",
        url => url,
    };
    let parsed = |url: &str| registry.address(url).map_err(|error| error.to_string());
    let address = parsed(url)?;
    // A store in memory is made by whoever opens it, and what the address says itself counts.
    let existing = match url.split_once('?') {
        _ if url == "memory:" => address.clone(),
        Some((_, options)) if options.split('&').any(|option| option.starts_with("create=")) => {
            address.clone()
        }
        Some(_) => parsed(&format!("{url}&create=false"))?,
        None => parsed(&format!("{url}?create=false"))?,
    };
    let kind = if let Ok(config) = FsConfig::from_url(url) {
        Kind::Files(config.root().to_owned())
    } else if let Ok(config) = SqliteConfig::from_url(url) {
        Kind::Sqlite(config)
    } else {
        Kind::Other
    };
    Ok(Address { address, existing, kind })
}

impl Address {
    /// Files as configured.
    pub(crate) fn files(config: FsConfig) -> Self {
        let kind = Kind::Files(config.root().to_owned());
        let existing = Arc::new(config.clone().with_create(false));
        Self { address: Arc::new(config), existing, kind }
    }

    /// Opens it for a tenant.
    pub(crate) async fn open(&self, tenant: Option<&TenantId>) -> agent_core::Result<Storage> {
        Ok(self.tenants().await?.storage(tenant.unwrap_or(&TenantId::default())))
    }

    /// Opens it for all of its tenants, if it is there; makes nothing.
    pub(crate) async fn existing(&self) -> agent_core::Result<Arc<dyn Tenants>> {
        self.existing.open().await
    }

    /// The folder, if it is files.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Files(folder) => Some(folder),
            _ => None,
        }
    }

    /// The database file, if it is one.
    pub(crate) fn database(&self) -> Option<&SqliteConfig> {
        match &self.kind {
            Kind::Sqlite(config) => Some(config),
            _ => None,
        }
    }

    /// Whether one of the two lies in the other, by whatever names.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Sqlite(one), Kind::Sqlite(other)) => real(one.path()) == real(other.path()),
            (one, other) => {
                let place = |kind: &Kind| match kind {
                    Kind::Files(folder) => Some(real(folder)),
                    Kind::Sqlite(config) => Some(real(config.path())),
                    Kind::Other => None,
                };
                let (Some(a), Some(b)) = (place(one), place(other)) else { return false };
                let holds =
                    |kind: &Kind, a: &Path, b: &Path| matches!(kind, Kind::Files(_)) && b.starts_with(a);
                holds(one, &a, &b) || holds(other, &b, &a)
            }
        }
    }

    /// Opens it for all of its tenants, and makes it if it is not there.
    pub(crate) async fn tenants(&self) -> agent_core::Result<Arc<dyn Tenants>> {
        self.address.open().await
    }

    /// Where the data is, for a person.
    pub(crate) fn shown(&self) -> String {
        self.address.to_string()
    }
}

/// A path without links and dots, also of what is not there yet.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (mut there, mut rest) = (PathBuf::new(), false);
    for part in absolute.components() {
        match part {
            // Of what is not there nothing can be a link.
            Component::ParentDir => drop(there.pop()),
            part => there.push(part),
        }
        if !rest {
            match there.canonicalize() {
                Ok(real) => there = real,
                Err(_) => rest = true,
            }
        }
    }
    there
}
