//! Commands and conversations as real processes: tables, JSON and exit codes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod audit;
mod closing;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod configuration;
#[cfg(unix)]
mod consent;
mod damage;
mod devices;
#[cfg(unix)]
mod erasure;
mod files;
mod general;
mod holds;
mod hostile;
mod imports;
mod inputs;
mod keys;
mod lists;
#[cfg(unix)]
mod messages;
mod moved;
mod operations;
mod outputs;
#[cfg(unix)]
mod read_only;
mod refusals;
#[cfg(unix)]
mod restore;
mod retention;
mod searches;
mod sessions;
mod site;
mod sizes;
mod sqlite;
mod tenants;
mod transcripts;
mod two_chats;
mod upgrade;
mod workspaces;
