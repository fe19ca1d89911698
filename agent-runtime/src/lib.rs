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

mod agent;
mod config;
pub mod context;
mod conversation;
mod model;
mod run;
mod schedule;
mod tool;
mod turn;

pub use agent::builder::AgentBuilder;
pub use agent::runtime::AgentRuntime;
pub use agent_workspace::{
    NewWorkspace, Resolution, Resolved, WorkspaceManager, agents, areas, configuration, documents, erasure,
    files, learnings, mounts, retention, secrets, state_payload, views,
};
pub use config::{Config, Limits, OnStoreError, Retry, ToolPolicy};
pub use conversation::answer::ActionAnswer;
pub use conversation::handle::Conversation;
pub use conversation::messages::ConversationMessage;
pub use conversation::open::{ConversationRun, WorkspaceHandle};
pub use conversation::read::SessionStats;
pub use conversation::title::GeneratedTitle;
pub use model::event::{ModelCall, ModelEvent, ModelPart, PartContent, PartKind, StopReason, Usage};
pub use model::fault::{FaultKind, ProviderFault};
pub use model::offline::{EchoProvider, Gate, ScriptedProvider, Turn};
pub use model::options::{Effort, MediaKind, ModelCapabilities, ToolChoice};
pub use model::provider::{LlmProvider, ModelRequest, ModelStream, ToolMode, ToolSpec};
pub use model::replay::ModelTarget;
pub use model::summarizer::{Summarizer, SummaryRequest, WrittenSummary};
pub use model::text::generate_text;
pub use run::error::RunError;
pub use run::handle::{Canceller, Input, Run};
pub use run::limit::{LimitKind, ReachedLimit};
pub use run::live::Live;
pub use run::report::{Queued, RunOutcome, RunReport, Update};
pub use schedule::rounds::{Round, SchedulerConfig};
pub use schedule::scheduler::Scheduler;
pub use schedule::session_tools::SessionTools;
pub use schemars;
pub use tool::function::{Tool, tool, tool_for_output};
pub use tool::output::ToolOutput;
pub use tool::plugin::{Plugin, ToolContext};
pub use tool::recall::Recall;
pub use tool::session_context::SessionContext;
