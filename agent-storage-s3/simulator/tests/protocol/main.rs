//! The S3 store while everything goes wrong: seeded courses of events, judged by what a commit means.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod ages;
#[path = "../support/backend.rs"]
mod backend;
mod bindings;
mod blobs;
mod costs;
mod course;
mod cuts;
mod damage;
mod deadline;
mod deletion;
mod false_replies;
mod fields;
mod formats;
mod heartbeats;
mod in_flight;
mod index;
mod index_course;
mod index_judge;
mod index_seeds;
mod known_heads;
mod probe;
mod refusals;
mod scale;
mod seeds;
mod watch;
mod workspaces;
