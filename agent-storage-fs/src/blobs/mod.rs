//! Blobs: put, read, listed and swept.

pub(crate) mod names;
pub(crate) mod put;
pub(crate) mod staged;
pub(crate) mod sweep;
