//! Checks and backups.

pub(crate) mod backup;
pub(crate) mod check;
