//! Workspaces: the synchronous core of their records, configuration and areas.

use std::path::Path;

use agent_core::commit::Expect;
use agent_core::model::Workspace;
use agent_core::store::{ContentHash, Damaged, Page, WorkspaceQuery};
use agent_core::{Error, ErrorKind, Result, Revision, Timestamp, WorkspaceId};

use crate::env::Env;
use crate::error::{failed, missing_workspace};
use crate::io::{Kind, LOCK, OpenMode, read_full, write_full};
use crate::lock::{Attempt, Locked};
use crate::tenant::Tenant;
use crate::workspace_toml::Document;
use crate::{layout, lock, place};

/// What stands under a workspace's id.
enum Found {
    Nothing,
    Tombstone,
    Live(Box<Document>),
}

fn find(tenant: &Tenant, folder: &Path, id: WorkspaceId) -> Result<Found> {
    let env = &tenant.env;
    // The tombstone comes before the record goes, so it is looked for first.
    if env.has_file(&folder.join(layout::DELETED))? {
        return Ok(Found::Tombstone);
    }
    let path = folder.join(layout::RECORD);
    match env.read_text(&path)? {
        Some(text) => {
            let mut document = Document::parse(&path, tenant.layout.tenant(), id, &text)?;
            document.accessed(last_access(env, folder));
            Ok(Found::Live(Box::new(document)))
        }
        None => Ok(Found::Nothing),
    }
}

fn find_live(tenant: &Tenant, folder: &Path, id: WorkspaceId) -> Result<Box<Document>> {
    match find(tenant, folder, id)? {
        Found::Live(document) => Ok(document),
        Found::Tombstone => Err(deleted(id)),
        Found::Nothing => Err(not_found(tenant, id)),
    }
}

fn not_found(tenant: &Tenant, id: WorkspaceId) -> Error {
    let absent = || Error::new(ErrorKind::NotFound, format!("workspace {id} does not exist"));
    tenant.absent().and_then(|()| check_known(tenant, id)).map_or_else(|gone| gone, |()| absent())
}

/// Before a workspace that is not there is said to be absent, or is made: fails if it was there.
fn check_known(tenant: &Tenant, id: WorkspaceId) -> Result<()> {
    let folder = tenant.layout.workspace(id);
    // Somebody may have made it since it was looked for.
    if place::knows_workspace(tenant, id) && matches!(find(tenant, &folder, id)?, Found::Nothing) {
        return Err(missing_workspace(&folder.join(layout::RECORD), id));
    }
    Ok(())
}

/// The workspaces that are known and not there.
pub(crate) fn missing(tenant: &Tenant) -> Vec<Damaged> {
    let names = tenant.env.io.list(&tenant.layout.workspace_pointers()).unwrap_or_default();
    let ids = names.iter().filter_map(|(name, _)| layout::id_of::<WorkspaceId>(name));
    let gone = ids.filter_map(|id| match load(tenant, id) {
        Err(error) if matches!(find(tenant, &tenant.layout.workspace(id), id), Ok(Found::Nothing)) => {
            Some(Damaged::new(format!("workspace {id}"), error.to_string()))
        }
        _ => None,
    });
    gone.collect()
}

fn deleted(id: WorkspaceId) -> Error {
    Error::new(ErrorKind::Deleted, format!("workspace {id} was deleted; its id is not used again"))
}

pub(crate) fn load(tenant: &Tenant, id: WorkspaceId) -> Result<Workspace> {
    let workspace = find_live(tenant, &tenant.layout.workspace(id), id)?.workspace;
    tenant.learn_main(&workspace);
    Ok(workspace)
}

/// Changes a workspace's files under the lock of its folder.
fn under<T>(
    tenant: &Tenant,
    folder: &Path,
    work: impl FnOnce(Locked<'_>) -> Result<Attempt<T>>,
) -> Result<Attempt<T>> {
    lock::probe_once(&tenant.env, tenant.layout.root())?;
    lock::under(&tenant.env, folder, work)
}

pub(crate) fn put(
    tenant: &Tenant,
    mut workspace: Workspace,
    expect: Expect<Revision>,
) -> Result<Attempt<Workspace>> {
    let (env, id) = (&tenant.env, workspace.id);
    let folder = tenant.layout.workspace(id);
    workspace.check()?;
    // Nothing is made for what is to be refused.
    let there = match expect {
        Expect::Absent => find(tenant, &folder, id)?,
        _ => Found::Live(find_live(tenant, &folder, id)?),
    };
    if let Found::Nothing = there {
        check_known(tenant, id)?;
    }
    tenant.prepare()?;
    env.ensure_dir(&folder)?;
    let path = folder.join(layout::RECORD);
    if expect == Expect::Absent
        && let Found::Live(there) = there
    {
        // A refusal waits for no lock. Who is told that it exists goes on with it; and who made it may have died before
        // its name was durable.
        env.sync_name(&path)?;
        workspace.prepare_put(Some(&there.workspace), expect)?;
    }
    let done = under(tenant, &folder, |locked| put_locked(tenant, locked, workspace, expect))?;
    // Only when it is there for certain, and not in folders that were replaced meanwhile.
    if expect == Expect::Absent
        && let Attempt::Done(_) = done
    {
        place::point_workspace(tenant, id);
    }
    Ok(done)
}

fn put_locked(
    tenant: &Tenant,
    locked: Locked<'_>,
    mut workspace: Workspace,
    expect: Expect<Revision>,
) -> Result<Attempt<Workspace>> {
    let (env, id) = (&tenant.env, workspace.id);
    let folder = tenant.layout.workspace(id);
    let path = folder.join(layout::RECORD);
    let now = match find(tenant, &folder, id)? {
        Found::Live(document) => Some(document),
        Found::Tombstone => return Err(deleted(id)),
        Found::Nothing => None,
    };
    if expect == Expect::Absent && now.is_some() {
        env.sync_name(&path)?;
    }
    workspace.prepare_put(now.as_ref().map(|document| &document.workspace), expect)?;
    env.sweep(&folder);
    let text = Document::render(now.as_deref(), tenant.layout.tenant(), &workspace)?;
    if now.is_some() {
        env.replace(locked, &path, text.as_bytes())?;
        tenant.learn_main(&workspace);
        return Ok(Attempt::Done(workspace));
    }
    env.ensure_dirs(&folder, &layout::AREAS)?;
    // Last, since a workspace is there from the moment that its record is.
    if !env.create(locked, &path, text.as_bytes())? {
        // By somebody who takes no locks: look again.
        return Ok(Attempt::Busy);
    }
    tenant.learn_main(&workspace);
    Ok(Attempt::Done(workspace))
}

pub(crate) fn list(tenant: &Tenant, query: &WorkspaceQuery) -> Result<Page<Workspace>> {
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    for id in place::workspaces(tenant)? {
        let folder = tenant.layout.workspace(id);
        match find(tenant, &folder, id) {
            Ok(Found::Live(document)) => found.push(document.workspace),
            Ok(Found::Tombstone | Found::Nothing) => {}
            Err(error) => {
                let object = folder.join(layout::RECORD).display().to_string();
                damaged.push(Damaged::new(object, error.to_string()));
            }
        }
    }
    // Each is named once, on the first page.
    if query.cursor.is_some() {
        damaged.clear();
    }
    damaged.sort();
    Ok(query.page(found)?.with_damaged(damaged))
}

// --- last access -----------------------------------------------------------------------------------------------------

/// The length of a moment as this library prints it, and a line break: the same for every moment, so that it is
/// written over itself and no reader finds half.
const ACCESSED_LEN: usize = "2026-02-15T10:30:00.000000Z\n".len();

fn last_access(env: &Env, folder: &Path) -> Option<Timestamp> {
    let file = env.io.open(&folder.join(layout::ACCESSED), OpenMode::Read).ok()?;
    let mut bytes = [0; ACCESSED_LEN];
    read_full(&*file, &mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim_end().parse().ok()
}

pub(crate) fn touch(tenant: &Tenant, id: WorkspaceId, at: Timestamp) -> Result<Attempt<()>> {
    let env = &tenant.env;
    let folder = tenant.layout.workspace(id);
    if find_live(tenant, &folder, id)?.workspace.last_accessed >= at {
        return Ok(Attempt::Done(()));
    }
    under(tenant, &folder, |_| {
        if find_live(tenant, &folder, id)?.workspace.last_accessed < at {
            let path = folder.join(layout::ACCESSED);
            let file = env.io.open(&path, OpenMode::Create).map_err(|e| failed("open", &path, e))?;
            write_full(&*file, format!("{at}\n").as_bytes(), 0).map_err(|e| failed("write", &path, e))?;
        }
        Ok(Attempt::Done(()))
    })
}

// --- deletion --------------------------------------------------------------------------------------------------------

pub(crate) fn delete(tenant: &Tenant, id: WorkspaceId) -> Result<Attempt<()>> {
    let env = &tenant.env;
    let folder = tenant.layout.workspace(id);
    let marker = folder.join(layout::DELETED);
    let record = folder.join(layout::RECORD);
    // What cannot be read can be deleted all the same, and so can what is no file.
    let exists = || Ok::<_, Error>((env.kind(&marker)?, env.kind(&record)?));
    if exists()? == (None, None) {
        if !place::knows_workspace(tenant, id) {
            return Err(not_found(tenant, id));
        }
        // One that is missing has no folder for the marker.
        env.ensure_dir(&folder)?;
    }
    under(tenant, &folder, |locked| {
        match exists()? {
            // Whoever made it may have died before it was durable, and what follows must not be so first.
            (Some(Kind::File), _) => env.sync_name(&marker)?,
            (Some(odd), _) => {
                env.remove_tree(&marker, odd)?;
                env.replace(locked, &marker, b"")?;
            }
            (None, Some(_)) => env.replace(locked, &marker, b"")?,
            (None, None) if place::knows_workspace(tenant, id) => env.replace(locked, &marker, b"")?,
            (None, None) => return Err(not_found(tenant, id)),
        }
        // From here on it is deleted; what follows can be repeated.
        let gone = match env.kind(&record) {
            Ok(Some(Kind::Folder)) => {
                env.remove_tree(&record, Kind::Folder).and_then(|()| env.sync_name(&record))
            }
            Ok(_) => env.remove(&record),
            Err(error) => Err(error),
        };
        let cleaned = gone.and_then(|()| clean(env, &folder));
        cleaned.map_err(|error| error.with_outcome(agent_core::WriteOutcome::Unknown))?;
        Ok(Attempt::Done(()))
    })
}

/// Removes what was in a workspace, except its sessions, which keep their own tombstones.
fn clean(env: &Env, folder: &Path) -> Result<()> {
    for (name, kind) in env.list(folder)? {
        let keep = [layout::DELETED, LOCK, layout::SESSIONS];
        if !keep.iter().any(|kept| name == *kept) {
            env.remove_tree(&folder.join(name), kind)?;
        }
    }
    env.sync_dir(folder).map_err(|e| failed("make durable", folder, e))
}

// --- configuration ---------------------------------------------------------------------------------------------------

pub(crate) fn load_config(tenant: &Tenant, id: WorkspaceId) -> Result<Option<String>> {
    let folder = tenant.layout.workspace(id);
    find_live(tenant, &folder, id)?;
    tenant.env.read_text(&folder.join(layout::CONFIG))
}

pub(crate) fn save_config(
    tenant: &Tenant,
    id: WorkspaceId,
    text: Option<&str>,
    expect: Expect<ContentHash>,
) -> Result<Attempt<()>> {
    let env = &tenant.env;
    ContentHash::check_size(text)
        .map_err(|error| error.about(format_args!("the configuration of workspace {id}")))?;
    let folder = tenant.layout.workspace(id);
    find_live(tenant, &folder, id)?;
    under(tenant, &folder, |locked| {
        find_live(tenant, &folder, id)?;
        let path = folder.join(layout::CONFIG);
        let now = env.read_text(&path)?;
        ContentHash::check(expect, now.as_deref(), &format_args!("the configuration of workspace {id}"))?;
        match text {
            // Whoever wrote it may have died before it was durable.
            Some(text) if now.as_deref() == Some(text) => env.sync_name(&path)?,
            Some(text) => env.replace(locked, &path, text.as_bytes())?,
            None => env.remove(&path)?,
        }
        Ok(Attempt::Done(()))
    })
}
