//! A session's record: the fold of its events, bounded in size. Every field of it can be rebuilt from the log.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::base::{
    Epoch, Error, ErrorKind, JsonFault, RawFields, Reason, Result, Revision, Seq, SessionId, SessionState,
    Timestamp, WorkspaceId, is_default, size_bytes, to_text,
};
use crate::event::{DocumentWritten, Event};
use crate::model::{
    Actor, Attributes, CURRENCIES_MAX, Counts, DOCUMENT_MAX_BYTES, DocumentHead, Failure, Lease, Lineage,
    OpenCall, OpenSpan, Origin, PendingAction, RecentCommit, Reported, Request, Role, RunUsage, Status,
    UsageTotals, Wake,
};

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

/// The record from one table: name and type of each field, whether it is stored `always` or `unless_default`, and whether
/// it is `kept` or `removed` when the session is purged.
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
        /// A session: what its events come to.
        ///
        /// The record is derived. [`Session::apply`] makes it from the log; a backend that keeps it beside the log keeps a
        /// cache.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Session {
            $($(#[$doc])* pub $name: $type,)*
            /// Fields of the record that this version does not know.
            pub extra: RawFields,
        }

        /// The record without what a purge removes.
        fn without_content(session: &Session) -> Session {
            Session { $($name: record!(@keep $fate session.$name),)* extra: RawFields::new() }
        }

        fn read(mut fields: RawFields) -> Result<Session> {
            Ok(Session { $($name: record!(@read $form fields $name),)* extra: fields })
        }

        impl Serialize for Session {
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
    /// Its id.
    id: SessionId, always, kept;
    /// The workspace that it belongs to.
    workspace: WorkspaceId, always, kept;
    /// Its last event.
    head: Seq, always, kept;
    /// Its state, and why.
    status: Status, always, kept;
    /// What it was before it was archived.
    before: Option<Status>, unless_default, kept;
    /// How it came to be.
    origin: Origin, unless_default, kept;
    /// How many sessions there are between it and one that came from nothing.
    depth: u32, unless_default, kept;
    /// Where the older part of its history lies.
    lineage: Lineage, unless_default, kept;
    /// Who created it.
    creator: Actor, always, kept;
    /// Title, labels, metadata, references, resources.
    attributes: Attributes, unless_default, removed;
    /// The documents that it holds, without their texts.
    documents: Vec<DocumentHead>, unless_default, removed;
    /// When it was created.
    created_at: Timestamp, always, kept;
    /// When its first run began.
    started_at: Option<Timestamp>, unless_default, kept;
    /// When its last event was sealed, by that writer's clock.
    updated_at: Timestamp, always, kept;
    /// The latest time of any of its events; never steps back.
    last_active_at: Timestamp, always, kept;
    /// When it was terminated or deleted.
    ended_at: Option<Timestamp>, unless_default, kept;
    /// How many events of each kind it shows.
    counts: Counts, unless_default, kept;
    /// Who runs it.
    lease: Option<Lease>, unless_default, removed;
    /// The number of its newest lease.
    epoch: Epoch, unless_default, kept;
    /// What its run was asked to do.
    requested: Option<Request>, unless_default, removed;
    /// Its last input.
    last_input: Seq, unless_default, kept;
    /// The event with which the present or the last run began.
    begun: Seq, unless_default, kept;
    /// The last input that the present or the last run took up.
    taken: Seq, unless_default, kept;
    /// The last input that is done with.
    handled: Seq, unless_default, kept;
    /// How many inputs are not done with.
    pending: u64, unless_default, kept;
    /// How many inputs arrived after `taken`.
    arrived: u64, unless_default, kept;
    /// What is visible lies after this; moved by clearing.
    visible_from: Seq, unless_default, kept;
    /// The event with the custom system prompt in force; zero where there is none.
    system_prompt: Seq, unless_default, kept;
    /// The event with the outcome that was defined last; zero where none was.
    outcome: Seq, unless_default, kept;
    /// What its own runs used, where that is kept.
    usage: UsageTotals, unless_default, removed;
    /// The event with the summary that a model is given in place of older history; zero where there is none.
    summary: Seq, unless_default, kept;
    /// What that summary does not stand for lies after this; moved by compaction.
    context_from: Seq, unless_default, kept;
    /// Tool calls without a result.
    open_calls: Vec<OpenCall>, unless_default, removed;
    /// Spans without an end.
    open_spans: Vec<OpenSpan>, unless_default, removed;
    /// What it waits for.
    action: Option<PendingAction>, unless_default, removed;
    /// When it wants to run.
    wakes: Vec<Wake>, unless_default, removed;
    /// How often in a row a run of the same input failed.
    attempts: u32, unless_default, kept;
    /// When it may run again, after a failed run.
    ready_at: Option<Timestamp>, unless_default, kept;
    /// Why its last run, or it, failed.
    failure: Option<Failure>, unless_default, removed;
    /// For a child: what its parent has been told of it.
    reported: Option<Reported>, unless_default, kept;
    /// Its last commits, oldest first.
    recent: Vec<RecentCommit>, unless_default, kept;
    /// What of its log this version does not know and cannot go past: a type or a state. Commits are refused.
    newer: Option<String>, unless_default, removed;
}

impl Session {
    /// Whether inputs or wakes wait.
    pub fn has_open_work(&self) -> bool {
        self.last_input > self.handled || !self.wakes.is_empty()
    }

    /// When it wants somebody to come: a queued session its run, one that waits for an answer the end of its wait, a child
    /// that has come to rest that its parent is told.
    /// `None` where nobody needs to come by a time.
    ///
    /// What may run at once says [`Timestamp::UNIX_EPOCH`], and not when it came: a writer whose clock is a day ahead
    /// must not hold an input up for a day. An input of a failed run says when it may be tried again, a wake when it is
    /// due. By this lists are made that are asked for what is [due](crate::store::session::SessionQuery::due).
    pub fn due_at(&self) -> Option<Timestamp> {
        match self.status.state {
            SessionState::Queued => self.runs_from(),
            SessionState::RequiresAction => self.action.as_ref()?.expires_at,
            _ => self.to_report().map(|_| Timestamp::UNIX_EPOCH),
        }
    }

    /// For a child that has come to rest or ended: what its parent is still to be told.
    pub fn to_report(&self) -> Option<Reported> {
        let rests =
            matches!(self.status.state, SessionState::Idle | SessionState::Failed | SessionState::Terminated);
        if !rests || !matches!(self.origin, Origin::Child { .. }) {
            return None;
        }
        let now = Reported { at: self.begun.max(self.handled), state: self.status.state };
        let told = self.reported.unwrap_or(Reported { at: Seq::ZERO, state: SessionState::Idle });
        let ended = now.state != SessionState::Idle && now.state != told.state;
        (now.at > told.at || ended).then_some(now)
    }

    /// From when on it may run, if it is queued.
    pub(crate) fn runs_from(&self) -> Option<Timestamp> {
        let at_once = Timestamp::UNIX_EPOCH;
        let input = (self.last_input > self.handled).then(|| self.ready_at.unwrap_or(at_once));
        let wakes = self.wakes.iter().map(|wake| match self.ready_at {
            // What a failed run was for waits with it; what came later does not.
            Some(ready_at) if wake.seq <= self.begun => wake.at.max(ready_at),
            _ => wake.at,
        });
        wakes.chain(input).chain(self.is_answered().then_some(at_once)).min()
    }

    /// Whether what it waited for has been answered, or given up, and no run has taken that up.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.status.reason, Reason::ActionResolved | Reason::ActionTimedOut)
    }

    /// The wakes that the present run is for: those that were scheduled before it began, and due then.
    pub fn woken_by(&self) -> impl Iterator<Item = &Wake> {
        let since = self.lease.as_ref().map(|lease| lease.since);
        let begun = self.begun;
        self.wakes.iter().filter(move |wake| since.is_some_and(|since| wake.at <= since) && wake.seq <= begun)
    }

    /// The last event at which its history may be cut: no tool call is open there.
    pub fn pair_safe_head(&self) -> Seq {
        match self.open_calls.iter().map(|open| open.seq).min() {
            Some(first) => Seq::new(first.get().saturating_sub(1)),
            None => self.head,
        }
    }

    /// For backends: what is left of the record of a deleted session when it is [purged](crate::store::session::SessionStore::purge).
    ///
    /// Keeps its id and workspace, its head and state, how it came to be and its lineage, its times, the ids of its last
    /// commits, and numbers: of messages, of events, of its newest lease. Nothing that a person, a model or a host wrote
    /// stays: no title, labels, metadata, references, resources, mounts, handles, documents, names of actors, calls,
    /// wakes, questions, failures, currencies or unknown fields.
    #[must_use]
    pub fn tombstone(&self) -> Self {
        Self { creator: self.creator.without_name(), ..without_content(self) }
    }

    /// What commits have filled of the record, in bytes of JSON.
    pub(crate) fn content_bytes(&self) -> usize {
        let open = (&self.open_calls, &self.open_spans, &self.wakes, &self.action);
        size_bytes(&(&self.attributes, open, &self.documents, &self.extra))
    }

    /// The record as JSON.
    pub fn to_json(&self) -> String {
        to_text(self)
    }

    /// Reads a record from its JSON form; fields that this version does not know are kept.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is not a record.
    pub fn from_json(text: &str) -> Result<Self> {
        let fields = serde_json::from_str(text).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the text is not a session record: {fault}")).with_source(fault)
        })?;
        read(fields)
    }

    /// What the record knows of the document `name`.
    pub fn document(&self, name: &str) -> Option<&DocumentHead> {
        self.documents.iter().find(|head| head.name == name)
    }

    /// Applies a version. Never refuses: what was accepted once folds for ever.
    pub(crate) fn document_written(&mut self, written: DocumentWritten, event: &Event) {
        let at = self.documents.iter().position(|head| head.name == written.name);
        let Some(text) = written.text else {
            at.map(|at| self.documents.remove(at));
            return;
        };
        let limit = written.limit.or_else(|| self.documents.get(at?)?.limit);
        let head = DocumentHead {
            name: written.name,
            revision: written.revision,
            seq: event.seq,
            bytes: text.len() as u64,
            by: event.actor.role(),
            format: written.format,
            limit,
        };
        match at.and_then(|at| self.documents.get_mut(at)) {
            Some(slot) => *slot = head,
            None => self.documents.push(head),
        }
    }

    /// Checks that a version by `role` follows what there is: that it takes nothing away that its writer had not
    /// seen, that the system does not write over what an agent or a person wrote, and that it is not too long.
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
                "document {name} of session {id} was written by the {}; the system does not write over that",
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

    /// Checks that a run's usage leaves the sums bounded.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` for a cost in one currency more than are [kept](crate::model::CURRENCIES_MAX).
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

impl<'de> Deserialize<'de> for Session {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Each field's value is compacted by itself.
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}
