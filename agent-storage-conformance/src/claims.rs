//! Claims that errors made about commits, checked against the logs when a clause has ended. `NotApplied` must be true
//! then, and stay true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::commit::{Commit, Committed};
use agent_core::store::ReadEvents;
use agent_core::{CommitId, Result, SessionId, SessionStore, TenantId, WriteOutcome};

use crate::failure::{Checked, Failure};

/// Commits that were sent to one store. Clones share the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<BTreeMap<(TenantId, CommitId), Claim>>>);

#[derive(Debug)]
struct Claim {
    session: SessionId,
    sent: usize,
    /// Text of the error, if it claimed that nothing was applied.
    not_applied: Option<String>,
}

impl Claims {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(TenantId, CommitId), Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a commit is sent.
    pub(crate) fn sent(&self, tenant: &TenantId, commit: &Commit) {
        let new = Claim { session: commit.session, sent: 0, not_applied: None };
        self.all().entry((tenant.clone(), commit.id)).or_insert(new).sent += 1;
    }

    /// Records the answer to a commit.
    pub(crate) fn answered(&self, tenant: &TenantId, commit: CommitId, answer: &Result<Committed>) {
        let Err(error) = answer else { return };
        if error.write_outcome() == WriteOutcome::NotApplied
            && let Some(claim) = self.all().get_mut(&(tenant.clone(), commit))
        {
            claim.not_applied = Some(format!("{}: {error}", error.kind().name()));
        }
    }

    /// Returns the tenants with commits for which an error claimed that they were not applied.
    pub(crate) fn tenants(&self) -> BTreeSet<TenantId> {
        self.claimed().into_keys().map(|(tenant, _)| tenant).collect()
    }

    /// Returns the commits that were sent once and claimed not to be applied, by session. Commits that were sent more
    /// than once are left out, because each answer is about only one of the calls.
    fn claimed(&self) -> BTreeMap<(TenantId, SessionId), BTreeMap<CommitId, String>> {
        let mut claimed = BTreeMap::<_, BTreeMap<_, _>>::new();
        for ((tenant, commit), claim) in &*self.all() {
            if let (1, Some(error)) = (claim.sent, &claim.not_applied) {
                let of = claimed.entry((tenant.clone(), claim.session)).or_default();
                of.insert(*commit, error.clone());
            }
        }
        claimed
    }

    /// Checks that no such commit of a tenant is in a record or a log.
    pub(crate) async fn check(&self, tenant: &TenantId, store: &dyn SessionStore) -> Checked {
        for ((_, session), commits) in self.claimed().into_iter().filter(|((of, _), _)| of == tenant) {
            for applied in applied(store, session).await {
                if let Some(error) = commits.get(&applied) {
                    return Err(Failure::new(
                        format_args!("commit {applied} of session {session}, after all"),
                        format_args!("no trace of it: its error claimed WriteOutcome::NotApplied ({error})"),
                        "it was applied",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns the commits that a session's record and log contain. Unreadable parts count as empty; what must be readable
/// is checked by the clauses.
async fn applied(store: &dyn SessionStore, session: SessionId) -> BTreeSet<CommitId> {
    let mut found = BTreeSet::new();
    if let Ok(record) = store.load(session).await {
        found.extend(record.recent.iter().map(|recent| recent.id));
    }
    let mut next = Some(ReadEvents::first(1000));
    while let Some(read) = next {
        let after = read.after;
        let Ok(page) = store.read(session, read).await else { break };
        found.extend(page.events.iter().map(|event| event.commit));
        // A store that is broken elsewhere may page in circles.
        next = page.next.filter(|next| next.after > after);
    }
    found
}
