//! Conformance suite for storage backends: every clause of the eight contracts and of the traits' documentation, as a
//! named test.
//!
//! ```text
//!  your Factory ── fresh, open, … ──> a store ── clause by clause, in parallel ──> report
//!       └─ hooks: processes, damage, power loss, failing calls                      passed, failed, NOT SHOWN
//! ```
//!
//! A *clause* is a named promise (`one_winner::one_commit_wins_per_precondition`) and the code that tests it; it belongs to one
//! of the eight contracts. A clause runs for every backend whose capabilities claim what it tests.
//!
//! A backend's author writes a [`Factory`], and a test program of one line:
//!
//! ```no_run
//! // tests/conformance.rs, with `[[test]] name = "conformance"`, `harness = false` in Cargo.toml
//! use agent_core::{MemoryStore, Result, Storage, TenantId, async_trait};
//! use agent_storage_conformance::Factory;
//!
//! struct Memory;
//!
//! #[async_trait]
//! impl Factory for Memory {
//!     type Site = MemoryStore;
//!
//!     async fn fresh(&self) -> Result<MemoryStore> {
//!         Ok(MemoryStore::new())
//!     }
//!
//!     async fn open(&self, site: &MemoryStore, tenant: &TenantId) -> Result<Storage> {
//!         Ok(site.for_tenant(tenant).into())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     agent_storage_conformance::main(Memory)
//! }
//! ```
//!
//! `cargo test --test conformance one_winner` runs the clauses of one contract, and `-- --exact` one of them. A clause
//! that fails prints the contract, the last steps, what was expected and what was observed. Clauses that fail for the
//! same cause are reported once, before all others. `AGENT_STORAGE_ROUNDS` sets how often each race is run,
//! `AGENT_STORAGE_SEED` repeats ids, times and sequences.
//!
//! A factory may also implement hooks for tests that need help from outside: other processes and kills
//! ([`Factory::address`]), damage ([`Factory::damage`]), power loss ([`Factory::lose_power`]), calls that fail
//! ([`Factory::fail`]). If the store claims a capability that was not tested because a hook is missing, the report
//! lists the claim as `NOT SHOWN`.
//!
//! The clauses are not covered by semver: a newer version requires more.
//!
//! # Runtime and next steps
//!
//! [`main`] starts a tokio runtime of its own; [`check`] runs one clause inside another test. The crate has no features.
//! `docs/writing-a-backend` in the repository is a complete backend of under 410 lines that passes the suite.
//! [`history`] checks the recorded calls of concurrent clients, also without the suite.

mod claims;
mod clauses;
mod factory;
mod failure;
pub mod history;
mod journal;
mod registry;
mod run;
mod runtime;
mod samples;
mod stage;
mod worker;

pub use factory::{Damage, DamageKind, Factory, FailingCall};
pub use failure::Failure;
pub use registry::{Clause, Contract, Needs};
pub use run::{check, clauses, main, obey};
pub use stage::Settings;
