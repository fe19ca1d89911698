//! Erasures, and secrets of workspaces, on PostgreSQL: the tests of `agent-vault` that ask only for a store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../../agent-vault/tests/it/cut.rs"]
mod cut;
mod cuts;
#[path = "../../../../agent-vault/tests/it/erasure.rs"]
mod erasure;
#[path = "../../../../agent-vault/tests/it/erasure_cutter.rs"]
mod erasure_cutter;
#[path = "../../../../agent-vault/tests/it/secrets.rs"]
mod secrets;
#[allow(dead_code, reason = "other programs use the rest")]
#[path = "../../../../agent-storage-postgres/tests/it/support/mod.rs"]
mod server;
mod support;
