//! The object in a slot: one commit, the record after it, and the events of its window.

use std::sync::Arc;

use agent_core::event::Event;
use agent_core::json::to_text;
use agent_core::session::Session;
use agent_core::{CommitId, Error, ErrorKind, Result, Seq, SessionId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::line::{Line, Tag, lines, push};

/// A window closes at so many events, or so many bytes of them.
const WINDOW_EVENTS: u64 = 64;
const WINDOW_BYTES: u64 = 256 << 10;
/// Longer lines of earlier commits are not carried along, but named by slot and place.
const CARRIED_MAX: u64 = 8 << 10;
/// The format that is written, and the newest that is read.
const FORMAT: u32 = 1;
/// As much of an object as surely holds its header and its record.
pub(crate) const RECORD_PART: u64 = 128 << 10;

/// A slot's number: that of its commit's first event; zero for a session's first commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Slot(pub(crate) u64);

impl Slot {
    /// The slot of a session's first commit.
    pub(crate) const FIRST: Self = Self(0);

    /// The last part of its key: the newest sorts first.
    pub(crate) fn name(self) -> String {
        format!("{:020}", 99_999_999_999_999_999_999_u128 - u128::from(self.0))
    }

    /// The slot of a key's last part.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let digits = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| name.parse::<u128>().ok()).flatten()?;
        u64::try_from(99_999_999_999_999_999_999 - number).ok().map(Self)
    }
}

/// What an object in a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A commit.
    Commit,
    /// The newest slot of a session that was purged: its record, and no events.
    Purged,
    /// A slot whose bytes were removed. It still says whose it was.
    Stub,
    /// A slot that was taken so that no session comes to be under this id.
    Void,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) format: u32,
    pub(crate) kind: Kind,
    pub(crate) session: SessionId,
    pub(crate) slot: Slot,
    pub(crate) commit: CommitId,
    /// The slot that it was planned on; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Slot>,
    /// The first of the commit's own events, and the last.
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// The first event of the window.
    pub(crate) window: Seq,
    /// The slot that closed the window before; none in the first window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<Slot>,
    /// After a purge: the last event that is still there, and whether the others' bytes are all removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Seq>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) removed: bool,
}

/// An object in a slot, read or about to be written.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    /// The record after the commit. `None` in a stub.
    pub(crate) record: Option<Arc<Session>>,
    /// The lines of the window's events, in order; as many of them as are whole.
    pub(crate) window: Vec<Line>,
    pub(crate) size: usize,
}

/// Where an event of an earlier object lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) seq: Seq,
    pub(crate) slot: Slot,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The line's checksum: what another object has at this place is another line.
    pub(crate) crc: String,
}

/// An event, or where it lies.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Event(Event),
    Elsewhere(Reference),
}

impl Head {
    /// The header of a slot that is taken so that no session comes to be under this id.
    pub(crate) fn void(session: SessionId, commit: CommitId) -> Self {
        let (slot, first) = (Slot::FIRST, Seq::ZERO);
        Self {
            format: FORMAT,
            kind: Kind::Void,
            session,
            slot,
            commit,
            after: None,
            first,
            last: first,
            window: first,
            previous: None,
            kept: None,
            removed: false,
        }
    }
}

impl Entry {
    /// The bytes of the object for a commit on `before`, which is none for a session's first.
    pub(crate) fn encode(
        before: Option<&Self>,
        commit: CommitId,
        events: &[Event],
        after: &Session,
    ) -> Bytes {
        let first = events.first().map_or(after.head.next(), |event| event.seq);
        let open = before.filter(|before| !before.closes());
        let head = Head {
            format: FORMAT,
            kind: Kind::Commit,
            session: after.id,
            slot: before.map_or(Slot::FIRST, Self::next),
            commit,
            after: before.map(|before| before.head.slot),
            first,
            last: after.head,
            window: open.map_or(first, |open| open.head.window),
            previous: match (before, open) {
                (_, Some(open)) => open.head.previous,
                (before, None) => before.map(|before| before.head.slot),
            },
            kept: None,
            removed: false,
        };
        let carried = open.map_or(0, |open| open.window.iter().map(Line::size).sum::<u64>());
        let own = events.iter().map(|event| event.size_bytes() + 64).sum::<usize>();
        let mut out = Vec::with_capacity(4096 + usize::try_from(carried).unwrap_or(0) + own);
        push(&mut out, Tag::Head, &to_text(&head));
        push(&mut out, Tag::Record, &after.to_json());
        for (seq, open, line) in open.iter().flat_map(|open| open.lines()) {
            if line.is(Tag::Event) && line.size() > CARRIED_MAX {
                let place = Reference {
                    seq,
                    slot: open.head.slot,
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
        for event in events {
            push(&mut out, Tag::Event, &event.to_json());
        }
        out.into()
    }

    /// The bytes of an object without events.
    pub(crate) fn encode_bare(head: &Head, record: Option<&Session>) -> Bytes {
        let mut out = Vec::new();
        push(&mut out, Tag::Head, &to_text(head));
        if let Some(record) = record {
            push(&mut out, Tag::Record, &record.to_json());
        }
        out.into()
    }

    /// The bytes of this object of a deleted session under another header, with what is left of its record and the events
    /// of its window up to the header's [`kept`](Head::kept).
    pub(crate) fn encode_cut(&self, head: &Head) -> Bytes {
        let tombstone = self.record.as_deref().map(Session::tombstone);
        let mut out = Self::encode_bare(head, tombstone.as_ref()).to_vec();
        let kept = |(seq, ..): &(Seq, &Self, &Line)| head.kept.is_none_or(|kept| *seq <= kept);
        for (_, _, line) in self.lines().take_while(kept) {
            out.extend_from_slice(&line.raw);
            out.push(b'\n');
        }
        out.into()
    }

    /// Reads an object, or its first part, whose window is cut short then.
    ///
    /// # Errors
    ///
    /// `Corrupt` where the header or the record is damaged or another's; `Unsupported` where the format is newer.
    pub(crate) fn parse(bytes: &Bytes, session: SessionId, slot: Slot) -> Result<Self> {
        let mut lines = lines(bytes).into_iter();
        let head = read_head(lines.next().as_ref(), session, slot)?;
        let record = match head.kind {
            Kind::Commit | Kind::Purged => {
                let line = lines.next();
                let record = line.as_ref().and_then(|line| line.json(Tag::Record));
                let record = record.ok_or_else(|| corrupt(&name(session, slot), "has a damaged record"))?;
                Some(Arc::new(Session::from_json(record)?))
            }
            Kind::Stub | Kind::Void => None,
        };
        Ok(Self { head, record, window: lines.collect(), size: bytes.len() })
    }

    /// Reads the header of an object of which the first part is given.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse).
    pub(crate) fn parse_head(bytes: &Bytes, session: SessionId, slot: Slot) -> Result<Head> {
        read_head(lines(bytes).first(), session, slot)
    }

    /// The window's lines, each with its event's number.
    fn lines(&self) -> impl Iterator<Item = (Seq, &Self, &Line)> {
        let numbers = (self.head.window.get()..).map(Seq::new);
        numbers.zip(&self.window).map(move |(seq, line)| (seq, self, line))
    }

    /// Whether there is a line for each event that there should be.
    pub(crate) fn is_whole(&self) -> bool {
        let due = (self.last().get() + 1).saturating_sub(self.head.window.get());
        self.head.kind != Kind::Commit || self.window.len() as u64 == due
    }

    /// The only slot that a commit on this one may take.
    pub(crate) fn next(&self) -> Slot {
        Slot(self.head.last.next().get())
    }

    /// Whether the next commit starts a new window.
    fn closes(&self) -> bool {
        let bytes = || {
            let carried = self.window.iter().filter(|line| line.size() <= CARRIED_MAX);
            carried.map(Line::size).sum::<u64>()
        };
        self.head.last.get() + 1 - self.head.window.get() >= WINDOW_EVENTS || bytes() >= WINDOW_BYTES
    }

    /// The last event that can be read here.
    pub(crate) fn last(&self) -> Seq {
        self.head.kept.map_or(self.head.last, |kept| kept.min(self.head.last))
    }

    /// An event of the window.
    ///
    /// # Errors
    ///
    /// `Corrupt`.
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

/// The event of a line, where it is undamaged and has this number.
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
    // A header that is sound but cannot be read may be of a newer format.
    if let Ok(Format { format }) = serde_json::from_str(json)
        && format > FORMAT
    {
        return Err(newer(&object, format));
    }
    let head: Head = serde_json::from_str(json)
        .map_err(|error| corrupt(&object, "has a header that cannot be read").with_source(error))?;
    if (head.session, head.slot) != (session, slot) {
        return Err(corrupt(&object, "holds another slot's bytes"));
    }
    // Whoever goes from window to window comes nearer to the first with each, and numbers can be counted on.
    let is_before = |other: Option<Slot>| other.is_none_or(|other| other < slot);
    let in_order = head.window <= head.first && head.first <= head.last && head.last.get() <= i64::MAX as u64;
    if !in_order || !is_before(head.previous) || !is_before(head.after) {
        return Err(corrupt(&object, "has a header that contradicts itself"));
    }
    Ok(head)
}

/// The error for an object of a newer version of this library.
pub(crate) fn newer(object: &str, format: u32) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{object} is of format {format}, and this version reads up to {FORMAT}; update the library"),
    )
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
