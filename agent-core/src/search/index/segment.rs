//! Segment of an index: which blocks of events have which tokens, in one blob that never changes.
//!
//! A segment is the header, the sessions, the blocks, the tokens and the lists, one after another, with numbers in little endian:
//!
//! ```text
//! header    "agsearch", then the numbers of sessions, blocks and tokens and the bytes of lists, 4 bytes each, and the skew, 8
//! sessions  id 16, workspace 16, last event 8, earliest time 8
//! blocks    latest time 8, earliest time 8, first event 8, session 4, last event - first event 4; newest first
//! tokens    hash 8, where its list begins 4; ascending; one more with the largest hash, at the end of the lists
//! lists     numbers of blocks, ascending, each as the difference to the one before, 7 bits a byte, the lowest first
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::{BufMut, Bytes};
use uuid::Uuid;

use crate::base::{Error, Result, Seq, SessionId, Timestamp, WorkspaceId};
use crate::event::Event;

const MAGIC: [u8; 8] = *b"agsearch";
pub(super) const HEADER_BYTES: u64 = 32;
const SESSION_BYTES: u64 = 48;
const BLOCK_BYTES: u64 = 32;
const TOKEN_BYTES: u64 = 12;

/// Most events, bytes of texts and microseconds of a block.
const BLOCK_EVENTS: u32 = 8;
const BLOCK_TEXT: usize = 2 << 10;
const BLOCK_MICROS: i64 = 3600 * 1_000_000;

/// Session of which a segment has events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: SessionId,
    pub(super) workspace: WorkspaceId,
    /// Last event up to which the session is in this segment or in an earlier one.
    pub(super) through: Seq,
    /// Earliest time of its events in this segment.
    pub(super) earliest: Timestamp,
}

/// Events of a session that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) session: u32,
    pub(super) first: Seq,
    pub(super) last: Seq,
    /// Latest and earliest place of its events in the order of a search.
    pub(super) until: Timestamp,
    pub(super) since: Timestamp,
}

/// Contents of a segment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) sessions: Vec<Row>,
    pub(super) blocks: Vec<Block>,
    /// Numbers of the blocks that have a token, by its hash.
    pub(super) lists: HashMap<u64, Vec<u32>>,
    /// Most microseconds by which the time of an event is later than its place in the order of a search.
    pub(super) skew: i64,
}

/// Where the parts of a segment are, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) sessions: u32,
    pub(super) blocks: u32,
    pub(super) tokens: u32,
    lists: u32,
    pub(super) skew: i64,
}

impl Layout {
    pub(super) fn parse(header: &[u8], bytes: u64) -> Result<Self> {
        let number = |n: usize| take(header, 8 + 4 * n).map(u32::from_le_bytes);
        let read = || {
            let skew = i64::from_le_bytes(take(header, 24)?);
            let [sessions, blocks, tokens, lists] = [number(0)?, number(1)?, number(2)?, number(3)?];
            header.starts_with(&MAGIC).then_some(Self { sessions, blocks, tokens, lists, skew })
        };
        let found = read().ok_or_else(|| damaged("begins with other bytes than a segment"))?;
        match found.list_at(found.lists) == bytes {
            true => Ok(found),
            false => Err(damaged("has another length than its header says")),
        }
    }

    pub(super) fn sessions_end(&self) -> u64 {
        HEADER_BYTES + SESSION_BYTES * u64::from(self.sessions)
    }

    pub(super) fn block_at(&self, n: u32) -> std::ops::Range<u64> {
        let begin = self.sessions_end() + BLOCK_BYTES * u64::from(n);
        begin..begin + BLOCK_BYTES
    }

    /// Where the token `n` is, and the one behind it.
    pub(super) fn token_at(&self, n: u32) -> std::ops::Range<u64> {
        let begin = self.block_at(self.blocks).start + TOKEN_BYTES * u64::from(n);
        begin..begin + 2 * TOKEN_BYTES
    }

    pub(super) fn list_at(&self, offset: u32) -> u64 {
        self.token_at(self.tokens).start + TOKEN_BYTES + u64::from(offset)
    }
}

impl Segment {
    /// Returns the bytes of the segment.
    pub(super) fn encode(self) -> Result<Bytes> {
        let Self { sessions, blocks, lists, skew } = self;
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        let place = |n: usize| {
            let block = blocks.get(n)?;
            Some((block.until, sessions.get(block.session as usize)?.id, block.first))
        };
        order.sort_by_key(|n| std::cmp::Reverse(place(*n)));
        let mut numbers = vec![0u32; blocks.len()];
        for (new, old) in (0u32..).zip(&order) {
            if let Some(number) = numbers.get_mut(*old) {
                *number = new;
            }
        }
        let mut tokens = Vec::with_capacity(lists.len());
        let mut listed = Vec::new();
        for (hash, list) in lists.into_iter().collect::<BTreeMap<_, _>>() {
            tokens.push((hash, fitting(listed.len())?));
            let mut list: Vec<u32> = list.iter().filter_map(|n| numbers.get(*n as usize)).copied().collect();
            list.sort_unstable();
            let mut before = 0;
            for n in list {
                put_number(&mut listed, n - before);
                before = n;
            }
        }
        let mut out = Vec::new();
        out.put_slice(&MAGIC);
        for count in [sessions.len(), blocks.len(), tokens.len(), listed.len()] {
            out.put_u32_le(fitting(count)?);
        }
        out.put_i64_le(skew);
        for row in &sessions {
            out.put_slice(row.id.as_uuid().as_bytes());
            out.put_slice(row.workspace.as_uuid().as_bytes());
            out.put_u64_le(row.through.get());
            out.put_i64_le(row.earliest.as_micros());
        }
        for block in order.iter().filter_map(|n| blocks.get(*n)) {
            out.put_i64_le(block.until.as_micros());
            out.put_i64_le(block.since.as_micros());
            out.put_u64_le(block.first.get());
            out.put_u32_le(block.session);
            out.put_u32_le(u32::try_from(block.last.get() - block.first.get()).unwrap_or(u32::MAX));
        }
        tokens.push((u64::MAX, fitting(listed.len())?));
        for (hash, at) in tokens {
            out.put_u64_le(hash);
            out.put_u32_le(at);
        }
        out.put_slice(&listed);
        Ok(out.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let layout = Layout::parse(bytes, bytes.len() as u64)?;
        let part = |range: std::ops::Range<u64>| part_of(bytes, range);
        let sessions = rows(part(HEADER_BYTES..layout.sessions_end())?);
        let blocks = (0..layout.blocks).map(|n| block(part(layout.block_at(n))?));
        let blocks = blocks.collect::<Result<_>>()?;
        let mut lists = HashMap::with_capacity(layout.tokens as usize);
        for n in 0..layout.tokens {
            let (hash, list) = token(part(layout.token_at(n))?)?;
            let list = part(layout.list_at(list.start)..layout.list_at(list.end))?;
            lists.insert(hash, numbers(list, layout.blocks)?);
        }
        Ok(Self { sessions, blocks, lists, skew: layout.skew })
    }

    /// Returns segments as one. They are in the order in which they were made, so that the events of a session in a later one come after
    /// those in an earlier one. Sessions that are gone are left out.
    pub(super) fn merge(segments: Vec<Self>, is_gone: impl Fn(&SessionId) -> bool) -> Self {
        let mut merged = Self::default();
        let mut places: HashMap<SessionId, u32> = HashMap::new();
        let mut later: HashMap<SessionId, Timestamp> = HashMap::new();
        for segment in segments.into_iter().rev() {
            let kept: Vec<Option<(u32, Option<Timestamp>)>> = segment
                .sessions
                .iter()
                .map(|row| {
                    if is_gone(&row.id) {
                        return None;
                    }
                    let next = merged.sessions.len() as u32;
                    let place = *places.entry(row.id).or_insert(next);
                    match merged.sessions.get_mut(place as usize) {
                        Some(known) => {
                            known.through = known.through.max(row.through);
                            known.earliest = known.earliest.min(row.earliest);
                        }
                        None => merged.sessions.push(*row),
                    }
                    Some((place, later.get(&row.id).copied()))
                })
                .collect();
            let mut numbers = Vec::with_capacity(segment.blocks.len());
            for mut block in segment.blocks {
                let Some(Some((session, cap))) = kept.get(block.session as usize) else {
                    numbers.push(None);
                    continue;
                };
                numbers.push(Some(merged.blocks.len() as u32));
                block.session = *session;
                merged.skew = merged.skew.max(segment.skew.saturating_add(block.cap(*cap)));
                merged.blocks.push(block);
            }
            for (hash, list) in segment.lists {
                let list: Vec<u32> =
                    list.iter().filter_map(|n| numbers.get(*n as usize).copied().flatten()).collect();
                if !list.is_empty() {
                    merged.lists.entry(hash).or_default().extend(list);
                }
            }
            for row in &segment.sessions {
                later.entry(row.id).and_modify(|at| *at = (*at).min(row.earliest)).or_insert(row.earliest);
            }
        }
        merged
    }
}

impl Block {
    /// Moves the block before a later event of its session. Returns by how many microseconds.
    pub(super) fn cap(&mut self, earliest: Option<Timestamp>) -> i64 {
        let until = self.until;
        if let Some(earliest) = earliest {
            self.until = self.until.min(earliest);
            self.since = self.since.min(earliest);
        }
        until.as_micros().saturating_sub(self.until.as_micros())
    }
}

/// Segment that is being made from events.
#[derive(Debug, Default)]
pub(super) struct Builder {
    segment: Segment,
    /// Number of the first block of the session.
    begins: usize,
    tokens: HashSet<u64>,
    events: u32,
    text: usize,
    bytes: usize,
}

impl Builder {
    /// Begins with events of a session, which come after those that were added before.
    pub(super) fn begin(&mut self, id: SessionId, workspace: WorkspaceId) {
        self.begins = self.segment.blocks.len();
        let row = Row { id, workspace, through: Seq::ZERO, earliest: Timestamp::MAX };
        self.segment.sessions.push(row);
    }

    /// Adds the next event of the session, with the bytes and the hashes of the tokens of its text.
    pub(super) fn add(&mut self, event: &Event, text: usize, tokens: impl IntoIterator<Item = u64>) {
        let Some(row) = self.segment.sessions.last_mut() else { return };
        row.earliest = row.earliest.min(event.at);
        let session = self.segment.sessions.len() as u32 - 1;
        let begins = self.begins;
        let open = self.segment.blocks.get_mut(begins..).and_then(|blocks| blocks.last_mut());
        match open.filter(|open| {
            let (until, since) = (open.until.max(event.at), open.since.min(event.at));
            self.events > 0
                && self.events < BLOCK_EVENTS
                && self.text + text <= BLOCK_TEXT
                && until.as_micros().saturating_sub(since.as_micros()) <= BLOCK_MICROS
                && event.seq.get() - open.first.get() < 1000
        }) {
            Some(open) => {
                open.last = event.seq;
                open.until = open.until.max(event.at);
                open.since = open.since.min(event.at);
            }
            None => {
                self.close();
                let (first, last) = (event.seq, event.seq);
                let block = Block { session, first, last, until: event.at, since: event.at };
                self.segment.blocks.push(block);
            }
        }
        self.events += 1;
        self.text += text;
        self.bytes += text;
        self.tokens.extend(tokens);
    }

    /// Ends the last block.
    fn close(&mut self) {
        let n = (self.segment.blocks.len() as u32).saturating_sub(1);
        for token in self.tokens.drain() {
            self.segment.lists.entry(token).or_default().push(n);
        }
        (self.events, self.text) = (0, 0);
    }

    /// Ends with the events of a session, which were added up to this one.
    pub(super) fn end(&mut self, through: Seq) {
        self.close();
        if let Some(row) = self.segment.sessions.last_mut() {
            row.through = through;
        }
        let mut later = None;
        for block in self.segment.blocks.get_mut(self.begins..).into_iter().flatten().rev() {
            self.segment.skew = self.segment.skew.max(block.cap(later));
            later = Some(block.since);
        }
    }

    /// Returns the bytes of the texts.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.segment.sessions.is_empty()
    }

    pub(super) fn finish(self) -> Segment {
        self.segment
    }
}

pub(super) fn rows(bytes: &[u8]) -> Vec<Row> {
    let row = |bytes: &[u8]| {
        Some(Row {
            id: SessionId::from_uuid(Uuid::from_bytes(take(bytes, 0)?)),
            workspace: WorkspaceId::from_uuid(Uuid::from_bytes(take(bytes, 16)?)),
            through: Seq::new(u64::from_le_bytes(take(bytes, 32)?)),
            earliest: Timestamp::from_micros(i64::from_le_bytes(take(bytes, 40)?)),
        })
    };
    bytes.chunks_exact(SESSION_BYTES as usize).filter_map(row).collect()
}

pub(super) fn block(bytes: &[u8]) -> Result<Block> {
    let read = || {
        let first = u64::from_le_bytes(take(bytes, 16)?);
        let count = u32::from_le_bytes(take(bytes, 28)?);
        Some(Block {
            until: Timestamp::from_micros(i64::from_le_bytes(take(bytes, 0)?)),
            since: Timestamp::from_micros(i64::from_le_bytes(take(bytes, 8)?)),
            first: Seq::new(first),
            last: Seq::new(first.checked_add(u64::from(count))?),
            session: u32::from_le_bytes(take(bytes, 24)?),
        })
    };
    read().ok_or_else(|| damaged("has a block that is no block"))
}

/// Reads a token, and where its list is.
pub(super) fn token(bytes: &[u8]) -> Result<(u64, std::ops::Range<u32>)> {
    let read = || {
        let hash = u64::from_le_bytes(take(bytes, 0)?);
        let list = u32::from_le_bytes(take(bytes, 8)?)..u32::from_le_bytes(take(bytes, 20)?);
        (list.start <= list.end).then_some((hash, list))
    };
    read().ok_or_else(|| damaged("has a token that is no token"))
}

/// Reads a list of numbers of blocks.
pub(super) fn numbers(bytes: &[u8], blocks: u32) -> Result<Vec<u32>> {
    let (mut found, mut number, mut shift, mut before) = (Vec::new(), 0u64, 0, 0u64);
    for byte in bytes {
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            before += number;
            let n = u32::try_from(before).ok().filter(|n| *n < blocks);
            found.push(n.ok_or_else(|| damaged("lists a block that it does not have"))?);
            (number, shift) = (0, 0);
        } else if shift > 28 {
            return Err(damaged("has a number that is too large"));
        }
    }
    Ok(found)
}

fn put_number(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(super) fn part_of(bytes: &[u8], range: std::ops::Range<u64>) -> Result<&[u8]> {
    let range = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
    let part = range.and_then(|(begin, end)| bytes.get(begin..end));
    part.ok_or_else(|| damaged("ends before what it has"))
}

fn fitting(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::limit("a segment of the search index has more than 4 GiB"))
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!("a segment of the search index {what}; remove the index, and make it again"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment() -> impl Strategy<Value = Segment> {
        let block = (0u32..3, 0u64..1000, 0u64..20, -50i64..50, 0i64..9);
        let blocks = prop::collection::vec((block, prop::collection::hash_set(0u64..8, 0..5)), 0..40);
        blocks.prop_map(|blocks| {
            let id = |n: u128| Uuid::from_u128(n);
            let row = |n: u128| Row {
                id: SessionId::from_uuid(id(n)),
                workspace: WorkspaceId::from_uuid(id(9)),
                through: Seq::new(2000),
                earliest: Timestamp::from_micros(-60),
            };
            let mut segment = Segment { sessions: (0..3).map(row).collect(), skew: 7, ..Segment::default() };
            for (n, ((session, first, more, until, span), tokens)) in (0u32..).zip(blocks) {
                let (first, last) = (Seq::new(first), Seq::new(first + more));
                let (until, since) = (Timestamp::from_micros(until), Timestamp::from_micros(until - span));
                segment.blocks.push(Block { session, first, last, until, since });
                for token in tokens {
                    segment.lists.entry(token << 61).or_default().push(n);
                }
            }
            segment
        })
    }

    /// What a segment says, in no order.
    fn said(segment: &Segment) -> Vec<(u64, SessionId, Block)> {
        let mut said = Vec::new();
        for (hash, list) in &segment.lists {
            for n in list {
                let mut block = segment.blocks[*n as usize];
                let id = segment.sessions[block.session as usize].id;
                block.session = 0;
                said.push((*hash, id, block));
            }
        }
        said.sort_by_key(|(hash, id, block)| (*hash, *id, block.first, block.last, block.until, block.since));
        said
    }

    proptest! {
        #[test]
        fn segments_come_back_as_they_were(segment in segment()) {
            let expected = said(&segment);
            let decoded = Segment::decode(&segment.encode().unwrap()).unwrap();
            prop_assert_eq!(said(&decoded), expected);
            prop_assert!(decoded.blocks.is_sorted_by(|a, b| a.until >= b.until), "newest first");
            prop_assert_eq!(decoded.skew, 7);
        }

        /// Whatever the bytes are, they are a segment or damage.
        #[test]
        fn damaged_segments_are_named(segment in segment(), at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
            let mut bytes = segment.encode().unwrap().to_vec();
            let at = at.index(bytes.len());
            match cut {
                true => bytes.truncate(at),
                false => bytes[at] ^= byte,
            }
            match Segment::decode(&bytes) {
                Ok(decoded) => prop_assert!(!cut && decoded.lists.values().flatten().all(|n| (*n as usize) < decoded.blocks.len())),
                Err(error) => prop_assert_eq!(error.kind(), &crate::ErrorKind::Corrupt),
            }
        }
    }
}
