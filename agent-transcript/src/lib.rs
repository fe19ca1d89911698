//! A conversation as Markdown that a person can read and edit: `session.md`.
//!
//! Only what was said stands in it: the messages of people, of the agent, and the session's own system prompt. Tool
//! calls and their results do not.
//!
//! ```
//! use agent_transcript::{Frontmatter, Speaker, Transcript, TranscriptForm, TranscriptMessage};
//!
//! let said = Transcript::new(Frontmatter::default())
//!     .with(TranscriptMessage::new(Speaker::User, "What does `## User` mean?"))
//!     .with(TranscriptMessage::new(Speaker::Assistant, "It starts a message:\n## User\n"));
//! let text = said.to_markdown();
//! assert_eq!(
//!     text,
//!     concat!(
//!         "---\nformat: 2\n---\n\n",
//!         "## User\n\nWhat does `## User` mean?\n\n",
//!         "## Assistant\n\nIt starts a message:\n\\## User\n\n\n",
//!     )
//! );
//! assert_eq!(Transcript::parse(&text)?.transcript, said);
//! # Ok::<(), agent_core::Error>(())
//! ```
//!
//! # Grammar
//!
//! ```text
//! file        = frontmatter *message [mark]
//! frontmatter = "---" LF "format: 2" LF *(name ": " value LF) "---" LF LF
//! value       = plain / JSON string        plain: 1 or more of A-Z a-z 0-9 . _ / + @ : -
//! message     = "## " speaker LF LF 1*(line LF) LF
//! speaker     = "User" / "Assistant" / "System" / "Tool"
//! mark        = "<!-- rendered head=" number " commit=" id " crc32c=" 8 hex digits " -->" LF
//! ```
//!
//! A message's text is its lines, joined by LF. So a text of no characters is one empty line, and every text comes back
//! byte for byte:
//!
//! - A line that could be taken for structure (a heading, a mark, with or without spaces behind it; an escaped line)
//!   gets one backslash in front. So does one that has backslashes before such text already.
//! - A line with a character that editors or terminals change or interpret (control characters but the tab, CR, the
//!   line separators of Unicode, a byte order mark) is written as `\json "…"`, with these escaped.
//!
//! The mark says at which event the file was rendered, and its checksum covers all bytes before `crc32c=`. A file
//! without a mark that fits was edited, or is damaged; comparing it with what would be rendered tells which.
//!
//! Read leniently, since people edit: CRLF as LF, a byte order mark, spaces behind headings, missing blank lines,
//! unknown fields of the frontmatter, a mark anywhere.
//!
//! # The older form
//!
//! A file without `format:` is that of the Aptove agent, which escapes nothing: text between headings, trimmed. It is
//! read as such and said to be [`TranscriptForm::Legacy`].

mod lines;
mod read;
mod write;

use serde::{Deserialize, Serialize};

use agent_core::event::{Body, Message, NewEvent, SystemMessage};
use agent_core::{CommitId, Seq, SessionId, Timestamp};

pub use read::ParsedTranscript;
pub use write::{Seal, TranscriptWriter};

/// The version of the form that is written.
pub const TRANSCRIPT_FORMAT: u64 = 2;

/// Who says something in a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Speaker {
    /// A person.
    User,
    /// The agent.
    Assistant,
    /// The session's own system prompt.
    System,
    /// A tool, in files of the older form.
    Tool,
}

impl Speaker {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::System, Self::Tool];

    /// The word in the heading.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Assistant => "Assistant",
            Self::System => "System",
            Self::Tool => "Tool",
        }
    }
}

/// One message of a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TranscriptMessage {
    /// Who says it.
    pub speaker: Speaker,
    /// What: any Unicode text, also none.
    pub text: String,
}

impl TranscriptMessage {
    /// What somebody says.
    pub fn new(speaker: Speaker, text: impl Into<String>) -> Self {
        Self { speaker, text: text.into() }
    }

    /// What an event says in a transcript; `None` for one that says nothing there.
    pub fn of(body: Body) -> Option<Self> {
        match body {
            Body::UserMessage(Message { text, .. }) | Body::UserDefineOutcome(Message { text, .. }) => {
                Some(Self::new(Speaker::User, text))
            }
            Body::AgentMessage(Message { text, .. }) => Some(Self::new(Speaker::Assistant, text)),
            Body::SystemMessage(SystemMessage { text, custom: true, .. }) => {
                Some(Self::new(Speaker::System, text))
            }
            _ => None,
        }
    }

    /// The event that says this in a log. What a tool gave becomes text that was injected.
    pub fn to_event(&self) -> NewEvent {
        let text = self.text.clone();
        match self.speaker {
            Speaker::User => NewEvent::user_message(text),
            Speaker::Assistant => NewEvent::agent_message(text),
            Speaker::System => NewEvent::system_prompt(text),
            Speaker::Tool => NewEvent::of(&Body::SystemMessage(SystemMessage::injected(text))),
        }
    }
}

/// What stands at the top of a transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frontmatter {
    /// The session.
    pub session: Option<SessionId>,
    /// The provider that it uses.
    pub provider: Option<String>,
    /// The model that it uses.
    pub model: Option<String>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
}

impl Frontmatter {
    /// Names the session and when it was created.
    pub fn new(session: SessionId, created_at: Timestamp) -> Self {
        Self { session: Some(session), created_at: Some(created_at), ..Self::default() }
    }

    /// Sets the provider.
    #[must_use]
    pub fn with_provider(mut self, provider: Option<String>) -> Self {
        self.provider = provider;
        self
    }

    /// Sets the model.
    #[must_use]
    pub fn with_model(mut self, model: Option<String>) -> Self {
        self.model = model;
        self
    }
}

/// Up to where a log was rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// The last event of the log.
    pub head: Seq,
    /// The commit that it came with: tells this log from another of the same length.
    pub commit: CommitId,
}

impl Mark {
    /// The log up to `head`, which came with `commit`.
    pub const fn new(head: Seq, commit: CommitId) -> Self {
        Self { head, commit }
    }
}

/// What was said in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transcript {
    /// What stands at the top.
    pub frontmatter: Frontmatter,
    /// The messages, oldest first.
    pub messages: Vec<TranscriptMessage>,
}

impl Transcript {
    /// A transcript without messages.
    pub fn new(frontmatter: Frontmatter) -> Self {
        Self { frontmatter, messages: Vec::new() }
    }

    /// Adds a message.
    #[must_use]
    pub fn with(mut self, message: TranscriptMessage) -> Self {
        self.messages.push(message);
        self
    }

    /// The transcript as Markdown, without a mark.
    pub fn to_markdown(&self) -> String {
        let mut writer = TranscriptWriter::start(&self.frontmatter);
        for message in &self.messages {
            writer.message(message);
        }
        writer.take()
    }
}

/// In which form a transcript was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TranscriptForm {
    /// As it was rendered, to the byte.
    Sealed(Mark),
    /// Of this library, and not as it was rendered.
    Edited,
    /// Of the Aptove agent.
    Legacy,
}
