//! Sessions: slots of commits, the newest one, what a commit needs, and what is read.

pub(crate) mod blob_names;
pub(crate) mod commit;
pub(crate) mod family;
pub(crate) mod heads;
pub(crate) mod heartbeats;
pub(crate) mod index_keys;
pub(crate) mod newest;
pub(crate) mod read;
pub(crate) mod slot;
pub(crate) mod slots;
