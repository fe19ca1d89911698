//! Stores agent workspaces, sessions and device bindings in one embedded SQLite file: the default for real use on one
//! machine.
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
//! let session = store.sessions(&effects).create(new).await?;
//! store.sessions(&effects).append(session.id, session.head, vec![NewEvent::user_message("Hello")]).await?;
//! store.close().await?;
//!
//! // Later, in another process.
//! let store = SqliteStore::open(&path).await?;
//! let page = store.read(session.id, ReadEvents::last(50)).await?;
//! assert_eq!(page.events.len(), 2);
//! # Ok(()) }
//! ```
//!
//! ```text
//! callers ── commits ──▶ one writer thread ── one transaction for all that wait ──▶ agent.db
//! callers ◀── reads ──── reader threads, and the caller's own for short reads ◀──── agent.db
//! ```
//!
//! # Guarantees
//!
//! - Acknowledged writes survive `kill -9` and power loss ([`Sync::Full`], the default), or `kill -9` only
//!   ([`Sync::Normal`], [`Sync::Off`]).
//! - Every reader sees a commit whole or not at all. Readers never wait for writers, and writers never wait for
//!   readers.
//! - Several processes on one machine may use the same store, as if they were one. Writes wait for each other, up to a
//!   configured time; then a write fails with `Unavailable`, and may be sent again. Network file systems are refused.
//! - One thread writes. It commits all waiting requests in one transaction, and acknowledges them after that, so that
//!   many sessions share one sync. One caller's conflict does not affect the others. If SQLite fails, everything is
//!   rolled back and each commit is tried alone.
//! - Reads that may take long, and all writes, run on the store's own threads. The caller's thread runs only short
//!   reads of data that was used within the last minute: at most 64 rows and 256 KiB.
//! - A file that is moved, removed or replaced while the store has it open is neither written to nor read from: calls
//!   fail with `Unavailable`, and everything acknowledged before is in the file that was moved.
//! - A file that may not be written to is opened for reading, and each write fails with `Denied`.
//! - What a purge or the deletion of a tenant removes is overwritten at once, and costs as much as is removed. Copies of rows
//!   that SQLite has moved stay in unused parts of the file until [`SqliteStore::maintain`] rewrites it; results and
//!   [`pending`](agent_core::store::Maintenance::pending) say so.
//! - Every row has a checksum. A damaged event, workspace or binding is `Corrupt`; a damaged session record is rebuilt
//!   from the log.
//!
//! # The file
//!
//! The `sqlite3` program can read the file, through the views `v_sessions`, `v_messages` and `v_runs`. While the store
//! is open, it has `-wal` and `-shm` files beside it, which are part of it. [`SqliteStore::close`] moves their
//! contents into the file and removes them; [`SqliteStore::backup`] copies the file while writes go on. The file is
//! created with mode 0600.
//!
//! # Runtime
//!
//! The store runs on threads of its own, so any executor will do, except for
//! [`changed`](agent_core::SessionStore::changed), retries and the deletion of a tenant, which need tokio with time
//! enabled. SQLite is
//! compiled in. The crate has no features.
//!
//! # Where to go next
//!
//! - [`SqliteConfig`]: durability, waiting times, caches, a limit on the size of the file.
//! - [`SqliteStore`]: the store, and what only a database file has: [`SqliteStore::backup`], [`SqliteStore::maintain`],
//!   [`SqliteStore::rebuild_all`].
//! - [`SessionStoreExt`](agent_core::SessionStoreExt): create, append, fork, follow.

mod blobs;
mod care;
mod config;
mod connections;
mod error;
mod exports;
mod formats;
mod lists;
mod log;
mod medium;
mod places;
mod schema;
mod store;

pub use config::{SqliteConfig, Sync};
pub use store::SqliteStore;
