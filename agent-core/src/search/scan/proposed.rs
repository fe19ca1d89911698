//! Events that an index proposes to a search: read side by side, in the order in which they may be found.

use std::cmp::Reverse;
use std::collections::HashSet;

use futures::{FutureExt, StreamExt, stream};

use crate::base::{Result, Seq, SessionId, Timestamp};
use crate::search::index::{AT_ONCE, is_broken};
use crate::search::scan::{Scan, Source, Tail, Unread};
use crate::session::SessionSummary;
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::SessionStore;

/// Reads events of a session, and its summary if that is not known.
async fn fetch(
    store: &dyn SessionStore,
    id: SessionId,
    is_known: bool,
    read: ReadEvents,
) -> Result<(Option<SessionSummary>, EventPage)> {
    let summary = match is_known {
        true => None,
        false => Some(SessionSummary::from(&*store.load(id).await?)),
    };
    Ok((summary, store.read(id, read).await?))
}

impl Scan<'_> {
    /// Returns events if they are to be read now, and not behind others.
    pub(super) async fn ready(&mut self, next: Unread) -> Result<Option<Unread>> {
        if let Source::Segment { number, until, since } = next.from {
            self.propose(number).await?;
            if !self.is_passed(next.session, since) {
                self.unread.push(Unread { until, from: Source::Index, ..next });
            }
            return Ok(None);
        }
        if let Some(Tail::Unread(waiting)) = self.tails.get_mut(&next.session)
            && next.from == Source::Index
        {
            waiting.push(next);
            return Ok(None);
        }
        Ok(Some(next))
    }

    /// Returns proposed events with those that are proposed next, since each that is read by itself waits for the store.
    pub(super) async fn with_more(&mut self, first: Unread) -> Result<Vec<Unread>> {
        let mut proposed = vec![first];
        while proposed.len() < AT_ONCE {
            self.list().await?;
            let floor = self.floor();
            let is_next =
                |next: &Unread| next.from != Source::List && floor.is_none_or(|floor| next.until >= floor);
            if !self.unread.peek().is_some_and(is_next) {
                break;
            }
            let Some(next) = self.unread.pop() else { break };
            proposed.extend(self.ready(next).await?);
        }
        Ok(proposed)
    }

    /// Reads events that an index proposes.
    pub(super) async fn read_proposed(&mut self, proposed: Vec<Unread>) -> Result<()> {
        let store = self.store;
        let mut known = HashSet::new();
        let mut reads = Vec::with_capacity(proposed.len());
        for next in &proposed {
            // The first of a session reads its summary for all.
            let is_known = !known.insert(next.session) || self.summaries.contains_key(&next.session);
            reads.push(fetch(store, next.session, is_known, Self::reads(next.after, next.before.0)).boxed());
        }
        let pages: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        for (next, page) in proposed.iter().zip(pages) {
            let Some((summary, page)) = self.noted(next.session, page)? else { continue };
            self.summaries.extend(summary.map(|summary| (next.session, summary)));
            if self.is_shown(next.session) {
                let rest = self.take(next, next.before.0, page)?;
                self.unread.extend(rest);
            }
        }
        Ok(())
    }

    /// Takes the next proposal of a segment.
    pub(super) async fn propose(&mut self, number: usize) -> Result<()> {
        let Some(index) = &mut self.index else { return Ok(()) };
        let search = self.search;
        let wanted = |session, workspace| {
            search.session.is_none_or(|id| id == session) && search.workspace.is_none_or(|id| id == workspace)
        };
        let next = index.next(self.store, number, wanted).await;
        let next = next.inspect_err(|error| self.is_index_broken = is_broken(error))?;
        let Some(next) = next else { return Ok(()) };
        let before = Reverse(Some(next.last.next()));
        let after = Seq::new(next.first.get().saturating_sub(1));
        let from = Source::Segment { number, until: next.until, since: next.since };
        self.unread.push(Unread { until: next.bound, session: next.session, before, after, from });
        Ok(())
    }

    /// Returns whether all events of a session since this place were looked at for earlier pages.
    fn is_passed(&self, session: SessionId, since: Timestamp) -> bool {
        let tail = match self.tails.get(&session) {
            // Its times are not known.
            Some(Tail::Unread(_)) => return false,
            Some(Tail::Read(tail)) => *tail,
            None => Timestamp::MAX,
        };
        self.after.as_ref().is_some_and(|after| since.min(tail) > after.at)
    }

    /// Returns whether a session that an index proposes is searched.
    fn is_shown(&self, id: SessionId) -> bool {
        let Some(session) = self.summaries.get(&id) else { return false };
        // What the index has of another log was not left out when the session was listed.
        let is_indexed = self.index.as_ref().is_some_and(|index| index.through(id, session.head).is_some());
        is_indexed && self.search.covers(session)
    }

    /// Notes that the end of a session was read, and goes on with what the index has of it.
    pub(super) fn end_tail(&mut self, id: SessionId, until: Timestamp) {
        let Some(tail) = self.tails.get_mut(&id) else { return };
        if let Tail::Unread(waiting) = std::mem::replace(tail, Tail::Read(until)) {
            self.unread.extend(waiting);
        }
    }
}
