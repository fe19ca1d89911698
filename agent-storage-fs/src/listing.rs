//! Lists of sessions. Checks each log's length, and reads only what changed since the last check.

use std::io;
use std::path::Path;

use agent_core::model::Origin;
use agent_core::session::{Session, SessionSummary};
use agent_core::state::SessionState;
use agent_core::store::{Damaged, Page, SessionQuery};
use agent_core::{Error, ErrorKind, Result, SessionId, WorkspaceId};

use crate::env::held;
use crate::error::{corrupt, failed};
use crate::io::OpenMode;
use crate::layout::{self, id_of};
use crate::log::Forward;
use crate::sessions::load_folder;
use crate::tenant::Tenant;
use crate::{blob_sweep, place, record, workspaces as records};

/// Returns one page of sessions.
pub(crate) fn sessions(tenant: &Tenant, query: &SessionQuery) -> Result<Page<SessionSummary>> {
    let workspaces = match query.workspace {
        Some(id) => vec![id],
        None => place::workspaces(tenant)?.collect(),
    };
    let (mut damaged, mut closed, mut failed) = (Vec::new(), Vec::new(), None);
    let each = workspaces.into_iter().map_while(|workspace| {
        let folder = tenant.layout.sessions(workspace);
        let names = match tenant.env.list(&folder) {
            Ok(names) => names,
            // An unreadable workspace hides nothing of the others.
            Err(error) if query.workspace.is_none() && is_own(&error) => {
                closed.push(Damaged::of(folder.display().to_string(), &error));
                Vec::new()
            }
            Err(error) => {
                failed = Some(error);
                return None;
            }
        };
        Some(names.into_iter().map(move |(name, _)| (folder.join(&name), id_of::<SessionId>(&name))))
    });
    let found = each.flatten().filter_map(|(folder, id)| {
        let id = id?;
        summary(tenant, &folder, id).unwrap_or_else(|error| {
            // A session whose beginning can be read is known not to be a child of the parent.
            let other = query.parent.is_some_and(|parent| {
                origin(tenant, &folder, id).is_some_and(|origin| origin.parent() != Some(parent))
            });
            if !other {
                damaged.push(Damaged::of(folder.display().to_string(), &error));
            }
            None
        })
    });
    let page = query.page(found)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let whole = query.parent.is_some() || query.states.contains(&SessionState::Archived);
    if query.cursor.is_none() && (query.with_total || (whole && query.workspace.is_none())) {
        // A missing session may be a child, and in any state.
        let missing = missing(tenant)?.into_iter();
        let is_elsewhere =
            |it: &Damaged| query.workspace.is_some_and(|id| it.workspace.is_some_and(|of| of != id));
        damaged.extend(missing.filter(|it| !is_elsewhere(it)));
    }
    damaged.append(&mut closed);
    // Each is listed once, on the first page.
    if query.cursor.is_some() {
        damaged.clear();
    }
    damaged.sort();
    Ok(page.with_damaged(damaged))
}

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

/// Returns the damage that lists do not show: workspaces that are known but missing, and sessions that a person moved
/// into another workspace's folder, which no list of a workspace shows.
pub(crate) fn check(tenant: &Tenant) -> Result<Vec<Damaged>> {
    let mut damaged = records::missing(tenant);
    damaged.extend(blob_sweep::odd_early(tenant));
    for (workspace, id) in all(tenant, &mut Vec::new())? {
        let folder = tenant.layout.session(workspace, id);
        damaged.extend(blob_sweep::odd(&tenant.env, &folder.join(layout::BLOBS)));
        // Lists report unreadable sessions.
        let Ok(Some(summary)) = summary(tenant, &folder, id) else { continue };
        if summary.workspace != workspace {
            let home = tenant.layout.session(summary.workspace, id);
            let why = format!(
                "is in the folder of workspace {workspace}, and no list shows it; move it to {}",
                home.display()
            );
            damaged.push(Damaged::new(folder.display().to_string(), why));
        }
    }
    Ok(damaged)
}

/// Returns whether the error concerns the object itself, rather than the machine.
fn is_own(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Denied)
}

/// Returns the origin of a session, if its tombstone or the beginning of its log is readable.
fn origin(tenant: &Tenant, folder: &Path, id: SessionId) -> Option<Origin> {
    let owner = tenant.layout.owner(id);
    if let Ok(Some(tombstone)) = record::read_tombstone(&tenant.env, folder, owner) {
        return Some(tombstone.origin);
    }
    let log = tenant.env.io.open(&folder.join(layout::LOG), OpenMode::Read).ok()?;
    let len = log.stat().ok()?.len;
    let first = Forward::new(owner, &*log, 0, len).next().ok()??.event()?;
    Session::begin(id, &first).ok().map(|session| session.origin)
}

fn summary(tenant: &Tenant, folder: &Path, id: SessionId) -> Result<Option<SessionSummary>> {
    let log = folder.join(layout::LOG);
    let stat = match tenant.env.io.stat(&log) {
        Ok(stat) => stat,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(corrupt(&log, "is missing")),
        Err(error) => return Err(failed("look at", &log, error)),
    };
    if let Some((seen, summary)) = held(&tenant.summaries).get(&id)
        && *seen == stat
    {
        return Ok(Some(summary.clone()));
    }
    let Some(cached) = load_folder(tenant, folder, id)? else { return Ok(None) };
    let summary = SessionSummary::from(&*cached.record);
    // A log that grew between the two checks is checked again next time.
    held(&tenant.summaries).insert(id, (stat, summary.clone()));
    Ok(Some(summary))
}
