//! Keys of all objects in the bucket. A tenant's objects are all under one folder. Ids are validated text, and device
//! ids are hashed.

use std::fmt::Write;

use agent_core::{DeviceId, SessionId, TenantId, WorkspaceId};
use sha2::{Digest, Sha256};

use crate::slot::Slot;

/// Keys of one generation of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Folder of the generation; ends with a slash.
    root: String,
}

/// Returns the folder of all tenants; ends with a slash.
pub(crate) fn tenants(prefix: &str) -> String {
    if prefix.is_empty() { "v1/".to_owned() } else { format!("{prefix}/v1/") }
}

/// Returns the folder of the tenants' generations; ends with a slash.
pub(crate) fn generations(prefix: &str) -> String {
    if prefix.is_empty() { "generations/".to_owned() } else { format!("{prefix}/generations/") }
}

/// Returns the key of a tenant's generation.
pub(crate) fn generation(prefix: &str, tenant: &TenantId) -> String {
    format!("{}{tenant}", generations(prefix))
}

/// Returns the folder of one probe, which contains no tenant's objects; ends with a slash.
pub(crate) fn probe(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { format!("probe/{name}/") } else { format!("{prefix}/probe/{name}/") }
}

/// Returns the key of the object that says that the server passed a probe.
pub(crate) fn probed(prefix: &str) -> String {
    if prefix.is_empty() { "probe/passed".to_owned() } else { format!("{prefix}/probe/passed") }
}

/// Returns the last part of a key.
pub(crate) fn last(key: &str) -> &str {
    key.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

impl Keys {
    /// Returns the keys of a generation. The first one has the folder of the tenant itself, the others one below it.
    pub(crate) fn new(prefix: &str, tenant: &TenantId, generation: u64) -> Self {
        let root = format!("{}{tenant}/", tenants(prefix));
        Self { root: if generation == 0 { root } else { format!("{root}g{generation}/") } }
    }

    /// Returns the folders that contain all objects; each ends with a slash.
    pub(crate) fn folders(&self) -> [String; 4] {
        [self.sessions(), self.workspaces(), self.bindings(), self.families()]
    }

    /// Returns the folder of the ids of all sessions that were created, or announced, from others; ends with a slash.
    pub(crate) fn families(&self) -> String {
        format!("{}idx/", self.root)
    }

    pub(crate) fn sessions(&self) -> String {
        format!("{}sessions/", self.root)
    }

    /// Returns the folder of a session's slots; ends with a slash.
    pub(crate) fn slots(&self, session: SessionId) -> String {
        format!("{}sessions/{session}/c/", self.root)
    }

    pub(crate) fn slot(&self, session: SessionId, slot: Slot) -> String {
        format!("{}{}", self.slots(session), slot.name())
    }

    pub(crate) fn heartbeat(&self, session: SessionId) -> String {
        format!("{}sessions/{session}/heartbeat", self.root)
    }

    /// Returns the folder with the ids of the sessions that were created, or announced, from a session; ends with a
    /// slash.
    pub(crate) fn children(&self, parent: SessionId) -> String {
        format!("{}child/{parent}/", self.families())
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
