//! Every test of the crate's public part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cut;
mod erasure;
mod erasure_cut;
mod erasure_cutter;
mod futures;
mod golden;
mod hooked;
mod keyless;
mod place;
mod plain;
mod ring;
mod sealed;
mod secrets;
mod support;
mod wordy;
