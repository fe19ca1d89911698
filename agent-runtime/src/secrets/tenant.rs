//! The secrets of one tenant: where they come from, and which were given out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use async_trait::async_trait;

use crate::secrets::hide;
use crate::secrets::known::Known;
use crate::secrets::secret::{Secret, SecretName};
use agent_core::isolated::isolated;
use agent_core::json::RawJson;
use agent_core::{Error, ErrorKind, Result, TenantId, WorkspaceId};

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
    pub(crate) fn told(&self, text: &str) -> usize {
        self.given().told(text)
    }

    /// The JSON with `(secret NAME)` in place of each value in its texts, keys and numbers.
    #[must_use]
    pub fn hide_json(&self, json: RawJson) -> RawJson {
        self.hidden_in(&json, 0).unwrap_or(json)
    }

    /// The same, but for the keys of the `outer` levels; `None` where no value is in it.
    pub(super) fn hidden_in(&self, json: &RawJson, outer: usize) -> Option<RawJson> {
        hide::json(&self.given(), json, outer)
    }

    pub(super) fn given(&self) -> RwLockReadGuard<'_, Known> {
        self.given.read().unwrap_or_else(PoisonError::into_inner)
    }
}
