//! How a commit is sent until it is known what became of it.

use std::time::Duration;

use crate::base::{Error, ErrorKind, Result, WriteOutcome, isolated};
use crate::commit::{Commit, Committed, Expect};
use crate::store::history::{PAGE, PAGE_BYTES};
use crate::store::read::ReadEvents;
use crate::store::session::SessionStore;

/// How often a commit that may have landed, or that the store could not take, is sent again.
const ATTEMPTS: u32 = 5;
/// How often a commit is sent again that others overtook; each time it is known that it did not land.
const OVERTAKEN: u32 = 1000;

/// Sends a commit until it is known what became of it, as [`SessionStoreExt::settle`](crate::store::ext::SessionStoreExt::settle) says.
/// `is_new` says that the commit was sealed for this call, so that it lies nowhere before its first attempt.
pub(crate) async fn settle<S: SessionStore + ?Sized>(
    store: &S,
    mut commit: Commit,
    is_new: bool,
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
        if in_doubt && says_nothing(error.kind()) {
            error = error.with_outcome(WriteOutcome::Unknown);
        }
        // The time that the store may take is that of the whole operation; only what is in doubt is asked for once more.
        let attempts = if error.is_timeout() { 1 + u32::from(doubt) } else { ATTEMPTS };
        if (error.is_retryable() || doubt) && attempt < attempts {
            tokio::time::sleep(Duration::from_millis(10 << attempt)).await;
            continue;
        }
        let ErrorKind::Conflict { head: Some(head) } = *error.kind() else { return Err(error) };
        let any = matches!(commit.expect, Expect::Any);
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

/// Looks for a commit in the log after what its writer had seen.
pub(crate) async fn find_commit<S: SessionStore + ?Sized>(
    store: &S,
    commit: &Commit,
) -> Result<Option<Committed>> {
    let mut read = Some(ReadEvents::first(PAGE).max_bytes(PAGE_BYTES).after(commit.seen));
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
            // It may lie there.
            return Err(Error::corrupt(format!("session {}: {damage}", commit.session)));
        }
        read = page.next;
    }
    Ok(None)
}

/// What became of a commit is not known after a panic of the store.
fn store_panicked(commit: &Commit) -> Error {
    let text =
        format!("the store panicked at commit {} of session {}; send it again", commit.id, commit.session);
    Error::new(ErrorKind::Unavailable, text).with_outcome(WriteOutcome::Unknown)
}

/// Whether an error tells of this attempt only: nobody looked whether an earlier one had landed.
fn says_nothing(kind: &ErrorKind) -> bool {
    use ErrorKind::{Corrupt, Denied, Full, Poisoned, Unavailable};
    matches!(kind, Unavailable | Denied | Full | Corrupt | Poisoned)
}
