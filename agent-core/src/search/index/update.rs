//! Bringing an index up to date.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::base::{ErrorKind, Result, Seq, SessionId, SessionState, Timestamp, WorkspaceId};
use crate::search::fold::Folded;
use crate::search::index::reader::{Reader, is_broken, whole};
use crate::search::index::root::{self, Manifest, Root};
use crate::search::index::segment::{Builder, Segment};
use crate::search::text::{text, types};
use crate::search::tokens::tokens;
use crate::store::hidden::HiddenSession;
use crate::store::page::{PAGE_MAX, pages};
use crate::store::read::ReadEvents;
use crate::store::session::{Consistency, SessionQuery};
use crate::store::sessions::Sessions;

/// Bytes of texts after which a segment is stored.
const BATCH: usize = 32 << 20;

/// Segments of like size that become one, and the most bytes of it.
const MERGED: usize = 8;
const MERGED_BYTES: u64 = 64 << 20;

/// Microseconds after which what belongs to no index is removed. Another update may be making one.
const LEFTOVER: i64 = 3600 * 1_000_000;

/// Result of an update of a search index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IndexUpdate {
    /// Number of sessions of which something was added.
    pub sessions: u64,
    /// Number of events that were added.
    pub events: u64,
    /// Number of segments that the index has.
    pub segments: u64,
    /// Number of former parts of the index whose bytes could not be removed: the store cannot purge, or a damaged session may be a fork of
    /// any other. The next update tries again.
    pub leftovers: u64,
    /// True if another update was faster. This one has given up then, and what it has counted may be counted by the other.
    pub is_overtaken: bool,
    /// False if the update was overtaken, or sessions could not be read. Searches are right all the same, and read more.
    pub is_complete: bool,
}

/// Session that is to be indexed.
struct Behind {
    id: SessionId,
    workspace: WorkspaceId,
    head: Seq,
    last_active_at: Timestamp,
}

/// Update that is going on.
struct Update<'a> {
    sessions: &'a Sessions,
    root: Root,
    manifest: Manifest,
    /// Sessions of each segment.
    rows: Vec<Vec<SessionId>>,
    through: HashMap<SessionId, Seq>,
    builder: Builder,
    /// Time of the last activity of all sessions.
    newest: Timestamp,
    report: IndexUpdate,
}

pub(super) async fn update(sessions: &Sessions) -> Result<IndexUpdate> {
    let began = sessions.effects().now();
    let root = match Root::find(sessions).await? {
        Some(root) => root,
        None => Root::create(sessions).await?,
    };
    let manifest = root.manifest.clone().unwrap_or_else(|| Manifest::new(sessions.effects()));
    let mut update = Update {
        sessions,
        root,
        manifest,
        rows: Vec::new(),
        through: HashMap::new(),
        builder: Builder::default(),
        newest: Timestamp::MIN,
        report: IndexUpdate { is_complete: true, ..IndexUpdate::default() },
    };
    update.read_rows().await?;
    let (all, behind) = update.list().await?;
    for session in behind {
        if !update.add(&session).await? {
            return Ok(update.report);
        }
    }
    if !update.builder.is_empty() && !update.flush().await? || !update.merge(&all).await? {
        return Ok(update.report);
    }
    update.end(began).await?;
    Ok(update.report)
}

impl Update<'_> {
    /// Reads which sessions are in the segments. An index that cannot be read is made anew.
    async fn read_rows(&mut self) -> Result<()> {
        for segment in self.manifest.segments.clone() {
            let rows = async {
                let mut reader = Reader::open(&**self.sessions, segment).await?;
                reader.rows(&**self.sessions).await
            };
            match rows.await {
                Ok(rows) => {
                    for row in &rows {
                        let through = self.through.entry(row.id).or_default();
                        *through = (*through).max(row.through);
                    }
                    self.rows.push(rows.into_iter().map(|row| row.id).collect());
                }
                Err(error) if is_broken(&error) => {
                    self.forget();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Begins an index anew.
    fn forget(&mut self) {
        self.manifest = Manifest::new(self.sessions.effects());
        (self.rows, self.through) = (Vec::new(), HashMap::new());
    }

    /// Returns the ids of all sessions, and those that are not indexed to their end, the ones that were active last at the end.
    async fn list(&mut self) -> Result<(HashSet<SessionId>, Vec<Behind>)> {
        let states = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
        let query = SessionQuery::new().with_states(states).with_limit(PAGE_MAX);
        let mut found = Vec::new();
        let mut listed = pages(query, |query| self.sessions.list(query));
        while let Some(page) = listed.try_next().await? {
            // What is not known to be indexed has to be looked for each time.
            self.report.is_complete &= page.damaged.is_empty();
            for session in page.items {
                let is_hidden = session.is_of_search_index()
                    || HiddenSession::of(session.id, session.workspace, &session.attributes).is_some();
                if !is_hidden {
                    self.newest = self.newest.max(session.last_active_at);
                    let (id, workspace, head) = (session.id, session.workspace, session.head);
                    found.push(Behind { id, workspace, head, last_active_at: session.last_active_at });
                }
            }
        }
        drop(listed);
        let all = found.iter().map(|session| session.id).collect();
        let through = |id| self.through.get(id).copied().unwrap_or_default();
        // An older copy of a session was put in its place: what was indexed of it is not what follows now.
        let is_sure = self.sessions.capabilities().listing == Consistency::Immediate;
        if is_sure && found.iter().any(|session| through(&session.id) > session.head) {
            self.forget();
        }
        found.retain(|session| self.through.get(&session.id).is_none_or(|through| *through < session.head));
        found.sort_by_key(|session| (session.last_active_at, session.id));
        Ok((all, found))
    }

    /// Adds what is new in a session. Returns false if another update was faster.
    async fn add(&mut self, session: &Behind) -> Result<bool> {
        let after = self.through.get(&session.id).copied().unwrap_or_default();
        let mut read = ReadEvents::first(200).with_types(types()).with_max_bytes(1 << 20).with_after(after);
        self.builder.begin(session.id, session.workspace);
        let mut through = after;
        loop {
            let page = match self.sessions.read(session.id, read.clone()).await {
                Ok(page) => page,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted) => break,
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    self.report.is_complete = false;
                    break;
                }
                Err(error) => return Err(error),
            };
            for event in &page.events {
                let text = text(event).unwrap_or_default();
                let folded = Folded::new(&text);
                let hashes = tokens(folded.text()).into_iter().map(|token| self.manifest.hash(token));
                self.builder.add(event, text.len(), hashes);
                self.report.events += 1;
                through = event.seq;
            }
            if !page.damaged.is_empty() {
                self.report.is_complete = false;
                break;
            }
            let Some(next) = page.next else {
                through = through.max(session.head);
                break;
            };
            read = next;
            if self.builder.bytes() >= BATCH {
                self.builder.end(through);
                if !self.flush().await? {
                    return Ok(false);
                }
                self.builder.begin(session.id, session.workspace);
            }
        }
        self.builder.end(through);
        self.report.sessions += 1;
        if self.builder.bytes() >= BATCH { self.flush().await } else { Ok(true) }
    }

    /// Stores what was added as a segment. Returns false if another update was faster.
    async fn flush(&mut self) -> Result<bool> {
        let segment = std::mem::take(&mut self.builder).finish();
        let end = self.manifest.segments.len();
        self.replace(end..end, segment).await
    }

    /// Puts one segment in the place of others. Returns false if another update was faster.
    async fn replace(&mut self, range: Range<usize>, segment: Segment) -> Result<bool> {
        let rows: Vec<_> = segment.sessions.iter().map(|row| row.id).collect();
        let new = match rows.is_empty() {
            true => None,
            false => Some(root::put(self.sessions, segment.encode()?).await?),
        };
        let mut manifest = self.manifest.clone();
        let old: Vec<_> = manifest.segments.splice(range.clone(), new).collect();
        if !self.root.store(self.sessions, manifest.clone()).await? {
            if let Some(new) = new {
                root::remove(self.sessions, new.session).await?;
            }
            return Ok(self.overtaken());
        }
        self.manifest = manifest;
        self.rows.splice(range, new.map(|_| rows));
        for segment in old {
            root::remove(self.sessions, segment.session).await?;
        }
        Ok(true)
    }

    /// Merges segments, and leaves out sessions that are gone. Returns false if another update was faster.
    async fn merge(&mut self, all: &HashSet<SessionId>) -> Result<bool> {
        while let Some(range) = self.next_merge(all) {
            let mut segments = Vec::with_capacity(range.len());
            for of in self.manifest.segments.get(range.clone()).unwrap_or_default() {
                segments.push(Segment::decode(&whole(&**self.sessions, of).await?)?);
            }
            let merged = Segment::merge(segments, |id| !all.contains(id));
            if !self.replace(range, merged).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn next_merge(&self, all: &HashSet<SessionId>) -> Option<Range<usize>> {
        let gone = self.rows.iter().position(|rows| rows.iter().any(|id| !all.contains(id)));
        if let Some(n) = gone {
            return Some(n..n + 1);
        }
        let segments = &self.manifest.segments;
        let tier = |bytes: u64| (bytes >> 16).checked_ilog(MERGED as u64).map_or(0, |tier| tier + 1);
        let last = tier(segments.last()?.bytes);
        let run = segments.iter().rev().take_while(|segment| tier(segment.bytes) <= last).count();
        let range = segments.len() - run..segments.len();
        let bytes: u64 = segments.get(range.clone())?.iter().map(|segment| segment.bytes).sum();
        (run >= MERGED && bytes <= MERGED_BYTES).then_some(range)
    }

    /// Notes that another update was faster. Returns false.
    const fn overtaken(&mut self) -> bool {
        (self.report.is_overtaken, self.report.is_complete) = (true, false);
        false
    }

    /// Notes that all is indexed, and removes what belongs to no index.
    async fn end(&mut self, began: Timestamp) -> Result<()> {
        let mut manifest = self.manifest.clone();
        // Not by a clock that is ahead of those of the writers.
        manifest.updated_at = self.report.is_complete.then_some(began.min(self.newest));
        let is_new = self.root.manifest.as_ref() != Some(&manifest);
        if is_new && !self.root.store(self.sessions, manifest).await? {
            self.overtaken();
            return Ok(());
        }
        self.report.segments = self.manifest.segments.len() as u64;
        for part in root::parts(self.sessions).await? {
            let is_deleted = part.status.state == SessionState::Deleted;
            let is_used =
                part.id == self.root.id || self.manifest.segments.iter().any(|of| of.session == part.id);
            let is_old = part.created_at.plus_micros(LEFTOVER) < began;
            if (is_deleted || !is_used && is_old) && !root::remove(self.sessions, part.id).await? {
                self.report.leftovers += 1;
            }
        }
        Ok(())
    }
}
