//! Checks of what is stored.

pub(crate) mod check;
