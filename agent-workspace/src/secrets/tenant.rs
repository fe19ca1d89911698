//! Secrets of one tenant: their source, and the values that were given out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use async_trait::async_trait;

use crate::secrets::known::Known;
use crate::secrets::redact;
use crate::secrets::secret::{Secret, SecretName};
use agent_core::isolated::isolated;
use agent_core::json::RawJson;
use agent_core::{Error, Result, TenantId, WorkspaceId};

/// Source of the values of one tenant's secrets: the host's configuration, a keychain, a vault.
#[async_trait]
pub trait SecretSource: fmt::Debug + Send + Sync + 'static {
    /// Returns the present value of a secret for a workspace; `None` if there is no such secret.
    ///
    /// # Errors
    ///
    /// Any error without a value in its text; the caller of [`Secrets::reveal`] receives it.
    async fn secret(&self, workspace: WorkspaceId, name: &SecretName) -> Result<Option<Secret>>;
}

/// Source with the same secrets for all workspaces.
#[async_trait]
impl SecretSource for BTreeMap<SecretName, Secret> {
    async fn secret(&self, _: WorkspaceId, name: &SecretName) -> Result<Option<Secret>> {
        Ok(self.get(name).cloned())
    }
}

/// Source of the secrets of several tenants.
pub trait TenantSecrets: fmt::Debug + Send + Sync + 'static {
    /// Returns the secrets of this tenant; `None` if it has none.
    ///
    /// Every call returns clones of the same [`Secrets`], so that a value that was given to one run is redacted by all.
    fn of(&self, tenant: &TenantId) -> Option<Secrets>;
}

impl TenantSecrets for BTreeMap<TenantId, Secrets> {
    fn of(&self, tenant: &TenantId) -> Option<Secrets> {
        self.get(tenant).cloned()
    }
}

/// Secrets of one tenant, and the values that were given out. Clones share both.
#[derive(Clone, Debug)]
pub struct Secrets {
    source: Arc<dyn SecretSource>,
    /// Values that were given out; a name may have had several values.
    given: Arc<RwLock<Known>>,
}

impl Secrets {
    /// Creates the secrets of a source. No value is redacted before it is given out.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (name, secrets) = github()?;
    /// // The value is not redacted before it is given out.
    /// assert_eq!(secrets.redact("ghp_0123456789"), "ghp_0123456789");
    /// secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
    /// assert_eq!(secrets.redact("ghp_0123456789"), "(secret github)");
    /// # Ok(()) }
    /// ```
    pub fn new(source: impl SecretSource) -> Self {
        Self { source: Arc::new(source), given: Arc::default() }
    }

    /// Also redacts, from now on and in all clones, what nobody gave out but has a well-known form: keys of providers and
    /// of clouds, JWTs, and PEM private keys. `(secret: KIND)` is written in its place. The default is not to.
    ///
    /// The [module](crate::secrets) says which forms are recognized.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use agent_runtime::secrets::Secrets;
    ///
    /// let secrets = Secrets::new(BTreeMap::new()).with_patterns();
    /// let said = "key AKIAIOSFODNN7EXAMPLE was refused";
    /// assert_eq!(secrets.redact(said), "key (secret: AWS access key) was refused");
    /// ```
    #[must_use]
    pub fn with_patterns(self) -> Self {
        self.given.write().unwrap_or_else(PoisonError::into_inner).add_patterns();
        self
    }

    /// Returns the value of a secret. From then on the value is redacted by these secrets and all their clones.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (name, secrets) = github()?;
    /// let token = secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
    /// assert_eq!(token.expose(), "ghp_0123456789");
    /// let error = secrets.reveal(WorkspaceId::DEFAULT, &"gitlab".parse()?).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::NotFound);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound`; errors of the source; `Unavailable` if the source panics.
    pub async fn reveal(&self, workspace: WorkspaceId, name: &SecretName) -> Result<Secret> {
        let asked = isolated(|| self.source.secret(workspace, name)).await.unwrap_or_else(|| {
            Err(Error::unavailable(format!(
                "the source of secrets panicked while it read secret {name}; repair the host's SecretSource"
            )))
        });
        let secret = asked?.ok_or_else(|| {
            Error::not_found(format!(
                "there is no secret {name} for workspace {workspace}; add it to the secrets of the host"
            ))
        })?;
        if !self.given().has(&secret, name) {
            self.given.write().unwrap_or_else(PoisonError::into_inner).add(&secret, name);
        }
        Ok(secret)
    }

    /// Redacts a text: returns it with `(secret NAME)` in place of each value that was given out.
    ///
    /// The text may be JSON, whole or not: a value is also found if characters of it are escaped, like `\u0067hp_`, once or
    /// as in JSON within JSON.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (name, secrets) = github()?;
    /// secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
    /// assert_eq!(secrets.redact("token ghp_0123456789 was refused"), "token (secret github) was refused");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "hide")]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        redact::text(&self.given(), text)
    }

    /// Returns the number of values that were given out. It grows with each new value, also of a name that had another one.
    pub fn known_values(&self) -> usize {
        self.given().values()
    }

    /// Returns the number of bytes of a cut text that can be kept. The rest may be the beginning of a value.
    pub fn complete_prefix(&self, text: &str) -> usize {
        self.given().complete_prefix(0, text)
    }

    /// Redacts JSON: returns it with `(secret NAME)` in place of each value in its texts, keys and numbers.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (name, secrets) = github()?;
    /// secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
    /// let output = RawJson::parse(r#"{"auth":"Bearer ghp_0123456789","status":401}"#)?;
    /// assert_eq!(secrets.redact_json(output).get(), r#"{"auth":"Bearer (secret github)","status":401}"#);
    /// # Ok(()) }
    /// ```
    #[must_use]
    #[doc(alias = "hide_json")]
    pub fn redact_json(&self, json: RawJson) -> RawJson {
        self.hidden_in(&json, 0).unwrap_or(json)
    }

    /// Redacts JSON except for the keys of the `outer` levels; returns `None` if it contains no value.
    pub(super) fn hidden_in(&self, json: &RawJson, outer: usize) -> Option<RawJson> {
        redact::json(&self.given(), json, outer)
    }

    pub(super) fn given(&self) -> RwLockReadGuard<'_, Known> {
        self.given.read().unwrap_or_else(PoisonError::into_inner)
    }
}
