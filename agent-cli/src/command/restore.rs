//! `chat session restore`.

use agent_admin::salvage::restore;
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::{MemoryStore, SessionId, Storage, TenantId, WorkspaceId};

use super::session::{finish_salvage, read_and_import, workspace_of};
use super::site::Site;
use crate::failure::{Failure, Result};
use crate::stores::copy_address;

/// Options of `chat session restore`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RestoreCommand {
    /// Id of the session in the backup
    id: SessionId,
    /// Store with the backup, as `chat copy` takes it, or a document or archive of `chat session export`
    #[arg(long, value_name = "STORE|FILE")]
    from: String,
    /// Workspace id of the new session (default: that of the session in the backup)
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceId>,
    /// Set the new session as the main session of its workspace
    #[arg(long)]
    main: bool,
}

impl RestoreCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        if std::path::Path::new(&self.from).is_file() {
            // Its sessions keep their ids there, whatever they are derived from.
            let backup = Storage::from(MemoryStore::new());
            read_and_import(&*backup.sessions, self.from.as_ref(), true).await?;
            return self.restore(site, &backup).await;
        }
        let address = copy_address(&self.from).map_err(|why| Failure::new(2, "invalid_input", why))?;
        let (store, converted) = address.source().await?;
        let tenant: TenantId = site.args.tenant.clone().unwrap_or_default();
        let restored = self.restore(site, &store.tenant(&tenant)).await;
        let closed = store.close().await;
        drop(converted);
        restored.and(Ok(closed?))
    }

    async fn restore(&self, site: &Site<'_>, backup: &Storage) -> Result<()> {
        let record = backup.sessions.load(self.id).await.ok();
        let workspace = self.workspace.or(record.as_ref().map(|record| record.workspace));
        let workspace = workspace.unwrap_or(WorkspaceId::DEFAULT);
        workspace_of(site, workspace, true).await?;
        let key = record.as_ref().and_then(|record| record.conversation_key());
        let mut new = NewSession::new(site.storage.effects().new_session_id(), workspace);
        if let Some(key) = key {
            // The next session of the key, if the last one is deleted or cannot be read.
            let newest = site.manager.newest_conversation(workspace, &key).await?;
            let taken = newest.as_ref().and_then(|newest| newest.record.as_ref().ok());
            match taken.filter(|session| session.status.state != SessionState::Deleted) {
                Some(taken) => {
                    let id = taken.id;
                    site.out.note(&format!("(session {id} has its key, so that the restored one gets none)"));
                }
                None => {
                    let generation = newest.map_or(0, |newest| newest.generation + 1);
                    new = NewSession::conversation(&key, site.storage.owner(), workspace, generation);
                }
            }
        }
        if let Some(record) = &record {
            new.created.owner.clone_from(&record.owner);
        }
        let restored = restore(backup, self.id, &site.storage, new).await?;
        finish_salvage(site, self.id, &restored, self.main).await
    }
}
