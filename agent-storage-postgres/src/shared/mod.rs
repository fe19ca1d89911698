//! Changes of sessions: sent to the other stores of the schema, and received from them.

pub(crate) mod hints;
pub(crate) mod listener;
