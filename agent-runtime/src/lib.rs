//! Runtime for LLM agents on durable storage: conversations, tools and scheduled work that survive crashes.
//!
//! A *session* is a durable log of events in a store of [`agent_core`]. A *run* is one bounded piece of work on a
//! session: it holds the session's lease, calls the model, makes its tool calls, and stores each step before the next
//! one. Between runs a session needs no process. Any process with the same store can start the next run.
//!
//! ```text
//!  AgentBuilder ── model, tools, stores, Config
//!       │ build
//!  AgentRuntime ── conversation(key) ─► Conversation ── prompt ─► Run ── updates ─► report
//!       │                                                          │
//!  Scheduler ──── due inputs, answers, timers, retries ──────────► │ model ⇄ tools
//!       │                                                          ▼
//!  Storage (agent_core): workspaces, sessions, device bindings ◄── events, one commit per step
//! ```
//!
//! ```
//! use agent_core::MemoryStore;
//! use agent_runtime::{AgentBuilder, EchoProvider};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> agent_core::Result<()> {
//! let agent = AgentBuilder::new()
//!     .with_llm(EchoProvider::new()) // any `LlmProvider`
//!     .with_storage(MemoryStore::new()) // or files, SQLite, S3
//!     .build()?;
//! // Opens the session of a key of the host; creates it if it does not exist.
//! let chat = agent.conversation("support/4711").await?;
//! // Stores the message and starts a run, in one commit.
//! let report = chat.prompt("Hello").await?.finish().await?;
//! assert_eq!(report.text, "Hello");
//! assert_eq!(chat.stats().await?.counts.messages(), 2);
//! agent.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Requirements
//!
//! The crate runs on tokio, in a runtime of either flavor with time enabled. It has no cargo features and makes no
//! network calls of its own: a host implements [`LlmProvider`], or uses the facade `agent`, which also re-exports the
//! stores.
//!
//! # Where to go next
//!
//! - [`Conversation`]: prompt, stream, answer, fork, archive, erase. [`Run`]: the updates of one run.
//! - [`tool`] makes a tool of an async function; [`Plugin`] adds families of tools and hooks; [`ToolMode::Confirm`]
//!   makes calls wait for consent.
//! - [`Scheduler`] runs due work in the background; a [`Queued`] input waits for its run.
//! - [`WorkspaceManager`] and [`NewWorkspace`]: workspaces and device bindings. [`retention`]: deletion by age.
//! - [`documents`], [`areas`], [`files`], [`learnings`]: what an agent remembers. [`mounts`] and [`secrets`]: what it may use.
//! - [`views`]: what a user interface reads. [`configuration`]: layered settings of a host.
//! - [`ScriptedProvider`] and [`EchoProvider`] test an agent without a network.

pub mod context;
mod conversations;
mod handle;
mod media;
mod runtime;
mod streams;

pub use agent_workspace::{
    NewWorkspace, Resolution, Resolved, WorkspaceManager, areas, configuration, documents, files, learnings,
    mounts, retention, secrets, state_payload, views,
};
pub use conversations::{ConversationRun, WorkspaceHandle};
pub use handle::{ActionAnswer, Conversation, SessionStats};
pub use runtime::agent::AgentRuntime;
pub use runtime::builder::AgentBuilder;
pub use runtime::config::{Config, Limits, OnStoreError, Retry, ToolPolicy};
pub use runtime::fault::{FaultKind, ProviderFault};
pub use runtime::function_tool::{Tool, tool};
pub use runtime::model_event::{ModelCall, ModelEvent, ModelPart, PartContent, PartKind, StopReason, Usage};
pub use runtime::model_options::{Effort, MediaKind, ModelCapabilities, ToolChoice};
pub use runtime::offline::{EchoProvider, Gate, ScriptedProvider, Turn};
pub use runtime::plugin::{Plugin, ToolContext};
pub use runtime::provider::{LlmProvider, ModelRequest, ModelStream, ToolMode, ToolSpec};
pub use runtime::replay::ModelTarget;
pub use runtime::report::{Queued, RunOutcome, RunReport, Update};
pub use runtime::rounds::{Round, SchedulerConfig};
pub use runtime::run::{Canceller, Input, Run};
pub use runtime::run_error::RunError;
pub use runtime::scheduler::Scheduler;
pub use runtime::session_context::SessionContext;
pub use runtime::session_tools::SessionTools;
pub use runtime::summarizer::{Summarizer, SummaryRequest};
pub use runtime::tool_output::ToolOutput;
pub use schemars;
pub use streams::ConversationMessage;
