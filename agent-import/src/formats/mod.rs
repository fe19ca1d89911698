//! Formats of other agents, one module each.

mod anthropic;
mod chatgpt;
mod claude_code;
mod claude_export;
mod codex;
mod export;
#[cfg(feature = "sqlite")]
mod openai_agents;
mod responses;
mod tree;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use agent_core::text::quoted;
use agent_core::{ParseError, Result};

use crate::source::Source;

/// Format of transcripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `claude-code`: files `*.jsonl` of Claude Code, usually in `~/.claude/projects`.
    ClaudeCode,
    /// `codex`: files `rollout-*.jsonl` of Codex, usually in `~/.codex/sessions`.
    Codex,
    /// `openai-agents`: SQLite database of the Python package `openai-agents`, wherever the program that uses it puts it.
    #[cfg(feature = "sqlite")]
    OpenAiAgents,
    /// `chatgpt`: file `conversations.json` of an export of ChatGPT, which comes in a zip archive.
    ChatGpt,
    /// `claude-export`: file `conversations.json` of an export of Claude, which comes in a zip archive.
    ClaudeExport,
}

impl Format {
    /// All formats.
    pub const ALL: &'static [Self] = &[
        Self::ClaudeCode,
        Self::Codex,
        #[cfg(feature = "sqlite")]
        Self::OpenAiAgents,
        Self::ChatGpt,
        Self::ClaudeExport,
    ];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            #[cfg(feature = "sqlite")]
            Self::OpenAiAgents => "openai-agents",
            Self::ChatGpt => "chatgpt",
            Self::ClaudeExport => "claude-export",
        }
    }

    /// Opens a file or a folder of this format.
    pub(crate) fn open(self, path: &Path, is_finished: bool) -> Result<Box<dyn Source>> {
        Ok(match self {
            Self::ClaudeCode => Box::new(claude_code::ClaudeCode::open(path, is_finished)?),
            Self::Codex => Box::new(codex::Codex::open(path, is_finished)?),
            #[cfg(feature = "sqlite")]
            Self::OpenAiAgents => Box::new(openai_agents::OpenAiAgents::open(path, is_finished)?),
            Self::ChatGpt => Box::new(export::Export::<chatgpt::ChatGpt>::open(path)?),
            Self::ClaudeExport => Box::new(export::Export::<claude_export::ClaudeExport>::open(path)?),
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = ParseError;

    fn from_str(text: &str) -> std::result::Result<Self, ParseError> {
        Self::ALL.iter().copied().find(|format| format.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|format| format.name()).collect();
            ParseError::new(format!("{} is no format; give one of {}", quoted(text), names.join(", ")))
        })
    }
}
