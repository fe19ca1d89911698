//! Access to the disk: names of files, locks, lines of a log, records, durable writes.

pub(crate) mod cached;
pub(crate) mod env;
pub(crate) mod layout;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod publish;
pub(crate) mod record;
pub(crate) mod shell;
pub(crate) mod toml;
