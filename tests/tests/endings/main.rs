//! How workspaces, sessions and histories end, in memory, in files, in one SQLite file, and on three stores at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod audit;
mod cut;
mod delete;
mod gc;
mod history;
mod pairing;
mod races;
mod rules;
mod site;
mod sweep;
