//! Which bytes of a deleted session may go: all but those that a living session forked from it reads.

use crate::error::{ErrorKind, Result};
use crate::id::{Seq, SessionId};
use crate::manager::WorkspaceManager;
use crate::page::PAGE_MAX;
use crate::planted::planted;
use crate::retention::Protection;
use crate::session::{Consistency, Origin, Purge, Purged, Session, SessionQuery, SessionState, SessionStore};

/// What of a deleted session's own events is needed.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// The events up to this.
    pub keep: Seq,
    /// By whom; `None` where nothing is kept.
    pub by: Option<Protection>,
}

/// Finds what living sessions need of the own events of `session`, which is deleted.
///
/// Nothing is forked from a deleted session, so what is found is all there will be: a fork was there when its parent
/// was deleted, or was refused. A living fork stands for all that is forked from it.
pub(super) async fn needed(store: &dyn SessionStore, session: &Session) -> Result<Need> {
    if store.capabilities().listing != Consistency::Immediate {
        let why = "the store's lists lag, so nobody can tell what was forked from it";
        return Ok(Need { keep: session.head, by: Some(Protection::Damaged(why.to_owned())) });
    }
    let base = session.lineage.base();
    let mut need = Need { keep: Seq::ZERO, by: None };
    // Deleted sessions whose forks are to be looked for, and how far the history that they share reaches.
    let mut rest = vec![(session.id, Seq::new(u64::MAX))];
    while let Some((parent, reach)) = rest.pop() {
        let mut next = Some(SessionQuery::new().parent(parent).with_hidden().limit(PAGE_MAX));
        while let Some(query) = next {
            let page = store.list(query.clone()).await?;
            if let Some(damage) = page.damaged.first() {
                // It may have been forked from this one.
                let by = Some(Protection::Damaged(damage.to_string()));
                return Ok(Need { keep: session.head, by });
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
                    need = Need { keep: reach, by: Some(Protection::NeededBy { session: fork.id }) };
                }
            }
            next = page.next.map(|cursor| query.cursor(Some(cursor)));
        }
    }
    Ok(need)
}

/// Purges a deleted session of what nobody needs.
pub(crate) async fn purge_unneeded(store: &dyn SessionStore, session: &Session) -> Result<(Purged, Need)> {
    let mut need = needed(store, session).await?;
    if planted("purge-ignores-children") {
        need.keep = Seq::ZERO;
    }
    let purge = Purge::new(session.id, session.head).keep(need.keep);
    Ok((store.purge(purge).await?, need))
}

impl WorkspaceManager {
    /// Removes the bytes of a deleted session, except the events that living sessions forked from it read; its record
    /// stays as a tombstone, with its title, labels and lineage. Doing it again removes what is no longer needed by
    /// then.
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidInput` where the session is not deleted.
    pub async fn purge(&self, id: SessionId) -> Result<Purged> {
        let sessions = &*self.storage.sessions;
        let session = sessions.load(id).await?;
        if session.status.state != SessionState::Deleted {
            let text = format!("session {id} is {}; delete it before it is purged", session.status);
            return Err(crate::Error::new(ErrorKind::InvalidInput, text));
        }
        purge_unneeded(sessions, &session).await.map(|(purged, _)| purged)
    }
}
