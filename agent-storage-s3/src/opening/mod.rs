//! Steps that are taken once, when a store is opened.

pub(crate) mod probe;
pub(crate) mod stored_settings;
