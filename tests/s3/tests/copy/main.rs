//! Copies from any store to any other: whole, cut off, refused, and many.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod areas;
mod between_stores;
#[path = "../../../../agent-cli/tests/common/mod.rs"]
mod common;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../../tests/endings/cut.rs"]
mod cut;
mod large_copies;
mod refusals;
mod world;
