//! Several crates or several kinds of store together, without the loop of runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../agent-core/tests/it/common.rs"]
mod common;
mod documents;
mod endings;
mod forms;
mod futures;
mod stores;
