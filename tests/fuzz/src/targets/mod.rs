//! The targets, by the crates that read the formats.

pub(crate) mod core;
pub(crate) mod documents;
pub(crate) mod stores;
