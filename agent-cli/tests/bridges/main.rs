//! The program with all its bridges: hosted models, tools of MCP servers, and clients of the Agent Client Protocol.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod acp;
#[path = "../common/mod.rs"]
mod common;
mod mcp;
mod models;
