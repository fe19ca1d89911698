//! References to secrets: a session holds their names, and what the agent writes never holds their values.
//!
//! A session refers to a secret by the mount `secret:NAME` ([`SecretName::resource`]), its own or inherited: a name in its
//! record, its log and its export, and nothing more. A tool that needs the value asks for it by
//! `ToolContext::secret`, and gets what the session mounts; the host's [`SecretSource`] knows the values.
//!
//! Each value that was given out is [hidden](Secrets::hide) from then on: where it appears in the result of a tool, in an
//! error, or in any event that goes to the store of sessions, `(secret NAME)` stands in its place. The model and the stream
//! of a run see the results of tools so, too. A run begins with giving out to itself what its session mounts, so that this
//! holds after a restart, too.
//!
//! A value is recognised
//!
//! - as it is and without the white space around it, also escaped in JSON and in JSON within JSON;
//! - in each of its lines of 8 bytes and more, and in all of them joined (not in the first and last line of a PEM file);
//! - if it is JSON (a service account's key, say): in each text and number of 8 bytes and more in it, and as a whole
//!   with its keys in any order and any white space. Its keys alone, and shorter texts alone, are not hidden. Everything else in such a
//!   document is, the address of a server included: give the one field as the secret if the rest is to stay readable;
//! - split over the pieces in which a model says it, by whoever reads the stream of a run. What may be the beginning of a
//!   value is held back until it is told.
//!
//! It is not recognised if somebody has encoded it (Base64, a hash) or shows a part of a line, and not in what was
//! written before, by others, or to the records of workspaces and devices.
//!
//! ```
//! use std::collections::BTreeMap;
//! use agent_core::WorkspaceId;
//! use agent_core::secrets::{Secret, SecretName, Secrets};
//!
//! # futures::executor::block_on(async {
//! let name: SecretName = "github".parse()?;
//! let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("ghp_0123456789")?)]));
//! let token = secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
//! let said = format!("401: token {} was refused", token.expose());
//! assert_eq!(secrets.hide(&said), "401: token (secret github) was refused");
//! assert_eq!(format!("{token:?}"), "(secret)");
//! # Ok::<(), agent_core::Error>(())
//! # }).unwrap();
//! ```

mod hide;
mod known;
#[cfg(feature = "runtime")]
mod pieces;
mod store;

#[cfg(feature = "runtime")]
pub(crate) use pieces::Pieces;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use async_trait::async_trait;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::id::{TenantId, WorkspaceId};
use crate::base::json::RawJson;
use crate::base::text::{quoted, text_serde};
use crate::isolated::isolated;
use crate::secrets::known::Known;
use crate::storage::Storage;

/// What the mount of a secret begins with.
const MOUNT: &str = "secret:";

/// Names a secret: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Box<str>);

impl SecretName {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The resource by which a session mounts the secret: `secret:NAME`.
    ///
    /// ```
    /// use agent_core::{Access, Patch};
    /// use agent_core::secrets::SecretName;
    ///
    /// let github: SecretName = "github".parse()?;
    /// assert_eq!(github.resource(), "secret:github");
    /// let patch = Patch::new().mount(github.resource(), Access::Read);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn resource(&self) -> String {
        format!("{MOUNT}{self}")
    }

    /// The name of the secret that is mounted as this resource, where it is one.
    pub fn of_resource(resource: &str) -> Option<Self> {
        resource.strip_prefix(MOUNT)?.parse().ok()
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretName({:?})", &self.0)
    }
}

impl FromStr for SecretName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fits =
            |(at, b): (usize, u8)| b.is_ascii_alphanumeric() || (at > 0 && matches!(b, b'.' | b'_' | b'-'));
        if text.is_empty() || text.len() > 64 || !text.bytes().enumerate().all(fits) {
            return Err(Error::invalid(format!(
                "the name of a secret {} must be 1 to 64 of a-z, A-Z, 0-9, ., _ and -, and start with a letter or digit",
                quoted(text)
            )));
        }
        Ok(Self(text.into()))
    }
}

text_serde!(SecretName);

/// The value of a secret. It has no text form: `Debug` shows that it is one, and nothing of it; it cannot be serialized.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// The fewest bytes of a value.
    pub const MIN_BYTES: usize = 8;
    /// The most bytes of a value.
    pub const MAX_BYTES: usize = 64 << 10;

    /// A value.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for one of fewer than 8 bytes without the white space around it, which could not be told from ordinary
    /// text and so not be hidden, and for one of more than 64 KiB. The value is not quoted.
    pub fn new(value: impl Into<String>) -> Result<Self> {
        let value = value.into();
        if value.trim().len() < Self::MIN_BYTES || value.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "a secret of {} bytes; give {} to {}, so that it is told from ordinary text",
                value.trim().len(),
                Self::MIN_BYTES,
                Self::MAX_BYTES
            )));
        }
        Ok(Self(value.into()))
    }

    /// The value. Give it to whom it is for, and to nothing that writes it down.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Where a host keeps the values of secrets of one tenant: its configuration, a keychain, a vault.
#[async_trait]
pub trait SecretSource: fmt::Debug + Send + Sync + 'static {
    /// The value of a secret for a workspace, as it is now; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Any, without a value in its text; whoever asked is given it.
    async fn secret(&self, workspace: WorkspaceId, name: &SecretName) -> Result<Option<Secret>>;
}

/// The same secrets for all workspaces.
#[async_trait]
impl SecretSource for BTreeMap<SecretName, Secret> {
    async fn secret(&self, _: WorkspaceId, name: &SecretName) -> Result<Option<Secret>> {
        Ok(self.get(name).cloned())
    }
}

/// Which secrets a tenant has, for whoever works for several.
pub trait TenantSecrets: fmt::Debug + Send + Sync + 'static {
    /// The secrets of this tenant: clones of the same ones each time, so that what one run was given is hidden by all.
    fn of(&self, tenant: &TenantId) -> Option<Secrets>;
}

impl TenantSecrets for BTreeMap<TenantId, Secrets> {
    fn of(&self, tenant: &TenantId) -> Option<Secrets> {
        self.get(tenant).cloned()
    }
}

/// The secrets of one tenant, and which of them were given out. Clones share both.
#[derive(Clone, Debug)]
pub struct Secrets {
    source: Arc<dyn SecretSource>,
    /// A name may have had several values.
    given: Arc<RwLock<Known>>,
}

impl Secrets {
    /// The secrets that this source knows, none of them given out yet.
    pub fn new(source: impl SecretSource) -> Self {
        Self { source: Arc::new(source), given: Arc::default() }
    }

    /// The value of a secret. From now on it is hidden wherever these secrets are.
    ///
    /// # Errors
    ///
    /// `NotFound`; those of the source; `Unavailable` if the source panics.
    pub async fn reveal(&self, workspace: WorkspaceId, name: &SecretName) -> Result<Secret> {
        let asked = isolated(|| self.source.secret(workspace, name)).await.unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::Unavailable,
                format!("the source of secrets panicked when it was asked for secret {name}"),
            ))
        });
        let secret = asked?.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("there is no secret {name} for workspace {workspace}; add it to what the host keeps them in"),
            )
        })?;
        if !self.given().has(&secret, name) {
            self.given.write().unwrap_or_else(PoisonError::into_inner).add(&secret, name);
        }
        Ok(secret)
    }

    /// The text with `(secret NAME)` in place of each value that was given out.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        hide::text(&self.given(), text)
    }

    /// How many bytes of a text that was cut off can be kept: all but what may be the beginning of a value at its end.
    #[cfg(feature = "runtime")]
    pub(crate) fn told(&self, text: &str) -> usize {
        self.given().told(text)
    }

    /// The JSON with `(secret NAME)` in place of each value in its texts, keys and numbers.
    #[must_use]
    pub fn hide_json(&self, json: RawJson) -> RawJson {
        self.hidden_in(&json, 0).unwrap_or(json)
    }

    /// The same, but for the keys of the `outer` levels; `None` where no value is in it.
    fn hidden_in(&self, json: &RawJson, outer: usize) -> Option<RawJson> {
        hide::json(&self.given(), json, outer)
    }

    fn given(&self) -> RwLockReadGuard<'_, Known> {
        self.given.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same stores, the sessions written so that each value that was given out is hidden. Handles that were there before
    /// write as before.
    #[must_use]
    pub fn hidden_from(&self, storage: Storage) -> Storage {
        store::hiding(self.clone(), storage)
    }
}
