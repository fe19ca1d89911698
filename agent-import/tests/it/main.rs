//! Imports of samples, as a host calls them.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod claude_code;
#[cfg(feature = "sqlite")]
mod databases;
mod futures;
mod gemini_cli;
mod hostile;
mod rig_memory;
mod support;
