//! Several stores together, one of them a bucket; and the program with a bucket as its store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../../agent-cli/tests/common/mod.rs"]
mod common;
mod conversations;
mod copy;
mod forms;
mod one_log;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../../../agent-storage-postgres/tests/it/support/mod.rs"]
mod postgres_server;
mod proxy;
mod s3;
#[path = "../../../tests/runtime/scheduled.rs"]
mod scheduled;
mod scheduler;
mod schedulers;
mod turn;
mod upgrade;
