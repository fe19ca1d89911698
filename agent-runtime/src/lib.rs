//! Agents on durable storage: an [`AgentBuilder`] wires stores, a model and tools into an [`AgentRuntime`], which opens
//! sessions and runs them, one bounded run at a time.
//!
//! The model of a session and the traits of the stores are those of [`agent_core`].

pub mod configuration;
pub mod context;
mod handle;
pub mod holdings;
pub mod retention;
mod runtime;
pub mod secrets;
pub mod state_payload;
pub mod views;
mod workspaces;

pub use handle::{ActionAnswer, ContextCounts, SessionHandle};
pub use runtime::agent::AgentRuntime;
pub use runtime::builder::AgentBuilder;
pub use runtime::config::{Config, Limits, Persistence, Retry, ToolPolicy};
pub use runtime::offline::{EchoProvider, Gate, ScriptedProvider, Turn};
pub use runtime::plugin::{Plugin, ToolContext};
pub use runtime::provider::{
    LlmProvider, ModelCall, ModelEvent, ModelRequest, ModelStream, StopReason, ToolMode, ToolSpec, Usage,
};
pub use runtime::report::{RunOutcome, RunReport, Stored, Update};
pub use runtime::rounds::{Round, SchedulerConfig};
pub use runtime::run::{Canceller, Input, Run};
pub use runtime::scheduler::Scheduler;
pub use runtime::session_tools::SessionTools;
pub use workspaces::{NewWorkspace, Resolution, Resolved, WorkspaceManager};
