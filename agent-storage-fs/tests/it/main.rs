//! Every test of the file store but the suite, the model of a disk and those with processes that are killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod aptove;
mod bindings;
mod blob_damage;
mod blob_faults;
mod blobs;
mod costs;
mod damage;
mod damage_isolation;
mod damaged_log_reads;
mod deletion;
mod endless_logs;
mod erasure;
mod faults;
mod file_size;
mod folders;
mod formats;
mod golden;
mod handles;
mod hostile;
mod lists;
mod long_files;
mod maintenance_faults;
mod many_workspaces;
mod misplaced_files;
mod missing_files;
mod multi_line_json;
mod reads_write_nothing;
mod refusals;
mod refused_workspaces;
mod repair;
mod replaced;
mod special_files;
mod store;
mod support;
mod transcript;
