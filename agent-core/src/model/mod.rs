//! Data types that events and records share.

pub(crate) mod access;
pub(crate) mod actor;
pub(crate) mod age;
pub(crate) mod attributes;
pub(crate) mod blob;
pub(crate) mod document;
pub(crate) mod ledger;
pub(crate) mod lineage;
pub(crate) mod mounts;
pub(crate) mod parts;
pub(crate) mod pin;
pub(crate) mod precondition;
pub(crate) mod timer;
pub(crate) mod transition;
pub(crate) mod workspace;

pub use access::Access;
pub use actor::{Actor, Role};
pub use age::{AGE_MAX, INACTIVE_AFTER_LABEL};
pub use attributes::{
    Attributes, ExternalHandle, HANDLES_MAX, LABELS_MAX, Labels, Liveness, Patch, REFERENCES_MAX,
    RESOURCES_MAX, References, Resource, TITLE_MAX_BYTES, Title, ToolPayloads,
};
pub use blob::{BLOB_CHUNK_BYTES, BlobInfo, NeededBlob};
pub use document::{DOCUMENT_MAX_BYTES, DOCUMENT_NAME_MAX_BYTES, DOCUMENTS_MAX, DocumentHead};
pub use ledger::{Artifact, CURRENCIES_MAX, Cost, RunUsage, Usage, UsageTotals};
pub use lineage::{Lineage, Segment};
pub use mounts::{MOUNT_NAME_MAX_BYTES, MOUNTS_MAX, Mount, MountOrigin, MountSet, Mounts, MountsPatch};
pub use parts::{
    ActionId, ActionKind, CallId, ContentBytes, Counts, Failure, Lease, OpenCall, OpenSpan, Origin,
    PendingAction, RecentCommit, Reported, Request, SpanId, Status, WORDS_MAX_BYTES,
};
pub use pin::PIN_LABEL;
pub use timer::{Timer, TimerCancelled};
pub use transition::Transition;
pub use workspace::{Workspace, WorkspaceStatus};
