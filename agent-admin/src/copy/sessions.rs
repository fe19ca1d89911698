//! Copy of sessions, by their unchanged commits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sha2::{Digest, Sha256};

use crate::blobs;
use crate::copy::compared::{check, fingerprint, made};
use crate::copy::{CopyStage, ItemOutcome, Stop, Work, full_text};
use agent_core::commit::{Commit, EPOCHS_PER_FENCE, Precondition, Trigger};
use agent_core::event::Event;
use agent_core::json::RawFields;
use agent_core::search::before_restore;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::SessionState;
use agent_core::store::{
    BlobContent, BlobInfo, PAGE_MAX, Purge, PutBlob, ReadBlob, ReadEvents, SessionQuery, own_events, pages,
};
use agent_core::{BlobName, Error, ErrorKind, OwnerId, Result, Seq, SessionId, SessionStoreExt};

/// Maximum bytes of a log that are read at a time, before one commit is complete.
const PAGE_BYTES: usize = 256 << 10;
/// Maximum number of attempts for a session to which another process writes. That process may be copying the same
/// session.
const TRIES: u32 = 8;

/// Content of a log, from its base on.
struct Survey {
    /// All events, if they fit in one page.
    only: Option<Vec<Event>>,
    /// Sequence number of the last event.
    last: Seq,
    /// Sequence number of the event before the last commit.
    before_last_commit: Seq,
    /// Blobs that the events name.
    blobs: BTreeSet<BlobName>,
}

/// Blobs of a session, with their numbers of bytes.
#[derive(Default)]
struct Blobs {
    source: BTreeMap<BlobName, u64>,
    target: BTreeMap<BlobName, u64>,
}

/// Amount of data that was written.
#[derive(Default)]
struct Sent {
    events: u64,
    bytes: u64,
    hash: Sha256,
    blobs: u64,
    blob_bytes: u64,
}

impl Work<'_> {
    /// Copies the sessions; deleted ones up to their deletion, because no session can be forked from them after that.
    pub(super) async fn sessions(&self) -> Result<()> {
        self.begin();
        let mut query = SessionQuery::new().with_hidden().with_total().with_limit(PAGE_MAX);
        query.workspace = self.copy.workspace;
        let known = match self.copy.changed_only {
            true => self.known(query.clone()).await?,
            false => HashMap::new(),
        };
        let mut listed = pages(query, |query| self.copy.from.sessions.list(query));
        let mut left_out = 0;
        while let Some(mut page) = self.page("sessions", listed.try_next().await)? {
            // The target makes a search index of its own, of what it has.
            let listed = page.items.len();
            page.items.retain(|item| !item.is_of_search_index());
            left_out += (listed - page.items.len()) as u64;
            self.tally().total = page.total.map(|total| total.saturating_sub(left_out));
            let all = std::mem::take(&mut page.items);
            for item in all {
                match known.get(&item.id) {
                    Some(there) if *there == fingerprint(&item) => {
                        let object = || format!("session {}", item.id);
                        self.note(CopyStage::Sessions, object, Ok(ItemOutcome::Present))?;
                    }
                    _ => page.items.push(item),
                }
            }
            before_restore(&*self.copy.to.sessions).await?;
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
        // If the index of the target was updated meanwhile.
        before_restore(&*self.copy.to.sessions).await
    }

    /// Returns the sessions that the target lists, each with its fingerprint. Those that its list cannot show are compared.
    async fn known(&self, query: SessionQuery) -> Result<HashMap<SessionId, [u8; 16]>> {
        let mut known = HashMap::new();
        let mut listed = pages(query, |query| self.copy.to.sessions.list(query));
        while let Some(page) = listed.try_next().await? {
            known.extend(page.items.iter().map(|item| (item.id, fingerprint(item))));
        }
        Ok(known)
    }

    /// Copies the ends of deleted sessions, then the tombstones of their workspaces.
    pub(super) async fn deletions(&self) -> Result<()> {
        self.begin();
        let mut query =
            SessionQuery::new().with_states([SessionState::Deleted]).with_total().with_limit(PAGE_MAX);
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

    /// Copies the ancestors of a session that the target lacks, the oldest first.
    async fn ancestors(&self, parent: SessionId) -> Result<()> {
        let (mut chain, mut next, mut depth) = (Vec::new(), Some(parent), u32::MAX);
        while let Some(id) = next {
            if self.tally().failed.contains(&id) {
                break;
            }
            match self.copy.to.sessions.load(id).await.map_err(Stop::of_target) {
                Err(Stop::Absent(_)) => {}
                // A temporary failure must not skip an ancestor, whose deletion would be copied later.
                Err(Stop::All(error)) => return Err(error),
                _ => break,
            }
            let record = match self.copy.from.sessions.load(id).await.map_err(Stop::of_source) {
                Ok(record) => record,
                Err(Stop::All(error)) => return Err(error),
                // Unreadable ancestors are reported when the list reaches them.
                Err(_) => break,
            };
            if record.depth >= depth {
                // The parents form a circle, and none can be created first; the target refuses each.
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
                // What was missing may have been purged meanwhile. The next attempt sees that.
                Err(Stop::Damaged(_) | Stop::Refused(_)) if tries == 0 && self.is_deleted(id).await => {
                    tries = 1;
                }
                done => break done,
            }
        };
        let copied = match copied {
            // The session is counted when its deletion is copied.
            Ok(None) => return Ok(()),
            Ok(Some(outcome)) => Ok(outcome),
            Err(stop) => Err(stop),
        };
        let is_refused = matches!(copied, Err(Stop::Refused(_) | Stop::Absent(_) | Stop::Raced(_)));
        if !self.note(stage, || format!("session {id}"), copied)? {
            // The parent must not be deleted in the target before this session is copied, since no session can be created
            // from a deleted one.
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

    /// Returns whether a session is deleted in the source now.
    async fn is_deleted(&self, id: SessionId) -> bool {
        let record = self.copy.from.sessions.load(id).await;
        record.is_ok_and(|record| record.status.state == SessionState::Deleted)
    }

    /// Brings a session to its state in the source; `None` if its end is copied later.
    async fn attempt(&self, id: SessionId, stage: CopyStage) -> Result<Option<ItemOutcome>, Stop> {
        let needed = self.tally().needed.get(&id).copied();
        if let (CopyStage::Deletions, Some(by)) = (stage, needed) {
            return Err(Stop::Refused(format!(
                "its deletion is copied after session {by}, which was made from it and was not copied"
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
            check(there, &record, is_purged.then_some(survey.last), self.copy.fences)?;
            if over && !is_end {
                return Ok(None);
            }
        }
        let mut sent = Sent::default();
        let start = there.as_ref().map_or(record.lineage.base(), |there| there.head);
        // A deleted session takes no more blobs.
        let mut blobs = match over {
            true => Blobs::default(),
            false => self.blobs(id, &survey.blobs).await?,
        };
        let copied = self.events(&record, survey.only, there.as_deref(), until, &mut blobs, &mut sent).await;
        {
            // Also if a damaged blob ended the copy of the session: what was written before it stays.
            let mut tally = self.tally();
            tally.report.events += sent.events;
            tally.report.bytes += sent.bytes;
            tally.report.blobs += sent.blobs;
            tally.report.blob_bytes += sent.blob_bytes;
        }
        copied?;
        if is_purged && !over {
            let is_bare = there.is_none() && until == record.lineage.base();
            self.tombstone(&record, is_bare, is_end).await?;
        }
        if is_purged && is_end {
            self.purge(id, survey.last, record.owner.as_ref()).await?;
        }
        self.verify(&record, start, until, &sent).await?;
        if is_deleted != is_end {
            return Ok(None);
        }
        // What a place has beyond its backup stays: it was not lost, or was restored before.
        let fences = self.copy.fences && !is_deleted;
        let is_ahead = fences && there.as_ref().is_some_and(|there| there.head > record.head);
        if !is_purged && !is_ahead {
            self.compare(record.clone()).await?;
        }
        if fences {
            self.fence(&record, there.as_deref()).await?;
        }
        let is_new = sent.events > 0 || (is_deleted && !over);
        Ok(Some(if is_new { ItemOutcome::Copied } else { ItemOutcome::Present }))
    }

    /// Fences a restored session, unless a restore of this backup did so before.
    async fn fence(&self, record: &SessionRecord, there: Option<&SessionRecord>) -> Result<(), Stop> {
        let raised = record.epoch.get().saturating_add(EPOCHS_PER_FENCE);
        if there.is_none_or(|there| there.epoch.get() < raised) {
            self.copy.to.sessions.trigger(record.id, Trigger::Fence).await.map_err(Stop::of_target)?;
            self.tally().report.fenced += 1;
        }
        Ok(())
    }

    /// Returns the record in the target, if there is one, and the record in the source.
    async fn both(&self, id: SessionId) -> Result<(Option<Arc<SessionRecord>>, Arc<SessionRecord>), Stop> {
        // The target is read first, because the source had its events before.
        let there = match self.copy.to.sessions.load(id).await.map_err(Stop::of_target) {
            Ok(there) => Some(there),
            Err(Stop::Absent(_)) => None,
            Err(stop) => return Err(stop),
        };
        let record = self.copy.from.sessions.load(id).await.map_err(Stop::of_source)?;
        match &record.unsupported {
            Some(what) => {
                Err(Stop::Refused(format!("it contains {what} of a newer version; update this program")))
            }
            None => Ok((there, record)),
        }
    }

    /// Purges in the target what was purged in the source. Can be repeated, because an interrupted copy may not have
    /// done it.
    async fn purge(&self, id: SessionId, keep: Seq, owner: Option<&OwnerId>) -> Result<(), Stop> {
        let to = &*self.copy.to.sessions;
        let now = to.load(id).await.map_err(Stop::of_target)?;
        let mut purge = Purge::new(id, now.head).with_keep_through(keep);
        // An erasure put a pseudonym in the owner's place.
        if let (Some(owner), true) = (owner, owner != now.owner.as_ref()) {
            purge = purge.with_pseudonym(owner.clone());
        }
        to.purge(purge).await.map_err(Stop::of_target)?;
        Ok(())
    }

    /// Refuses a copy whose record differs from that of the source.
    async fn compare(&self, record: Arc<SessionRecord>) -> Result<(), Stop> {
        let there = self.copy.to.sessions.load(record.id).await.map_err(Stop::of_target)?;
        let (mut now, mut here) = (Arc::unwrap_or_clone(there), Arc::unwrap_or_clone(record));
        // These fields come from no event, so they cannot be copied.
        (now.extra, here.extra) = (RawFields::new(), RawFields::new());
        if now == here {
            return Ok(());
        }
        let at = if now.head == here.head {
            "with a different record"
        } else {
            "and another process is writing to it"
        };
        Err(Stop::Refused(format!("the target is at event {} {at}", now.head)))
    }

    /// Checks the whole log of the source first, so that nothing is written if a part is damaged.
    async fn survey(&self, record: &SessionRecord) -> Result<Survey, Stop> {
        let base = record.lineage.base();
        let mut survey = Survey { only: None, last: base, before_last_commit: base, blobs: BTreeSet::new() };
        let mut read = Some(ReadEvents::first(PAGE_MAX).with_max_bytes(PAGE_BYTES).with_after(base));
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
                survey.blobs.extend(&event.blobs);
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
                "its log ends at event {}, but its record says {}",
                survey.last, record.head
            )));
        }
        if whole != survey.last {
            return Err(Stop::Refused(format!(
                "it was purged, and its remaining events end with event {}, inside a commit; only whole commits can be copied",
                survey.last
            )));
        }
        Ok(survey)
    }

    /// Compares the existing events, and writes the rest up to `until`.
    async fn events(
        &self,
        record: &SessionRecord,
        only: Option<Vec<Event>>,
        there: Option<&SessionRecord>,
        until: Seq,
        blobs: &mut Blobs,
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
                    // The session was purged in the target.
                    None if is_over => return Ok(()),
                    _ => {
                        return Err(Stop::Refused(format!(
                            "the target has a different history under this id, from event {seq} on; it was not changed"
                        )));
                    }
                }
            }
            commit.push(event);
            if is_last {
                self.send_blobs(id, &commit, blobs, sent).await?;
                self.send(id, std::mem::take(&mut commit), sent).await?;
            }
        }
        Ok(())
    }

    /// Returns the blobs of a session in both stores, if its events name any. Refuses a session of which the target
    /// cannot keep a blob, before anything of it is written.
    async fn blobs(&self, id: SessionId, named: &BTreeSet<BlobName>) -> Result<Blobs, Stop> {
        let (from, to) = (&*self.copy.from.sessions, &*self.copy.to.sessions);
        if named.is_empty() {
            return Ok(Blobs::default());
        }
        let most = to.capabilities().blob_max_bytes;
        if most == 0 {
            return Err(Stop::Refused(format!(
                "its events name {} blobs, and the target keeps none; copy it to a store that keeps blobs",
                named.len()
            )));
        }
        let source = blobs::sizes(from, id).await.map_err(Stop::of_source)?;
        let too_large = |blob: &(&BlobName, &u64)| *blob.1 > most && named.contains(blob.0);
        if let Some((name, bytes)) = source.iter().find(too_large) {
            return Err(Stop::Refused(format!(
                "blob {name} has {bytes} bytes, and the target keeps at most {most}; copy it to a store that keeps larger \
                 blobs"
            )));
        }
        Ok(Blobs { source, target: blobs::sizes(to, id).await.map_err(Stop::of_target)? })
    }

    /// Writes the blobs of a commit that the target does not have for the session.
    async fn send_blobs(
        &self,
        id: SessionId,
        commit: &[Event],
        blobs: &mut Blobs,
        sent: &mut Sent,
    ) -> Result<(), Stop> {
        for event in commit {
            for name in &event.blobs {
                let here = blobs.source.get(name);
                if blobs.target.get(name).is_some_and(|there| here.is_none_or(|here| here == there)) {
                    continue;
                }
                let damaged = |why: &str| {
                    let copied = Seq::new(commit[0].seq.get() - 1);
                    Stop::Damaged(format!(
                        "event {}: {why}; the events up to {copied} are in the target; run `verify`, then `salvage`",
                        event.seq
                    ))
                };
                if here.is_none() {
                    return Err(damaged(&format!("blob {name} is lost")));
                }
                let blob = match self.send_blob(id, *name).await {
                    Err(Stop::Damaged(why)) => return Err(damaged(&why)),
                    blob => blob?,
                };
                blobs.target.insert(blob.name, blob.bytes);
                sent.blobs += 1;
                sent.blob_bytes += blob.bytes;
            }
        }
        Ok(())
    }

    /// Streams a blob to the target, and reads it back.
    async fn send_blob(&self, id: SessionId, name: BlobName) -> Result<BlobInfo, Stop> {
        let (from, to) = (&*self.copy.from.sessions, &*self.copy.to.sessions);
        let of_source = |error: Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::Corrupt => Stop::Damaged(full_text(&error)),
            _ => Stop::of_source(error),
        };
        let BlobContent { blob, content, .. } =
            from.blobs().read(ReadBlob::new(id, name)).await.map_err(of_source)?;
        let failed = Arc::new(AtomicBool::new(false));
        let flag = failed.clone();
        let content = content.inspect_err(move |_| flag.store(true, Ordering::Relaxed)).boxed();
        to.blobs().put(PutBlob::new(id, blob, content)).await.map_err(|error| {
            // The error may be that of the source, which the target handed on.
            if failed.load(Ordering::Relaxed) { of_source(error) } else { Stop::of_target(error) }
        })?;
        let differs = |error: Error| match error.kind() {
            ErrorKind::Corrupt => Stop::Refused(format!(
                "blob {name} that the target returned differs from the one that was written; check its disk: {}",
                full_text(&error)
            )),
            _ => Stop::of_target(error),
        };
        let mut back = to.blobs().read(ReadBlob::new(id, name)).await.map_err(differs)?.content;
        while back.try_next().await.map_err(differs)?.is_some() {}
        Ok(blob)
    }

    async fn send(&self, id: SessionId, events: Vec<Event>, sent: &mut Sent) -> Result<(), Stop> {
        for event in &events {
            let line = event.to_json();
            sent.events += 1;
            sent.bytes += line.len() as u64;
            sent.hash.update(line);
        }
        let commit = Commit::restore(id, events).map_err(Stop::of_target)?;
        self.copy.to.sessions.commit_with_retry(commit).await.map_err(Stop::of_target)?;
        Ok(())
    }

    /// Reads back and checks the events that were written.
    async fn verify(&self, record: &SessionRecord, after: Seq, until: Seq, sent: &Sent) -> Result<(), Stop> {
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
            "events {} to {until} that the target returned differ from those that were written; check its disk",
            after.next()
        )))
    }

    /// Copies a purged session: creates it if none of its events is left, and deletes it.
    async fn tombstone(&self, record: &SessionRecord, is_bare: bool, is_end: bool) -> Result<(), Stop> {
        let to = &*self.copy.to.sessions;
        if is_bare {
            let mut new = NewSession::new(record.id, record.workspace);
            new.created.origin = record.origin;
            new.created.depth = record.depth;
            new.created.lineage = record.lineage.clone();
            new.created.attributes = record.attributes.clone();
            let commit = made(record.id, "create", record.created_at, record.lineage.base())
                .with_actor(record.creator.clone())
                .with_precondition(Precondition::MustNotExist)
                .with_trigger(Trigger::Create(Box::new(new)));
            to.commit_with_retry(commit).await.map_err(Stop::of_target)?;
        }
        if is_end {
            let now = to.load(record.id).await.map_err(Stop::of_target)?;
            let at = record.ended_at.unwrap_or(record.updated_at);
            let commit = made(record.id, "delete", at, now.head)
                .with_precondition(Precondition::Matches(now.head))
                .with_trigger(Trigger::Delete(record.status.reason));
            to.commit_with_retry(commit).await.map_err(Stop::of_target)?;
        }
        Ok(())
    }
}
