//! Record of a session: the fold of its events, bounded in size. Every field can be rebuilt from the log.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::base::{
    Epoch, Error, ErrorKind, JsonFault, OwnerId, RawFields, Reason, Result, Revision, Seq, SessionId,
    SessionState, Timestamp, WorkspaceId, is_default, size_bytes, to_text,
};
use crate::event::{DocumentWritten, Event};
use crate::model::{
    Actor, Attributes, CURRENCIES_MAX, ContentBytes, Counts, DOCUMENT_MAX_BYTES, DocumentHead, Failure,
    Lease, Lineage, OpenCall, OpenSpan, Origin, PendingAction, RecentCommit, Reported, Request, Role,
    RunUsage, Status, Timer, UsageTotals,
};
use crate::session::key::{ConversationKey, key_of};

/// Maximum number of bytes of a record as JSON.
pub const RECORD_MAX_BYTES: usize = 32 << 10;

/// Maximum number of bytes of a record that commits can fill; the rest is for data of the library itself.
pub const RECORD_CONTENT_MAX_BYTES: usize = 24 << 10;

/// Maximum number of open tool calls, and of open spans, at once.
pub const OPEN_CALLS_MAX: usize = 64;

/// Maximum number of timers that are scheduled at once.
pub const TIMERS_MAX: usize = 128;

/// Number of recent commits that a record remembers, to recognize retries.
pub const RECENT_COMMITS: usize = 16;

/// Defines the record from one table: name and type of each field, whether it is stored `always` or `unless_default`,
/// and whether it is `kept` or `removed` when the session is purged.
macro_rules! record {
    (@keep kept $value:expr) => { $value.clone() };
    (@keep removed $value:expr) => { Default::default() };
    (@write always $map:ident $name:ident $value:expr) => { $map.serialize_entry(stringify!($name), $value)? };
    (@write unless_default $map:ident $name:ident $value:expr) => {
        if !is_default($value) {
            $map.serialize_entry(stringify!($name), $value)?;
        }
    };
    (@read always $fields:ident $name:ident) => { $fields.need(stringify!($name))? };
    (@read unless_default $fields:ident $name:ident) => { $fields.or_default(stringify!($name))? };
    ($($(#[$doc:meta])* $name:ident: $type:ty, $form:ident, $fate:ident;)*) => {
        /// Record of a session: the fold of its events.
        ///
        /// The record is derived: [`SessionRecord::apply`] computes it from the log. A record that a backend stores beside
        /// the log is a cache.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct SessionRecord {
            $($(#[$doc])* pub $name: $type,)*
            /// Fields of the record that this version does not know.
            pub extra: RawFields,
        }

        /// Returns the record without the fields that a purge removes.
        fn without_content(session: &SessionRecord) -> SessionRecord {
            SessionRecord { $($name: record!(@keep $fate session.$name),)* extra: RawFields::new() }
        }

        fn read(mut fields: RawFields) -> Result<SessionRecord> {
            $(let $name = record!(@read $form fields $name);)*
            fields.check_unknown(&[$(stringify!($name)),*])?;
            Ok(SessionRecord { $($name,)* extra: fields })
        }

        impl Serialize for SessionRecord {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $(record!(@write $form map $name &self.$name);)*
                for (name, value) in self.extra.iter() {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    };
}

record! {
    /// Id of the session.
    id: SessionId, always, kept;
    /// Workspace that the session belongs to.
    workspace: WorkspaceId, always, kept;
    /// Owner of the session; never changes, but that an erasure puts a [pseudonym](crate::store::Purge::with_pseudonym) into the tombstone. `None`
    /// for a session of the whole tenant.
    owner: Option<OwnerId>, unless_default, kept;
    /// Name of the key by which the words of the session are [sealed](crate::sealing), as an encrypted store keeps them. No record
    /// that such a store returns has it.
    sealed_by: Option<String>, unless_default, kept;
    /// Sequence number of the last event.
    head: Seq, always, kept;
    /// State of the session and the reason for it.
    status: Status, always, kept;
    /// Status before the session was archived.
    state_before_archive: Option<Status>, unless_default, kept;
    /// Origin of the session: new, fork, child or import.
    origin: Origin, unless_default, kept;
    /// Number of forks and child creations that lead to this session; 0 for a session without a parent.
    depth: u32, unless_default, kept;
    /// Ancestors whose logs hold the older part of the history.
    lineage: Lineage, unless_default, kept;
    /// Actor that created the session.
    creator: Actor, always, kept;
    /// Title, labels, metadata, references, resources.
    attributes: Attributes, unless_default, removed;
    /// Documents of the session, without their texts.
    documents: Vec<DocumentHead>, unless_default, removed;
    /// Time at which the session was created.
    created_at: Timestamp, always, kept;
    /// Time at which the first run began.
    started_at: Option<Timestamp>, unless_default, kept;
    /// Time at which the last event was sealed, by its writer's clock.
    updated_at: Timestamp, always, kept;
    /// Latest time of any of the session's events; never steps back.
    last_active_at: Timestamp, always, kept;
    /// Time at which the session was terminated or deleted.
    ended_at: Option<Timestamp>, unless_default, kept;
    /// Number of visible events of each kind.
    counts: Counts, unless_default, kept;
    /// Number of bytes that the session's own events store, by kind of content.
    content_bytes: ContentBytes, unless_default, removed;
    /// Beginning of the first visible message of a person, in one line of at most [`WORDS_MAX_BYTES`](crate::model::WORDS_MAX_BYTES) bytes.
    first_words: Option<String>, unless_default, removed;
    /// Beginning of the last visible message of a person or the agent, in one line of at most [`WORDS_MAX_BYTES`](crate::model::WORDS_MAX_BYTES) bytes.
    preview: Option<String>, unless_default, removed;
    /// Lease of the run, or of the preparation, that holds the session.
    lease: Option<Lease>, unless_default, removed;
    /// Number of the newest lease.
    epoch: Epoch, unless_default, kept;
    /// Request to the current run.
    stop_request: Option<Request>, unless_default, removed;
    /// Sequence number of the last input.
    last_input: Seq, unless_default, kept;
    /// Event with which the current or the last run began.
    begun: Seq, unless_default, kept;
    /// Last input that the current or the last run claimed.
    inputs_claimed_through: Seq, unless_default, kept;
    /// Last input that is done.
    inputs_done_through: Seq, unless_default, kept;
    /// Number of inputs that are not done.
    inputs_open: u64, unless_default, kept;
    /// Number of inputs that arrived after `inputs_claimed_through`.
    inputs_new: u64, unless_default, kept;
    /// Last event before the visible history; moved by clearing.
    visible_from: Seq, unless_default, kept;
    /// Event with the custom system prompt in force; zero if there is none.
    system_prompt: Seq, unless_default, kept;
    /// Event with the outcome that was defined last; zero if there is none.
    outcome: Seq, unless_default, kept;
    /// Usage of the session's own runs, if it is stored.
    usage: UsageTotals, unless_default, removed;
    /// Event with the summary that a model is given in place of older history; zero if there is none.
    summary: Seq, unless_default, kept;
    /// Last event that this summary replaces; moved by compaction.
    context_from: Seq, unless_default, kept;
    /// Tool calls without a result.
    open_calls: Vec<OpenCall>, unless_default, removed;
    /// Spans without an end.
    open_spans: Vec<OpenSpan>, unless_default, removed;
    /// Action that the session waits for.
    action: Option<PendingAction>, unless_default, removed;
    /// Scheduled timers.
    timers: Vec<Timer>, unless_default, removed;
    /// Number of consecutive failed runs of the same input.
    attempts: u32, unless_default, kept;
    /// Earliest time at which the session may run again, after a failed run.
    ready_at: Option<Timestamp>, unless_default, kept;
    /// Failure of the last run, or of the session.
    failure: Option<Failure>, unless_default, removed;
    /// For a child: the report that its parent has received.
    reported: Option<Reported>, unless_default, kept;
    /// Last commits, oldest first.
    recent: Vec<RecentCommit>, unless_default, kept;
    /// Last event of an import that is not complete. Until the session reaches it, it accepts only the rest of the import
    /// and its deletion, and no run starts.
    import_end: Option<Seq>, unless_default, removed;
    /// Part of the log that this version does not know and cannot skip: a type or a state. Commits are refused.
    unsupported: Option<String>, unless_default, removed;
}

impl SessionRecord {
    /// Returns whether inputs or timers are open.
    pub fn has_open_work(&self) -> bool {
        self.last_input > self.inputs_done_through || !self.timers.is_empty()
    }

    /// Returns the time at which a scheduler must next look at this session; `None` if there is no such time.
    ///
    /// That is the time at which a queued run may start, at which a pending question expires, or now if a finished
    /// child has not been reported to its parent. A session whose import is [incomplete](field@Self::import_end) has none.
    ///
    /// For work that may start now, the time is [`Timestamp::UNIX_EPOCH`], not the time at which the work arrived: a
    /// writer whose clock is a day ahead must not delay an input by a day. An input of a failed run has the time of
    /// the next attempt, a timer its due time. Lists of sessions that are
    /// [due](crate::store::session::SessionQuery::with_due) use this time.
    pub fn next_due_at(&self) -> Option<Timestamp> {
        if self.import_end.is_some() {
            return None;
        }
        match self.status.state {
            SessionState::Queued => self.runs_from(),
            SessionState::RequiresAction => self.action.as_ref()?.expires_at,
            _ => self.to_report().map(|_| Timestamp::UNIX_EPOCH),
        }
    }

    /// Returns the report that the parent of this child has not received yet; `None` unless the child is idle, failed
    /// or terminated.
    pub fn to_report(&self) -> Option<Reported> {
        let rests =
            matches!(self.status.state, SessionState::Idle | SessionState::Failed | SessionState::Terminated);
        if !rests || !matches!(self.origin, Origin::Child { .. }) {
            return None;
        }
        let now = Reported { at: self.begun.max(self.inputs_done_through), state: self.status.state };
        let last_report = self.reported.unwrap_or(Reported { at: Seq::ZERO, state: SessionState::Idle });
        let ended = now.state != SessionState::Idle && now.state != last_report.state;
        (now.at > last_report.at || ended).then_some(now)
    }

    /// Returns the time from which the session may run, if it is queued.
    pub(crate) fn runs_from(&self) -> Option<Timestamp> {
        let at_once = Timestamp::UNIX_EPOCH;
        let input = (self.last_input > self.inputs_done_through).then(|| self.ready_at.unwrap_or(at_once));
        let timers = self.timers.iter().map(|timer| match self.ready_at {
            // The timers of a failed run wait for its next attempt; later timers do not.
            Some(ready_at) if timer.seq <= self.begun => timer.at.max(ready_at),
            _ => timer.at,
        });
        timers.chain(input).chain(self.is_answered().then_some(at_once)).min()
    }

    /// Returns whether the session's question was answered, or given up, and no run has continued from there.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.status.reason, Reason::ActionResolved | Reason::ActionTimedOut)
    }

    /// Returns the timers that the current run serves: those scheduled before it began, and due at that time.
    #[doc(alias = "woken_by")]
    pub fn due_timers(&self) -> impl Iterator<Item = &Timer> {
        let since = self.lease.as_ref().map(|lease| lease.since);
        let begun = self.begun;
        self.timers
            .iter()
            .filter(move |timer| since.is_some_and(|since| timer.at <= since) && timer.seq <= begun)
    }

    /// Returns the last event after which the history may be cut: no tool call is open there.
    pub fn pair_safe_head(&self) -> Seq {
        match self.open_calls.iter().map(|open| open.seq).min() {
            Some(first) => Seq::new(first.get().saturating_sub(1)),
            None => self.head,
        }
    }

    /// Returns the key by which the host finds this conversation; `None` if it has none, or if it was purged.
    ///
    /// The label [`CONVERSATION_KEY`](Attributes::CONVERSATION_KEY) is checked against the session's id, so the result
    /// is `None` for any session that merely has such a label.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::session::{ConversationKey, NewSession};
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # let storage = Storage::from(MemoryStore::new());
    /// let key: ConversationKey = "support/4711".parse()?;
    /// let new = NewSession::conversation(&key, None, WorkspaceId::DEFAULT, 0);
    /// let session = storage.sessions.create(new).await?;
    /// assert_eq!(session.conversation_key(), Some(key));
    ///
    /// let fork = storage.sessions.fork(session.id, None).await?;
    /// assert_eq!(fork.conversation_key(), None);
    /// # Ok(()) }
    /// ```
    pub fn conversation_key(&self) -> Option<ConversationKey> {
        key_of(self.id, self.owner.as_ref(), self.workspace, &self.attributes)
    }

    /// For backends: returns what remains of the record of a deleted session after a
    /// [purge](crate::store::session::SessionStore::purge).
    ///
    /// The tombstone keeps the session's id, owner and workspace, its head and state, its origin and lineage, its times, the
    /// ids of its last commits, and numbers: of messages, of events, of its newest lease. It keeps nothing that a
    /// person, a model or a host wrote: no title, labels, metadata, references, resources, mounts, handles,
    /// documents, names of actors, calls, timers, questions, failures, currencies or unknown fields.
    #[must_use]
    pub fn tombstone(&self) -> Self {
        Self { creator: self.creator.without_name(), ..without_content(self) }
    }

    /// Returns the size of the part of the record that commits fill, in bytes of JSON.
    pub(crate) fn filled_bytes(&self) -> usize {
        let open = (&self.open_calls, &self.open_spans, &self.timers, &self.action);
        size_bytes(&(&self.attributes, open, &self.documents, &self.extra))
    }

    /// Returns the record as JSON.
    pub fn to_json(&self) -> String {
        to_text(self)
    }

    /// Decodes a record from its JSON form; keeps fields that this version does not know.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the text is not a record, or has a field twice.
    pub fn from_json(text: &str) -> Result<Self> {
        let fields = serde_json::from_str(text).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the text is not a session record: {fault}")).with_source(fault)
        })?;
        read(fields)
    }

    /// Returns the record's entry for the document `name`.
    pub fn document(&self, name: &str) -> Option<&DocumentHead> {
        self.documents.iter().find(|head| head.name == name)
    }

    /// Applies a version of a document. Never fails, so that an accepted version always folds.
    pub(crate) fn document_written(&mut self, written: DocumentVersion, event: &Event) {
        let at = self.documents.iter().position(|head| head.name == written.name);
        let bytes = written.text.map(|TextBytes(bytes)| bytes).or(written.bytes);
        let Some(bytes) = bytes else {
            at.map(|at| self.documents.remove(at));
            return;
        };
        let limit = written.limit.or_else(|| self.documents.get(at?)?.limit);
        let head = DocumentHead {
            name: written.name,
            revision: written.revision,
            seq: event.seq,
            bytes,
            by: event.actor.role(),
            format: written.format,
            limit,
        };
        match at.and_then(|at| self.documents.get_mut(at)) {
            Some(slot) => *slot = head,
            None => self.documents.push(head),
        }
    }

    /// Checks that a version by `role` may follow the current one.
    ///
    /// The version must follow the one that its writer has seen, the system must not overwrite a version of an agent
    /// or a person, and the text must not be too long.
    pub(crate) fn check_document(&self, written: &DocumentWritten, role: Role) -> Result<()> {
        let (id, name, head) = (self.id, &written.name, self.document(&written.name));
        let (revision, seq) = head.map_or((Revision::ZERO, Seq::ZERO), |head| (head.revision, head.seq));
        if written.revision != revision.next() || written.previous != seq {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(self.head) },
                format!(
                    "document {name} of session {id} is at version {revision}, and version {} does not follow it; read it again",
                    written.revision
                ),
            ));
        }
        if let Some(head) = head.filter(|head| role == Role::System && head.by != Role::System) {
            return Err(Error::invalid(format!(
                "document {name} of session {id} was written by the {}; the system does not overwrite that",
                head.by
            )));
        }
        let limit = written.limit.or_else(|| head?.limit).unwrap_or(u64::MAX).min(DOCUMENT_MAX_BYTES as u64);
        let bytes = written.text.as_ref().map_or(0, String::len) as u64;
        if bytes > limit {
            return Err(Error::limit(format!(
                "document {name} of session {id} would have {bytes} bytes; at most {limit} are allowed, nothing was cut"
            )));
        }
        Ok(())
    }

    /// Checks that a run's usage keeps the sums bounded.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for a cost in a new currency if the sums have the [maximum](crate::model::CURRENCIES_MAX)
    /// already.
    pub fn check_usage(&self, usage: &RunUsage) -> Result<()> {
        let Some(cost) = &usage.cost else { return Ok(()) };
        let known = &self.usage.cost;
        if known.contains_key(&cost.currency) || known.len() < CURRENCIES_MAX {
            return Ok(());
        }
        Err(Error::limit(format!(
            "session {} has costs in {CURRENCIES_MAX} currencies; no more are kept",
            self.id
        )))
    }
}

/// Part of a document's version that the fold needs. A sealed one has a number of bytes in place of the text.
#[derive(Deserialize)]
pub(crate) struct DocumentVersion {
    name: String,
    revision: Revision,
    #[serde(default)]
    text: Option<TextBytes>,
    #[serde(default)]
    bytes: Option<u64>,
    #[serde(default)]
    format: u32,
    #[serde(default)]
    limit: Option<u64>,
}

/// Number of bytes of a text.
struct TextBytes(u64);

impl<'de> Deserialize<'de> for TextBytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(deserializer)?.len() as u64))
    }
}

impl<'de> Deserialize<'de> for SessionRecord {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Each field's value is compacted by itself.
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}
