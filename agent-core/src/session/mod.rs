//! Sessions: events, the state machine, the record that they fold into, the plan of a commit, and the store's trait.

pub mod commit;
pub(crate) mod compact;
pub(crate) mod created;
mod fold;
pub(crate) mod history;
pub mod plan;
pub mod read;
pub mod record;
pub mod store;
pub(crate) mod summary;

pub(crate) mod ext;
pub(crate) mod report;
pub(crate) mod retry;

pub use crate::base::state::{Reason, Rule, SessionState, TABLE, Target, TriggerKind, target};
pub use crate::event::body::Body;
pub use crate::event::header::{EVENT_MAX_BYTES, Event, NewEvent};
pub use crate::event::kind::EventType;
pub use crate::event::payload::child::{ChildCreated, ChildIdle};
pub use crate::event::payload::created::{Created, Inherited};
pub use crate::event::payload::document::DocumentWritten;
pub use crate::event::payload::learning::{LEARNING_MAX_BYTES, Learning, LearningKind, LearningPromoted};
pub use crate::event::payload::message::{Compaction, Interrupt, Message, Note, SystemMessage};
pub use crate::event::payload::operation::{Operation, OperationNoted, OperationOutcome};
pub use crate::event::payload::span::{SpanCompleted, SpanStarted};
pub use crate::event::payload::tool::{Decision, ToolConfirmation, ToolOutcome, ToolResult, ToolUse};
pub use crate::model::access::Access;
pub use crate::model::actor::{Actor, Role};
pub use crate::model::attributes::{
    Attributes, ExternalHandle, HANDLES_MAX, Keep, LABELS_MAX, Labels, Liveness, Patch, REFERENCES_MAX,
    RESOURCES_MAX, References, Resource, TITLE_MAX_BYTES, Title,
};
pub use crate::model::document::{DOCUMENT_MAX_BYTES, DOCUMENT_NAME_MAX_BYTES, DOCUMENTS_MAX, DocumentHead};
pub use crate::model::ledger::{Artifact, CURRENCIES_MAX, Cost, RunUsage, Usage, UsageTotals};
pub use crate::model::lineage::{Lineage, Segment};
pub use crate::model::mounts::{
    MOUNT_NAME_MAX_BYTES, MOUNTS_MAX, Mount, MountOrigin, MountSet, Mounts, MountsPatch,
};
pub use crate::model::parts::{
    ActionId, ActionKind, CallId, Counts, Failure, Lease, OpenCall, OpenSpan, Origin, PendingAction,
    RecentCommit, Reported, Request, SpanId, Status,
};
pub use crate::model::transition::Transition;
pub use crate::model::wake::{Wake, WakeCancelled};
pub use commit::{
    COMMIT_MAX_BYTES, COMMIT_MAX_EVENTS, Commit, Committed, Expect, LeaseRequest, RunEnd, Step, Trigger,
};
pub use created::{Fork, NewSession};
pub use ext::SessionStoreExt;
#[cfg(feature = "runtime")]
pub(crate) use history::next_events;
pub use plan::{Plan, plan};
pub use read::{EventPage, ReadEvents};
pub use record::{
    OPEN_CALLS_MAX, RECENT_COMMITS, RECORD_CONTENT_MAX_BYTES, RECORD_MAX_BYTES, Session, WAKES_MAX,
};
pub use store::{
    Capabilities, Consistency, Durability, Pulse, Purge, Purged, Rebuilt, Scope, SessionQuery, SessionStore,
};
pub use summary::SessionSummary;
