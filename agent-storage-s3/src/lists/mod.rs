//! Pages of sessions.

pub(crate) mod pages;
