//! Stored forms: what this version writes is, byte for byte, what stands in the golden files of each format, and all of that is
//! read. See `docs/stability.md`.

mod documents;
mod files;
mod golden;
mod script;
mod sqlite;
