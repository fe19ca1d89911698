//! Context of a command.

use agent_admin::audit::audited;
use agent_core::json::{RawFields, RawJson};
use agent_core::store::{Damaged, Page};
use agent_core::{Backend, Storage, TenantId};
use agent_runtime::WorkspaceManager;
use serde::Serialize;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::output::{Out, count_unread, damage, unread};

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

    /// Prints a page of a list. In JSON, its items are passed through as they are stored.
    pub(super) fn page<T: Serialize>(
        &self,
        page: &Page<T>,
        headings: &[&str],
        row: impl Fn(&T) -> Vec<String>,
    ) -> Result<()> {
        let whole: RawFields = [
            ("items", RawJson::sure(&page.items)),
            ("total", RawJson::sure(&page.total)),
            ("next", RawJson::sure(&page.next)),
            ("damaged", RawJson::sure(&damage(&page.damaged))),
        ]
        .into_iter()
        .collect();
        self.out.table(&whole, headings, &page.items.iter().map(row).collect::<Vec<_>>());
        if let Some(next) = &page.next {
            self.out.note(&format!("(more rows: --after '{next}')"));
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
