//! Lines of `events.jsonl`: how an event is framed, and how a log is read in either direction.

use std::{fmt, io};

use agent_core::commit::COMMIT_MAX_BYTES;
use agent_core::event::{Event, EventType};
use agent_core::{BlobName, CommitId, Error, Result};
use memchr::{memchr, memrchr};
use serde::{Deserialize, Serialize};

use crate::io::{IoFile, read_full};
use crate::owner::{FORMAT, Owner};

/// Number of bytes read at first, and the most that are read at a time when reading goes on, unless a line is longer.
const CHUNK: usize = 16 << 10;
const CHUNK_MAX: usize = 64 << 10;
/// Length limit of a line with an event, in bytes: a payload of 16 MiB and its header, sealed by an encrypted store, which makes four
/// bytes of three.
const LINE_MAX: usize = 23 << 20;
/// More bytes than the lines of any commit have. A longer part of a log without a single event is not the end of a commit that
/// was cut off, but damage, and is not read to its end.
pub(crate) const COMMIT_MAX: u64 = COMMIT_MAX_BYTES as u64 + (32 << 20);
/// Text before the checksum: `,"crc":"`. After the checksum comes `"}`.
const CRC_OPEN: &[u8] = b",\"crc\":\"";
const CRC_CLOSE: &[u8] = b"\"}";
pub(crate) const CRC_LEN: usize = CRC_OPEN.len() + 8 + CRC_CLOSE.len();

/// Appends the JSON object `value` as a line that ends with a checksum over its owner and the bytes before it. Error
/// texts name the object `what`.
///
/// # Errors
///
/// The errors of [`seal`]; `InvalidInput` if the value cannot be written as JSON.
pub(crate) fn frame(
    owner: Owner,
    what: &dyn fmt::Display,
    value: &impl Serialize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    serde_json::to_writer(&mut *out, value)
        .map_err(|source| Error::invalid(format!("{what} has no JSON form")).with_source(source))?;
    seal(owner, what, start, out)
}

/// Completes the line whose JSON object starts at `start` in `out`.
///
/// # Errors
///
/// `InvalidInput` if the JSON is not an object on one line, which could not be read back.
fn seal(owner: Owner, what: &dyn fmt::Display, start: usize, out: &mut Vec<u8>) -> Result<()> {
    let is_line = out.len() > start && out.ends_with(b"}") && memchr(b'\n', &out[start..]).is_none();
    if !is_line {
        out.truncate(start);
        return Err(Error::invalid(format!(
            "{what} has no JSON on one line, and is not written; take payloads in as `RawJson`, which is compact"
        )));
    }
    out.pop();
    let checksum = format!("{:08x}", owner.checksum(&out[start..]));
    out.extend_from_slice(CRC_OPEN);
    out.extend_from_slice(checksum.as_bytes());
    out.extend_from_slice(CRC_CLOSE);
    out.push(b'\n');
    Ok(())
}

/// Returns the lines of a session's events.
pub(crate) fn lines(owner: Owner, events: &[Event]) -> Result<Vec<u8>> {
    let mut lines = Vec::with_capacity(events.iter().map(|event| event.size_bytes() + 64).sum());
    for event in events {
        frame(owner, &format_args!("event {} of session {}", event.seq, owner.id), event, &mut lines)?;
    }
    Ok(lines)
}

/// Returns the text of a line (without its line break) if its checksum is right. The text includes the checksum;
/// parsers ignore fields that they do not know.
pub(crate) fn unframe(owner: Owner, line: &[u8]) -> Option<&str> {
    checked(line, owner.seed)?;
    std::str::from_utf8(line).ok()
}

/// Returns the format of a line; `None` if it is damaged.
pub(crate) fn format_of(owner: Owner, line: &[u8]) -> Option<i64> {
    checked(line, owner.seed).map(|_| FORMAT).or_else(|| other_format(owner, line))
}

/// Returns the format of a line that is not of this version's format; `None` if it is damaged.
pub(crate) fn other_format(owner: Owner, line: &[u8]) -> Option<i64> {
    let (format, _) = owner.other_formats().find(|(_, seed)| checked(line, *seed).is_some())?;
    Some(format)
}

/// Appends a line of another format as one of this version's format; `None` if it is not of that format. If the object in it
/// has that number in its first field, `format`, it gets `field` there.
pub(crate) fn renew(owner: Owner, format: i64, field: i64, line: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (_, seed) = owner.other_formats().find(|(other, _)| *other == format)?;
    let (body, start) = (checked(line, seed)?, out.len());
    match body.strip_prefix(format!("{{\"format\":{format},").as_bytes()) {
        Some(rest) => {
            out.extend_from_slice(format!("{{\"format\":{field},").as_bytes());
            out.extend_from_slice(rest);
        }
        None => out.extend_from_slice(body),
    }
    out.push(b'}');
    seal(owner, &"a line", start, out).ok()
}

/// Returns the bytes before the checksum, if the checksum is right.
fn checked(line: &[u8], seed: u32) -> Option<&[u8]> {
    let (body, tail) = line.split_at_checked(line.len().checked_sub(CRC_LEN)?)?;
    let digits = tail.strip_prefix(CRC_OPEN)?.strip_suffix(CRC_CLOSE)?;
    let lower = digits.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b));
    let crc = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let fits = crc == crc32c::crc32c_append(seed, body);
    (lower && fits).then_some(body)
}

/// Returns the number that a line starts with, without verifying its checksum; for searching only.
pub(crate) fn seq_of(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok().filter(|_| digits[end] == b',')
}

/// Fields of an event that reading a log needs.
#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub(crate) seq: u64,
    pub(crate) commit: CommitId,
    pub(crate) n: u32,
    pub(crate) of: u32,
}

/// Fields of an event that tell which blobs a log names.
#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    pub(crate) seq: u64,
    #[serde(rename = "type")]
    pub(crate) kind: EventType,
    #[serde(default)]
    pub(crate) blobs: Vec<BlobName>,
}

/// Line of a file, from `offset` to `end`, which is after its line break.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// Bytes without the line break; empty if the line is too long for an event. A line of which the break was not found within
    /// [`COMMIT_MAX`] counts as one up to the end of the log, or from its start if it is read backwards.
    pub(crate) bytes: &'a [u8],
    /// True if the line ends with a line break.
    pub(crate) whole: bool,
    owner: Owner,
}

impl Line<'_> {
    /// Returns the header of a line that is whole and has the right checksum.
    pub(crate) fn header(&self) -> Option<Header> {
        let header: Header = serde_json::from_str(self.json()?).ok()?;
        (header.n >= 1 && header.n <= header.of).then_some(header)
    }

    /// Returns the event of a line that is whole and has the right checksum.
    pub(crate) fn event(&self) -> Option<Event> {
        Event::from_json(self.json()?).ok().filter(|event| event.n >= 1 && event.n <= event.of)
    }

    /// Returns the blobs that the event of a line names, if the line is whole and has the right checksum.
    pub(crate) fn named(&self) -> Option<Named> {
        serde_json::from_str(self.json()?).ok()
    }

    /// Returns the value of a line that is whole and has the right checksum.
    pub(crate) fn value<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.json()?).ok()
    }

    fn json(&self) -> Option<&str> {
        if self.whole { unframe(self.owner, self.bytes) } else { None }
    }
}

/// Lines of a file from an offset on, in order.
#[derive(Debug)]
pub(crate) struct Forward<'a> {
    file: &'a dyn IoFile,
    owner: Owner,
    end: u64,
    /// Offset after the buffer.
    read_to: u64,
    buffer: Vec<u8>,
    /// Position in the buffer at which the next line starts.
    start: usize,
    /// Number of bytes to read next.
    chunk: usize,
}

impl<'a> Forward<'a> {
    /// Returns the lines between `at`, at which a line starts, and `end`.
    pub(crate) fn new(owner: Owner, file: &'a dyn IoFile, at: u64, end: u64) -> Self {
        Self { file, owner, end, read_to: at, buffer: Vec::new(), start: 0, chunk: CHUNK }
    }

    fn offset(&self) -> u64 {
        self.read_to - (self.buffer.len() - self.start) as u64
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let offset = self.offset();
        let (mut searched, mut too_long) = (0, false);
        loop {
            if let Some(length) = memchr(b'\n', &self.buffer[self.start + searched..]) {
                let (from, to) = (self.start, self.start + searched + length);
                self.start = to + 1;
                let end = self.offset();
                let bytes = if too_long || to - from > LINE_MAX { &[][..] } else { &self.buffer[from..to] };
                return Ok(Some(Line { offset, end, bytes, whole: true, owner: self.owner }));
            }
            searched = self.buffer.len() - self.start;
            if searched > LINE_MAX {
                (self.start, searched, too_long) = (self.buffer.len(), 0, true);
            }
            if self.read_to - offset > COMMIT_MAX {
                self.buffer.clear();
                (self.start, self.read_to) = (0, self.end);
            }
            if !self.fill()? {
                let from = std::mem::replace(&mut self.start, self.buffer.len());
                let end = self.read_to;
                let bytes = &self.buffer[from..];
                let line = Line { offset, end, bytes, whole: false, owner: self.owner };
                return Ok((end > offset).then_some(line));
            }
        }
    }

    /// Reads more; returns `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let filled = self.buffer.len();
        let left = usize::try_from(self.end.saturating_sub(self.read_to)).unwrap_or(usize::MAX);
        // More at a time if a line is long, so that the work stays proportional to its length.
        let more = self.chunk.max(filled).min(left);
        self.buffer.reserve_exact(more);
        self.buffer.resize(filled + more, 0);
        self.chunk = CHUNK_MAX.min(2 * self.chunk);
        let count = read_full(self.file, &mut self.buffer[filled..], self.read_to)?;
        self.buffer.truncate(filled + count);
        self.read_to += count as u64;
        Ok(count > 0)
    }
}

/// Lines of a file up to an offset, the last one first.
#[derive(Debug)]
pub(crate) struct Backward<'a> {
    file: &'a dyn IoFile,
    owner: Owner,
    /// Offset of the first byte of the buffer.
    base: u64,
    buffer: Vec<u8>,
    /// Number of bytes in the buffer that were not returned yet.
    left: usize,
}

impl<'a> Backward<'a> {
    /// Returns the lines before `end`; the last of them may lack its line break.
    pub(crate) fn new(owner: Owner, file: &'a dyn IoFile, end: u64) -> Self {
        Self { file, owner, base: end, buffer: Vec::new(), left: 0 }
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        // The part of the buffer with lines that were returned is removed here, since a line borrows it.
        self.buffer.truncate(self.left);
        if self.buffer.is_empty() && !self.fill()? {
            return Ok(None);
        }
        let end = self.base + self.buffer.len() as u64;
        let whole = self.buffer.last() == Some(&b'\n');
        let mut to = self.buffer.len() - usize::from(whole);
        let (mut searched_from, mut too_long) = (to, false);
        let start = loop {
            if let Some(at) = memrchr(b'\n', &self.buffer[..searched_from]) {
                break at + 1;
            }
            if to > LINE_MAX {
                self.buffer.clear();
                (to, too_long) = (0, true);
            }
            if end - self.base > COMMIT_MAX {
                self.buffer.clear();
                (self.base, to, too_long) = (0, 0, true);
            }
            let before = self.buffer.len();
            if !self.fill()? {
                break 0;
            }
            searched_from = self.buffer.len() - before;
            to += searched_from;
        };
        self.left = start;
        let bytes = if too_long || to - start > LINE_MAX { &[][..] } else { &self.buffer[start..to] };
        Ok(Some(Line { offset: self.base + start as u64, end, bytes, whole, owner: self.owner }))
    }

    /// Reads the bytes before the buffer; returns `false` at the start of the file.
    fn fill(&mut self) -> io::Result<bool> {
        let before = usize::try_from(self.base).unwrap_or(usize::MAX);
        let mut fresh = vec![0; CHUNK.max(self.buffer.len()).min(before)];
        if fresh.is_empty() {
            return Ok(false);
        }
        let base = self.base - fresh.len() as u64;
        if read_full(self.file, &mut fresh, base)? < fresh.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        fresh.append(&mut self.buffer);
        self.buffer = fresh;
        self.base = base;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Io, OpenMode, RealIo};
    use agent_core::ErrorKind;
    use agent_core::{SessionId, TenantId, WriteOutcome};

    fn file(bytes: &[u8]) -> (tempfile::TempDir, Box<dyn IoFile>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, bytes).unwrap();
        let file = RealIo.open(&path, OpenMode::Read).unwrap();
        (folder, file)
    }

    fn owner() -> Owner {
        Owner::new(Owner::seed(&TenantId::default()), "019c60d9-9c46-853c-b6d7-6cec99e07585".parse().unwrap())
    }

    /// Appends JSON as a line, unchanged.
    fn line(json: &str, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(json.as_bytes());
        seal(owner(), &"a line", start, out)
    }

    type Found = (u64, u64, Vec<u8>, bool);

    fn found(line: Line<'_>) -> Found {
        (line.offset, line.end, line.bytes.to_vec(), line.whole)
    }

    fn forward(file: &dyn IoFile, at: u64, end: u64) -> Vec<Found> {
        let mut lines = Forward::new(owner(), file, at, end);
        let mut out = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            out.push(found(line));
        }
        out
    }

    fn backward(file: &dyn IoFile, end: u64) -> Vec<Found> {
        let mut lines = Backward::new(owner(), file, end);
        let mut out = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            out.push(found(line));
        }
        out.reverse();
        out
    }

    /// Both directions find the same lines, at every cut, with lines shorter and longer than a chunk.
    #[test]
    fn both_directions_find_the_same_lines() {
        let mut bytes = Vec::new();
        for length in [0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 3, 5 * CHUNK + 13, 0, 2, 40 * CHUNK, 9] {
            bytes.extend(std::iter::repeat_n(b'x', length));
            bytes.push(b'\n');
        }
        let (_folder, file) = file(&bytes);
        let all = bytes.len() as u64;
        let lines = forward(&*file, 0, all);
        assert_eq!(lines.len(), 12);
        assert!(lines.iter().all(|line| line.3 && line.1 - line.0 == line.2.len() as u64 + 1));
        for cut in [0, 1, 2, 3, 4, 10, CHUNK as u64, all - 11, all - 10, all - 1, all] {
            let forward = forward(&*file, 0, cut);
            assert_eq!(forward, backward(&*file, cut), "cut at {cut}");
            let complete = forward.iter().filter(|line| line.3).count();
            assert!(forward.len() - complete <= 1);
        }
    }

    /// A line without end takes bounded memory, and is no event; the lines after it are found.
    #[test]
    fn unterminated_line_is_skipped_in_bounded_memory() {
        let mut bytes = b"first\n".to_vec();
        bytes.resize(bytes.len() + LINE_MAX + 5 * CHUNK, 0);
        bytes.extend_from_slice(b"\nlast\n");
        let (_folder, file) = file(&bytes);
        let lines = forward(&*file, 0, bytes.len() as u64);
        assert_eq!(lines, backward(&*file, bytes.len() as u64));
        let texts: Vec<_> = lines.iter().map(|line| line.2.as_slice()).collect();
        assert_eq!(texts, [&b"first"[..], b"", b"last"]);
    }

    /// A line as long as the longest event is read, and a longer one is not, in both directions and also if it lacks
    /// its end.
    #[test]
    fn longest_line_is_read_and_a_longer_one_is_not() {
        for (length, read) in [(LINE_MAX, LINE_MAX), (LINE_MAX + 1, 0)] {
            for (start, end) in [("first\n", "\n"), ("first\n", ""), ("", "\n")] {
                let mut bytes = start.as_bytes().to_vec();
                bytes.resize(bytes.len() + length, b'x');
                bytes.extend_from_slice(end.as_bytes());
                let (_folder, file) = file(&bytes);
                let lines = forward(&*file, 0, bytes.len() as u64);
                assert!(lines == backward(&*file, bytes.len() as u64), "{length} {end:?}");
                assert_eq!(lines.last().map(|line| line.2.len()), Some(read), "{start:?} {end:?}");
            }
        }
        // Short lines, and then one that is read together with many of them.
        let mut bytes = b"0123456\n".repeat(1 << 20);
        bytes.resize(bytes.len() + (12 << 20), b'x');
        bytes.push(b'\n');
        let (_folder, file) = file(&bytes);
        assert!(forward(&*file, 0, bytes.len() as u64) == backward(&*file, bytes.len() as u64));
    }

    /// A line without end takes no more memory than the longest event, however long it is.
    #[test]
    fn unterminated_line_takes_bounded_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let length = 6 * LINE_MAX as u64;
        std::fs::File::create(&path).unwrap().set_len(length).unwrap();
        let file = RealIo.open(&path, OpenMode::Read).unwrap();
        let mut lines = Forward::new(owner(), &*file, 0, length);
        assert!(lines.next().unwrap().is_some_and(|line| line.end == length && !line.whole));
        assert!(lines.buffer.capacity() <= 3 * LINE_MAX, "{}", lines.buffer.capacity());
        let mut lines = Backward::new(owner(), &*file, length);
        assert!(lines.next().unwrap().is_some_and(|line| line.offset == 0 && !line.whole));
        assert!(lines.buffer.capacity() <= 3 * LINE_MAX, "{}", lines.buffer.capacity());
    }

    /// A file that is cut while it is read backwards is an error, and does not yield zeros.
    #[test]
    fn file_truncated_during_reverse_read_is_an_error() {
        let (_folder, file) = file(b"first\nsecond\n");
        let error = Backward::new(owner(), &*file, 14).next().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// An event's place in its commit is between the first and the last.
    #[test]
    fn event_position_must_be_within_its_commit() {
        const EVENT: &str = r#"{"seq":1,"id":"019c60d9-9c46-853c-b6d7-6cec99e07585","commit":"019c60d9-9c46-753c-b6d7-6cec99e07585","n":1,"of":1,"at":"2026-02-15T10:30:00.007000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"}}"#;
        for (n, of, there) in [(1, 1, true), (1, 2, true), (2, 2, true), (0, 1, false), (2, 1, false)] {
            let mut bytes = Vec::new();
            let json = EVENT.replace("\"n\":1,\"of\":1", &format!("\"n\":{n},\"of\":{of}"));
            line(&json, &mut bytes).unwrap();
            let (_folder, file) = file(&bytes);
            let mut lines = Forward::new(owner(), &*file, 0, bytes.len() as u64);
            let line = lines.next().unwrap().unwrap();
            assert_eq!((line.header().is_some(), line.event().is_some()), (there, there), "{n} of {of}");
        }
    }

    /// JSON that could not be read back is refused with its name, before anything is written.
    #[test]
    fn json_that_is_not_one_line_is_refused() {
        for json in ["{\"seq\":1,\n\"data\":{}}", "{\"seq\":1}\n", "", "[]"] {
            let mut line = Vec::new();
            let error = self::line(json, &mut line).unwrap_err();
            assert_eq!(
                (error.kind(), error.write_outcome()),
                (&ErrorKind::InvalidInput, WriteOutcome::NotApplied)
            );
            assert!(error.to_string().contains("a line") && line.is_empty(), "{error}");
        }
    }

    /// A line whose bytes differ from those that were written is not accepted.
    #[test]
    fn every_flipped_bit_of_a_line_is_found() {
        let mut line = Vec::new();
        self::line(r#"{"seq":1,"data":{"text":"hello"}}"#, &mut line).unwrap();
        assert_eq!(line.pop(), Some(b'\n'));
        let json = unframe(owner(), &line).unwrap();
        assert!(json.starts_with(r#"{"seq":1,"data":{"text":"hello"},"crc":""#), "{json}");
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut bad = line.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(unframe(owner(), &bad), None, "byte {at}, bit {bit}");
            }
            assert_eq!(unframe(owner(), &line[..at]), None, "cut at {at}");
        }
        let id = owner().id;
        let neighbour = Owner::new(
            Owner::seed(&TenantId::default()),
            SessionId::from_uuid(uuid::Uuid::from_u128(id.as_uuid().as_u128() ^ 1)),
        );
        for other in [neighbour, Owner::new(Owner::seed(&"acme".parse().unwrap()), id)] {
            assert_eq!(unframe(other, &line), None, "{other:?}");
        }
    }
}
