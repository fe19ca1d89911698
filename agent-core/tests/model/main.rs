//! The model by itself: what commits mean, how logs fold, and the forms in which both are written down. Nothing is
//! stored.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bounds;
mod common;
mod compact;
mod corners;
mod cursors;
mod golden;
mod import;
mod limits;
mod lineage;
mod plan;
mod settle;
mod state_machine;
mod wakes;
mod wrapper;
