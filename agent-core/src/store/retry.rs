//! Sending of a commit until its outcome is known.

use std::time::Duration;

use crate::base::{Error, ErrorKind, Result, WriteOutcome, isolated};
use crate::commit::{Commit, Committed, Precondition};
use crate::store::history::{PAGE, PAGE_BYTES};
use crate::store::read::ReadEvents;
use crate::store::session::SessionStore;

/// Maximum number of attempts for a commit that may have been applied, or that the store could not accept.
const ATTEMPTS: u32 = 5;
/// Maximum number of resends of a commit that others overtook; each time it is known that it was not applied.
const OVERTAKEN: u32 = 1000;

/// Sends a commit until its outcome is known; see
/// [`SessionStoreExt::commit_with_retry`](crate::store::ext::SessionStoreExt::commit_with_retry).
///
/// `is_new` means that the commit was sealed for this call, so it cannot be in the log before its first attempt.
pub(crate) async fn commit_with_retry(
    store: &dyn SessionStore,
    is_new: bool,
    mut commit: Commit,
) -> Result<Committed> {
    let (mut attempt, mut overtaken, mut in_doubt) = (0, 0, false);
    loop {
        let mut error = match isolated(|| store.commit(commit.clone())).await {
            Some(Ok(committed)) => return Ok(committed),
            Some(Err(error)) => error,
            None => store_panicked(&commit),
        };
        attempt += 1;
        let unknown = error.write_outcome() == WriteOutcome::Unknown;
        let doubt = unknown && *error.kind() != ErrorKind::Poisoned;
        in_doubt |= unknown;
        if in_doubt && is_inconclusive(error.kind()) {
            error = error.with_outcome(WriteOutcome::Unknown);
        }
        // The time limit of the store is that of the whole operation; only a commit in doubt is sent once more.
        let attempts = if error.is_timeout() { 1 + u32::from(doubt) } else { ATTEMPTS };
        if (error.is_retryable() || doubt) && attempt < attempts {
            tokio::time::sleep(Duration::from_millis(10 << attempt)).await;
            continue;
        }
        let ErrorKind::Conflict { head: Some(head) } = *error.kind() else { return Err(error) };
        if in_doubt
            && commit.precondition == Precondition::MustNotExist
            && has_created(store, &commit).await?
        {
            return find_commit(store, &commit).await?.ok_or(error);
        }
        let any = matches!(commit.precondition, Precondition::MustExist);
        if !any || head <= commit.seen || overtaken >= OVERTAKEN {
            return Err(error);
        }
        let in_doubt_still = |error: Error| error.with_outcome(WriteOutcome::Unknown);
        let may_lie_there = in_doubt || !is_new;
        if may_lie_there && let Some(landed) = find_commit(store, &commit).await.map_err(in_doubt_still)? {
            return Ok(landed);
        }
        commit.seen = head;
        (attempt, overtaken) = (0, overtaken + 1);
    }
}

/// Returns whether an existing session was created by this commit, one of whose earlier attempts may have been applied.
/// Reads the session's first event only.
async fn has_created(store: &dyn SessionStore, commit: &Commit) -> Result<bool> {
    let first = store.read(commit.session, ReadEvents::first(1).with_after(commit.seen)).await;
    let first = first.map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
    Ok(first.events.first().is_some_and(|event| event.commit == commit.id))
}

/// Searches the log for a commit, after the head that its writer had seen.
pub(crate) async fn find_commit(store: &dyn SessionStore, commit: &Commit) -> Result<Option<Committed>> {
    let mut read = Some(ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES).with_after(commit.seen));
    let (mut first, mut epoch) = (None, None);
    while let Some(next) = read {
        let page = store.read(commit.session, next).await?;
        for event in page.events.iter().filter(|event| event.commit == commit.id) {
            let first = *first.get_or_insert(event.seq);
            if let Some(lease) = event.transition()?.and_then(|change| change.lease.flatten()) {
                epoch = Some(lease.epoch);
            }
            if event.n == event.of {
                let (session, last) = (store.load(commit.session).await?, event.seq);
                return Ok(Some(Committed { session, first, last, epoch, replayed: true }));
            }
        }
        if let Some(damage) = page.damaged.first() {
            // The commit may be in the damaged part.
            return Err(Error::corrupt(format!("session {}: {damage}", commit.session)));
        }
        read = page.next;
    }
    Ok(None)
}

/// Returns the error for a panic of the store, after which the outcome of the commit is unknown.
fn store_panicked(commit: &Commit) -> Error {
    let text =
        format!("the store panicked at commit {} of session {}; send it again", commit.id, commit.session);
    Error::unavailable(text).with_outcome(WriteOutcome::Unknown)
}

/// Returns whether an error concerns only this attempt, and does not show whether an earlier one was applied.
fn is_inconclusive(kind: &ErrorKind) -> bool {
    use ErrorKind::{BlobMissing, Corrupt, Denied, Full, Poisoned, Unavailable};
    matches!(kind, BlobMissing { .. } | Unavailable | Denied | Full | Corrupt | Poisoned)
}
