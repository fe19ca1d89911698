//! The agent: built once, it opens sessions and runs them, one bounded run at a time.

pub(crate) mod agent;
mod ask;
mod builder;
pub(crate) mod calls;
pub(crate) mod children;
mod config;
mod drive;
mod driver;
mod offline;
mod plugin;
mod provider;
mod report;
mod room;
mod rounds;
pub(crate) mod run;
mod scheduler;
pub(crate) mod session_ref;
mod session_tools;
pub(crate) mod settings;
mod spans;
pub(crate) mod start;
pub(crate) mod stop;
mod tools;
mod updates;

pub use agent::AgentRuntime;
pub use builder::AgentBuilder;
pub use config::{Config, Limits, Persistence, Retry, ToolPolicy};
pub use offline::{EchoProvider, Gate, ScriptedProvider, Turn};
pub use plugin::{Plugin, ToolContext};
pub use provider::{
    LlmProvider, ModelCall, ModelEvent, ModelRequest, ModelStream, StopReason, ToolMode, ToolSpec, Usage,
};
pub use report::{RunOutcome, RunReport, Stored, Update};
pub use rounds::{Round, SchedulerConfig};
pub use run::{Canceller, Input, Run};
pub use scheduler::Scheduler;
pub use session_tools::SessionTools;
