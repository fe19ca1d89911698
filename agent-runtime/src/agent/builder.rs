//! Builder of an agent; reports all missing parts in one error.

use std::sync::Arc;

use crate::agent::runtime::{AgentRuntime, Runs, Shared};
use crate::config::Config;
use crate::model::kept::KeptContexts;
use crate::model::options::ToolChoice;
use crate::model::provider::LlmProvider;
use crate::model::summarizer::Summarizer;
use crate::tool::function::Tool;
use crate::tool::plugin::Plugin;
use crate::tool::toolbox::{Sentences, Toolbox};
use agent_core::clock::Effects;
use agent_core::event::ToolUse;
use agent_core::isolated::called;
use agent_core::setters;
use agent_core::text::check_text;
use agent_core::{BindingStore, Error, Result, SessionStore, Sessions, Storage, WorkspaceStore};
use agent_workspace::blobs::with_blobs;
use agent_workspace::secrets::Secrets;

/// Builder that combines providers, stores and plugins into an [`AgentRuntime`].
///
/// A provider and the three stores are required; everything else is optional.
///
/// ```
/// use agent_core::MemoryStore;
/// use agent_runtime::{AgentBuilder, Config, EchoProvider};
///
/// let agent = AgentBuilder::new()
///     .with_config(Config::new().with_max_turns(8))
///     .with_llm(EchoProvider::new())
///     .with_storage(MemoryStore::new())
///     .build()?;
/// assert_eq!(agent.config().limits.turns, 8);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Debug)]
pub struct AgentBuilder {
    config: Config,
    providers: Vec<Arc<dyn LlmProvider>>,
    workspaces: Option<Arc<dyn WorkspaceStore>>,
    sessions: Option<Sessions>,
    bindings: Option<Arc<dyn BindingStore>>,
    plugins: Vec<Arc<dyn Plugin>>,
    sentences: Sentences,
    summarizer: Option<Arc<dyn Summarizer>>,
    effects: Option<Effects>,
    secrets: Option<Secrets>,
}

impl Default for AgentBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl AgentBuilder {
    /// Creates a builder with the default [configuration](Config) and no other parts.
    pub fn new() -> Self {
        Self {
            config: Config::default(),
            providers: Vec::new(),
            workspaces: None,
            sessions: None,
            bindings: None,
            plugins: Vec::new(),
            sentences: Sentences::default(),
            summarizer: None,
            effects: None,
            secrets: None,
        }
    }

    /// Sets the configuration; the default is [`Config::default`]. Replaces a configuration that was set before.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Adds a provider under its [name](LlmProvider::name).
    ///
    /// A session uses the provider that it [chooses](agent_core::model::Attributes::chosen_provider), else that of its
    /// [workspace](agent_core::model::Workspace::provider), else the active one, which the
    /// [configuration](field@Config::provider) names.
    ///
    /// ```
    /// # use agent_core::MemoryStore;
    /// use agent_runtime::{AgentBuilder, Config, EchoProvider, ScriptedProvider, Turn};
    ///
    /// let agent = AgentBuilder::new()
    ///     .with_llm(EchoProvider::new())
    ///     .with_llm(ScriptedProvider::new([Turn::new().text("Hello")]))
    ///     .with_config(Config::new().with_provider("scripted"))
    ///     .with_storage(MemoryStore::new())
    ///     .build()?;
    /// assert_eq!(agent.active_provider().name(), "scripted");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    #[must_use]
    pub fn with_llm(mut self, provider: impl LlmProvider) -> Self {
        self.providers.push(Arc::new(provider));
        self
    }

    /// Sets the stores of workspaces, sessions and device bindings together. Required, unless each is set on its own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    ///
    /// use agent_core::{Backend, MemoryStore};
    /// use agent_runtime::{AgentBuilder, EchoProvider};
    ///
    /// // A whole backend, or the stores of one tenant of it.
    /// let store = MemoryStore::new();
    /// let acme = store.tenant(&"acme".parse()?);
    /// let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// let agent = builder.with_storage(acme).build()?;
    /// agent.conversation("support/4711").await?;
    /// assert_eq!(store.tenants(None).await?.items, ["acme".parse()?]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_storage(mut self, storage: impl Into<Storage>) -> Self {
        let storage = storage.into();
        self.workspaces = Some(storage.workspaces);
        self.sessions = Some(storage.sessions);
        self.bindings = Some(storage.bindings);
        self
    }

    /// Sets the store of workspaces. Required, unless [`with_storage`](Self::with_storage) sets all three stores.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use agent_core::{MemoryStore, Storage};
    /// use agent_runtime::{AgentBuilder, EchoProvider};
    ///
    /// let (records, devices) = (Storage::from(MemoryStore::new()), Storage::from(MemoryStore::new()));
    /// let agent = AgentBuilder::new()
    ///     .with_llm(EchoProvider::new())
    ///     .with_workspace_store(records.workspaces.clone())
    ///     .with_session_store(records.sessions.store().clone())
    ///     .with_binding_store(devices.bindings.clone())
    ///     .build()?;
    /// assert!(Arc::ptr_eq(&agent.storage().workspaces, &records.workspaces));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    #[must_use]
    pub fn with_workspace_store(mut self, store: Arc<dyn WorkspaceStore>) -> Self {
        self.workspaces = Some(store);
        self
    }

    /// Sets the store of sessions; see [`with_workspace_store`](Self::with_workspace_store) for an example.
    #[must_use]
    pub fn with_session_store(mut self, store: Arc<dyn SessionStore>) -> Self {
        let effects = self.sessions.take().map_or_else(Effects::default, |former| former.effects().clone());
        self.sessions = Some(Sessions::new(store, effects));
        self
    }

    /// Sets the store of device bindings; see [`with_workspace_store`](Self::with_workspace_store) for an example.
    #[must_use]
    pub fn with_binding_store(mut self, store: Arc<dyn BindingStore>) -> Self {
        self.bindings = Some(store);
        self
    }

    /// Adds a plugin. Plugins are called in the order in which they were added.
    #[must_use]
    pub fn with_plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Adds an async function as a tool: see [`tool`](crate::tool). A tool is a [`Plugin`] with one tool.
    ///
    /// [`build`](Self::build) refuses two tools of the same name.
    #[must_use]
    pub fn with_tool(self, tool: Tool) -> Self {
        self.with_plugin(tool)
    }

    /// Sets the sentence with which a person is asked about the calls of a tool, whichever plugin has it: one of an MCP
    /// server, too. `None` leaves the question to the plugin; see [`Plugin::question`].
    ///
    /// ```
    /// # use agent_core::MemoryStore;
    /// use agent_runtime::{AgentBuilder, EchoProvider};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Mail {
    ///     to: String,
    /// }
    ///
    /// let builder = AgentBuilder::new()
    ///     .with_llm(EchoProvider::new())
    ///     .with_storage(MemoryStore::new())
    ///     .with_question("send", |call| {
    ///         let mail: Mail = call.input.to().ok()?;
    ///         Some(format!("Send this mail to {}?", mail.to))
    ///     });
    /// assert!(builder.build().is_ok());
    /// ```
    #[must_use]
    pub fn with_question(
        mut self,
        tool: impl Into<String>,
        question: impl Fn(&ToolUse) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.sentences.0.insert(tool.into(), Arc::new(question));
        self
    }

    setters! {
        /// Sets the summarizer of the older part of long conversations; see [`Summarizer`] for an example.
        ///
        /// Without one, a text names the number of events that a model is not given any more.
        pub fn with_summarizer(summarizer: impl Summarizer) => summarizer = Some(Arc::new(summarizer));

        /// Sets the source of time, ids and randomness; the default is that of the storage, and of the
    /// operating system if each store is set on its own. A storage that the host keeps has its own source: write beside
    /// the agent with [`AgentRuntime::storage`].
        ///
        /// ```
        /// use agent_core::clock::Effects;
        /// use agent_core::{MemoryStore, Timestamp};
        /// use agent_runtime::{AgentBuilder, EchoProvider};
        ///
        /// // Two runs of a test with the same seed write the same bytes.
        /// let build = || {
        ///     AgentBuilder::new()
        ///         .with_llm(EchoProvider::new())
        ///         .with_storage(MemoryStore::new())
        ///         .with_effects(Effects::seeded(7, Timestamp::UNIX_EPOCH))
        ///         .build()
        /// };
        /// assert_eq!(build()?.process(), build()?.process());
        /// # Ok::<(), agent_core::Error>(())
        /// ```
        pub fn with_effects(effects: Effects) => effects = Some(effects);

        /// Sets the secrets that the agent's tools can read, as [`AgentRuntime::with_secrets`] does. The default is no
        /// secrets.
        pub fn with_secrets(secrets: Secrets) => secrets = Some(secrets);
    }

    /// Checks that all parts are present and valid, and builds the runtime. No I/O.
    ///
    /// ```
    /// use agent_runtime::AgentBuilder;
    ///
    /// let error = AgentBuilder::new().build().unwrap_err().to_string();
    /// assert!(error.contains("a session store (with_session_store) is missing"), "{error}");
    /// assert!(error.contains("a provider (with_llm) is missing"), "{error}");
    /// ```
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
        let tools = tools.with_sentences(self.sentences);
        let tools = if self.config.read_outputs { tools.with_read_output() } else { tools };
        if let ToolChoice::Tool(name) = &self.config.tool_choice
            && !tools.has(name)
        {
            faults.push(format!("the tool choice names {name:?}, which no plugin has; add that tool"));
        }
        let (Some(workspaces), Some(sessions), Some(bindings), Some(active), true) =
            (self.workspaces, self.sessions, self.bindings, active, faults.is_empty())
        else {
            return Err(Error::invalid(format!("the agent cannot be built: {}", faults.join("; "))));
        };
        let effects = self.effects.unwrap_or_else(|| sessions.effects().clone());
        let process = effects.new_uuid().to_string();
        let storage = Storage::of(workspaces, sessions, bindings).with_effects(effects);
        let storage = with_blobs(storage);
        let contexts = Arc::new(KeptContexts::new(self.config.context_cache_bytes));
        let shared = Shared {
            config: self.config,
            contexts,
            providers: self.providers,
            names,
            active,
            reads_workspace_config: plugins.iter().any(|(_, plugin)| plugin.reads_workspace_config()),
            plugins,
            summarizer: self.summarizer,
            tools: Arc::new(tools),
            runs: Runs::default(),
            process,
        };
        let runtime = AgentRuntime::over(Arc::new(shared), storage, None);
        Ok(match self.secrets {
            Some(secrets) => runtime.with_secrets(secrets),
            None => runtime,
        })
    }

    /// Returns the name and the model of each provider. Runs use these copies and do not call the provider for them.
    fn provider_names(&self, faults: &mut Vec<String>) -> Vec<(String, String)> {
        let mut names: Vec<(String, String)> = Vec::with_capacity(self.providers.len());
        for (at, provider) in self.providers.iter().enumerate() {
            let asked = called(|| (provider.name().to_owned(), provider.model().to_owned()));
            let Some((name, model)) = asked else {
                faults.push(format!("provider {} panicked in `name` or `model`", at + 1));
                continue;
            };
            for checked in [check_text("provider name", &name, 256), check_text("model name", &model, 256)] {
                faults.extend(checked.err().map(|error| error.to_string()));
            }
            if names.iter().any(|(other, _)| *other == name) {
                faults.push(format!("two providers are named {name}; give each its own name"));
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
                        "the active provider {wanted:?} is not one of the providers ({}); add it with `with_llm`",
                        names.join(", ")
                    ));
                }
                found
            }
            None if names.len() > 1 => {
                faults.push(format!(
                    "the configuration names no active provider; choose one of {} with `Config::with_provider`",
                    names.join(", ")
                ));
                None
            }
            None => (!names.is_empty()).then_some(0),
        }
    }
}

/// Returns the plugins with their names. Runs use these copies and do not call the plugin for them.
fn named_plugins(plugins: Vec<Arc<dyn Plugin>>, faults: &mut Vec<String>) -> Vec<(String, Arc<dyn Plugin>)> {
    let mut named = Vec::with_capacity(plugins.len());
    for (at, plugin) in plugins.into_iter().enumerate() {
        match called(|| plugin.name().to_owned()) {
            Some(name) => named.push((name, plugin)),
            None => faults.push(format!("plugin {} panicked in `name`", at + 1)),
        }
    }
    named
}
