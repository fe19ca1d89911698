//! Agent workspaces, sessions and device bindings as files that a person can read, on one machine.
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
//! let session = SessionStoreExt::create(&store, &effects, new).await?;
//! store.append(&effects, session.id, session.head, vec![NewEvent::user_message("hello")]).await?;
//! drop(store);
//!
//! // Another process, another day.
//! let store = FsStore::open(folder.path()).await?;
//! let page = store.read(session.id, ReadEvents::last(50)).await?;
//! assert_eq!(page.events.len(), 2);
//! # Ok(()) }
//! ```
//!
//! # Layout
//!
//! ```text
//! <root>/config.toml                              global configuration, the host's
//! <root>/bindings.toml                            device -> workspace
//! <root>/workspaces/<id>/workspace.toml           record; a workspace is there from the moment that this file is
//! <root>/workspaces/<id>/config.toml              the workspace's own configuration, optional
//! <root>/workspaces/<id>/session.md               what was said in the main session, for people; derived
//! <root>/workspaces/<id>/{mcp,skills,memory}/     the host's own; `chat area import` takes them into the areas
//! <root>/workspaces/<id>/sessions/<sid>/
//!     events.jsonl                                the truth: one event a line, a checksum in each
//!     session.json                                the record up to a stated offset; a cache
//! <root>/index/                                   derived; `rebuild` makes it anew, without what was moved away
//! <root>/tenants/<tenant>/                        the same again for every other tenant
//! ```
//!
//! [`format`](mod@format) gives every byte, and what a crash at each step leaves. Files are readable and writable for their owner
//! only. A directory of the Aptove agent opens as it is; files that this crate does not know are left alone.
//!
//! # Guarantees
//!
//! - What was acknowledged survives `kill -9` and the loss of power ([`Sync::Full`], the default), or `kill -9` only
//!   ([`Sync::Off`]).
//! - A commit is seen whole or not at all, by every reader, after any crash. Readers take no locks and wait for
//!   nobody.
//! - Several processes on one machine behave like one. Network file systems are not for this crate; one without
//!   working locks is refused.
//! - A commit costs one write and one sync, however long the session is. Opening a session reads its snapshot and at
//!   most some 16 KiB of its log; reading the last events reads these.
//! - Every file that could come under another's name says whose it is, and is damage there. A session or workspace that a
//!   person moved away is damage, and is not begun anew. Who only looks writes nothing.
//! - Damage is reported as such, and damaged bytes are kept. A commit at the end of a log that is not whole was never
//!   acknowledged, or is damaged: the next writer moves it aside into `events.tail-<offset>`, and warns.
//!
//! # Costs that grow
//!
//! Binding a device rewrites `bindings.toml`, and every answer reads it. A list looks at the length of each session's
//! log, a list of workspaces reads each record. Creating a session, or looking for one that is not there, looks
//! into each workspace's folder. A purge, a list by parent, one of all sessions and one that counts (`with_total`) read the 256
//! folders of the index, to name the sessions that a person moved away.
//!
//! # Platforms
//!
//! Tested on Linux. Written for macOS and Windows too, and not verified there; on Windows names are as durable as
//! the file system makes them, since there is no call to sync a folder.

mod bindings;
mod bindings_toml;
mod cached;
mod config;
mod delete_damaged;
mod env;
mod error;
pub mod io;
mod layout;
mod lease;
mod listing;
mod lock;
mod log;
mod owner;
mod place;
mod publish;
mod purge;
mod reading;
mod record;
mod sessions;
mod shell;
mod slot;
mod store;
mod tenant;
mod toml;
mod transcript;
mod workspace_toml;
mod workspaces;
mod writer;

pub use config::{FsConfig, Sync};
pub use store::FsStore;
pub use transcript::TranscriptEdit;

#[doc = include_str!("../FORMAT.md")]
pub mod format {}
