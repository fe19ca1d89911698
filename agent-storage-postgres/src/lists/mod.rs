//! Lists of sessions.

pub(crate) mod pages;
