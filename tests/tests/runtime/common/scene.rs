//! Scenes of the tests: an agent on the stores of a site, one conversation of it, a clock, and tools.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::clock::{Clock, Effects};
use agent_core::json::RawJson;
use agent_core::model::PendingAction;
use agent_core::{Result, Storage, Timestamp, async_trait};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, EchoProvider, LlmProvider, Plugin, RunOutcome,
    ToolContext, ToolMode, ToolSpec,
};
use agent_tests::Site;

use super::{Faulty, device};

/// Time of a clock that is not set yet: 2026-02-15T10:30:00Z.
const START: Timestamp = Timestamp::from_micros(1_771_151_400_000_000);

/// An agent on the stores of a site, and the conversation of the device `laptop`.
pub(crate) struct Scene {
    /// Kind of the store, for the texts of assertions.
    pub(crate) name: &'static str,
    pub(crate) storage: Storage,
    pub(crate) agent: AgentRuntime,
    pub(crate) chat: Conversation,
}

impl Scene {
    pub(crate) async fn new(site: &Site, model: impl LlmProvider) -> Self {
        Self::with(site, model, Config::default(), []).await
    }

    /// A scene whose model repeats what it is sent.
    pub(crate) async fn echo(site: &Site) -> Self {
        Self::new(site, EchoProvider::new()).await
    }

    pub(crate) async fn with<const N: usize>(
        site: &Site,
        model: impl LlmProvider,
        config: Config,
        plugins: [Arc<dyn Plugin>; N],
    ) -> Self {
        Self::on(site.name, site.open().await, model, config, plugins).await
    }

    /// A scene on stores that fail on demand.
    pub(crate) async fn faulty(site: &Site, model: impl LlmProvider, config: Config) -> (Faulty, Self) {
        let faulty = Faulty::new(site.open().await);
        let scene = Self::on(site.name, faulty.storage(), model, config, []).await;
        (faulty, scene)
    }

    async fn on<const N: usize>(
        name: &'static str,
        storage: Storage,
        model: impl LlmProvider,
        config: Config,
        plugins: [Arc<dyn Plugin>; N],
    ) -> Self {
        let agent = agent_with(&storage, model, config, plugins);
        let chat = agent.open(&device("laptop")).await.unwrap();
        Self { name, storage, agent, chat }
    }
}

/// An agent that uses `model`, on `storage`.
pub(crate) fn agent(storage: &Storage, model: impl LlmProvider) -> AgentRuntime {
    agent_with(storage, model, Config::default(), [])
}

pub(crate) fn agent_with<const N: usize>(
    storage: &Storage,
    model: impl LlmProvider,
    config: Config,
    plugins: [Arc<dyn Plugin>; N],
) -> AgentRuntime {
    builder(storage, model, config, plugins).build().unwrap()
}

/// An agent with the time of `clock`.
pub(crate) fn agent_at<const N: usize>(
    clock: &Arc<SetClock>,
    storage: &Storage,
    model: impl LlmProvider,
    config: Config,
    plugins: [Arc<dyn Plugin>; N],
) -> AgentRuntime {
    let effects = Effects::default().with_clock(clock.clone());
    builder(storage, model, config, plugins).with_effects(effects).build().unwrap()
}

fn builder<const N: usize>(
    storage: &Storage,
    model: impl LlmProvider,
    config: Config,
    plugins: [Arc<dyn Plugin>; N],
) -> AgentBuilder {
    let mut builder = AgentBuilder::new().with_config(config).with_llm(model).with_storage(storage.clone());
    for plugin in plugins {
        builder = builder.with_plugin(plugin);
    }
    builder
}

pub(crate) fn json(text: &str) -> RawJson {
    RawJson::parse(text).unwrap()
}

/// The action that a run waits for.
pub(crate) fn awaited(outcome: RunOutcome) -> PendingAction {
    match outcome {
        RunOutcome::Awaiting(action) => action,
        other => panic!("waits for nothing: {other:?}"),
    }
}

/// Clock that a test sets.
#[derive(Debug)]
pub(crate) struct SetClock {
    micros: AtomicI64,
    /// Microseconds by which each reading advances the clock.
    step: i64,
}

impl SetClock {
    pub(crate) fn new() -> Arc<Self> {
        Self::at(START)
    }

    /// A clock that only the test advances.
    pub(crate) fn stopped() -> Arc<Self> {
        Arc::new(Self { micros: AtomicI64::new(START.as_micros()), step: 0 })
    }

    /// A clock that starts at `time`.
    pub(crate) fn at(time: Timestamp) -> Arc<Self> {
        Arc::new(Self { micros: AtomicI64::new(time.as_micros()), step: 1 })
    }

    pub(crate) fn set(&self, time: Timestamp) {
        self.micros.store(time.as_micros(), Ordering::SeqCst);
    }

    pub(crate) fn forward(&self, seconds: i64) {
        self.micros.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    pub(crate) fn in_seconds(&self, seconds: i64) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst)).plus_micros(seconds * 1_000_000)
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.fetch_add(self.step, Ordering::SeqCst))
    }
}

/// Tools that record the inputs of their calls.
#[derive(Debug)]
pub(crate) struct Tools {
    tools: Vec<ToolSpec>,
    output: Option<RawJson>,
    inputs: Mutex<Vec<String>>,
}

impl Tools {
    /// Tools whose output is "NAME done".
    pub(crate) fn new<const N: usize>(tools: [(&str, ToolMode); N]) -> Arc<Self> {
        Arc::new(Self { tools: specs(tools), output: None, inputs: Mutex::default() })
    }

    /// Tools that all have this output.
    pub(crate) fn returning<const N: usize>(output: RawJson, tools: [(&str, ToolMode); N]) -> Arc<Self> {
        Arc::new(Self { tools: specs(tools), output: Some(output), inputs: Mutex::default() })
    }

    /// Number of calls.
    pub(crate) fn calls(&self) -> usize {
        self.inputs.lock().unwrap().len()
    }

    pub(crate) fn inputs(&self) -> Vec<String> {
        self.inputs.lock().unwrap().clone()
    }
}

fn specs<const N: usize>(tools: [(&str, ToolMode); N]) -> Vec<ToolSpec> {
    let spec = |(name, mode): (&str, ToolMode)| ToolSpec::new(name, "does it").with_mode(mode);
    tools.map(spec).into()
}

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        self.tools.clone()
    }

    async fn call(&self, tool: &str, input: RawJson, _: ToolContext) -> Result<RawJson> {
        self.inputs.lock().unwrap().push(input.get().to_owned());
        match &self.output {
            Some(output) => Ok(output.clone()),
            None => RawJson::of(&format!("{tool} done")),
        }
    }
}
