//! The options of the command line.

use std::path::PathBuf;
use std::time::Duration;

use agent_core::model::{Actor, Role};
use agent_core::{DeviceId, SessionId, TenantId};
use agent_storage_fs::FsConfig;

use crate::failure::Failure;
use crate::stores::{Address, address};

/// What a conversation and every command may be told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the data in this folder [default: the user's data folder]
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "store")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Act as this device [default: the name of this host]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) device: Option<DeviceId>,

    /// Keep the data in files (files:PATH), in one database file (sqlite:PATH), in a bucket that many machines may share
    /// (s3://BUCKET/PREFIX), or in memory and only until the end (memory:)
    #[arg(long, value_name = "STORE", value_parser = address, global = true)]
    pub(crate) store: Option<Address>,

    /// Act for this tenant of the store [default: the tenant `default`]
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) tenant: Option<TenantId>,

    /// Take the host's configuration from this file [default: config.toml beside the data]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    /// Print JSON for programs; errors too, on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Open this session rather than the one that was used last
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,

    /// Wait so long before each word of an answer
    #[arg(long, value_name = "MS", value_parser = millis, default_value = "0", hide = true)]
    pub(crate) echo_delay_ms: Duration,

    /// Take over from a chat that gave no sign of life for so long
    #[arg(long, value_name = "MS", value_parser = millis, hide = true)]
    pub(crate) lease_ttl_ms: Option<Duration>,
}

impl Args {
    /// The store that the options name.
    pub(crate) fn address(&self) -> Result<Address, Failure> {
        Ok(match (&self.store, &self.data_dir) {
            (Some(store), _) => store.clone(),
            (None, Some(folder)) => Address::files(FsConfig::new(folder)),
            (None, None) => Address::files(FsConfig::platform(FsConfig::DEFAULT_APP)?),
        })
    }

    /// The host's own configuration file: beside the data where these are files, else in the user's data folder.
    pub(crate) fn config_file(&self) -> Result<PathBuf, Failure> {
        if let Some(file) = &self.config {
            return Ok(file.clone());
        }
        let folder = match self.address()?.folder() {
            Some(folder) => folder.to_owned(),
            None => FsConfig::platform(FsConfig::DEFAULT_APP)?.root().to_owned(),
        };
        Ok(folder.join("config.toml"))
    }

    /// The device as which the program acts.
    pub(crate) fn device(&self) -> agent_core::Result<DeviceId> {
        self.device.clone().map_or_else(host_name, Ok)
    }

    /// Who does what commands do.
    pub(crate) fn actor(&self) -> agent_core::Result<Actor> {
        Actor::named(Role::User, short(&self.device()?))
    }
}

/// A device's name may be longer than that of a holder or an actor.
pub(crate) fn short(device: &DeviceId) -> &str {
    &device.as_str()[..device.as_str().floor_char_boundary(200)]
}

/// The host's name as a device; `cli` where it has none that will do.
fn host_name() -> agent_core::Result<DeviceId> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(name.parse().or_else(|_| "cli".parse())?)
}

fn millis(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}
