//! Options of the command line.

use std::path::PathBuf;
use std::time::Duration;

use agent_core::model::{Actor, Role};
use agent_core::{DeviceId, OwnerId, Storage, TenantId};
use agent_storage_fs::FsConfig;
use agent_vault::Vault;

use crate::failure::{Failure, Result};
use crate::model::ModelName;
use crate::offline::OfflineModel;
use crate::pick::SessionRef;
use crate::stores::{Address, address};

/// Heading of the global options in the help.
const GLOBAL: &str = "Global options";

/// Options of the conversation; most of them also apply to every command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Data folder, same as --store files:DIR (default: the data folder of the user)
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "store", help_heading = GLOBAL)]
    pub(crate) data_dir: Option<PathBuf>,

    /// Device name (default: the host name)
    #[arg(long, value_name = "NAME", global = true, help_heading = GLOBAL)]
    pub(crate) device: Option<DeviceId>,

    /// Store: files:PATH, sqlite:PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX,
    /// postgres://USER@HOST/DATABASE, or memory: (lost when the program ends)
    #[arg(long, value_name = "STORE", value_parser = address, global = true, help_heading = GLOBAL)]
    pub(crate) store: Option<Address>,

    /// Tenant of the store (default: the tenant `default`)
    #[arg(long, value_name = "NAME", value_parser = tenant, global = true, help_heading = GLOBAL)]
    pub(crate) tenant: Option<TenantId>,

    /// Owner within the tenant: show and change only what this user may (default: the whole tenant)
    #[arg(long, value_name = "USER", global = true, help_heading = GLOBAL)]
    pub(crate) owner: Option<OwnerId>,

    /// Configuration file of the host (default: config.toml in the data folder)
    #[arg(long, value_name = "FILE", global = true, help_heading = GLOBAL)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON, one object on one line, and errors as JSON on standard error
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,

    /// Session to open: id, beginning or end of it, or number in `chat session list` (default: the most recently used one)
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionRef>,

    /// Model: anthropic:NAME, openai:NAME, google:NAME, ollama:NAME, http://HOST/v1#NAME (an API like OpenAI's), or offline
    /// (repeats what is said). The key is read from ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, or for an address
    /// from AGENT_MODEL_API_KEY
    #[arg(long, value_name = "MODEL", default_value = OfflineModel::NAME)]
    pub(crate) model: ModelName,

    /// Delay before each word of an answer
    #[arg(long, value_name = "MS", value_parser = millis, default_value = "0", hide = true)]
    pub(crate) echo_delay_ms: Duration,

    /// Number of messages above which the model is given a summary of the older ones
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) context_messages: Option<usize>,

    /// Time without a heartbeat after which another chat takes a session over
    #[arg(long, value_name = "MS", value_parser = millis, hide = true)]
    pub(crate) lease_ttl_ms: Option<Duration>,
}

impl Args {
    /// Refuses `--tenant` for a command that does not use it; `why` says so.
    pub(crate) fn refuse_tenant(&self, why: &str) -> Result<()> {
        match self.tenant {
            Some(_) => Err(Failure::new(2, "invalid_input", why)),
            None => Ok(()),
        }
    }

    /// Returns the address of the store.
    pub(crate) fn address(&self) -> Result<Address> {
        Ok(match (&self.store, &self.data_dir) {
            (Some(store), _) => store.clone(),
            (None, Some(folder)) => Address::files(FsConfig::new(folder)),
            (None, None) => Address::files(FsConfig::platform(FsConfig::DEFAULT_APP)?),
        })
    }

    /// Returns the path of the host's configuration file: in the data folder if the store is a folder, else in the data
    /// folder of the user.
    pub(crate) fn config_file(&self) -> Result<PathBuf> {
        if let Some(file) = &self.config {
            return Ok(file.clone());
        }
        let folder = match self.address()?.folder() {
            Some(folder) => folder.to_owned(),
            None => FsConfig::platform(FsConfig::DEFAULT_APP)?.root().to_owned(),
        };
        Ok(folder.join("config.toml"))
    }

    /// Returns the name of the device.
    pub(crate) fn device(&self) -> agent_core::Result<DeviceId> {
        self.device.clone().map_or_else(host_name, Ok)
    }

    /// Returns the part of a storage that is the owner's, if one is named.
    pub(crate) fn of_owner(&self, storage: Storage) -> Storage {
        match &self.owner {
            Some(owner) => storage.for_owner(owner),
            None => storage,
        }
    }

    /// Returns the actor that the audit log records for commands.
    pub(crate) fn actor(&self) -> agent_core::Result<Actor> {
        Ok(user(&self.device()?))
    }
}

/// Reads the name of a tenant, which may not be the one that serves nobody.
fn tenant(text: &str) -> Result<TenantId, String> {
    let tenant: TenantId = text.parse().map_err(|error: agent_core::ParseError| error.to_string())?;
    match tenant == TenantId::audit_of_tenants() {
        true => Err(format!(
            "{tenant} has the audit of tenants, and is for nothing else; `chat tenant audit` shows it"
        )),
        false if Vault::is_of_keys(&tenant) => {
            Err(format!("{tenant} has the keys of another tenant, and is for nothing else"))
        }
        false => Ok(tenant),
    }
}

/// Returns the actor that a device's user is.
pub(crate) fn user(device: &DeviceId) -> Actor {
    Actor::named(Role::User, short(device)).unwrap_or(Actor::USER)
}

/// Returns the beginning of a device's name. The names of holders, actors and workspaces have a lower limit.
pub(crate) fn short(device: &DeviceId) -> &str {
    &device.as_str()[..device.as_str().floor_char_boundary(200)]
}

/// Returns the host name as a device name; `cli` if the host has none that is valid.
fn host_name() -> agent_core::Result<DeviceId> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(name.parse().or_else(|_| "cli".parse())?)
}

/// Reads a time of at most a day: the clock could not count every one.
fn millis(text: &str) -> Result<Duration, String> {
    const MOST: u64 = 24 * 3600 * 1000;
    match text.parse() {
        Ok(millis) if millis <= MOST => Ok(Duration::from_millis(millis)),
        _ => Err(format!("use a whole number of milliseconds, at most {MOST}")),
    }
}
