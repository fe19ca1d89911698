//! Values of the rows of a session: its record, its labels, its events.

use std::collections::BTreeMap;

use agent_core::event::Event;
use agent_core::json::to_text;
use agent_core::model::NeededBlob;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::SessionState;
use agent_core::store::HiddenSession;
use agent_core::{BlobName, Error, OwnerId, Result, Timestamp};

use crate::medium::rows::{checksum, event_checksum, int};

/// Microseconds of a minute.
const MINUTE: i64 = 60_000_000;

/// Returns the time by which a session is listed: its last activity, cut to the minute, so that no index changes in each
/// commit.
pub(crate) fn listed_at(session: &SessionRecord) -> i64 {
    let at = session.last_active_at.as_micros();
    at - at.rem_euclid(MINUTE)
}

/// Returns what stands for a state in the index of lists.
pub(crate) const fn class(state: SessionState) -> &'static str {
    match state {
        SessionState::Archived => "archived",
        SessionState::Deleted => "ended",
        _ => "live",
    }
}

/// Returns whether few sessions are in a state, so that it has an index of its own.
pub(crate) const fn is_rare(state: SessionState) -> bool {
    matches!(state, SessionState::Failed | SessionState::Suspended | SessionState::Terminated)
}

/// Returns whether sessions in a state are in the table `due`, whether or not they are due at some time.
pub(crate) const fn is_waiting(state: SessionState) -> bool {
    matches!(
        state,
        SessionState::Initializing
            | SessionState::Queued
            | SessionState::Running
            | SessionState::RequiresAction
    )
}

/// Returns the owner as the rows have it: empty if there is none.
pub(crate) fn owner(session: &SessionRecord) -> &str {
    session.owner.as_ref().map_or("", OwnerId::as_str)
}

/// Returns whether all owners of the tenant use the session's data, if its workspace has no owner.
pub(crate) fn is_shared(session: &SessionRecord) -> bool {
    let hidden = HiddenSession::of(session.id, session.workspace, &session.attributes);
    session.owner.is_none() && hidden.is_some_and(|hidden| hidden != HiddenSession::Audit)
}

/// Returns whether the session has a row in the table `due`.
pub(crate) fn waits(session: &SessionRecord) -> bool {
    is_waiting(session.status.state) || session.next_due_at().is_some()
}

/// Returns when the session is due.
pub(crate) fn due_at(session: &SessionRecord) -> Option<i64> {
    session.next_due_at().map(Timestamp::as_micros)
}

/// Record and summary as texts, with their checksums.
#[derive(Debug)]
pub(crate) struct Texts {
    pub(crate) record_crc: i32,
    pub(crate) summary_crc: i32,
    pub(crate) record: String,
    pub(crate) summary: String,
}

impl Texts {
    pub(crate) fn of(tenant: &str, session: &SessionRecord) -> Self {
        let (id, record) = (session.id.to_string(), session.to_json());
        let summary = to_text(&SessionSummary::from(session));
        Self {
            record_crc: checksum(&[tenant, &id, &record]),
            summary_crc: checksum(&[tenant, &id, &summary]),
            record,
            summary,
        }
    }
}

/// Events of a commit, one vector for each column.
#[derive(Debug, Default)]
pub(crate) struct EventRows {
    pub(crate) seqs: Vec<i64>,
    pub(crate) types: Vec<String>,
    pub(crate) crcs: Vec<i32>,
    pub(crate) jsons: Vec<String>,
    /// Blobs that the events name, and the first event that names each.
    pub(crate) named: Vec<String>,
    pub(crate) named_by: Vec<i64>,
}

impl EventRows {
    fn of(tenant: &str, session: &str, events: &[Event]) -> Self {
        let (mut rows, mut named) = (Self::default(), BTreeMap::<BlobName, i64>::new());
        for event in events {
            let json = event.to_json();
            rows.seqs.push(int(event.seq.get()));
            rows.types.push(event.kind.as_str().to_owned());
            rows.crcs.push(event_checksum(tenant, session, event.seq, &json));
            rows.jsons.push(json);
            for name in &event.blobs {
                named.entry(*name).or_insert(int(event.seq.get()));
            }
        }
        for (name, by) in named {
            rows.named.push(name.to_string());
            rows.named_by.push(by);
        }
        rows
    }
}

/// Values of the rows that a commit writes, which are made before it is sent.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) texts: Texts,
    pub(crate) events: EventRows,
}

impl Rows {
    pub(crate) fn of(tenant: &str, events: &[Event], after: &SessionRecord) -> Self {
        let events = EventRows::of(tenant, &after.id.to_string(), events);
        Self { texts: Texts::of(tenant, after), events }
    }
}

/// Returns the blobs that a commit needs, one vector for each column.
pub(crate) fn needed(blobs: &[NeededBlob]) -> (Vec<String>, Vec<Option<i64>>) {
    blobs.iter().map(|blob| (blob.name.to_string(), blob.bytes.map(int))).unzip()
}

/// Returns the labels of a session, one vector for each column.
pub(crate) fn labels(session: &SessionRecord) -> (Vec<String>, Vec<String>) {
    session.attributes.labels.iter().map(|(key, value)| (key.clone(), value.clone())).unzip()
}

/// Draws the version of a record: from the system, since handles with the same seeded randomness would draw the same.
pub(crate) fn new_version() -> Result<i64> {
    loop {
        let number = getrandom::u64().map_err(|error| {
            Error::unavailable("the system gives no random numbers; try again").with_source(error)
        })?;
        if number != 0 {
            return Ok(number.cast_signed());
        }
    }
}
