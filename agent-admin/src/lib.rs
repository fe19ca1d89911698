//! Administration of `agent-core` stores: verify, salvage, copy, export, import and audit, for every backend.
//!
//! ```text
//!               ┌─ verify ───▶ findings: damaged, differs, dangling      (writes nothing)
//!  Storage of   ├─ salvage ─▶ new session from the readable part of a damaged one
//!  one tenant ──┼─ copy ─────▶ another Storage, of any backend           (repeat it to continue)
//!               ├─ manifest ─▶ one session as one JSON document ──▶ any store
//!               ├─ archive ──▶ one session with its blobs, as a tar file ──▶ any store
//!               ├─ audited ──▶ the same Storage, which records its changes
//!               └─ usage ────▶ bytes by session, by workspace, by kind      (writes nothing)
//! ```
//!
//! - [`verify`](verify::verify()) reads everything and reports damage.
//! - [`salvage`](salvage::salvage()) recovers the readable part of a damaged session, which stays unchanged.
//! - [`copy`] copies a tenant from one backend to another, and verifies the written data.
//! - [`fence`] ends all runs from before a store was put back from a copy of its bytes.
//! - [`manifest`] exports a session as one document with a checksum, and imports it; [`archive`] does so with its blobs;
//!   [`export`] writes either in pieces, in memory that does not grow with the session.
//! - [`audit`] records administrative operations and their actors.
//! - [`usage`](usage::usage()) sums up what sessions store, by session, workspace and kind of content.
//!
//! All of them work through the traits of `agent-core`, so they accept the stores of any backend, several tenants one
//! after the other, and processes that use the source meanwhile. No operation overwrites or repairs data in place;
//! [`Maintenance::rebuild`](agent_core::store::Maintenance::rebuild) recomputes the data that a store derives from its logs.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_admin::{copy::StoreCopy, manifest::Manifest, verify::verify};
//! use agent_core::{MemoryStore, Storage};
//! use agent_runtime::{AgentBuilder, EchoProvider};
//!
//! let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
//! let chat = agent.conversation("support/4711").await?;
//! chat.prompt("Hello").await?.finish().await?;
//!
//! // The nightly job: read everything, then copy everything to another store.
//! let found = verify(agent.storage(), |_| {}).await?;
//! assert!(found.is_sound(), "{:?}", found.findings);
//! let backup = Storage::from(MemoryStore::new());
//! assert!(StoreCopy::new(agent.storage().clone(), backup.clone()).run().await?.is_whole());
//!
//! // One session as one document, the same from both stores.
//! let document = Manifest::export(&*agent.storage().sessions, chat.id()).await?.to_json()?;
//! assert_eq!(Manifest::export(&*backup.sessions, chat.id()).await?.to_json()?, document);
//! # Ok(()) }
//! ```
//!
//! The crate has no features. It starts no threads or tasks, and its futures run on the runtime that the stores need:
//! tokio for files, SQLite and S3, any for memory. The program `chat` offers the same operations on the command line;
//! `docs/operations.md` describes the nightly job, alerts and the repair of damage.

pub mod archive;
pub mod audit;
mod blobs;
pub mod copy;
pub mod export;
pub mod fence;
mod gap;
pub mod manifest;
pub mod rendering;
pub mod salvage;
mod source;
pub mod usage;
pub mod verify;
mod walk;
