//! Imports of samples, as a host calls them.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod claude_code;
mod codex;
mod damaged;
mod exports;
mod futures;
#[cfg(feature = "sqlite")]
mod openai_agents;
mod support;
