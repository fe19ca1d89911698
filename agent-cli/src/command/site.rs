//! Context of a command.

use agent_admin::audit::audited;
use agent_core::json::{RawFields, RawJson};
use agent_core::store::{Damaged, Page, SessionQuery};
use agent_core::{Backend, SessionId, Storage, TenantId, WorkspaceId};
use agent_runtime::WorkspaceManager;
use serde::Serialize;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::output::{Out, count_unread, damage, unread};
use crate::pick::{Picked, SessionRef, WorkspaceRef};

/// Stores of one tenant, and the output.
pub(crate) struct Site<'a> {
    pub(crate) args: &'a Args,
    pub(crate) storage: Storage,
    pub(crate) manager: WorkspaceManager,
    pub(crate) out: Out,
}

impl<'a> Site<'a> {
    pub(crate) fn new(args: &'a Args, store: &dyn Backend, tenant: &TenantId, out: Out) -> Result<Self> {
        let storage = args.of_owner(audited(&store.tenant(tenant), args.actor()?));
        let manager = WorkspaceManager::new(storage.clone());
        Ok(Self { args, storage, manager, out })
    }

    /// Returns the id of the session that is meant.
    pub(super) async fn session(&self, named: &SessionRef) -> Result<SessionId> {
        Ok(self.meant(named).await?.id)
    }

    /// Returns the session that is meant, with its title unless it was named by its id.
    pub(super) async fn meant(&self, named: &SessionRef) -> Result<Picked> {
        named.find(&*self.storage.sessions, SessionQuery::new()).await
    }

    /// Returns the id of the workspace that is meant.
    pub(super) async fn workspace(&self, named: &WorkspaceRef) -> Result<WorkspaceId> {
        named.id(&*self.storage.workspaces).await
    }

    /// Prints a page of a list.
    pub(super) fn page<T: Serialize>(
        &self,
        page: &Page<T>,
        headings: &[&str],
        row: impl Fn(&T) -> Vec<String>,
    ) -> Result<()> {
        let rows: Vec<_> = page.items.iter().map(row).collect();
        self.page_by(page, "", |whole| self.out.table(whole, headings, &rows))
    }

    /// Prints a page of a list by a function that is given it as JSON, in which its items are passed through as they are stored.
    /// `again` are the options that the command for the next page has to have.
    pub(super) fn page_by<T: Serialize>(
        &self,
        page: &Page<T>,
        again: &str,
        print: impl FnOnce(&RawFields),
    ) -> Result<()> {
        let whole: RawFields = [
            ("items", RawJson::sure(&page.items)),
            ("total", RawJson::sure(&page.total)),
            ("next", RawJson::sure(&page.next)),
            ("damaged", RawJson::sure(&damage(&page.damaged))),
        ]
        .into_iter()
        .collect();
        print(&whole);
        if let Some(next) = &page.next {
            self.out.note(&format!("(more rows: {again}--after '{next}')"));
        }
        self.named(&page.damaged)
    }

    /// Prints the objects that a list could not read, and returns an error if there is any.
    pub(super) fn named(&self, damaged: &[Damaged]) -> Result<()> {
        damaged.iter().for_each(|damage| self.out.note(&unread(damage)));
        match damaged {
            [] => Ok(()),
            damaged => Err(Failure::incomplete(format!(
                "skipped {} (listed above); run `chat verify` for details",
                count_unread(damaged)
            ))),
        }
    }
}
