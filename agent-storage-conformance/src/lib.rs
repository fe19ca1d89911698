//! The public suite by which a storage backend proves itself: every clause of the eight contracts and of the traits'
//! documentation, as a named test.
//!
//! A backend's author writes a [`Factory`], and a test program of one line:
//!
//! ```
//! # #[allow(dead_code)] mod conformance {
//! # use agent_core::{MemoryStore, Result, Storage, TenantId, async_trait};
//! # use agent_storage_conformance::Factory;
//! # struct Memory;
//! # #[async_trait]
//! # impl Factory for Memory {
//! #     type Site = MemoryStore;
//! #     async fn fresh(&self) -> Result<MemoryStore> { Ok(MemoryStore::new()) }
//! #     async fn open(&self, site: &MemoryStore, tenant: &TenantId) -> Result<Storage> {
//! #         Ok(site.tenant(tenant).into())
//! #     }
//! # }
//! // tests/conformance.rs, with `[[test]] name = "conformance"`, `harness = false` in Cargo.toml
//! fn main() -> std::process::ExitCode {
//!     agent_storage_conformance::main(Memory)
//! }
//! # }
//! ```
//!
//! `cargo test --test conformance one_winner` runs the clauses of one contract, and `-- --exact` one of them. A
//! clause that fails prints the contract, the last steps taken, what was expected and what was seen.
//! Clauses that fail for the same cause are reported once, before all others.
//! `AGENT_STORAGE_ROUNDS` sets how often each race is run, `AGENT_STORAGE_SEED` repeats ids, times and sequences.
//!
//! A factory may also offer hooks for what needs help from outside: other processes and kills
//! ([`Factory::address`]), damage ([`Factory::damage`]), the loss of power ([`Factory::lose_power`]), calls that fail
//! ([`Factory::fail`]). A claim of the store's capabilities that nothing has shown, for want of a hook, stands in the
//! report as `NOT SHOWN`.
//!
//! The clauses are not covered by semver: a newer version asks more.

mod claims;
mod clauses;
mod factory;
mod failure;
pub mod history;
mod journal;
mod registry;
mod run;
mod runtime;
mod stage;
mod worker;

pub use factory::{Damage, DamageKind, Factory, FailingCall};
pub use failure::Failure;
pub use registry::{Clause, Contract, Needs};
pub use run::{check, clauses, main, obey};
pub use stage::Settings;
