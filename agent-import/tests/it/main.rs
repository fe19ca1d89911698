//! Imports of samples, as a host calls them.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod claude_code;
mod codex;
mod damaged;
#[cfg(feature = "sqlite")]
mod databases;
mod exports;
mod futures;
mod gemini_cli;
mod hostile;
#[cfg(feature = "sqlite")]
mod openai_agents;
mod rig_memory;
mod support;
