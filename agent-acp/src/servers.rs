//! MCP servers that a client names for its sessions, and the tools that they offer.

use agent_client_protocol::v1::schema;

#[cfg(feature = "mcp")]
pub(crate) use with_mcp::{ClientServers, GivenServers, OfferedTool};
#[cfg(not(feature = "mcp"))]
pub(crate) use without_mcp::{ClientServers, GivenServers, OfferedTool};

#[cfg(feature = "mcp")]
mod with_mcp {
    use std::collections::BTreeSet;
    use std::path::Path;

    use agent_client_protocol::Result;
    use agent_client_protocol::v1::schema;
    use agent_core::SessionId;
    use agent_core::model::Actor;
    use agent_mcp::{Mcp, McpServer, McpServers};
    use agent_runtime::{AgentRuntime, Conversation, SessionContext};

    use crate::fault;
    use crate::servers::ignored;

    /// Servers that a client has named.
    type NamedServers = McpServers;
    /// Servers that a session has from its client, until this is dropped.
    pub(crate) type GivenServers = Option<agent_mcp::McpSessionServers>;
    /// Tool of a server.
    pub(crate) type OfferedTool = agent_mcp::McpTool;

    /// Maximum bytes of a server's name.
    pub(super) const NAME_MAX_BYTES: usize = 28;

    /// What a host does with the servers of its clients.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct ClientServers {
        /// The agent's plugin; without it they are not used.
        pub(crate) mcp: Option<Mcp>,
    }

    impl ClientServers {
        /// Returns the transports that clients may name.
        pub(crate) fn capabilities(&self) -> schema::McpCapabilities {
            schema::McpCapabilities::new().http(self.mcp.is_some())
        }

        /// Reads the servers that a client names for a session in `directory`.
        pub(crate) fn read(&self, named: Vec<schema::McpServer>, directory: &str) -> Result<NamedServers> {
            if self.mcp.is_none() {
                ignored(&named);
                return Ok(McpServers::new());
            }
            let (mut servers, mut names) = (McpServers::new(), BTreeSet::new());
            for named in named {
                let (name, server) = match named {
                    schema::McpServer::Stdio(program) => {
                        let mut server =
                            McpServer::command(program.command.to_string_lossy()).with_args(program.args);
                        if Path::new(directory).is_dir() {
                            server = server.with_directory(directory);
                        }
                        for variable in program.env {
                            server = server.with_env(variable.name, variable.value);
                        }
                        (program.name, server)
                    }
                    schema::McpServer::Http(http) => {
                        let mut server = McpServer::url(http.url);
                        for header in http.headers {
                            server = server.with_header(header.name, header.value);
                        }
                        (http.name, server)
                    }
                    other => {
                        let name = match other {
                            schema::McpServer::Sse(sse) => sse.name,
                            _ => String::new(),
                        };
                        return Err(fault::invalid(format!(
                            "MCP server {}: its transport is not supported; use stdio or http",
                            agent_core::text::quoted(&name)
                        )));
                    }
                };
                let name = free_name(&name, &mut names);
                servers =
                    servers.with_server(name, server).map_err(|error| fault::invalid(error.to_string()))?;
            }
            servers.check_no_secrets().map_err(|error| fault::invalid(error.to_string()))?;
            Ok(servers)
        }

        /// Gives a session the servers of its client.
        pub(crate) fn give(
            &self,
            agent: &AgentRuntime,
            session: SessionId,
            servers: NamedServers,
        ) -> Result<GivenServers> {
            match &self.mcp {
                Some(mcp) if servers.names().next().is_some() => {
                    let given = mcp.session_servers(agent, session, servers);
                    given.map(Some).map_err(fault::of_store(Some(session)))
                }
                _ => Ok(None),
            }
        }

        /// Returns the tool of a server that the session's question is about, if it is still what the person is asked about.
        pub(crate) async fn asked(&self, agent: &AgentRuntime, chat: &Conversation) -> Option<OfferedTool> {
            let mcp = self.mcp.as_ref()?;
            let now = chat.refresh().await.ok()?;
            let context = SessionContext::new(now, agent.effects().new_run_id(), agent.storage().clone());
            mcp.asked(context).await.unwrap_or_else(|error| {
                tracing::warn!(session = %chat.id(), %error, "a tool cannot be allowed for good");
                None
            })
        }

        /// Allows all later calls of a tool, while it is what the person was shown.
        pub(crate) async fn always_allow(
            &self,
            chat: &Conversation,
            tool: &OfferedTool,
        ) -> agent_core::Result<()> {
            match &self.mcp {
                Some(mcp) => mcp.always_allow(chat, tool, &Actor::USER).await,
                None => Ok(()),
            }
        }
    }

    /// Returns a name that a server can have, from one for people. No two of a list get the same one.
    pub(super) fn free_name(name: &str, names: &mut BTreeSet<String>) -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric();
        let words: Vec<String> =
            name.split(|c: char| !is_plain(&c)).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let mut plain = words.join("-");
        plain.truncate(NAME_MAX_BYTES);
        if plain.is_empty() {
            plain.push_str("server");
        }
        let mut free = plain.clone();
        for number in 2.. {
            if names.insert(free.clone()) {
                break;
            }
            free = format!("{plain}-{number}");
        }
        free
    }
}

#[cfg(not(feature = "mcp"))]
mod without_mcp {
    use agent_client_protocol::Result;
    use agent_client_protocol::v1::schema;
    use agent_core::SessionId;
    use agent_runtime::{AgentRuntime, Conversation};

    use crate::servers::ignored;

    /// Servers that a client has named: they are not used.
    #[derive(Debug)]
    pub(crate) struct NamedServers;

    /// Servers that a session has from its client: none.
    #[derive(Debug, Default)]
    pub(crate) struct GivenServers;

    /// Tool of a server: there is none.
    #[derive(Clone, Debug)]
    pub(crate) enum OfferedTool {}

    /// What a host does with the servers of its clients: nothing.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct ClientServers {}

    #[allow(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        clippy::unused_async,
        clippy::needless_pass_by_value,
        reason = "as with the feature `mcp`"
    )]
    impl ClientServers {
        pub(crate) fn capabilities(&self) -> schema::McpCapabilities {
            schema::McpCapabilities::new()
        }

        pub(crate) fn read(&self, named: Vec<schema::McpServer>, _: &str) -> Result<NamedServers> {
            ignored(&named);
            Ok(NamedServers)
        }

        pub(crate) fn give(&self, _: &AgentRuntime, _: SessionId, _: NamedServers) -> Result<GivenServers> {
            Ok(GivenServers)
        }

        pub(crate) async fn asked(&self, _: &AgentRuntime, _: &Conversation) -> Option<OfferedTool> {
            None
        }

        pub(crate) async fn always_allow(
            &self,
            _: &Conversation,
            tool: &OfferedTool,
        ) -> agent_core::Result<()> {
            match *tool {}
        }
    }
}

/// Says that servers are not used.
fn ignored(named: &[schema::McpServer]) {
    if !named.is_empty() {
        tracing::warn!(
            servers = named.len(),
            "the client's MCP servers are not used; the host allows them with AcpAgent::with_mcp"
        );
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "mcp")]
    #[test]
    fn servers_over_stdio_and_http_are_taken_and_no_secret_is_given() {
        use agent_client_protocol::v1::schema::{
            EnvVariable, HttpHeader, McpServer, McpServerHttp, McpServerSse, McpServerStdio,
        };
        use agent_mcp::{Mcp, McpServers};

        let servers = super::ClientServers { mcp: Some(Mcp::new(McpServers::new())) };
        let stdio = |value: &str| {
            let env = vec![EnvVariable::new("TOKEN", value)];
            McpServer::Stdio(McpServerStdio::new("files", "/bin/files").env(env))
        };
        let http = |url: &str, value: &str| {
            let headers = vec![HttpHeader::new("Authorization", value)];
            McpServer::Http(McpServerHttp::new("web", url).headers(headers))
        };
        let read = |named| servers.read(named, "/nowhere").map_err(|error| error.message);
        let taken = read(vec![stdio("a"), http("https://h/mcp", "b"), stdio("c")]).unwrap();
        assert_eq!(taken.names().collect::<Vec<_>>(), ["files", "files-2", "web"]);
        let text = format!("{taken:?}");
        assert!(text.contains("/bin/files") && text.contains("host: Some(\"h\")"), "{text}");
        let sse = McpServer::Sse(McpServerSse::new("old", "https://h/sse"));
        for (named, why) in [
            (stdio("${secret:a}"), "mcp.files.env"),
            (http("https://h/mcp", "Bearer ${secret:a}"), "mcp.web.headers"),
            (http("https://h/${secret:a}", "b"), "a secret stands in url"),
            (http("file:///etc/passwd", "b"), "url is no address"),
            (sse, "MCP server \"old\": its transport is not supported"),
        ] {
            let error = read(vec![named]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[cfg(feature = "mcp")]
    #[test]
    fn names_are_plain_and_differ() {
        use std::collections::BTreeSet;

        use super::with_mcp::{NAME_MAX_BYTES, free_name};

        let mut names = BTreeSet::new();
        let mut free = |name: &str| free_name(name, &mut names);
        assert_eq!(free("files"), "files");
        assert_eq!(free("My files: all of them"), "My-files-all-of-them");
        assert_eq!(free("__files__"), "files-2");
        assert_eq!((free("日本"), free("")), ("server".to_owned(), "server-2".to_owned()));
        assert_eq!(free(&"x".repeat(99)), "x".repeat(NAME_MAX_BYTES));
        assert_eq!(free(&"x".repeat(98)), format!("{}-2", "x".repeat(NAME_MAX_BYTES)));
    }
}
