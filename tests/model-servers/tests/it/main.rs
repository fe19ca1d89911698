//! The servers, and the providers' own clients against them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod rules;
mod sdks;
