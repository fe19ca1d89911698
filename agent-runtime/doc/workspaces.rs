// Set-up of the doc examples with workspaces and secrets; they include this file by a hidden line.

#[allow(unused_imports)]
use setup::*;

#[allow(dead_code, unused_imports)]
mod setup {
    include!("common.rs");

    /// A conversation about the project `website`.
    pub async fn website() -> Result<(AgentRuntime, Conversation)> {
        let agent = echo_agent()?;
        let workspace = agent.workspaces().default_workspace().await?.id;
        let chat = agent.new_session(workspace, &Patch::new().with_label("project", "website")).await?;
        Ok((agent, chat))
    }

    /// Two storages in memory, and the manager of the first one.
    pub fn two_storages() -> (Storage, Storage, WorkspaceManager) {
        let (here, there) = (Storage::from(MemoryStore::new()), Storage::from(MemoryStore::new()));
        let manager = WorkspaceManager::new(here.clone());
        (here, there, manager)
    }

    /// A storage in memory with one workspace.
    pub async fn home() -> Result<(Storage, Workspace)> {
        let storage = Storage::from(MemoryStore::new());
        let workspace = WorkspaceManager::new(storage.clone()).create(NewWorkspace::new("home")).await?;
        Ok((storage, workspace))
    }

    /// Two managers of one storage, the second one with a clock that shows 1970.
    pub fn managers() -> (WorkspaceManager, WorkspaceManager) {
        let storage = Storage::from(MemoryStore::new());
        let old = storage.clone().with_effects(Effects::seeded(1, Timestamp::UNIX_EPOCH));
        (WorkspaceManager::new(storage), WorkspaceManager::new(old))
    }

    /// The secret `github`, and its name.
    pub fn github() -> Result<(SecretName, Secrets)> {
        let name: SecretName = "github".parse()?;
        let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("ghp_0123456789")?)]));
        Ok((name, secrets))
    }
}
