//! Workspaces: the synchronous core of their records, configuration and areas.

use std::path::Path;

use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::store::{ContentHash, Damaged, Page, WorkspaceQuery};
use agent_core::{Error, Result, Revision, Timestamp, WorkspaceId};

use crate::error::{failed, missing_workspace};
use crate::io::{Kind, LOCK, OpenMode, read_full, write_full};
use crate::log::place;
use crate::medium::env::Env;
use crate::medium::lock::{Attempt, Locked};
use crate::medium::{layout, lock};
use crate::places::workspace_toml::Document;
use crate::shared::tenant::Tenant;

/// State of a workspace's folder.
enum Found {
    Nothing,
    Tombstone,
    Live(Box<Document>),
}

fn find(tenant: &Tenant, folder: &Path, id: WorkspaceId) -> Result<Found> {
    let env = &tenant.env;
    let marker = folder.join(layout::DELETED);
    if env.has_file(&marker)? {
        return Ok(Found::Tombstone);
    }
    let path = folder.join(layout::RECORD);
    match env.read_text(&path)? {
        Some(text) => {
            let mut document = Document::parse(&path, tenant.layout.tenant(), id, &text)?;
            document.accessed(last_access(env, folder));
            Ok(Found::Live(Box::new(document)))
        }
        // A deletion writes the tombstone before it removes the record: it may have begun since the first look.
        None if env.has_file(&marker)? => Ok(Found::Tombstone),
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
    let absent = || Error::not_found(format!("workspace {id} does not exist"));
    tenant.absent().and_then(|()| check_known(tenant, id)).map_or_else(|gone| gone, |()| absent())
}

/// Fails if the workspace existed and is now missing. Call it before reporting the workspace as absent, or creating
/// it.
fn check_known(tenant: &Tenant, id: WorkspaceId) -> Result<()> {
    let folder = tenant.layout.workspace(id);
    // The workspace may have been created since the search.
    if place::knows_workspace(tenant, id) && matches!(find(tenant, &folder, id)?, Found::Nothing) {
        return Err(missing_workspace(&folder.join(layout::RECORD), id));
    }
    Ok(())
}

/// Returns the workspaces that are known but missing.
pub(crate) fn missing(tenant: &Tenant) -> Vec<Damaged> {
    let names = tenant.env.io.list(&tenant.layout.workspace_pointers()).unwrap_or_default();
    let ids = names.iter().filter_map(|(name, _)| layout::id_of::<WorkspaceId>(name));
    let gone = ids.filter_map(|id| match load(tenant, id) {
        Err(error)
            if !error.is_absent()
                && matches!(find(tenant, &tenant.layout.workspace(id), id), Ok(Found::Nothing)) =>
        {
            Some(Damaged::of(format!("workspace {id}"), &error))
        }
        _ => None,
    });
    gone.collect()
}

fn deleted(id: WorkspaceId) -> Error {
    Error::deleted(format!("workspace {id} was deleted; its id is not used again"))
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
    expect: Precondition<Revision>,
) -> Result<Attempt<Workspace>> {
    let (env, id) = (&tenant.env, workspace.id);
    let folder = tenant.layout.workspace(id);
    workspace.check()?;
    // A refused write creates nothing.
    let there = match expect {
        Precondition::MustNotExist => find(tenant, &folder, id)?,
        _ => Found::Live(find_live(tenant, &folder, id)?),
    };
    if let Found::Nothing = there {
        check_known(tenant, id)?;
    }
    tenant.prepare()?;
    env.ensure_dir(&folder)?;
    let path = folder.join(layout::RECORD);
    if expect == Precondition::MustNotExist
        && let Found::Live(there) = there
    {
        // A refusal waits for no lock. A caller that gets it relies on the workspace; the process that created it may
        // have ended before its name was durable.
        env.sync_name(&path)?;
        workspace.prepare_put(Some(&there.workspace), expect)?;
    }
    let done = under(tenant, &folder, |locked| put_locked(tenant, locked, workspace, expect))?;
    if expect == Precondition::MustNotExist
        && let Attempt::Busy = done
    {
        place::unpoint_workspace_if_gone(tenant, id);
    }
    Ok(done)
}

fn put_locked(
    tenant: &Tenant,
    locked: Locked<'_>,
    mut workspace: Workspace,
    expect: Precondition<Revision>,
) -> Result<Attempt<Workspace>> {
    let (env, id) = (&tenant.env, workspace.id);
    let folder = tenant.layout.workspace(id);
    let path = folder.join(layout::RECORD);
    let now = match find(tenant, &folder, id)? {
        Found::Live(document) => Some(document),
        Found::Tombstone => return Err(deleted(id)),
        Found::Nothing => None,
    };
    if expect == Precondition::MustNotExist && now.is_some() {
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
    // Last, since a workspace exists from the moment that its record exists.
    if !env.create(locked, &path, text.as_bytes())? {
        // Created by a program that takes no locks: check again.
        return Ok(Attempt::Busy);
    }
    tenant.learn_main(&workspace);
    place::point_workspace(tenant, id);
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
                damaged.push(Damaged::of(object, &error));
            }
        }
    }
    // Each is listed once, on the first page.
    if query.cursor.is_some() {
        damaged.clear();
    }
    damaged.sort();
    Ok(query.page(found)?.with_damaged(damaged))
}

// --- last access -----------------------------------------------------------------------------------------------------

/// Length in bytes of a time as this library prints it, with a line break. It is the same for every time, so that the
/// file is overwritten in place and no reader sees half of a time.
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
    // An unreadable record can be deleted too, and so can an object that is no file.
    let exists = || Ok::<_, Error>((env.kind(&marker)?, env.kind(&record)?));
    if exists()? == (None, None) {
        if !place::knows_workspace(tenant, id) {
            return Err(not_found(tenant, id));
        }
        // A missing workspace has no folder for the marker.
        env.ensure_dir(&folder)?;
    }
    under(tenant, &folder, |locked| {
        match exists()? {
            // The process that created it may have ended before it was durable, and later steps must not be durable
            // first.
            (Some(Kind::File), _) => env.sync_name(&marker)?,
            (Some(odd), _) => {
                env.remove_tree(&marker, odd)?;
                env.replace(locked, &marker, b"")?;
            }
            (None, Some(_)) => env.replace(locked, &marker, b"")?,
            (None, None) if place::knows_workspace(tenant, id) => env.replace(locked, &marker, b"")?,
            (None, None) => return Err(not_found(tenant, id)),
        }
        // From here on the workspace is deleted; the following steps can be repeated.
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

/// Removes the contents of a workspace, except its sessions, which keep their own tombstones.
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
    let text = tenant.env.read_text(&folder.join(layout::CONFIG))?;
    // A deletion removes it after it has written the tombstone.
    if text.is_none() && tenant.env.has_file(&folder.join(layout::DELETED))? {
        return Err(deleted(id));
    }
    Ok(text)
}

pub(crate) fn save_config(
    tenant: &Tenant,
    id: WorkspaceId,
    text: Option<&str>,
    expect: Precondition<ContentHash>,
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
            // The process that wrote it may have ended before it was durable.
            Some(text) if now.as_deref() == Some(text) => env.sync_name(&path)?,
            Some(text) => env.replace(locked, &path, text.as_bytes())?,
            None => env.remove(&path)?,
        }
        Ok(Attempt::Done(()))
    })
}
