//! History that was written elsewhere, restored commit by commit as it was.

use std::time::Duration;

use std::sync::Arc;

use crate::base::{Epoch, Error, ErrorKind, Result, Seq, SessionId, SessionState};
use crate::commit::plan::planner::{Plan, check_limits};
use crate::commit::{Commit, LeaseRequest};
use crate::event::Event;
use crate::model::{Counts, Lineage, Origin};
use crate::session::Session;

/// Stores the events of a commit as they were stored elsewhere.
pub(super) fn restore(now: Option<&Session>, commit: &Commit, events: &[Event]) -> Result<Plan> {
    let of = events.len();
    let mut after = now.cloned();
    for (n, event) in (1..).zip(events) {
        let in_place = event.commit == commit.id && event.n == n && event.of as usize == of;
        if !in_place {
            return Err(Error::invalid(format!(
                "event {} is not number {n} of the {of} of commit {}; restore whole commits",
                event.seq, commit.id
            )));
        }
        let applied = apply_untrusted(&mut after, commit.session, event);
        applied.and_then(|()| event.body().map(drop)).map_err(|source| {
            Error::invalid(format!("event {} cannot be restored to session {}", event.seq, commit.session))
                .with_source(source)
        })?;
    }
    let after = after.filter(|_| of > 0);
    let after = after.ok_or_else(|| Error::invalid("a commit to be restored has no events"))?;
    if let Some(what) = &after.newer {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "session {} holds {what} of a newer version of this library; update it to restore it",
                after.id
            ),
        ));
    }
    check_limits(now, &after)?;
    Ok(Plan::Write { events: events.to_vec(), after: Arc::new(after) })
}

/// Applies an event that a stranger may have written, the first one to no session.
///
/// # Errors
///
/// `Corrupt` if it does not follow, or brings a number or an origin that no log of this library has.
pub fn apply_untrusted(after: &mut Option<Session>, id: SessionId, event: &Event) -> Result<()> {
    let before = after.as_ref().map_or(Epoch::ZERO, |session| session.epoch);
    let live = after.as_ref().and_then(|session| session.lease.as_ref()).map(|lease| lease.epoch);
    let session = match after {
        None => {
            let session = after.insert(Session::begin(id, event)?);
            check_origin(session)?;
            session
        }
        Some(session) => {
            session.apply(event)?;
            session
        }
    };
    check_numbers(session, before, live)?;
    // Within a commit one event may say the half of it.
    if event.n == event.of { check_state(session) } else { Ok(()) }
}

/// Refuses a state that nothing leads out of: a run that nobody holds, or a question that nobody asked.
fn check_state(session: &Session) -> Result<()> {
    let state = session.status.state;
    let what = match state {
        SessionState::Running if session.lease.is_none() => "nobody holds its lease",
        SessionState::RequiresAction if session.action.is_none() => "no question is open",
        SessionState::Newer => return Ok(()),
        _ if session.lease.is_some() && !state.may_hold_lease() => "somebody holds its lease",
        _ => return Ok(()),
    };
    Err(Error::corrupt(format!("session {} is {state} at event {}, and {what}", session.id, session.head)))
}

/// By how much one event may raise the epoch: more than any commit does, and so little that no log reaches the last one.
const EPOCHS_PER_EVENT: u64 = 1 << 20;
/// The largest number of an event: what every reader of JSON reads exactly.
const SEQ_MAX: u64 = (1 << 53) - 1;

/// Refuses a session that says of its ancestors what cannot be. Only whoever has these can tell whether the rest is true.
fn check_origin(session: &Session) -> Result<()> {
    let no = |what: &str| Err(Error::corrupt(format!("session {} {what}", session.id)));
    let lineage = &session.lineage;
    if session.origin.parent() == Some(session.id)
        || lineage.segments.iter().any(|segment| segment.session == session.id)
    {
        return no("is made from itself");
    }
    if session.origin.parent().is_none() && session.depth > 0 {
        return no("is of a depth, and made from no other");
    }
    let grows = lineage.segments.is_sorted_by(|a, b| a.until < b.until);
    if lineage.segments.len() > Lineage::MAX_SEGMENTS || !grows {
        return no("has a lineage that does not grow");
    }
    let base = lineage.base();
    match session.origin {
        Origin::Fork { at, .. } if at == base => Ok(()),
        Origin::Fork { .. } => no("is forked at another event than its lineage ends with"),
        _ if base == Seq::ZERO => Ok(()),
        _ => no("has a lineage, and is no fork"),
    }
}

/// Refuses numbers that no log of this library comes to: from these the session could not be counted on, or would take a run
/// that was taken over for the newest.
fn check_numbers(session: &Session, before: Epoch, live: Option<Epoch>) -> Result<()> {
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
        // One that begins has a number of its own, so that the one before it can write no more.
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
        ("taken", session.taken),
        ("handled", session.handled),
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
    // Of what is counted each is an event, but for runs: one event may tell of several.
    let counts = [
        ("pending", session.pending, head.get()),
        ("arrived", session.arrived, head.get()),
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
