//! Commits to sealed sessions: decided on what was opened, written sealed.

use std::sync::Arc;

use crate::base::{Error, ErrorKind, Result, SessionId, SessionState};
use crate::commit::plan::planner::{Plan, folded};
use crate::commit::{Commit, Committed, Step, Trigger};
use crate::model::NeededBlob;
use crate::sealing::{Sealing, open_record, seal_event};
use crate::session::SessionRecord;

/// Refuses a commit without keys to a session that is sealed: what it writes could be read.
pub(super) fn check_open(now: Option<&SessionRecord>) -> Result<()> {
    match now {
        Some(session) if session.sealed_by.is_some() => Err(Error::new(
            ErrorKind::Denied,
            format!("session {} is sealed; open the encrypted store with its keys to write here", session.id),
        )),
        _ => Ok(()),
    }
}

/// Decides, by `decide`, on the opened record. The record after it is the fold of the sealed events, as every reader of the log computes it.
pub(super) fn decide_sealed(
    now: Option<&SessionRecord>,
    commit: &Commit,
    sealing: &dyn Sealing,
    decide: impl FnOnce(Option<&SessionRecord>, &Commit) -> Result<Plan>,
) -> Result<Plan> {
    let is_unread = sealing.is_stand_in();
    if is_unread && now.is_none_or(|now| now.status.state != SessionState::Deleted) {
        check_deletes(commit)?;
    }
    // A deletion reads no word.
    let opened =
        now.map(|now| if is_unread { Ok(now.clone()) } else { open_record(now, sealing) }).transpose()?;
    match (decide(opened.as_ref(), commit)?, now) {
        (Plan::Answer(answer), now) => {
            let session = now.map_or_else(|| answer.session.clone(), |now| Arc::new(now.clone()));
            Ok(Plan::Answer(Box::new(Committed { session, ..*answer })))
        }
        (Plan::Write { events, after, blobs }, now) => {
            let blobs = inner_blobs(commit.session, &blobs, sealing)?;
            let events = events.iter().map(|event| seal_event(commit.session, event, sealing));
            let events = events.collect::<Result<Vec<_>>>()?;
            let sealed = folded(now, commit.session, &events)?;
            debug_assert!(
                is_unread || open_record(&sealed, sealing)? == *after,
                "sealing commutes with the fold"
            );
            Ok(Plan::Write { events, after: Arc::new(sealed), blobs })
        }
    }
}

/// Refuses what a key that stands in for a lost one may not do.
fn check_deletes(commit: &Commit) -> Result<()> {
    let is_delete = |step: &Step| matches!(step, Step::Trigger(Trigger::Delete(_)));
    if !commit.steps.is_empty() && commit.steps.iter().all(is_delete) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Denied,
        format!("the key of session {} is lost; it can be deleted, and not be written", commit.session),
    ))
}

/// Returns the blobs of the store around which the encrypted one is, in place of those that the events name.
fn inner_blobs(session: SessionId, blobs: &[NeededBlob], sealing: &dyn Sealing) -> Result<Vec<NeededBlob>> {
    NeededBlob::check(session, blobs, |name| {
        Ok::<_, Error>(sealing.blob(name).map(|blob| blob.plain.bytes))
    })?;
    let inner = blobs.iter().filter_map(|blob| sealing.blob(blob.name)).map(|blob| blob.inner);
    NeededBlob::merged(inner.map(|blob| NeededBlob::new(blob.name, Some(blob.bytes))))
}
