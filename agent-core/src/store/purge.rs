//! Choice of the bytes of a deleted session that may be removed: all but those that a living fork reads.

use crate::base::{Error, ErrorKind, Result, Seq, SessionId, SessionState};
use crate::model::Origin;
use crate::session::SessionRecord;
use crate::store::page::PAGE_MAX;
use crate::store::session::{Consistency, Purge, SessionQuery, SessionStore};

/// Part of a deleted session's own events that is still needed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needed {
    /// Last event that is needed; all up to it are.
    pub keep: Seq,
    /// Reason for which events are kept; `None` if none are.
    pub by: Option<NeededBy>,
}

/// Reason for which events of a deleted session are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NeededBy {
    /// A living session that was forked from the deleted one.
    Fork(SessionId),
    /// Unknown reader: for this reason, the store cannot determine whether a fork reads the events.
    Unknown(String),
}

impl Needed {
    fn unknown(session: &SessionRecord, why: String) -> Self {
        Self { keep: session.head, by: Some(NeededBy::Unknown(why)) }
    }
}

/// Finds the own events of the deleted `session` that living sessions need.
///
/// A deleted session cannot be forked, so the result is complete: each fork existed when its parent was deleted, or
/// was refused. A living fork represents all sessions that are forked from it.
///
/// The search runs before the bytes are removed, not in one atomic step with that: a deleted session stays deleted
/// and gets no new forks. If existing forks are deleted meanwhile, less is needed than was found.
///
/// # Errors
///
/// Those of [`SessionStore::list`].
pub async fn needed_by_forks(store: &dyn SessionStore, session: &SessionRecord) -> Result<Needed> {
    if store.capabilities().listing != Consistency::Immediate {
        let why = "the store's lists lag, so its forks cannot be found";
        return Ok(Needed::unknown(session, why.to_owned()));
    }
    let base = session.lineage.base();
    let mut need = Needed { keep: Seq::ZERO, by: None };
    // Deleted sessions whose forks must be found, and the last event of the history that they share.
    let mut rest = vec![(session.id, Seq::new(u64::MAX))];
    while let Some((parent, reach)) = rest.pop() {
        let mut next = Some(SessionQuery::new().with_parent(parent).with_hidden().with_limit(PAGE_MAX));
        while let Some(query) = next {
            let page = store.list(query.clone()).await?;
            if let Some(damage) = page.damaged.first() {
                // The damaged object may be a fork.
                return Ok(Needed::unknown(session, damage.to_string()));
            }
            for fork in &page.items {
                let Origin::Fork { at, .. } = fork.origin else { continue };
                let reach = reach.min(at);
                if reach <= base {
                    continue;
                }
                if fork.status.state == SessionState::Deleted {
                    rest.push((fork.id, reach));
                } else if reach > need.keep {
                    need = Needed { keep: reach, by: Some(NeededBy::Fork(fork.id)) };
                }
            }
            next = page.next.map(|cursor| query.with_cursor(Some(cursor)));
        }
    }
    Ok(need)
}

impl Purge {
    /// For backends, as the first step: [checks](Self::check) the request against the current session, and makes it
    /// [keep](Self::keep_through) the events that living forks read.
    ///
    /// Forks are found by listing the sessions of `store` by [parent](SessionQuery::with_parent), hidden ones included.
    ///
    /// The session is deleted then, and cannot be forked any more, so the store may remove the rest at any later
    /// time. Its atomic step checks the request once more.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), and of the store's `load` and `list`; `Corrupt` if a list names damage, which
    /// may be a fork, and `Unsupported` if the store's lists lag. In both cases it is unknown what is needed, and
    /// nothing may be removed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::store::Purge;
    ///
    /// # let (store, effects, session) = session().await?;
    /// let fork = store.fork(session.id, None).await?;
    /// # let session = store.trigger(session.id, Trigger::Delete(Reason::UserDeleted)).await?.session;
    /// let purge = Purge::new(session.id, session.head).sparing_forks(&*store).await?;
    /// assert_eq!(purge.keep_through, fork.lineage.base());
    /// # Ok(()) }
    /// ```
    pub async fn sparing_forks(self, store: &dyn SessionStore) -> Result<Self> {
        let session = store.load(self.session).await?;
        self.check(&session)?;
        let need = needed_by_forks(store, &session).await?;
        if let Some(NeededBy::Unknown(what)) = &need.by {
            let kind = match store.capabilities().listing {
                Consistency::Immediate => ErrorKind::Corrupt,
                Consistency::Eventual => ErrorKind::Unsupported,
            };
            let id = session.id;
            let text = format!(
                "session {id} is not purged, since a fork may read it: {what}; repair or remove that first"
            );
            return Err(Error::new(kind, text));
        }
        let keep = self.keep_through.max(need.keep);
        Ok(self.with_keep_through(keep))
    }
}
