//! Which bytes of a deleted session may go: all but those that a living session forked from it reads.

use crate::base::{Error, ErrorKind, Result, Seq, SessionId, SessionState};
use crate::model::Origin;
use crate::session::Session;
use crate::store::page::PAGE_MAX;
use crate::store::session::{Consistency, Purge, SessionQuery, SessionStore};

/// The part of a deleted session's own events that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needed {
    /// The events up to this.
    pub keep: Seq,
    /// By whom; `None` where nothing is kept.
    pub by: Option<NeededBy>,
}

/// The reason for which events of a deleted session are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NeededBy {
    /// This living session was forked from it.
    Fork(SessionId),
    /// Nobody can tell whether a fork reads them, for this reason.
    Unknown(String),
}

impl Needed {
    fn unknown(session: &Session, why: String) -> Self {
        Self { keep: session.head, by: Some(NeededBy::Unknown(why)) }
    }
}

/// Finds what living sessions need of the own events of `session`, which is deleted.
///
/// Nothing is forked from a deleted session, so what is found is all there will be: a fork was there when its parent
/// was deleted, or was refused. A living fork stands for all that is forked from it.
///
/// Asked before the bytes are removed, and not in one step with that: a session that is deleted stays so, and gets no
/// forks; those that it has may be deleted meanwhile, and then less is needed than was found.
///
/// # Errors
///
/// Those of [`SessionStore::list`].
pub async fn needed_by_forks(store: &(impl SessionStore + ?Sized), session: &Session) -> Result<Needed> {
    if store.capabilities().listing != Consistency::Immediate {
        let why = "the store's lists lag, so nobody can tell what was forked from it";
        return Ok(Needed::unknown(session, why.to_owned()));
    }
    let base = session.lineage.base();
    let mut need = Needed { keep: Seq::ZERO, by: None };
    // Deleted sessions whose forks are to be looked for, and how far the history that they share reaches.
    let mut rest = vec![(session.id, Seq::new(u64::MAX))];
    while let Some((parent, reach)) = rest.pop() {
        let mut next = Some(SessionQuery::new().parent(parent).with_hidden().limit(PAGE_MAX));
        while let Some(query) = next {
            let page = store.list(query.clone()).await?;
            if let Some(damage) = page.damaged.first() {
                // It may have been forked from this one.
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
            next = page.next.map(|cursor| query.cursor(Some(cursor)));
        }
    }
    Ok(need)
}

impl Purge {
    /// For backends, before all else: [checks](Self::check) the request against the session as it is, and has it
    /// [keep](Self::keep) what living forks read. They are found by the lists of `store` by
    /// [parent](SessionQuery::parent), of hidden sessions too.
    ///
    /// The session is deleted then, and so is never forked again: the store may remove what is left at any later time.
    /// Its atomic step checks the request once more.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), and of the store's `load` and `list`; `Corrupt` if a list names damage, which may be
    /// a fork, and `Unsupported` if its lists lag: then nobody can tell what is needed, and nothing may go.
    pub async fn sparing_forks(self, store: &(impl SessionStore + ?Sized)) -> Result<Self> {
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
                "session {id} is not purged, since a fork may read it: {what}; mend or remove that first"
            );
            return Err(Error::new(kind, text));
        }
        let keep = self.keep.max(need.keep);
        Ok(self.keep(keep))
    }
}
