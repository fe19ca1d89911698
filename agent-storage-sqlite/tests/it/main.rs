//! Every test of the SQLite store but the suite and those with processes that are killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod backup;
mod blob_damage;
mod blobs;
mod closing;
mod costs;
mod deleted_rows;
mod deletion;
mod erasure;
mod file;
mod full_disk;
mod lists;
mod moved;
mod other_backends;
mod read_only;
mod repair;
mod schema;
mod special_files;
mod support;
mod writer;
