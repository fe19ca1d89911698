//! MCP servers of the configuration, for the program with the feature `mcp`.

use agent_core::Result;
use agent_runtime::{AgentBuilder, AgentRuntime, Conversation};

#[cfg(feature = "mcp")]
use agent_core::WorkspaceId;
#[cfg(feature = "mcp")]
use agent_core::model::Actor;
#[cfg(feature = "mcp")]
use agent_core::text::marked_name;
#[cfg(feature = "mcp")]
use agent_mcp::{Mcp, McpServers};
#[cfg(feature = "mcp")]
use agent_runtime::SessionContext;
#[cfg(feature = "mcp")]
use agent_runtime::secrets::Secrets;

use crate::args::Args;
#[cfg(feature = "mcp")]
use crate::secrets::Variables;

/// MCP servers of the agent.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    #[cfg(feature = "mcp")]
    pub(crate) mcp: Mcp,
    /// Secrets of the servers.
    #[cfg(feature = "mcp")]
    secrets: Secrets,
    /// Last words of servers that were shown.
    #[cfg(feature = "mcp")]
    shown: std::collections::BTreeSet<(String, String)>,
}

#[cfg(feature = "mcp")]
impl Servers {
    /// Reads the configuration of the host, and the secrets that it names. That of a workspace is read when a run begins.
    pub(crate) async fn new(args: &Args) -> crate::failure::Result<Self> {
        let layers = crate::host_config::layers(args)?;
        // What is wrong in the host's file is said at once, and not with the first message.
        let servers = McpServers::from_config(&layers.clone().merge(|name| std::env::var(name).ok())?)?;
        let secrets = Secrets::new(Variables);
        for (key, name) in servers.secrets() {
            // Known from now on, the values are redacted from the first message on.
            secrets
                .reveal(WorkspaceId::DEFAULT, &name)
                .await
                .map_err(|error| agent_core::Error::new(error.kind().clone(), format!("{key}: {error}")))?;
        }
        let mcp = Mcp::layered(layers, |name| std::env::var(name).ok()).with_secrets(secrets.clone());
        Ok(Self { mcp, secrets, shown: std::collections::BTreeSet::new() })
    }

    pub(crate) fn add_to(&self, builder: AgentBuilder) -> AgentBuilder {
        builder.with_plugin(self.mcp.clone()).with_secrets(self.secrets.clone())
    }

    /// Returns a line for each server, and one for each of its tools. Connects to the servers if necessary.
    pub(crate) async fn lines(&self, agent: &AgentRuntime, chat: &Conversation) -> Result<Vec<String>> {
        let tools = self.mcp.tools(context(agent, chat)).await?;
        let mut lines = Vec::new();
        for server in self.mcp.status(agent, chat.id()) {
            lines.push(match &server.error {
                Some(error) => format!("{}: {error}", server.name),
                None => format!("{}: {}", server.name, crate::screen::counted(server.tools as u64, "tool")),
            });
            lines.extend(
                server.last_words.iter().flat_map(|words| words.lines()).map(|line| format!("  | {line}")),
            );
            for tool in tools.iter().filter(|tool| tool.server == server.name) {
                let (asked, about) =
                    (if tool.always { "" } else { "asks" }, self.secrets.redact(&tool.description));
                let about = about.lines().next().unwrap_or("");
                let (name, about) = (marked_name(&tool.name), marked_name(about));
                lines.push(format!("  {name:<30} {asked:<4} {}", crate::screen::cut(&about)));
            }
            lines.extend(server.notes.iter().map(|note| format!("  ({note})")));
        }
        if lines.is_empty() {
            lines.push(
                "(no MCP server is used; `chat config show` shows those of the configuration)".to_owned(),
            );
        }
        Ok(lines.iter().map(|line| self.secrets.redact(line).into_owned()).collect())
    }

    /// Returns a text for each server that ended when it was started, with its last words, unless they were shown.
    pub(crate) fn last_words(&mut self, agent: &AgentRuntime, chat: &Conversation) -> Vec<String> {
        let servers = self.mcp.status(agent, chat.id()).into_iter();
        let new = servers.filter_map(|server| {
            let (name, words) = (server.name, server.last_words?);
            let text = words.replace('\n', "\n  | ");
            let text = format!("(MCP server {name} cannot be used; /mcp shows more)\n  | {text}");
            self.shown.insert((name, words)).then_some(text)
        });
        new.collect()
    }

    /// Lets the clients of a service name servers, too.
    #[cfg(feature = "acp")]
    pub(crate) fn serve_of_clients(&self, service: agent_acp::AcpAgent) -> agent_acp::AcpAgent {
        service.with_mcp(self.mcp.clone())
    }

    /// Allows all later calls of the tool that the session's question is about. Returns false if no server offers what the
    /// question is about.
    pub(crate) async fn always_allow(&self, agent: &AgentRuntime, chat: &Conversation) -> Result<bool> {
        let Some(tool) = self.mcp.asked(context(agent, chat)).await? else { return Ok(false) };
        self.mcp.always_allow(chat, &tool, &Actor::USER).await?;
        Ok(true)
    }

    /// Asks again before each call of a tool.
    pub(crate) async fn ask_again(&self, chat: &Conversation, tool: &str) -> Result<()> {
        self.mcp.ask_again(chat, tool, &Actor::USER).await
    }
}

#[cfg(feature = "mcp")]
fn context(agent: &AgentRuntime, chat: &Conversation) -> SessionContext {
    SessionContext::new(chat.record(), agent.effects().new_run_id(), agent.storage().clone())
}

#[cfg(not(feature = "mcp"))]
#[allow(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    clippy::unused_async,
    reason = "as with the feature `mcp`"
)]
impl Servers {
    pub(crate) async fn new(_: &Args) -> crate::failure::Result<Self> {
        Ok(Self {})
    }

    pub(crate) fn add_to(&self, builder: AgentBuilder) -> AgentBuilder {
        builder
    }

    pub(crate) async fn lines(&self, _: &AgentRuntime, _: &Conversation) -> Result<Vec<String>> {
        let text = "(this program was built without MCP servers; build it with `cargo build --bin chat --features mcp`)";
        Ok(vec![text.to_owned()])
    }

    pub(crate) fn last_words(&mut self, _: &AgentRuntime, _: &Conversation) -> Vec<String> {
        Vec::new()
    }

    #[cfg(feature = "acp")]
    pub(crate) fn serve_of_clients(&self, service: agent_acp::AcpAgent) -> agent_acp::AcpAgent {
        service
    }

    pub(crate) async fn always_allow(&self, _: &AgentRuntime, _: &Conversation) -> Result<bool> {
        Ok(false)
    }

    pub(crate) async fn ask_again(&self, _: &Conversation, _: &str) -> Result<()> {
        Ok(())
    }
}
