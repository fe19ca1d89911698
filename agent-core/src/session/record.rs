//! A session's record: the fold of its events, bounded in size. Every field of it can be rebuilt from the log.

use std::fmt;
use std::str::FromStr;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::effects::Timestamp;
use crate::error::{Error, Result};
use crate::id::{CommitId, Epoch, RunId, Seq, SessionId, WorkspaceId, check_text, text_serde};
use crate::json::{RawFields, RawJson};
pub use crate::session::attributes::{Attributes, Patch};
use crate::session::body::Wake;
use crate::session::event::Actor;
use crate::session::lineage::Lineage;
use crate::session::state::{Reason, SessionState, words};

/// The most bytes that a record may have as JSON.
pub const RECORD_MAX_BYTES: usize = 32 << 10;
/// The most bytes of it that commits can fill; the rest is for what the library itself keeps there.
pub const RECORD_CONTENT_MAX_BYTES: usize = 24 << 10;
/// The most tool calls and spans, each, that may be open at once.
pub const OPEN_CALLS_MAX: usize = 64;
/// The most wakes that may be scheduled at once.
pub const WAKES_MAX: usize = 128;
/// How many of the last commits a record remembers, to settle retries.
pub const RECENT_COMMITS: usize = 16;

macro_rules! text_key {
    ($(#[$doc:meta])* $name:ident, $noun:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// The most bytes that it may have.
            pub const MAX_BYTES: usize = 128;

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                check_text($noun, text, Self::MAX_BYTES)?;
                Ok(Self(text.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }

        text_serde!($name);
    };
}

text_key! {
    /// Names a tool call: 1 to 128 bytes without control characters, as the model's provider gave it.
    CallId, "tool call id"
}
text_key! {
    /// Names what a session waits for.
    ActionId, "action id"
}
text_key! {
    /// Names a span.
    SpanId, "span id"
}

/// A state and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// What the session is doing.
    pub state: SessionState,
    /// Why.
    pub reason: Reason,
}

impl Status {
    /// A state and the reason for it.
    pub const fn new(state: SessionState, reason: Reason) -> Self {
        Self { state, reason }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.state, self.reason)
    }
}

/// How a session came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// From nothing.
    #[default]
    New,
    /// As a copy of `parent` up to and including its event `at`.
    #[non_exhaustive]
    Fork {
        /// The session that it was forked from.
        parent: SessionId,
        /// The last event that both have in common.
        at: Seq,
    },
    /// As a helper of `parent`, with a history of its own.
    #[non_exhaustive]
    Child {
        /// The session that it helps.
        parent: SessionId,
    },
    /// From a manifest.
    Import,
}

impl Origin {
    /// The session that it came from.
    pub const fn parent(&self) -> Option<SessionId> {
        match self {
            Self::Fork { parent, .. } | Self::Child { parent } => Some(*parent),
            _ => None,
        }
    }
}

/// How many events of each kind the visible history holds; starts anew when the history is cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Messages of people.
    #[serde(default)]
    pub user: u64,
    /// Messages of the agent.
    #[serde(default)]
    pub agent: u64,
    /// Messages of the system.
    #[serde(default)]
    pub system: u64,
    /// Tool calls.
    #[serde(default)]
    pub tool_calls: u64,
    /// Runs that began.
    #[serde(default)]
    pub runs: u64,
}

impl Counts {
    /// All messages: of people, of the agent, of the system.
    pub const fn messages(&self) -> u64 {
        self.user + self.agent + self.system
    }
}

/// Who may run the session at the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// Who holds it, as the holder named itself; shown to whoever has to wait.
    pub holder: String,
    /// The run that it was taken for.
    pub run: RunId,
    /// Its number, carried by the run's writes.
    pub epoch: Epoch,
    /// How long it lives without a sign of life, in milliseconds.
    pub ttl_ms: u64,
    /// When it was taken, by the holder's clock.
    pub since: Timestamp,
}

/// What a running session was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// End the run.
    Cancel,
    /// End the run, then set the session aside for this reason.
    Suspend(Reason),
}

/// A tool call without a result yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenCall {
    /// The call.
    pub call: CallId,
    /// The event that made it.
    pub seq: Seq,
    /// Whether the tool runs outside and delivers by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub custom: bool,
}

/// A span without an end yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenSpan {
    /// The span.
    pub span: SpanId,
    /// The event that began it.
    pub seq: Seq,
}

words! {
    /// The kind of answer that a session waits for.
    ActionKind {
        /// Whether a tool may run.
        ToolConfirmation = "tool_confirmation",
        /// The result of a tool that runs outside.
        ToolResult = "tool_result",
        /// A decision on a question.
        Approval = "approval",
        /// A kind of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

impl ActionKind {
    /// The reason of a session that waits for it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::ToolConfirmation => Reason::AwaitToolConfirmation,
            Self::ToolResult => Reason::AwaitToolResult,
            Self::Approval => Reason::AwaitApproval,
            Self::Newer => Reason::Newer,
        }
    }
}

/// What a session waits for: one matching answer, from any device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingAction {
    /// Names it; the answer must carry it. For a tool's result it is the call's id.
    pub id: ActionId,
    /// The kind of answer.
    pub kind: ActionKind,
    /// The question, for a person; at most 2,048 bytes.
    pub question: String,
    /// When it is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl PendingAction {
    /// The most bytes of a question.
    pub const QUESTION_MAX_BYTES: usize = 2048;

    /// Waits for an answer of this kind.
    pub fn new(id: ActionId, kind: ActionKind, question: impl Into<String>) -> Self {
        Self { id, kind, question: question.into(), expires_at: None }
    }

    /// Gives up at `at`.
    #[must_use]
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        self.expires_at = Some(at);
        self
    }
}

/// Why the last run, or the session, failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// What failed.
    pub class: Reason,
    /// In words; at most 1,024 bytes.
    pub text: String,
}

impl Failure {
    /// The most bytes of the text; a longer one is cut at a character.
    pub const TEXT_MAX_BYTES: usize = 1024;

    /// A failure of this class. A text over 1,024 bytes is cut.
    pub fn new(class: Reason, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(Self::TEXT_MAX_BYTES));
        Self { class, text }
    }
}

/// A commit that the record remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecentCommit {
    /// Its id.
    pub id: CommitId,
    /// Its first event.
    pub first: Seq,
    /// Its last event.
    pub last: Seq,
    /// The lease that it took, if it took one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

/// A session: what its events come to.
///
/// The record is derived. [`Session::apply`] makes it from the log; a backend that keeps it beside the log keeps a
/// cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// Its last event.
    pub head: Seq,
    /// Its state, and why.
    pub status: Status,
    /// What it was before it was archived.
    pub before: Option<Status>,
    /// How it came to be.
    pub origin: Origin,
    /// How many sessions there are between it and one that came from nothing.
    pub depth: u32,
    /// Where the older part of its history lies.
    pub lineage: Lineage,
    /// Who created it.
    pub creator: Actor,
    /// Title, labels, metadata, references, resources.
    pub attributes: Attributes,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its first run began.
    pub started_at: Option<Timestamp>,
    /// When its last event was sealed, by that writer's clock.
    pub updated_at: Timestamp,
    /// The latest time of any of its events; never steps back.
    pub last_active_at: Timestamp,
    /// When it was terminated or deleted.
    pub ended_at: Option<Timestamp>,
    /// How many events of each kind it shows.
    pub counts: Counts,
    /// Who runs it.
    pub lease: Option<Lease>,
    /// The number of its newest lease.
    pub epoch: Epoch,
    /// What its run was asked to do.
    pub requested: Option<Request>,
    /// Its last input.
    pub last_input: Seq,
    /// The last input that the present or the last run took up.
    pub taken: Seq,
    /// The last input that is done with.
    pub handled: Seq,
    /// How many inputs are not done with.
    pub pending: u64,
    /// How many inputs arrived after `taken`.
    pub arrived: u64,
    /// What is visible lies after this; moved by clearing.
    pub visible_from: Seq,
    /// The event with the custom system prompt in force; zero where there is none.
    pub system_prompt: Seq,
    /// Tool calls without a result.
    pub open_calls: Vec<OpenCall>,
    /// Spans without an end.
    pub open_spans: Vec<OpenSpan>,
    /// What it waits for.
    pub action: Option<PendingAction>,
    /// When it wants to run.
    pub wakes: Vec<Wake>,
    /// How often in a row a run of the same input failed.
    pub attempts: u32,
    /// When it may run again, after a failed run.
    pub ready_at: Option<Timestamp>,
    /// Why its last run, or it, failed.
    pub failure: Option<Failure>,
    /// Its last commits, oldest first.
    pub recent: Vec<RecentCommit>,
    /// What of its log this version does not know and cannot go past: a type or a state. Commits are refused.
    pub newer: Option<String>,
    /// Fields of the record that this version does not know.
    pub extra: RawFields,
}

impl Session {
    /// Whether inputs or wakes wait.
    pub fn has_open_work(&self) -> bool {
        self.last_input > self.handled || !self.wakes.is_empty()
    }

    /// The last event at which its history may be cut: no tool call is open there.
    pub fn pair_safe_head(&self) -> Seq {
        match self.open_calls.iter().map(|open| open.seq).min() {
            Some(first) => Seq::new(first.get().saturating_sub(1)),
            None => self.head,
        }
    }

    /// What commits have filled of the record, in bytes of JSON, about.
    pub(crate) fn content_bytes(&self) -> usize {
        self.attributes.size_bytes()
            + self.open_calls.iter().map(|open| open.call.as_str().len() + 60).sum::<usize>()
            + self.open_spans.iter().map(|open| open.span.as_str().len() + 40).sum::<usize>()
            + self.wakes.iter().map(|wake| wake.key.len() + wake.note.len() + 80).sum::<usize>()
            + self.action.as_ref().map_or(0, |action| action.question.len() + 200)
            + self.extra.size_bytes()
    }

    /// The record as JSON.
    pub fn to_json(&self) -> String {
        // As for events: text, numbers and maps with text keys always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a record from its JSON form; fields that this version does not know are kept.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is not a record.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut f: RawFields = serde_json::from_str(text)
            .map_err(|source| Error::corrupt("text is not a session record").with_source(source))?;
        Ok(Self {
            id: f.need("id")?,
            workspace: f.need("workspace")?,
            head: f.need("head")?,
            status: f.need("status")?,
            before: f.take("before")?,
            origin: f.or_default("origin")?,
            depth: f.or_default("depth")?,
            lineage: f.or_default("lineage")?,
            creator: f.need("creator")?,
            attributes: f.or_default("attributes")?,
            created_at: f.need("created_at")?,
            started_at: f.take("started_at")?,
            updated_at: f.need("updated_at")?,
            last_active_at: f.need("last_active_at")?,
            ended_at: f.take("ended_at")?,
            counts: f.or_default("counts")?,
            lease: f.take("lease")?,
            epoch: f.or_default("epoch")?,
            requested: f.take("requested")?,
            last_input: f.or_default("last_input")?,
            taken: f.or_default("taken")?,
            handled: f.or_default("handled")?,
            pending: f.or_default("pending")?,
            arrived: f.or_default("arrived")?,
            visible_from: f.or_default("visible_from")?,
            system_prompt: f.or_default("system_prompt")?,
            open_calls: f.or_default("open_calls")?,
            open_spans: f.or_default("open_spans")?,
            action: f.take("action")?,
            wakes: f.or_default("wakes")?,
            attempts: f.or_default("attempts")?,
            ready_at: f.take("ready_at")?,
            failure: f.take("failure")?,
            recent: f.or_default("recent")?,
            newer: f.take("newer")?,
            extra: f,
        })
    }
}

impl Serialize for Session {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        macro_rules! always {
            ($($name:ident)*) => { $(map.serialize_entry(stringify!($name), &self.$name)?;)* };
        }
        macro_rules! unless_default {
            ($($name:ident)*) => { $(if !is_default(&self.$name) {
                map.serialize_entry(stringify!($name), &self.$name)?;
            })* };
        }
        always!(id workspace head status);
        unless_default!(before origin depth lineage);
        always!(creator);
        unless_default!(attributes);
        always!(created_at);
        unless_default!(started_at);
        always!(updated_at last_active_at);
        unless_default!(ended_at counts lease epoch requested last_input taken handled pending arrived visible_from);
        unless_default!(system_prompt open_calls open_spans action wakes attempts ready_at failure recent newer);
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Session {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

/// The payload of a session's first event: everything that its record starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Created {
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// How it came to be.
    #[serde(default, skip_serializing_if = "is_default")]
    pub origin: Origin,
    /// How many sessions there are between it and one that came from nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub depth: u32,
    /// Where the older part of its history lies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lineage: Lineage,
    /// Title, labels, metadata, references, resources.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attributes: Attributes,
    /// What it takes over from the session that it was forked from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inherited: Inherited,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a fork takes over: the cursors and counts at the point of the fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Inherited {
    /// How many events of each kind are visible.
    pub counts: Counts,
    /// The last input.
    pub last_input: Seq,
    /// The last input that is done with.
    pub handled: Seq,
    /// How many inputs are not done with.
    pub pending: u64,
    /// What is visible lies after this.
    pub visible_from: Seq,
    /// The event with the custom system prompt in force.
    pub system_prompt: Seq,
}

/// A session that is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewSession {
    /// Its id, minted by the caller.
    pub id: SessionId,
    /// What its first event will say.
    pub created: Created,
}

impl NewSession {
    /// A session with nothing in it.
    pub fn new(id: SessionId, workspace: WorkspaceId) -> Self {
        Self {
            id,
            created: Created {
                workspace,
                origin: Origin::New,
                depth: 0,
                lineage: Lineage::default(),
                attributes: Attributes::default(),
                inherited: Inherited::default(),
            },
        }
    }

    /// A copy of `parent` up to and including its event `at`, for which `parent` must be the record (as it was at
    /// `at`, that is: the fold of the events up to there).
    pub fn fork(id: SessionId, parent: &Session) -> Self {
        let mut new = Self::new(id, parent.workspace);
        new.created.origin = Origin::Fork { parent: parent.id, at: parent.head };
        new.created.depth = parent.depth.saturating_add(1);
        new.created.lineage = parent.lineage.forked(parent.id, parent.head);
        new.created.attributes = parent.attributes.clone();
        new.created.inherited = Inherited {
            counts: parent.counts,
            last_input: parent.last_input,
            handled: parent.handled,
            pending: parent.pending,
            visible_from: parent.visible_from,
            system_prompt: parent.system_prompt,
        };
        new
    }

    /// A helper of `parent`, in its workspace, with a history of its own.
    pub fn child(id: SessionId, parent: &Session) -> Self {
        let mut new = Self::new(id, parent.workspace);
        new.created.origin = Origin::Child { parent: parent.id };
        new.created.depth = parent.depth.saturating_add(1);
        new
    }

    /// Applies a patch to what is said of it.
    #[must_use]
    pub fn with(mut self, patch: &Patch) -> Self {
        self.created.attributes.apply(patch);
        self
    }
}

/// What lists show of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionSummary {
    /// Its id.
    pub id: SessionId,
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// Its last event.
    pub head: Seq,
    /// Its state, and why.
    pub status: Status,
    /// How it came to be.
    pub origin: Origin,
    /// How many sessions there are between it and one that came from nothing.
    pub depth: u32,
    /// Who created it.
    pub creator: Actor,
    /// Title, labels, metadata, references, resources.
    pub attributes: Attributes,
    /// When it was created.
    pub created_at: Timestamp,
    /// The latest time of any of its events.
    pub last_active_at: Timestamp,
    /// How many events of each kind it shows.
    pub counts: Counts,
    /// How many inputs are not done with.
    pub pending: u64,
}

impl From<&Session> for SessionSummary {
    fn from(session: &Session) -> Self {
        Self {
            id: session.id,
            workspace: session.workspace,
            head: session.head,
            status: session.status,
            origin: session.origin,
            depth: session.depth,
            creator: session.creator.clone(),
            attributes: session.attributes.clone(),
            created_at: session.created_at,
            last_active_at: session.last_active_at,
            counts: session.counts,
            pending: session.pending,
        }
    }
}
