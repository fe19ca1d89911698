//! Erasures, and secrets of workspaces, on buckets: the tests of `agent-vault` that ask only for a store, and those of buckets alone.
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
#[path = "../../../../agent-storage-s3/simulator/tests/support/backend.rs"]
mod simulated;
mod support;
mod versions;
