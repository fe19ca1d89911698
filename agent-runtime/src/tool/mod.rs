//! Tools of an agent: plugins, functions, their output, and what they may reach.

pub(crate) mod function;
pub(crate) mod output;
pub(crate) mod plugin;
pub(crate) mod read_output;
pub(crate) mod recall;
pub(crate) mod session_context;
pub(crate) mod toolbox;
