//! The bridge, from both ends: a client of the protocol crate and a client that writes bytes, on three kinds of store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
mod futures;
mod hostile;
mod permissions;
mod sessions;
mod turns;
