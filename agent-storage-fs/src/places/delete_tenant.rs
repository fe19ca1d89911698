//! Deletes all files of a tenant. Under the lock of the tenant's folder, the folder of workspaces gets a name that
//! no reader looks for, so that all of them disappear at one moment; then the rest is removed. Every step can be
//! repeated.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use agent_core::store::DeletedTenant;
use agent_core::{Error, Result, SessionId, TenantId, WorkspaceId, WriteOutcome};

use crate::error::failed;
use crate::io::{Kind, OpenMode};
use crate::medium::env::{Env, parent, unsure};
use crate::medium::layout::{self, id_of};
use crate::medium::lock::{self, Attempt};
use crate::places::bindings;
use crate::shared::tenant::Tenant;

/// Part of the name of a folder whose contents are to be removed.
const DELETED: &str = ".deleted-";

/// Folders and files of a tenant that exist, by their names in the tenant's folder.
struct Found {
    workspaces: Option<Kind>,
    index: Option<Kind>,
    blobs: Option<Kind>,
    files: Vec<(OsString, Kind)>,
    /// Folders of this deletion and earlier ones that are to be removed.
    removable: Vec<(OsString, Kind)>,
    is_begun: bool,
}

/// Hides all data of a tenant, and removes its bindings; returns their number. Returns `Busy` if another process or
/// handle has the tenant's folder locked.
pub(crate) fn hide(tenant: &Tenant) -> Result<Attempt<u64>> {
    let (env, root) = (&tenant.env, tenant.layout.root());
    if !is_there(tenant)? || find(tenant)?.is_nothing(tenant)? {
        return Ok(Attempt::Done(0));
    }
    lock::probe_once(env, root)?;
    lock::under(env, root, |_| {
        let bound = hide_locked(tenant).map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
        tenant.forget();
        Ok(Attempt::Done(bound))
    })
}

/// Returns whether the tenant has a folder. A link in its place may lead to the folder of another tenant, or out of the
/// store, and nothing behind it is removed.
fn is_there(tenant: &Tenant) -> Result<bool> {
    let (env, root) = (&tenant.env, tenant.layout.root());
    if *tenant.layout.tenant() != TenantId::default() {
        let names = env.list(parent(root))?;
        let kind = names.iter().find(|(name, _)| Some(&**name) == root.file_name()).map(|(_, kind)| *kind);
        if kind == Some(Kind::Other) {
            let text = format!("{} is a link, or no folder; remove it by hand", root.display());
            return Err(Error::invalid(text));
        }
    }
    Ok(env.kind(root)? == Some(Kind::Folder))
}

/// Returns whether a deletion of the tenant with this folder has begun and not ended.
pub(crate) fn is_unfinished(env: &Env, root: &Path) -> Result<bool> {
    Ok(env.list(root)?.iter().any(|(name, _)| name == layout::DELETION || is_removable(name)))
}

pub(crate) fn is_removable(name: &OsStr) -> bool {
    name.to_str().is_some_and(|text| text.starts_with('.') && text.contains(DELETED))
}

fn hide_locked(tenant: &Tenant) -> Result<u64> {
    let (env, root) = (&tenant.env, tenant.layout.root());
    let found = find(tenant)?;
    if found.workspaces == Some(Kind::Other) {
        let text = format!(
            "{} is a link; remove what it leads to and the link, then delete the tenant again",
            tenant.layout.workspaces().display()
        );
        return Err(Error::invalid(text));
    }
    let mark = tenant.layout.deletion();
    if !found.is_begun {
        // While the mark exists, the index is not used to report missing objects.
        env.io.open(&mark, OpenMode::Create).map_err(|e| unsure(failed("create", &mark, e)))?;
    }
    env.sync_name(&mark)?;
    if found.workspaces.is_some() {
        put_away(env, &tenant.layout.workspaces())?;
    }
    // A process that has seen the folder would report its absence as damage.
    make(env, &tenant.layout.workspaces())?;
    if found.index.is_some() {
        put_away(env, &tenant.layout.index())?;
    }
    if found.blobs.is_some() {
        put_away(env, &tenant.layout.early_blobs())?;
    }
    let bound = bindings::count(tenant);
    for (name, kind) in &found.files {
        env.remove_tree(&root.join(name), *kind)?;
    }
    // Before the mark is removed, and before anything in the renamed folders.
    env.sync_dir(root).map_err(|e| failed("make durable", root, e))?;
    env.remove(&mark)?;
    Ok(bound)
}

/// Renames a folder to a name that no reader looks for. The caller makes that durable.
fn put_away(env: &Env, path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let away = |temp: &Path| {
        let name = temp.file_name().unwrap_or_default().to_string_lossy();
        temp.with_file_name(name.replace(layout::NEW, DELETED))
    };
    let renamed = env.fresh(parent(path), &name, |temp| env.io.rename(path, &away(temp)));
    renamed.map(drop).map_err(|e| unsure(failed("rename", path, e)))
}

/// Creates a folder, if it does not exist. The caller makes that durable.
fn make(env: &Env, path: &Path) -> Result<()> {
    match env.io.create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(unsure(failed("create the folder", path, error)))
        }
        _ => Ok(()),
    }
}

fn find(tenant: &Tenant) -> Result<Found> {
    let names = tenant.env.list(tenant.layout.root())?;
    let mut found = Found {
        workspaces: None,
        index: None,
        blobs: None,
        files: Vec::new(),
        removable: Vec::new(),
        is_begun: false,
    };
    let is_default = *tenant.layout.tenant() == TenantId::default();
    for (name, kind) in names {
        let Some(text) = name.to_str() else { continue };
        if text == layout::WORKSPACES {
            found.workspaces = Some(kind);
        } else if text == layout::INDEX {
            found.index = Some(kind);
        } else if text == layout::BLOBS {
            found.blobs = Some(kind);
        } else if text == layout::DELETION {
            found.is_begun = true;
        } else if is_removable(&name) {
            found.removable.push((name, kind));
        } else if text == layout::DEVICES || is_of_bindings(text) || (text == layout::CONFIG && !is_default) {
            // The configuration in the root belongs to the host.
            found.files.push((name, kind));
        }
    }
    Ok(found)
}

pub(crate) fn is_of_bindings(name: &str) -> bool {
    let parts = [
        (layout::BINDINGS, ".damaged-"),
        (layout::BINDING_CHANGES, ".damaged-"),
        (".bindings.toml", layout::NEW),
        (".bindings.changes", layout::NEW),
    ];
    [layout::BINDINGS, layout::BINDING_CHANGES].contains(&name)
        || parts
            .iter()
            .any(|(start, part)| name.strip_prefix(start).is_some_and(|rest| rest.starts_with(part)))
}

impl Found {
    fn is_nothing(&self, tenant: &Tenant) -> Result<bool> {
        let is_empty =
            self.workspaces != Some(Kind::Other) && tenant.env.list(&tenant.layout.workspaces())?.is_empty();
        Ok(is_empty
            && self.index.is_none()
            && self.blobs.is_none()
            && self.files.is_empty()
            && !self.is_begun)
    }
}

/// Removes what was hidden, by this deletion or an earlier one, and counts the workspaces and sessions in it. Links are
/// removed; their targets are not touched.
pub(crate) fn remove_hidden(tenant: &Tenant) -> Result<DeletedTenant> {
    let (env, root) = (&tenant.env, tenant.layout.root());
    let mut removed = DeletedTenant::default();
    if !is_there(tenant)? {
        return Ok(removed);
    }
    for (name, kind) in find(tenant)?.removable {
        let path = root.join(&name);
        if kind == Kind::Folder && name.to_string_lossy().contains(layout::WORKSPACES) {
            for (name, kind) in env.list(&path)? {
                if kind == Kind::Folder {
                    count(env, &path.join(&name), id_of::<WorkspaceId>(&name).is_some(), &mut removed);
                }
                env.remove_tree(&path.join(&name), kind)?;
            }
        }
        env.remove_tree(&path, kind)?;
        env.sync_dir(root).map_err(|e| failed("make durable the removal of", &path, e))?;
    }
    Ok(removed)
}

fn count(env: &Env, folder: &Path, is_workspace: bool, removed: &mut DeletedTenant) {
    let has = |name| matches!(env.kind(&folder.join(name)), Ok(Some(_)));
    removed.workspaces += u64::from(is_workspace && (has(layout::RECORD) || has(layout::DELETED)));
    let sessions = env.list(&folder.join(layout::SESSIONS)).unwrap_or_default();
    removed.sessions += sessions.iter().filter(|(name, _)| id_of::<SessionId>(name).is_some()).count() as u64;
}
