//! Context in which a plugin is asked for the tools of a session.

use std::sync::Arc;

use tracing::warn;

use agent_core::clock::Effects;
use agent_core::model::Access;
use agent_core::session::SessionRecord;
use agent_core::setters;
use agent_core::{Error, ErrorKind, Result, RunId, SessionId, SessionStore, Storage, WorkspaceId};
use agent_workspace::mounts::effective_mounts;
use agent_workspace::secrets::{Secret, SecretName, Secrets};

/// Context in which a plugin is asked for the tools of a session: the session, its run, the stores and the secrets of
/// its tenant.
///
/// The runtime creates it. A test of a plugin creates it with [`new`](Self::new).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionContext {
    /// Session, as the run last read it.
    pub session: Arc<SessionRecord>,
    /// Id of the run.
    pub run: RunId,
    storage: Storage,
    secrets: Option<Secrets>,
    /// Configuration of the workspace, if it was read already.
    config: Option<Option<Arc<str>>>,
}

impl SessionContext {
    /// Creates the context of a run in a session, without secrets.
    pub const fn new(session: Arc<SessionRecord>, run: RunId, storage: Storage) -> Self {
        Self { session, run, storage, secrets: None, config: None }
    }

    setters! {
        /// Sets what was read of the workspace's configuration.
        pub(crate) fn with_config(config: Option<Option<Arc<str>>>) => config = config;

        /// Sets the source of the values of secrets; the default is none.
        pub fn with_secrets(secrets: impl Into<Option<Secrets>>) => secrets = secrets.into();
    }

    /// Returns the stores of the session's tenant.
    pub const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the source of time, ids and randomness.
    pub const fn effects(&self) -> &Effects {
        self.storage.effects()
    }

    /// Returns the own configuration of the session's workspace; `None` if it has none, or if the workspace was never
    /// stored.
    ///
    /// It is the one that the run read when it began, if a plugin [reads
    /// it](crate::Plugin::reads_workspace_config); otherwise this reads it.
    ///
    /// # Errors
    ///
    /// Those of [`WorkspaceStore::load_config`](agent_core::WorkspaceStore::load_config).
    pub async fn workspace_config(&self) -> Result<Option<Arc<str>>> {
        if let Some(config) = &self.config {
            return Ok(config.clone());
        }
        match self.storage.workspaces.load_config(self.session.workspace).await {
            Ok(config) => Ok(config.map(Arc::from)),
            // A host may keep sessions of workspaces that it never stored.
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the value of a secret that the session has [mounted](SecretName::resource), like
    /// [`ToolContext::secret`](crate::ToolContext::secret).
    ///
    /// # Errors
    ///
    /// `Denied` if the secret is not mounted, or if that cannot be looked up; `NotFound` if it has no value, or if the
    /// agent has no secrets; errors of the source.
    pub async fn secret(&self, name: &SecretName) -> Result<Secret> {
        let (session, workspace) = (self.session.id, self.session.workspace);
        mounted_secret(&*self.storage.sessions, self.secrets.as_ref(), session, workspace, name).await
    }
}

/// Returns whether a session has a resource mounted; `false` if that cannot be looked up.
pub(super) async fn is_mounted(
    sessions: &dyn SessionStore,
    session: SessionId,
    resource: &str,
    access: Access,
) -> bool {
    let looked_up = async {
        let session = sessions.load(session).await?;
        effective_mounts(sessions, &session).await
    };
    match looked_up.await {
        Ok(mounts) => mounts.is_mounted(resource, access),
        Err(error) => {
            warn!(%session, %error, "the mounts cannot be looked up; the tool is denied");
            false
        }
    }
}

/// Returns the value of a secret that a session has mounted.
pub(super) async fn mounted_secret(
    sessions: &dyn SessionStore,
    secrets: Option<&Secrets>,
    session: SessionId,
    workspace: WorkspaceId,
    name: &SecretName,
) -> Result<Secret> {
    let resource = name.resource();
    if !is_mounted(sessions, session, &resource, Access::Read).await {
        return Err(Error::new(
            ErrorKind::Denied,
            format!("session {session} may not read secret {name}; mount {resource} in it"),
        ));
    }
    let secrets = secrets.ok_or_else(|| {
        Error::not_found(format!(
            "secret {name}: the agent has no secrets; set them with AgentBuilder::with_secrets"
        ))
    })?;
    secrets.reveal(workspace, name).await
}
