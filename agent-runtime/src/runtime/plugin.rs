//! What extends an agent: tools, and hooks around a run.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tracing::warn;

use crate::holdings::effective_mounts;
use crate::runtime::provider::ToolSpec;
use crate::runtime::report::RunReport;
use crate::secrets::Secrets;
use crate::secrets::{Secret, SecretName};
use agent_core::clock::Effects;
use agent_core::json::RawJson;
use agent_core::model::{Access, CallId};
use agent_core::session::Session;
use agent_core::{Error, ErrorKind, Result, RunId, SessionId, SessionStore, WorkspaceId};

/// Tools and hooks. Plugins are asked in the order in which they were given to the builder.
///
/// One that fails or panics, also in the drop of a future, is isolated: a tool call of its gets an error as its result, a
/// hook of its is logged, and the run goes on. An error of over 2 MiB is not kept, only its size.
#[async_trait]
pub trait Plugin: Debug + Send + Sync + 'static {
    /// Its name, for logs and errors.
    fn name(&self) -> &str;

    /// The tools that it offers. Asked once, when the runtime is built, which refuses names and schemas that no provider
    /// takes; a plugin cannot add tools later.
    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    /// Calls one of its tools. The call is stored already; it is dropped where the run is cancelled or its time is
    /// up. Calls of one answer are made one after the other, and each result is stored before the next begins.
    ///
    /// # Errors
    ///
    /// Any; the model is given the text.
    async fn call(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        let _ = (input, context);
        Err(Error::new(ErrorKind::Provider, format!("plugin {} has no tool {tool}", self.name())))
    }

    /// A run has begun, and the model is not yet asked.
    ///
    /// # Errors
    ///
    /// Any; it is logged.
    async fn before_run(&self, session: &Session) -> Result<()> {
        let _ = session;
        Ok(())
    }

    /// A run has ended, and its end is stored.
    ///
    /// # Errors
    ///
    /// Any; it is logged.
    async fn after_run(&self, session: &Session, report: &RunReport) -> Result<()> {
        let _ = (session, report);
        Ok(())
    }
}

/// For whom a tool is called.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// The session.
    pub session: SessionId,
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// The run.
    pub run: RunId,
    /// The call; the same in every retry of it, so that a tool can know it again.
    pub call: CallId,
    /// Where the session is.
    sessions: Option<Arc<dyn SessionStore>>,
    effects: Option<Effects>,
    secrets: Option<Secrets>,
}

impl ToolContext {
    /// A call of `run` in `session`.
    pub const fn new(session: SessionId, workspace: WorkspaceId, run: RunId, call: CallId) -> Self {
        Self { session, workspace, run, call, sessions: None, effects: None, secrets: None }
    }

    /// Sets where the session is.
    #[must_use]
    pub fn with_sessions(mut self, sessions: Arc<dyn SessionStore>) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Sets where time, ids and randomness come from.
    #[must_use]
    pub fn with_effects(mut self, effects: Effects) -> Self {
        self.effects = Some(effects);
        self
    }

    /// Sets where the values of secrets come from.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = Some(secrets);
        self
    }

    /// The sessions of the tenant for whom it is called.
    pub const fn sessions(&self) -> Option<&Arc<dyn SessionStore>> {
        self.sessions.as_ref()
    }

    /// Where time, ids and randomness come from.
    pub const fn effects(&self) -> Option<&Effects> {
        self.effects.as_ref()
    }

    /// Whether the session has `resource` [mounted](effective_mounts) with at least this access, at this
    /// moment. What is not mounted, what is not named and what cannot be looked up is denied.
    pub async fn is_mounted(&self, resource: &str, access: Access) -> bool {
        let Some(sessions) = &self.sessions else { return false };
        let looked_up = async {
            let session = sessions.load(self.session).await?;
            effective_mounts(&**sessions, &session).await
        };
        match looked_up.await {
            Ok(mounts) => mounts.is_mounted(resource, access),
            Err(error) => {
                warn!(session = %self.session, %error, "the mounts cannot be looked up; the tool is denied");
                false
            }
        }
    }

    /// The value of a secret that the session has [mounted](SecretName::resource). Where a result, an error or an event
    /// holds it, its name is written in its place, as [`crate::secrets`] says.
    ///
    /// # Errors
    ///
    /// `Denied` where it is not mounted, or that cannot be looked up; `NotFound` where there is no value, or the agent
    /// [has no secrets](crate::runtime::agent::AgentRuntime::with_secrets); those of the source.
    pub async fn secret(&self, name: &SecretName) -> Result<Secret> {
        let resource = name.resource();
        if !self.is_mounted(&resource, Access::Read).await {
            return Err(Error::new(
                ErrorKind::Denied,
                format!("session {} may not have secret {name}; mount {resource} in it", self.session),
            ));
        }
        let secrets = self.secrets.as_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!(
                    "secret {name}: the agent has no secrets; give it some with AgentBuilder::with_secrets"
                ),
            )
        })?;
        secrets.reveal(self.workspace, name).await
    }
}
