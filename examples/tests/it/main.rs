//! The examples, run as programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod customers;
mod programs;
mod quickstart;
mod stores;
