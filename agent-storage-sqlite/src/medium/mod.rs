//! Access to the file: its path, its neighbours in the folder, locks, rows and records.

pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod holder;
pub(crate) mod known;
pub(crate) mod path;
pub(crate) mod rewrites;
pub(crate) mod rows;
pub(crate) mod session_rows;
pub(crate) mod stored;
pub(crate) mod threads;
pub(crate) mod wait;
