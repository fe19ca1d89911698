//! Stores agent workspaces, sessions and device bindings in one schema of a PostgreSQL database: for several processes and
//! machines.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_core::{SessionStore, SessionStoreExt, WorkspaceId};
//! use agent_core::clock::Effects;
//! use agent_core::event::NewEvent;
//! use agent_core::session::NewSession;
//! use agent_core::store::ReadEvents;
//! use agent_storage_postgres::PostgresConfig;
//!
//! let config = PostgresConfig::from_url("postgres://agent@localhost/agents")?.with_migrate(true);
//! let (store, effects) = (config.open().await?, Effects::default());
//! let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
//! let session = store.sessions(&effects).create(new).await?;
//! store.sessions(&effects).append(session.id, session.head, vec![NewEvent::user_message("Hello")]).await?;
//! let page = store.read(session.id, ReadEvents::last(50)).await?;
//! assert_eq!(page.events.len(), 2);
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - Acknowledged writes survive what the server's own settings let them survive: a power loss, unless `fsync`,
//!   `full_page_writes` or `synchronous_commit` is off, which [`capabilities`](agent_core::SessionStore::capabilities) shows.
//!   Without a synchronous standby, a failover may lose acknowledged writes.
//! - Every reader sees a commit whole or not at all. A commit is one round trip if nobody else has written to its session.
//! - Statements run in tasks of the store, so that a dropped future leaves no transaction open. A commit whose connection
//!   breaks has the outcome `Unknown`, and is sent again.
//! - Whoever waits for a change of a session is woken by hints of the other stores, which are sent after commits (NOTIFY), or finds
//!   it by reading the session, within 5 seconds.
//! - The database keeps tenants apart, and the owners of a tenant: row security, forced on the owner of the tables, too, shows
//!   a statement the rows of its tenant and its owner, and without them none. That guards against a defect of a statement, not
//!   against whoever runs SQL as the store's user: then give each tenant a schema and a user of its own.
//! - The tables of one schema are for this library only.
//! - Every row has a checksum. A damaged event, workspace or binding is `Corrupt`; a damaged session record is rebuilt from
//!   the log.
//!
//! # Roles
//!
//! Opening with `migrate=true` creates the tables. Their owner is the user that does it, or `agent_owner` if that is a superuser.
//! A user that may create roles also creates those that are missing:
//!
//! - `agent_app`, for programs: reads and writes rows, and owns nothing. It may log in, and has no password until it is
//!   given one (`ALTER ROLE agent_app PASSWORD '…'`); or create users of your own and `GRANT agent_app` to them.
//! - `agent_worker`, which cannot log in: two functions run as it, which tell a program the names of all tenants, and those with
//!   work that is due.
//!
//! A user that may not create roles uses those that there are, or does all of this itself: one user that owns the tables and
//! opens the store is bound by the policies, too. A superuser and a user with BYPASSRLS are bound by none: they are refused by name
//! unless the address says `isolation=none`. In a schema of another name, the roles begin with that name; two databases of one
//! server with schemas of one name share the roles. Dropping a schema drops no roles.
//!
//! # Runtime
//!
//! Of several servers in the address, the store uses the first that accepts writes, and looks for another one when a
//! connection breaks or a write is refused as read-only. A host with a pool opens the store with
//! [`PostgresConfig::with_pool`].
//!
//! The store needs tokio with time and I/O enabled, on the runtime on which it was opened.
//!
//! A pooler in transaction mode, which gives each transaction any of the server's connections, has to be declared
//! ([`PostgresConfig::with_transaction_pooler`]); opening refuses one that is not. A server that is no PostgreSQL of version 15 or
//! newer is refused by name.
//!
//! # Where to go next
//!
//! - [`PostgresConfig`]: the address, the schema, connections, timeouts.
//! - [`PostgresStore`]: the store.
//! - [`SessionStoreExt`](agent_core::SessionStoreExt): create, append, fork, follow.

mod address;
mod blobs;
mod care;
mod config;
mod error;
mod formats;
mod lists;
mod log;
mod medium;
mod places;
mod schema;
mod shared;
mod store;

pub use config::PostgresConfig;
pub use store::PostgresStore;
