//! Pages of events: found without reading the log from its start, verified line by line, never ending within a commit.

use std::path::Path;

use agent_core::event::{Event, EventType};
use agent_core::store::{Damaged, EventPage, ReadEvents};
use agent_core::{CommitId, Error, ErrorKind, Result, SessionId};

use crate::error::{corrupt, cut_off, failed};
use crate::io::{IoFile, OpenMode};
use crate::log::commit::not_found;
use crate::log::place;
use crate::medium::cached::LogPosition;
use crate::medium::env::{held, parent};
use crate::medium::layout;
use crate::medium::log::{Backward, COMMIT_MAX, Forward, Line, seq_of};
use crate::medium::record::{Bad, check_format, holds_none, read_tombstone};
use crate::owner::Owner;
use crate::shared::tenant::{SharedSession, Tenant};

/// Length of log, in bytes, below which events are found by reading instead of searching.
const WALK: u64 = 32 << 10;

/// Returns a page of a session's own events.
pub(crate) fn read(
    tenant: &Tenant,
    cell: &SharedSession,
    id: SessionId,
    read: &ReadEvents,
) -> Result<EventPage> {
    let mut page = attempt(tenant, cell, id, read, true);
    for _ in 0..2 {
        let again = match &page {
            Ok(page) => !page.damaged.is_empty(),
            Err(error) => matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unavailable),
        };
        if !again {
            break;
        }
        // A writer may have removed a torn end and appended between two attempts; damage remains.
        page = attempt(tenant, cell, id, read, false);
    }
    page
}

/// Reads a page. `by_memory` is whether to go by a remembered position instead of searching.
fn attempt(
    tenant: &Tenant,
    cell: &SharedSession,
    id: SessionId,
    read: &ReadEvents,
    by_memory: bool,
) -> Result<EventPage> {
    let (known_folder, known) = {
        let known = held(&cell.known);
        (known.folder.clone(), known.record.clone())
    };
    let mut folder = known_folder;
    let (log, file) = loop {
        let searched = folder.is_none();
        let place = match folder.take() {
            Some(folder) => folder,
            None => place::find(tenant, id)?.ok_or_else(|| not_found(id))?,
        };
        let log = place.join(layout::LOG);
        match tenant.env.io.open(&log, OpenMode::Read) {
            Ok(file) => {
                held(&cell.known).folder = Some(place);
                break (log, file);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !searched => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(corrupt(&log, "is missing").with_source(error));
            }
            Err(error) => return Err(failed("open", &log, error)),
        }
    };
    let stat = file.stat_at_open().map_err(|e| failed("look at", &log, e))?;
    let log = Log { file: &*file, path: &log, owner: tenant.layout.owner(id) };
    let sure =
        known.as_ref().filter(|known| known.id == stat.id && !known.purged).map_or(0, |known| known.sure);
    let end = match known {
        Some(known) if known.id == stat.id && known.len == stat.len => known.end,
        _ => log.complete_end(stat.len, || is_purged(tenant, log.path, log.owner))?,
    };
    if end < sure && end < stat.len {
        return Err(cut_off(log.path, sure, end));
    }
    let after = read.after.get();
    let start = |after| held(&cell.known).offset_behind(stat.id, after).filter(|_| by_memory);
    let (page, began, ended) = if read.newest {
        let last = read.before.map(|before| before.get().saturating_sub(1));
        let (page, ended) = log.newest(read, end, last.and_then(start).filter(|offset| *offset <= end))?;
        (page, None, ended)
    } else {
        log.oldest(read, end, start(after).filter(|offset| *offset < end))?
    };
    let mut known = held(&cell.known);
    // What a model is given begins at the same event for many turns.
    for (after, offset) in began.into_iter().chain(ended.filter(|_| page.next.is_some())) {
        known.remember(LogPosition { log: stat.id, after, offset });
    }
    Ok(page)
}

/// Returns whether a session has a tombstone, also a damaged one.
///
/// # Errors
///
/// `Unsupported` if the tombstone has another format: its log has that format too.
fn is_purged(tenant: &Tenant, log: &Path, owner: Owner) -> Result<bool> {
    match read_tombstone(&tenant.env, parent(log), owner) {
        Err(error) if *error.kind() == ErrorKind::Corrupt => {
            tenant.env.has_file(&log.with_file_name(layout::TOMBSTONE))
        }
        read => read.map(|tombstone| tombstone.is_some()),
    }
}

/// Open log of a session.
struct Log<'a> {
    file: &'a dyn IoFile,
    path: &'a Path,
    owner: Owner,
}

/// Number of an event, and the offset behind it.
type Behind = (u64, u64);

/// Position between two lines.
#[derive(Clone, Copy, Debug)]
struct LinePosition {
    offset: u64,
    /// Sequence number of the event before it, if known.
    before: Option<u64>,
}

impl Log<'_> {
    fn failed(&self, source: std::io::Error) -> Error {
        failed("read", self.path, source)
    }

    /// Returns the offset after the last whole commit. Later bytes are being written, or belong to a commit that never
    /// completed.
    ///
    /// `purged` returns whether the log was cut at a point that may not be the end of a commit.
    fn complete_end(&self, len: u64, purged: impl FnOnce() -> Result<bool>) -> Result<u64> {
        let mut lines = Backward::new(self.owner, self.file, len);
        // Candidate for the last whole commit: its end, and the event that must come before.
        let mut candidate: Option<(u64, CommitId, u32)> = None;
        // Following line: its event and its end.
        let mut behind: Option<(u64, u64)> = None;
        let mut another_began = false;
        let end = loop {
            let Some(line) = lines.next().map_err(|e| self.failed(e))? else { break 0 };
            let Some(header) = line.header() else {
                if another_began {
                    // Damage before a commit that began: a read of that part reports it.
                    break line.end;
                }
                if len - line.offset > COMMIT_MAX {
                    // That is damage, too, and no end of a commit.
                    break len;
                }
                candidate = None;
                behind = None;
                continue;
            };
            if let Some((seq, end)) = behind
                && another_began
                && header.seq.checked_add(1) != Some(seq)
            {
                // Lines are missing before a commit that began: a read of that part reports it, too.
                break end;
            }
            behind = Some((header.seq, line.end));
            let goes_on = candidate
                .filter(|(_, commit, n)| *commit == header.commit && header.n.checked_add(1) == Some(*n))
                .map(|(end, ..)| end);
            candidate = match goes_on {
                Some(end) => Some((end, header.commit, header.n)),
                None if header.n == header.of => Some((line.end, header.commit, header.n)),
                None => None,
            };
            match candidate {
                Some((end, _, 1)) => break end,
                None if header.n == 1 => another_began = true,
                _ => {}
            }
        };
        if (end < len || end == 0) && purged()? {
            return Ok(len);
        }
        if end == 0 {
            // A log gets its name when its first commit is complete, so an empty one is damaged.
            return Err(holds_none(self.owner, self.file, self.path, len));
        }
        if end < len {
            check_format(self.owner, self.file, self.path, end, len)?;
        }
        Ok(end)
    }

    // --- pages --------------------------------------------------------------------------------------------------

    /// Returns the page, the event that it begins behind, and its last one, if their places are known.
    fn oldest(
        &self,
        read: &ReadEvents,
        end: u64,
        start: Option<u64>,
    ) -> Result<(EventPage, Option<Behind>, Option<Behind>)> {
        let place = match start {
            Some(offset) => LinePosition { offset, before: Some(read.after.get()) },
            None => self.behind(read.after.get(), end)?,
        };
        let mut lines = Forward::new(self.owner, self.file, place.offset, end);
        let mut before = place.before;
        let mut damage = None;
        // The last two events: the page ends with one of them.
        let mut ends = [(0, 0); 2];
        let events = std::iter::from_fn(|| {
            let line = match lines.next() {
                Ok(line) => line?,
                Err(error) => return Some(Err(self.failed(error))),
            };
            let expected = before.map(|seq| seq.saturating_add(1));
            match event_of(&line).filter(|event| expected.is_none_or(|seq| event.seq.get() == seq)) {
                Some(event) if !read.matches_before(&event) => None,
                Some(event) => {
                    before = Some(event.seq.get());
                    ends = [ends[1], (event.seq.get(), line.end)];
                    Some(Ok(event))
                }
                None => {
                    damage = Some(Bad { offset: line.offset, event: expected.unwrap_or(1), middle: true });
                    None
                }
            }
        });
        let page = EventPage::collect(read, events)?;
        let last = page.events.last().map(|event| event.seq.get());
        let end = ends.into_iter().find(|(seq, _)| Some(*seq) == last);
        let begin = (place.before == Some(read.after.get())).then_some((read.after.get(), place.offset));
        Ok((self.finish(page, damage)?, begin, end))
    }

    /// Returns the page, and the event that it begins behind, if the place is known.
    fn newest(&self, read: &ReadEvents, end: u64, start: Option<u64>) -> Result<(EventPage, Option<Behind>)> {
        let place = match (read.before, start) {
            (None, _) => LinePosition { offset: end, before: None },
            (Some(before), Some(offset)) => {
                LinePosition { offset, before: Some(before.get().saturating_sub(1)) }
            }
            (Some(before), None) => self.before(before.get(), end)?,
        };
        let mut lines = Backward::new(self.owner, self.file, place.offset);
        let mut expected = place.before;
        let mut damage = None;
        // Where the last two events begin: the page begins with one of them.
        let mut begins = [(0, 0); 2];
        let events = std::iter::from_fn(|| {
            let line = match lines.next() {
                Ok(line) => line?,
                Err(error) => return Some(Err(self.failed(error))),
            };
            match event_of(&line).filter(|event| expected.is_none_or(|seq| event.seq.get() == seq)) {
                Some(event) if event.seq <= read.after => None,
                Some(event) => {
                    let before = event.seq.get().saturating_sub(1);
                    expected = Some(before);
                    begins = [begins[1], (before, line.offset)];
                    Some(Ok(event))
                }
                None => {
                    let event = expected.or_else(|| seq_of(line.bytes)).unwrap_or(1);
                    damage = Some(Bad { offset: line.offset, event, middle: true });
                    None
                }
            }
        });
        let page = EventPage::collect(read, events)?;
        let before = page.events.first().map(|event| event.seq.get().saturating_sub(1));
        let begin = begins.into_iter().find(|(seq, _)| Some(*seq) == before);
        Ok((self.finish(page, damage)?, begin))
    }

    /// Returns the page. A page that met damage ends before it and reports it; damage at the start of a page is an
    /// error.
    fn finish(&self, page: EventPage, damage: Option<Bad>) -> Result<EventPage> {
        match damage {
            Some(bad) if page.events.is_empty() => Err(bad.error(self.path)),
            Some(bad) => {
                let damaged = Damaged::new(self.path.display().to_string(), bad.reason());
                Ok(page.with_damaged(vec![damaged]))
            }
            None => Ok(page),
        }
    }

    // --- searching ----------------------------------------------------------------------------------------------

    /// Returns the position after the last readable event that is not after `seq`.
    fn behind(&self, seq: u64, end: u64) -> Result<LinePosition> {
        if seq == 0 {
            return Ok(LinePosition { offset: 0, before: None });
        }
        let start = self.search(seq, end)?;
        let found = match self.walk(start, seq, end)? {
            // The lines that the search used were damaged, or all events are after `seq`.
            None => self.walk(0, seq, end)?,
            found => found,
        };
        Ok(found.unwrap_or(LinePosition { offset: 0, before: None }))
    }

    /// Returns the position before the event `seq`, or after the last event if `seq` does not exist yet.
    fn before(&self, seq: u64, end: u64) -> Result<LinePosition> {
        let wanted = seq.saturating_sub(1);
        let place = self.behind(wanted, end)?;
        let reached = match place.before {
            Some(found) => found == wanted || place.offset == end,
            // All events are later, or the first cannot be read.
            None => {
                let mut lines = Forward::new(self.owner, self.file, 0, end);
                lines.next().map_err(|e| self.failed(e))?.is_none_or(|line| line.header().is_some())
            }
        };
        if reached {
            return Ok(place);
        }
        let event = place.before.map_or(1, |found| found.saturating_add(1));
        Err(Bad { offset: place.offset, event, middle: true }.error(self.path))
    }

    /// Returns the start of a line near `seq` with an event not after it; the log's start if there is none. Uses the
    /// numbers at the start of lines, unverified: these have no gaps and grow with the offset.
    fn search(&self, seq: u64, end: u64) -> Result<u64> {
        let (mut low, mut high) = (0, end);
        while high - low > WALK {
            let middle = low + (high - low) / 2;
            match self.line_after(middle, high)? {
                Some((offset, found)) if found <= seq => low = offset,
                // The event is later than requested, or no line starts there.
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Returns the first line that starts after `offset` and before `end`, and the number that it begins with.
    fn line_after(&self, offset: u64, end: u64) -> Result<Option<(u64, u64)>> {
        let mut lines = Forward::new(self.owner, self.file, offset, end);
        // The first line is the rest of the one that contains `offset`.
        lines.next().map_err(|e| self.failed(e))?;
        while let Some(line) = lines.next().map_err(|e| self.failed(e))? {
            if let Some(seq) = seq_of(line.bytes) {
                return Ok(Some((line.offset, seq)));
            }
        }
        Ok(None)
    }

    /// Reads from the line at `start` to the position after the last readable event not after `seq`.
    fn walk(&self, start: u64, seq: u64, end: u64) -> Result<Option<LinePosition>> {
        let mut lines = Forward::new(self.owner, self.file, start, end);
        let mut place = None;
        while let Some(line) = lines.next().map_err(|e| self.failed(e))? {
            match line.header() {
                Some(header) if header.seq > seq => {
                    if seq.checked_add(1) == Some(header.seq) {
                        // The search continues here, whatever comes before.
                        place = Some(LinePosition { offset: line.offset, before: Some(seq) });
                    }
                    break;
                }
                Some(header) => place = Some(LinePosition { offset: line.end, before: Some(header.seq) }),
                None => {}
            }
        }
        Ok(place)
    }
}

/// Returns the event of a line. A log begins with the event that created its session; if it does not, its beginning is
/// missing.
fn event_of(line: &Line<'_>) -> Option<Event> {
    line.event().filter(|event| line.offset > 0 || event.kind == EventType::SESSION_CREATED)
}
