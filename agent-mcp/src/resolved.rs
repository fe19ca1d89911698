//! Servers with the values of their secrets, as they are started or contacted.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::BlobName;
use http::{HeaderName, HeaderValue};
use secrecy::SecretString;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) list: Duration,
    pub(crate) call: Duration,
    pub(crate) message_bytes: usize,
    pub(crate) tools: usize,
}

/// Server with the values of its secrets. It is held in memory only.
pub(crate) struct Resolved {
    pub(crate) name: String,
    pub(crate) target: ResolvedTarget,
    /// Command with its arguments, or address: what a person allows.
    pub(crate) identity: String,
    /// Values that are not shown, each with what stands for it: secrets, and environment variables.
    pub(crate) hidden: Vec<(String, SecretString)>,
    /// Hash of all settings: another one means another server.
    pub(crate) settings: BlobName,
    pub(crate) limits: Limits,
    /// Tools whose calls nobody is asked about, each with its digest.
    pub(crate) always: BTreeMap<String, String>,
}

/// What is started or contacted.
pub(crate) enum ResolvedTarget {
    Command { command: String, args: Vec<String>, cwd: Option<PathBuf>, env: Vec<(String, SecretString)> },
    Url { url: String, headers: HashMap<HeaderName, HeaderValue> },
}

impl fmt::Debug for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved").field("name", &self.name).finish_non_exhaustive()
    }
}
