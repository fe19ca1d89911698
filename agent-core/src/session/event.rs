//! One event of a session's log: its header, its payload, and its JSON form.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::error::{Error, Result};
use crate::base::id::{CommitId, EventId, RunId, Seq};
use crate::base::json::{Fault, RawFields, RawJson};
use crate::base::text::Text;
use crate::base::text::{check_text, quoted, text_serde};
use crate::base::timestamp::Timestamp;
use crate::session::attributes::Patch;
use crate::session::body::{
    Body, Compaction, Message, Note, SystemMessage, ToolOutcome, ToolResult, ToolUse, Wake, WakeCancelled,
};
use crate::session::document::DocumentWritten;
use crate::session::ledger::{Artifact, RunUsage};
use crate::session::parts::CallId;
use crate::session::transition::Transition;

/// The most bytes that one event's payload may have. Larger ones go to a blob first.
pub const EVENT_MAX_BYTES: usize = 16 << 20;

/// What an event is about. Open: a type that this version does not know is kept byte for byte and handed back.
///
/// The families are `user.*`, `agent.*`, `system.*`, `span.*` and `session.*`; hosts add `x.<app>.*`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Cow<'static, str>);

impl EventType {
    /// The most bytes that an event type may have.
    pub const MAX_BYTES: usize = 128;

    /// A person's message; an input, which a run will answer.
    pub const USER_MESSAGE: Self = Self::known("user.message");
    /// A person asks that whatever runs or waits stops.
    pub const USER_INTERRUPT: Self = Self::known("user.interrupt");
    /// A person's decision on a tool call or a question.
    pub const USER_TOOL_CONFIRMATION: Self = Self::known("user.tool_confirmation");
    /// What a tool that ran outside delivers.
    pub const USER_CUSTOM_TOOL_RESULT: Self = Self::known("user.custom_tool_result");
    /// A person states what the session is to achieve; an input.
    pub const USER_DEFINE_OUTCOME: Self = Self::known("user.define_outcome");
    /// The agent's text.
    pub const AGENT_MESSAGE: Self = Self::known("agent.message");
    /// The agent's reasoning, where it is kept.
    pub const AGENT_THINKING: Self = Self::known("agent.thinking");
    /// The agent calls a tool; committed before the tool runs.
    pub const AGENT_TOOL_USE: Self = Self::known("agent.tool_use");
    /// What the tool gave; exactly one for each call.
    pub const AGENT_TOOL_RESULT: Self = Self::known("agent.tool_result");
    /// The agent calls a tool that runs outside.
    pub const AGENT_CUSTOM_TOOL_USE: Self = Self::known("agent.custom_tool_use");
    /// Text of the system: a custom prompt, or something injected.
    pub const SYSTEM_MESSAGE: Self = Self::known("system.message");
    /// A piece of work begins.
    pub const SPAN_STARTED: Self = Self::known("span.started");
    /// A piece of work ends.
    pub const SPAN_COMPLETED: Self = Self::known("span.completed");
    /// The session comes to be; its first event.
    pub const SESSION_CREATED: Self = Self::known("session.created");
    /// The state changed for a reason that no other event explains.
    pub const SESSION_STATUS_CHANGED: Self = Self::known("session.status_changed");
    /// The session came to rest; written by hosts that want it said.
    pub const SESSION_STATUS_IDLE: Self = Self::known("session.status_idle");
    /// Title, labels, metadata, references or resources changed.
    pub const SESSION_UPDATED: Self = Self::known("session.updated");
    /// A version of one of the session's documents.
    pub const SESSION_DOCUMENT_WRITTEN: Self = Self::known("session.document_written");
    /// What a run used.
    pub const SESSION_RUN_USAGE: Self = Self::known("session.run_usage");
    /// Something was made, and where it is.
    pub const SESSION_ARTIFACT_REGISTERED: Self = Self::known("session.artifact_registered");
    /// An agent found something out; on a shelf.
    pub const SESSION_LEARNING_ADDED: Self = Self::known("session.learning_added");
    /// A learning was taken into a document; on a shelf.
    pub const SESSION_LEARNING_PROMOTED: Self = Self::known("session.learning_promoted");
    /// Something is about to be done to a workspace, a device or a session, or was; in the audit.
    pub const SESSION_OPERATION_NOTED: Self = Self::known("session.operation_noted");
    /// The visible history starts anew after this.
    pub const SESSION_HISTORY_CLEARED: Self = Self::known("session.history_cleared");
    /// What a model is given starts with a summary from here on; the log stays as it is.
    pub const SESSION_COMPACTED: Self = Self::known("session.compacted");
    /// A wake was scheduled.
    pub const SESSION_WAKE_SCHEDULED: Self = Self::known("session.wake_scheduled");
    /// A wake is wanted no more.
    pub const SESSION_WAKE_CANCELLED: Self = Self::known("session.wake_cancelled");
    /// A child session was made.
    pub const SESSION_CHILD_CREATED: Self = Self::known("session.child_created");
    /// The parent of this session was told what it came to.
    pub const SESSION_REPORTED: Self = Self::known("session.reported");
    /// A child session came to rest or ended; carries its result.
    pub const SESSION_CHILD_IDLE: Self = Self::known("session.child_idle");

    const fn known(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// The type's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the type belongs to the family `family` (`user`, `agent` …).
    pub fn is_of(&self, family: &str) -> bool {
        self.0.split_once('.').is_some_and(|(first, _)| first == family)
    }
}

impl FromStr for EventType {
    type Err = Error;

    /// Accepts 1 to 128 bytes of `a-z 0-9 _ . -` with at least one dot inside.
    fn from_str(text: &str) -> Result<Self> {
        let dotted =
            text.split_once('.').is_some_and(|(family, rest)| !family.is_empty() && !rest.is_empty());
        let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b));
        if !dotted || !plain || text.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "event type {} must be family.name of a-z, 0-9, _, . and -, at most {} bytes",
                quoted(text),
                Self::MAX_BYTES
            )));
        }
        Ok(Self(Cow::Owned(text.to_owned())))
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_serde!(EventType);

/// Who did it: a role, and a name where the host gives one. Text of the form `user`, `user:alice`, `agent:coder`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor {
    role: Role,
    name: Option<Box<str>>,
}

/// The kind of an [`Actor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// A person, or a program on a person's behalf.
    User,
    /// The agent.
    Agent,
    /// The library or the host.
    System,
}

impl Actor {
    /// A person without a name.
    pub const USER: Self = Self { role: Role::User, name: None };
    /// The agent.
    pub const AGENT: Self = Self { role: Role::Agent, name: None };
    /// The library or the host.
    pub const SYSTEM: Self = Self { role: Role::System, name: None };

    /// The most bytes that a name may have.
    pub const MAX_NAME_BYTES: usize = 256;

    /// This role, by name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the name is empty, longer than 256 bytes or holds a control character.
    pub fn named(role: Role, name: &str) -> Result<Self> {
        check_text("actor name", name, Self::MAX_NAME_BYTES)?;
        Ok(Self { role, name: Some(name.into()) })
    }

    /// Who usually writes events of this type.
    pub(crate) fn of_family(kind: &EventType) -> Self {
        if kind.is_of("user") {
            Self::USER
        } else if kind.is_of("agent") {
            Self::AGENT
        } else {
            Self::SYSTEM
        }
    }

    /// The role.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// This role, without a name.
    pub(crate) const fn without_name(&self) -> Self {
        Self { role: self.role, name: None }
    }

    /// The name, where one was given.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::System => "system",
        })
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}:{name}", self.role),
            None => self.role.fmt(f),
        }
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Actor({self})")
    }
}

impl FromStr for Actor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (role, name) = match text.split_once(':') {
            Some((role, name)) => (role, Some(name)),
            None => (text, None),
        };
        let role = match role {
            "user" => Role::User,
            "agent" => Role::Agent,
            "system" => Role::System,
            _ => {
                return Err(Error::invalid(format!("actor {} is none of user, agent, system", quoted(text))));
            }
        };
        match name {
            Some(name) => Self::named(role, name),
            None => Ok(Self { role, name: None }),
        }
    }
}

text_serde!(Actor);

/// One event of a session, as it is stored and for ever.
///
/// Its JSON form is one object on one line, with the fields in this order: `seq id commit n of at type actor run
/// transition data` and then the fields that this version does not know, as they were read. `run` and `transition`
/// are left out where there is none. Backends keep that text, or its parts, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Its place in the session.
    pub seq: Seq,
    /// The commit that it came with.
    pub commit: CommitId,
    /// Its place in that commit, from 1.
    pub n: u32,
    /// How many events that commit has.
    pub of: u32,
    /// When it was sealed, by its writer's clock.
    pub at: Timestamp,
    /// What it is about.
    pub kind: EventType,
    /// Who did it.
    pub actor: Actor,
    /// The run that wrote it.
    pub run: Option<RunId>,
    /// The change of the session's status that it caused, as stored; read it with [`Event::transition`].
    pub transition: Option<RawJson>,
    /// The payload, compact.
    pub data: RawJson,
    /// Fields that this version does not know, raw and in order.
    pub extra: RawFields,
}

impl Event {
    /// The event's id, which follows from its commit and its place in it.
    pub fn id(&self) -> EventId {
        EventId::derive(self.commit, self.n.saturating_sub(1))
    }

    /// The payload as a typed view; [`Body::Other`] for a type that this version does not know.
    ///
    /// # Errors
    ///
    /// `Corrupt` where the payload of a known type is not of its shape.
    pub fn body(&self) -> Result<Body> {
        Body::parse(&self.kind, &self.data).map_err(|source| {
            Error::corrupt(format!("event {} has a payload that is no {}", self.seq, self.kind))
                .with_source(source)
        })
    }

    /// The change of status that this event caused, if it caused one.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is not of its shape.
    pub fn transition(&self) -> Result<Option<Transition>> {
        let Some(raw) = &self.transition else { return Ok(None) };
        raw.to().map(Some).map_err(|source| {
            Error::corrupt(format!("event {} has a transition that cannot be read", self.seq))
                .with_source(source)
        })
    }

    /// The event as one line of JSON, without a line break.
    pub fn to_json(&self) -> String {
        // Serialization into memory of types that are all text cannot fail; an empty line would be found as damage.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads an event from its JSON form.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is not an event.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|source| {
            let fault = Fault::from(source);
            Error::corrupt(format!("the text is not an event: {fault}")).with_source(fault)
        })
    }

    /// About how many bytes it takes in memory and on disk.
    pub fn size_bytes(&self) -> usize {
        220 + self.data.get().len()
            + self.transition.as_ref().map_or(0, |raw| raw.get().len())
            + self.extra.size_bytes()
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("seq", &self.seq)?;
        map.serialize_entry("id", &self.id())?;
        map.serialize_entry("commit", &self.commit)?;
        map.serialize_entry("n", &self.n)?;
        map.serialize_entry("of", &self.of)?;
        map.serialize_entry("at", &self.at)?;
        map.serialize_entry("type", &self.kind)?;
        map.serialize_entry("actor", &self.actor)?;
        if let Some(run) = &self.run {
            map.serialize_entry("run", run)?;
        }
        if let Some(transition) = &self.transition {
            map.serialize_entry("transition", transition)?;
        }
        map.serialize_entry("data", &self.data)?;
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The names of the header's own fields, which no unknown field may take.
pub(crate) const FIELDS: &[&str] =
    &["seq", "id", "commit", "n", "of", "at", "type", "actor", "run", "transition", "data", "crc"];

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Event;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event, A::Error> {
                let (mut seq, mut commit, mut n, mut of, mut at) = (None, None, None, None, None);
                let (mut kind, mut actor, mut run, mut transition, mut data) = (None, None, None, None, None);
                let mut extra = RawFields::new();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match &*key.0 {
                        "seq" => seq = Some(map.next_value()?),
                        // The id follows from the commit; the checksum is the framing of a log, checked there.
                        "id" | "crc" => drop(map.next_value::<IgnoredAny>()?),
                        "commit" => commit = Some(map.next_value()?),
                        "n" => n = Some(map.next_value()?),
                        "of" => of = Some(map.next_value()?),
                        "at" => at = Some(map.next_value()?),
                        "type" => kind = Some(map.next_value()?),
                        "actor" => actor = Some(map.next_value()?),
                        "run" => run = map.next_value()?,
                        "transition" => transition = map.next_value()?,
                        "data" => data = Some(map.next_value::<RawJson>()?),
                        _ => extra.push(&key.0, map.next_value()?),
                    }
                }
                let missing = serde::de::Error::missing_field;
                Ok(Event {
                    seq: seq.ok_or_else(|| missing("seq"))?,
                    commit: commit.ok_or_else(|| missing("commit"))?,
                    n: n.ok_or_else(|| missing("n"))?,
                    of: of.ok_or_else(|| missing("of"))?,
                    at: at.ok_or_else(|| missing("at"))?,
                    kind: kind.ok_or_else(|| missing("type"))?,
                    actor: actor.ok_or_else(|| missing("actor"))?,
                    run,
                    transition,
                    data: data.ok_or_else(|| missing("data"))?,
                    extra,
                })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// An event that is yet to be committed: what its writer says of it. Seq, ids and time come with the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewEvent {
    /// What it is about.
    pub kind: EventType,
    /// The payload.
    pub data: RawJson,
    /// Who did it, where it is not the commit's actor.
    pub actor: Option<Actor>,
    /// Further fields, kept as they are.
    pub extra: RawFields,
}

impl NewEvent {
    /// An event of any type with any payload. A known type's payload is checked when it is committed.
    pub fn new(kind: EventType, data: RawJson) -> Self {
        Self { kind, data, actor: None, extra: RawFields::new() }
    }

    /// An event from a typed payload.
    pub fn of(body: &Body) -> Self {
        Self::new(body.kind(), body.to_json())
    }

    /// A person's message.
    pub fn user_message(text: impl Into<String>) -> Self {
        Self::of(&Body::UserMessage(Message::new(text)))
    }

    /// The agent's text.
    pub fn agent_message(text: impl Into<String>) -> Self {
        Self::of(&Body::AgentMessage(Message::new(text)))
    }

    /// The session's custom system prompt, in force from here on.
    pub fn system_prompt(text: impl Into<String>) -> Self {
        Self::of(&Body::SystemMessage(SystemMessage::custom(text)))
    }

    /// The agent calls a tool.
    pub fn tool_use(call: CallId, name: impl Into<String>, input: RawJson) -> Self {
        Self::of(&Body::AgentToolUse(ToolUse::new(call, name, input)))
    }

    /// A tool's result.
    pub fn tool_result(call: CallId, outcome: ToolOutcome, output: RawJson) -> Self {
        Self::of(&Body::AgentToolResult(ToolResult::new(call, outcome, output)))
    }

    /// Title, labels, metadata, references or resources change.
    pub fn updated(patch: Patch) -> Self {
        Self::of(&Body::SessionUpdated(patch))
    }

    /// A version of a document.
    pub fn document_written(written: DocumentWritten) -> Self {
        Self::of(&Body::SessionDocumentWritten(written))
    }

    /// What a run used.
    pub fn run_usage(used: RunUsage) -> Self {
        Self::of(&Body::SessionRunUsage(used))
    }

    /// Something was made.
    pub fn artifact_registered(artifact: Artifact) -> Self {
        Self::of(&Body::SessionArtifactRegistered(artifact))
    }

    /// A person asks that whatever runs or waits stops.
    pub fn interrupt() -> Self {
        Self::of(&Body::UserInterrupt(Note::default()))
    }

    /// The visible history starts anew.
    pub fn history_cleared() -> Self {
        Self::of(&Body::SessionHistoryCleared(Note::default()))
    }

    /// `summary` stands for all that is visible up to and including `until`, where a model is given it.
    pub fn compacted(until: Seq, summary: impl Into<String>) -> Self {
        Self::of(&Body::SessionCompacted(Compaction::new(until, summary)))
    }

    /// A wake is scheduled.
    pub fn wake_scheduled(wake: Wake) -> Self {
        Self::of(&Body::SessionWakeScheduled(wake))
    }

    /// The wake of this key is wanted no more.
    pub fn wake_cancelled(key: impl Into<String>) -> Self {
        Self::of(&Body::SessionWakeCancelled(WakeCancelled::new(key)))
    }

    /// Sets who did it.
    #[must_use]
    pub fn with_actor(mut self, actor: Actor) -> Self {
        self.actor = Some(actor);
        self
    }

    /// Adds a field that this version does not know, to be kept as it is.
    #[must_use]
    pub fn with_extra(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.extra.insert(name, value);
        self
    }
}

/// Reads a type from an event's payload; for payloads of hosts' own types.
impl Event {
    /// The payload as a type of the caller's.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it is not of that shape.
    pub fn data_as<T: DeserializeOwned>(&self) -> Result<T> {
        self.data.to()
    }
}
