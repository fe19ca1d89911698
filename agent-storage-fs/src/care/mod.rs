//! Checks, repairs and removal.

pub(crate) mod check;
pub(crate) mod delete_damaged;
pub(crate) mod purge;
