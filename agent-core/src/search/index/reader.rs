//! Reading from a stored segment, piece by piece.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use crate::base::{Error, ErrorKind, Result};
use crate::model::BLOB_CHUNK_BYTES;
use crate::search::index::root::SegmentRef;
use crate::search::index::segment::{self, Block, HEADER_BYTES, Layout, Row};
use crate::store::blob::ReadBlob;
use crate::store::session::SessionStore;

/// Segment of which what was read is kept.
#[derive(Debug)]
pub(super) struct Reader {
    of: SegmentRef,
    chunks: HashMap<u64, Bytes>,
    layout: Layout,
}

/// Reads a whole segment.
pub(super) async fn whole(store: &dyn SessionStore, of: &SegmentRef) -> Result<Bytes> {
    let content = store.blobs().read(ReadBlob::new(of.session, of.blob)).await?;
    content.into_bytes(usize::try_from(of.bytes).unwrap_or(usize::MAX)).await
}

impl Reader {
    pub(super) async fn open(store: &dyn SessionStore, of: SegmentRef) -> Result<Self> {
        let mut reader = Self { of, chunks: HashMap::new(), layout: Layout::default() };
        let header = reader.bytes(store, 0..HEADER_BYTES).await?;
        reader.layout = Layout::parse(&header, of.bytes)?;
        Ok(reader)
    }

    /// Reads bytes, in chunks as they are stored.
    async fn bytes(&mut self, store: &dyn SessionStore, range: Range<u64>) -> Result<Bytes> {
        let size = BLOB_CHUNK_BYTES as u64;
        if range.start > range.end || range.end > self.of.bytes {
            return Err(short());
        }
        let mut found = Vec::new();
        for n in range.start / size..range.end.div_ceil(size) {
            let begin = n * size;
            let chunk = match self.chunks.get(&n) {
                Some(chunk) => chunk.clone(),
                None => {
                    let end = (begin + size).min(self.of.bytes);
                    let read = ReadBlob::new(self.of.session, self.of.blob).with_range(begin..end);
                    let chunk = store.blobs().read(read).await?.into_bytes(BLOB_CHUNK_BYTES).await?;
                    if chunk.len() as u64 != end - begin {
                        return Err(short());
                    }
                    self.chunks.insert(n, chunk.clone());
                    chunk
                }
            };
            let within = |at: u64| at.saturating_sub(begin).min(chunk.len() as u64);
            let part = within(range.start)..within(range.end);
            if part.end - part.start == range.end - range.start {
                let (Ok(from), Ok(to)) = (usize::try_from(part.start), usize::try_from(part.end)) else {
                    break;
                };
                return Ok(chunk.slice(from..to));
            }
            found.extend_from_slice(segment::part_of(&chunk, part)?);
        }
        Ok(found.into())
    }

    pub(super) async fn rows(&mut self, store: &dyn SessionStore) -> Result<Vec<Row>> {
        let bytes = self.bytes(store, HEADER_BYTES..self.layout.sessions_end()).await?;
        Ok(segment::rows(&bytes))
    }

    pub(super) async fn block(&mut self, store: &dyn SessionStore, n: u32) -> Result<Block> {
        segment::block(&self.bytes(store, self.layout.block_at(n)).await?)
    }

    pub(super) const fn skew(&self) -> i64 {
        self.layout.skew
    }

    /// Returns the blocks that have all these tokens.
    pub(super) async fn find(&mut self, store: &dyn SessionStore, hashes: &[u64]) -> Result<Vec<u32>> {
        let mut lists = Vec::with_capacity(hashes.len());
        for hash in hashes {
            let Some(list) = self.list_of(store, *hash).await? else { return Ok(Vec::new()) };
            lists.push(list);
        }
        lists.sort_by_key(|list| list.end - list.start);
        let mut found: Option<Vec<u32>> = None;
        for list in lists {
            let range = self.layout.list_at(list.start)..self.layout.list_at(list.end);
            let numbers = segment::numbers(&self.bytes(store, range).await?, self.layout.blocks)?;
            found = Some(match found {
                Some(found) => common(found, &numbers),
                None => numbers,
            });
            if found.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
        }
        Ok(found.unwrap_or_default())
    }

    /// Finds where the list of a token is. Hashes lie evenly, so that the first guess is near.
    async fn list_of(&mut self, store: &dyn SessionStore, hash: u64) -> Result<Option<Range<u32>>> {
        let (mut low, mut high) = (0, self.layout.tokens);
        let (mut least, mut most) = (0u64, u64::MAX);
        for round in 0.. {
            if low >= high {
                break;
            }
            let width = u128::from(high - low);
            let guess = match round {
                0..4 => u128::from(hash.saturating_sub(least)) * width / (u128::from(most - least) + 1),
                _ => width / 2,
            };
            let middle = low + u32::try_from(guess).unwrap_or(0).min(high - low - 1);
            let (found, list) = segment::token(&self.bytes(store, self.layout.token_at(middle)).await?)?;
            match found.cmp(&hash) {
                std::cmp::Ordering::Equal => return Ok(Some(list)),
                std::cmp::Ordering::Less => (low, least) = (middle + 1, found.min(most)),
                std::cmp::Ordering::Greater => (high, most) = (middle, found.max(least)),
            }
            if !(least..=most).contains(&hash) {
                break;
            }
        }
        Ok(None)
    }
}

/// Returns whether an error says that an index is damaged or was replaced: then a search does without it.
pub(crate) fn is_broken(error: &Error) -> bool {
    use ErrorKind::{Corrupt, Deleted, LimitExceeded, NotFound, Unsupported};
    matches!(error.kind(), Corrupt | Deleted | LimitExceeded | NotFound | Unsupported)
}

fn short() -> Error {
    Error::corrupt(
        "a segment of the search index ends before what it has; remove the index, and make it again",
    )
}

/// Returns the numbers that two ascending lists have in common; the first is the shorter one.
fn common(mut short: Vec<u32>, long: &[u32]) -> Vec<u32> {
    let mut rest = long;
    short.retain(|n| {
        let behind = rest.partition_point(|other| other < n);
        rest = rest.get(behind..).unwrap_or_default();
        rest.first() == Some(n)
    });
    short
}
