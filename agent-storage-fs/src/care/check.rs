//! Damage that lists do not show.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;

use agent_core::store::Damaged;
use agent_core::{Result, SessionId, TenantId, WorkspaceId};

use crate::blobs::sweep;
use crate::io::Kind;
use crate::lists::folders::all;
use crate::log::commit::load_folder;
use crate::log::place;
use crate::medium::cached::Cached;
use crate::medium::env::Env;
use crate::medium::layout::{self, Layout, is_strange};
use crate::medium::lease;
use crate::places::workspaces as records;
use crate::shared::tenant::Tenant;

/// Returns the damage that lists do not show: workspaces that are known but missing, sessions that a person moved
/// into another workspace's folder, which no list of a workspace shows, ids that two sessions have, leases that are no
/// files, and folders that have no ids for their names. Those of tenants are damage of the tenant `default`.
pub(crate) fn check(tenant: &Tenant) -> Result<Vec<Damaged>> {
    let mut damaged = records::missing(tenant);
    damaged.extend(sweep::odd_early(tenant));
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
        damaged.extend(sweep::odd(&tenant.env, &folder.join(layout::BLOBS)));
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
