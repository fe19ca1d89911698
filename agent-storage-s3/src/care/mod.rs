//! Checks, repairs and removal.

pub(crate) mod delete_damaged;
pub(crate) mod foreign;
pub(crate) mod purge;
pub(crate) mod rebuild;
pub(crate) mod scrub;
