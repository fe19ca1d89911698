//! Payloads of events, by family.

pub(crate) mod answer;
pub(crate) mod blobs;
pub(crate) mod child;
pub(crate) mod content;
pub(crate) mod created;
pub(crate) mod document;
pub(crate) mod learning;
pub(crate) mod media;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod span;
pub(crate) mod tool;
