//! Position up to which a summary may replace the history.

use std::borrow::Cow;

use crate::base::{Error, Result, Seq};
use crate::event::{Compaction, EventType};
use crate::session::SessionRecord;
use crate::store::history;
use crate::store::read::ReadEvents;
use crate::store::session::SessionStore;

/// Types of inputs.
const INPUTS: [EventType; 2] = [EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME];

/// Returns the compaction with which a new summary replaces the events up to `until`, if that is safe.
///
/// Without `until`, up to the last end of a commit at which no tool call is open and every input is answered.
///
/// # Errors
///
/// Those of [`Sessions::compact`](crate::Sessions::compact).
pub(crate) async fn compaction(
    store: &dyn SessionStore,
    now: &SessionRecord,
    until: Option<Seq>,
    summary: String,
) -> Result<Compaction> {
    let from = now.visible_from.max(now.context_from);
    if until.is_some_and(|until| until <= from || until > now.head) {
        return Err(nothing(now, until.unwrap_or(from)));
    }
    let most = answered_through(store, now, from).await?;
    if let Some(until) = until
        && until > most
    {
        return Err(Error::invalid(format!(
            "the input at event {} of session {} is not answered yet; compact up to {most} at most",
            most.next(),
            now.id
        )));
    }
    let (at, past) = safe_end(store, now, from, (until.unwrap_or(most), until.is_some())).await?;
    let inputs = open_inputs(store, now, &past, at).await?;
    let claimed = past.inputs_claimed_through.max(past.inputs_done_through).min(at);
    Ok(Compaction::new(at, summary).with_inputs(inputs, claimed))
}

fn nothing(now: &SessionRecord, at: Seq) -> Error {
    Error::invalid(format!(
        "session {} has the events 1 to {}; those up to {at} are compacted already, or cannot be yet",
        now.id, now.head
    ))
}

/// Returns the last event after `from` before which every input is answered.
async fn answered_through(store: &dyn SessionStore, now: &SessionRecord, from: Seq) -> Result<Seq> {
    let open = ReadEvents::first(1).with_after(now.inputs_done_through.max(from)).with_types(INPUTS);
    let page = history::part_of(store, now.id, now.head, now.lineage.clone(), open).await?;
    Ok(page.events.first().map_or(now.head, |event| Seq::new(event.seq.get().saturating_sub(1))))
}

/// Returns the last end of a commit up to `at` at which no tool call is open, and the record there. An `exact` position is
/// that end, or is refused.
async fn safe_end<'a>(
    store: &dyn SessionStore,
    now: &'a SessionRecord,
    from: Seq,
    (mut at, exact): (Seq, bool),
) -> Result<(Seq, Cow<'a, SessionRecord>)> {
    while at > from {
        if at == now.head && now.open_calls.is_empty() {
            return Ok((at, Cow::Borrowed(now)));
        }
        if let Some((before, after)) = history::inside_commit(store, now, at).await? {
            if exact {
                return Err(Error::invalid(format!(
                    "event {at} of session {} is inside a commit; compact up to {before} or {after}",
                    now.id
                )));
            }
            at = before;
            continue;
        }
        let past = history::fold_to(store, now, at).await?;
        if past.open_calls.is_empty() {
            return Ok((at, Cow::Owned(past)));
        }
        let safe = history::commit_end_before(store, now, past.pair_safe_head()).await?;
        if exact {
            return Err(Error::invalid(format!(
                "a tool call is open at event {at} of session {}; compact up to {safe} or to after its result",
                now.id
            )));
        }
        at = safe;
    }
    Err(nothing(now, at))
}

/// Returns the inputs that were open at event `at`, where the record was `past`, oldest first; the newest if they are many.
async fn open_inputs(
    store: &dyn SessionStore,
    now: &SessionRecord,
    past: &SessionRecord,
    at: Seq,
) -> Result<Vec<Seq>> {
    let most = usize::try_from(past.inputs_open).unwrap_or(usize::MAX).min(Compaction::INPUTS_MAX);
    let first = ReadEvents::last(most)
        .with_after(past.inputs_done_through.max(now.visible_from))
        .with_before(at.next())
        .with_types(INPUTS);
    let mut inputs = Vec::new();
    let mut next = Some(first);
    while let Some(read) = next.filter(|_| inputs.len() < most) {
        let page = history::part_of(store, now.id, now.head, now.lineage.clone(), read).await?;
        // Collected from the newest on.
        inputs.extend(page.events.iter().rev().map(|event| event.seq));
        next = page.next;
    }
    inputs.truncate(most);
    inputs.reverse();
    Ok(inputs)
}
