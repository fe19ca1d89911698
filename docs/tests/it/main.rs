//! The project as a text: its pages, its map, its words.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod circles;
mod features;
mod first_words;
mod functions;
mod futures;

mod one_build;
mod readme;
mod schemas;
mod sizes;
mod stability;
mod statuses;
