//! The commands of the command line, as real processes: tables for people, JSON for programs, exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod audit;
#[path = "../common/mod.rs"]
mod common;
mod configuration;
mod damage;
mod devices;
mod general;
mod inputs;
mod moved;
mod operations;
mod outputs;
#[cfg(unix)]
mod read_only;
mod sessions;
mod site;
#[cfg(unix)]
mod small;
mod workspaces;
