//! Data that events and the record share.

pub(crate) mod access;
pub(crate) mod actor;
pub(crate) mod attributes;
pub(crate) mod document;
pub(crate) mod ledger;
pub(crate) mod lineage;
pub(crate) mod mounts;
pub(crate) mod parts;
pub(crate) mod transition;
pub(crate) mod wake;
