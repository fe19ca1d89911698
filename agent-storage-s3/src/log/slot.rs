//! Object in a slot: one commit, the record after it, and the events of its window.

use std::sync::Arc;

use agent_core::event::Event;
use agent_core::json::to_text;
use agent_core::session::SessionRecord;
use agent_core::store::Purge;
use agent_core::{CommitId, Epoch, Error, Result, Seq, SessionId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::layout::keys::Slot;
use crate::layout::line::{FORMAT, Line, Tag, lines, push};
use crate::log::index_keys::IndexKey;

/// Number of events at which a big window closes; `WINDOW_BYTES` is the same in bytes.
const WINDOW_EVENTS: u64 = 60;
const WINDOW_BYTES: u64 = 256 << 10;
/// Number of events at which a small window closes, and carries the big one; `SMALL_BYTES` is the same in bytes.
const SMALL_EVENTS: u64 = 10;
const SMALL_BYTES: u64 = 32 << 10;
/// Number of events that an object which closes a small window carries at least, if there are as many and they are
/// small. So two objects have the last 50 events, and the one before, by which a reader knows whether there are more.
const CLOSER_EVENTS: u64 = 50;
/// Length limit, in bytes, of lines of earlier commits that are carried along. Longer ones are referenced by slot and
/// offset.
const CARRIED_MAX: u64 = 8 << 10;
/// Length of a first part of an object that always contains its header and its record, in bytes.
pub(crate) const RECORD_PART: u64 = 128 << 10;

/// Kind of an object in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Commit.
    Commit,
    /// Newest slot of a session that was purged: its record, and no events.
    Purged,
    /// Slot whose bytes were removed. It still has the id of its commit.
    Stub,
    /// Slot that was taken so that no session can be created under this id.
    Void,
}

/// First line of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) format: u32,
    pub(crate) kind: Kind,
    pub(crate) session: SessionId,
    pub(crate) slot: Slot,
    pub(crate) commit: CommitId,
    /// Slot of the commit that this one was planned on; `None` for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Slot>,
    /// First of the commit's own events; the field `last` is the last one.
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// First event of the window that the object carries.
    pub(crate) window: Seq,
    /// First event of the big window. It is carried by the objects that close a small window.
    pub(crate) big: Seq,
    /// Slot that carries the event before the window, and closed a window; `None` in the first window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<Slot>,
    /// Last event that is left after a purge. The field `removed` is whether all bytes of the later events are
    /// removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Seq>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) removed: bool,
    /// Keys of the index that are in force after the commit. A stub says nothing of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<IndexKey>,
}

/// Object in a slot, read or about to be written.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    /// Record after the commit. `None` in a stub.
    pub(crate) record: Option<Arc<SessionRecord>>,
    /// Lines of the window's events, in order, up to the last whole one.
    pub(crate) window: Vec<Line>,
    pub(crate) size: usize,
}

/// Size of a window, or of the part of it that a commit adds: the events, and the bytes of the lines that later commits
/// carry.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    events: u64,
    bytes: u64,
}

impl Size {
    fn of<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Self {
        lines.into_iter().fold(Self::default(), |size, line| size + Self::of_line(line.size()))
    }

    fn of_line(bytes: u64) -> Self {
        Self { events: 1, bytes: if bytes <= CARRIED_MAX { bytes } else { 0 } }
    }

    const fn reaches(self, events: u64, bytes: u64) -> bool {
        self.events >= events || self.bytes >= bytes
    }
}

impl std::ops::Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { events: self.events + other.events, bytes: self.bytes + other.bytes }
    }
}

/// Lines of a commit's own events.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    first: Option<Seq>,
    lines: Vec<u8>,
    size: Size,
}

impl Own {
    pub(crate) fn new(events: &[Event]) -> Self {
        let mut lines = Vec::with_capacity(events.iter().map(|event| event.size_bytes() + 64).sum());
        let mut size = Size::default();
        for event in events {
            let before = lines.len();
            push(&mut lines, Tag::Event, &event.to_json());
            size = size + Size::of_line((lines.len() - before) as u64);
        }
        Self { first: events.first().map(|event| event.seq), lines, size }
    }
}

/// Location of an event of an earlier object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) seq: Seq,
    pub(crate) slot: Slot,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Checksum of the line, by which another object's line at the same location is detected.
    pub(crate) crc: String,
}

/// Event, or its location.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Event(Event),
    Elsewhere(Reference),
}

impl Head {
    /// Returns the header of a slot that is taken so that no session can be created under this id.
    pub(crate) fn void(session: SessionId, commit: CommitId) -> Self {
        Self::bare(Kind::Void, session, Slot::FIRST, commit)
    }

    /// Returns a header without a record or events after it.
    pub(crate) fn bare(kind: Kind, session: SessionId, slot: Slot, commit: CommitId) -> Self {
        let first = Seq::new(slot.0);
        Self {
            format: FORMAT,
            kind,
            session,
            slot,
            commit,
            after: None,
            first,
            last: first,
            window: first,
            big: first,
            previous: None,
            kept: None,
            removed: false,
            keys: Vec::new(),
        }
    }
}

impl Entry {
    /// Returns the slot that a commit on this one must read before it is encoded, since it closes a small window and
    /// then carries the big one from its start.
    pub(crate) fn base_slot(&self, own: &Own) -> Option<Slot> {
        if self.closes() || !self.is_closed_by(own) { None } else { self.head.previous }
    }

    /// Returns whether a commit on this one closes a small window.
    fn is_closed_by(&self, own: &Own) -> bool {
        let open = if self.closes() { Size::default() } else { Size::of(&self.window) };
        (open + own.size).reaches(SMALL_EVENTS, SMALL_BYTES)
    }

    /// Returns the objects whose lines a commit on this one carries, the oldest first, the first event that it carries,
    /// and the slot that has the one before.
    fn carried<'a>(
        &'a self,
        base: Option<&'a Self>,
        own: &Own,
        first: Seq,
        last: Seq,
    ) -> (Vec<&'a Self>, Seq, Option<Slot>) {
        let closer = if self.closes() { Some(self) } else { base.filter(|base| base.is_base_of(self, own)) };
        let small = if self.closes() { first } else { self.head.window };
        let mut carried = if self.closes() { Vec::new() } else { vec![self] };
        let Some(closer) = closer.filter(|_| self.is_closed_by(own)) else {
            let previous = if self.closes() { Some(self.head.slot) } else { self.head.previous };
            return (carried, small, previous);
        };
        carried.insert(0, closer);
        // The one that closed the last big window has the events before, all others name it.
        let (big, previous, lowest) = match closer.closes_big() {
            true => (small, Some(closer.head.slot), closer.head.window.next()),
            false => (closer.head.big, closer.head.previous, closer.head.window),
        };
        let enough = Seq::new((last.get() + 1).saturating_sub(CLOSER_EVENTS));
        let mut start = big.min(enough).max(lowest);
        let lines = carried.iter().flat_map(|entry| entry.lines());
        let sizes: Vec<_> = lines.map(|(seq, _, line)| (seq, Size::of_line(line.size()).bytes)).collect();
        let mut bytes = sizes.iter().filter(|(seq, _)| *seq >= start).map(|(_, bytes)| bytes).sum::<u64>();
        while start < big && bytes >= WINDOW_BYTES {
            bytes -= sizes.iter().filter(|(seq, _)| *seq == start).map(|(_, bytes)| bytes).sum::<u64>();
            start = start.next();
        }
        (carried, start, previous)
    }

    /// Returns whether this object has the events before the window of `head`, which a commit on that carries.
    fn is_base_of(&self, head: &Self, own: &Own) -> bool {
        let is_it = Some(self.head.slot) == head.base_slot(own) && self.head.last.next() == head.head.window;
        is_it && self.head.kind == Kind::Commit && self.closes() && self.is_whole()
    }

    /// Returns the bytes of the object for a commit on `before`, which is `None` for a session's first. `base` is the
    /// object in [`base_slot`](Self::base_slot); without it, the commit carries the small window only, so that reading
    /// takes a request more.
    pub(crate) fn encode(
        before: Option<&Self>,
        base: Option<&Self>,
        commit: CommitId,
        own: &Own,
        after: &SessionRecord,
        keys: Vec<IndexKey>,
    ) -> Bytes {
        let first = own.first.unwrap_or(after.head.next());
        let (carried, window, previous) = match before {
            Some(before) => before.carried(base, own, first, after.head),
            None => (Vec::new(), first, None),
        };
        let head = Head {
            format: FORMAT,
            kind: Kind::Commit,
            session: after.id,
            slot: before.map_or(Slot::FIRST, Self::next),
            commit,
            after: before.map(|before| before.head.slot),
            first,
            last: after.head,
            window,
            big: before.filter(|before| !before.closes_big()).map_or(first, |before| before.head.big),
            previous,
            kept: None,
            removed: false,
            keys,
        };
        let size = carried.iter().map(|entry| entry.size).sum::<usize>();
        let mut out = Vec::with_capacity(4096 + size + own.lines.len());
        push(&mut out, Tag::Head, &to_text(&head));
        push(&mut out, Tag::Record, &after.to_json());
        let lines = carried.iter().flat_map(|entry| entry.lines());
        for (seq, entry, line) in lines.filter(|(seq, ..)| *seq >= window) {
            if line.is(Tag::Event) && line.size() > CARRIED_MAX {
                let place = Reference {
                    seq,
                    slot: entry.head.slot,
                    offset: line.offset,
                    bytes: line.size() - 1,
                    crc: line.crc().into_owned(),
                };
                push(&mut out, Tag::Reference, &to_text(&place));
            } else {
                out.extend_from_slice(&line.raw);
                out.push(b'\n');
            }
        }
        out.extend_from_slice(&own.lines);
        out.into()
    }

    /// Returns the bytes of an object without events.
    pub(crate) fn encode_bare(head: &Head, record: Option<&SessionRecord>) -> Bytes {
        let mut out = Vec::new();
        push(&mut out, Tag::Head, &to_text(head));
        if let Some(record) = record {
            push(&mut out, Tag::Record, &record.to_json());
        }
        out.into()
    }

    /// Returns the bytes of this object of a deleted session under another header, with the tombstone that a purge leaves of
    /// its record, and the events of its window up to the header's [`kept`](Head::kept).
    pub(crate) fn encode_cut(&self, head: &Head, purge: &Purge) -> Bytes {
        let tombstone = self.record.as_deref().map(|record| purge.tombstone_of(record));
        let mut out = Self::encode_bare(head, tombstone.as_ref()).to_vec();
        let kept = |(seq, ..): &(Seq, &Self, &Line)| head.kept.is_none_or(|kept| *seq <= kept);
        for (_, _, line) in self.lines().take_while(kept) {
            out.extend_from_slice(&line.raw);
            out.push(b'\n');
        }
        out.into()
    }

    /// Parses an object, or its first part. The window of a part is incomplete.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the header or the record is damaged or belongs to another object; `Unsupported` for another format.
    pub(crate) fn parse(bytes: &Bytes, session: SessionId, slot: Slot) -> Result<Self> {
        let mut lines = lines(bytes).into_iter();
        let head = read_head(lines.next().as_ref(), session, slot)?;
        let record = match head.kind {
            Kind::Commit | Kind::Purged => {
                let line = lines.next();
                let record = line.as_ref().and_then(|line| line.json(Tag::Record));
                let record = record.ok_or_else(|| corrupt(&name(session, slot), "has a damaged record"))?;
                Some(Arc::new(SessionRecord::from_json(record).map_err(|error| {
                    let what = format!("has a record that cannot be read ({error})");
                    corrupt(&name(session, slot), &what).with_source(error)
                })?))
            }
            Kind::Stub | Kind::Void => None,
        };
        Ok(Self { head, record, window: lines.collect(), size: bytes.len() })
    }

    /// Parses the header from the first part of an object.
    ///
    /// # Errors
    ///
    /// The errors of [`parse`](Self::parse).
    pub(crate) fn parse_head(bytes: &Bytes, session: SessionId, slot: Slot) -> Result<Head> {
        read_head(lines(bytes).first(), session, slot)
    }

    /// Returns the window's lines, each with its event's number.
    fn lines(&self) -> impl Iterator<Item = (Seq, &Self, &Line)> {
        let numbers = (self.head.window.get()..).map(Seq::new);
        numbers.zip(&self.window).map(move |(seq, line)| (seq, self, line))
    }

    /// Returns whether the window has a line for each of its events.
    pub(crate) fn is_whole(&self) -> bool {
        let due = (self.last().get() + 1).saturating_sub(self.head.window.get());
        self.head.kind != Kind::Commit || self.window.len() as u64 == due
    }

    /// Returns whether a run holds the lease `epoch` after this commit.
    pub(crate) fn has_lease(&self, epoch: Epoch) -> bool {
        let lease = self.record.as_deref().and_then(|record| record.lease.as_ref());
        lease.is_some_and(|lease| lease.epoch == epoch)
    }

    /// Returns the only slot that a commit on this one may take.
    pub(crate) fn next(&self) -> Slot {
        Slot(self.head.last.next().get())
    }

    /// Returns whether the next commit starts a new small window. Such an object carries the big window from its start
    /// and more, all others only their small window, which is below both limits.
    pub(crate) fn closes(&self) -> bool {
        let events = self.head.last.get() + 1 - self.head.window.get();
        Size { events, ..Size::of(&self.window) }.reaches(SMALL_EVENTS, SMALL_BYTES)
    }

    /// Returns whether the next commit starts a new big window.
    pub(crate) fn closes_big(&self) -> bool {
        let big = self.lines().filter(|(seq, ..)| *seq >= self.head.big).map(|(_, _, line)| line);
        let events = self.head.last.get() + 1 - self.head.big.get();
        self.closes() && Size { events, ..Size::of(big) }.reaches(WINDOW_EVENTS, WINDOW_BYTES)
    }

    /// Returns the last event that can be read here.
    pub(crate) fn last(&self) -> Seq {
        self.head.kept.map_or(self.head.last, |kept| kept.min(self.head.last))
    }

    /// Returns an event of the window, or its location.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the event is missing or damaged.
    pub(crate) fn event(&self, seq: Seq) -> Result<Found> {
        let damaged = || {
            let object = format!("event {seq} of session {}", self.head.session);
            corrupt(&object, &format!("is damaged in slot {}", self.head.slot.0))
        };
        let at = seq.get().checked_sub(self.head.window.get()).and_then(|at| usize::try_from(at).ok());
        let line = at.and_then(|at| self.window.get(at)).ok_or_else(damaged)?;
        if line.is(Tag::Reference) {
            let place = line.json(Tag::Reference).and_then(|json| serde_json::from_str(json).ok());
            return place
                .filter(|place: &Reference| place.seq == seq)
                .map(Found::Elsewhere)
                .ok_or_else(damaged);
        }
        event(line, seq).map(Found::Event).ok_or_else(damaged)
    }
}

/// Returns the event of a line, if it is undamaged and has this number.
pub(crate) fn event(line: &Line, seq: Seq) -> Option<Event> {
    let event = Event::from_json(line.json(Tag::Event)?).ok()?;
    (event.seq == seq).then_some(event)
}

fn name(session: SessionId, slot: Slot) -> String {
    format!("slot {} of session {session}", slot.0)
}

fn read_head(line: Option<&Line>, session: SessionId, slot: Slot) -> Result<Head> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let object = name(session, slot);
    let json =
        line.and_then(|line| line.json(Tag::Head)).ok_or_else(|| corrupt(&object, "has a damaged header"))?;
    // A header with a right checksum that cannot be decoded may have another format.
    if let Ok(Format { format }) = serde_json::from_str(json)
        && format != FORMAT
    {
        return Err(other_format(&object, format));
    }
    let head: Head = serde_json::from_str(json)
        .map_err(|error| corrupt(&object, "has a header that cannot be read").with_source(error))?;
    if (head.session, head.slot) != (session, slot) {
        return Err(corrupt(&object, "holds another slot's bytes"));
    }
    // So a search from window to window gets nearer to the first with each step, and numbers do not overflow.
    let is_before = |other: Option<Slot>| other.is_none_or(|other| other < slot);
    let in_order = head.window <= head.first
        && head.big <= head.first
        && head.first <= head.last
        && head.last.get() <= i64::MAX as u64;
    if !in_order || !is_before(head.previous) || !is_before(head.after) {
        return Err(corrupt(&object, "has a header that contradicts itself"));
    }
    Ok(head)
}

/// Error for an object of another version of this library.
pub(crate) fn other_format(object: &str, format: u32) -> Error {
    let text = match format > FORMAT {
        true => format!(
            "{object} has format {format}, and this version reads format {FORMAT}; update the library"
        ),
        false => format!(
            "{object} has format {format}, which was never released; this version reads format {FORMAT}: use the version \
             that wrote it, or another prefix"
        ),
    };
    Error::unsupported(text)
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
