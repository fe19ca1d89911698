//! The bridge against servers that behave and servers that do not, over pipes and over HTTP on the loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
mod common;
mod consent;
mod example;
mod failures;
mod futures;
mod http;
mod lifecycle;
mod reference;
mod sessions;
