//! Restoring history that was written elsewhere, commit by commit.

use std::time::Duration;

use std::sync::Arc;

use crate::base::{Epoch, Error, Result, Seq, SessionId, SessionState};
use crate::commit::plan::planner::{Plan, check_limits, needed_blobs};
use crate::commit::{Commit, LeaseRequest};
use crate::event::Event;
use crate::event::payload::blobs::NamedBlobs;
use crate::event::payload::created::check_words;
use crate::model::{Counts, Lineage, Origin};
use crate::session::SessionRecord;

/// Stores the events of a commit as they were stored elsewhere.
pub(super) fn restore(now: Option<&SessionRecord>, commit: &Commit, events: &[Event]) -> Result<Plan> {
    let of = events.len();
    let (mut after, mut blobs) = (now.cloned(), Vec::new());
    for (n, event) in (1..).zip(events) {
        let in_place = event.commit == commit.id && event.n == n && event.of as usize == of;
        if !in_place {
            return Err(Error::invalid(format!(
                "event {} is not number {n} of the {of} of commit {}; restore whole commits",
                event.seq, commit.id
            )));
        }
        let applied = apply_untrusted(&mut after, commit.session, event);
        let named = applied.and_then(|()| {
            let named = NamedBlobs::of(&event.decode()?).with_given(&event.blobs)?;
            if named.iter().map(|blob| &blob.name).ne(&event.blobs) {
                return Err(Error::corrupt(format!(
                    "event {} does not name the blobs of its payload",
                    event.seq
                )));
            }
            Ok(named)
        });
        blobs.extend(named.map_err(|source| {
            Error::invalid(format!("event {} cannot be restored to session {}", event.seq, commit.session))
                .with_source(source)
        })?);
    }
    let after = after.filter(|_| of > 0);
    let after = after.ok_or_else(|| Error::invalid("a commit to be restored has no events"))?;
    if let Some(what) = &after.unsupported {
        return Err(Error::unsupported(format!(
            "session {} holds {what} of a newer version of this library; update it to restore it",
            after.id
        )));
    }
    check_limits(now, &after)?;
    let blobs = needed_blobs(after.id, blobs)?;
    Ok(Plan::Write { events: events.to_vec(), after: Arc::new(after), blobs })
}

/// Applies an event from an untrusted source; the first event is applied to no session.
///
/// # Errors
///
/// `Corrupt` if the event does not follow the last one, or contains a number or an origin that no log of this library
/// has.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::commit::apply_untrusted;
///
/// # let (store, effects, session) = session().await?;
/// let mut folded = None;
/// for event in store.read(session.id, ReadEvents::first(100)).await?.events {
///     apply_untrusted(&mut folded, session.id, &event)?;
/// }
/// assert_eq!(folded.as_ref(), Some(&*session));
/// # Ok(()) }
/// ```
pub fn apply_untrusted(after: &mut Option<SessionRecord>, id: SessionId, event: &Event) -> Result<()> {
    let before = after.as_ref().map_or(Epoch::ZERO, |session| session.epoch);
    let live = after.as_ref().and_then(|session| session.lease.as_ref()).map(|lease| lease.epoch);
    let session = match after {
        None => {
            let session = after.insert(SessionRecord::begin(id, event)?);
            check_origin(session)?;
            check_words(session.first_words.as_ref(), session.preview.as_ref()).map_err(|source| {
                Error::corrupt(format!("session {id} inherits text that no session has")).with_source(source)
            })?;
            session
        }
        Some(session) => {
            session.apply(event)?;
            session
        }
    };
    check_numbers(session, before, live)?;
    // Between the events of one commit, the state may be incomplete.
    if event.n == event.of { check_state(session) } else { Ok(()) }
}

/// Refuses a state with no way out: a run without a lease, or a wait without a question.
fn check_state(session: &SessionRecord) -> Result<()> {
    let state = session.status.state;
    let what = match state {
        SessionState::Running if session.lease.is_none() => "its lease has no holder",
        SessionState::RequiresAction if session.action.is_none() => "no question is open",
        SessionState::Newer => return Ok(()),
        _ if session.lease.is_some() && !state.may_hold_lease() => "its lease has a holder",
        _ => return Ok(()),
    };
    Err(Error::corrupt(format!("session {} is {state} at event {}, and {what}", session.id, session.head)))
}

/// Maximum increase of the epoch by one event: more than any commit causes, but too small for a log to reach the
/// maximum epoch.
const EPOCHS_PER_EVENT: u64 = 1 << 20;
/// Maximum sequence number: the largest integer that every JSON reader reads exactly.
const SEQ_MAX: u64 = (1 << 53) - 1;

/// Refuses a session with an origin or a lineage that is impossible. Only a store that holds the ancestors can check
/// the rest.
fn check_origin(session: &SessionRecord) -> Result<()> {
    let no = |what: &str| Err(Error::corrupt(format!("session {} {what}", session.id)));
    let lineage = &session.lineage;
    if session.origin.parent() == Some(session.id)
        || lineage.segments.iter().any(|segment| segment.session == session.id)
    {
        return no("names itself as its ancestor");
    }
    if session.origin.parent().is_none() && session.depth > 0 {
        return no("has a depth but no parent");
    }
    let grows = lineage.segments.is_sorted_by(|a, b| a.until < b.until);
    if lineage.segments.len() > Lineage::MAX_SEGMENTS || !grows {
        return no("has a lineage whose segments are not in order");
    }
    let base = lineage.base();
    match session.origin {
        Origin::Fork { at, .. } if at == base => Ok(()),
        Origin::Fork { .. } => no("is forked at an event that is not the end of its lineage"),
        _ if base == Seq::ZERO => Ok(()),
        _ => no("has a lineage but is not a fork"),
    }
}

/// Refuses numbers that no log of this library reaches.
///
/// A session could not continue to count from them, or would accept the writes of a run that has lost its lease.
fn check_numbers(session: &SessionRecord, before: Epoch, live: Option<Epoch>) -> Result<()> {
    let head = session.head;
    let no = |what: &str, number: u64| {
        Err(Error::corrupt(format!("session {} has {what} {number} at event {head}", session.id)))
    };
    if head.get() > SEQ_MAX {
        return no("the last event", head.get());
    }
    let epoch = session.epoch;
    if epoch < before || epoch.get() - before.get() > EPOCHS_PER_EVENT {
        return no("epoch", epoch.get());
    }
    if let Some(lease) = &session.lease {
        // A new lease has a new number, so that the holder of the previous one can write no more.
        if lease.epoch != epoch || (live != Some(epoch) && epoch == before) {
            return no("a lease of epoch", lease.epoch.get());
        }
        if lease.ttl_ms == 0 || Duration::from_millis(lease.ttl_ms) > LeaseRequest::MAX_TTL {
            return no("a lease for so many milliseconds:", lease.ttl_ms);
        }
    }
    if u64::from(session.attempts) > epoch.get() {
        return no("failed attempts:", session.attempts.into());
    }
    let waiting = session.action.as_ref().and_then(|action| action.seq);
    let places = [
        ("last_input", session.last_input),
        ("begun", session.begun),
        ("inputs_claimed_through", session.inputs_claimed_through),
        ("inputs_done_through", session.inputs_done_through),
        ("visible_from", session.visible_from),
        ("system_prompt", session.system_prompt),
        ("outcome", session.outcome),
        ("summary", session.summary),
        ("context_from", session.context_from),
        ("action.seq", waiting.unwrap_or_default()),
    ];
    if let Some((name, seq)) = places.iter().find(|(_, seq)| *seq > head) {
        return no(name, seq.get());
    }
    let Counts { user, agent, system, tool_calls, runs } = session.counts;
    // Each thing that is counted is an event, except runs: one event may record several.
    let counts = [
        ("inputs_open", session.inputs_open, head.get()),
        ("inputs_new", session.inputs_new, head.get()),
        ("counts.user", user, head.get()),
        ("counts.agent", agent, head.get()),
        ("counts.system", system, head.get()),
        ("counts.tool_calls", tool_calls, head.get()),
        ("counts.runs", runs, SEQ_MAX),
    ];
    if let Some((name, count, _)) = counts.iter().find(|(_, count, most)| count > most) {
        return no(name, *count);
    }
    for document in &session.documents {
        if document.seq > head || document.revision.get() > head.get() {
            return no("a document of version", document.revision.get());
        }
    }
    Ok(())
}
