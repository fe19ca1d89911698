//! State of a tenant that the handles of one process share, and notice of other processes' changes.

pub(crate) mod bindings_toml;
pub(crate) mod changes;
pub(crate) mod list_index;
pub(crate) mod list_state;
pub(crate) mod open_tenants;
pub(crate) mod slot;
pub(crate) mod summaries;
pub(crate) mod taken;
pub(crate) mod tenant;
pub(crate) mod transcript_mark;
pub(crate) mod transcript_state;
pub(crate) mod writer;
