//! Stores agent workspaces, sessions and device bindings as human-readable files on one machine.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! use agent_core::{SessionStore, SessionStoreExt, WorkspaceId};
//! use agent_core::clock::Effects;
//! use agent_core::event::NewEvent;
//! use agent_core::session::NewSession;
//! use agent_core::store::ReadEvents;
//! use agent_storage_fs::FsStore;
//!
//! let (store, effects) = (FsStore::open(folder.path()).await?, Effects::default());
//! let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
//! let session = store.sessions(&effects).create(new).await?;
//! store.sessions(&effects).append(session.id, session.head, vec![NewEvent::user_message("Hello")]).await?;
//! store.close().await?;
//!
//! // Later, in another process.
//! let store = FsStore::open(folder.path()).await?;
//! let page = store.read(session.id, ReadEvents::last(50)).await?;
//! assert_eq!(page.events.len(), 2);
//! # Ok(()) }
//! ```
//!
//! Events are stored as lines of text, one file for each session. A commit locks the session's folder, reads what
//! other processes appended, and appends its own lines with one write and one sync. Everything else is derived.
//!
//! # Layout
//!
//! ```text
//! <root>/config.toml                              global configuration, the host's
//! <root>/bindings.toml                            device -> workspace
//! <root>/bindings.changes                         changes since, among many devices
//! <root>/devices/<sha256>                         workspace and session that a device used last; advice
//! <root>/workspaces/<id>/workspace.toml           record; a workspace exists if this file exists
//! <root>/workspaces/<id>/config.toml              the workspace's own configuration, optional
//! <root>/workspaces/<id>/session.md               messages of the main session, for people; derived
//! <root>/workspaces/<id>/{mcp,skills,memory}/     the host's own; `chat area import` copies them into the areas
//! <root>/workspaces/<id>/sessions/<sid>/
//!     events.jsonl                                the log, the source of everything else: one event a line
//!     session.json                                the record up to a stated offset; a cache
//!     blobs/<sha256>                              large content that events name, as it is
//! <root>/blobs/<sid>/                             blobs of an id of which no session was created yet
//! <root>/index/                                   derived; `rebuild` creates it again
//! <root>/tenants/<tenant>/                        the same for every other tenant
//! ```
//!
//! [`format`](mod@format) specifies every byte, and the state that a crash at each step leaves. Files are readable and
//! writable by their owner only. A directory of the Aptove agent opens as it is. The store does not touch files that
//! it does not know.
//!
//! # Guarantees
//!
//! - Acknowledged writes survive `kill -9` and power loss ([`Sync::Full`], the default), or `kill -9` only
//!   ([`Sync::Off`]).
//! - Every reader sees a commit whole or not at all, after any crash. Readers take no locks and never wait.
//! - Several processes on one machine may use the same store, as if they were one. Network file systems are not
//!   supported; a file system without working locks is refused.
//! - A commit costs one write and one sync, regardless of the length of the session. Opening a session reads its
//!   snapshot and at most about 32 KiB of its log. Reading the last events reads only these.
//! - Every file that could be mistaken for another's if renamed names its owner; under another owner's name it is
//!   damaged. A session or workspace that a person moved away is damaged, and is not created again. Reading writes
//!   nothing.
//! - Damage is reported as such, and damaged bytes are kept. An incomplete commit at the end of a log was either never
//!   acknowledged or damaged: the next writer moves it to `events.tail-<offset>`, and logs a warning.
//!
//! # Costs that grow
//!
//! Binding a device rewrites `bindings.toml` while it is small, and later appends a line to `bindings.changes`. The first list of
//! sessions in a process looks at the log of each, reads those that changed since `index/summaries` was written, and takes some
//! 1.5 KB of memory for each; later lists look at those that changed, and at those on the page ([`FsConfig::with_list_scan_max`]). Listing workspaces reads each record. A session that no index file
//! names is looked for in each workspace; among 32 and more, a process that has created eight sessions remembers the ids of all instead, with some 40
//! bytes for each. Three operations read the 256 folders of the index, to
//! report sessions that a person moved away, and look at each session: a purge, a list of sessions in all states, and a
//! list that counts (`with_total`).
//!
//! # Runtime and platforms
//!
//! Needs a tokio runtime with time enabled. File operations run on its blocking threads. The crate has no features.
//!
//! Tested on Linux. Written for macOS and Windows too, but not verified there. On Windows, names are as durable as the
//! file system makes them, because there is no call to sync a folder.
//!
//! # Where to go next
//!
//! - [`FsConfig`]: durability, waiting times, transcripts.
//! - [`FsStore`]: the store, and what only files have: [`FsStore::transcript_edits`], [`FsStore::load_global_config`].
//! - [`SessionStoreExt`](agent_core::SessionStoreExt): create, append, fork, follow.

mod blobs;
mod care;
mod config;
mod error;
mod exports;
mod formats;
pub mod io;
mod lists;
mod log;
mod medium;
mod owner;
mod places;
mod shared;
mod store;
mod transcript;

pub use config::{FsConfig, Sync};
pub use store::FsStore;
pub use transcript::TranscriptEdit;

#[doc = include_str!("../FORMAT.md")]
pub mod format {}
