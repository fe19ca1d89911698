//! Bridge to the [Model Context Protocol](https://modelcontextprotocol.io) (MCP): an agent of [`agent_runtime`] uses the
//! tools of MCP servers.
//!
//! [`Mcp`] is a plugin of an agent. Its servers are those of the configuration: child processes, to which it speaks over
//! their standard input and output, and addresses, to which it speaks over streamable HTTP. Each session has connections
//! of its own, so that no server mixes up two conversations. They are opened when a run of the session begins. What
//! [`for_storage`](agent_runtime::AgentRuntime::for_storage) returns is another tenant's agent, with servers of its own: keep it as long as
//! its tenant is served.
//!
//! ```no_run
//! use agent_core::MemoryStore;
//! use agent_mcp::{Mcp, McpServer, McpServers};
//! use agent_runtime::{AgentBuilder, EchoProvider};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! let servers = McpServers::new()
//!     .with_server("files", McpServer::command("npx").with_args(["-y", "@modelcontextprotocol/server-filesystem", "/work"]))?
//!     .with_server("issues", McpServer::url("https://mcp.example.com/mcp").with_header("Authorization", "Bearer ${secret:issues}"))?;
//! let agent = AgentBuilder::new()
//!     .with_llm(EchoProvider::new()) // any `LlmProvider`
//!     .with_storage(MemoryStore::new())
//!     .with_plugin(Mcp::new(servers))
//!     .build()?;
//! let chat = agent.conversation("support/4711").await?;
//! chat.prompt("What is in the folder?").await?.finish().await?;
//! agent.close().await?; // ends the servers
//! # Ok(()) }
//! ```
//!
//! The example `ask` is an agent on the command line, which shows each call and remembers what is allowed.
//!
//! # Configuration
//!
//! [`Mcp::layered`] reads the servers from a layered [`configuration`](agent_runtime::configuration): that of the host,
//! that of the session's workspace, and environment variables. A run reads it when it begins; a server whose settings
//! changed is started again. The keys are those of the object `mcpServers` that editors use, below `mcp`; a table
//! `mcpServers` is an error:
//!
//! ```toml
//! [mcp.files]
//! command = "npx"
//! args = ["-y", "@modelcontextprotocol/server-filesystem", "/work"]
//! env = { LOG_LEVEL = "warn" }
//!
//! [mcp.issues]
//! url = "https://mcp.example.com/mcp"
//! headers = { Authorization = "Bearer ${secret:issues}" }
//! call_timeout = 60
//! ```
//!
//! | Key | Value | Default |
//! |---|---|---|
//! | `command`, `args`, `cwd` | program, its arguments and its directory | |
//! | `env` | environment variables of the program | |
//! | `url`, `headers` | address of a streamable HTTP server, and headers of every request | |
//! | `type` | `stdio` or `http`; needed by nobody, since `command` and `url` say it | |
//! | `disabled` | true if the server is not used | `false` |
//! | `connect_timeout` | seconds in which the server starts and is ready, at most 86400 | 30 |
//! | `list_timeout` | seconds in which it lists its tools, at most 86400 | 30 |
//! | `call_timeout` | seconds in which it makes a call, at most 86400 | 100 |
//! | `message_max_bytes` | maximum bytes of one of its messages, at most 12 MiB | 8 MiB |
//! | `tools_max` | maximum number of its tools | 128 |
//! | `always` | tools whose calls nobody is asked about, each with its [digest](field@McpTool::digest) | |
//!
//! The author of `command` runs programs as the host. So the host decides whether a workspace may: with
//! [`McpServers::protect`], only the host's configuration sets what is started and contacted, and a workspace can disable
//! servers and set limits.
//!
//! [`Mcp::session_servers`] gives one session more servers, for example those that an editor names.
//!
//! A program gets no environment variables of the host but those that programs need to work (`PATH`, `HOME`, `LANG` and
//! the like); keys of providers are not among them.
//!
//! # Secrets
//!
//! `${secret:NAME}` in a value of `env` or `headers` stands for the [secret](agent_runtime::secrets) of this name. The
//! session must mount it (`secret:NAME`), unless the host gives its servers secrets ([`Mcp::with_secrets`]); otherwise the
//! server is not started. Values are read when a server is started,
//! are neither stored nor logged, and are redacted from results. In `command`, `args`, `cwd` and `url`, which other users
//! of the machine and servers' logs can see, the form is refused.
//!
//! # Tools
//!
//! A tool is named `SERVER__TOOL`. Providers take names of 64 letters, digits, `_` and `-`: in a name that is longer or
//! has other characters, these become `_`, and the end becomes a hash of the whole name. The names of servers have
//! letters, digits and `-`, and `_` between two of them, so that no two tools have one name. If that of the server does not
//! begin with a letter, the name of the tool begins with `_`.
//!
//! Providers refuse a whole request for one input schema that they do not take. So the model is given schemas that they do
//! take: of an object, with the arguments of alternatives (`oneOf`, `anyOf`, `allOf`, `$ref`) at the top put together, and
//! without members that are no JSON Schema of draft 2020-12. They allow more than those of the server, which checks its
//! arguments itself. Names of arguments have 1 to 64 letters, digits, `_`, `.` and `-`: another name becomes its letters
//! and digits with a hash, and is turned back before the call ([`McpTool::renamed`](field@McpTool::renamed)).
//!
//! The tools are looked up before each model call. If a server says that its list has changed, the model is given the
//! new one at its next step. Tools come in the order of their names. Left out are: tools after the first
//! `tools_max`, tools with a name that occurred before, and tools whose schema is no object schema, or is larger than
//! 64 KiB. [`ServerStatus::notes`](field@ServerStatus::notes) names them. Descriptions are cut at 16 KiB. What a server says about its tools is not believed: annotations like
//! `readOnlyHint` change nothing.
//!
//! # Consent
//!
//! A call is made after a person has allowed it ([`ToolMode::Confirm`](agent_runtime::ToolMode::Confirm)). Nobody is asked
//!
//! - if [`Mcp::always_allow`] was called for the tool in the session, or
//! - if `always` in the configuration has the tool's digest, or
//! - if the host's [policy](agent_runtime::Config::with_tool_policy) for the tool is `Allow`. A policy is about a name,
//!   whatever the tool of this name is.
//!
//! [`digest`](field@McpTool::digest) is a SHA-256 of the server's command or address, and of the tool's name, description
//! and input schema. If any of them changes, the permission does not hold any more and the person is asked again. A tool
//! that changes between the question and the answer, or between the model's request and the call, is not called; the
//! result says so. What a session is offered is stored in it, so that this holds after a restart, too. Values of `env` and
//! `headers` are not part of the digest.
//!
//! # Results
//!
//! | Of the server | In the log and for the model |
//! |---|---|
//! | `text`, and a `resource` that is text | text of the output |
//! | `image`, `audio` | part of the output |
//! | a `resource` with other data | part `resource` with its bytes |
//! | `resource_link` | part `resource_link`; nothing is read from its address |
//! | `structuredContent` | the output if there is nothing else; otherwise kept beside it, up to 64 KiB |
//! | `isError` | a failed call, with the text |
//! | anything else | a line that says that something was left out |
//!
//! The runtime shortens a long text and keeps the whole as a blob, as for every tool. A result has at most
//! `message_max_bytes` and 256 parts.
//!
//! # Servers that fail
//!
//! | A server | The agent |
//! |---|---|
//! | does not start, or is not ready in time | goes on without its tools, and logs it; [`Mcp::status`] says why, with the exit status of a program and its last lines. After a failure that took time, it waits four times as long before it tries again |
//! | ends while it makes a call | gets a result that says that it is not known whether the tool took effect |
//! | ended before | starts it again at the next use: at once, and after further failures 1, 2, 4 … seconds later, at most 60 |
//! | gives no answer in `call_timeout` | gets such a result too; the call is cancelled. If a ping is not answered either, the server is ended |
//! | sends a message that is too large | ends it |
//! | writes a byte that is no UTF-8, or half of a surrogate pair | reads U+FFFD in its place |
//! | answers with what is no JSON or no error of the protocol, or has more than 500,000 values | gets a result that says that it is not known whether the tool took effect |
//! | sends another thing that is no message, or answers what was not asked | ignores it |
//! | asks without end and reads no answer | ends it when 1,000 answers wait |
//! | has forgotten its session over HTTP (status 404; 400 or 410, also to a ping) | begins a new one, and sends the request again, once |
//! | lists pages without end | takes the first 100 pages and `tools_max` tools |
//! | asks for a completion, a person's input or the agent's folders | refuses |
//!
//! Nothing is called twice. Every wait has a deadline.
//!
//! [`AgentRuntime::close`](agent_runtime::AgentRuntime::close) ends all servers: their input is closed, and after two
//! seconds they are killed, with all processes of their group on Unix. Dropping the agent kills them at once. A session
//! that was not used for ten minutes loses its servers, and gets new ones at its next run. If the process of the agent is
//! killed, its servers see the end of their input; one that ignores it goes on.
//!
//! # Logs
//!
//! No event and no span of `tracing` holds arguments, results, secrets or what a server writes to its standard error: of
//! that, the number of bytes is logged. [`ServerStatus::last_words`](field@ServerStatus::last_words) is for a person alone. The protocol crate, [`rmcp`](https://docs.rs/rmcp), logs whole messages. It runs
//! on a thread of its own, where nothing is recorded.
//!
//! # Not supported
//!
//! Prompts, resources that no tool returns, sampling, elicitation, roots, tasks, OAuth, the older transport of HTTP with
//! server-sent events, and servers that speak only protocol versions after 2025-11-25.

mod backlog;
mod child;
mod config;
mod connection;
mod consent;
mod content;

mod hub;
mod last_words;
mod lines;
mod link;
mod mend;
mod plugin;
mod resolved;
mod schema;
mod session_servers;
mod tool;
mod value;
mod web;

pub use config::{McpServer, McpServers};
pub use link::ServerStatus;
pub use plugin::{Mcp, McpSessionServers};
pub use tool::McpTool;
