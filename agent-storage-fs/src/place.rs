//! Finds a session by its id alone: a derived file names its workspace, and where that is missing or wrong, the
//! workspaces are looked through and the file is written anew.

use std::io;
use std::path::{Path, PathBuf};

use agent_core::{Error, Result, SessionId, WorkspaceId};

use crate::env::parent;
use crate::error::failed;
use crate::io::{Kind, OpenMode, Stat, write_full};
use crate::layout::id_of;
use crate::tenant::Tenant;

/// The session's folder, where there is one.
pub(crate) fn find(tenant: &Tenant, id: SessionId) -> Result<Option<PathBuf>> {
    match pointed(tenant, id)? {
        Some(folder) => Ok(Some(folder)),
        None => match look(tenant, id)? {
            (None, Some(refused)) => Err(refused),
            (found, _) => Ok(found),
        },
    }
}

/// The session's folder, as far as the derived file knows.
pub(crate) fn pointed(tenant: &Tenant, id: SessionId) -> Result<Option<PathBuf>> {
    // Whatever is wrong with a derived file, the search finds the truth.
    let Ok(Some(text)) = tenant.env.read_text(&tenant.layout.pointer(id)) else { return Ok(None) };
    let Ok(workspace) = text.trim_end().parse::<WorkspaceId>() else { return Ok(None) };
    let folder = tenant.layout.session(workspace, id);
    Ok(is_folder(tenant, &folder)?.then_some(folder))
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
                    point(tenant, id, workspace);
                    return Ok((Some(folder), None));
                }
            }
        }
    }
    Ok((None, refused))
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

/// Writes down in which workspace a session lies. Without it the session is found all the same, more slowly.
pub(crate) fn point(tenant: &Tenant, id: SessionId, workspace: WorkspaceId) {
    let path = tenant.layout.pointer(id);
    let text = format!("{workspace}\n");
    let written = make_folders(tenant, parent(&path)).and_then(|()| {
        let file = tenant.env.io.open(&path, OpenMode::Create)?;
        write_full(&*file, text.as_bytes(), 0)?;
        file.truncate(text.len() as u64)
    });
    if let Err(error) = written {
        tracing::debug!(path = %path.display(), %error, "a derived file could not be written");
    }
}

/// Makes a folder and those above it, durable or not.
pub(crate) fn make_folders(tenant: &Tenant, path: &Path) -> io::Result<()> {
    match tenant.env.io.create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path != tenant.layout.root() => {
            make_folders(tenant, parent(path))?;
            tenant.env.io.create_dir(path)
        }
        other => other,
    }
}
