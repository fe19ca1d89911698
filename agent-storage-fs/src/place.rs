//! Finds a session by its id alone: a derived file names its workspace, and where that is missing or wrong, the
//! workspaces are looked through and the file is written anew.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use agent_core::store::Damaged;
use agent_core::{Error, ErrorKind, Result, SessionId, WorkspaceId};

use crate::env::parent;
use crate::error::{failed, missing};
use crate::io::{Kind, OpenMode, Stat, write_full};
use crate::layout::id_of;
use crate::tenant::Tenant;
use crate::transcript::mark::session_of;

/// What the derived file of a session says: nothing if there is none.
///
/// Written after the session's folder was made durable, and no folder of a session is ever removed: who finds the one and
/// not the other knows that a person moved it.
fn pointer(tenant: &Tenant, id: SessionId) -> Result<Option<Pointer>> {
    match tenant.env.read_text(&tenant.layout.pointer(id)) {
        Ok(text) => Ok(text.map(|text| Pointer { workspace: text.trim_end().parse().ok() })),
        // Whatever else has that name, a session had it first.
        Err(error) if *error.kind() == ErrorKind::Corrupt => Ok(Some(Pointer { workspace: None })),
        Err(error) => Err(error),
    }
}

struct Pointer {
    /// Nothing if that cannot be read. It shows all the same that there was a session.
    workspace: Option<WorkspaceId>,
}

/// Where a session is.
#[derive(Debug)]
pub(crate) enum Place {
    /// Here, as the derived file says, or not.
    At(PathBuf, bool),
    /// It was in this workspace, as far as is known, and is not there.
    Missing(WorkspaceId),
    Nowhere,
}

pub(crate) fn locate(tenant: &Tenant, id: SessionId) -> Result<Place> {
    let known = pointer(tenant, id);
    if let Ok(Some(Pointer { workspace: Some(workspace) })) = known {
        let folder = tenant.layout.session(workspace, id);
        if is_folder(tenant, &folder)? {
            return Ok(Place::At(folder, true));
        }
    }
    match look(tenant, id)? {
        (Some(found), _) => return Ok(Place::At(found, false)),
        (None, Some(refused)) => return Err(refused),
        (None, None) => {}
    }
    // Who cannot ask does not know that there was none.
    if let Some(pointer) = known? {
        return Ok(Place::Missing(pointer.workspace.unwrap_or(WorkspaceId::DEFAULT)));
    }
    // A main session has left its transcript, also if the derived file was removed.
    let told = workspaces(tenant)?.find(|workspace| session_of(tenant, *workspace) == Some(id));
    let Some(workspace) = told else { return Ok(Place::Nowhere) };
    // Somebody may have made it since it was looked for.
    let (found, _) = look(tenant, id)?;
    Ok(found.map_or(Place::Missing(workspace), |folder| Place::At(folder, false)))
}

/// The session's folder, where there is one.
pub(crate) fn find(tenant: &Tenant, id: SessionId) -> Result<Option<PathBuf>> {
    Ok(find_to_write(tenant, id)?.map(|(folder, _)| folder))
}

/// As [`find`], and whether the derived file says so.
pub(crate) fn find_to_write(tenant: &Tenant, id: SessionId) -> Result<Option<(PathBuf, bool)>> {
    match locate(tenant, id)? {
        Place::At(folder, pointed) => Ok(Some((folder, pointed))),
        Place::Missing(workspace) => Err(missing(&tenant.layout.session(workspace, id), id)),
        Place::Nowhere => Ok(None),
    }
}

/// The same for a session that is about to be made: looks through no workspace if the derived file is not there.
pub(crate) fn find_to_make(tenant: &Tenant, id: SessionId) -> Result<Option<(PathBuf, bool)>> {
    if pointer(tenant, id)?.is_some() { find_to_write(tenant, id) } else { Ok(None) }
}

/// Looks through all workspaces that can be looked into.
pub(crate) fn search(tenant: &Tenant, id: SessionId) -> Result<Option<PathBuf>> {
    look(tenant, id).map(|(found, _)| found)
}

/// The session's folder; if there is none, what kept from looking everywhere.
fn look(tenant: &Tenant, id: SessionId) -> Result<(Option<PathBuf>, Option<Error>)> {
    let mut refused = None;
    for (name, kind) in tenant.list_workspaces()? {
        let Some(workspace) = id_of::<WorkspaceId>(&name).filter(|_| kind != Kind::File) else { continue };
        let folder = tenant.layout.session(workspace, id);
        match tenant.env.io.stat(&folder) {
            // No session is in what is no folder. A list names that; here it keeps nobody from the rest.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            // Whoever looks for a session is told that it may be there, at the end.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                refused.get_or_insert(failed("look at", &folder, error));
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

/// The sessions that derived files know and that are not there, but those in `there`; for reports. What cannot be looked
/// into is named, too.
pub(crate) fn all_missing(tenant: &Tenant, there: &HashSet<SessionId>) -> Vec<Damaged> {
    let mut damaged = Vec::new();
    let mut names = |folder: &Path| {
        tenant.env.list(folder).unwrap_or_else(|error| {
            damaged.push(Damaged::new(folder.display().to_string(), error.to_string()));
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
            Ok(Place::Missing(workspace)) => {
                let error = missing(&tenant.layout.session(workspace, id), id);
                damaged.push(Damaged::new(object, error.to_string()).in_workspace(workspace));
            }
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                damaged.push(Damaged::new(object, error.to_string()));
            }
            // It may have been made since.
            _ => {}
        }
    }
    damaged
}

/// The workspaces of which there is a folder.
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

/// Writes down in which workspace a session lies, when its folder is durable. Without it the session is found all the
/// same, more slowly.
pub(crate) fn point(tenant: &Tenant, id: SessionId, workspace: WorkspaceId) {
    note(tenant, &tenant.layout.pointer(id), &format!("{workspace}\n"));
}

/// Writes down that there is a workspace, when its record is durable: without its folder it is missing then.
pub(crate) fn point_workspace(tenant: &Tenant, id: WorkspaceId) {
    note(tenant, &tenant.layout.workspace_pointer(id), "");
}

/// Whether a workspace is known, though it may not be there. A folder of one is never removed.
pub(crate) fn knows_workspace(tenant: &Tenant, id: WorkspaceId) -> bool {
    matches!(tenant.env.kind(&tenant.layout.workspace_pointer(id)), Ok(Some(Kind::File)))
}

fn note(tenant: &Tenant, path: &Path, text: &str) {
    let written = make_folders(tenant, parent(path)).and_then(|()| {
        let file = tenant.env.io.open(path, OpenMode::Create)?;
        write_full(&*file, text.as_bytes(), 0)?;
        file.truncate(text.len() as u64)
    });
    if let Err(error) = written {
        tracing::debug!(path = %path.display(), %error, "a derived file could not be written");
    }
}

/// Makes a folder and those above it, durable or not.
pub(crate) fn make_folders(tenant: &Tenant, path: &Path) -> io::Result<()> {
    let mut made = tenant.env.io.create_dir(path);
    if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        && path != tenant.layout.root()
    {
        make_folders(tenant, parent(path))?;
        made = tenant.env.io.create_dir(path);
    }
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
