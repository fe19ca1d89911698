//! The S3 store on a simulated server: the client, credentials, and seeded courses of events with every fault. The
//! meaning of a commit decides what is right.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod ages;
#[path = "../support/backend.rs"]
mod backend;
mod bindings;
mod blobs;
mod client;
mod costs;
mod course;
mod credentials;
mod cuts;
mod damage;
mod deadline;
mod deletion;
mod false_replies;
mod faults;
mod fields;
mod foreign;
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
mod settings;
mod support;
mod workspaces;
