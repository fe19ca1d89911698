//! What a commit means: the one place that decides. Pure, so that every backend decides alike.

mod events;
pub(crate) mod import;
pub(crate) mod planner;
mod triggers;

use std::sync::Arc;

use crate::commit::plan::planner::{Plan, Planner, nothing_to_do};

use crate::base::{Epoch, Error, ErrorKind, Result, Seq, SessionState};
use crate::commit::{Commit, Committed, Expect, Step, Trigger};
use crate::session::{RECENT_COMMITS, Session};

/// Decides what `commit` does to the session `now`.
///
/// Pure: it reads no clock and makes no ids. The checks come in this order, each ending the decision: replay,
/// tombstone, fence, expectation, transition, limits. So a retry of a commit that landed is answered with its result
/// even after another run took over.
///
/// A backend calls this between reading the record and storing the result, and makes the three one atomic step.
///
/// # Errors
///
/// - `Conflict`: the expectation does not hold, or nobody can tell any more whether this commit landed (its id is
///   not among the remembered ones, and its [`seen`](Commit::seen) lies before them). Read on from `seen`, look for
///   the commit, and send it again with the new `seen` where it is not there.
/// - `NotFound`, `Deleted`: there is no session; it is a tombstone.
/// - `Fenced`: the lease of [`Commit::fence`] does not live.
/// - `Busy`: a run that holds no lease writes what only the running one may.
/// - `InvalidTransition`, `InvalidInput`, `LimitExceeded`: the commit itself is at fault.
/// - `Expired`: it answers a question whose [time](field@crate::model::parts::PendingAction::expires_at) was over at [`Commit::at`].
/// - `Unsupported`: the session holds what only a newer version of this library understands.
pub fn plan(now: Option<&Session>, commit: &Commit) -> Result<Plan> {
    decide(now, commit).map_err(|error| error.about(format_args!("session {}", commit.session)))
}

fn decide(now: Option<&Session>, commit: &Commit) -> Result<Plan> {
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
            return Err(Error::new(
                ErrorKind::Deleted,
                format!("session {} was deleted; its id is not used again", session.id),
            ));
        }
        if let Some(what) = &session.newer {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "session {} holds {what} of a newer version of this library; update it to write here",
                    session.id
                ),
            ));
        }
    }
    check_fence(now, commit)?;
    check_expectation(now, commit)?;
    commit.check()?;
    if let [Step::Trigger(Trigger::Restore(events))] = commit.steps.as_slice() {
        return import::restore(now, commit, events);
    }
    Planner::run(now, commit)
}

fn check_fence(now: Option<&Session>, commit: &Commit) -> Result<()> {
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

fn check_expectation(now: Option<&Session>, commit: &Commit) -> Result<()> {
    let conflict = |head, text| Err(Error::new(ErrorKind::Conflict { head }, text));
    match (now, commit.expect) {
        (None, Expect::Absent) => Ok(()),
        (None, _) => {
            Err(Error::new(ErrorKind::NotFound, format!("session {} does not exist", commit.session)))
        }
        (Some(session), Expect::Absent) => {
            conflict(Some(session.head), format!("session {} exists already", session.id))
        }
        (Some(session), Expect::Is(head)) if head != session.head => conflict(
            Some(session.head),
            format!(
                "session {} is at event {}, not at {head}; read on and decide again",
                session.id, session.head
            ),
        ),
        (Some(_), Expect::Is(_)) => Ok(()),
        (Some(session), Expect::Any) => {
            let full = session.recent.len() == RECENT_COMMITS;
            let reach = session.recent.first().map_or(Seq::ZERO, |oldest| oldest.first);
            if full && commit.seen.next() < reach {
                return conflict(
                    Some(session.head),
                    format!(
                        "session {}: commit {} was sealed at event {}, too long ago to tell whether it landed; read on from there, look for it, and send it again",
                        session.id, commit.id, commit.seen
                    ),
                );
            }
            Ok(())
        }
    }
}
