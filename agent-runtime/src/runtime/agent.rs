//! The agent: models, plugins, a configuration and stores. Built once; what it does with sessions is in the layers above.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::runtime::config::Config;
use crate::runtime::line::Lines;
use crate::runtime::plugin::Plugin;
use crate::runtime::provider::LlmProvider;
use crate::runtime::tools::Toolbox;
use crate::secrets::Secrets;
use crate::workspaces::WorkspaceManager;
use agent_core::clock::Effects;
use agent_core::json::RawJson;
use agent_core::{Error, ErrorKind, Result, Storage};

/// How long runs may go on when the agent is closed.
const CLOSING: Duration = Duration::from_secs(5);

/// Models, plugins and a configuration on the stores of one tenant. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AgentRuntime {
    pub(crate) shared: Arc<Shared>,
    pub(crate) storage: Storage,
    pub(crate) workspaces: WorkspaceManager,
    pub(crate) secrets: Option<Secrets>,
    /// Of these stores: what waits for one of their sessions is written to no other.
    pub(crate) lines: Arc<Lines>,
}

/// What the runtimes of all tenants have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) providers: Vec<Arc<dyn LlmProvider>>,
    /// The name and the model of each provider, as they were when the runtime was built.
    pub(crate) names: Vec<(String, String)>,
    pub(crate) active: usize,
    /// Each under its name.
    pub(crate) plugins: Vec<(String, Arc<dyn Plugin>)>,
    pub(crate) tools: Toolbox,
    pub(crate) effects: Effects,
    pub(crate) runs: Runs,
    /// Minted when the runtime was built.
    pub(crate) process: String,
}

impl Shared {
    pub(crate) fn provider(&self) -> &Arc<dyn LlmProvider> {
        // `build` has checked that the index is one of a provider.
        &self.providers[self.active]
    }

    /// The name of the active provider.
    pub(crate) fn provider_name(&self) -> &str {
        &self.names[self.active].0
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<dyn LlmProvider>> {
        self.at(name).map(|at| &self.providers[at])
    }

    /// The model of the provider of this name.
    pub(crate) fn model(&self, provider: &str) -> Option<&str> {
        self.at(provider).map(|at| &*self.names[at].1)
    }

    fn at(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|(known, _)| known == name)
    }
}

impl AgentRuntime {
    /// The workspaces of this tenant.
    pub const fn workspaces(&self) -> &WorkspaceManager {
        &self.workspaces
    }

    /// The stores of this tenant.
    pub const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The providers, in the order in which they were given.
    pub fn providers(&self) -> &[Arc<dyn LlmProvider>] {
        &self.shared.providers
    }

    /// The provider that runs ask, unless the session or its workspace [chooses](agent_core::model::Attributes::chosen_provider)
    /// another.
    pub fn active_provider(&self) -> &Arc<dyn LlmProvider> {
        self.shared.provider()
    }

    /// The name of this runtime among all that ever were, by which a handle on something outside is known to be
    /// [of use](agent_core::model::ExternalHandle::liveness) here or stale. Another one after every start.
    pub fn process(&self) -> &str {
        &self.shared.process
    }

    /// Where time, ids and randomness come from.
    pub fn effects(&self) -> &Effects {
        &self.shared.effects
    }

    /// The same models and plugins on the stores of another tenant, which has secrets of its own, and none before
    /// [`with_secrets`](Self::with_secrets). No I/O. They are shut down together.
    #[must_use]
    pub fn rebind(&self, storage: Storage) -> Self {
        let workspaces = WorkspaceManager::new(storage.clone(), self.shared.effects.clone());
        Self { shared: self.shared.clone(), storage, workspaces, secrets: None, lines: Arc::default() }
    }

    /// Gives the tools of this tenant's sessions these secrets, and [hides](crate::secrets) from its stores what they were
    /// given.
    #[must_use]
    pub fn with_secrets(self, secrets: Secrets) -> Self {
        let storage = secrets.hidden_from(self.storage);
        let workspaces = WorkspaceManager::new(storage.clone(), self.shared.effects.clone());
        Self { shared: self.shared, storage, workspaces, secrets: Some(secrets), lines: Arc::default() }
    }

    /// A text for a log or a report, without the values of secrets.
    pub(crate) fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.as_ref().map_or(Cow::Borrowed(text), |secrets| secrets.hide(text))
    }

    /// The same for JSON.
    pub(crate) fn hide_json(&self, json: RawJson) -> RawJson {
        match &self.secrets {
            Some(secrets) => secrets.hide_json(json),
            None => json,
        }
    }

    /// Starts no more runs, lets those that run go on for `grace`, and ends the rest as interrupted. Then the streams of
    /// [`SessionHandle::follow`](crate::handle::SessionHandle::follow) end, after the last events that are stored.
    ///
    /// # Errors
    ///
    /// `Unavailable` where a run did not end in another `grace` (or 5 seconds, if that is more): its lease expires
    /// by itself.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        let runs = &self.shared.runs;
        runs.closed.send_replace(true);
        // Also if runs do not end in time, or this future is dropped.
        let _over = Over(runs);
        if timeout(grace, runs.ended()).await.is_ok() {
            return Ok(());
        }
        runs.stop.send_replace(true);
        let time = grace.max(Duration::from_secs(5));
        timeout(time, runs.ended()).await.map_err(|_| {
            let left = *runs.count.borrow();
            Error::new(
                ErrorKind::Unavailable,
                format!("{left} runs did not end; their sessions go on when their leases have expired"),
            )
        })
    }

    /// Ends the agent: [shuts down](Self::shutdown) with a grace of 5 seconds, then [closes](Storage::close) this tenant's
    /// stores, and with them their backends for all tenants. On return no run goes on and nothing of this process holds the
    /// stores' files.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use std::sync::Arc;
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, Config, EchoProvider};
    /// # let builder = AgentBuilder::new(Config::default()).with_llm(Arc::new(EchoProvider::new()));
    /// let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// let chat = agent.open(&"laptop".parse()?).await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// agent.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the agent starts no more runs; call it again to close the stores.
    ///
    /// # Errors
    ///
    /// Those of [`shutdown`](Self::shutdown), after which the stores are closed all the same; those of the stores.
    pub async fn close(&self) -> Result<()> {
        let ended = self.shutdown(CLOSING).await;
        let closed = self.storage.close().await;
        ended.and(closed)
    }
}

/// The runs of this process.
#[derive(Debug)]
pub(crate) struct Runs {
    closed: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    over: watch::Sender<bool>,
    count: watch::Sender<usize>,
}

/// Says that a shutdown is over, when it is dropped.
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
        }
    }
}

/// The place of one run among the runs of this process.
#[derive(Debug)]
pub(crate) struct Slot {
    shared: Arc<Shared>,
}

impl Slot {
    /// A place for a run.
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
    Error::new(ErrorKind::Unavailable, "the agent is shutting down; it starts no more runs")
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.runs.count.send_modify(|count| *count -= 1);
    }
}

impl Runs {
    async fn ended(&self) {
        // The sender is here, so waiting cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Tells when no more runs are started.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }

    /// Tells when the runs have ended, and nothing more is to come.
    pub(crate) fn over(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }

    /// Tells when late runs are to end.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }
}
