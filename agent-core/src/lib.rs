//! Data model of durable workspaces, sessions and device bindings for agents, and the contract of the stores that hold
//! them.
//!
//! Hosts usually depend on the crate `agent`, which exports these types together with the runtime. Authors of backends
//! and tools that read or write stores depend on this crate.
//!
//! # Model
//!
//! ```text
//! Backend ── tenant ── Storage ─┬─ WorkspaceStore   workspaces and their configuration
//!                               ├─ SessionStore     sessions: logs and records
//!                               └─ BindingStore     device → workspace
//!
//! SessionRecord   events 1, 2, 3 … n ───fold──▶ record: state, open inputs, timers, lease, title …
//! Commit    [events, triggers] ───plan──▶ events n + 1 … and the new record, stored in one atomic step
//! ```
//!
//! - A session is a log of [events](event::Event), which never change. Its [record](session::SessionRecord) is the fold of
//!   that log, bounded in size.
//! - A [commit](commit::Commit) is the only write to a session. It is applied completely or not at all, and once,
//!   however often it is sent. One pure function, [`plan`](plan()), decides what it does, so that every backend decides
//!   alike.
//! - A run holds a [lease](model::Lease). Its epoch fences the writes of earlier runs.
//! - Backends implement three traits, [`WorkspaceStore`], [`SessionStore`] and [`BindingStore`]. A session store hands
//!   out the [leases](store::LeaseStore) of its runs, its [blobs](store::BlobStore) and its
//!   [maintenance](store::Maintenance). Hosts use them through a [`Storage`].
//!
//! # Example
//!
//! ```
//! use agent_core::event::NewEvent;
//! use agent_core::session::NewSession;
//! use agent_core::state::SessionState;
//! use agent_core::store::{ReadEvents, SessionQuery};
//! use agent_core::{MemoryStore, SessionStoreExt, Storage, WorkspaceId};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! let storage = Storage::from(MemoryStore::new());
//! let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
//! let session = storage.sessions.create(new).await?;
//!
//! let input = vec![NewEvent::user_message("What did we decide yesterday?")];
//! let committed = storage.sessions.append(session.id, session.head, input).await?;
//! assert_eq!(committed.session.status.state, SessionState::Queued);
//!
//! let page = storage.sessions.history(session.id, ReadEvents::last(50)).await?;
//! assert_eq!(page.events.last().unwrap().seq, committed.last);
//! let due = storage.sessions.list(SessionQuery::new().with_due(storage.effects().now())).await?;
//! assert_eq!(due.items[0].id, session.id);
//! storage.close().await?;
//! # Ok(()) }
//! ```
//!
//! # Features and runtime
//!
//! The crate has no features. Reading and writing a [`MemoryStore`] works on any executor. Methods that wait (retries
//! in [`SessionStoreExt`] and [`Sessions`], [`SessionStore::changed`]) need a tokio runtime with time enabled. The time and all ids come
//! from [`Effects`](clock::Effects), which a test can replace.
//!
//! # Where to go next
//!
//! - [`Sessions`]: create, append, trigger, fork, compact. [`SessionStoreExt`]: history, events, follow.
//! - [`MemoryStore`]: the reference backend. The backends with files, SQLite and S3 are crates of their own.
//! - [`plan`](plan()), [`Plan`] and [`OpenState`]: the parts of which a backend is made.
//! - [`state::TABLE`]: the state machine of a session.
//!
//! Modules, from the bottom up: [`state`], [`json`], [`clock`] and the items at the root; [`model`]; [`event`];
//! [`session`]; [`commit`]; [`store`]; [`search`]. Each uses only those before it.

mod base;
pub mod commit;
pub mod event;
pub mod model;
pub mod sealing;
pub mod search;
pub mod session;
pub mod store;

pub use async_trait::async_trait;

pub use base::{
    BlobName, CommitId, DeviceId, Epoch, Error, ErrorKind, EventId, OwnerId, ParseError, Result, Revision,
    RunId, Seq, SessionId, TenantId, Timestamp, WorkspaceId, WriteOutcome, clock, isolated, json,
    state_machine as state,
};
pub use commit::plan::plan;
pub use commit::plan::planner::Plan;
pub use store::binding::BindingStore;
pub use store::ext::SessionStoreExt;
pub use store::memory::MemoryStore;
pub use store::open_state::OpenState;
pub use store::session::SessionStore;
pub use store::sessions::Sessions;
pub use store::storage::{Backend, Storage};
pub use store::workspace::{WorkspaceStore, WorkspaceStoreExt};

/// Checks on text from outside, and its quotation in errors.
pub mod text {
    #[doc(hidden)]
    pub use crate::base::text::Text;
    pub use crate::base::text::{check_text, marked, marked_name, quoted, with_whole_characters};
}
