//! Workspaces: the record, the queries, and the store's trait.

mod record;
mod store;

pub use record::{Workspace, WorkspaceStatus};
pub use store::{ContentHash, WorkspaceQuery, WorkspaceStore, WorkspaceStoreExt};
