//! The protocols of the store, checked in all interleavings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod blob_model;
mod futures;
mod index_model;
mod protocol_model;
