//! Setting of when the keys of due and running work are put.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Time at which a store puts the key by which a scheduler finds a session that is due or runs.
///
/// All stores of a prefix have the same setting: see [`S3Config::with_watch`](crate::S3Config::with_watch).
///
/// ```
/// use agent_storage_s3::Watch;
///
/// assert_eq!("off".parse(), Ok(Watch::Off));
/// assert_eq!(Watch::default().to_string(), "before");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Watch {
    /// Before the commit. Each session that is due or runs is found as soon as its commit is acknowledged. A run that
    /// begins from rest waits for one request more.
    #[default]
    Before,
    /// In the background, once the commit is acknowledged. If the process ends before, schedulers do not find the session
    /// until it sends a heartbeat, or [`rebuild`](agent_core::SessionStore::rebuild) puts the key.
    After,
    /// Never, for hosts without a scheduler. Lists of sessions that are due or run are right, and read the newest commit
    /// of every session of the tenant. Schedulers look at all tenants.
    Off,
}

impl Watch {
    const ALL: [Self; 3] = [Self::Before, Self::After, Self::Off];

    const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Watch {
    type Err = WatchError;

    fn from_str(text: &str) -> Result<Self, WatchError> {
        Self::ALL.into_iter().find(|watch| watch.name() == text).ok_or(WatchError)
    }
}

/// Error of parsing a [`Watch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchError;

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of watch is before, after or off")
    }
}

impl std::error::Error for WatchError {}
