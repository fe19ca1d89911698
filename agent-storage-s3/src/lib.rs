//! Agent workspaces, sessions and device bindings in a bucket of any object store that keeps preconditions: AWS S3, Ceph
//! and others that speak its language. No server of our own.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_core::{SessionStoreExt, WorkspaceId};
//! use agent_core::clock::Effects;
//! use agent_core::event::NewEvent;
//! use agent_core::session::NewSession;
//! use agent_storage_s3::S3Config;
//!
//! let store = S3Config::from_url("s3://my-bucket/agents?region=eu-central-1")?.open().await?;
//! let effects = Effects::default();
//! let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
//! let session = SessionStoreExt::create(&store, &effects, new).await?;
//! store.append(&effects, session.id, session.head, vec![NewEvent::user_message("hello")]).await?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - What was acknowledged is stored, as safely as the server stores anything.
//! - A commit is one object, which is there or not. Only one writer can win its slot, on whatever machine; whose it is
//!   stands in it, so that a lost answer, a failing server, a request that lands late or twice never loses or doubles a
//!   commit. A model of the protocol was checked in all interleavings.
//! - No clock is relied on. A slot that was taken is never free again.
//! - Where the time of an operation ends in doubt it says so ([`WriteOutcome::Unknown`](agent_core::WriteOutcome)); the
//!   same commit sent again finds out.
//! - A server that ignores preconditions, or lists late, is refused when the store is opened, and told what it lacks.
//! - Every line of every object has a checksum.
//!
//! # What it costs
//!
//! A commit is one request, at any length of the session. Reading the last 50 events takes at most four, or two with a
//! head that is known. Lists read each session's newest commit; `FORMAT.md` names all costs.

mod beats;
mod bindings;
mod commits;
mod config;
mod error;
mod family;
mod heads;
mod keys;
mod line;
mod listing;
mod object;
mod probe;
mod purging;
mod reading;
mod replaced;
mod slot;
mod slots;
mod store;
mod tenant;
mod workspaces;

pub use config::S3Config;
pub use object::Requests;
pub use store::S3Store;
