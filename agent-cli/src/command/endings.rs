//! `chat session delete` and `chat session erase`.

use agent_core::state::SessionState;
use agent_core::{Error, ErrorKind, SessionId};
use agent_runtime::retention::Erasure;
use serde_json::json;

use super::consent::Consent;
use super::hold::{self, Holder};
use super::site::Site;
use crate::failure::{Failure, Result};
use crate::listing::size;
use crate::output::print_copies;
use crate::pick::Picked;
use crate::screen::counted;

/// Deletes a session, and removes its events if `purge` is true. Asks before, if the session was not named by its id: a number
/// is that of another session as soon as one is used.
pub(super) async fn delete(site: &Site<'_>, session: &Picked, purge: bool, consent: &Consent) -> Result<()> {
    let id = session.id;
    consent.refuse_number(session)?;
    if session.title.is_some() {
        consent.ask_about(&format!("the deletion of {}", session.named()))?;
        site.out.note(&format!("({})", session.named()));
    }
    let answering = answering(site, id).await?;
    if let Some(holder) = &answering {
        consent
            .ask_about(&format!("session {id} is being answered by {holder}: its deletion ends that, and"))?;
    }
    let purged = match purge {
        // Whoever holds it: that was asked about.
        true => match site.manager.erase_unless_held(id, false, |_| true).await {
            Ok(erased) => erased,
            Err(error) => return Err(not_purged(site, id, error).await),
        },
        false => {
            site.manager.delete_session(id).await?;
            Erasure::default()
        }
    };
    let events = purged.events;
    let ended = ended(answering.as_deref());
    let text = match events {
        _ if !purge => {
            format!(
                "deleted session {id}{ended}; to remove its events, run `chat session delete {id} --purge`"
            )
        }
        0 => format!("deleted session {id}{ended}; no events were left to remove"),
        _ => format!("deleted session {id} and {}{ended}", removed(&purged)),
    };
    let pending = purged.rewrite_pending;
    let mut whole = json!({"session": id, "purged_events": events, "ended_answer_of": answering});
    if purge {
        whole["purged_bytes"] = json!(purged.bytes);
        whole["rewrite_pending"] = json!(pending);
    }
    site.out.result(&whole, &text);
    if let Some(fork) = purged.needed_by {
        site.out.note(&format!(
            "(session {fork} reads the other events, so these are kept; delete it, then {id} again)"
        ));
    }
    print_copies(&site.out, pending);
    Ok(())
}

/// Returns how much was removed.
fn removed(erased: &Erasure) -> String {
    let events = counted(erased.events, "event");
    match erased.bytes {
        0 => format!("removed {events}"),
        bytes => format!("removed {events} with {} of content", size(bytes)),
    }
}

/// Returns who is answering in a session, unless that one is dead.
async fn answering(site: &Site<'_>, id: SessionId) -> Result<Option<String>> {
    // A damaged session is deleted, too.
    let Ok(now) = site.storage.sessions.load(id).await else { return Ok(None) };
    let Some(lease) = &now.lease else { return Ok(None) };
    let is_dead = hold::holder(site, &now, false).await? == Some(Holder::Dead);
    Ok((!is_dead).then(|| lease.holder.clone()))
}

/// Returns what is said of an answer that a deletion has ended.
fn ended(holder: Option<&str>) -> String {
    holder.map_or_else(String::new, |holder| format!("; this ended an answer that {holder} was giving"))
}

/// Returns the failure of a deletion with a purge, and whether the session was deleted.
async fn not_purged(site: &Site<'_>, id: SessionId, error: Error) -> Failure {
    let failure = Failure::from(error);
    match site.storage.sessions.load(id).await {
        Ok(now) if now.status.state == SessionState::Deleted => {
            let text = format!("session {id} was deleted, but its events were not removed: {}", failure.text);
            Failure { text, ..failure }
        }
        _ => failure,
    }
}

/// Erases a session; fails if a fork still needs events of it.
pub(super) async fn erase(site: &Site<'_>, session: &Picked, now: bool, consent: &Consent) -> Result<()> {
    let id = session.id;
    consent.refuse_number(session)?;
    // No question is asked about a session that does not exist; one about a deleted or damaged session is.
    match site.storage.sessions.load(id).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Err(error.into()),
        _ => consent.ask(&format!("the erasure of {}", session.named()))?,
    }
    if session.title.is_some() {
        site.out.note(&format!("({})", session.named()));
    }
    let answering = answering(site, id).await?;
    let erase = site.manager.erase(id);
    let erased = if now { erase.now().await? } else { erase.await? };
    let text = format!("erased session {id}: {}{}", removed(&erased), ended(answering.as_deref()));
    let whole = json!({
        "session": id, "purged_events": erased.events, "purged_bytes": erased.bytes, "needed_by": erased.needed_by,
        "ended_answer_of": answering,
        "rewrite_pending": erased.rewrite_pending,
    });
    site.out.result(&whole, &text);
    print_copies(&site.out, erased.rewrite_pending);
    match erased.needed_by {
        None => Ok(()),
        Some(fork) => Err(Failure::incomplete(format!(
            "session {fork} reads events of session {id}, its parent, so these events are kept; erase session {fork}, then {id} again"
        ))),
    }
}
