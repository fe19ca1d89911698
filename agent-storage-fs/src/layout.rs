//! Where everything lies. Only ids that were checked become names.

use std::path::{Path, PathBuf};

use agent_core::{Epoch, SessionId, TenantId, WorkspaceId};

use crate::owner::Owner;

pub(crate) const LOG: &str = "events.jsonl";
pub(crate) const SNAPSHOT: &str = "session.json";
pub(crate) const TOMBSTONE: &str = "tombstone.json";
/// What stood in the place of a log and is no file, kept when an empty log took its place.
pub(crate) const LOG_DAMAGED: &str = "events.damaged-";
/// Behind a session's id: a link in the place of its folder, kept when a folder took its place.
pub(crate) const LINK_DAMAGED: &str = ".damaged-";
/// A tombstone that could not be read, kept when another took its place.
pub(crate) const TOMBSTONE_DAMAGED: &str = "tombstone.damaged-";
pub(crate) const SUSPECT: &str = "suspect";
pub(crate) const LEASE_PREFIX: &str = "lease-";
pub(crate) const TAIL_PREFIX: &str = "events.tail-";
pub(crate) const RECORD: &str = "workspace.toml";
pub(crate) const CONFIG: &str = "config.toml";
pub(crate) const ACCESSED: &str = "accessed";
pub(crate) const DELETED: &str = "deleted";
pub(crate) const WORKSPACES: &str = "workspaces";
pub(crate) const SESSIONS: &str = "sessions";
pub(crate) const TRANSCRIPT: &str = "session.md";
pub(crate) const TRANSCRIPT_LOCK: &str = "session.md.lock";
/// What a transcript is named after when it is kept aside: a person changed it; it cannot be read; it is damaged; what
/// a person changed, or another program left, is in the log now.
pub(crate) const EDITED: &str = "session.edited-";
pub(crate) const UNREADABLE: &str = "session.unreadable-";
pub(crate) const DAMAGED: &str = "session.damaged-";
pub(crate) const IMPORTED: &str = "session.imported-";
pub(crate) const KEPT: [&str; 4] = [EDITED, UNREADABLE, DAMAGED, IMPORTED];
/// What is being made has a name with this in it; whoever lists a folder passes over it.
pub(crate) const NEW: &str = ".new-";
/// The folders that every workspace has for its host.
pub(crate) const AREAS: [&str; 3] = ["mcp", "skills", "memory"];

/// The folder of one tenant.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    tenant: TenantId,
    seed: u32,
}

impl Layout {
    /// The tenant `default` is the root itself; others lie below.
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

    /// Whose a session's lines are.
    pub(crate) fn owner(&self, id: SessionId) -> Owner {
        Owner::new(self.seed, id)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.root.join(CONFIG)
    }

    pub(crate) fn bindings(&self) -> PathBuf {
        self.root.join("bindings.toml")
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

    /// The derived file that says in which workspace a session lies. Fanned out by the last digits of the id: the
    /// first ones are the time, and the same for years.
    pub(crate) fn pointer(&self, id: SessionId) -> PathBuf {
        self.pointers().join(last_digits(id)).join(id.to_string())
    }

    /// The folder of these files.
    pub(crate) fn pointers(&self) -> PathBuf {
        self.root.join("index").join("sessions")
    }

    /// The derived file that says that there is a workspace.
    pub(crate) fn workspace_pointer(&self, id: WorkspaceId) -> PathBuf {
        self.workspace_pointers().join(id.to_string())
    }

    /// The folder of these files.
    pub(crate) fn workspace_pointers(&self) -> PathBuf {
        self.root.join("index").join(WORKSPACES)
    }

    /// The lock under which sessions of such ids come to be.
    pub(crate) fn create_lock(&self, id: SessionId) -> PathBuf {
        self.root.join("index").join("locks").join(last_digits(id))
    }
}

fn last_digits(id: SessionId) -> String {
    format!("{:02x}", id.as_uuid().as_bytes()[15])
}

pub(crate) fn lease(session: &Path, epoch: Epoch) -> PathBuf {
    session.join(format!("{LEASE_PREFIX}{epoch}"))
}

/// The id that a folder is named after. Only the one spelling that this crate writes counts.
pub(crate) fn id_of<T: std::str::FromStr + ToString>(name: &std::ffi::OsStr) -> Option<T> {
    let name = name.to_str()?;
    let id: T = name.parse().ok()?;
    (id.to_string() == name).then_some(id)
}
