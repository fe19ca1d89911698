//! Extensions of an agent: tools, and hooks around a run.

use std::fmt::Debug;
use std::sync::Arc;

use crate::model::provider::ToolSpec;
use crate::run::report::RunReport;
use crate::tool::output::ToolOutput;
use crate::tool::session_context::{SessionContext, is_mounted, mounted_secret};
use agent_core::clock::Effects;
use agent_core::json::RawJson;
use agent_core::model::{Access, CallId};
use agent_core::session::SessionRecord;
use agent_core::setters;
use agent_core::{Error, ErrorKind, Result, RunId, SessionId, Storage, WorkspaceId};
use agent_workspace::secrets::Secrets;
use agent_workspace::secrets::{Secret, SecretName};
use async_trait::async_trait;

/// Family of tools, and hooks around a run. A single function is simpler as a [`tool`](crate::tool).
///
/// Plugins are called in the order in which they were given to the builder. Every method but [`name`](Self::name) has a
/// default that does nothing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use agent_core::json::RawJson;
/// use agent_core::session::SessionRecord;
/// use agent_core::{Error, MemoryStore, Result, async_trait};
/// use agent_runtime::{AgentBuilder, Plugin, RunReport, ScriptedProvider, ToolContext, ToolSpec, Turn};
///
/// /// Counter with a tool that reads it, and a hook that increments it.
/// #[derive(Debug, Default)]
/// struct Counter(AtomicU64);
///
/// #[async_trait]
/// impl Plugin for Counter {
///     fn name(&self) -> &str {
///         "counter"
///     }
///
///     fn tools(&self) -> Vec<ToolSpec> {
///         vec![ToolSpec::new("runs", "Number of runs that have ended.")]
///     }
///
///     async fn call(&self, tool: &str, _input: RawJson, _context: ToolContext) -> Result<RawJson> {
///         match tool {
///             "runs" => RawJson::of(&self.0.load(Ordering::Relaxed)),
///             other => Err(Error::invalid(format!("the counter has no tool {other}"))),
///         }
///     }
///
///     async fn after_run(&self, _session: &SessionRecord, _report: &RunReport) -> Result<()> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         Ok(())
///     }
/// }
///
/// let counter = Arc::new(Counter::default());
/// # let model = ScriptedProvider::new([
/// #     Turn::new().call("1", "runs", RawJson::parse("{}")?), Turn::new().text("None."),
/// # ]);
/// let agent = AgentBuilder::new()
///     .with_llm(model)
///     .with_storage(MemoryStore::new())
///     .with_plugin(counter.clone())
///     .build()?;
/// let chat = agent.conversation("support/4711").await?;
/// chat.prompt("How many runs?").await?.finish().await?;
/// assert_eq!(counter.0.load(Ordering::Relaxed), 1);
/// # Ok(()) }
/// ```
///
/// # Panics
///
/// A plugin that fails or panics, also when a future is dropped, does not end the run: a failed tool call gets an error
/// as its result, and a failed hook is logged. Of an error larger than 2 MiB only the size is stored.
#[async_trait]
pub trait Plugin: Debug + Send + Sync + 'static {
    /// Returns the plugin's name for logs and errors. Called once, when the runtime is built.
    fn name(&self) -> &str;

    /// Returns whether the plugin asks for the configuration of the session's workspace
    /// ([`SessionContext::workspace_config`]) when a run begins; the default is false. Called once, when the runtime is
    /// built: a run then reads the configuration together with the workspace.
    fn reads_workspace_config(&self) -> bool {
        false
    }

    /// Returns the tools that the plugin offers; the default is none.
    ///
    /// Called once, when the runtime is built. The runtime refuses names and schemas that providers do not accept.
    /// Tools that depend on the session, or that change, are those of [`session_tools`](Self::session_tools).
    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    /// Returns the tools that the plugin offers in one session, besides [`tools`](Self::tools); the default is none.
    ///
    /// Called before each model call of a run, and before a run continues calls that waited for an answer. The tools
    /// hold until the next time; a call of a tool that is not among them any more gets an error as its result. A tool
    /// with a name or a schema that providers do not accept is left out, and so is one with the name of another tool;
    /// that is logged. A model is given the tools before its messages, so a change costs the cache of its provider.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped if the run is cancelled or the [time limit](crate::Limits) of a tool call is reached.
    ///
    /// # Errors
    ///
    /// Any error; it is logged, and the plugin has no tools in the session until the next time.
    async fn session_tools(&self, context: SessionContext) -> Result<Vec<ToolSpec>> {
        let _ = context;
        Ok(Vec::new())
    }

    /// Checks the input of a call before a person is asked about it; the default accepts every input.
    ///
    /// [`call`](Self::call) checks the input of calls about which nobody is asked. A [`Tool`](crate::Tool) accepts the
    /// arguments that the type of its function decodes, in both cases.
    ///
    /// # Errors
    ///
    /// Any error; the call is not made, nobody is asked, and the model receives the text.
    fn check_input(&self, tool: &str, input: &RawJson) -> Result<()> {
        let _ = (tool, input);
        Ok(())
    }

    /// Returns the sentence with which a person is asked about a call, like "Pay 120 EUR to Acme?"; the default, `None`,
    /// asks with the call itself, or with the question of the model if the tool [asks](crate::ToolMode::Ask).
    ///
    /// Called when a call must wait for an answer. The input is without the values of secrets, and so is the sentence as
    /// it is stored: on one line, with marks for control characters, and shortened to
    /// [2,048 bytes](agent_core::model::PendingAction::QUESTION_MAX_BYTES). A host's own sentence
    /// ([`with_question`](crate::AgentBuilder::with_question)) comes first. A panic counts as `None`.
    fn question(&self, tool: &str, input: &RawJson) -> Option<String> {
        let _ = (tool, input);
        None
    }

    /// Calls one of the plugin's tools, and returns its output as JSON of any form.
    ///
    /// The call is already stored. The calls of one answer are made one after the other, and each result is stored
    /// before the next call begins. After a crash in between, the model receives "interrupted, outcome unknown" as the
    /// result, and the call is not repeated.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped if the run is cancelled or the [time limit](crate::Limits) of the call is reached.
    ///
    /// # Errors
    ///
    /// Any error; the model receives its text.
    async fn call(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        let _ = (input, context);
        Err(Error::new(ErrorKind::Provider, format!("plugin {} has no tool {tool}", self.name())))
    }

    /// Calls one of the plugin's tools, and returns its output with parts, like images. The runtime makes every call
    /// through this method; the default makes it with [`call`](Self::call), and what is said there holds here.
    ///
    /// # Errors
    ///
    /// Any error; the model receives its text.
    async fn call_for_output(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<ToolOutput> {
        self.call(tool, input, context).await.map(ToolOutput::new)
    }

    /// Called after a run has begun and before the model is called.
    ///
    /// # Errors
    ///
    /// Any error; it is logged.
    async fn before_run(&self, session: &SessionRecord) -> Result<()> {
        let _ = session;
        Ok(())
    }

    /// Called after a run has ended and its end is stored.
    ///
    /// # Errors
    ///
    /// Any error; it is logged.
    async fn after_run(&self, session: &SessionRecord, report: &RunReport) -> Result<()> {
        let _ = (session, report);
        Ok(())
    }

    /// Ends what the plugin has started, like processes and connections; the default does nothing.
    ///
    /// Called when the agent [shuts down](crate::AgentRuntime::shutdown), after its runs have ended, and again if it is
    /// shut down again.
    async fn close(&self) {}
}

#[async_trait]
impl<P: Plugin + ?Sized> Plugin for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn reads_workspace_config(&self) -> bool {
        (**self).reads_workspace_config()
    }

    fn tools(&self) -> Vec<ToolSpec> {
        (**self).tools()
    }

    async fn session_tools(&self, context: SessionContext) -> Result<Vec<ToolSpec>> {
        (**self).session_tools(context).await
    }

    fn check_input(&self, tool: &str, input: &RawJson) -> Result<()> {
        (**self).check_input(tool, input)
    }

    fn question(&self, tool: &str, input: &RawJson) -> Option<String> {
        (**self).question(tool, input)
    }

    async fn call(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        (**self).call(tool, input, context).await
    }

    async fn call_for_output(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<ToolOutput> {
        (**self).call_for_output(tool, input, context).await
    }

    async fn before_run(&self, session: &SessionRecord) -> Result<()> {
        (**self).before_run(session).await
    }

    async fn after_run(&self, session: &SessionRecord, report: &RunReport) -> Result<()> {
        (**self).after_run(session, report).await
    }

    async fn close(&self) {
        (**self).close().await;
    }
}

/// Context of a tool call: its session, workspace, run and id, the stores and the secrets of its tenant.
///
/// The runtime creates it. A test of a tool creates it with [`new`](Self::new):
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspaces.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::collections::BTreeMap;
/// use agent_core::model::{Access, Patch};
/// use agent_runtime::ToolContext;
/// use agent_runtime::secrets::{Secret, SecretName, Secrets};
/// # let (agent, chat) = echo().await?;
/// let name: SecretName = "github".parse()?;
/// let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("ghp_0123456789")?)]));
/// let storage = agent.storage().clone();
/// let (run, call) = (agent.effects().new_run_id(), "call-1".parse()?);
/// let context = ToolContext::new(&chat.record(), run, call, storage).with_secrets(secrets);
///
/// // A tool has only what its session mounts.
/// assert!(context.secret(&name).await.is_err());
/// chat.update(Patch::new().mount(name.resource(), Access::Read)).await?;
/// assert!(context.is_mounted("secret:github", Access::Read).await);
/// assert_eq!(context.secret(&name).await?.expose(), "ghp_0123456789");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// Id of the session.
    pub session: SessionId,
    /// Id of the session's workspace.
    pub workspace: WorkspaceId,
    /// Id of the run.
    pub run: RunId,
    /// Id of the call. Every retry of the call has the same id, so a tool can detect it.
    pub call: CallId,
    storage: Storage,
    secrets: Option<Secrets>,
    /// Number of bytes of an output that is shown whole.
    output_bytes: usize,
}

impl ToolContext {
    /// Creates the context of a call that `run` makes in `session`, without secrets.
    pub const fn new(session: &SessionRecord, run: RunId, call: CallId, storage: Storage) -> Self {
        Self {
            session: session.id,
            workspace: session.workspace,
            run,
            call,
            storage,
            secrets: None,
            output_bytes: usize::MAX,
        }
    }

    setters! {
        /// Sets the source of the values of secrets; the default is none.
        pub fn with_secrets(secrets: impl Into<Option<Secrets>>) => secrets = secrets.into();

        /// Sets the number of bytes of an output that is shown whole.
        pub(crate) const fn with_output_bytes(bytes: usize) => output_bytes = bytes;
    }

    /// Returns the number of bytes of an output that is shown whole.
    pub(crate) const fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Returns the stores of the session's tenant.
    pub const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the source of time, ids and randomness.
    pub const fn effects(&self) -> &Effects {
        self.storage.effects()
    }

    /// Returns whether the session now has `resource` [mounted](agent_workspace::mounts::effective_mounts) with at least this access. Reads up
    /// to four records.
    ///
    /// Returns false also if the resource cannot be looked up, which is logged.
    pub async fn is_mounted(&self, resource: &str, access: Access) -> bool {
        is_mounted(&*self.storage.sessions, self.session, resource, access).await
    }

    /// Returns the value of a secret that the session has [mounted](SecretName::resource).
    ///
    /// From now on the value is redacted: in results, errors and events, the name of the secret is written in its
    /// place; see [`agent_workspace::secrets`].
    ///
    /// # Errors
    ///
    /// `Denied` if the secret is not mounted, or if that cannot be looked up; `NotFound` if it has no value, or if the
    /// agent [has no secrets](crate::agent::runtime::AgentRuntime::with_secrets); errors of the source.
    pub async fn secret(&self, name: &SecretName) -> Result<Secret> {
        let (sessions, secrets) = (&*self.storage.sessions, self.secrets.as_ref());
        mounted_secret(sessions, secrets, self.session, self.workspace, name).await
    }
}
