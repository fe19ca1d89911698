//! The model of durable workspaces, sessions and device bindings, and the contract of the stores that keep them.
//!
//! A session is its log of events; its record is what the log folds into. What a commit does is decided by one pure
//! function, [`plan`](plan()), so that every backend decides alike. Backends implement three traits,
//! [`WorkspaceStore`], [`SessionStore`] and [`BindingStore`]; who uses them holds a [`Storage`].
//!
//! From the bottom up: [`state`], [`json`], [`clock`] and what is at the root; [`model`]; [`event`]; [`session`];
//! [`commit`]; [`store`]. Each knows only those before it.

mod base;
pub mod commit;
pub mod event;
pub mod model;
pub mod session;
pub mod store;

pub use async_trait::async_trait;

pub use base::{
    CommitId, DeviceId, Epoch, Error, ErrorKind, EventId, ParseError, Result, Revision, RunId, Seq,
    SessionId, TenantId, Timestamp, WorkspaceId, WriteOutcome, clock, isolated, json, state,
};
pub use commit::plan::plan;
pub use commit::plan::planner::Plan;
pub use store::binding::BindingStore;
pub use store::ext::SessionStoreExt;
pub use store::memory::MemoryStore;
pub use store::open_state::OpenState;
pub use store::session::SessionStore;
pub use store::storage::{Storage, Tenants};
pub use store::workspace::{WorkspaceStore, WorkspaceStoreExt};

/// Text from outside: how it is checked, and how an error quotes it.
pub mod text {
    pub use crate::base::text::{check_text, quoted};
}
