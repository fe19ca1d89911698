//! What was said in a session, from its log and those of its ancestors.

use agent_core::event::{Event, EventType};
use agent_core::model::Lineage;
use agent_core::session::Session;
use agent_core::store::ReadEvents;
use agent_core::{Error, ErrorKind, Result, Seq, SessionId};
use agent_transcript::TranscriptMessage;

use crate::tenant::Tenant;
use crate::{reading, sessions};

/// How much is read at a time.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

/// The types that say something in a transcript.
fn kinds() -> [EventType; 4] {
    [
        EventType::USER_MESSAGE,
        EventType::USER_DEFINE_OUTCOME,
        EventType::AGENT_MESSAGE,
        EventType::SYSTEM_MESSAGE,
    ]
}

/// Hands over each message after `after`, up to the record's head, oldest first.
pub(super) fn each(
    tenant: &Tenant,
    session: &Session,
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
        let first = ReadEvents::first(PAGE).max_bytes(PAGE_BYTES).kinds(kinds());
        let mut next = Some(first.after(after).before(until.next()));
        while let Some(read) = next {
            let page = reading::read(tenant, &tenant.cell(owner).0, owner, &read)?;
            if let Some(damage) = page.damaged.first() {
                return Err(Error::new(ErrorKind::Corrupt, format!("session {owner}: {damage}")));
            }
            for event in page.events {
                if let Some(message) = TranscriptMessage::of(event.body()?) {
                    take(message)?;
                }
            }
            next = page.next;
        }
        after = until;
    }
    Ok(())
}

/// The messages between `after` and the end of a session's own log, where these are few: read from the end, since going
/// to a place in the log costs a search.
fn newest(tenant: &Tenant, session: &Session, after: Seq) -> Result<Option<Vec<TranscriptMessage>>> {
    if session.head.get() - after.get() > PAGE as u64 {
        return Ok(None);
    }
    let read = ReadEvents::last(PAGE).max_bytes(PAGE_BYTES).after(after).kinds(kinds());
    let page = reading::read(tenant, &tenant.cell(session.id).0, session.id, &read)?;
    if page.next.is_some() || !page.damaged.is_empty() {
        return Ok(None);
    }
    // Somebody may have written on since.
    let events = page.events.into_iter().take_while(|event| event.seq <= session.head);
    events
        .filter_map(|event| event.body().map(TranscriptMessage::of).transpose())
        .collect::<Result<_>>()
        .map(Some)
}

/// In whose log an event of a history lies, and up to which event that log tells it; `None`: to its end.
fn owner_of(tenant: &Tenant, session: &Session, seq: Seq) -> Result<(SessionId, Option<Seq>)> {
    let mut lineage: Lineage = session.lineage.clone();
    let (mut owner, mut until) = lineage.locate(session.id, seq);
    let mut depth = session.depth;
    while lineage.deeper && lineage.segments.first().is_some_and(|oldest| oldest.session == owner) {
        // The chain is deeper than the record tells: the oldest ancestor that it names knows on.
        let record = sessions::load(tenant, &tenant.cell(owner).0, owner)?;
        if record.depth >= depth {
            let circle = format!("session {owner} is made from one that was made from it");
            return Err(Error::new(ErrorKind::Corrupt, circle));
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

/// The event `seq` of a session's own log, where there is one.
pub(super) fn own_event(tenant: &Tenant, id: SessionId, seq: Seq) -> Result<Option<Event>> {
    let read = ReadEvents::first(1).after(Seq::new(seq.get().saturating_sub(1))).before(seq.next());
    Ok(reading::read(tenant, &tenant.cell(id).0, id, &read)?.events.into_iter().next())
}

/// All that is visible.
pub(crate) fn visible(tenant: &Tenant, session: &Session) -> Result<Vec<TranscriptMessage>> {
    let mut messages = Vec::new();
    each(tenant, session, Seq::ZERO, |message| {
        messages.push(message);
        Ok(())
    })?;
    Ok(messages)
}
