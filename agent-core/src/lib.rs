//! Durable workspaces, sessions and device bindings for agents: the model, the contracts, and the runtime.
//!
//! A session is its log of events; its record is what the log folds into. What a commit does is decided by one pure
//! function, [`plan`](session::plan()), so that every backend decides alike. Backends implement three traits,
//! [`WorkspaceStore`], [`SessionStore`] and [`BindingStore`]; hosts hold a [`Storage`], or build an
//! `AgentRuntime` on it.

pub mod audit;
mod base;
pub mod binding;
pub mod configuration;
pub mod copy;
mod event;
#[cfg(feature = "runtime")]
mod handle;
pub mod holdings;
mod in_memory;
mod isolated;
pub mod maintenance;
mod manager;
mod model;
mod open_state;
pub mod page;
mod planted;
pub mod registry;
pub mod retention;
#[cfg(feature = "runtime")]
pub mod runtime;
pub mod secrets;
pub mod session;
mod storage;
pub mod transcript;
pub mod views;
pub mod workspace;

pub use async_trait::async_trait;

pub use audit::{Audit, AuditEntry, AuditPage};
pub use base::effects::{Clock, Effects, Random};
pub use base::error::{Error, ErrorKind, Result, WriteOutcome};
pub use base::id::{
    CommitId, DeviceId, Epoch, EventId, Revision, RunId, Seq, SessionId, TenantId, WorkspaceId,
};
pub use base::json::{RawFields, RawJson};
pub use base::text::ParseError;
pub use base::timestamp::Timestamp;
pub use binding::{Binding, BindingQuery, BindingStore};
#[cfg(feature = "runtime")]
pub use handle::{ActionAnswer, ContextCounts, SessionHandle};
pub use in_memory::MemoryStore;
pub use maintenance::{Finding, FindingKind, Gap, Salvaged, Verification};
pub use manager::{NewWorkspace, Resolution, Resolved, WorkspaceManager};
pub use open_state::{OpenState, Operating};
pub use page::{Cursor, Damaged, Page};
#[doc(hidden)]
pub use planted::planted;
pub use registry::{Registry, StoreAddress};
pub use retention::{
    Act, Deletion, Former, GcPolicy, GcReport, Inactive, Kept, Protection, SweepPolicy, SweepReport, Swept,
};
#[cfg(feature = "runtime")]
pub use runtime::{
    AgentBuilder, AgentRuntime, Config, EchoProvider, Input, LlmProvider, Persistence, Plugin, Run,
    RunOutcome, RunReport, Scheduler, ScriptedProvider, Stored, Update,
};
pub use session::plan::{Plan, plan};
pub use session::{
    Access, ActionId, ActionKind, Actor, Artifact, Attributes, Body, CallId, Capabilities, Commit, Committed,
    Consistency, Cost, Counts, Decision, DocumentHead, DocumentWritten, Durability, Event, EventPage,
    EventType, Expect, ExternalHandle, Failure, Fork, Keep, Labels, Learning, LearningKind, Lease,
    LeaseRequest, Lineage, Liveness, Message, Mount, MountOrigin, MountSet, NewEvent, NewSession, Operation,
    OperationNoted, OperationOutcome, Origin, Patch, PendingAction, Pulse, Purge, Purged, ReadEvents, Reason,
    Rebuilt, References, Resource, Role, RunEnd, RunUsage, Scope, Session, SessionQuery, SessionState,
    SessionStore, SessionStoreExt, SessionSummary, SpanId, Status, Step, SystemMessage, Title,
    ToolConfirmation, ToolOutcome, ToolResult, ToolUse, Trigger, TriggerKind, Usage, UsageTotals, Wake,
    WakeCancelled,
};
pub use storage::{Storage, Tenants};
pub use workspace::{
    ContentHash, Workspace, WorkspaceQuery, WorkspaceStatus, WorkspaceStore, WorkspaceStoreExt,
};
