//! Changes of sessions: told to the other stores of the schema, and heard from them.

pub(crate) mod hints;
pub(crate) mod listener;
