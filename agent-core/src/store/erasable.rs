//! Keys of an encrypted backend, as an erasure needs them.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::base::{Result, SessionId, WorkspaceId};
use crate::store::session::SessionStore;

/// Keys of one tenant of an encrypted backend, which an erasure names, drops and looks for.
///
/// [`Backend::erasable_keys`](crate::Backend::erasable_keys) returns them.
#[async_trait]
pub trait ErasableKeys: Debug + Send + Sync + 'static {
    /// Returns the sessions of the tenant as they are stored: sealed. For reads only. No I/O.
    fn stored(&self) -> Arc<dyn SessionStore>;

    /// Returns the rows that are there of the keys of these sessions, or of all keys of the tenant and its own for `None`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a row cannot be read; those of the store.
    async fn find(&self, of: Option<&BTreeSet<SessionId>>) -> Result<Vec<ErasableRow>>;

    /// Drops the key of a session, so that it never has one again, with the rows that lead to its blobs: these among `rows`, which were
    /// [found](Self::find). Can be repeated.
    ///
    /// # Errors
    ///
    /// Those of the store.
    async fn drop_session(&self, session: SessionId, rows: &[ErasableRow]) -> Result<()>;

    /// Drops what the place of the keys has of a deleted workspace: its secrets. Can be repeated.
    ///
    /// # Errors
    ///
    /// Those of the store.
    async fn drop_workspace(&self, workspace: WorkspaceId) -> Result<()>;

    /// Authenticates a text by a key that follows from the root key of the host. Returns the name of the root key, and the tag in hexadecimal
    /// digits.
    fn authenticate(&self, text: &[u8]) -> (String, String);

    /// Returns whether a tag is that of a text under the root key with this name; `None` if the host does not have that key.
    fn is_authentic(&self, root: &str, text: &[u8], tag: &str) -> Option<bool>;
}

/// Row of a key: ids and a hash, and nothing from which the key follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ErasableRow {
    /// Session whose key, or whose blob, the row is of; `None` for the keys of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Name of the row.
    pub row: String,
    /// Id of the key, as what is sealed by it names it; `None` for the row of a blob, and of a key that cannot be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// SHA-256 of the text of the row, in hexadecimal digits.
    pub sha256: String,
    /// Number of bytes of the text.
    pub bytes: usize,
    /// Start of the text, by which it is looked for in files: no part of what is sealed. Empty for the row of a blob.
    pub start: String,
}

impl ErasableRow {
    /// Creates the row of a blob.
    pub fn new(session: Option<SessionId>, row: String, sha256: String, bytes: usize) -> Self {
        Self { session, row, key: None, sha256, bytes, start: String::new() }
    }

    /// Sets the id of the key, and the start of the text: this is the row of a key.
    #[must_use]
    pub fn with_key(mut self, key: Option<String>, start: String) -> Self {
        (self.key, self.start) = (key, start);
        self
    }

    /// Returns whether the row is that of a key.
    pub const fn is_key(&self) -> bool {
        !self.start.is_empty()
    }
}
