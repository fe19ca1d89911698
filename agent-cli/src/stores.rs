//! Store addresses of the command line.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::store::{BackendConfig, Registry};
use agent_core::{Backend, ErrorKind};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteConfig;
use agent_vault::{Vault, VaultConfig};
use tempfile::TempDir;

use crate::failure::{Failure, Result};
use crate::screen::print_error;

/// Address of a store, checked but not opened yet.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    address: Arc<dyn BackendConfig>,
    /// Same address, with an option that fails if the store does not exist.
    existing: Arc<dyn BackendConfig>,
    kind: Kind,
    /// The same existing store, if it is encrypted.
    vault: Option<VaultConfig>,
}

/// Kind of a store, with what commands need to know of it.
#[derive(Clone, Debug)]
enum Kind {
    /// Files in this folder.
    Files(PathBuf),
    /// A database file.
    Sqlite(SqliteConfig),
    /// A bucket with a prefix, where counting all sessions reads each of them.
    Bucket(String),
    /// A schema of a database in PostgreSQL; the same address, with the option that creates the tables.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "then no address is one of PostgreSQL"))]
    Postgres(Arc<Postgres>),
    Other,
}

#[cfg(feature = "postgres")]
type Postgres = agent::PostgresConfig;
/// Without the feature no address is one of PostgreSQL.
#[cfg(not(feature = "postgres"))]
type Postgres = std::convert::Infallible;

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Kind, String> {
    let config = Postgres::from_url(url).map_err(|error| error.to_string())?;
    Ok(Kind::Postgres(Arc::new(config.with_migrate(true))))
}

#[cfg(not(feature = "postgres"))]
const fn postgres(_: &str) -> Result<Kind, String> {
    Ok(Kind::Other)
}

/// Time after which a person is told that a store has not answered.
const SILENCE: Duration = Duration::from_secs(2);

/// SQLite cache of each connection during a copy, which reads each page once or twice.
const COPY_CACHE_KIB: u32 = 1024;

/// Checks an address; for the command line.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    checked(text, &agent::registry())
}

/// Parses an address of the source or target of a copy.
pub(crate) fn copy_address(text: &str) -> Result<Address, String> {
    let mut registry = agent::registry();
    registry.register("sqlite", "sqlite:PATH", |url| {
        let config = SqliteConfig::from_url(url)?;
        // A cache size in the address takes precedence.
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
    let sealed =
        |url: &str| VaultConfig::from_url(url, |url| registry.parse(url)).map_err(|error| error.to_string());
    let parsed = |url: &str| match sealed(url)? {
        Some(vault) => Ok(Arc::new(vault) as Arc<dyn BackendConfig>),
        None => registry.parse(url).map_err(|error| error.to_string()),
    };
    let address = parsed(url)?;
    let whole = url;
    let url = &*VaultConfig::inner_url(whole).map_err(|error| error.to_string())?;
    let is_postgres = url.starts_with("postgres:") || url.starts_with("postgresql:");
    // A store in memory never exists before it is opened, and opening one in PostgreSQL creates nothing; an option in the
    // address takes precedence.
    let of_existing = match whole.split_once('?') {
        _ if url == "memory:" || is_postgres => whole.to_owned(),
        Some((_, options)) if options.split('&').any(|option| option.starts_with("create=")) => {
            whole.to_owned()
        }
        Some(_) => format!("{whole}&create=false"),
        None => format!("{whole}?create=false"),
    };
    let (existing, vault) = (parsed(&of_existing)?, sealed(&of_existing)?);
    let kind = if let Ok(config) = FsConfig::from_url(url) {
        Kind::Files(config.root().to_owned())
    } else if let Ok(config) = SqliteConfig::from_url(url) {
        Kind::Sqlite(config)
    } else if ["s3:", "gs:", "az:"].iter().any(|scheme| url.starts_with(scheme)) {
        Kind::Bucket(url.split('?').next().unwrap_or(url).trim_end_matches('/').to_owned())
    } else if is_postgres {
        postgres(url)?
    } else {
        Kind::Other
    };
    Ok(Address { address, existing, kind, vault })
}

impl Address {
    /// Returns whether the store is in a bucket.
    pub(crate) const fn is_bucket(&self) -> bool {
        matches!(self.kind, Kind::Bucket(_))
    }

    /// Returns the address of a database in PostgreSQL, without user and options, and the name of the schema in it.
    pub(crate) fn postgres(&self) -> Option<(String, String)> {
        let Kind::Postgres(_) = self.kind else { return None };
        let shown = self.shown();
        let (database, schema) = shown.split_once("?schema=")?;
        Some((database.to_owned(), schema.to_owned()))
    }

    /// Opens a store whose tables must be created before; creates them, and returns whether it was this process that did it. `None`
    /// if the store is of another kind.
    pub(crate) async fn create_tables(&self) -> Option<agent_core::Result<(Arc<dyn Backend>, bool)>> {
        let Kind::Postgres(migrating) = &self.kind else { return None };
        #[cfg(feature = "postgres")]
        {
            let opened = self.with_notice(Postgres::clone(migrating).open()).await;
            Some(opened.map(|store| {
                let has_created = store.has_created_tables();
                (Arc::new(store) as Arc<dyn Backend>, has_created)
            }))
        }
        #[cfg(not(feature = "postgres"))]
        match **migrating {}
    }

    /// Returns the address of a folder.
    pub(crate) fn files(config: FsConfig) -> Self {
        let kind = Kind::Files(config.root().to_owned());
        let existing = Arc::new(config.clone().with_create(false));
        Self { address: Arc::new(config), existing, kind, vault: None }
    }

    /// Returns whether the address names the key of an encrypted store.
    pub(crate) const fn has_key(&self) -> bool {
        self.vault.is_some()
    }

    /// Opens an existing store that is encrypted; `None` if the address names no key.
    pub(crate) async fn vault(&self) -> Option<agent_core::Result<Vault>> {
        let vault = self.vault.as_ref()?;
        Some(self.with_notice(vault.open_vault()).await)
    }

    /// Opens an existing store with all tenants; creates nothing.
    pub(crate) async fn existing(&self) -> agent_core::Result<Arc<dyn Backend>> {
        self.checked(self.with_notice(self.existing.open()).await?).await
    }

    /// Refuses an encrypted store whose key the address does not name: what is written there without it, nobody with the key opens.
    async fn checked(&self, store: Arc<dyn Backend>) -> agent_core::Result<Arc<dyn Backend>> {
        // In a bucket the question costs each command three requests. What cannot be read is for the command to report.
        if self.vault.is_some() || self.is_bucket() || !Vault::is_around(&*store).await.unwrap_or(false) {
            return Ok(store);
        }
        store.close().await?;
        let text = format!(
            "{0} is encrypted; name the file with its key: --store '{0}?key_file=FILE'",
            self.shown()
        );
        Err(agent_core::Error::new(ErrorKind::Denied, text))
    }

    /// Opens an existing store as the source of a copy. An export of the former version is converted in a temporary folder
    /// first, which goes when it is dropped.
    pub(crate) async fn source(&self) -> Result<(Arc<dyn Backend>, Option<TempDir>)> {
        let folder = TempDir::with_prefix("chat-export-").map_err(|error| {
            let text = format!("no folder can be made to convert {}: {error}; set TMPDIR", self.shown());
            Failure::new(1, "unavailable", text)
        })?;
        let new = folder.path().join("export");
        let converted = match &self.kind {
            _ if self.vault.is_some() => return Ok((self.existing().await?, None)),
            Kind::Files(from) => agent::FsStore::convert_export(from, &new).await,
            Kind::Sqlite(config) => agent::SqliteStore::convert_export(config.path(), &new).await,
            Kind::Bucket(_) | Kind::Postgres(_) | Kind::Other => return Ok((self.existing().await?, None)),
        };
        if let Err(error) = converted {
            // What is no export is opened as it is, and refused as a store is.
            return match error.kind() {
                ErrorKind::Unsupported | ErrorKind::NotFound | ErrorKind::InvalidInput => {
                    Ok((self.existing().await?, None))
                }
                _ => Err(error.into()),
            };
        }
        let store: Arc<dyn Backend> = match &self.kind {
            Kind::Files(_) => Arc::new(FsConfig::new(new).with_create(false).open().await?),
            _ => Arc::new(SqliteConfig::new(new).with_cache_kib(COPY_CACHE_KIB).open().await?),
        };
        Ok((store, Some(folder)))
    }

    /// Returns the names and numbers of the stored forms of this kind of store, as this version writes them.
    pub(crate) fn formats(&self) -> &'static [(&'static str, u64)] {
        match &self.kind {
            Kind::Files(_) => &agent::FsStore::FORMATS,
            Kind::Sqlite(_) => &agent::SqliteStore::FORMATS,
            #[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
            Kind::Bucket(_) => &agent::S3Store::FORMATS,
            #[cfg(feature = "postgres")]
            Kind::Postgres(_) => &agent::PostgresStore::FORMATS,
            _ => &[],
        }
    }

    /// Returns the folder of a file store.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Files(folder) => Some(folder),
            _ => None,
        }
    }

    /// Returns the configuration of a SQLite store.
    pub(crate) fn database(&self) -> Option<&SqliteConfig> {
        match &self.kind {
            Kind::Sqlite(config) => Some(config),
            _ => None,
        }
    }

    /// Returns whether the stores are the same, or one contains the other; resolves links.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let place = |kind: &Kind| match kind {
            Kind::Files(folder) => Some(real(folder)),
            Kind::Sqlite(config) => Some(real(config.path())),
            Kind::Bucket(_) | Kind::Postgres(_) | Kind::Other => None,
        };
        match (place(&self.kind), place(&other.kind)) {
            (Some(one), Some(two)) => {
                let holds = |store: &Self, a: &Path, b: &Path| store.folder().is_some() && b.starts_with(a);
                one == two || holds(self, &one, &two) || holds(other, &two, &one)
            }
            _ => match (&self.kind, &other.kind) {
                (Kind::Bucket(one), Kind::Bucket(two)) => one == two,
                (Kind::Postgres(one), Kind::Postgres(two)) => one.to_string() == two.to_string(),
                _ => false,
            },
        }
    }

    /// Opens the store with all tenants; creates it if it does not exist.
    pub(crate) async fn tenants(&self) -> agent_core::Result<Arc<dyn Backend>> {
        self.checked(self.with_notice(self.address.open()).await?).await
    }

    /// Waits for a store; says so once if it takes long, since a server that cannot be reached is tried for a minute.
    async fn with_notice<T>(&self, opening: impl Future<Output = T>) -> T {
        let mut opening = std::pin::pin!(opening);
        if let Ok(opened) = tokio::time::timeout(SILENCE, &mut opening).await {
            return opened;
        }
        let (store, seconds) = (self.shown(), SILENCE.as_secs());
        let check = match self.kind {
            Kind::Bucket(_) | Kind::Postgres(_) => "Check its address and the network",
            _ => "Another program may hold it, or it is long",
        };
        print_error(&format!(
            "{store} has not answered for {seconds} s; still trying. {check}, or end with Ctrl-C"
        ));
        opening.await
    }

    /// Returns the address as text, for messages.
    pub(crate) fn shown(&self) -> String {
        self.address.to_string()
    }
}

/// Does work on a store, and closes the store in any case.
pub(crate) async fn closing<T>(store: &dyn Backend, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = work.await;
    let closed = store.close().await;
    let done = done?;
    closed?;
    Ok(done)
}

/// Returns a path without links and dots, even if a part of it does not exist yet.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (mut there, mut rest) = (PathBuf::new(), false);
    for part in absolute.components() {
        match part {
            // A part that does not exist cannot be a link.
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
