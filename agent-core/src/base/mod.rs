//! What everything else is made of: ids, times, JSON, the state table, errors, the clock. Imports nothing of the rest.

pub(crate) mod effects;
pub(crate) mod error;
pub(crate) mod id;
pub(crate) mod json;
pub(crate) mod state;
pub(crate) mod text;
pub(crate) mod timestamp;
