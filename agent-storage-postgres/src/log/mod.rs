//! Sessions: created, read and committed to.

pub(crate) mod commit;
pub(crate) mod purge;
pub(crate) mod read;
pub(crate) mod rebuild;
pub(crate) mod send;
