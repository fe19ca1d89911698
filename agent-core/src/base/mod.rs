//! What everything else is made of: ids, times, JSON, the state table, errors, the clock. Imports nothing of the rest.

pub mod clock;
pub(crate) mod error;
pub(crate) mod id;
pub mod isolated;
pub mod json;
pub mod state;
pub(crate) mod text;
pub(crate) mod timestamp;
