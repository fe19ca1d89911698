//! Lists of sessions. Looks at each log's length, and reads only what changed since it looked last.

use std::io;
use std::path::Path;

use agent_core::page::Damaged;
use agent_core::{Page, Result, SessionId, SessionQuery, SessionSummary, WorkspaceId};

use crate::env::held;
use crate::error::{corrupt, failed};
use crate::io::Kind;
use crate::layout::{self, id_of};
use crate::sessions::load_folder;
use crate::tenant::Tenant;

/// One page.
pub(crate) fn sessions(tenant: &Tenant, query: &SessionQuery) -> Result<Page<SessionSummary>> {
    let workspaces = match query.workspace {
        Some(id) => vec![id],
        None => workspaces(tenant)?,
    };
    let (mut damaged, mut failed) = (Vec::new(), None);
    let each = workspaces.into_iter().map_while(|workspace| {
        let folder = tenant.layout.sessions(workspace);
        let names = tenant.env.list(&folder).map_err(|error| failed = Some(error)).ok()?;
        Some(names.into_iter().map(move |(name, kind)| (folder.join(&name), id_of::<SessionId>(&name), kind)))
    });
    let found = each.flatten().filter_map(|(folder, id, kind)| {
        let id = id.filter(|_| kind != Kind::File)?;
        summary(tenant, &folder, id).unwrap_or_else(|error| {
            damaged.push(Damaged::new(folder.display().to_string(), error.to_string()));
            None
        })
    });
    let page = query.page(found)?;
    if let Some(error) = failed {
        return Err(error);
    }
    // Each is named once, on the first page.
    if query.cursor.is_some() {
        damaged.clear();
    }
    damaged.sort();
    Ok(page.with_damaged(damaged))
}

/// All sessions that have a folder, each with the workspace that it lies in.
pub(crate) fn all(tenant: &Tenant) -> Result<Vec<(WorkspaceId, SessionId)>> {
    let mut all = Vec::new();
    for workspace in workspaces(tenant)? {
        let names = tenant.env.list(&tenant.layout.sessions(workspace))?;
        let folders = names.iter().filter(|(_, kind)| *kind != Kind::File);
        all.extend(folders.filter_map(|(name, _)| Some((workspace, id_of::<SessionId>(name)?))));
    }
    Ok(all)
}

/// The workspaces that have a folder.
pub(crate) fn workspaces(tenant: &Tenant) -> Result<Vec<WorkspaceId>> {
    let names = tenant.list_workspaces()?;
    Ok(names.iter().filter(|(_, kind)| *kind != Kind::File).filter_map(|(name, _)| id_of(name)).collect())
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
    // What grew between the two looks is looked at again next time.
    held(&tenant.summaries).insert(id, (stat, summary.clone()));
    Ok(Some(summary))
}
