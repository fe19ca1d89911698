//! Durable workspaces, sessions and device bindings for agents. One dependency for hosts: the names of everyday use, and
//! the crates that they come from, as [`core`], [`runtime`] and [`admin`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use agent::{AgentBuilder, Config, EchoProvider, MemoryStore};
//!
//! let agent = AgentBuilder::new(Config::default())
//!     .with_llm(Arc::new(EchoProvider::new()))
//!     .with_storage(MemoryStore::new())
//!     .build()?;
//! let chat = agent.open(&"laptop".parse()?).await?;
//! let answer = chat.prompt("Hello").await?.finish().await?;
//! assert_eq!(answer.text, "Hello");
//! agent.close().await?;
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | Feature | Store |
//! |---|---|
//! | `fs` | `FsStore`: files that a person can read |
//! | `sqlite` | `SqliteStore`: one embedded database file |
//! | `s3` | `S3Store`: a bucket of an object store, for many machines |
//!
//! None is on unless asked for. [`AgentBuilder`] takes any other store by the three traits of [`core`], one for each slot.

#[cfg(feature = "fs")]
pub use agent_storage_fs::FsStore;
#[cfg(feature = "s3")]
pub use agent_storage_s3::S3Store;
#[cfg(feature = "sqlite")]
pub use agent_storage_sqlite::SqliteStore;
pub use {agent_admin as admin, agent_core as core, agent_runtime as runtime};

pub use agent_core::session::Session;
pub use agent_core::store::SessionQuery;
pub use agent_core::{DeviceId, Error, ErrorKind, MemoryStore, Result, SessionId, Storage, WorkspaceId};
pub use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, EchoProvider, LlmProvider, Plugin, Run, RunReport, Scheduler,
    SessionHandle, ToolContext, ToolSpec, Update, WorkspaceManager,
};
