//! Sessions: events, the state machine, the record that they fold into, the plan of a commit, and the store's trait.

pub mod attributes;
pub mod body;
pub mod commit;
pub(crate) mod compact;
mod created;
pub mod document;
pub mod event;
mod fold;
pub(crate) mod history;
pub mod learning;
pub mod ledger;
pub mod lineage;
pub mod mounts;
pub mod operation;
mod parts;
pub mod plan;
pub mod read;
pub mod record;
pub mod store;
pub mod transition;

pub(crate) mod ext;
pub(crate) mod report;

pub use crate::base::state::{Reason, Rule, SessionState, TABLE, Target, TriggerKind, target};
pub use attributes::{
    Access, Attributes, ExternalHandle, Keep, Labels, Liveness, Patch, References, Resource, Title,
};
pub use body::{
    Body, ChildCreated, ChildIdle, Compaction, Decision, Interrupt, Message, Note, SpanCompleted,
    SpanStarted, SystemMessage, ToolConfirmation, ToolOutcome, ToolResult, ToolUse, Wake, WakeCancelled,
};
pub use commit::{Commit, Committed, Expect, LeaseRequest, RunEnd, Step, Trigger};
pub use document::{DocumentHead, DocumentWritten};
pub use event::{Actor, Event, EventType, NewEvent, Role};
pub use ext::SessionStoreExt;
#[cfg(feature = "runtime")]
pub(crate) use history::next_events;
pub use learning::{Learning, LearningKind, LearningPromoted};
pub use ledger::{Artifact, Cost, RunUsage, Usage, UsageTotals};
pub use lineage::{Lineage, Segment};
pub use mounts::{Mount, MountOrigin, MountSet, Mounts, MountsPatch};
pub use operation::{Operation, OperationNoted, OperationOutcome};
pub use plan::{Plan, plan};
pub use read::{EventPage, ReadEvents};
pub use record::{
    ActionId, ActionKind, CallId, Counts, Created, Failure, Fork, Inherited, Lease, NewSession, OpenCall,
    OpenSpan, Origin, PendingAction, RecentCommit, Reported, Request, Session, SessionSummary, SpanId,
    Status,
};
pub use store::{
    Capabilities, Consistency, Durability, Pulse, Purge, Purged, Rebuilt, Scope, SessionQuery, SessionStore,
};
pub use transition::Transition;
