//! Position up to which a summary may replace the history.

use crate::base::{Error, Result, Seq};
use crate::event::EventType;
use crate::session::Session;
use crate::store::history;
use crate::store::read::ReadEvents;
use crate::store::session::SessionStore;

/// Returns the last event that a new summary may replace: `until` if that is safe.
///
/// Without `until`, the last point at which no tool call is open and every input is answered.
///
/// # Errors
///
/// Those of [`SessionStoreExt::compact`](crate::store::ext::SessionStoreExt::compact).
pub(crate) async fn until<S: SessionStore + ?Sized>(
    store: &S,
    now: &Session,
    until: Option<Seq>,
) -> Result<Seq> {
    let nothing = |at| {
        Err(Error::invalid(format!(
            "session {} has the events 1 to {}; those up to {at} are compacted already, or cannot be yet",
            now.id, now.head
        )))
    };
    let from = now.visible_from.max(now.context_from);
    if until.is_some_and(|until| until <= from || until > now.head) {
        return nothing(until.unwrap_or(from));
    }
    let inputs = [EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME];
    let open = ReadEvents::first(1).with_after(now.inputs_done_through.max(from)).with_types(inputs);
    let open = history::part_of(store, now.id, now.head, now.lineage.clone(), open)
        .await?
        .events
        .pop()
        .map(|event| event.seq);
    let most = open.map_or(now.head, |seq| Seq::new(seq.get().saturating_sub(1)));
    if let Some(until) = until
        && until > most
    {
        return Err(Error::invalid(format!(
            "the input at event {} of session {} is not answered yet; compact up to {most} at most",
            most.next(),
            now.id
        )));
    }
    let mut at = until.unwrap_or(most);
    if at == now.head && now.open_calls.is_empty() {
        return if at > from { Ok(at) } else { nothing(at) };
    }
    loop {
        if at <= from {
            return nothing(at);
        }
        let past = history::fold_to(store, now, at).await?;
        if past.open_calls.is_empty() {
            return Ok(at);
        }
        if until.is_some() {
            return Err(Error::invalid(format!(
                "a tool call is open at event {at} of session {}; compact up to {} or to after its result",
                now.id,
                past.pair_safe_head()
            )));
        }
        at = past.pair_safe_head();
    }
}
