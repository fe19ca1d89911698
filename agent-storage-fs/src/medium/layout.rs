//! Paths of all files of a store. Only validated ids become names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use agent_core::{SessionId, TenantId, WorkspaceId};

use crate::io::Kind;
use crate::owner::Owner;

pub(crate) const LOG: &str = "events.jsonl";
pub(crate) const SNAPSHOT: &str = "session.json";
pub(crate) const TOMBSTONE: &str = "tombstone.json";
/// Name prefix of an object that was not a file and stood in place of a log. It is kept when an empty log replaces it.
pub(crate) const LOG_DAMAGED: &str = "events.damaged-";
/// Name suffix, after a session's id, of a link that stood in place of the session's folder. It is kept when a folder
/// replaces it.
pub(crate) const LINK_DAMAGED: &str = ".damaged-";
/// Name prefix of an old or unreadable tombstone, kept when a new one replaces it.
pub(crate) const TOMBSTONE_DAMAGED: &str = "tombstone.damaged-";
pub(crate) const SUSPECT: &str = "suspect";
pub(crate) const LEASE: &str = "lease";
pub(crate) const TAIL_PREFIX: &str = "events.tail-";
pub(crate) const RECORD: &str = "workspace.toml";
pub(crate) const CONFIG: &str = "config.toml";
pub(crate) const ACCESSED: &str = "accessed";
pub(crate) const DELETED: &str = "deleted";
pub(crate) const WORKSPACES: &str = "workspaces";
pub(crate) const INDEX: &str = "index";
pub(crate) const SUMMARIES: &str = "summaries";
pub(crate) const BINDINGS: &str = "bindings.toml";
pub(crate) const BINDING_CHANGES: &str = "bindings.changes";
/// Folder of the sessions that devices used last.
pub(crate) const DEVICES: &str = "devices";
/// Empty file that is in the folder of a tenant while the tenant is deleted.
pub(crate) const DELETION: &str = "deletion";
pub(crate) const SESSIONS: &str = "sessions";
/// Folder of blobs: in a session's folder those of the session; in a tenant's folder, with a folder for each id, those of
/// ids that have no session yet.
pub(crate) const BLOBS: &str = "blobs";
/// Name suffix, after the name of a blob, of the file with the checksums of its chunks.
pub(crate) const SUMS: &str = ".sums";
pub(crate) const TRANSCRIPT: &str = "session.md";
pub(crate) const TRANSCRIPT_LOCK: &str = "session.md.lock";
/// Name prefixes of transcripts that are kept under a new name. In order: a person edited it; it cannot be read; it is
/// damaged; its text, edited by a person or left by another program, has been imported into the log.
pub(crate) const EDITED: &str = "session.edited-";
pub(crate) const UNREADABLE: &str = "session.unreadable-";
pub(crate) const DAMAGED: &str = "session.damaged-";
pub(crate) const IMPORTED: &str = "session.imported-";
pub(crate) const KEPT: [&str; 4] = [EDITED, UNREADABLE, DAMAGED, IMPORTED];
/// Part of every temporary name. Readers of a folder skip such names.
pub(crate) const NEW: &str = ".new-";

/// Returns whether a name in a folder is a temporary one.
pub(crate) fn is_temp(name: &str) -> bool {
    name.starts_with('.') && name.contains(NEW)
}

/// Folders that every workspace has for its host.
pub(crate) const AREAS: [&str; 3] = ["mcp", "skills", "memory"];

/// Paths of one tenant.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    tenant: TenantId,
    seed: u32,
}

impl Layout {
    /// Returns the paths of a tenant. The tenant `default` uses the root itself; others have folders below it.
    pub(crate) fn new(root: &Path, tenant: &TenantId) -> Self {
        let root = match *tenant == TenantId::default() {
            true => root.to_owned(),
            false => Self::tenants(root).join(tenant.as_str()),
        };
        Self { root, tenant: tenant.clone(), seed: Owner::seed(tenant) }
    }

    pub(crate) fn tenants(root: &Path) -> PathBuf {
        root.join("tenants")
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Returns the owner of a session's lines.
    pub(crate) fn owner(&self, id: SessionId) -> Owner {
        Owner::new(self.seed, id)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join(CONFIG)
    }

    pub(crate) fn bindings(&self) -> PathBuf {
        self.root.join(BINDINGS)
    }

    /// Returns the folder of the files that name the session that each device used last.
    pub(crate) fn devices(&self) -> PathBuf {
        self.root.join(DEVICES)
    }

    /// Returns the path of the changes since `bindings.toml` was written.
    pub(crate) fn binding_changes(&self) -> PathBuf {
        self.root.join(BINDING_CHANGES)
    }

    /// Returns the owner of the lines of [`binding_changes`](Self::binding_changes): no session has this id.
    pub(crate) fn owner_of_bindings(&self) -> Owner {
        Owner::new(self.seed, SessionId::from_uuid(uuid::Uuid::nil()))
    }

    /// Returns the path of the file that marks a tenant whose deletion has begun.
    pub(crate) fn deletion(&self) -> PathBuf {
        self.root.join(DELETION)
    }

    /// Returns the folder of all index files.
    pub(crate) fn index(&self) -> PathBuf {
        self.root.join(INDEX)
    }

    pub(crate) fn workspaces(&self) -> PathBuf {
        self.root.join(WORKSPACES)
    }

    pub(crate) fn workspace(&self, id: WorkspaceId) -> PathBuf {
        self.workspaces().join(id.to_string())
    }

    pub(crate) fn sessions(&self, id: WorkspaceId) -> PathBuf {
        self.workspace(id).join(SESSIONS)
    }

    pub(crate) fn session(&self, workspace: WorkspaceId, id: SessionId) -> PathBuf {
        self.sessions(workspace).join(id.to_string())
    }

    /// Returns the folder of the blobs of all ids that have no session yet.
    pub(crate) fn early_blobs(&self) -> PathBuf {
        self.root.join(BLOBS)
    }

    /// Returns the folder of the blobs that were put for an id before its session was created.
    pub(crate) fn early_blobs_of(&self, id: SessionId) -> PathBuf {
        self.early_blobs().join(id.to_string())
    }

    /// Returns the path of the index file that names the workspace of a session. The index folders are named by the
    /// last digits of the id, because the first digits are a time and stay the same for years.
    pub(crate) fn pointer(&self, id: SessionId) -> PathBuf {
        self.pointers().join(last_digits(id)).join(id.to_string())
    }

    /// Returns the folder of the sessions' index files.
    pub(crate) fn pointers(&self) -> PathBuf {
        self.index().join("sessions")
    }

    /// Returns the path of the index file that records that a workspace exists.
    pub(crate) fn workspace_pointer(&self, id: WorkspaceId) -> PathBuf {
        self.workspace_pointers().join(id.to_string())
    }

    /// Returns the path of the file that names the sessions that change.
    pub(crate) fn changes(&self) -> PathBuf {
        self.index().join("changes")
    }

    /// Returns the path of the file that has summaries of sessions for the first list of a process.
    pub(crate) fn summaries(&self) -> PathBuf {
        self.index().join(SUMMARIES)
    }

    /// Returns the folder of the workspaces' index files.
    pub(crate) fn workspace_pointers(&self) -> PathBuf {
        self.index().join(WORKSPACES)
    }

    /// Returns the path of the lock under which sessions with such ids are created.
    pub(crate) fn create_lock(&self, id: SessionId) -> PathBuf {
        self.index().join("locks").join(last_digits(id))
    }
}

fn last_digits(id: SessionId) -> String {
    format!("{:02x}", id.as_uuid().as_bytes()[15])
}

pub(crate) fn lease(session: &Path) -> PathBuf {
    session.join(LEASE)
}

/// Returns the workspace and the id of a session, from the path of its folder.
pub(crate) fn place_of(session: &Path) -> Option<(WorkspaceId, SessionId)> {
    let workspace = session.parent()?.parent()?;
    Some((id_of(workspace.file_name()?)?, id_of(session.file_name()?)?))
}

/// Parses the id from the name of a folder. Only the spelling that this crate writes is accepted.
pub(crate) fn id_of<T: std::str::FromStr + ToString>(name: &std::ffi::OsStr) -> Option<T> {
    let name = name.to_str()?;
    let id: T = name.parse().ok()?;
    (id.to_string() == name).then_some(id)
}

/// Returns whether an object in a folder of tenants, workspaces or sessions may hold data that nobody finds: it is a folder,
/// and its name is neither an id nor one that the store gives.
pub(crate) fn is_strange<T: FromStr + ToString>(name: &OsStr, kind: Kind) -> bool {
    let text = name.to_string_lossy();
    let is_kept = || text.split_once(LINK_DAMAGED).is_some_and(|(id, _)| id.parse::<T>().is_ok());
    kind == Kind::Folder && id_of::<T>(name).is_none() && !is_temp(&text) && !is_kept()
}
