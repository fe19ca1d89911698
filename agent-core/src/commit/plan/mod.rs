//! Decision on a commit. Pure, so that every backend decides alike.

mod events;
pub(crate) mod import;
pub(crate) mod planner;
mod sealed;
mod triggers;

use std::sync::Arc;

use crate::commit::plan::planner::{Plan, Planner, nothing_to_do};

use crate::base::{Epoch, Error, ErrorKind, Result, Seq, SessionState};
use crate::commit::{Commit, Committed, Precondition, Step, Trigger};
use crate::sealing::SealedBy;
use crate::session::{RECENT_COMMITS, SessionRecord};

/// Decides what `commit` does to the session `now`.
///
/// The function is pure: it reads no clock and makes no ids. The checks have this order, and the first that applies
/// decides: replay, tombstone, fence, precondition, transition, limits. So a retry of a commit that was applied
/// returns its result even after another run took over.
///
/// A backend calls this function between reading the record and storing the result, and makes the three one atomic
/// step. In the same step it [checks](crate::model::NeededBlob::check) that the blobs that the events name are there.
///
/// # Errors
///
/// - `Conflict`: the precondition does not hold, or it can no longer be decided whether this commit was applied (the
///   record does not remember its id, and its [`seen`](Commit::seen) is before the commits that the record
///   remembers). Read the events from `seen` on and search the commit. If it is not there, send it again with the new
///   `seen`.
/// - `NotFound`, `Deleted`: there is no session; it is a tombstone.
/// - `Fenced`: the lease of [`Commit::with_fence`] is not held any more.
/// - `Busy`: a run that holds no lease writes events that only the running one may write; or the import of the session
///   is [incomplete](field@SessionRecord::import_end), and the commit does not continue it.
/// - `InvalidTransition`, `InvalidInput`, `LimitExceeded`: the commit itself is invalid.
/// - `Expired`: the commit answers a question that [expired](field@crate::model::parts::PendingAction::expires_at) at
///   or before [`Commit::at`].
/// - `Unsupported`: the session contains data that only a newer version of this library understands.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::commit::Commit;
/// use agent_core::session::NewSession;
/// use agent_core::{ErrorKind, Plan, WorkspaceId, plan};
///
/// let effects = Effects::default();
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let commit = Commit::create(&effects, new.clone());
/// let Plan::Write { events, after, .. } = plan(None, &commit)? else { panic!("nothing to write") };
/// assert_eq!(events.last().unwrap().seq, after.head);
///
/// // The same commit again: the record remembers it, and there is nothing to store.
/// assert!(plan(Some(&after), &commit)?.committed().replayed);
///
/// // Another commit cannot create the session a second time.
/// let error = plan(Some(&after), &Commit::create(&effects, new)).unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Conflict { .. }));
/// # Ok::<(), agent_core::Error>(())
/// ```
pub fn plan(now: Option<&SessionRecord>, commit: &Commit) -> Result<Plan> {
    let planned = match &commit.sealing {
        Some(SealedBy(sealing)) => sealed::decide_sealed(now, commit, &**sealing, decide),
        None => sealed::check_open(now).and_then(|()| decide(now, commit)),
    };
    planned.map_err(|error| error.about(format_args!("session {}", commit.session)))
}

fn decide(now: Option<&SessionRecord>, commit: &Commit) -> Result<Plan> {
    if let Some(session) = now {
        if let Some(known) = session.recent.iter().find(|recent| recent.id == commit.id) {
            return Ok(Plan::Answer(Box::new(Committed {
                first: known.first,
                last: known.last,
                epoch: known.epoch,
                session: Arc::new(session.clone()),
                replayed: true,
            })));
        }
        if session.status.state == SessionState::Deleted {
            let again = commit.steps.iter().all(|step| matches!(step, Step::Trigger(Trigger::Delete(_))));
            if again && !commit.steps.is_empty() {
                return Ok(Plan::Answer(Box::new(nothing_to_do(session.clone()))));
            }
            return Err(Error::deleted(format!(
                "session {} was deleted; its id is not used again",
                session.id
            )));
        }
        if let Some(what) = &session.unsupported {
            return Err(Error::unsupported(format!(
                "session {} holds {what} of a newer version of this library; update it to write here",
                session.id
            )));
        }
    }
    check_fence(now, commit)?;
    check_expectation(now, commit)?;
    commit.check()?;
    if let [Step::Trigger(Trigger::Restore(events))] = commit.steps.as_slice() {
        return import::restore(now, commit, events);
    }
    check_import(now, commit)?;
    Planner::run(now, commit)
}

/// Refuses everything but a deletion while an import is incomplete: after another event, it could not be completed.
fn check_import(now: Option<&SessionRecord>, commit: &Commit) -> Result<()> {
    let Some((session, end)) = now.and_then(|session| Some((session, session.import_end?))) else {
        return Ok(());
    };
    if commit.steps.iter().all(|step| matches!(step, Step::Trigger(Trigger::Delete(_)))) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Busy { holder: "import".to_owned() },
        format!(
            "session {} has the events up to {} of an import that ends with event {end}; run the import again, or delete the \
             session",
            session.id, session.head
        ),
    ))
}

fn check_fence(now: Option<&SessionRecord>, commit: &Commit) -> Result<()> {
    let Some(epoch) = commit.fence else { return Ok(()) };
    let newest = now.map_or(Epoch::ZERO, |session| session.epoch);
    let live = now.and_then(|session| session.lease.as_ref()).is_some_and(|lease| lease.epoch == epoch);
    if live {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Fenced { epoch: newest },
        format!(
            "session {}: the lease of epoch {epoch} has ended (newest is {newest}); stop this run",
            commit.session
        ),
    ))
}

fn check_expectation(now: Option<&SessionRecord>, commit: &Commit) -> Result<()> {
    let conflict = |head, text| Err(Error::new(ErrorKind::Conflict { head }, text));
    match (now, commit.precondition) {
        (None, Precondition::MustNotExist) => Ok(()),
        (None, _) => Err(Error::not_found(format!("session {} does not exist", commit.session))),
        (Some(session), Precondition::MustNotExist) => {
            conflict(Some(session.head), format!("session {} exists already", session.id))
        }
        (Some(session), Precondition::Matches(head)) if head != session.head => conflict(
            Some(session.head),
            format!(
                "session {} is at event {}, not at {head}; read on and decide again",
                session.id, session.head
            ),
        ),
        (Some(_), Precondition::Matches(_)) => Ok(()),
        // `Commit::check` has refused `None`.
        (Some(session), Precondition::MustExist | Precondition::None) => {
            let full = session.recent.len() == RECENT_COMMITS;
            let reach = session.recent.first().map_or(Seq::ZERO, |oldest| oldest.first);
            if full && commit.seen.next() < reach {
                return conflict(
                    Some(session.head),
                    format!(
                        "session {}: commit {} was sealed at event {}, too long ago to tell whether it was applied; read the events from there, look for it, and send it again if it is not there",
                        session.id, commit.id, commit.seen
                    ),
                );
            }
            Ok(())
        }
    }
}
