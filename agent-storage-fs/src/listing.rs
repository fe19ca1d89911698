//! What there is of sessions besides lists: all that have a folder, those that are missing, and damage that lists do not show.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::str::FromStr;

use agent_core::model::Origin;
use agent_core::session::Session;
use agent_core::store::Damaged;
use agent_core::{Result, SessionId, TenantId, WorkspaceId};

use crate::cached::Cached;
use crate::env::Env;
use crate::error::is_own;
use crate::io::{Kind, OpenMode};
use crate::layout::{self, Layout, id_of};
use crate::log::Forward;
use crate::sessions::load_folder;
use crate::tenant::Tenant;
use crate::{blob_sweep, lease, place, record, workspaces as records};

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

/// Returns the damage that lists do not show: workspaces that are known but missing, sessions that a person moved
/// into another workspace's folder, which no list of a workspace shows, ids that two sessions have, leases that are no
/// files, and folders that have no ids for their names. Those of tenants are damage of the tenant `default`.
pub(crate) fn check(tenant: &Tenant) -> Result<Vec<Damaged>> {
    let mut damaged = records::missing(tenant);
    damaged.extend(blob_sweep::odd_early(tenant));
    if *tenant.layout.tenant() == TenantId::default() {
        damaged.extend(strangers::<TenantId>(&tenant.env, &Layout::tenants(&tenant.env.root), "tenant"));
    }
    damaged.extend(strangers::<WorkspaceId>(&tenant.env, &tenant.layout.workspaces(), "workspace"));
    for workspace in place::workspaces(tenant)? {
        damaged.extend(strangers::<SessionId>(&tenant.env, &tenant.layout.sessions(workspace), "session"));
    }
    let mut homes = HashMap::new();
    for (workspace, id) in all(tenant, &mut Vec::new())? {
        let folder = tenant.layout.session(workspace, id);
        damaged.extend(blob_sweep::odd(&tenant.env, &folder.join(layout::BLOBS)));
        damaged.extend(lease::odd(&tenant.env, &folder));
        if let Some(other) = homes.insert(id, workspace) {
            let why = format!(
                "has the id of another session, in the folder of workspace {other}: which of them a call reads is not \
                 known; look at both, and move one of the folders out of the store"
            );
            damaged.push(Damaged::new(folder.display().to_string(), why));
        }
        // Lists report unreadable sessions.
        let Ok(Some(Cached { record, .. })) = load_folder(tenant, &folder, id) else { continue };
        if record.workspace != workspace {
            let home = tenant.layout.session(record.workspace, id);
            let why = format!(
                "is in the folder of workspace {workspace}, and no list shows it; move it to {}",
                home.display()
            );
            damaged.push(Damaged::new(folder.display().to_string(), why));
        }
    }
    Ok(damaged)
}

/// Returns the folders in a folder of tenants, workspaces or sessions that have no ids for their names. Lists report a folder
/// that cannot be read.
fn strangers<T: FromStr + ToString>(env: &Env, folder: &Path, what: &str) -> Vec<Damaged> {
    let names = env.list(folder).unwrap_or_default();
    let strange = names.iter().filter(|(name, kind)| is_strange::<T>(name, *kind));
    let report = |(name, _): &(OsString, Kind)| {
        let why = format!(
            "has a name that is no id of a {what}, so that no call reads it; give it back its name, or move it out of the store"
        );
        Damaged::new(folder.join(name).display().to_string(), why)
    };
    strange.map(report).collect()
}

/// Returns whether an object in a folder of tenants, workspaces or sessions may hold data that nobody finds: it is a folder,
/// and its name is neither an id nor one that the store gives.
pub(crate) fn is_strange<T: FromStr + ToString>(name: &OsStr, kind: Kind) -> bool {
    let text = name.to_string_lossy();
    let is_kept = || text.split_once(layout::LINK_DAMAGED).is_some_and(|(id, _)| id.parse::<T>().is_ok());
    kind == Kind::Folder && id_of::<T>(name).is_none() && !layout::is_temp(&text) && !is_kept()
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
    Session::begin(id, &first).ok().map(|session| session.origin)
}
