//! One event of a session's log: its header, its payload, and its JSON form.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::{
    CommitId, Error, EventId, JsonFault, RawFields, RawJson, Result, RunId, Seq, Text, Timestamp, to_text,
};
use crate::event::body::Body;
use crate::event::kind::EventType;
use crate::event::payload::document::DocumentWritten;
use crate::event::payload::message::{Compaction, Message, Note, SystemMessage};
use crate::event::payload::tool::{ToolOutcome, ToolResult, ToolUse};
use crate::model::{Actor, Artifact, CallId, Patch, RunUsage, Transition, Wake, WakeCancelled};

/// The most bytes that one event's payload may have. Larger ones go to a blob first.
pub const EVENT_MAX_BYTES: usize = 16 << 20;

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
        to_text(self)
    }

    /// Reads an event from its JSON form.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is not an event.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the text is not an event: {fault}")).with_source(fault)
        })
    }

    /// About how many bytes it takes in memory and on disk.
    pub fn size_bytes(&self) -> usize {
        220 + self.data.get().len()
            + self.transition.as_ref().map_or(0, |raw| raw.get().len())
            + self.extra.size_bytes()
    }

    /// The payload as a type of the caller's; for payloads of hosts' own types.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it is not of that shape.
    pub fn data_as<T: DeserializeOwned>(&self) -> Result<T> {
        self.data.to()
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
#[must_use]
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
    pub fn with_actor(mut self, actor: Actor) -> Self {
        self.actor = Some(actor);
        self
    }

    /// Adds a field that this version does not know, to be kept as it is.
    pub fn with_extra(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.extra.insert(name, value);
        self
    }
}
