//! Folders of sessions: all that there are, and those that are missing.

use std::path::Path;

use agent_core::model::Origin;
use agent_core::session::SessionRecord;
use agent_core::store::Damaged;
use agent_core::{Result, SessionId, WorkspaceId};

use crate::error::is_own;
use crate::io::OpenMode;
use crate::log::place;
use crate::medium::layout::{self, id_of};
use crate::medium::log::Forward;
use crate::medium::record;
use crate::shared::tenant::Tenant;

/// Returns all sessions that have a folder, each with the workspace that contains it. Adds unreadable folders to
/// `damaged`.
pub(crate) fn all(tenant: &Tenant, damaged: &mut Vec<Damaged>) -> Result<Vec<(WorkspaceId, SessionId)>> {
    let mut all = Vec::new();
    for workspace in place::workspaces(tenant)? {
        let folder = tenant.layout.sessions(workspace);
        match tenant.env.list(&folder) {
            Ok(names) => {
                all.extend(names.iter().filter_map(|(name, _)| Some((workspace, id_of::<SessionId>(name)?))));
            }
            Err(error) if is_own(&error) => {
                damaged.push(Damaged::of(folder.display().to_string(), &error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Returns the sessions that are known but missing.
pub(crate) fn missing(tenant: &Tenant) -> Result<Vec<Damaged>> {
    // Unreadable folders are reported by the search of these folders.
    let there = all(tenant, &mut Vec::new())?.into_iter().map(|(_, id)| id).collect();
    Ok(place::all_missing(tenant, &there))
}

/// Returns the origin of a session, if its tombstone or the beginning of its log is readable.
pub(crate) fn origin(tenant: &Tenant, folder: &Path, id: SessionId) -> Option<Origin> {
    let owner = tenant.layout.owner(id);
    if let Ok(Some(tombstone)) = record::read_tombstone(&tenant.env, folder, owner) {
        return Some(tombstone.origin);
    }
    let log = tenant.env.io.open(&folder.join(layout::LOG), OpenMode::Read).ok()?;
    let len = log.stat().ok()?.len;
    let first = Forward::new(owner, &*log, 0, len).next().ok()??.event()?;
    SessionRecord::begin(id, &first).ok().map(|session| session.origin)
}
