//! The model by itself: what commits mean, how logs fold, and the forms in which both are written down. Nothing is
//! stored.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod blobs;
mod bounds;
mod common;
mod compact;
mod content;
mod cursors;
mod edge_cases;
mod golden;
mod import;
mod keys;
mod limits;
mod lineage;
mod live;
mod owners;
mod plan;
mod retry;
mod search;
mod search_index;
mod state_machine;
mod text;
mod timers;
mod wire;
mod wrapper;
