//! Index of the texts of sessions, so that a search need not read all logs.
//!
//! An index is kept in sessions of the store itself: one that says what it consists of, and one for each segment, which is a blob. So it
//! works on every store that has blobs, and what keeps tenants and owners apart keeps their indexes apart. Nothing depends on it: a search
//! reads the events that it proposes, and those that it does not have yet.

mod reader;
mod root;
mod segment;
mod update;

use std::collections::HashMap;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use crate::base::{Error, Result, Seq, SessionId, Timestamp, WorkspaceId};
use crate::search::query::Query;
use crate::store::session::SessionStore;
use crate::store::sessions::Sessions;

use reader::Reader;
use root::{Root, SegmentRef};
use segment::Row;

pub(crate) use reader::is_broken;
pub use update::IndexUpdate;

/// Reads from a store that are under way at once.
pub(crate) const AT_ONCE: usize = 8;

/// Index that is asked for what a query looks for.
#[derive(Debug)]
pub(crate) struct Index {
    segments: Vec<Found>,
    through: HashMap<SessionId, Seq>,
    /// Time at which the last update began that has looked at all sessions.
    pub(crate) updated_at: Option<Timestamp>,
}

/// Segment, and the blocks of it that are not looked at yet.
#[derive(Debug)]
struct Found {
    reader: Reader,
    rows: Vec<Row>,
    /// Earliest time of the events of each session in later segments.
    caps: Vec<Option<Timestamp>>,
    blocks: std::vec::IntoIter<u32>,
}

/// Events that may be found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) session: SessionId,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// Latest place of what the segment has after these, in the order of a search.
    pub(crate) bound: Timestamp,
    /// Latest and earliest place of these.
    pub(crate) until: Timestamp,
    pub(crate) since: Timestamp,
}

/// Reads which sessions a segment has, and which of its blocks have all these tokens.
async fn open(
    store: &dyn SessionStore,
    of: SegmentRef,
    hashes: &[u64],
) -> Result<(Reader, Vec<Row>, Vec<u32>)> {
    let mut reader = Reader::open(store, of).await?;
    let rows = reader.rows(store).await?;
    let blocks = reader.find(store, hashes).await?;
    Ok((reader, rows, blocks))
}

impl Index {
    /// Opens the index of a handle, if there is one that can be read.
    pub(crate) async fn open(sessions: &Sessions, query: &Query) -> Result<Option<Self>> {
        let Some(root) = Root::find(sessions).await? else { return Ok(None) };
        let Some(manifest) = root.manifest else { return Ok(None) };
        let hashes: Vec<_> = query.tokens().iter().map(|token| manifest.hash(token)).collect();
        let store = &**sessions;
        let segments = manifest.segments.iter().rev();
        let opened: Vec<_> = segments.map(|of| open(store, *of, &hashes).boxed()).collect();
        let opened: Vec<_> = stream::iter(opened).buffered(AT_ONCE).try_collect().await?;
        let (mut segments, mut through) = (Vec::new(), HashMap::new());
        let mut later: HashMap<SessionId, Timestamp> = HashMap::new();
        for (reader, rows, blocks) in opened {
            let caps = rows.iter().map(|row| later.get(&row.id).copied()).collect();
            for row in &rows {
                later.entry(row.id).and_modify(|at| *at = (*at).min(row.earliest)).or_insert(row.earliest);
                let known = through.entry(row.id).or_insert(Seq::ZERO);
                *known = row.through.max(*known);
            }
            segments.push(Found { reader, rows, caps, blocks: blocks.into_iter() });
        }
        Ok(Some(Self { segments, through, updated_at: manifest.updated_at }))
    }

    /// Returns the most microseconds by which the time of an event is later than its place in the order of a search.
    pub(crate) fn skew(&self) -> i64 {
        self.segments.iter().map(|segment| segment.reader.skew()).max().unwrap_or_default()
    }

    pub(crate) fn segments(&self) -> std::ops::Range<usize> {
        0..self.segments.len()
    }

    /// Returns the event up to which a session with this head is indexed; `None` if nothing of it is, or if the index is of another log: one
    /// that was longer before a part of a backup was restored.
    pub(crate) fn through(&self, id: SessionId, head: Seq) -> Option<Seq> {
        self.through.get(&id).copied().filter(|through| *through <= head)
    }

    /// Returns the next events of a segment that may be found, the latest first.
    pub(crate) async fn next(
        &mut self,
        store: &dyn SessionStore,
        segment: usize,
        is_wanted: impl Fn(SessionId, WorkspaceId) -> bool,
    ) -> Result<Option<Candidate>> {
        let Some(found) = self.segments.get_mut(segment) else { return Ok(None) };
        for n in found.blocks.by_ref() {
            let mut block = found.reader.block(store, n).await?;
            let at = block.session as usize;
            let Some((row, cap)) = found.rows.get(at).zip(found.caps.get(at)) else { continue };
            if !is_wanted(row.id, row.workspace) {
                continue;
            }
            let bound = block.until;
            block.cap(*cap);
            let (first, last, until, since) = (block.first, block.last, block.until, block.since);
            return Ok(Some(Candidate { session: row.id, first, last, bound, until, since }));
        }
        Ok(None)
    }
}

impl Sessions {
    /// Brings the search index of this handle up to date, and makes it if there is none.
    ///
    /// A search with an index reads the events that may be found and those that are not indexed yet, instead of all; the hits are the same.
    /// The index has the sessions that the handle shows: those of the tenant, or those of an owner. It is never updated by itself: call this
    /// once in a while, such as each hour, or when a search says that it has read as much as it may. It reads what was added since the last
    /// update. In memory it has what 32 MiB of texts need, or segments of 64 MiB while these become one, which take several times that. Of
    /// several updates at the same time one goes on.
    ///
    /// It is kept in archived sessions of the workspace `default` with the label `hidden`, and holds hashes of the words, with a key that is
    /// stored beside them. What it has of deleted sessions goes with the next update that is complete.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::event::NewEvent;
    /// use agent_core::search::Search;
    ///
    /// # let (store, effects, session) = session().await?;
    /// store.append(session.id, session.head, vec![NewEvent::user_message("Der Zug fährt um 9")]).await?;
    /// let updated = store.update_search_index().await?;
    /// assert!(updated.is_complete && updated.segments == 1);
    /// assert_eq!(store.search(&Search::new("zug")).await?.hits.len(), 1);
    /// store.remove_search_index().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point: what was stored stays, and the next update goes on.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the store keeps no blobs; any error of the store. Sessions that are damaged are left out.
    pub async fn update_search_index(&self) -> Result<IndexUpdate> {
        update::update(self).await
    }

    /// Removes the search index of this handle. Searches read all logs then. Returns the number of sessions that it was kept in; 0 if there
    /// was none.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point; call it again to remove the rest.
    ///
    /// # Errors
    ///
    /// Any error of the store; `Unsupported` if bytes of it are left, since the store cannot purge, or a damaged session may be a fork of any
    /// other.
    pub async fn remove_search_index(&self) -> Result<u64> {
        let (mut removed, mut left) = (0, 0);
        // The sessions that name segments first.
        for part in root::parts(self).await? {
            match root::remove(self, part.id).await? {
                true => removed += 1,
                false => left += 1,
            }
        }
        match left {
            0 => Ok(removed),
            _ => Err(Error::unsupported(format!(
                "the search index is removed, but {left} of its sessions keep their bytes: the store cannot purge, or a damaged session may \
                 be a fork of any other; verify the store, then remove the index again"
            ))),
        }
    }
}

/// For those who [restore](crate::commit::Commit::restore) sessions: makes searches look at all sessions again, whatever their times, until the
/// next update of the index. Call it before the first commit of each session that is restored, and after the last one, if the index is updated
/// meanwhile: a session that was last active before the last update is not found otherwise.
///
/// # Errors
///
/// Any error of the store.
pub async fn before_restore(store: &dyn SessionStore) -> Result<()> {
    root::outdate(store).await
}
