//! Plugin of an agent: the servers of its sessions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use agent_core::json::RawJson;
use agent_core::model::Actor;
use agent_core::text::quoted;
use agent_core::{Error, Result, RunId, SessionId, SessionStore, async_trait};
use agent_runtime::configuration::ConfigLayers;
use agent_runtime::documents::Documents;
use agent_runtime::secrets::Secrets;
use agent_runtime::{AgentRuntime, Conversation, Plugin, SessionContext, ToolContext, ToolOutput, ToolSpec};
use futures::future::join_all;
use rmcp::model::JsonObject;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::config::McpServers;
use crate::consent::{self, Permissions};
use crate::hub::Hub;
use crate::link::{Failed, Link, ServerStatus, changed};
use crate::resolved::Resolved;
use crate::schema;
use crate::session_servers::{Busy, SessionServers, Tools};
use crate::tool::{McpTool, SEPARATOR};

/// Time after which a session that is not used loses its servers, if no other is set.
const IDLE: Duration = Duration::from_secs(600);

/// MCP servers of an agent: a [`Plugin`] whose tools are those of the servers. Cloning is cheap.
///
/// One value belongs to one agent. Keep a clone, to show tools and to store permissions:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::MemoryStore;
/// use agent_mcp::{Mcp, McpServer, McpServers};
/// use agent_runtime::{AgentBuilder, EchoProvider};
///
/// // No program of this name exists: the agent works without its tools.
/// let servers = McpServers::new().with_server("files", McpServer::command("no-such-program"))?;
/// let mcp = Mcp::new(servers);
/// let agent = AgentBuilder::new()
///     .with_llm(EchoProvider::new())
///     .with_storage(MemoryStore::new())
///     .with_plugin(mcp.clone())
///     .build()?;
/// let chat = agent.conversation("support/4711").await?;
/// assert_eq!(chat.prompt("Hello").await?.finish().await?.text, "Hello");
///
/// let status = &mcp.status(&agent, chat.id())[0];
/// assert_eq!((status.name.as_str(), status.tools), ("files", 0));
/// assert!(status.error.as_ref().is_some_and(|error| error.contains("its program was not found")));
/// agent.close().await?;
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct Mcp {
    inner: Arc<Inner>,
}

/// Function that returns the value of an environment variable.
type Lookup = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where the servers are configured.
enum Source {
    Fixed(McpServers),
    Layered { layers: ConfigLayers, lookup: Lookup },
}

struct Inner {
    source: Source,
    /// Secrets that the servers of the source get without a mount.
    secrets: Option<Secrets>,
    idle: Duration,
    hub: OnceLock<Option<Hub>>,
    sessions: Mutex<BTreeMap<Place, Arc<SessionServers>>>,
}

/// A session, and the address of the store that has it: sessions of several tenants can have one id.
type Place = (SessionId, usize);

fn place(session: SessionId, store: &Arc<dyn SessionStore>) -> Place {
    (session, Arc::as_ptr(store).cast::<()>().addr())
}

fn documents(context: &SessionContext) -> Documents {
    Documents::new(context.storage().sessions.clone(), context.session.id)
}

/// Servers that [one session alone](Mcp::session_servers) has. Dropping it takes them away.
#[must_use = "the session has the servers as long as this lives"]
#[derive(Debug)]
pub struct McpSessionServers {
    plugin: Weak<Inner>,
    servers: Arc<SessionServers>,
    added: Arc<McpServers>,
}

impl Drop for McpSessionServers {
    fn drop(&mut self) {
        let mut state = self.servers.state();
        // Others may have replaced them.
        if !state.added.as_ref().is_some_and(|added| Arc::ptr_eq(added, &self.added)) {
            return;
        }
        state.added = None;
        // The next run reads the configuration again.
        state.run = None;
        let names = std::mem::take(&mut state.added_links);
        let links: Vec<_> = names.iter().filter_map(|name| state.links.remove(name)).collect();
        drop(state);
        if let Some(plugin) = self.plugin.upgrade()
            && let Some(Some(hub)) = plugin.hub.get()
        {
            hub.spawn(async move {
                join_all(links.iter().map(|link| link.close())).await;
            });
        }
    }
}

impl Mcp {
    /// Creates a plugin with the same servers in all workspaces.
    pub fn new(servers: McpServers) -> Self {
        Self::of(Source::Fixed(servers))
    }

    /// Creates a plugin whose servers are those of a layered configuration, in which each session has the configuration
    /// of its workspace. `lookup` returns the value of an environment variable, if it is set.
    ///
    /// A configuration that is wrong gives no servers; the error is logged.
    ///
    /// ```
    /// use agent_mcp::{Mcp, McpServers};
    /// use agent_runtime::configuration::ConfigLayers;
    ///
    /// let layers = ConfigLayers::new().with_global("[mcp.files]\ncommand = 'mcp-files'")?;
    /// // A workspace may set limits, and not what is started.
    /// let mcp = Mcp::layered(McpServers::protect(layers)?, |name| std::env::var(name).ok());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn layered(
        layers: ConfigLayers,
        lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Source::Layered { layers, lookup: Box::new(lookup) })
    }

    fn of(source: Source) -> Self {
        let (hub, sessions) = (OnceLock::new(), Mutex::default());
        let inner = Inner { source, secrets: None, idle: IDLE, hub, sessions };
        Self { inner: Arc::new(inner) }
    }

    /// Sets the time after which a session that is not used loses its servers; the default is ten minutes.
    ///
    /// No effect after the plugin was cloned.
    pub fn with_idle_timeout(mut self, time: Duration) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.idle = time;
        }
        self
    }

    /// Gives the configured servers these secrets of the host, whether or not a session mounts them; the default is the
    /// secrets that each session mounts. Servers that [one session alone](Self::session_servers) has can name no secret.
    ///
    /// Every session of the agent can then use what the servers do with the secrets. Give the agent the same
    /// [secrets](agent_runtime::AgentBuilder::with_secrets), so that their values are redacted. No effect after the plugin
    /// was cloned.
    pub fn with_secrets(mut self, secrets: Secrets) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.secrets = Some(secrets);
        }
        self
    }

    /// Returns the tools of a session, to show them. Connects to the servers if necessary.
    ///
    /// # Errors
    ///
    /// Errors of the configuration and of the store. A server that fails has no tools; see [`status`](Self::status).
    pub async fn tools(&self, context: SessionContext) -> Result<Vec<McpTool>> {
        let servers = self.inner.session(context.session.id, context.storage().sessions.store());
        if servers.state().links.is_empty() {
            self.inner.configure(&servers, &context).await?;
        }
        let tools = self.inner.tools(&servers, &context, true).await?;
        Ok(tools.into_values().collect())
    }

    /// Returns the tools that a session of an agent's tenant was last offered through this agent. No I/O.
    pub fn offered(&self, agent: &AgentRuntime, session: SessionId) -> Vec<McpTool> {
        let Some(servers) = self.inner.known(agent, session) else { return Vec::new() };
        servers.state().offered.values().cloned().collect()
    }

    /// Returns the tool that a question of the session is about, if its server still offers what the person is asked about:
    /// what [`always_allow`](Self::always_allow) can be called with. Connects to the servers if necessary, so that it is
    /// known in a new process, too.
    ///
    /// # Errors
    ///
    /// Errors of the configuration and of the store.
    pub async fn asked(&self, context: SessionContext) -> Result<Option<McpTool>> {
        let Some(name) = context.session.action.as_ref().and_then(|action| action.tool.clone()) else {
            return Ok(None);
        };
        if !name.contains(SEPARATOR) {
            return Ok(None);
        }
        let servers = self.inner.session(context.session.id, context.storage().sessions.store());
        self.inner.read_digests(&servers, &context).await;
        let offered = servers.state().offered.get(&name).cloned();
        let tool = match offered {
            Some(tool) => Some(tool),
            None => self.tools(context).await?.into_iter().find(|tool| tool.name == name),
        };
        let digests = servers.state().digests.clone().unwrap_or_default();
        Ok(tool.filter(|tool| digests.get(&name).is_none_or(|asked| *asked == tool.digest)))
    }

    /// Returns what the servers of a session of an agent's tenant last were, as this agent knows. No I/O.
    pub fn status(&self, agent: &AgentRuntime, session: SessionId) -> Vec<ServerStatus> {
        let Some(servers) = self.inner.known(agent, session) else { return Vec::new() };
        let state = servers.state();
        let links = state.links.values().map(|link| link.status());
        let faults = state.faults.iter();
        let faults = faults.map(|(name, error)| ServerStatus::new(name.clone(), Some(error.clone())));
        let mut all: Vec<_> = links.chain(faults).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Gives one session of an agent's tenant servers besides those that are configured, for as long as the result lives.
    /// They replace those that an earlier call gave it.
    ///
    /// The next run has them. If a configured server has the same name, that one is used. Nothing is stored: after a
    /// restart, call this again. Secrets are not put into their values: use it for servers that somebody else than the
    /// host names, like an editor, and only if that one may run programs as the host.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// use agent_mcp::{Mcp, McpServer, McpServers};
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    ///
    /// let mcp = Mcp::new(McpServers::new());
    /// # let agent = AgentBuilder::new()
    /// #     .with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).with_plugin(mcp.clone()).build()?;
    /// let chat = agent.conversation("support/4711").await?;
    /// let servers = McpServers::new().with_server("files", McpServer::command("no-such-program"))?;
    /// let given = mcp.session_servers(&agent, chat.id(), servers)?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// assert_eq!(mcp.status(&agent, chat.id())[0].name, "files");
    ///
    /// drop(given);
    /// chat.prompt("Hello").await?.finish().await?;
    /// assert!(mcp.status(&agent, chat.id()).is_empty());
    /// # agent.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a value refers to a secret.
    pub fn session_servers(
        &self,
        agent: &AgentRuntime,
        session: SessionId,
        servers: McpServers,
    ) -> Result<McpSessionServers> {
        servers.check_no_secrets()?;
        let added = Arc::new(servers);
        let servers = self.inner.session(session, agent.storage().sessions.store());
        let mut state = servers.state();
        state.added = Some(added.clone());
        state.run = None;
        drop(state);
        Ok(McpSessionServers { plugin: Arc::downgrade(&self.inner), servers, added })
    }

    /// Allows all calls of a tool in a conversation and its later forks, while the tool has the digest of `tool`: what
    /// the person was shown. The permission is stored in the session.
    ///
    /// A question that waits is not answered by this.
    ///
    /// # Errors
    ///
    /// Errors of the store; `LimitExceeded` if the session has 1,024 permissions.
    pub async fn always_allow(&self, chat: &Conversation, tool: &McpTool, by: &Actor) -> Result<()> {
        consent::set(&chat.documents(), &tool.name, Some(&tool.digest), by).await
    }

    /// Removes the permission for a tool from a conversation.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn ask_again(&self, chat: &Conversation, tool: &str, by: &Actor) -> Result<()> {
        consent::set(&chat.documents(), tool, None, by).await
    }
}

impl Inner {
    fn sessions(&self) -> std::sync::MutexGuard<'_, BTreeMap<Place, Arc<SessionServers>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, agent: &AgentRuntime, session: SessionId) -> Option<Arc<SessionServers>> {
        self.sessions().get(&place(session, agent.storage().sessions.store())).cloned()
    }

    fn session(&self, session: SessionId, store: &Arc<dyn SessionStore>) -> Arc<SessionServers> {
        let made = || Arc::new(SessionServers::new(store.clone()));
        let mut sessions = self.sessions();
        let servers = sessions.entry(place(session, store)).or_insert_with(made).clone();
        // While the sessions are locked, so that its servers are not taken out as unused.
        servers.state().used = Some(Instant::now());
        servers
    }

    /// Takes out the servers of sessions that were not used for some time, and those of whose tenant no agent is left.
    fn take_unused(&self) -> Vec<Arc<Link>> {
        let mut sessions = self.sessions();
        // How often this plugin itself holds each store.
        let mut held = BTreeMap::<usize, usize>::new();
        sessions.keys().for_each(|(_, store)| *held.entry(*store).or_default() += 1);
        let mut unused = Vec::new();
        sessions.retain(|(_, store), servers| {
            let has_agent = Arc::strong_count(&servers.store) > held[store];
            let is_used = {
                let state = servers.state();
                let is_recent = state.used.is_some_and(|used| used.elapsed() < self.idle);
                state.calls > 0 || (has_agent && is_recent)
            };
            if !is_used {
                unused.extend(servers.take_links());
            }
            // What was given to the session alone is known nowhere else.
            is_used || (has_agent && servers.state().added.is_some())
        });
        unused
    }

    /// Returns the servers of the session of a run.
    fn of_run(&self, session: SessionId, run: RunId) -> Option<Arc<SessionServers>> {
        let sessions = self.sessions();
        let mut of_id = sessions.range((session, 0)..=(session, usize::MAX)).map(|(_, servers)| servers);
        of_id.find(|servers| servers.state().run == Some(run)).cloned()
    }

    fn hub(self: &Arc<Self>) -> Result<&Hub> {
        let hub = self.hub.get_or_init(|| {
            let hub = Hub::start().ok()?;
            hub.spawn(close_idle(Arc::downgrade(self), self.idle));
            Some(hub)
        });
        hub.as_ref().ok_or_else(|| {
            Error::unavailable("the thread of the MCP servers cannot be started; free threads and memory")
        })
    }

    /// Returns the servers that are configured for the workspace of a session.
    async fn configured(&self, context: &SessionContext) -> Result<McpServers> {
        let (layers, lookup) = match &self.source {
            Source::Fixed(servers) => return Ok(servers.clone()),
            Source::Layered { layers, lookup } => (layers.clone(), lookup),
        };
        let workspace = context.session.workspace;
        let layers = match context.workspace_config().await? {
            Some(text) => {
                layers.with_workspace_from(format!("the configuration of workspace {workspace}"), &text)?
            }
            None => layers,
        };
        McpServers::from_config(&layers.merge(lookup)?)
    }

    /// Gives a session the servers of its configuration. A server whose settings changed is replaced.
    async fn configure(self: &Arc<Self>, servers: &SessionServers, context: &SessionContext) -> Result<()> {
        let hub = self.hub()?;
        let mut configured = self.configured(context).await?;
        let added = servers.state().added.clone();
        let added_links = configured.add(added.as_deref());
        let (mut resolved, mut faults) = (Vec::<Resolved>::new(), BTreeMap::new());
        for (name, server) in configured.enabled() {
            match server.resolve(name, context, self.secrets.as_ref()).await {
                Ok(server) => resolved.push(server),
                Err(error) => {
                    let session = context.session.id;
                    warn!(server = name, %session, %error, "an MCP server is not used");
                    faults.insert(name.to_owned(), error.to_string());
                }
            }
        }
        let mut state = servers.state();
        state.added_links = added_links;
        let mut before = std::mem::take(&mut state.links);
        for server in resolved {
            let link = match before.remove(&server.name) {
                Some(link) if link.server.settings == server.settings => link,
                other => {
                    before.extend(other.map(|link| (server.name.clone(), link)));
                    Arc::new(Link::new(server, hub.groups.clone(), hub.log.clone()))
                }
            };
            state.links.insert(link.server.name.clone(), link);
        }
        state.faults = faults;
        for link in before.into_values() {
            hub.spawn(async move { link.close().await });
        }
        Ok(())
    }

    /// Returns the tools of a session for the next step of a run.
    async fn offer(self: &Arc<Self>, context: &SessionContext) -> Result<Tools> {
        let servers = self.session(context.session.id, context.storage().sessions.store());
        let is_new_run = servers.state().run != Some(context.run);
        if is_new_run {
            self.read_digests(&servers, context).await;
            self.configure(&servers, context).await?;
            servers.begin(context);
        }
        let offered = Arc::new(self.tools(&servers, context, is_new_run).await?);
        self.store_digests(&servers, context, &offered).await;
        let mut state = servers.state();
        state.offered = offered.clone();
        state.used = Some(Instant::now());
        Ok(offered)
    }

    /// Asks the servers of a session for their tools. With `again`, all lists are read again.
    async fn tools(
        self: &Arc<Self>,
        servers: &SessionServers,
        context: &SessionContext,
        again: bool,
    ) -> Result<BTreeMap<String, McpTool>> {
        let hub = self.hub()?;
        let links: Vec<_> = servers.state().links.values().cloned().collect();
        let asked = links.iter().map(|link| {
            let link = link.clone();
            hub.run(async move { link.tools(again).await })
        });
        let answers = join_all(asked).await;
        let permissions = self.permissions(context).await;
        let mut offered = BTreeMap::new();
        for (link, answer) in links.iter().zip(answers) {
            let (server, session) = (&link.server.name, context.session.id);
            let tools = match answer {
                Some(Ok(tools)) => tools,
                Some(Err(Failed { text, is_new, .. })) => {
                    if is_new {
                        warn!(server, %session, error = text, "an MCP server cannot be used");
                    }
                    continue;
                }
                None => {
                    warn!(server, %session, "the work for an MCP server panicked");
                    continue;
                }
            };
            for tool in &tools.tools {
                let is_allowed = |known: Option<&String>| known == Some(&tool.digest);
                let always =
                    is_allowed(permissions.get(&tool.name)) || is_allowed(link.server.always.get(&tool.tool));
                offered.insert(tool.name.clone(), McpTool { always, ..tool.clone() });
            }
        }
        Ok(offered)
    }

    /// Reads what the session was offered before: if a call waits, another process may have asked about it.
    async fn read_digests(&self, servers: &SessionServers, context: &SessionContext) {
        if servers.state().digests.is_some() && context.session.open_calls.is_empty() {
            return;
        }
        let digests = consent::read(&documents(context), consent::OFFERED).await.unwrap_or_else(|error| {
            warn!(session = %context.session.id, %error, "it is not known which MCP tools were offered before");
            Permissions::new()
        });
        servers.state().digests = Some(Arc::new(digests));
    }

    /// Stores what the session is offered, if it was not offered that before: a later process compares a call that waits
    /// for an answer with it.
    async fn store_digests(&self, servers: &SessionServers, context: &SessionContext, offered: &Tools) {
        let before = servers.state().digests.clone().unwrap_or_default();
        let is_known = |tool: &McpTool| before.get(&tool.name) == Some(&tool.digest);
        if offered.values().all(is_known) {
            return;
        }
        let mut digests = (*before).clone();
        digests.extend(offered.values().map(|tool| (tool.name.clone(), tool.digest.clone())));
        if digests.len() > consent::MAX {
            digests.retain(|name, _| offered.contains_key(name));
        }
        if let Err(error) = consent::set_offered(&documents(context), &digests).await {
            warn!(session = %context.session.id, %error, "it is not stored which MCP tools are offered");
        }
        servers.state().digests = Some(Arc::new(digests));
    }

    /// Returns the permissions of a session; none if they cannot be read, so that people are asked.
    async fn permissions(&self, context: &SessionContext) -> Permissions {
        consent::read(&documents(context), consent::PERMISSIONS).await.unwrap_or_else(|error| {
            warn!(session = %context.session.id, %error, "the permissions for MCP tools cannot be read; each call is asked about");
            Permissions::new()
        })
    }

    async fn call(
        self: &Arc<Self>,
        name: &str,
        input: &RawJson,
        context: &ToolContext,
    ) -> Result<ToolOutput> {
        if !input.has_plain_numbers() {
            // The protocol crate would round it, and call the tool with what nobody has allowed.
            return Err(Error::invalid(format!(
                "tool {name} was not called: an argument has a number that 64 bits do not hold; write it as a text"
            )));
        }
        let mut arguments: JsonObject = input.to().map_err(|_| {
            Error::invalid(format!(
                "tool {name} was not called: its arguments are no JSON object; name each argument"
            ))
        })?;
        let unknown = || Error::not_found(format!("no MCP server has tool {name} now"));
        let servers = self.of_run(context.session, context.run).ok_or_else(unknown)?;
        let (offered, link) = {
            let state = servers.state();
            let offered = state.offered.get(name).cloned().ok_or_else(unknown)?;
            // What a person was asked about in an earlier run.
            let asked = state.asked.get(&context.call).and_then(|digests| digests.get(name));
            if asked.is_some_and(|asked| *asked != offered.digest) {
                return Err(changed(&offered));
            }
            let link = state.links.get(&offered.server).cloned().ok_or_else(unknown)?;
            (offered, link)
        };
        schema::restore(&mut arguments, &offered.renamed).map_err(|key| {
            let key = quoted(&key);
            Error::invalid(format!(
                "tool {name} was not called: argument {key} is given under two names; give it once"
            ))
        })?;
        let _busy = Busy::new(servers);
        let called = self.hub()?.run(async move { link.call(&offered, arguments).await });
        called.await.unwrap_or_else(|| {
            let text = format!(
                "tool {name}: the work panicked or was ended; it is not known whether the tool took effect"
            );
            Err(Error::unavailable(text))
        })
    }

    /// Ends the servers of all sessions.
    async fn close(&self) {
        let sessions = std::mem::take(&mut *self.sessions());
        let Some(Some(hub)) = self.hub.get() else { return };
        let links = sessions.into_values().flat_map(|servers| servers.take_links());
        let closing: Vec<_> = links.map(|link| async move { link.close().await }).collect();
        hub.run(join_all(closing)).await;
        // Whatever did not end in time.
        hub.groups.kill();
    }
}

/// Closes the servers of sessions that are not used, or of whose tenant no agent is left, until the plugin is dropped.
async fn close_idle(plugin: Weak<Inner>, idle: Duration) {
    let pause = (idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(5));
    loop {
        sleep(pause).await;
        let Some(plugin) = plugin.upgrade() else { return };
        let unused = plugin.take_unused();
        drop(plugin);
        for link in unused {
            link.close().await;
        }
    }
}

#[async_trait]
impl Plugin for Mcp {
    fn name(&self) -> &str {
        "mcp"
    }

    fn reads_workspace_config(&self) -> bool {
        matches!(self.inner.source, Source::Layered { .. })
    }

    async fn session_tools(&self, context: SessionContext) -> Result<Vec<ToolSpec>> {
        Ok(self.inner.offer(&context).await?.values().map(McpTool::spec).collect())
    }

    async fn call(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        self.inner.call(tool, &input, &context).await.map(|output| output.output)
    }

    async fn call_for_output(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<ToolOutput> {
        self.inner.call(tool, &input, &context).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = match &self.source {
            Source::Fixed(servers) => servers.names().collect(),
            Source::Layered { .. } => Vec::new(),
        };
        f.debug_struct("Inner").field("servers", &servers).field("idle", &self.idle).finish_non_exhaustive()
    }
}
