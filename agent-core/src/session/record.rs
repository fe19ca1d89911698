//! A session's record: the fold of its events, bounded in size. Every field of it can be rebuilt from the log.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::id::{Epoch, Revision, Seq, SessionId, WorkspaceId};
use crate::base::json::{JsonFault, RawFields, is_default, size_bytes, to_text};
use crate::base::state::{Reason, SessionState};
use crate::base::timestamp::Timestamp;
use crate::event::header::Event;
use crate::event::payload::document::DocumentWritten;
use crate::model::actor::{Actor, Role};
use crate::model::attributes::Attributes;
use crate::model::document::{DOCUMENT_MAX_BYTES, DocumentHead};
use crate::model::ledger::{CURRENCIES_MAX, RunUsage, UsageTotals};
use crate::model::lineage::Lineage;
use crate::model::parts::{
    Counts, Failure, Lease, OpenCall, OpenSpan, Origin, PendingAction, RecentCommit, Reported, Request,
    Status,
};
use crate::model::wake::Wake;

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
    /// The documents that it holds, without their texts.
    pub documents: Vec<DocumentHead>,
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
    /// The event with which the present or the last run began.
    pub begun: Seq,
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
    /// The event with the outcome that was defined last; zero where none was.
    pub outcome: Seq,
    /// What its own runs used, where that is kept.
    pub usage: UsageTotals,
    /// The event with the summary that a model is given in place of older history; zero where there is none.
    pub summary: Seq,
    /// What that summary does not stand for lies after this; moved by compaction.
    pub context_from: Seq,
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
    /// For a child: what its parent has been told of it.
    pub reported: Option<Reported>,
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
        Self {
            id: self.id,
            workspace: self.workspace,
            head: self.head,
            status: self.status,
            before: self.before,
            origin: self.origin,
            depth: self.depth,
            lineage: self.lineage.clone(),
            creator: self.creator.without_name(),
            attributes: Attributes::default(),
            documents: Vec::new(),
            created_at: self.created_at,
            started_at: self.started_at,
            updated_at: self.updated_at,
            last_active_at: self.last_active_at,
            ended_at: self.ended_at,
            counts: self.counts,
            lease: None,
            epoch: self.epoch,
            requested: None,
            last_input: self.last_input,
            begun: self.begun,
            taken: self.taken,
            handled: self.handled,
            pending: self.pending,
            arrived: self.arrived,
            visible_from: self.visible_from,
            system_prompt: self.system_prompt,
            outcome: self.outcome,
            usage: UsageTotals::default(),
            summary: self.summary,
            context_from: self.context_from,
            open_calls: Vec::new(),
            open_spans: Vec::new(),
            action: None,
            wakes: Vec::new(),
            attempts: self.attempts,
            ready_at: self.ready_at,
            failure: None,
            reported: self.reported,
            recent: self.recent.clone(),
            newer: None,
            extra: RawFields::new(),
        }
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
        let mut f: RawFields = serde_json::from_str(text).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the text is not a session record: {fault}")).with_source(fault)
        })?;
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
            documents: f.or_default("documents")?,
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
            begun: f.or_default("begun")?,
            taken: f.or_default("taken")?,
            handled: f.or_default("handled")?,
            pending: f.or_default("pending")?,
            arrived: f.or_default("arrived")?,
            visible_from: f.or_default("visible_from")?,
            system_prompt: f.or_default("system_prompt")?,
            outcome: f.or_default("outcome")?,
            usage: f.or_default("usage")?,
            summary: f.or_default("summary")?,
            context_from: f.or_default("context_from")?,
            open_calls: f.or_default("open_calls")?,
            open_spans: f.or_default("open_spans")?,
            action: f.take("action")?,
            wakes: f.or_default("wakes")?,
            attempts: f.or_default("attempts")?,
            ready_at: f.take("ready_at")?,
            failure: f.take("failure")?,
            reported: f.take("reported")?,
            recent: f.or_default("recent")?,
            newer: f.take("newer")?,
            extra: f,
        })
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
        unless_default!(attributes documents);
        always!(created_at);
        unless_default!(started_at);
        always!(updated_at last_active_at);
        unless_default!(ended_at counts lease epoch requested last_input begun taken handled pending arrived visible_from);
        unless_default!(system_prompt outcome usage summary context_from open_calls open_spans action wakes attempts);
        unless_default!(ready_at failure reported recent newer);
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Session {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Each field's value is compacted by itself.
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}
