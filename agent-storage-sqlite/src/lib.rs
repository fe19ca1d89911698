//! Agent workspaces, sessions and device bindings in one embedded SQLite file: the default for real use on one machine.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("agent.db");
//! use agent_core::{SessionStore, SessionStoreExt, WorkspaceId};
//! use agent_core::clock::Effects;
//! use agent_core::event::NewEvent;
//! use agent_core::session::NewSession;
//! use agent_core::store::ReadEvents;
//! use agent_storage_sqlite::SqliteStore;
//!
//! let (store, effects) = (SqliteStore::open(&path).await?, Effects::default());
//! let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
//! let session = SessionStoreExt::create(&store, &effects, new).await?;
//! store.append(&effects, session.id, session.head, vec![NewEvent::user_message("hello")]).await?;
//! store.close().await?;
//!
//! // Another process, another day.
//! let store = SqliteStore::open(&path).await?;
//! let page = store.read(session.id, ReadEvents::last(50)).await?;
//! assert_eq!(page.events.len(), 2);
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - What was acknowledged survives `kill -9` and the loss of power ([`Sync::Full`], the default), or `kill -9` only
//!   ([`Sync::Normal`], [`Sync::Off`]).
//! - A commit is seen whole or not at all. Readers wait for nobody, and nobody waits for them.
//! - Several processes on one machine behave like one. They wait for each other, up to a stated time; then a write
//!   fails with `Unavailable`, and may be sent again. Network file systems are refused.
//! - One thread writes. It commits everything that waits in one transaction, and answers after that, so that many
//!   sessions share one sync. One caller's conflict concerns nobody else; where SQLite fails, all is rolled back and
//!   each commit is tried alone.
//! - Reads that may take long are done on threads of the store's own, and so are all writes. On the caller's thread is read
//!   what is short and was in use within the last minute: at most 64 rows and 256 KiB.
//! - A file that is moved, removed or replaced while the store has it open is neither written to nor read from: calls
//!   fail with `Unavailable`, and what was acknowledged before is in the file that was moved.
//! - A file that may not be written to is opened to be read, and each write fails with `Denied`.
//! - Every row has a checksum. A damaged event, workspace or binding is `Corrupt`; a damaged session record is made
//!   anew from the log.
//!
//! # The file
//!
//! Readable with the `sqlite3` program, through the views `v_sessions`, `v_messages` and `v_runs`; while the store is
//! open it has `-wal` and `-shm` files beside it, which belong to it. [`SqliteStore::close`] moves what they hold into the
//! file and removes them; [`SqliteStore::backup`] copies the file while writes go on. Made with mode 0600.

mod backup;
mod bindings;
mod check;
mod config;
mod error;
mod files;
mod heads;
mod holder;
mod limit;
mod listing;
mod place;
mod readers;
mod reading;
mod rebuild;
mod request;
mod rows;
mod schema;
mod session_rows;
mod sessions;
mod store;
mod stored;
mod threads;
mod wait;
mod workspaces;
mod writer;

pub use config::{SqliteConfig, Sync};
pub use store::SqliteStore;
