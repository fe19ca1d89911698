//! Copies from any store to any other: whole, cut off, refused, and many.

mod areas;
mod between_stores;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../../../tests/it/endings/cut.rs"]
mod cut;
mod exports;
mod large_copies;
mod refusals;
mod world;
