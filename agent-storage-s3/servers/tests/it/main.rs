//! Stores on real servers: times, large blobs, a gateway that is killed. Those of Ceph and Azurite run in `.ci/full`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod dates;
mod gateway;
mod large_blobs;
