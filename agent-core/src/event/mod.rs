//! Events: their types, their payloads, their JSON form.

pub(crate) mod body;
pub(crate) mod header;
pub(crate) mod kind;
pub(crate) mod payload;
