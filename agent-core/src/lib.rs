//! Durable workspaces, sessions and device bindings for agents: the model, the contracts, and the runtime.
//!
//! A session is its log of events; its record is what the log folds into. What a commit does is decided by one pure
//! function, [`plan`](session::plan()), so that every backend decides alike. Backends implement three traits,
//! [`WorkspaceStore`], [`SessionStore`] and [`BindingStore`]; hosts hold a [`Storage`], or build an
//! `AgentRuntime` on it.

pub mod binding;
mod effects;
mod error;
mod id;
mod in_memory;
mod json;
pub mod page;
pub mod session;
mod storage;
pub mod workspace;

pub use async_trait::async_trait;

pub use binding::{Binding, BindingQuery, BindingStore};
pub use effects::{Clock, Effects, Random, Timestamp};
pub use error::{Error, ErrorKind, Result, WriteOutcome};
pub use id::{CommitId, DeviceId, Epoch, EventId, Revision, RunId, Seq, SessionId, TenantId, WorkspaceId};
pub use in_memory::MemoryStore;
pub use json::{RawFields, RawJson};
pub use page::{Cursor, Damaged, Page};
pub use session::{
    Access, ActionId, ActionKind, Actor, Attributes, Body, CallId, Capabilities, Commit, Committed,
    Consistency, Counts, Decision, Durability, Event, EventPage, EventType, Expect, Failure, Labels, Lease,
    LeaseRequest, Lineage, Message, NewEvent, NewSession, Origin, Patch, PendingAction, Pulse, Purge, Purged,
    ReadEvents, Reason, References, Resource, Role, RunEnd, Scope, Session, SessionQuery, SessionState,
    SessionStore, SessionStoreExt, SessionSummary, SpanId, Status, Step, SystemMessage, Title,
    ToolConfirmation, ToolOutcome, ToolResult, ToolUse, Trigger, TriggerKind, Wake,
};
pub use storage::{Storage, Tenants};
pub use workspace::{
    ContentHash, Workspace, WorkspaceQuery, WorkspaceStatus, WorkspaceStore, WorkspaceStoreExt,
};
