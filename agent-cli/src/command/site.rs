//! Context of a command.

use agent_admin::audit::audited;
use agent_core::clock::Effects;
use agent_core::store::Damaged;
use agent_core::{Backend, Storage, TenantId};
use agent_runtime::WorkspaceManager;

use crate::args::Args;
use crate::failure::Failure;
use crate::output::{Out, count_unread, unread};

/// Stores of one tenant, and the output.
pub(crate) struct Site<'a> {
    pub(crate) args: &'a Args,
    pub(crate) storage: Storage,
    pub(crate) effects: Effects,
    pub(crate) manager: WorkspaceManager,
    pub(crate) out: Out,
}

impl<'a> Site<'a> {
    pub(crate) fn new(
        args: &'a Args,
        store: &dyn Backend,
        tenant: &TenantId,
        out: Out,
    ) -> Result<Self, Failure> {
        let effects = Effects::default();
        let storage = audited(&store.tenant(tenant), &effects, args.actor()?);
        let manager = WorkspaceManager::new(storage.clone(), effects.clone());
        Ok(Self { args, storage, effects, manager, out })
    }
}

/// Prints the objects that a list could not read, and returns an error if there is any.
pub(super) fn named(site: &Site<'_>, damaged: &[Damaged]) -> Result<(), Failure> {
    damaged.iter().for_each(|damage| site.out.note(&unread(damage)));
    match damaged {
        [] => Ok(()),
        damaged => Err(Failure::incomplete(format!(
            "skipped {} (listed above); run `chat verify` for details",
            count_unread(damaged)
        ))),
    }
}
