//! Stores agent workspaces, sessions and device bindings in a bucket of any object store that supports preconditions.
//! Those are AWS S3, Ceph and other S3-compatible servers, Google Cloud Storage and Azure Blob Storage. No additional
//! server is needed.
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
//! let session = store.sessions(&effects).create(new).await?;
//! let input = vec![NewEvent::user_message("Hello")];
//! let committed = store.sessions(&effects).append(session.id, session.head, input).await?;
//! assert_eq!(committed.session.inputs_open, 1);
//! store.close().await?;
//! # Ok(()) }
//! ```
//!
//! # Model
//!
//! ```text
//! s3://BUCKET/PREFIX
//!   tenant ─┬─ session ── slot 0 ── slot 3 ── slot 5 …   one object for each commit, created with If-None-Match: *,
//!           │           │                                with its events and the record after it
//!           │           └─ blob                          one object for each put, deleted when no event names it
//!           └─ workspace, device                         one object each, replaced with If-Match
//! ```
//!
//! # Guarantees
//!
//! - Acknowledged writes are stored, as safely as the server stores anything.
//! - A commit is one object, which exists or does not. Only one writer can win its slot, on any machine. The slot
//!   contains the commit's id, so that a lost answer, a failing server, or a request that arrives late or twice never
//!   loses or doubles a commit. A model of the protocol was checked in all interleavings.
//! - The protocol does not depend on clocks. A slot that was taken is never free again. How long leftovers of cut-off
//!   creations and uploads are spared depends on the server's clock, never on that of this machine.
//! - If an operation runs out of time in doubt, its error is [`WriteOutcome::Unknown`](agent_core::WriteOutcome).
//!   Sending the same commit again determines the outcome.
//! - A server that ignores preconditions, or lists late, is refused when the store is opened; the error names what is
//!   missing. That a server passed is noted in the bucket, for a week, and only for this address and server. A server
//!   whose conditional writes race, or whose gateways do not know of each other, passes: `docs/operations.md` names the
//!   known ones, and what a bucket needs: credentials, rights, no rule that removes objects.
//! - A blob is visible once all of its bytes are stored and checked, and stays as long as an event names it. A sweep
//!   removes others, but spares for 256 events what a commit under way may name.
//! - Every line of every object has a checksum, and every chunk of a blob.
//!
//! # What it costs
//!
//! A commit is one request, regardless of the length of the session, and one more for each list in which the session
//! gets another place: the first input after 15 minutes at rest is four. Reading the last 50 events takes at most four
//! requests, or two if the head is known. A page of a list is a request, and one or two for each session on it, at any
//! number of sessions. A scheduler finds the tenants with work by one request for all. `FORMAT.md` lists all costs.
//!
//! A blob of at most 8 MiB is put by two requests, and read by two; a commit takes one more for each blob that it names.
//!
//! A heartbeat of a run is a request, too. So leases last at least 120 seconds (`Capabilities::min_lease`): this long
//! after its process was lost, a run is taken over by another one. A run that begins
//! waits for the key by which schedulers find it. [`S3Config::with_index`] makes lists by a label, or by creator, cost what they show.
//!
//! # Runtime
//!
//! Needs tokio with time and I/O enabled.
//!
//! # Features
//!
//! | Feature | Addresses |
//! |---|---|
//! | (always) | `s3://BUCKET/PREFIX` |
//! | `gcs` | `gs://BUCKET/PREFIX`: Google Cloud Storage |
//! | `azure` | `az://CONTAINER/PREFIX`: Azure Blob Storage |
//!
//! Neither feature adds a package.
//!
//! # Where to go next
//!
//! - [`S3Config`]: address, credentials, time limits.
//! - [`S3Store`]: the store; [`S3Store::requests`] counts its requests.
//! - [`SessionStoreExt`](agent_core::SessionStoreExt): create, append, fork, follow.

mod blobs;
mod care;
mod config;
mod dialect;
mod error;
mod formats;
mod layout;
mod lists;
mod log;
mod medium;
mod opening;
mod places;
mod store;

pub use config::S3Config;
pub use layout::fields::IndexedField;
pub use medium::requests::Requests;
pub use store::S3Store;
