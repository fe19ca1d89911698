//! Operations on workspaces, devices and whole sessions, as events of the shelf that is the audit.

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, words};
use crate::base::{DeviceId, Result, Seq, SessionId, WorkspaceId};

words! {
    /// What was to be done.
    Operation {
        /// A workspace is created.
        CreateWorkspace = "workspace.create",
        /// The record of a workspace changes: its name, its provider, its main session and so on.
        UpdateWorkspace = "workspace.update",
        /// A workspace is marked as being deleted.
        BeginDeletion = "workspace.begin_deletion",
        /// A workspace's record, configuration and areas are removed; what belongs to it went before.
        DeleteWorkspace = "workspace.delete",
        /// A workspace's own configuration is replaced or removed.
        Configure = "workspace.configure",
        /// All devices of a workspace are unbound.
        UnbindWorkspace = "workspace.unbind",
        /// A device is bound to a workspace.
        BindDevice = "device.bind",
        /// A device is unbound.
        UnbindDevice = "device.unbind",
        /// A session is deleted.
        DeleteSession = "session.delete",
        /// The bytes of a deleted session are removed.
        PurgeSession = "session.purge",
        /// An operation of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

words! {
    /// What became of an operation.
    OperationOutcome {
        /// It is done.
        Done = "done",
        /// There was nothing to do: it is as it was.
        Unchanged = "unchanged",
        /// It failed, and nothing was changed.
        Failed = "failed",
        /// It failed, and may have been done all the same.
        Unknown = "unknown",
        /// An outcome of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// The payload of `session.operation_noted`: what is about to be done, or what became of it, and with what. Ids and the
/// names of devices are all that it says: no texts, and no configuration.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperationNoted {
    /// What.
    pub operation: Operation,
    /// The workspace that it is done to, or in the case of a device's binding with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    /// The session that it is done to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The device that it is done to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// The event by which it was noted before it was done; `None` in that event itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Seq>,
    /// What became of it; `None` before it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OperationOutcome>,
    /// The [name](crate::base::error::ErrorKind::name) of the kind of error with which it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl OperationNoted {
    /// This is about to be done.
    pub const fn new(operation: Operation) -> Self {
        Self {
            operation,
            workspace: None,
            session: None,
            device: None,
            begun: None,
            outcome: None,
            error: None,
        }
    }

    /// Names the workspace.
    pub const fn workspace(mut self, id: WorkspaceId) -> Self {
        self.workspace = Some(id);
        self
    }

    /// Names the session.
    pub const fn session(mut self, id: SessionId) -> Self {
        self.session = Some(id);
        self
    }

    /// Names the device.
    pub fn device(mut self, device: &DeviceId) -> Self {
        self.device = Some(device.clone());
        self
    }

    /// What became of what was noted at `begun`, and the name of the error's kind where it failed.
    pub fn ended(mut self, begun: Seq, outcome: OperationOutcome, error: Option<&str>) -> Self {
        (self.begun, self.outcome, self.error) = (Some(begun), Some(outcome), error.map(str::to_owned));
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.error.as_ref().map_or(Ok(()), |kind| Ok(check_text("kind of error", kind, 64)?))
    }
}
