//! Point at which a session is forked.

use crate::base::{Error, ErrorKind, Result, Seq, SessionId, SessionState, TriggerKind, target};
use crate::session::{Fork, ForkPoint, NewSession, SessionRecord};
use crate::store::history;
use crate::store::session::SessionStore;

/// Returns the request that creates `child` as a fork of the session `now`.
pub(crate) async fn planned(
    store: &dyn SessionStore,
    now: &SessionRecord,
    child: SessionId,
    fork: Fork,
) -> Result<NewSession> {
    let new = |past: &SessionRecord| match (NewSession::fork(child, past), fork.open_inputs) {
        (new, true) => new.with_open_inputs(past),
        (new, false) => new,
    };
    check(now)?;
    if let ForkPoint::At(seq) | ForkPoint::After(seq) | ForkPoint::Before(seq) = fork.point
        && (seq == Seq::ZERO || seq > now.head)
    {
        return Err(Error::invalid(format!(
            "session {} has the events 1 to {}; it cannot be forked at {seq}",
            now.id, now.head
        )));
    }
    let (at, is_exact) = match fork.point {
        ForkPoint::Last => (now.pair_safe_head(), false),
        ForkPoint::At(at) => (at, true),
        ForkPoint::After(seq) => (history::commit_of(store, now, seq).await?.1, true),
        ForkPoint::Before(seq) => (history::commit_of(store, now, seq).await?.0, false),
    };
    if at == now.head && now.open_calls.is_empty() {
        return Ok(new(now));
    }
    let mut past = match at {
        Seq::ZERO if matches!(fork.point, ForkPoint::Before(_)) => SessionRecord::before_first(now),
        at => record_at(store, now, at, is_exact).await?,
    };
    // Attributes belong to the session, not to a point in its history.
    past.attributes = now.attributes.clone();
    past.lineage = now.lineage.clone();
    past.id = now.id;
    past.depth = now.depth;
    Ok(new(&past))
}

/// Checks that the state of the session allows a fork.
fn check(now: &SessionRecord) -> Result<()> {
    if target(now.status.state, TriggerKind::Fork).is_some() {
        return Ok(());
    }
    let kind = match now.status.state {
        SessionState::Deleted => ErrorKind::Deleted,
        from => ErrorKind::InvalidTransition { from, trigger: TriggerKind::Fork },
    };
    Err(Error::new(kind, format!("session {} is {}; it cannot be forked", now.id, now.status)))
}

/// Returns the record as it was at event `at`, or at the last event before it that ends a commit and at which no tool
/// call is open; only there if `is_exact` is true.
async fn record_at(
    store: &dyn SessionStore,
    now: &SessionRecord,
    mut at: Seq,
    is_exact: bool,
) -> Result<SessionRecord> {
    let open_call = |at: Seq, safe: Seq| {
        let safe = if safe > Seq::ZERO { format!("at {safe} or ") } else { String::new() };
        Err(Error::invalid(format!(
            "a tool call is open at event {at} of session {}; fork {safe}after its result",
            now.id
        )))
    };
    if let Some((before, after)) = history::inside_commit(store, now, at).await? {
        if is_exact {
            let before = if before > Seq::ZERO { format!("{before} or ") } else { String::new() };
            return Err(Error::invalid(format!(
                "event {at} of session {} is inside a commit; fork at {before}{after}",
                now.id
            )));
        }
        if before == Seq::ZERO {
            return open_call(after, before);
        }
        at = before;
    }
    let mut past = history::fold_to(store, now, at).await?;
    // A call that was closed since may have been open where the first of the open ones was made.
    while !past.open_calls.is_empty() {
        let safe = history::commit_end_before(store, now, past.pair_safe_head()).await?;
        if is_exact || safe == Seq::ZERO {
            return open_call(at, safe);
        }
        at = safe;
        past = history::fold_to(store, now, at).await?;
    }
    Ok(past)
}
