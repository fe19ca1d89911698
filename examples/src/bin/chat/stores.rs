//! From the options of the command line to the stores.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::{Registry, Storage, StoreAddress, TenantId, Tenants};
use agent_storage_fs::FsConfig;
use agent_storage_s3::S3Config;
use agent_storage_sqlite::SqliteConfig;

use crate::args::Args;

/// Where a store is: checked, and not opened yet.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    address: Arc<dyn StoreAddress>,
    /// The folder, where it is one of files.
    folder: Option<PathBuf>,
}

/// How much of a file of SQLite each connection keeps in memory during a copy, which comes to each page once or twice.
const COPY_CACHE_KIB: u32 = 1024;

/// The kinds of stores that this program knows.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::new();
    FsConfig::register(&mut registry);
    SqliteConfig::register(&mut registry);
    S3Config::register(&mut registry);
    registry
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
    let address = registry.address(url).map_err(|error| error.to_string())?;
    let folder = url.starts_with("files:").then(|| FsConfig::from_url(url).ok()).flatten();
    Ok(Address { address, folder: folder.map(|config| config.root().to_owned()) })
}

impl Address {
    fn files(config: FsConfig) -> Self {
        let folder = Some(config.root().to_owned());
        Self { address: Arc::new(config), folder }
    }

    /// Opens it.
    pub(crate) async fn open(&self) -> agent_core::Result<Storage> {
        Ok(self.tenants().await?.storage(&TenantId::default()))
    }

    /// Opens it for all of its tenants.
    pub(crate) async fn tenants(&self) -> agent_core::Result<Arc<dyn Tenants>> {
        self.address.open().await
    }

    /// Where the data is, for a person.
    pub(crate) fn shown(&self) -> String {
        self.address.to_string()
    }
}

/// The store that the options name.
pub(crate) fn chosen(args: &Args) -> Result<Address, Box<dyn Error>> {
    Ok(match (&args.store, &args.data_dir) {
        (Some(store), _) => store.clone(),
        (None, Some(folder)) => Address::files(FsConfig::new(folder)),
        (None, None) => Address::files(FsConfig::platform(FsConfig::DEFAULT_APP)?),
    })
}

/// The host's own configuration file: beside the data where these are files, else in the user's data folder.
pub(crate) fn config_file(args: &Args) -> Result<PathBuf, Box<dyn Error>> {
    if let Some(file) = &args.config {
        return Ok(file.clone());
    }
    let folder = match chosen(args)?.folder {
        Some(folder) => folder,
        None => FsConfig::platform(FsConfig::DEFAULT_APP)?.root().to_owned(),
    };
    Ok(Path::new(&folder).join("config.toml"))
}
