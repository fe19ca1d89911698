//! Operations on workspaces, devices, whole sessions and tenants, as events of the audit.

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, words};
use crate::base::{DeviceId, Result, Seq, SessionId, TenantId, WorkspaceId};
use crate::setters;

words! {
    /// Kind of operation.
    Operation {
        /// Creation of a workspace.
        CreateWorkspace = "workspace.create",
        /// Change of a workspace's record: its name, its provider, its main session and so on.
        UpdateWorkspace = "workspace.update",
        /// Marking of a workspace as being deleted.
        BeginDeletion = "workspace.begin_deletion",
        /// Removal of a workspace's record, configuration and areas, after what belongs to the workspace was removed.
        DeleteWorkspace = "workspace.delete",
        /// Replacement or removal of a workspace's own configuration.
        Configure = "workspace.configure",
        /// Unbinding of all devices of a workspace.
        UnbindWorkspace = "workspace.unbind",
        /// Binding of a device to a workspace.
        BindDevice = "device.bind",
        /// Unbinding of a device.
        UnbindDevice = "device.unbind",
        /// Deletion of a session.
        DeleteSession = "session.delete",
        /// Removal of the bytes of a deleted session.
        PurgeSession = "session.purge",
        /// Removal of all data of a tenant.
        DeleteTenant = "tenant.delete",
        /// Reading of the value of a secret.
        ReadSecret = "secret.read",
        /// Operation of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

words! {
    /// Outcome of an operation.
    OperationOutcome {
        /// The operation was done.
        Done = "done",
        /// There was nothing to do; nothing changed.
        Unchanged = "unchanged",
        /// The operation failed, and nothing changed.
        Failed = "failed",
        /// The operation failed, and may have been done nevertheless.
        Unknown = "unknown",
        /// Outcome of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// Number of the objects that the deletion of a tenant removed.
///
/// ```
/// use agent_core::event::{AuditedOperation, Operation, RemovedObjects};
///
/// let deletion = AuditedOperation::new(Operation::DeleteTenant).with_tenant(&"acme".parse()?);
/// let deletion = deletion.with_removed(RemovedObjects::new(1, 12, 3));
/// assert_eq!(deletion.removed.unwrap().sessions, 12);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RemovedObjects {
    /// Number of workspaces, tombstones included.
    pub workspaces: u64,
    /// Number of sessions, hidden ones and tombstones included.
    pub sessions: u64,
    /// Number of device bindings.
    pub devices: u64,
}

impl RemovedObjects {
    /// Creates the numbers of workspaces, sessions and devices.
    pub const fn new(workspaces: u64, sessions: u64, devices: u64) -> Self {
        Self { workspaces, sessions, devices }
    }
}

/// Version of a secret, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SecretVersion {
    /// Name of the secret.
    pub name: String,
    /// Number of the version.
    pub version: u64,
}

/// Payload of `session.operation_audited`: the announcement of an operation, or its outcome.
///
/// Holds only ids, names of devices, tenants and secrets, and numbers: no texts, no configuration, and no value of a secret.
///
/// The reading of a secret has one entry, with its outcome, before the value is given.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::event::{AuditedOperation, Operation, OperationOutcome};
/// use agent_core::{Seq, WorkspaceId};
///
/// let session = Effects::default().new_session_id();
/// let begun = AuditedOperation::new(Operation::DeleteSession)
///     .with_workspace(WorkspaceId::DEFAULT)
///     .with_session(session);
/// assert_eq!(begun.outcome, None);
/// let ended = begun.with_end(Seq::new(12), OperationOutcome::Done, None);
/// assert_eq!((ended.begun, ended.outcome), (Some(Seq::new(12)), Some(OperationOutcome::Done)));
/// let bound = AuditedOperation::new(Operation::BindDevice).with_device(&"laptop".parse()?);
/// assert_eq!(bound.device.unwrap().as_str(), "laptop");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[doc(alias = "OperationNoted")]
pub struct AuditedOperation {
    /// Kind of the operation.
    pub operation: Operation,
    /// Workspace that is changed; for a device binding, the workspace that the device is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    /// Session that is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Device that is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// Tenant that is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Number of the objects that were removed with the tenant, of an operation that was done; in the announcement those that it had then, as lists
    /// count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovedObjects>,
    /// Secret whose value is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVersion>,
    /// Event that announced the operation before it was done; `None` in that event itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Seq>,
    /// Outcome of the operation; `None` before it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OperationOutcome>,
    /// [Name](crate::base::error::ErrorKind::name) of the kind of error with which the operation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AuditedOperation {
    /// Creates the announcement of an operation.
    pub const fn new(operation: Operation) -> Self {
        Self {
            operation,
            workspace: None,
            session: None,
            device: None,
            tenant: None,
            removed: None,
            secret: None,
            begun: None,
            outcome: None,
            error: None,
        }
    }

    setters! {
        /// Sets the workspace.
        pub const fn with_workspace(id: WorkspaceId) => workspace = Some(id);

        /// Sets the session.
        pub const fn with_session(id: SessionId) => session = Some(id);

        /// Sets the device.
        pub fn with_device(device: &DeviceId) => device = Some(device.clone());

        /// Sets the tenant.
        pub fn with_tenant(tenant: &TenantId) => tenant = Some(tenant.clone());

        /// Sets what was removed with the tenant.
        pub const fn with_removed(objects: RemovedObjects) => removed = Some(objects);

        /// Sets the version of a secret that is read.
        pub fn with_secret(name: impl Into<String>, version: u64) => secret = Some(SecretVersion { name: name.into(), version });

        /// Sets the outcome of an operation that has one entry.
        pub const fn with_outcome(outcome: OperationOutcome) => outcome = Some(outcome);
    }

    /// Sets the outcome of the operation announced at `begun` and, if it failed, the name of the error's kind.
    #[doc(alias = "ended")]
    pub fn with_end(mut self, begun: Seq, outcome: OperationOutcome, error: Option<&str>) -> Self {
        (self.begun, self.outcome, self.error) = (Some(begun), Some(outcome), error.map(str::to_owned));
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if let Some(secret) = &self.secret {
            check_text("name of a secret", &secret.name, 64)?;
        }
        self.error.as_ref().map_or(Ok(()), |kind| Ok(check_text("kind of error", kind, 64)?))
    }
}
