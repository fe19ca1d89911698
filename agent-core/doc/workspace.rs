// Set-up of the doc examples about workspaces, which include this file by a hidden line.

#[allow(unused_imports)]
use setup::*;

#[allow(dead_code, unused_imports)]
mod setup {
    pub use agent_core::clock::Effects;
    pub use agent_core::model::Workspace;
    pub use agent_core::{MemoryStore, Result, WorkspaceId, WorkspaceStoreExt};

    /// The default workspace, not yet stored.
    pub fn new_workspace() -> Workspace {
        let effects = Effects::default();
        Workspace::new(WorkspaceId::DEFAULT, "Travel", effects.new_session_id(), effects.now())
    }

    /// The default workspace in memory.
    pub async fn workspace() -> Result<(MemoryStore, Effects, Workspace)> {
        let store = MemoryStore::new();
        let workspace = store.create(new_workspace()).await?;
        Ok((store, Effects::default(), workspace))
    }
}
