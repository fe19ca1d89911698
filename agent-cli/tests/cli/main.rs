//! Commands as real processes: tables, JSON and exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod audit;
#[path = "../common/mod.rs"]
mod common;
mod configuration;
mod damage;
mod devices;
#[cfg(unix)]
mod files;
mod general;
mod inputs;
#[cfg(unix)]
mod messages;
mod moved;
mod operations;
mod outputs;
#[cfg(unix)]
mod read_only;
#[cfg(unix)]
mod restore;
mod sessions;
mod site;
mod tenants;
mod upgrade;
mod workspaces;
