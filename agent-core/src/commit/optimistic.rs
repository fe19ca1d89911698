//! Plans that are made before a store has exclusive access to the session.

use std::sync::Arc;

use crate::base::Result;
use crate::commit::Commit;
use crate::commit::plan::plan;
use crate::commit::plan::planner::Plan;
use crate::event::Event;
use crate::session::SessionRecord;

/// Plan, and what the store made of its events and its record: the values of rows, say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Planned<R> {
    /// The plan.
    pub plan: Plan,
    /// Result of `encode` for [`Plan::Write`]; `None` for [`Plan::Answer`].
    pub rows: Option<R>,
}

impl<R> Planned<R> {
    fn new(plan: Plan, encode: impl FnOnce(&[Event], &SessionRecord) -> R) -> Self {
        let rows = match &plan {
            Plan::Write { events, after, .. } => Some(encode(events, after)),
            Plan::Answer(_) => None,
        };
        Self { plan, rows }
    }
}

/// Commit that was planned on a record which the store remembers: optimistic concurrency control for backends whose writers
/// take turns, in a thread or behind a lock. Planning and encoding need no turn; only the comparison of a version does.
///
/// The version of a record is a random number that every writer of the record draws anew and stores beside it, so that two
/// records of a session with one version are the same record. It is compared for equality only. A number that counts would
/// not do: after a restored backup or a failover, another record may get the same one.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::commit::{Commit, OptimisticCommit};
/// use agent_core::session::NewSession;
/// use agent_core::{Plan, WorkspaceId};
///
/// let effects = Effects::default();
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let commit = Commit::create(&effects, new);
///
/// // Before the turn of the writer. The store remembers no record of this session.
/// let planned = OptimisticCommit::new(commit, None, |events, _| events.len());
/// // In its turn: the session still does not exist.
/// let resolved = planned.resolve(None, |_, _| unreachable!("nothing is encoded a second time"))?;
/// assert_eq!(resolved.rows, Some(1));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Debug)]
pub struct OptimisticCommit<R> {
    commit: Commit,
    /// Version of the record on which the plan was made, and the plan.
    made: Option<(Option<i64>, Arc<Planned<R>>)>,
}

impl<R> OptimisticCommit<R> {
    /// Plans the commit on the record that the store remembers, with its version; on no session if it remembers none. The
    /// record may be out of date, or of a transaction that is not committed yet. So only a plan that writes is kept: whether
    /// the commit is refused or was applied before is decided in [`resolve`](Self::resolve) alone.
    pub fn new(
        commit: Commit,
        remembered: Option<(i64, &SessionRecord)>,
        encode: impl FnOnce(&[Event], &SessionRecord) -> R,
    ) -> Self {
        let made = match plan(remembered.map(|(_, record)| record), &commit) {
            Ok(plan @ Plan::Write { .. }) => {
                Some((remembered.map(|(version, _)| version), Arc::new(Planned::new(plan, encode))))
            }
            Ok(Plan::Answer(_)) | Err(_) => None,
        };
        Self { commit, made }
    }

    /// Keeps a commit that is planned only when it is [resolved](Self::resolve): one that is too large to be planned on the
    /// thread of its caller.
    pub const fn unplanned(commit: Commit) -> Self {
        Self { commit, made: None }
    }

    /// Returns the commit.
    pub const fn commit(&self) -> &Commit {
        &self.commit
    }

    /// Returns the plan for the session's current record, with its version; `None` if the session does not exist. If the plan
    /// that was made before is for this version, returns that one, else plans again. May be called again, when a transaction
    /// is repeated.
    ///
    /// # Errors
    ///
    /// Those of [`plan`](crate::plan()).
    pub fn resolve(
        &self,
        now: Option<(i64, &SessionRecord)>,
        encode: impl FnOnce(&[Event], &SessionRecord) -> R,
    ) -> Result<Arc<Planned<R>>> {
        if let Some((on, planned)) = &self.made
            && *on == now.map(|(version, _)| version)
        {
            return Ok(planned.clone());
        }
        let plan = plan(now.map(|(_, record)| record), &self.commit)?;
        Ok(Arc::new(Planned::new(plan, encode)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{ErrorKind, WorkspaceId};
    use crate::clock::Effects;
    use crate::event::NewEvent;
    use crate::session::NewSession;

    fn apply(commit: &Commit, now: Option<&SessionRecord>) -> Arc<SessionRecord> {
        plan(now, commit).unwrap().committed().session
    }

    fn count(events: &[Event], _: &SessionRecord) -> usize {
        events.len()
    }

    #[test]
    fn a_plan_holds_for_its_version_only() {
        let effects = Effects::default();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let first = apply(&Commit::create(&effects, new), None);
        let message = |text: &str| {
            Commit::seal(&effects, first.id, first.head).with_event(NewEvent::user_message(text))
        };
        let second = apply(&message("a"), Some(&first));
        let planned = OptimisticCommit::new(message("b"), Some((7, &first)), count);
        let head = |now| match &planned.resolve(now, count).unwrap().plan {
            Plan::Write { after, .. } => after.head,
            Plan::Answer(_) => unreachable!(),
        };
        assert_eq!(head(Some((7, &first))), first.head.next());
        assert_eq!(head(Some((8, &second))), second.head.next());
        let gone = planned.resolve(None, count).unwrap_err();
        assert_eq!(*gone.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn refusals_and_answers_are_decided_on_the_current_record() {
        let effects = Effects::default();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let create = Commit::create(&effects, new);
        let first = apply(&create, None);
        // The remembered record is of a transaction that was rolled back.
        let again = OptimisticCommit::new(create, Some((7, &first)), count);
        assert!(matches!(again.resolve(None, count).unwrap().plan, Plan::Write { .. }));
        assert!(matches!(again.resolve(Some((7, &first)), count).unwrap().plan, Plan::Answer(_)));
        // Nothing is remembered of a session that exists.
        let message = Commit::seal(&effects, first.id, first.head).with_event(NewEvent::user_message("a"));
        let unknown = OptimisticCommit::new(message, None, count);
        assert_eq!(unknown.resolve(Some((7, &first)), count).unwrap().rows, Some(1));
    }
}
