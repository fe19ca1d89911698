//! Where in the bucket what lies. All of a tenant is below one folder; ids are checked text, and devices are hashed.

use std::fmt::Write;

use agent_core::{DeviceId, SessionId, TenantId, WorkspaceId};
use sha2::{Digest, Sha256};

use crate::slot::Slot;

/// The keys of one tenant.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Ends with a slash.
    root: String,
}

/// The folder of all tenants; ends with a slash.
pub(crate) fn tenants(prefix: &str) -> String {
    if prefix.is_empty() { "v1/".to_owned() } else { format!("{prefix}/v1/") }
}

/// The folder of one probe, below which nothing of any tenant lies; ends with a slash.
pub(crate) fn probe(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { format!("probe/{name}/") } else { format!("{prefix}/probe/{name}/") }
}

/// The last part of a key.
pub(crate) fn last(key: &str) -> &str {
    key.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

impl Keys {
    pub(crate) fn new(prefix: &str, tenant: &TenantId) -> Self {
        Self { root: format!("{}{tenant}/", tenants(prefix)) }
    }

    pub(crate) fn sessions(&self) -> String {
        format!("{}sessions/", self.root)
    }

    /// The folder of a session's slots; ends with a slash.
    pub(crate) fn slots(&self, session: SessionId) -> String {
        format!("{}sessions/{session}/c/", self.root)
    }

    pub(crate) fn slot(&self, session: SessionId, slot: Slot) -> String {
        format!("{}{}", self.slots(session), slot.name())
    }

    pub(crate) fn beat(&self, session: SessionId) -> String {
        format!("{}sessions/{session}/beat", self.root)
    }

    /// The folder with the names of those that were, or were to be, made from a session; ends with a slash.
    pub(crate) fn children(&self, parent: SessionId) -> String {
        format!("{}idx/child/{parent}/", self.root)
    }

    pub(crate) fn child(&self, parent: SessionId, session: SessionId) -> String {
        format!("{}{session}", self.children(parent))
    }

    pub(crate) fn workspaces(&self) -> String {
        format!("{}workspaces/", self.root)
    }

    pub(crate) fn workspace(&self, id: WorkspaceId) -> String {
        format!("{}workspaces/{id}", self.root)
    }

    pub(crate) fn bindings(&self) -> String {
        format!("{}bindings/", self.root)
    }

    pub(crate) fn binding(&self, device: &DeviceId) -> String {
        let mut key = self.bindings();
        for byte in Sha256::digest(device.as_str().as_bytes()) {
            // Writing to a string does not fail.
            let _ = write!(key, "{byte:02x}");
        }
        key
    }
}
