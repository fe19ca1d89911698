//! Conversations as Markdown that a person can read and edit: `session.md`.
//!
//! A transcript contains only the conversation: the messages of people and of the agent, and the session's own system
//! prompt. Images and other media are one line each, with name, type and size. It contains no tool calls and no results
//! of tools. A store keeps the log; a transcript is a view of it.
//!
//! ```text
//!  log of a session                  session.md                        Transcript
//!  user.message    ── Transcript ──▶ ## User       ── parse (lenient,──▶ frontmatter
//!  agent.message      Message::of    ## Assistant     after edits)       messages
//!  agent.part
//!  agent.tool_use     (left out)     <!-- rendered head=… crc32c=… -->   form: Sealed, Edited, Legacy
//! ```
//!
//! [`TranscriptWriter`] renders and continues a file message by message; [`Transcript::parse`] reads it back.
//!
//! ```
//! use agent_transcript::{Frontmatter, Speaker, Transcript, TranscriptForm, TranscriptMessage};
//!
//! let transcript = Transcript::new(Frontmatter::default().with_model(Some("gpt-5".to_owned())))
//!     .with(TranscriptMessage::new(Speaker::User, "What does `## User` mean?"))
//!     .with(TranscriptMessage::new(Speaker::Assistant, "It starts a message:\n## User\n"));
//! let text = transcript.to_markdown();
//! assert_eq!(
//!     text,
//!     concat!(
//!         "---\nformat: 2\nmodel: gpt-5\n---\n\n",
//!         "## User\n\nWhat does `## User` mean?\n\n",
//!         "## Assistant\n\nIt starts a message:\n\\## User\n\n\n",
//!     )
//! );
//! let parsed = Transcript::parse(&text)?;
//! assert_eq!((parsed.transcript, parsed.form), (transcript, TranscriptForm::Edited));
//! # Ok::<(), agent_core::Error>(())
//! ```
//!
//! The crate has no features, does no I/O and needs no async runtime. The file store (`agent-storage-fs`)
//! writes a transcript beside each log if it is configured to do so. To export a session without loss, use
//! `agent_admin::manifest` instead.
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
//! A message's text is its lines, joined by LF. An empty text is one empty line, and every text is read back byte for
//! byte:
//!
//! - A line that looks like structure (a heading or a mark, with or without trailing spaces, or an escaped line) gets
//!   backslash in front. A line that already has backslashes before such text gets one more.
//! - A line with a character that editors or terminals change or interpret (control characters except the tab, CR,
//!   the line separators of Unicode, a byte order mark) is written as `\json "…"`, with these characters escaped.
//!
//! The mark names the event up to which the file was rendered, and its checksum covers all bytes before `crc32c=`. A
//! file without a matching mark was edited or is damaged; a comparison with a new rendering distinguishes the two.
//!
//! The reader is lenient, since people edit the file. It accepts CRLF as LF, a byte order mark, spaces after
//! headings, missing blank lines, unknown fields of the frontmatter, and a mark anywhere.
//!
//! # The older form
//!
//! A file without `format:` comes from the Aptove agent, which escapes nothing: its text stands between headings,
//! trimmed. The reader accepts it and reports it as [`TranscriptForm::Legacy`].

mod lines;
mod read;
mod write;

use serde::{Deserialize, Serialize};

use agent_core::event::{EventPayload, NewEvent, SystemMessage};
use agent_core::setters;
use agent_core::{CommitId, Seq, SessionId, Timestamp};

pub use read::ParsedTranscript;
pub use write::{Seal, TranscriptWriter};

/// Version of the transcript format that is written.
pub const TRANSCRIPT_FORMAT: u64 = 2;

/// Speaker of a message in a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Speaker {
    /// Person.
    User,
    /// Agent.
    Assistant,
    /// System prompt of the session itself.
    System,
    /// Tool, in files of the older form.
    Tool,
}

impl Speaker {
    /// All speakers.
    pub const ALL: [Self; 4] = [Self::User, Self::Assistant, Self::System, Self::Tool];

    /// Returns the word in the heading.
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
    /// Speaker of the message.
    pub speaker: Speaker,
    /// Text of the message: any Unicode text, also an empty one.
    pub text: String,
}

impl TranscriptMessage {
    /// Creates a message.
    pub fn new(speaker: Speaker, text: impl Into<String>) -> Self {
        Self { speaker, text: text.into() }
    }

    /// Returns the message that an event contributes to a transcript; `None` if it contributes none.
    ///
    /// Its text is the [text view](agent_core::event::Message::text_view) of the event: media and cited sources are lines
    /// of it, and a transcript that is read back contains these lines as text.
    ///
    /// ```
    /// use agent_core::event::{EventPayload, Message};
    /// use agent_transcript::{Speaker, TranscriptMessage};
    ///
    /// let message = TranscriptMessage::of(EventPayload::AgentMessage(Message::new("Hello")));
    /// assert_eq!(message, Some(TranscriptMessage::new(Speaker::Assistant, "Hello")));
    /// ```
    pub fn of(body: EventPayload) -> Option<Self> {
        match body {
            EventPayload::UserMessage(message) | EventPayload::UserDefineOutcome(message) => {
                Some(Self::new(Speaker::User, message.text_view()))
            }
            EventPayload::AgentMessage(message) => Some(Self::new(Speaker::Assistant, message.text_view())),
            EventPayload::AgentPart(part) => Some(Self::new(Speaker::Assistant, part.text_view()?)),
            EventPayload::SystemMessage(SystemMessage { text, custom: true, .. }) => {
                Some(Self::new(Speaker::System, text))
            }
            _ => None,
        }
    }

    /// Returns the event that stores this message in a log. The output of a tool becomes injected text.
    ///
    /// ```
    /// use agent_core::event::NewEvent;
    /// use agent_transcript::{Speaker, TranscriptMessage};
    ///
    /// let message = TranscriptMessage::new(Speaker::User, "Hello");
    /// assert_eq!(message.to_event(), NewEvent::user_message("Hello"));
    /// ```
    pub fn to_event(&self) -> NewEvent {
        let text = self.text.clone();
        match self.speaker {
            Speaker::User => NewEvent::user_message(text),
            Speaker::Assistant => NewEvent::agent_message(text),
            Speaker::System => NewEvent::system_prompt(text),
            Speaker::Tool => NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected(text))),
        }
    }
}

/// Header fields of a transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frontmatter {
    /// Id of the session; default none.
    pub session: Option<SessionId>,
    /// Name of the provider that the session uses; default none.
    pub provider: Option<String>,
    /// Name of the model that the session uses; default none.
    pub model: Option<String>,
    /// Time at which the session was created; default none.
    pub created_at: Option<Timestamp>,
}

impl Frontmatter {
    /// Creates a header with the session and its creation time.
    pub fn new(session: SessionId, created_at: Timestamp) -> Self {
        Self { session: Some(session), created_at: Some(created_at), ..Self::default() }
    }

    setters! {
        /// Sets the name of the provider; default none.
        pub fn with_provider(provider: Option<String>) => provider = provider;

        /// Sets the name of the model; default none.
        pub fn with_model(model: Option<String>) => model = model;
    }
}

/// Position up to which a log was rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// Last event of the log that was rendered.
    pub head: Seq,
    /// Commit of that event; distinguishes this log from another of the same length.
    pub commit: CommitId,
}

impl Mark {
    /// Creates the mark of a log up to `head`, an event of `commit`.
    pub const fn new(head: Seq, commit: CommitId) -> Self {
        Self { head, commit }
    }
}

/// Conversation of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transcript {
    /// Header fields.
    pub frontmatter: Frontmatter,
    /// Messages, oldest first.
    pub messages: Vec<TranscriptMessage>,
}

impl Transcript {
    /// Creates a transcript without messages.
    ///
    /// ```
    /// use agent_transcript::{Frontmatter, Speaker, Transcript, TranscriptMessage};
    ///
    /// let transcript = Transcript::new(Frontmatter::default())
    ///     .with(TranscriptMessage::new(Speaker::User, "Hello"))
    ///     .with(TranscriptMessage::new(Speaker::Assistant, "Good morning"));
    /// assert_eq!(transcript.messages.len(), 2);
    /// ```
    pub fn new(frontmatter: Frontmatter) -> Self {
        Self { frontmatter, messages: Vec::new() }
    }

    /// Adds a message at the end.
    #[must_use]
    pub fn with(mut self, message: TranscriptMessage) -> Self {
        self.messages.push(message);
        self
    }

    /// Returns the transcript as Markdown, without a mark.
    ///
    /// ```
    /// use agent_transcript::{Frontmatter, Speaker, Transcript, TranscriptMessage};
    ///
    /// let transcript =
    ///     Transcript::new(Frontmatter::default()).with(TranscriptMessage::new(Speaker::User, "Hello"));
    /// assert_eq!(transcript.to_markdown(), "---\nformat: 2\n---\n\n## User\n\nHello\n\n");
    /// ```
    pub fn to_markdown(&self) -> String {
        let mut writer = TranscriptWriter::start(&self.frontmatter);
        for message in &self.messages {
            writer.message(message);
        }
        writer.take()
    }
}

/// Form in which a transcript was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TranscriptForm {
    /// The file is exactly as rendered, byte for byte.
    Sealed(Mark),
    /// The file has the format of this library, but differs from the rendering, or has no mark.
    Edited,
    /// The file has the older format of the Aptove agent.
    Legacy,
}
