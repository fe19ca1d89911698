//! What is made of sessions for others: the model's context, documents that leave and come back, configuration, addresses.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod archives;
mod blobs;
#[path = "../../../agent-core/tests/model/common.rs"]
mod common;
mod configuration;
mod context;
mod decoders;
mod forged;
mod manifest;
mod pieces;
mod registry;
