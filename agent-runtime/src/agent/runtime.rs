//! Agent runtime: models, plugins, a configuration and stores. Other modules add the methods on sessions.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::warn;

use crate::agent::active::ActiveRuns;
use crate::agent::touches::Touches;
use crate::config::Config;
use crate::model::kept::{KeptContexts, TenantContexts};
use crate::model::provider::LlmProvider;
use crate::model::summarizer::Summarizer;
use crate::run::handle::Run;
use crate::run::queue::Lines;
use crate::tool::plugin::Plugin;
use crate::tool::toolbox::Toolbox;
use agent_core::clock::Effects;
use agent_core::commit::LeaseRequest;
use agent_core::isolated::isolated;
use agent_core::json::RawJson;
use agent_core::search::{Search, SearchPage};
use agent_core::{Error, OwnerId, Result, SessionId, Storage};
use agent_workspace::WorkspaceManager;
use agent_workspace::blobs::with_blobs;
use agent_workspace::secrets::Secrets;

/// Time that [`AgentRuntime::close`] gives running runs before it interrupts them.
const CLOSING: Duration = Duration::from_secs(5);

/// Agent: models, plugins and a configuration on the stores of one tenant. Cloning is cheap.
///
/// An [`AgentBuilder`](crate::AgentBuilder) builds it once; all clones share their runs and their shutdown.
///
/// Which method opens a [`Conversation`](crate::Conversation) depends on what the host has. With a key of its own, like
/// the number of a ticket: [`conversation`](Self::conversation), which creates what it does not find;
/// [`find_conversation`](Self::find_conversation), which creates nothing; [`conversation_with`](Self::conversation_with),
/// which also prompts it, and creates it together with this first input in one commit; and
/// [`recreate_conversation`](Self::recreate_conversation), which begins a new one if it was deleted. These use the default
/// workspace; [`workspace(id)`](Self::workspace) has the same four for another one. With a device that has one
/// conversation: [`open(device)`](Self::open). With the id of a session, from a list or a link:
/// [`conversation_by_id`](Self::conversation_by_id).
#[derive(Clone, Debug)]
pub struct AgentRuntime {
    pub(crate) shared: Arc<Shared>,
    pub(crate) storage: Storage,
    pub(crate) workspaces: WorkspaceManager,
    pub(crate) secrets: Option<Secrets>,
    /// Queues of waiting inputs for the sessions of these stores. An input that waits here is written to no other
    /// store.
    pub(crate) lines: Arc<Lines>,
    /// When the uses of these stores' workspaces were recorded.
    pub(crate) touches: Arc<Touches>,
    /// Contexts of these stores' conversations, between their runs.
    pub(crate) contexts: Arc<TenantContexts>,
}

/// Parts that the runtimes of all tenants share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) providers: Vec<Arc<dyn LlmProvider>>,
    /// Name and model of each provider, read once when the runtime was built.
    pub(crate) names: Vec<(String, String)>,
    pub(crate) active: usize,
    /// Plugins, each with its name.
    pub(crate) plugins: Vec<(String, Arc<dyn Plugin>)>,
    /// Whether a plugin needs the configuration of workspaces.
    pub(crate) reads_workspace_config: bool,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) summarizer: Option<Arc<dyn Summarizer>>,
    pub(crate) runs: Runs,
    pub(crate) contexts: Arc<KeptContexts>,
    /// Unique id of this runtime, generated when it was built.
    pub(crate) process: String,
}

impl Shared {
    pub(crate) fn provider(&self) -> &Arc<dyn LlmProvider> {
        // `build` has checked that the index is one of a provider.
        &self.providers[self.active]
    }

    /// Returns the name of the active provider.
    pub(crate) fn provider_name(&self) -> &str {
        &self.names[self.active].0
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<dyn LlmProvider>> {
        self.at(name).map(|at| &self.providers[at])
    }

    /// Returns the model of the provider with this name.
    pub(crate) fn model(&self, provider: &str) -> Option<&str> {
        self.at(provider).map(|at| &*self.names[at].1)
    }

    fn at(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|(known, _)| known == name)
    }
}

impl AgentRuntime {
    /// Returns a runtime over these stores, in which no run is active.
    pub(crate) fn over(shared: Arc<Shared>, storage: Storage, secrets: Option<Secrets>) -> Self {
        let workspaces = WorkspaceManager::new(storage.clone());
        let contexts = Arc::new(TenantContexts::new(shared.contexts.clone()));
        let (lines, touches) = Default::default();
        Self { shared, storage, workspaces, secrets, lines, touches, contexts }
    }

    /// Returns the manager of this tenant's workspaces.
    pub const fn workspaces(&self) -> &WorkspaceManager {
        &self.workspaces
    }

    /// Returns the stores of this tenant.
    pub const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Searches the sessions of this tenant, or of this owner, for what people and agents have written, newest first.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::search::Search;
    ///
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("The deploy to staging failed").await?.finish().await?;
    /// let page = agent.search(&Search::new("deploy \"to staging\" -production")).await?;
    /// for hit in &page.hits {
    ///     println!("{} {} {}", hit.session, hit.seq, hit.snippet.marked("**"));
    /// }
    /// assert_eq!(page.hits.len(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Sessions::search`](agent_core::Sessions::search).
    pub async fn search(&self, search: &Search) -> Result<SearchPage> {
        self.storage.sessions.search(search).await
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the providers, in the order in which they were added.
    pub fn providers(&self) -> &[Arc<dyn LlmProvider>] {
        &self.shared.providers
    }

    /// Returns the provider that runs use by default. A session or its workspace can
    /// [choose](agent_core::model::Attributes::chosen_provider) another one.
    pub fn active_provider(&self) -> &Arc<dyn LlmProvider> {
        self.shared.provider()
    }

    /// Returns the unique id of this runtime. Every build generates a new id.
    ///
    /// A handle on an external resource records the id, which shows a later process whether the handle is
    /// [live](agent_core::model::ExternalHandle::liveness) or stale.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::model::{ExternalHandle, Liveness, Patch};
    ///
    /// # let (agent, chat) = echo().await?;
    /// let container = ExternalHandle::new("container", "c0ffee").with_process(agent.process());
    /// chat.update(Patch::new().with_handle("sandbox", container)).await?;
    /// let record = chat.record();
    /// assert_eq!(record.attributes.handles["sandbox"].liveness(agent.process()), Liveness::Live);
    ///
    /// // The next process must create the container again.
    /// # let agent = echo_agent()?;
    /// assert_eq!(record.attributes.handles["sandbox"].liveness(agent.process()), Liveness::Stale);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "attach_handle")]
    pub fn process(&self) -> &str {
        &self.shared.process
    }

    /// Returns the source of time, ids and randomness.
    pub fn effects(&self) -> &Effects {
        self.storage.effects()
    }

    /// Returns the ttl of the leases of this runtime's runs: as configured, or longer if the store requires that.
    pub(crate) fn lease_ttl(&self) -> Duration {
        let least = self.storage.sessions.capabilities().min_lease.min(LeaseRequest::MAX_TTL);
        self.shared.config.lease_ttl.max(least)
    }

    /// Returns a runtime with the same models and plugins on the stores of another tenant. No I/O.
    ///
    /// Times and ids come from this runtime's source, not from that of `storage`. The new runtime has no secrets until [`with_secrets`](Self::with_secrets) is called. Shutting down one of the
    /// runtimes shuts down all of them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// use agent_core::{Backend, ErrorKind, MemoryStore};
    ///
    /// let store = MemoryStore::new();
    /// let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(store.clone()).build()?;
    /// let acme = agent.for_storage(store.tenant(&"acme".parse()?));
    /// let chat = acme.conversation("support/4711").await?;
    ///
    /// // Other tenants do not see the session.
    /// let error = agent.conversation_by_id(chat.id()).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::NotFound);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn for_storage(&self, storage: Storage) -> Self {
        let storage = with_blobs(storage.with_effects(self.effects().clone()));
        Self::over(self.shared.clone(), storage, None)
    }

    /// Returns a runtime for one [owner](Storage::for_owner) of the storage's tenant, with the same models, tools and
    /// secrets. What a tool reaches by its context is the owner's, too. A [`Scheduler`](crate::Scheduler) runs the sessions
    /// of owners so.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// let (alice, bob) = (agent.for_owner(&"alice".parse()?), agent.for_owner(&"bob".parse()?));
    /// let notes = alice.conversation("notes").await?;
    /// assert_ne!(bob.conversation("notes").await?.id(), notes.id());
    /// assert!(bob.conversation_by_id(notes.id()).await.is_err());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn for_owner(&self, owner: &OwnerId) -> Self {
        Self::over(self.shared.clone(), self.storage.for_owner(owner), self.secrets.clone())
    }

    /// Returns a runtime whose tools can read these secrets of the tenant.
    ///
    /// Every value that was given out is [redacted](agent_workspace::secrets) from all later writes to the tenant's stores.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// use std::collections::BTreeMap;
    /// use agent_core::WorkspaceId;
    /// use agent_core::store::ReadEvents;
    /// use agent_runtime::secrets::{Secret, SecretName, Secrets};
    ///
    /// let name: SecretName = "github".parse()?;
    /// let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("ghp_0123456789")?)]));
    /// let agent = agent.with_secrets(secrets.clone());
    ///
    /// // A tool reads the value with `ToolContext::secret`.
    /// secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
    /// let chat = agent.conversation("support/4711").await?;
    /// chat.send("My token is ghp_0123456789.").await?;
    /// let event = chat.history(ReadEvents::last(1)).await?.events.remove(0);
    /// assert_eq!(event.text().as_deref(), Some("My token is (secret github)."));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_secrets(self, secrets: Secrets) -> Self {
        Self::over(self.shared, secrets.hidden_from(self.storage), Some(secrets))
    }

    /// Returns a new stream of the run that is active in a session, if this process executes one. No I/O.
    ///
    /// Use it after a lost connection, or for a second reader: any number of streams may read one run, each bounded as
    /// [`Run`] says, and none slows the run. Each can [cancel](Run::cancel) it, and [`finish`](Run::finish) returns its
    /// report. The run continues if all of them are dropped.
    ///
    /// The stream has the updates from now on. Earlier updates are missing: [`Started`](crate::Update::Started), the
    /// tool calls and results until now, and the pieces of the answer that is being streamed. What the run has stored
    /// is in the [history](crate::Conversation::history), which has everything but the text of the present answer;
    /// that text is stored as a whole, before the run ends. Attach first and then read the history, so that nothing is
    /// missed in between. [`Conversation::live`](crate::Conversation::live) has all of it: the events, and the text of the
    /// present answer from its beginning.
    ///
    /// Returns `None` if no run is active in the session, or if another process executes it, in which case
    /// [`Conversation::follow`](crate::Conversation::follow) shows what is stored. Finds the runs that this runtime and
    /// its clones have started. A runtime that [`for_storage`](Self::for_storage), [`for_owner`](Self::for_owner) or
    /// [`with_secrets`](Self::with_secrets) returned is another one; a host with several tenants or owners keeps one
    /// runtime for each. A run that the scheduler of a tenant has begun in an owner's session is followed as one of another
    /// process is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (gate, agent, chat) = gated(["Hello"]).await?;
    /// let run = chat.prompt("Hello?").await?;
    /// let id = run.id();
    /// drop(run); // the connection was lost
    ///
    /// let run = agent.attach(chat.id()).expect("the run continues");
    /// assert_eq!(run.id(), id);
    /// # gate.open();
    /// assert_eq!(run.finish().await?.text, "Hello");
    /// assert!(agent.attach(chat.id()).is_none());
    /// # Ok(()) }
    /// ```
    pub fn attach(&self, session: SessionId) -> Option<Run> {
        self.shared.runs.active.attach(&self.lines, session)
    }

    /// Returns a text for a log or a report, with the values of secrets redacted.
    pub(crate) fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.as_ref().map_or(Cow::Borrowed(text), |secrets| secrets.redact(text))
    }

    /// Returns the number of values of secrets that are redacted.
    pub(crate) fn known_secrets(&self) -> usize {
        self.secrets.as_ref().map_or(0, Secrets::known_values)
    }

    /// Returns JSON with the values of secrets redacted.
    pub(crate) fn redact_json(&self, json: RawJson) -> RawJson {
        match &self.secrets {
            Some(secrets) => secrets.redact_json(json),
            None => json,
        }
    }

    /// Shuts the runtime down: starts no more runs, waits up to `grace` for the active runs, then interrupts the rest.
    ///
    /// An interrupted run stores its output so far. When all runs have ended, the streams of
    /// [`Conversation::follow`](crate::conversation::handle::Conversation::follow) return the last stored events and end. The stores
    /// stay open; [`close`](Self::close) closes them too. Plugins [end](Plugin::close) what they have started.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use std::time::Duration;
    /// use agent_core::ErrorKind;
    ///
    /// let run = chat.prompt("Hello").await?;
    /// agent.shutdown(Duration::from_secs(30)).await?;
    /// assert_eq!(run.finish().await?.text, "Hello");
    ///
    /// let error = chat.prompt("Are you there?").await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the runtime starts no more runs, and the active runs continue; call it again to wait
    /// for them.
    ///
    /// # Errors
    ///
    /// `Unavailable` if a run does not end within another `grace` (at least 5 seconds) after its interruption. Its
    /// lease then expires, and another process can run its session.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        let runs = &self.shared.runs;
        runs.closed.send_replace(true);
        // Also if runs do not end in time, or this future is dropped.
        let over = Over(runs);
        let ended = self.end_runs(grace).await;
        drop(over);
        self.close_plugins().await;
        ended
    }

    async fn end_runs(&self, grace: Duration) -> Result<()> {
        let runs = &self.shared.runs;
        if timeout(grace, runs.ended()).await.is_ok() {
            return Ok(());
        }
        runs.stop.send_replace(true);
        let time = grace.max(Duration::from_secs(5));
        timeout(time, runs.ended()).await.map_err(|_| {
            let left = *runs.count.borrow();
            Error::unavailable(format!(
                "{left} runs did not end; their sessions continue when their leases have expired"
            ))
        })
    }

    /// Lets plugins end what they have started. One that panics or takes too long holds nobody up.
    async fn close_plugins(&self) {
        for (name, plugin) in &self.shared.plugins {
            match timeout(CLOSING, isolated(|| plugin.close())).await {
                Ok(Some(())) => {}
                Ok(None) => warn!(plugin = name, "a plugin panicked when it was closed"),
                Err(_) => warn!(plugin = name, "a plugin took too long to close"),
            }
        }
    }

    /// Shuts the agent [down](Self::shutdown) with a grace of 5 seconds, then [closes](Storage::close) its stores.
    ///
    /// This closes the backends of the stores for all tenants. After success, no run is active, and nothing in this
    /// process holds the files of the stores.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// let chat = agent.open(&"laptop".parse()?).await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// agent.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it returns, the agent starts no more runs; call it again to close the stores.
    ///
    /// # Errors
    ///
    /// Errors of [`shutdown`](Self::shutdown), after which the stores are closed nevertheless; errors of the stores.
    pub async fn close(&self) -> Result<()> {
        let ended = self.shutdown(CLOSING).await;
        let closed = self.storage.close().await;
        ended.and(closed)
    }
}

/// Runs of this process, and the signals that stop them.
#[derive(Debug)]
pub(crate) struct Runs {
    closed: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    over: watch::Sender<bool>,
    count: watch::Sender<usize>,
    /// Runs that have started and not ended, on the stores of all tenants.
    pub(crate) active: Arc<ActiveRuns>,
}

/// Guard that signals the end of a shutdown when it is dropped.
struct Over<'a>(&'a Runs);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.send_replace(true);
    }
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            closed: watch::Sender::new(false),
            stop: watch::Sender::new(false),
            over: watch::Sender::new(false),
            count: watch::Sender::new(0),
            active: Arc::default(),
        }
    }
}

/// Permit for one run among the runs of this process.
#[derive(Debug)]
pub(crate) struct RunPermit {
    shared: Arc<Shared>,
}

impl RunPermit {
    /// Returns a permit for a run, or an error during a shutdown.
    pub(crate) fn admit(shared: &Arc<Shared>) -> Result<Self> {
        // Counted first, so that a shutdown that begins meanwhile waits for it.
        shared.runs.count.send_modify(|count| *count += 1);
        let slot = Self { shared: shared.clone() };
        if *slot.shared.runs.closed.borrow() {
            return Err(shutting_down());
        }
        Ok(slot)
    }
}

pub(crate) fn shutting_down() -> Error {
    Error::unavailable("the agent is shutting down; it starts no more runs")
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        self.shared.runs.count.send_modify(|count| *count -= 1);
    }
}

impl Runs {
    async fn ended(&self) {
        // The sender is here, so waiting cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Returns a receiver that becomes `true` when no more runs are started.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }

    /// Returns a receiver that becomes `true` when all runs have ended and no more events follow.
    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }

    /// Returns a receiver that becomes `true` when runs that exceed the grace must end.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}
