//! Wires an agent: names every missing part at once.

use std::sync::Arc;

use crate::runtime::agent::{AgentRuntime, Runs, Shared};
use crate::runtime::config::Config;
use crate::runtime::plugin::Plugin;
use crate::runtime::provider::LlmProvider;
use crate::runtime::tools::Toolbox;
use crate::secrets::Secrets;
use crate::workspaces::WorkspaceManager;
use agent_core::clock::Effects;
use agent_core::isolated::called;
use agent_core::text::check_text;
use agent_core::{BindingStore, Error, Result, SessionStore, Storage, WorkspaceStore};

/// Wires providers, stores and plugins into an [`AgentRuntime`].
///
/// ```
/// use std::sync::Arc;
/// use agent_core::MemoryStore;
/// use agent_runtime::{AgentBuilder, Config, EchoProvider};
///
/// let agent = AgentBuilder::new(Config::default())
///     .with_llm(Arc::new(EchoProvider::new()))
///     .with_storage(MemoryStore::new())
///     .build()?;
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Debug)]
pub struct AgentBuilder {
    config: Config,
    providers: Vec<Arc<dyn LlmProvider>>,
    workspaces: Option<Arc<dyn WorkspaceStore>>,
    sessions: Option<Arc<dyn SessionStore>>,
    bindings: Option<Arc<dyn BindingStore>>,
    plugins: Vec<Arc<dyn Plugin>>,
    effects: Effects,
    secrets: Option<Secrets>,
}

impl AgentBuilder {
    /// With this configuration, and no parts yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            providers: Vec::new(),
            workspaces: None,
            sessions: None,
            bindings: None,
            plugins: Vec::new(),
            effects: Effects::default(),
            secrets: None,
        }
    }

    /// Adds a provider, under its [name](LlmProvider::name). A session asks the one that it
    /// [chooses](agent_core::model::Attributes::chosen_provider), else that of its [workspace](agent_core::model::Workspace::provider), else the
    /// active one, which the [configuration](field@Config::provider) names.
    #[must_use]
    pub fn with_llm(mut self, provider: Arc<dyn LlmProvider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Fills all three slots for stores.
    #[must_use]
    pub fn with_storage(mut self, storage: impl Into<Storage>) -> Self {
        let storage = storage.into();
        self.workspaces = Some(storage.workspaces);
        self.sessions = Some(storage.sessions);
        self.bindings = Some(storage.bindings);
        self
    }

    /// Fills the slot for workspaces.
    #[must_use]
    pub fn with_workspace_store(mut self, store: Arc<dyn WorkspaceStore>) -> Self {
        self.workspaces = Some(store);
        self
    }

    /// Fills the slot for sessions.
    #[must_use]
    pub fn with_session_store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.sessions = Some(store);
        self
    }

    /// Fills the slot for bindings.
    #[must_use]
    pub fn with_binding_store(mut self, store: Arc<dyn BindingStore>) -> Self {
        self.bindings = Some(store);
        self
    }

    /// Adds a plugin, after those that are there.
    #[must_use]
    pub fn with_plugin(mut self, plugin: Arc<dyn Plugin>) -> Self {
        self.plugins.push(plugin);
        self
    }

    /// Sets where time, ids and randomness come from.
    #[must_use]
    pub fn with_effects(mut self, effects: Effects) -> Self {
        self.effects = effects;
        self
    }

    /// Gives the agent's tools these secrets, as [`AgentRuntime::with_secrets`] does.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Secrets) -> Self {
        self.secrets = Some(secrets);
        self
    }

    /// Checks that everything is there. No I/O.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with everything that is missing or wrong in one text.
    pub fn build(self) -> Result<AgentRuntime> {
        let mut faults = self.config.faults();
        for (slot, missing) in [
            ("a workspace store (with_workspace_store)", self.workspaces.is_none()),
            ("a session store (with_session_store)", self.sessions.is_none()),
            ("a binding store (with_binding_store)", self.bindings.is_none()),
            ("a provider (with_llm)", self.providers.is_empty()),
        ] {
            if missing {
                faults.push(format!("{slot} is missing"));
            }
        }
        let names = self.provider_names(&mut faults);
        let active = self.active_provider(&names, &mut faults);
        let plugins = named_plugins(self.plugins, &mut faults);
        let tools = Toolbox::new(&plugins, &self.config.tool_policies, &mut faults);
        let (Some(workspaces), Some(sessions), Some(bindings), Some(active), true) =
            (self.workspaces, self.sessions, self.bindings, active, faults.is_empty())
        else {
            return Err(Error::invalid(format!("the agent cannot be built: {}", faults.join("; "))));
        };
        let storage = Storage::new(workspaces, sessions, bindings);
        let workspaces = WorkspaceManager::new(storage.clone(), self.effects.clone());
        let process = self.effects.new_uuid().to_string();
        let shared = Shared {
            config: self.config,
            providers: self.providers,
            names,
            active,
            plugins,
            tools,
            effects: self.effects,
            runs: Runs::default(),
            process,
        };
        let (shared, lines) = (Arc::new(shared), Arc::default());
        let runtime = AgentRuntime { shared, storage, workspaces, secrets: None, lines };
        Ok(match self.secrets {
            Some(secrets) => runtime.with_secrets(secrets),
            None => runtime,
        })
    }

    /// The name and the model of each provider: asked once, so that no run asks.
    fn provider_names(&self, faults: &mut Vec<String>) -> Vec<(String, String)> {
        let mut names: Vec<(String, String)> = Vec::with_capacity(self.providers.len());
        for (at, provider) in self.providers.iter().enumerate() {
            let asked = called(|| (provider.name().to_owned(), provider.model().to_owned()));
            let Some((name, model)) = asked else {
                faults.push(format!("provider {} panicked when it was asked for its name and model", at + 1));
                continue;
            };
            for checked in [check_text("provider name", &name, 256), check_text("model name", &model, 256)] {
                faults.extend(checked.err().map(|error| error.to_string()));
            }
            if names.iter().any(|(other, _)| *other == name) {
                faults.push(format!("two providers are named {name}"));
            }
            names.push((name, model));
        }
        names
    }

    fn active_provider(&self, names: &[(String, String)], faults: &mut Vec<String>) -> Option<usize> {
        let names: Vec<_> = names.iter().map(|(name, _)| &**name).collect();
        match &self.config.provider {
            Some(wanted) => {
                let found = names.iter().position(|name| name == wanted);
                if found.is_none() {
                    faults.push(format!(
                        "the active provider {wanted:?} is not among the providers given ({})",
                        names.join(", ")
                    ));
                }
                found
            }
            None if names.len() > 1 => {
                faults.push(format!(
                    "the configuration names no active provider; choose one of {}",
                    names.join(", ")
                ));
                None
            }
            None => (!names.is_empty()).then_some(0),
        }
    }
}

/// Plugins under their names: asked once, so that no run asks.
fn named_plugins(plugins: Vec<Arc<dyn Plugin>>, faults: &mut Vec<String>) -> Vec<(String, Arc<dyn Plugin>)> {
    let mut named = Vec::with_capacity(plugins.len());
    for (at, plugin) in plugins.into_iter().enumerate() {
        match called(|| plugin.name().to_owned()) {
            Some(name) => named.push((name, plugin)),
            None => faults.push(format!("plugin {} panicked when it was asked for its name", at + 1)),
        }
    }
    named
}
