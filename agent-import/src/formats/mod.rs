//! Formats of other agents, one module each.

#[cfg(feature = "sqlite")]
mod adk;
mod anthropic;
mod chatgpt;
mod claude_code;
mod claude_export;
mod codex;
mod export;
mod gemini_cli;
mod gemini_record;
#[cfg(feature = "sqlite")]
mod goose;
#[cfg(feature = "sqlite")]
mod langchain;
#[cfg(feature = "sqlite")]
mod langgraph;
#[cfg(feature = "sqlite")]
mod msgpack;
#[cfg(feature = "sqlite")]
mod openai_agents;
#[cfg(feature = "sqlite")]
mod opencode;
mod responses;
mod rig_memory;
mod rig_message;
mod tree;
mod values;
mod walk;

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
    /// `goose`: the database `sessions.db` of goose, usually in `~/.local/share/goose/sessions`.
    #[cfg(feature = "sqlite")]
    Goose,
    /// `opencode`: the database `opencode.db` of OpenCode, usually in `~/.local/share/opencode`.
    #[cfg(feature = "sqlite")]
    OpenCode,
    /// `gemini-cli`: files `session-*.jsonl` of Gemini CLI, usually in `~/.gemini/tmp/*/chats`.
    GeminiCli,
    /// `adk`: the database of a `DatabaseSessionService` of the Agent Development Kit, which its program names.
    #[cfg(feature = "sqlite")]
    Adk,
    /// `langgraph`: the database of the checkpoints of LangGraph, which its program names.
    #[cfg(feature = "sqlite")]
    LangGraph,
    /// `rig-memory`: folders of sessions of rig-memory with `logs/*.jsonl`, which their program names.
    RigMemory,
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
        #[cfg(feature = "sqlite")]
        Self::Goose,
        #[cfg(feature = "sqlite")]
        Self::OpenCode,
        Self::GeminiCli,
        #[cfg(feature = "sqlite")]
        Self::Adk,
        #[cfg(feature = "sqlite")]
        Self::LangGraph,
        Self::RigMemory,
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
            #[cfg(feature = "sqlite")]
            Self::Goose => "goose",
            #[cfg(feature = "sqlite")]
            Self::OpenCode => "opencode",
            Self::GeminiCli => "gemini-cli",
            #[cfg(feature = "sqlite")]
            Self::Adk => "adk",
            #[cfg(feature = "sqlite")]
            Self::LangGraph => "langgraph",
            Self::RigMemory => "rig-memory",
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
            #[cfg(feature = "sqlite")]
            Self::Goose => Box::new(goose::Goose::open(path)?),
            #[cfg(feature = "sqlite")]
            Self::OpenCode => Box::new(opencode::OpenCode::open(path, is_finished)?),
            Self::GeminiCli => Box::new(gemini_cli::GeminiCli::open(path, is_finished)?),
            #[cfg(feature = "sqlite")]
            Self::Adk => Box::new(adk::Adk::open(path)?),
            #[cfg(feature = "sqlite")]
            Self::LangGraph => Box::new(langgraph::LangGraph::open(path)?),
            Self::RigMemory => Box::new(rig_memory::RigMemory::open(path)?),
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
