//! Finds a session by its id alone. An index file names its workspace. If that file is missing or wrong, all workspaces
//! are searched. Looking writes nothing: the next commit or `rebuild` writes the index file again.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use agent_core::store::Damaged;
use agent_core::{Error, ErrorKind, Result, SessionId, WorkspaceId};

use crate::error::{failed, is_loop, is_own, missing, of_index};
use crate::io::{Kind, OpenMode, Stat, write_full};
use crate::medium::env::parent;
use crate::medium::layout::id_of;
use crate::medium::lock::{self, HeldLock};
use crate::shared::taken;
use crate::shared::tenant::Tenant;
use crate::shared::transcript_mark::session_of;

/// Reads the index file of a session; `None` if there is none.
///
/// The index file is written after the session's folder was made durable, and a session's folder is never removed. If
/// the file exists and the folder does not, a person moved the folder.
fn pointer(tenant: &Tenant, id: SessionId) -> Result<Option<Pointer>> {
    match tenant.env.read_text(&tenant.layout.pointer(id)) {
        Ok(text) => Ok(text.map(|text| Pointer { workspace: text.trim_end().parse().ok() })),
        // Even if another object has that name now, a session had it first. If there can be no such name, because no folder
        // is above it, nothing is known.
        Err(error) if *error.kind() == ErrorKind::Corrupt => {
            match tenant.env.io.stat(&tenant.layout.pointer(id)) {
                Ok(_) => Ok(Some(Pointer { workspace: None })),
                Err(_) => Err(of_index(error)),
            }
        }
        Err(error) => Err(error),
    }
}

struct Pointer {
    /// Workspace of the session; `None` if the file is unreadable. Even then it proves that the session existed.
    workspace: Option<WorkspaceId>,
}

/// Result of looking for a session.
#[derive(Debug)]
pub(crate) enum SessionFolder {
    /// Folder of the session, and whether the index file names it.
    At(PathBuf, bool),
    /// The session was in this workspace, as far as is known, and is missing.
    Missing(WorkspaceId),
    Nowhere,
}

pub(crate) fn locate(tenant: &Tenant, id: SessionId) -> Result<SessionFolder> {
    let known = pointer(tenant, id);
    if let Ok(Some(Pointer { workspace: Some(workspace) })) = known {
        let folder = tenant.layout.session(workspace, id);
        if is_folder(tenant, &folder)? {
            return Ok(SessionFolder::At(folder, true));
        }
    }
    if matches!(known, Ok(None)) && taken::is_free(tenant, id) {
        return Ok(SessionFolder::Nowhere);
    }
    match search_all(tenant, id)? {
        (Some(found), _) => return Ok(SessionFolder::At(found, false)),
        // An index that does not name the session says that it is in no workspace, also in none that cannot be searched:
        // one that is refused keeps no other from being used.
        (None, Some(refused)) if !matches!(known, Ok(None)) || !has_index(tenant) => return Err(refused),
        (None, _) => {}
    }
    // An unreadable index proves nothing. The tenant may have been deleted since the index was first read, and the
    // session may have been created since the workspaces were searched.
    if known?.is_some()
        && !is_being_deleted(tenant)
        && let Some(pointer) = pointer(tenant, id)?
    {
        let missing = SessionFolder::Missing(pointer.workspace.unwrap_or(WorkspaceId::DEFAULT));
        return Ok(search_all(tenant, id)?.0.map_or(missing, |folder| SessionFolder::At(folder, false)));
    }
    // The transcript shows that a main session existed, also if the derived file was removed.
    let found_in = workspaces(tenant)?.find(|workspace| session_of(tenant, *workspace) == Some(id));
    let Some(workspace) = found_in else { return Ok(SessionFolder::Nowhere) };
    // The session may have been created since the search.
    let (found, _) = search_all(tenant, id)?;
    Ok(found.map_or(SessionFolder::Missing(workspace), |folder| SessionFolder::At(folder, false)))
}

/// Returns whether there are index files of sessions.
fn has_index(tenant: &Tenant) -> bool {
    matches!(tenant.env.kind(&tenant.layout.pointers()), Ok(Some(Kind::Folder)))
}

/// Returns the session's folder, if there is one.
pub(crate) fn find(tenant: &Tenant, id: SessionId) -> Result<Option<PathBuf>> {
    Ok(find_to_write(tenant, id)?.map(|(folder, _)| folder))
}

/// Like [`find`], and also returns whether the index file names the folder.
pub(crate) fn find_to_write(tenant: &Tenant, id: SessionId) -> Result<Option<(PathBuf, bool)>> {
    match locate(tenant, id)? {
        SessionFolder::At(folder, pointed) => Ok(Some((folder, pointed))),
        SessionFolder::Missing(workspace) => Err(missing(&tenant.layout.session(workspace, id), id)),
        SessionFolder::Nowhere => Ok(None),
    }
}

/// Like [`find_to_write`], for a session that is about to be created: searches no workspace if there is no index file.
pub(crate) fn find_to_make(tenant: &Tenant, id: SessionId) -> Result<Option<(PathBuf, bool)>> {
    if matches!(pointer(tenant, id), Ok(None)) { Ok(None) } else { find_to_write(tenant, id) }
}

/// Takes the lock under which sessions of such ids are created, if it is free.
pub(crate) fn take_create_lock(tenant: &Tenant, id: SessionId) -> Result<Option<HeldLock>> {
    let path = tenant.layout.create_lock(id);
    tenant.env.ensure_dir(parent(&path)).and_then(|()| lock::take(&tenant.env, &path)).map_err(of_index)
}

/// Returns the folder of a session that is about to be created, if it exists already. `creating` is the lock under which
/// sessions of such ids are created.
pub(crate) fn search_to_make(tenant: &Tenant, creating: &HeldLock, id: SessionId) -> Result<Option<PathBuf>> {
    // The former holder of the lock has written it, or was killed. Changes that name the session may be lost.
    if !matches!(pointer(tenant, id), Ok(None)) {
        return find(tenant, id);
    }
    if taken::is_free(tenant, id) {
        return Ok(None);
    }
    taken::searched(tenant, creating);
    search(tenant, id)
}

/// Searches all readable workspaces.
pub(crate) fn search(tenant: &Tenant, id: SessionId) -> Result<Option<PathBuf>> {
    search_all(tenant, id).map(|(found, _)| found)
}

/// Returns the session's folder. If there is none, returns the error that prevented a complete search, if any.
fn search_all(tenant: &Tenant, id: SessionId) -> Result<(Option<PathBuf>, Option<Error>)> {
    let mut refused = None;
    for (name, kind) in tenant.list_workspaces()? {
        let Some(workspace) = id_of::<WorkspaceId>(&name).filter(|_| kind != Kind::File) else { continue };
        let folder = tenant.layout.session(workspace, id);
        match tenant.env.io.stat(&folder) {
            // An object that is no folder contains no session. Lists report it; the search continues.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory || is_loop(&error) => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let error = failed("look at", &folder, error);
                if !is_own(&error) {
                    return Err(error);
                }
                // The error is returned at the end, since the session may be there.
                refused.get_or_insert(error);
            }
            found => {
                if judge(&folder, found)? {
                    return Ok((Some(folder), None));
                }
            }
        }
    }
    Ok((None, refused))
}

/// Returns the sessions that have index files, are missing, and are not in `there`; for reports. Unreadable index
/// folders are reported too.
pub(crate) fn all_missing(tenant: &Tenant, there: &HashSet<SessionId>) -> Vec<Damaged> {
    let mut damaged = Vec::new();
    let mut names = |folder: &Path| {
        tenant.env.list(folder).unwrap_or_else(|error| {
            damaged.push(Damaged::of(folder.display().to_string(), &of_index(error)));
            Vec::new()
        })
    };
    let index = tenant.layout.pointers();
    let mut known = BTreeSet::new();
    for (digits, _) in names(&index) {
        known.extend(names(&index.join(digits)).iter().filter_map(|(name, _)| id_of::<SessionId>(name)));
    }
    let all = workspaces(tenant).into_iter().flatten();
    known.extend(all.filter_map(|workspace| session_of(tenant, workspace)));
    for id in known.into_iter().filter(|id| !there.contains(id)) {
        let object = format!("session {id}");
        match locate(tenant, id) {
            Ok(SessionFolder::Missing(workspace)) => {
                let error = missing(&tenant.layout.session(workspace, id), id);
                damaged.push(Damaged::of(object, &error).with_workspace(workspace));
            }
            Err(error) => damaged.push(Damaged::of(object, &error)),
            // The session may have been created meanwhile.
            Ok(_) => {}
        }
    }
    damaged
}

/// Returns the workspaces that have a folder.
pub(crate) fn workspaces(tenant: &Tenant) -> Result<impl Iterator<Item = WorkspaceId>> {
    Ok(tenant.list_workspaces()?.into_iter().filter_map(|(name, _)| id_of(&name)))
}

fn is_folder(tenant: &Tenant, path: &Path) -> Result<bool> {
    judge(path, tenant.env.io.stat(path))
}

fn judge(path: &Path, found: io::Result<Stat>) -> Result<bool> {
    match found {
        Ok(stat) if stat.kind == Kind::Folder => Ok(true),
        Ok(_) => Err(failed("use the folder", path, io::ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("look at", path, error)),
    }
}

/// Writes the index file of a session, once its folder is durable. Without that file the session is still found, but
/// more slowly. The caller then checks that the folder has its name, or calls [`unpoint_if_gone`].
pub(crate) fn point(tenant: &Tenant, id: SessionId, workspace: WorkspaceId) {
    note(tenant, &tenant.layout.pointer(id), &format!("{workspace}\n"));
}

/// Removes the index file that was just written for a session if the session does not exist, because its tenant was
/// deleted meanwhile: it is not missing then.
pub(crate) fn unpoint_if_gone(tenant: &Tenant, id: SessionId, workspace: WorkspaceId) {
    remove_if_gone(tenant, &tenant.layout.pointer(id), &tenant.layout.session(workspace, id));
}

fn remove_if_gone(tenant: &Tenant, path: &Path, object: &Path) {
    if tenant.env.io.stat(object).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        tenant.env.discard(path);
    }
}

/// Returns whether the tenant's deletion has begun and has not ended. Its index proves nothing then.
fn is_being_deleted(tenant: &Tenant) -> bool {
    matches!(tenant.env.kind(&tenant.layout.deletion()), Ok(Some(_)))
}

/// Writes the index file of a workspace, once its record is durable. If the workspace's folder disappears, it is then
/// reported missing. The caller then checks that the folder has its name, or calls [`unpoint_workspace_if_gone`].
pub(crate) fn point_workspace(tenant: &Tenant, id: WorkspaceId) {
    note(tenant, &tenant.layout.workspace_pointer(id), "");
}

/// Like [`unpoint_if_gone`], for a workspace.
pub(crate) fn unpoint_workspace_if_gone(tenant: &Tenant, id: WorkspaceId) {
    remove_if_gone(tenant, &tenant.layout.workspace_pointer(id), &tenant.layout.workspace(id));
}

/// Returns whether a workspace has existed, even if it is missing now. A workspace's folder is never removed.
pub(crate) fn knows_workspace(tenant: &Tenant, id: WorkspaceId) -> bool {
    let is_in_index =
        || matches!(tenant.env.kind(&tenant.layout.workspace_pointer(id)), Ok(Some(Kind::File)));
    // The tenant may have been deleted since the first look.
    is_in_index() && !is_being_deleted(tenant) && is_in_index()
}

fn note(tenant: &Tenant, path: &Path, text: &str) {
    let written = tenant.make_folders(parent(path)).and_then(|()| {
        let file = tenant.env.io.open(path, OpenMode::Create)?;
        write_full(&*file, text.as_bytes(), 0)?;
        file.truncate(text.len() as u64)
    });
    if let Err(error) = written {
        tracing::debug!(path = %path.display(), %error, "a derived file could not be written");
    }
}
