//! Durable sessions for LLM agents: conversations that survive crashes, concurrent writers and hung runs, on files,
//! SQLite, PostgreSQL or S3. This crate is the facade for hosts: the names of everyday use in one dependency, and their crates as
//! [`core`], [`workspace`], [`runtime`] and [`admin`].
//!
//! ```text
//!  your host ── AgentBuilder ──> AgentRuntime ── conversation(key) ──> Conversation ── prompt(..) ──> Run
//!                │ with_llm        │ sessions(query)                     │ messages()                 │ a stream of Update
//!                │ with_tool       │ workspaces()                        │ fork, suspend, erase       │ finish() ─> RunReport
//!                │ with_storage    │ close()                             │
//!                v                 v                                     v
//!          Storage: three stores of one tenant          session: append-only log of events
//! ```
//!
//! A *session* is a log of events: messages, tool calls, results. A *run* answers its waiting inputs: one loop of model
//! and tools under a lease, in which each step is stored as it happens. A *workspace* contains sessions and
//! configuration. If the process ends at any point, the next one continues the conversation at the last stored step.
//!
//! ```
//! use agent::schemars::JsonSchema;
//! use agent::{AgentBuilder, EchoProvider, tool};
//!
//! #[derive(serde::Deserialize, JsonSchema)]
//! #[schemars(crate = "agent::schemars")]
//! struct City {
//!     name: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let weather = tool("weather", "Current weather of a city", |city: City, _context| async move {
//!     Ok::<_, std::io::Error>(format!("sunny in {}", city.name))
//! });
//! let agent = AgentBuilder::new()
//!     .with_llm(EchoProvider::new())
//!     .with_tool(weather)
//!     .with_storage(agent::open_storage("memory:").await?)
//!     .build()?;
//! let chat = agent.conversation("support/4711").await?;
//! let answer = chat.prompt("Hello").await?.finish().await?;
//! assert_eq!(answer.text, "Hello");
//! agent.close().await?;
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | Feature | Address | Store |
//! |---|---|---|
//! | | `memory:` | [`MemoryStore`]: data that is lost with the process |
//! | `sqlite`, on by default | `sqlite:PATH` | `SqliteStore`: one embedded database file |
//! | `fs` | `files:PATH` | `FsStore`: files that a person can read |
//! | `s3` | `s3://BUCKET/PREFIX` | `S3Store`: a bucket of an object store, for many machines |
//! | `gcs` | `gs://BUCKET/PREFIX` | the same on Google Cloud Storage |
//! | `azure` | `az://CONTAINER/PREFIX` | the same on Azure Blob Storage |
//! | `postgres` | `postgres://USER@HOST/DATABASE` | `PostgresStore`: one schema of a PostgreSQL database, for many machines |
//!
//! | Feature | Module | Connects |
//! |---|---|---|
//! | `rig` | `rig` | hosted models: Anthropic, OpenAI, Gemini, Ollama and others, as providers |
//! | `mcp` | `mcp` | the tools of servers of the Model Context Protocol |
//! | `acp` | `acp` | editors and other clients of the Agent Client Protocol |
//!
//! [`open_storage`] opens a store by its address, [`open_backend`] all of its tenants.
//! [`AgentBuilder`] accepts any other store that implements the three traits of [`core`], one for each kind of store.
//! The library needs a Tokio runtime, of either flavor, with time enabled.
//!
//! # Next
//!
//! The cookbook (`docs/cookbook` in the repository) has a page for each task: stream an answer, tools with consent, many
//! tenants, search, forks, recovery, retention, a backend or a model provider of your own. [`runtime`] documents
//! conversations and runs, [`workspace`] what can be done without an agent, [`core`] the data model and the contract of stores, [`admin`] verification, copies and export.

mod open;

#[cfg(feature = "acp")]
pub use agent_acp as acp;
#[cfg(feature = "mcp")]
pub use agent_mcp as mcp;
#[cfg(feature = "rig")]
pub use agent_rig as rig;
#[cfg(feature = "fs")]
pub use agent_storage_fs::FsStore;
#[cfg(feature = "postgres")]
pub use agent_storage_postgres::{PostgresConfig, PostgresStore};
#[cfg(feature = "s3")]
pub use agent_storage_s3::{IndexedField, Requests, S3Config, S3Store};
#[cfg(feature = "sqlite")]
pub use agent_storage_sqlite::SqliteStore;
#[cfg(feature = "vault")]
pub use agent_vault as vault;
pub use {agent_admin as admin, agent_core as core, agent_runtime as runtime, agent_workspace as workspace};

pub use agent_core::search::{Search, SearchPage};
pub use agent_core::session::SessionRecord;
pub use agent_core::store::SessionQuery;
pub use agent_core::{
    Backend, DeviceId, Error, ErrorKind, MemoryStore, Result, SessionId, Storage, TenantId, WorkspaceId,
};
pub use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, EchoProvider, LlmProvider, Plugin, Queued, Recall, Run,
    RunError, RunOutcome, RunReport, Scheduler, Tool, ToolContext, ToolMode, ToolSpec, Update,
    WorkspaceManager, schemars, tool,
};
pub use open::{open_backend, open_storage, registry};
