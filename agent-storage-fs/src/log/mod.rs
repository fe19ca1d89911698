//! Sessions: found by their ids, read, created and committed to.

pub(crate) mod blob_files;
pub(crate) mod commit;
pub(crate) mod place;
pub(crate) mod read;
