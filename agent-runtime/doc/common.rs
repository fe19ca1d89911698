// What each set-up of the doc examples has: names, and agents that repeat what they are sent.

pub use std::collections::BTreeMap;
pub use std::time::Duration;

pub use agent_core::clock::Effects;
pub use agent_core::commit::Precondition;
pub use agent_core::event::{Learning, LearningKind, NewEvent};
pub use agent_core::json::RawJson;
pub use agent_core::model::{Access, Actor, Attributes, Patch, Workspace};
pub use agent_core::session::NewSession;
pub use agent_core::store::{HiddenSession, ReadEvents, SessionQuery, WorkspaceArea, WorkspaceQuery};
pub use agent_core::{ErrorKind, MemoryStore, Result, Seq, SessionStoreExt, Storage, Timestamp, WorkspaceId};
pub use agent_runtime::areas::Area;
pub use agent_runtime::context::{ContextLimits, ModelContext};
pub use agent_runtime::documents::DocumentWrite;
pub use agent_runtime::files::WorkspaceFiles;
pub use agent_runtime::learnings::Learnings;
pub use agent_runtime::secrets::{Secret, SecretName, Secrets};
pub use agent_runtime::state_payload::StatePayload;
pub use agent_runtime::{AgentBuilder, AgentRuntime, Config, Conversation, EchoProvider, Gate, NewWorkspace};
pub use agent_runtime::{Queued, Retry, ScriptedProvider, Tool, ToolMode, Turn, WorkspaceManager, schemars, tool};

/// An agent that repeats what it is sent, with its data in memory.
pub fn echo_agent() -> Result<AgentRuntime> {
    AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()
}

/// A conversation with an agent that repeats what it is sent.
pub async fn echo() -> Result<(AgentRuntime, Conversation)> {
    let agent = echo_agent()?;
    let chat = agent.conversation("support/4711").await?;
    Ok((agent, chat))
}
