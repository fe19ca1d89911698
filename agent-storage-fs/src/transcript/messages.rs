//! Visible messages of a session, from its log and those of its ancestors.

use agent_core::event::{Event, EventType};
use agent_core::model::Lineage;
use agent_core::session::SessionRecord;
use agent_core::store::ReadEvents;
use agent_core::{Error, Result, Seq, SessionId};
use agent_transcript::TranscriptMessage;

use crate::log::{commit, read};
use crate::shared::tenant::Tenant;

/// Number of events read at a time.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

/// Event types that are shown in a transcript.
fn kinds() -> [EventType; 5] {
    [
        EventType::USER_MESSAGE,
        EventType::USER_DEFINE_OUTCOME,
        EventType::AGENT_MESSAGE,
        EventType::AGENT_PART,
        EventType::SYSTEM_MESSAGE,
    ]
}

/// Calls a function for each message after `after`, up to the record's head, oldest first.
pub(super) fn each(
    tenant: &Tenant,
    session: &SessionRecord,
    after: Seq,
    mut take: impl FnMut(TranscriptMessage) -> Result<()>,
) -> Result<()> {
    let mut after = after.max(session.visible_from);
    while after < session.head {
        let (owner, until) = owner_of(tenant, session, after.next())?;
        let until = until.unwrap_or(session.head);
        if owner == session.id
            && let Some(newest) = newest(tenant, session, after)?
        {
            return newest.into_iter().try_for_each(take);
        }
        let first = ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES).with_types(kinds());
        let mut next = Some(first.with_after(after).with_before(until.next()));
        while let Some(read) = next {
            let page = read::read(tenant, &tenant.cell(owner).0, owner, &read)?;
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!("session {owner}: {damage}")));
            }
            for event in page.events {
                if let Some(message) = TranscriptMessage::of(event.decode()?) {
                    take(message)?;
                }
            }
            next = page.next;
        }
        after = until;
    }
    Ok(())
}

/// Returns the messages between `after` and the end of a session's own log, if there are few. They are read from the
/// end, because finding a position in the log costs a search.
fn newest(tenant: &Tenant, session: &SessionRecord, after: Seq) -> Result<Option<Vec<TranscriptMessage>>> {
    if session.head.get() - after.get() > PAGE as u64 {
        return Ok(None);
    }
    let read = ReadEvents::last(PAGE).with_max_bytes(PAGE_BYTES).with_after(after).with_types(kinds());
    let page = read::read(tenant, &tenant.cell(session.id).0, session.id, &read)?;
    if page.next.is_some() || !page.damaged.is_empty() {
        return Ok(None);
    }
    // Another writer may have appended meanwhile.
    let events = page.events.into_iter().take_while(|event| event.seq <= session.head);
    events
        .filter_map(|event| event.decode().map(TranscriptMessage::of).transpose())
        .collect::<Result<_>>()
        .map(Some)
}

/// Returns the session whose log contains an event of a history, and the last event up to which that log applies;
/// `None` means to its end.
fn owner_of(tenant: &Tenant, session: &SessionRecord, seq: Seq) -> Result<(SessionId, Option<Seq>)> {
    let mut lineage: Lineage = session.lineage.clone();
    let (mut owner, mut until) = lineage.locate(session.id, seq);
    let mut depth = session.depth;
    while lineage.deeper && lineage.segments.first().is_some_and(|oldest| oldest.session == owner) {
        // A record holds the newest ancestors only; the oldest one of them holds those before.
        let record = commit::load(tenant, &tenant.cell(owner).0, owner)?;
        if record.depth >= depth {
            let circle = format!("session {owner} is an ancestor of itself; run `verify`");
            return Err(Error::corrupt(circle));
        }
        (lineage, depth) = (record.lineage.clone(), record.depth);
        let (next, next_until) = lineage.locate(owner, seq);
        if next == owner {
            break;
        }
        (owner, until) = (next, next_until);
    }
    Ok((owner, until))
}

/// Returns the event `seq` of a session's own log, if it exists.
pub(super) fn own_event(tenant: &Tenant, id: SessionId, seq: Seq) -> Result<Option<Event>> {
    let read = ReadEvents::first(1).with_after(Seq::new(seq.get().saturating_sub(1))).with_before(seq.next());
    Ok(read::read(tenant, &tenant.cell(id).0, id, &read)?.events.into_iter().next())
}

/// Returns all visible messages.
pub(crate) fn visible(tenant: &Tenant, session: &SessionRecord) -> Result<Vec<TranscriptMessage>> {
    let mut messages = Vec::new();
    each(tenant, session, Seq::ZERO, |message| {
        messages.push(message);
        Ok(())
    })?;
    Ok(messages)
}
