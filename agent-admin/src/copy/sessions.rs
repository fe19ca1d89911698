//! Sessions: each by its commits, as they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};
use uuid::Builder;

use crate::copy::{CopyStage, Outcome, Stop, Work};
use agent_core::commit::{Commit, Expect, Trigger};
use agent_core::event::Event;
use agent_core::json::RawFields;
use agent_core::session::{NewSession, Session};
use agent_core::state::SessionState;
use agent_core::store::{PAGE_MAX, Purge, ReadEvents, SessionQuery, own_events, pages};
use agent_core::{CommitId, Result, Seq, SessionId, SessionStoreExt, Timestamp};

/// How many bytes of a log are read at a time, before one commit is whole.
const PAGE_BYTES: usize = 256 << 10;
/// How often a session is tried again to which somebody else writes. They may be copying the same.
const TRIES: u32 = 8;

/// What a log was found to hold, from its base on.
struct Survey {
    /// All of it, where it is one page.
    only: Option<Vec<Event>>,
    /// Its last event.
    last: Seq,
    /// The event before its last commit.
    before_last_commit: Seq,
}

/// How much was written.
#[derive(Default)]
struct Sent {
    events: u64,
    bytes: u64,
    hash: Sha256,
}

impl Work<'_> {
    /// Copies the sessions, those that were deleted up to their end: nothing could be made from them after that.
    pub(super) async fn sessions(&self) -> Result<()> {
        self.begin();
        let mut query = SessionQuery::new().with_hidden().with_total().limit(PAGE_MAX);
        query.workspace = self.copy.workspace;
        let mut listed = pages(query, |query| self.copy.from.sessions.list(query));
        while let Some(page) = self.page("sessions", listed.try_next().await)? {
            self.tally().total = page.total;
            let ids: Vec<_> = page.items.iter().map(|item| (item.id, item.origin.parent())).collect();
            drop(page.items);
            for (_, parent) in &ids {
                if let Some(parent) = parent {
                    self.ancestors(*parent).await?;
                }
            }
            stream::iter(ids.into_iter().map(Ok))
                .try_for_each_concurrent(self.copy.at_once, |(id, _)| async move {
                    let copied = self.tally().early.remove(&id);
                    if copied { Ok(()) } else { self.session(id, CopyStage::Sessions).await }
                })
                .await?;
        }
        Ok(())
    }

    /// Ends what was deleted; then the workspaces that went with it.
    pub(super) async fn deletions(&self) -> Result<()> {
        self.begin();
        let mut query = SessionQuery::new().states([SessionState::Deleted]).with_total().limit(PAGE_MAX);
        query.workspace = self.copy.workspace;
        let mut workspaces = BTreeMap::new();
        let mut listed = pages(query, |query| self.copy.from.sessions.list(query));
        while let Some(page) = self.page("sessions", listed.try_next().await)? {
            self.tally().total = page.total;
            workspaces.extend(page.items.iter().map(|item| (item.workspace, item.id)));
            let ids: Vec<_> = page.items.iter().map(|item| item.id).collect();
            stream::iter(ids.into_iter().map(Ok))
                .try_for_each_concurrent(self.copy.at_once, |id| async move {
                    let failed = self.tally().failed.contains(&id);
                    if failed { Ok(()) } else { self.session(id, CopyStage::Deletions).await }
                })
                .await?;
        }
        self.workspace_tombstones(workspaces).await
    }

    /// Copies what a session was made from, the eldest first, where that is not there yet.
    async fn ancestors(&self, parent: SessionId) -> Result<()> {
        let (mut chain, mut next, mut depth) = (Vec::new(), Some(parent), u32::MAX);
        while let Some(id) = next {
            if self.tally().failed.contains(&id) {
                break;
            }
            match self.copy.to.sessions.load(id).await.map_err(Stop::of_target) {
                Err(Stop::Absent(_)) => {}
                // Nothing may be skipped for a failure that passes: what a session was made from is ended later on.
                Err(Stop::All(error)) => return Err(error),
                _ => break,
            }
            let record = match self.copy.from.sessions.load(id).await.map_err(Stop::of_source) {
                Ok(record) => record,
                Err(Stop::All(error)) => return Err(error),
                // What cannot be read is named when its turn comes.
                Err(_) => break,
            };
            if record.depth >= depth {
                // Parents in a circle, of which none can be made first: the target says so of each.
                break;
            }
            chain.push(id);
            (next, depth) = (record.origin.parent(), record.depth);
        }
        while let Some(id) = chain.pop() {
            self.session(id, CopyStage::Sessions).await?;
            self.tally().early.insert(id);
        }
        Ok(())
    }

    async fn session(&self, id: SessionId, stage: CopyStage) -> Result<()> {
        let mut tries = 0;
        let copied = loop {
            match self.attempt(id, stage).await {
                Err(Stop::Raced(_)) if tries < TRIES => tries += 1,
                done => break done,
            }
        };
        let copied = match copied {
            // It is counted when its end is there.
            Ok(None) => return Ok(()),
            Ok(Some(outcome)) => Ok(outcome),
            Err(stop) => Err(stop),
        };
        let is_refused = matches!(copied, Err(Stop::Refused(_) | Stop::Absent(_) | Stop::Raced(_)));
        if !self.note(stage, || format!("session {id}"), copied)? {
            // What it was made from must not end before it is there: nothing could be made from that after it.
            let made_from = match is_refused {
                true => self.copy.from.sessions.load(id).await.ok().and_then(|record| record.origin.parent()),
                false => None,
            };
            let mut tally = self.tally();
            tally.failed.insert(id);
            tally.needed.extend(made_from.map(|parent| (parent, id)));
        }
        Ok(())
    }

    /// Brings a session to where it is in the source; `None` where its end is still to come.
    async fn attempt(&self, id: SessionId, stage: CopyStage) -> Result<Option<Outcome>, Stop> {
        let needed = self.tally().needed.get(&id).copied();
        if let (CopyStage::Deletions, Some(by)) = (stage, needed) {
            return Err(Stop::Refused(format!(
                "its end is not copied before session {by} is, which was made from it"
            )));
        }
        let (there, record) = self.both(id).await?;
        let survey = self.survey(&record).await?;
        let is_deleted = record.status.state == SessionState::Deleted;
        let is_purged = survey.last < record.head;
        let is_end = stage == CopyStage::Deletions;
        let until = match is_deleted {
            true if !is_end && !is_purged => survey.before_last_commit,
            _ => survey.last,
        };
        let over = there.as_ref().is_some_and(|there| there.status.state == SessionState::Deleted);
        if let Some(there) = &there {
            check(there, &record, is_purged.then_some(survey.last))?;
            if over && !is_end {
                return Ok(None);
            }
        }
        let mut sent = Sent::default();
        let start = there.as_ref().map_or(record.lineage.base(), |there| there.head);
        self.events(&record, survey.only, there.as_deref(), until, &mut sent).await?;
        if is_purged && !over {
            let is_bare = there.is_none() && until == record.lineage.base();
            self.tombstone(&record, is_bare, is_end).await?;
        }
        if is_purged && is_end {
            self.purge(id, survey.last).await?;
        }
        self.verify(&record, start, until, &sent).await?;
        {
            let mut tally = self.tally();
            tally.report.events += sent.events;
            tally.report.bytes += sent.bytes;
        }
        if is_deleted != is_end {
            return Ok(None);
        }
        if !is_purged {
            self.compare(record).await?;
        }
        let is_new = sent.events > 0 || (is_deleted && !over);
        Ok(Some(if is_new { Outcome::Copied } else { Outcome::Present }))
    }

    /// The record in the target, where there is one, and the one in the source.
    async fn both(&self, id: SessionId) -> Result<(Option<Arc<Session>>, Arc<Session>), Stop> {
        // First the target: what it has the source had before.
        let there = match self.copy.to.sessions.load(id).await.map_err(Stop::of_target) {
            Ok(there) => Some(there),
            Err(Stop::Absent(_)) => None,
            Err(stop) => return Err(stop),
        };
        let record = self.copy.from.sessions.load(id).await.map_err(Stop::of_source)?;
        match &record.newer {
            Some(what) => {
                Err(Stop::Refused(format!("it holds {what} of a newer version of this library; update it")))
            }
            None => Ok((there, record)),
        }
    }

    /// Purges in the target what was purged in the source. Doing it again is fine: a copy that was cut off may have left
    /// it undone.
    async fn purge(&self, id: SessionId, keep: Seq) -> Result<(), Stop> {
        let to = &*self.copy.to.sessions;
        let now = to.load(id).await.map_err(Stop::of_target)?;
        to.purge(Purge::new(id, now.head).keep(keep)).await.map_err(Stop::of_target)?;
        Ok(())
    }

    /// Refuses a copy whose record is not that of the source.
    async fn compare(&self, record: Arc<Session>) -> Result<(), Stop> {
        let there = self.copy.to.sessions.load(record.id).await.map_err(Stop::of_target)?;
        let (mut now, mut here) = (Arc::unwrap_or_clone(there), Arc::unwrap_or_clone(record));
        // Of no event, so no store can be told of them.
        (now.extra, here.extra) = (RawFields::new(), RawFields::new());
        if now == here {
            return Ok(());
        }
        let at = if now.head == here.head { "with another record" } else { "and somebody writes to it" };
        Err(Stop::Refused(format!("the target is at event {} {at}", now.head)))
    }

    /// Looks through the source's log, so that nothing of it is written where a part is damaged.
    async fn survey(&self, record: &Session) -> Result<Survey, Stop> {
        let base = record.lineage.base();
        let mut survey = Survey { only: None, last: base, before_last_commit: base };
        let mut read = Some(ReadEvents::first(PAGE_MAX).max_bytes(PAGE_BYTES).after(base));
        if let Some(read) = &mut read {
            read.before = Some(record.head.next());
        }
        let (mut pages, mut whole) = (0, base);
        while let Some(next) = read.take() {
            let page = self.copy.from.sessions.read(record.id, next).await.map_err(Stop::of_source)?;
            if let Some(damage) = page.damaged.first() {
                return Err(Stop::Damaged(damage.to_string()));
            }
            for event in &page.events {
                if event.seq != survey.last.next() {
                    return Err(Stop::Damaged(format!("event {} is missing", survey.last.next())));
                }
                if event.n == 1 {
                    survey.before_last_commit = survey.last;
                }
                survey.last = event.seq;
                if event.n == event.of {
                    whole = event.seq;
                }
            }
            pages += 1;
            survey.only = (pages == 1).then_some(page.events);
            read = page.next;
        }
        if survey.last == record.head && whole == survey.last {
            return Ok(survey);
        }
        if record.status.state != SessionState::Deleted {
            return Err(Stop::Damaged(format!(
                "its log ends at event {}, and its record says {}",
                survey.last, record.head
            )));
        }
        if whole != survey.last {
            return Err(Stop::Refused(format!(
                "it was purged, and what is kept of it ends with event {}, inside a commit; only whole commits can be copied",
                survey.last
            )));
        }
        Ok(survey)
    }

    /// Compares what is there, and writes the rest up to `until`.
    async fn events(
        &self,
        record: &Session,
        only: Option<Vec<Event>>,
        there: Option<&Session>,
        until: Seq,
        sent: &mut Sent,
    ) -> Result<(), Stop> {
        let (id, base) = (record.id, record.lineage.base());
        let (from, to) = (&*self.copy.from.sessions, &*self.copy.to.sessions);
        let mut source: BoxStream<'_, Result<Event>> = match only {
            Some(events) => stream::iter(events.into_iter().map(Ok)).boxed(),
            None => own_events(from, id, base, Some(until)),
        };
        let present = there.map_or(base, |there| there.head);
        let is_over = there.is_some_and(|there| there.status.state == SessionState::Deleted);
        let mut target = there.map(|_| own_events(to, id, base, Some(present.min(until))));
        let mut commit = Vec::new();
        while let Some(event) = source.try_next().await.map_err(Stop::of_source)? {
            if event.seq > until {
                break;
            }
            let (seq, is_last) = (event.seq, event.n == event.of);
            if let Some(target) = target.as_mut().filter(|_| seq <= present) {
                match target.try_next().await.map_err(Stop::of_target)? {
                    Some(there) if there == event => continue,
                    // It was purged there.
                    None if is_over => return Ok(()),
                    _ => {
                        return Err(Stop::Refused(format!(
                            "the target has another history under this id, from event {seq} on; it stays as it is"
                        )));
                    }
                }
            }
            commit.push(event);
            if is_last {
                self.send(id, std::mem::take(&mut commit), sent).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, id: SessionId, events: Vec<Event>, sent: &mut Sent) -> Result<(), Stop> {
        for event in &events {
            let line = event.to_json();
            sent.events += 1;
            sent.bytes += line.len() as u64;
            sent.hash.update(line);
        }
        let commit = Commit::restore(id, events).map_err(Stop::of_target)?;
        self.copy.to.sessions.settle(commit).await.map_err(Stop::of_target)?;
        Ok(())
    }

    /// Reads back what was written.
    async fn verify(&self, record: &Session, after: Seq, until: Seq, sent: &Sent) -> Result<(), Stop> {
        if sent.events == 0 {
            return Ok(());
        }
        let mut hash = Sha256::default();
        let mut events = own_events(&*self.copy.to.sessions, record.id, after, Some(until));
        while let Some(event) = events.try_next().await.map_err(Stop::of_target)? {
            hash.update(event.to_json());
        }
        if hash.finalize() == sent.hash.clone().finalize() {
            return Ok(());
        }
        Err(Stop::Refused(format!(
            "the target gives back other bytes than were written as events {} to {until}; its backend, or its disk, is at fault",
            after.next()
        )))
    }

    /// For a session of which nobody can tell the end any more: makes it where nothing of it is left, and ends it.
    async fn tombstone(&self, record: &Session, is_bare: bool, is_end: bool) -> Result<(), Stop> {
        let to = &*self.copy.to.sessions;
        if is_bare {
            let mut new = NewSession::new(record.id, record.workspace);
            new.created.origin = record.origin;
            new.created.depth = record.depth;
            new.created.lineage = record.lineage.clone();
            new.created.attributes = record.attributes.clone();
            let commit = made(record.id, "create", record.created_at, record.lineage.base())
                .actor(record.creator.clone())
                .expect(Expect::Absent)
                .trigger(Trigger::Create(Box::new(new)));
            to.settle(commit).await.map_err(Stop::of_target)?;
        }
        if is_end {
            let now = to.load(record.id).await.map_err(Stop::of_target)?;
            let at = record.ended_at.unwrap_or(record.updated_at);
            let commit = made(record.id, "delete", at, now.head)
                .expect(Expect::Is(now.head))
                .trigger(Trigger::Delete(record.status.reason));
            to.settle(commit).await.map_err(Stop::of_target)?;
        }
        Ok(())
    }
}

/// Whether a session that is in both may be gone on with.
fn check(there: &Session, here: &Session, kept: Option<Seq>) -> Result<(), Stop> {
    let is_deleted = |session: &Session| session.status.state == SessionState::Deleted;
    let reason = match (is_deleted(here), is_deleted(there)) {
        (false, true) => "it was deleted in the target, and its id is not used again".to_owned(),
        (true, true) => return Ok(()),
        // Nobody can tell any more whether it is the same, unless a copy that was cut off made it to end it.
        (true, false) if kept.is_some_and(|kept| there.head > kept) && !is_bare(there, here) => {
            "it was deleted and purged in the source since it was copied; delete it in the target".to_owned()
        }
        _ if there.head > here.head => {
            format!("the target is at event {}, ahead of the source, which is at {}", there.head, here.head)
        }
        _ => return Ok(()),
    };
    Err(Stop::Refused(reason))
}

/// Whether a session was made by a copy for the sake of its tombstone.
fn is_bare(there: &Session, here: &Session) -> bool {
    let bare = made(here.id, "create", here.created_at, here.lineage.base()).id;
    there.recent.iter().any(|commit| commit.id == bare)
}

/// A commit whose id follows from what it does, so that it takes effect once however often a copy is begun.
fn made(session: SessionId, what: &str, at: Timestamp, seen: Seq) -> Commit {
    let digest =
        Sha256::new().chain_update("agent-core copy ").chain_update(what).chain_update(session.as_uuid());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    let id = CommitId::from_uuid(Builder::from_custom_bytes(bytes).into_uuid());
    Commit::new(id, session, at, seen)
}
