//! The agent: built once, it opens sessions and runs them, one bounded run at a time.

pub(crate) mod agent;
pub(crate) mod ask;
pub(crate) mod builder;
pub(crate) mod calls;
pub(crate) mod children;
pub(crate) mod config;
pub(crate) mod drive;
pub(crate) mod driver;
pub(crate) mod holder;
pub(crate) mod line;
pub(crate) mod offline;
pub(crate) mod plugin;
pub(crate) mod provider;
pub(crate) mod report;
pub(crate) mod room;
pub(crate) mod rounds;
pub(crate) mod run;
pub(crate) mod scheduler;
pub(crate) mod session_ref;
pub(crate) mod session_tools;
pub(crate) mod settings;
pub(crate) mod spans;
pub(crate) mod stop;
pub(crate) mod tools;
pub(crate) mod turn;
pub(crate) mod updates;
