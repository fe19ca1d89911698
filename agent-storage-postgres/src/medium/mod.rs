//! Connections to the server, statements on them, and the rows of a session.

pub(crate) mod attempts;
pub(crate) mod connections;
pub(crate) mod count;
pub(crate) mod db;
pub(crate) mod known;
pub(crate) mod rows;
pub(crate) mod scope;
pub(crate) mod session_rows;
pub(crate) mod sql;
pub(crate) mod stored;
