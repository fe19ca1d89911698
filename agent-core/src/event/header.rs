//! One event of a session's log: header, payload and JSON form.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::{
    BlobName, CommitId, Error, EventId, JsonFault, RawFields, RawJson, Result, RunId, Seq, Text, Timestamp,
    to_text,
};
use crate::event::body::EventPayload;
use crate::event::payload::document::DocumentWritten;
use crate::event::payload::message::{Comment, Compaction, Message, SystemMessage};
use crate::event::payload::tool::{ToolOutcome, ToolResult, ToolUse};
use crate::event::type_name::EventType;
use crate::model::{Actor, Artifact, CallId, Patch, RunUsage, Timer, TimerCancelled, Transition};

/// Maximum number of bytes of one event's payload and additional fields. Larger data is put as a
/// [blob](crate::store::PutBlob) first.
pub const EVENT_MAX_BYTES: usize = 16 << 20;

/// One event of a session, as it is stored. Never changes.
///
/// The JSON form is one object on one line, with the fields in this order: `seq id commit n of at type actor run
/// transition blobs data`, then the fields that this version does not know, as they were read, and
/// [`import_end`](Self::import_end). `run`, `transition`, `blobs` and `import_end` are omitted if there is none. Backends
/// keep that text, or its parts, byte for byte.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::event::{Event, EventPayload, NewEvent};
/// use agent_core::state::SessionState;
///
/// # let (store, effects, session) = session().await?;
/// # store.append(session.id, session.head, vec![NewEvent::user_message("Hello")]).await?;
/// let event = store.history(session.id, ReadEvents::last(1)).await?.events.remove(0);
/// let EventPayload::UserMessage(message) = event.decode()? else { panic!("{event:?}") };
/// assert_eq!((message.text.as_str(), event.actor.to_string().as_str()), ("Hello", "user"));
///
/// // The message changed the status: the session now waits for a run.
/// assert_eq!(event.transition()?.unwrap().to, SessionState::Queued);
///
/// let line = event.to_json();
/// assert_eq!(Event::from_json(&line)?.id(), event.id());
/// assert!(event.size_bytes() > event.payload.get().len());
/// # Ok(()) }
/// ```
/// Two events are equal if all fields are, except that an [`import_end`](Self::import_end) is not compared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// Sequence number of the event in the session.
    pub seq: Seq,
    /// Id of the commit that the event belongs to.
    pub commit: CommitId,
    /// Position of the event in the commit, from 1.
    pub n: u32,
    /// Number of events in the commit.
    pub of: u32,
    /// Time at which the event was sealed, by the writer's clock.
    pub at: Timestamp,
    /// Type of the event.
    pub kind: EventType,
    /// Actor that caused the event.
    pub actor: Actor,
    /// Run that wrote the event, if a run wrote it.
    pub run: Option<RunId>,
    /// Change of the session's status that the event caused, as stored; decode it with [`Event::transition`].
    pub transition: Option<RawJson>,
    /// Blobs of this session's own log that the event refers to, in order. They stay as long as the event does.
    pub blobs: Vec<BlobName>,
    /// Payload, compact.
    pub payload: RawJson,
    /// Fields that this version does not know, raw and in order.
    pub extra: RawFields,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        let Self { seq, commit, n, of, at, kind, actor, run, transition, blobs, payload, extra } = self;
        (seq, commit, n, of, at) == (&other.seq, &other.commit, &other.n, &other.of, &other.at)
            && (kind, actor, run) == (&other.kind, &other.actor, &other.run)
            && (transition, blobs, payload) == (&other.transition, &other.blobs, &other.payload)
            && without_import_end(extra).eq(without_import_end(&other.extra))
    }
}

impl Eq for Event {}

/// Returns the fields that are not about an import.
fn without_import_end(extra: &RawFields) -> impl Iterator<Item = (&str, &RawJson)> {
    extra.iter().filter(|(name, _)| *name != IMPORT_END)
}

impl Event {
    /// Returns the event's id, derived from the commit and the event's position in it.
    pub fn id(&self) -> EventId {
        EventId::derive(self.commit, self.n.saturating_sub(1))
    }

    /// Returns the last event of the import that stored this event, if this is the first event that the import wrote and it
    /// needed several commits.
    ///
    /// The session [accepts no messages](field@crate::session::SessionRecord::import_end) before it reaches that event.
    pub fn import_end(&self) -> Option<Seq> {
        self.extra.get(IMPORT_END)?.to().ok()
    }

    /// Sets or removes the [last event of an import](Self::import_end).
    #[must_use]
    pub fn with_import_end(mut self, end: Option<Seq>) -> Self {
        self.extra.remove(IMPORT_END);
        if let Some(end) = end {
            self.extra.insert(IMPORT_END, RawJson::sure(&end));
        }
        self
    }

    /// Decodes the payload into its type; [`EventPayload::Other`] for a type that this version does not know.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the payload of a known type does not have its shape.
    #[doc(alias = "body")]
    pub fn decode(&self) -> Result<EventPayload> {
        EventPayload::parse(&self.kind, &self.payload).map_err(|source| {
            Error::corrupt(format!("event {} has a payload that is no {}", self.seq, self.kind))
                .with_source(source)
        })
    }

    /// Returns the text of a message of a person, the agent or the system.
    ///
    /// The text is that of the types [`USER_MESSAGE`](EventType::USER_MESSAGE),
    /// [`USER_DEFINE_OUTCOME`](EventType::USER_DEFINE_OUTCOME), [`AGENT_MESSAGE`](EventType::AGENT_MESSAGE),
    /// [`AGENT_THINKING`](EventType::AGENT_THINKING) and [`SYSTEM_MESSAGE`](EventType::SYSTEM_MESSAGE), as it is stored
    /// in `data.text`. For [`AGENT_PART`](EventType::AGENT_PART) it is the [text view](Self::text_view). Returns `None`
    /// for any other type, and for a payload that cannot be decoded, which [`decode`](Self::decode) reports. Copies the
    /// text only if its JSON form contains escapes.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        /// Part of a message that is read here.
        #[derive(Deserialize)]
        struct TextOnly<'a> {
            #[serde(borrow)]
            text: Text<'a>,
        }
        if self.kind == EventType::AGENT_PART {
            return self.text_view();
        }
        let messages = [
            EventType::USER_MESSAGE,
            EventType::USER_DEFINE_OUTCOME,
            EventType::AGENT_MESSAGE,
            EventType::AGENT_THINKING,
            EventType::SYSTEM_MESSAGE,
        ];
        let text_only =
            messages.contains(&self.kind).then(|| serde_json::from_str::<TextOnly<'_>>(self.payload.get()));
        Some(text_only?.ok()?.text.0)
    }

    /// Returns the event as people read it: its [text](Self::text), and a line for each medium and each cited source.
    ///
    /// Equal to the text for a message that is one plain text. Returns `None` if the event has no text and nothing that
    /// is shown in its place.
    pub fn text_view(&self) -> Option<Cow<'_, str>> {
        match self.decode().ok()? {
            EventPayload::UserMessage(message)
            | EventPayload::UserDefineOutcome(message)
            | EventPayload::AgentMessage(message)
            | EventPayload::AgentThinking(message) => Some(message.into_text_view().into()),
            EventPayload::SystemMessage(message) => Some(message.text.into()),
            EventPayload::AgentPart(part) => part.text_view().map(Cow::Owned),
            _ => None,
        }
    }

    /// Returns the change of status that this event caused, if it caused one.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the transition does not have its shape.
    pub fn transition(&self) -> Result<Option<Transition>> {
        let Some(raw) = &self.transition else { return Ok(None) };
        raw.to().map(Some).map_err(|source| {
            Error::corrupt(format!("event {} has a transition that cannot be read", self.seq))
                .with_source(source)
        })
    }

    /// Returns the event as one line of JSON, without a line break.
    pub fn to_json(&self) -> String {
        to_text(self)
    }

    /// Decodes an event from its JSON form.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the text is not an event.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the text is not an event: {fault}")).with_source(fault)
        })
    }

    /// Returns the approximate size of the event in memory and on disk, in bytes.
    pub fn size_bytes(&self) -> usize {
        220 + self.payload.get().len()
            + self.transition.as_ref().map_or(0, |raw| raw.get().len())
            + self.extra.size_bytes()
            + 67 * self.blobs.len()
    }

    /// Decodes the payload as a type of the caller's; for payloads of a host's own event types.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the payload does not have that shape.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::event::{Event, EventType, NewEvent};
    /// use agent_core::json::RawJson;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let rated: EventType = "x.shop.rated".parse()?;
    /// let events = vec![NewEvent::new(rated, RawJson::of(&(4711, 5))?)];
    /// store.append(session.id, session.head, events).await?;
    ///
    /// let event: Event = store.history(session.id, ReadEvents::last(1)).await?.events.remove(0);
    /// assert_eq!(event.payload_as::<(u64, u8)>()?, (4711, 5));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "data_as")]
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        self.payload.to()
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
        if !self.blobs.is_empty() {
            map.serialize_entry("blobs", &self.blobs)?;
        }
        map.serialize_entry("data", &self.payload)?;
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Names of the header's own fields. No unknown field may have such a name.
pub(crate) const FIELDS: &[&str] = &[
    "seq",
    "id",
    "commit",
    "n",
    "of",
    "at",
    "type",
    "actor",
    "run",
    "transition",
    "blobs",
    "data",
    "crc",
    IMPORT_END,
];

/// Field with the last event of an import, on the first event that the import wrote.
pub(crate) const IMPORT_END: &str = "import_end";

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
                let (mut blobs, mut extra) = (Vec::new(), RawFields::new());
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
                        "blobs" => blobs = map.next_value()?,
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
                    blobs,
                    payload: data.ok_or_else(|| missing("data"))?,
                    extra,
                })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// Event that is not committed yet. Its sequence number, ids and time are set by the commit.
///
/// ```
/// use agent_core::event::{EventPayload, Message, NewEvent, ToolOutcome};
/// use agent_core::json::RawJson;
/// use agent_core::model::{Actor, CallId, Role};
///
/// let call: CallId = "call-1".parse()?;
/// let events = [
///     NewEvent::system_prompt("You plan trips."),
///     NewEvent::user_message("Weather in Oslo?").with_actor(Actor::named(Role::User, "alice")?),
///     NewEvent::tool_use(call.clone(), "weather", RawJson::constant(r#"{"city":"Oslo"}"#)),
///     NewEvent::tool_result(call, ToolOutcome::Ok, RawJson::of(&"sunny, 12 °C")?),
///     NewEvent::agent_message("Sunny, 12 °C.").with_extra("trace", RawJson::of(&"4bf92f35")?),
/// ];
/// assert_eq!(events[3].kind.as_str(), "agent.tool_result");
///
/// // Any payload has a typed form, too.
/// let thinking = NewEvent::of(&EventPayload::AgentThinking(Message::new("They ask for Oslo.")));
/// assert_eq!(thinking.kind.as_str(), "agent.thinking");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewEvent {
    /// Type of the event.
    pub kind: EventType,
    /// Payload.
    pub payload: RawJson,
    /// Actor that caused the event, if it is not the commit's actor.
    pub actor: Option<Actor>,
    /// Time of the event, if it is not the commit's time. Only events that are
    /// [imported](crate::commit::Trigger::ImportEvents) may have one.
    pub at: Option<Timestamp>,
    /// Blobs that the event refers to beyond those that the library finds in its payload: in a payload of the host's
    /// own, or in a part that this version does not know.
    pub blobs: Vec<BlobName>,
    /// Additional fields, stored unchanged.
    pub extra: RawFields,
}

impl NewEvent {
    /// Creates an event of any type with any payload. The payload of a known type is checked when the event is
    /// committed.
    pub fn new(kind: EventType, data: RawJson) -> Self {
        Self { kind, payload: data, actor: None, at: None, blobs: Vec::new(), extra: RawFields::new() }
    }

    /// Creates an event from a typed payload.
    pub fn of(body: &EventPayload) -> Self {
        Self::new(body.kind(), body.to_json())
    }

    /// Creates a message of a person.
    pub fn user_message(text: impl Into<String>) -> Self {
        Self::of(&EventPayload::UserMessage(Message::new(text)))
    }

    /// Creates a message of the agent.
    pub fn agent_message(text: impl Into<String>) -> Self {
        Self::of(&EventPayload::AgentMessage(Message::new(text)))
    }

    /// Creates a custom system prompt, in force from this event on.
    pub fn system_prompt(text: impl Into<String>) -> Self {
        Self::of(&EventPayload::SystemMessage(SystemMessage::custom(text)))
    }

    /// Creates a tool call of the agent.
    pub fn tool_use(call: CallId, name: impl Into<String>, input: RawJson) -> Self {
        Self::of(&EventPayload::AgentToolUse(ToolUse::new(call, name, input)))
    }

    /// Creates the result of a tool call.
    pub fn tool_result(call: CallId, outcome: ToolOutcome, output: RawJson) -> Self {
        Self::of(&EventPayload::AgentToolResult(ToolResult::new(call, outcome, output)))
    }

    /// Creates a change of title, labels, metadata, references or resources.
    pub fn updated(patch: Patch) -> Self {
        Self::of(&EventPayload::SessionUpdated(patch))
    }

    /// Creates a version of a document.
    pub fn document_written(written: DocumentWritten) -> Self {
        Self::of(&EventPayload::SessionDocumentWritten(written))
    }

    /// Creates the usage record of a run.
    pub fn run_usage(used: RunUsage) -> Self {
        Self::of(&EventPayload::SessionRunUsage(used))
    }

    /// Creates the registration of an artifact.
    pub fn artifact_registered(artifact: Artifact) -> Self {
        Self::of(&EventPayload::SessionArtifactRegistered(artifact))
    }

    /// Creates a person's request to stop the session's run or its waiting.
    pub fn interrupt() -> Self {
        Self::of(&EventPayload::UserInterrupt(Comment::default()))
    }

    /// Creates an event that clears the visible history.
    pub fn history_cleared() -> Self {
        Self::of(&EventPayload::SessionHistoryCleared(Comment::default()))
    }

    /// Creates a compaction: a model is given `summary` in place of the visible events up to and including `until`.
    pub fn compacted(until: Seq, summary: impl Into<String>) -> Self {
        Self::of(&EventPayload::SessionCompacted(Compaction::new(until, summary)))
    }

    /// Creates a scheduled timer.
    pub fn timer_scheduled(timer: Timer) -> Self {
        Self::of(&EventPayload::SessionTimerScheduled(timer))
    }

    /// Creates the cancellation of the timer with this key.
    pub fn timer_cancelled(key: impl Into<String>) -> Self {
        Self::of(&EventPayload::SessionTimerCancelled(TimerCancelled::new(key)))
    }

    /// Sets the actor that caused the event.
    pub fn with_actor(mut self, actor: Actor) -> Self {
        self.actor = Some(actor);
        self
    }

    /// Sets the time at which the event happened elsewhere, for an [import](crate::commit::Trigger::ImportEvents). Any other
    /// commit with such an event is refused.
    pub const fn with_at(mut self, at: Timestamp) -> Self {
        self.at = Some(at);
        self
    }

    /// Adds a blob that the payload refers to in a way that the library does not know, such as in a payload of the
    /// host's own. It stays as long as the event does.
    ///
    /// The blobs of messages, of other parts of an answer and of outputs of tools are found in the payload.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::{BlobName, ErrorKind, SessionStore};
    /// use agent_core::event::NewEvent;
    /// use agent_core::json::RawJson;
    /// use agent_core::store::PutBlob;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let drawing = vec![7; 100_000];
    /// let name = BlobName::of(&drawing);
    /// let drawn = NewEvent::new("x.cad.drawn".parse()?, RawJson::of(&name)?).with_blob(name);
    /// let error = store.append(session.id, session.head, vec![drawn.clone()]).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::BlobMissing { blobs: vec![name] });
    ///
    /// store.blobs().put(PutBlob::of_bytes(session.id, drawing)).await?;
    /// store.append(session.id, session.head, vec![drawn]).await?;
    /// # Ok(()) }
    /// ```
    pub fn with_blob(mut self, name: BlobName) -> Self {
        self.blobs.push(name);
        self
    }

    /// Adds a field that this version does not know, stored unchanged.
    pub fn with_extra(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.extra.insert(name, value);
        self
    }
}
