//! Fold: the effect of each event on the record. Assigns values and checks no rules, so that a log always folds
//! alike.

use serde::Deserialize;

use crate::base::sealed::{is_sealed, key_of};
use crate::base::{
    Epoch, Error, RawFields, Reason, Result, Seq, SessionId, SessionState, Timestamp, TriggerKind,
    WorkspaceId,
};
use crate::event::payload::blobs::NamedBlobs;
use crate::event::payload::message::first_words;
use crate::event::{Created, Event, EventType};
use crate::model::{
    Actor, CallId, ContentBytes, Counts, OpenCall, OpenSpan, Patch, RecentCommit, SpanId, Status, Timer,
    TimerCancelled, Transition, UsageTotals, WORDS_MAX_BYTES,
};
use crate::session::created::NewSession;
use crate::session::record::{RECENT_COMMITS, SessionRecord};

/// Part of a tool call or result that the fold needs.
#[derive(Deserialize)]
struct Call {
    call: CallId,
}

/// Part of a text of the system that the fold needs.
#[derive(Deserialize)]
struct Custom {
    #[serde(default)]
    custom: bool,
}

/// What stands beside a [sealed](crate::sealing) payload for the fold.
#[derive(Deserialize)]
struct SealedCopies {
    #[serde(default)]
    words: Option<String>,
    #[serde(default)]
    bytes: Option<u64>,
    #[serde(default)]
    blob_bytes: Option<u64>,
}

/// Part of a compaction that the fold needs.
#[derive(Deserialize)]
struct Compacted {
    until: Seq,
}

/// Part of a span's start or end that the fold needs.
#[derive(Deserialize)]
struct Span {
    span: SpanId,
}

impl SessionRecord {
    /// Returns the record after a session's first event.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the event does not create a session, or has the wrong sequence number.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::session::SessionRecord;
    ///
    /// # let (store, effects, session) = greeted().await?;
    /// let events = store.read(session.id, ReadEvents::first(100)).await?.events;
    /// let mut folded = SessionRecord::begin(session.id, &events[0])?;
    /// for event in &events[1..] {
    ///     folded.apply(event)?;
    /// }
    /// assert_eq!(folded, *session);
    /// # Ok(()) }
    /// ```
    pub fn begin(id: SessionId, event: &Event) -> Result<Self> {
        if event.kind != EventType::SESSION_CREATED {
            return Err(Error::corrupt(format!(
                "session {id} begins with {}, not with {}",
                event.kind,
                EventType::SESSION_CREATED
            )));
        }
        let created: Created = payload(event)?;
        let base = created.lineage.base();
        let mut session = Self::empty(id, created, event.actor.clone(), event.at);
        session.sealed_by = key_of(&event.payload).map(str::to_owned);
        if event.seq != base.next() {
            return Err(Error::corrupt(format!(
                "session {id} begins with event {}, its lineage ends with {base}",
                event.seq
            )));
        }
        session.finish_event(event)?;
        Ok(session)
    }

    /// For backends: returns the tombstone of a session whose record or log is damaged, for
    /// [`Maintenance::delete_damaged`](crate::store::Maintenance::delete_damaged).
    ///
    /// `known` is the fold of the readable part of its log, and `last` the last event that is readable in any part.
    /// The tombstone keeps ids, owner, times, state and lineage.
    ///
    /// ```
    /// use agent_core::clock::Effects;
    /// use agent_core::session::SessionRecord;
    /// use agent_core::state::{Reason, SessionState};
    /// use agent_core::{Seq, WorkspaceId};
    ///
    /// let effects = Effects::default();
    /// let (id, last) = (effects.new_session_id(), Seq::new(12));
    /// let tombstone =
    ///     SessionRecord::tombstone_of_damaged(id, WorkspaceId::DEFAULT, None, last, effects.now(), Reason::StorageCorrupt);
    /// assert_eq!((tombstone.status.state, tombstone.head), (SessionState::Deleted, last));
    /// ```
    pub fn tombstone_of_damaged(
        id: SessionId,
        workspace: WorkspaceId,
        known: Option<&Self>,
        last: Seq,
        at: Timestamp,
        reason: Reason,
    ) -> Self {
        let mut created = NewSession::new(id, workspace).created;
        if let Some(known) = known {
            (created.origin, created.depth) = (known.origin, known.depth);
            created.lineage = known.lineage.clone();
            created.owner.clone_from(&known.owner);
        }
        let creator = known.map_or(Actor::SYSTEM, |known| known.creator.clone());
        let mut tombstone = Self::empty(id, created, creator, known.map_or(at, |known| known.created_at));
        tombstone.head = last.max(known.map_or(Seq::ZERO, |known| known.head)).max(tombstone.head);
        tombstone.status = Status::new(SessionState::Deleted, reason);
        tombstone.epoch = known.map_or(Epoch::ZERO, |known| known.epoch).next();
        tombstone.last_active_at = known.map_or(at, |known| known.last_active_at);
        (tombstone.updated_at, tombstone.ended_at) = (at, Some(at));
        tombstone.tombstone()
    }

    /// Returns the record of a session before its first event: what a fork has that shares nothing.
    pub(crate) fn before_first(now: &Self) -> Self {
        let mut created = NewSession::new(now.id, now.workspace).created;
        created.owner.clone_from(&now.owner);
        Self::empty(now.id, created, now.creator.clone(), now.created_at)
    }

    fn empty(id: SessionId, created: Created, creator: Actor, at: Timestamp) -> Self {
        let inherited = created.inherited;
        Self {
            id,
            workspace: created.workspace,
            owner: created.owner,
            sealed_by: None,
            head: created.lineage.base(),
            status: Status::new(SessionState::Initializing, Reason::Fresh),
            state_before_archive: None,
            origin: created.origin,
            depth: created.depth,
            lineage: created.lineage,
            creator,
            attributes: created.attributes,
            documents: inherited.documents,
            created_at: at,
            started_at: None,
            updated_at: at,
            last_active_at: at,
            ended_at: None,
            counts: inherited.counts,
            content_bytes: ContentBytes::default(),
            first_words: inherited.first_words,
            preview: inherited.preview,
            lease: None,
            epoch: Epoch::ZERO,
            stop_request: None,
            last_input: inherited.last_input,
            begun: Seq::ZERO,
            inputs_claimed_through: inherited.inputs_done_through,
            inputs_done_through: inherited.inputs_done_through,
            inputs_open: inherited.inputs_open,
            inputs_new: 0,
            visible_from: inherited.visible_from,
            system_prompt: inherited.system_prompt,
            outcome: inherited.outcome,
            usage: UsageTotals::default(),
            summary: inherited.summary,
            context_from: inherited.context_from,
            open_calls: Vec::new(),
            open_spans: Vec::new(),
            action: None,
            timers: Vec::new(),
            attempts: 0,
            ready_at: None,
            failure: None,
            reported: None,
            recent: Vec::new(),
            import_end: None,
            unsupported: None,
            extra: RawFields::default(),
        }
    }

    /// Applies the next event of the log.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the event is not the next one, or a payload that the record depends on cannot be decoded. The
    /// record must then be discarded.
    pub fn apply(&mut self, event: &Event) -> Result<()> {
        self.check_place(event)?;
        match event.kind.as_str() {
            "user.message" => self.user_message(event),
            "user.define_outcome" => {
                self.outcome = event.seq;
                self.input(event.seq);
            }
            "agent.message" => {
                add_one(&mut self.counts.agent);
                self.words(event);
            }
            "agent.tool_use" => self.open_call(event, false)?,
            "agent.custom_tool_use" => self.open_call(event, true)?,
            "agent.tool_result" | "user.custom_tool_result" => {
                let Call { call } = payload(event)?;
                self.open_calls.retain(|open| open.call != call);
            }
            "system.message" => {
                add_one(&mut self.counts.system);
                if payload::<Custom>(event)?.custom {
                    self.system_prompt = event.seq;
                }
            }
            "span.started" => {
                let Span { span } = payload(event)?;
                self.open_spans.push(OpenSpan { span, seq: event.seq });
            }
            "span.completed" => {
                let Span { span } = payload(event)?;
                self.open_spans.retain(|open| open.span != span);
            }
            "session.updated" => self.attributes.apply(&payload::<Patch>(event)?),
            "session.document_written" => self.document_written(payload(event)?, event),
            "session.run_usage" => self.usage.add(&payload(event)?),
            "session.history_cleared" => {
                self.visible_from = event.seq;
                (self.summary, self.context_from) = (Seq::ZERO, Seq::ZERO);
                (self.first_words, self.preview) = (None, None);
                self.counts = Counts { runs: self.counts.runs, ..Counts::default() };
            }
            "session.compacted" => {
                self.context_from = payload::<Compacted>(event)?.until;
                self.summary = event.seq;
            }
            "session.timer_scheduled" => self.timer_scheduled(Timer { seq: event.seq, ..payload(event)? }),
            "session.timer_cancelled" => {
                let TimerCancelled { key } = payload(event)?;
                self.timers.retain(|timer| timer.key != key);
            }
            "session.reported" => self.reported = Some(payload(event)?),
            newer if event.kind.is_of("session") && !event.kind.is_known() => {
                self.unsupported = Some(format!("event type {newer}"));
            }
            _ => {}
        }
        self.count_bytes(event)?;
        self.finish_event(event)
    }

    /// Counts what an event stores. Reads the payload only if it refers to blobs.
    fn count_bytes(&mut self, event: &Event) -> Result<()> {
        let bytes = &mut self.content_bytes;
        let of_kind = match event.kind.as_str() {
            "user.message" | "user.define_outcome" | "agent.message" | "agent.part" | "system.message" => {
                Some(&mut bytes.texts)
            }
            "agent.tool_result" | "user.custom_tool_result" => Some(&mut bytes.tool_results),
            "agent.thinking" => Some(&mut bytes.reasoning),
            _ => None,
        };
        if of_kind.is_none() && event.blobs.is_empty() {
            return Ok(());
        }
        let (content, blobs) = if is_sealed(&event.payload) {
            let copies: SealedCopies = payload(event)?;
            (copies.bytes.unwrap_or_default(), copies.blob_bytes.unwrap_or_default())
        } else {
            let has_blobs = !event.blobs.is_empty();
            let blobs = if has_blobs { NamedBlobs::of(&event.decode()?).bytes() } else { 0 };
            (event.payload.get().len() as u64, blobs)
        };
        if let Some(of_kind) = of_kind {
            *of_kind = of_kind.saturating_add(content);
        }
        bytes.blobs = bytes.blobs.saturating_add(blobs);
        Ok(())
    }

    fn user_message(&mut self, event: &Event) {
        add_one(&mut self.counts.user);
        self.words(event);
        self.input(event.seq);
    }

    /// Keeps the first words of a message for lists.
    fn words(&mut self, event: &Event) {
        let words = match is_sealed(&event.payload) {
            true => payload::<SealedCopies>(event).ok().and_then(|copies| copies.words),
            false => first_words(&event.payload, WORDS_MAX_BYTES),
        };
        let Some(words) = words else { return };
        if event.kind == EventType::USER_MESSAGE && self.first_words.is_none() {
            self.first_words = Some(words.clone());
        }
        self.preview = Some(words);
    }

    fn check_place(&self, event: &Event) -> Result<()> {
        let (id, seq, next) = (self.id, event.seq, self.head.next());
        if seq != next || next <= self.head {
            return Err(Error::corrupt(format!(
                "session {id}: event {seq} is in the place of event {next}; run `verify`"
            )));
        }
        match event.kind == EventType::SESSION_CREATED {
            true => Err(Error::corrupt(format!("event {seq} creates session {id} a second time"))),
            false => Ok(()),
        }
    }

    /// Updates what every event changes: the head, the times, the recent commits, the status.
    fn finish_event(&mut self, event: &Event) -> Result<()> {
        self.head = event.seq;
        self.updated_at = event.at;
        self.last_active_at = self.last_active_at.max(event.at);
        self.import_end = event.import_end().or(self.import_end).filter(|end| event.seq < *end);
        match self.recent.last_mut() {
            Some(last) if last.id == event.commit => last.last = event.seq,
            _ => {
                if self.recent.len() == RECENT_COMMITS {
                    self.recent.remove(0);
                }
                let (first, last) = (event.seq, event.seq);
                self.recent.push(RecentCommit { id: event.commit, first, last, epoch: None });
            }
        }
        if let Some(transition) = event.transition()? {
            self.assign(&transition, event.at);
        }
        Ok(())
    }

    /// Assigns the fields of a transition of the event at the head.
    pub(crate) fn assign(&mut self, t: &Transition, at: Timestamp) {
        self.status = Status::new(t.to, t.reason);
        macro_rules! assign {
            ($($name:ident)*) => { $(if let Some(value) = &t.$name { self.$name.clone_from(value); })* };
        }
        assign!(state_before_archive lease epoch stop_request inputs_claimed_through inputs_done_through inputs_open inputs_new action attempts ready_at failure ended_at);
        if let Some(Some(lease)) = &t.lease {
            self.epoch = lease.epoch;
            if let Some(commit) = self.recent.last_mut() {
                commit.epoch = Some(lease.epoch);
            }
            if t.to == SessionState::Running {
                self.begun = self.head;
                self.started_at.get_or_insert(at);
                add_one(&mut self.counts.runs);
            }
        }
        if let Some(done) = t.timers_done {
            let unseen = |timer: &Timer| t.timers_seen.is_some_and(|seen| timer.seq > seen);
            self.timers.retain(|timer| timer.at > done || unseen(timer));
        }
        let newer = [
            (t.to == SessionState::Newer || t.from == SessionState::Newer, "a session state"),
            (t.reason == Reason::Newer, "a reason"),
            (t.trigger == TriggerKind::Newer, "a trigger"),
        ];
        if let Some((_, what)) = newer.iter().find(|(is_newer, _)| *is_newer) {
            self.unsupported = Some((*what).to_owned());
        }
        if let Some(name) = t.unknown.keys().next() {
            self.unsupported = Some(format!("transition field {name}"));
        }
    }

    fn input(&mut self, seq: Seq) {
        self.last_input = seq;
        add_one(&mut self.inputs_open);
        add_one(&mut self.inputs_new);
    }

    fn timer_scheduled(&mut self, timer: Timer) {
        self.timers.retain(|other| other.key != timer.key);
        self.timers.push(timer);
    }

    fn open_call(&mut self, event: &Event, custom: bool) -> Result<()> {
        let Call { call } = payload(event)?;
        add_one(&mut self.counts.tool_calls);
        self.open_calls.push(OpenCall { call, seq: event.seq, custom });
        Ok(())
    }
}

/// Adds one; saturates, since counts in a log are data and may have any value.
fn add_one(count: &mut u64) {
    *count = count.saturating_add(1);
}

fn payload<T: serde::de::DeserializeOwned>(event: &Event) -> Result<T> {
    event.payload.to().map_err(|source| {
        Error::corrupt(format!("event {} has a payload that is no {}", event.seq, event.kind))
            .with_source(source)
    })
}
