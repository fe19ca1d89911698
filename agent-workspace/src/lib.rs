//! Workspaces of agents on durable storage, without an agent loop: reading, managing, sharing, retaining and erasing
//! the conversations of agents.
//!
//! A *workspace* groups the sessions of a person, a team or a task. A device is bound to one workspace. All types here work
//! on a [`Storage`](agent_core::Storage) and hold no lease; the crate `agent-runtime` runs agents on the same stores and
//! re-exports these modules.
//!
//! ```
//! use agent_core::{DeviceId, MemoryStore};
//! use agent_workspace::WorkspaceManager;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> agent_core::Result<()> {
//! let manager = WorkspaceManager::new(MemoryStore::new().into());
//! let laptop: DeviceId = "laptop".parse()?;
//! let home = manager.resolve(&laptop).await?.workspace;
//! let main = manager.main_session(&home).await?;
//! assert_eq!(main.workspace, home.id);
//! # Ok(())
//! # }
//! ```
//!
//! - [`WorkspaceManager`], [`NewWorkspace`]: workspaces, their main sessions and device bindings. [`keys`]: sessions by the host's own keys.
//! - [`branches`]: sessions that continue others in their place.
//! - [`documents`], [`areas`], [`files`], [`learnings`]: what an agent remembers. [`state_payload`] exports it.
//! - [`agents`]: agents by name and source, and their builds.
//! - [`mounts`], [`secrets`]: what a session may use.
//! - [`retention`]: deletion, erasure, deletion by age, removal of what crashes left.
//! - [`erasure`]: erasure of a person or a tenant, with a receipt, and its verification.
//! - [`blobs`]: large content outside of the log.
//! - [`configuration`]: layers of TOML. [`views`]: what a user interface reads.

pub mod agents;
pub mod areas;
pub mod blobs;
pub mod branches;
pub mod configuration;
mod contested;
pub mod documents;
pub mod erasure;
pub mod files;
pub mod keys;
pub mod learnings;
mod manager;
pub mod mounts;
pub mod retention;
pub mod secrets;
pub mod state_payload;
pub mod views;

pub use manager::{NewWorkspace, Resolution, Resolved, WorkspaceManager};
