//! What hosts do with a store beside runs, asked of each kind: in memory, files and SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod activations;
mod blobs;
mod closing;
#[path = "../../../agent-core/tests/model/common.rs"]
mod common;
mod content;
mod documents;
mod ledger;
mod listing;
mod maintenance;
mod refusals;
mod shared;
mod sharing;
mod signed;
mod state_payload;
