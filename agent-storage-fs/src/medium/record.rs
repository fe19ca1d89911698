//! Record of a session, loaded from its folder: the snapshot, and the events that the log holds after it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::{Error, Result, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::{self, corrupt, failed};
use crate::io::{IoFile, Kind, OpenMode, Stat};
use crate::medium::env::Env;
use crate::medium::layout;
use crate::medium::lock::Locked;
use crate::medium::log::{Backward, COMMIT_MAX, Forward, frame, other_format, unframe};
use crate::owner::Owner;

/// Format of the record in `session.json`. Raised with every change to how events are folded, so that a snapshot of
/// another version is not used if this version would fold the log differently.
pub(crate) const SNAPSHOT_FORMAT: i64 = 6;
/// Format of the record in `tombstone.json`.
pub(crate) const TOMBSTONE_FORMAT: i64 = 6;

/// Error text for a log that holds no commit of its session.
const NO_COMMIT: &str = "holds no complete commit of its session, though a session has at least one: it is damaged, or is the log of another session";

/// Session as loaded from its folder.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) record: Arc<SessionRecord>,
    /// Offset after the last whole commit.
    pub(crate) end: u64,
    /// Metadata of the log when it was read.
    pub(crate) stat: Stat,
    /// Length of the log that the snapshot covers, in bytes.
    pub(crate) snapshot: u64,
    /// Damage or an incomplete commit after `end`.
    pub(crate) bad: Option<Bad>,
    /// True if the session was purged. The record then comes from the tombstone, not from the log.
    pub(crate) purged: bool,
}

/// Point at which a log stops being readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    /// Start of the commit that is not whole.
    pub(crate) offset: u64,
    /// Sequence number of the event that belongs there.
    pub(crate) event: u64,
    /// True if another commit begins after it, or more bytes follow than a commit has. If so, this is damage, and not an
    /// incomplete write.
    pub(crate) middle: bool,
}

impl Bad {
    pub(crate) fn error(&self, log: &Path) -> Error {
        corrupt(log, &self.reason())
    }

    pub(crate) fn reason(&self) -> String {
        format!("is damaged at event {} (byte {})", self.event, self.offset)
    }
}

/// Result of folding a log.
#[derive(Debug)]
pub(crate) struct Folded {
    pub(crate) record: Option<Arc<SessionRecord>>,
    pub(crate) end: u64,
    pub(crate) bad: Option<Bad>,
}

/// Applies the whole commits of a log between `from`, at which `record` ends, and `len`. Copies a shared record if
/// there are any. A line of another format, wherever it is, is an error.
pub(crate) fn fold(
    file: &dyn IoFile,
    log: &Path,
    owner: Owner,
    record: Option<Arc<SessionRecord>>,
    from: u64,
    len: u64,
) -> Result<Folded> {
    let mut folded = Folded { record, end: from, bad: None };
    let mut lines = Forward::new(owner, file, from, len);
    let mut commit: Vec<Event> = Vec::new();
    while let Some(line) = lines.next().map_err(|e| failed("read", log, e))? {
        if let Some(bad) = &mut folded.bad {
            bad.middle =
                line.header().is_some_and(|header| header.n == 1) || line.end - bad.offset > COMMIT_MAX;
            if bad.middle {
                break;
            }
            continue;
        }
        let head = folded.record.as_ref().map(|record| record.head.get().saturating_add(commit.len() as u64));
        match line.event() {
            Some(event) if fits(&event, head, &commit) => {
                let last = event.n == event.of;
                commit.push(event);
                if last {
                    apply(&mut folded.record, owner.id, commit.drain(..)).map_err(|source| {
                        corrupt(log, "holds an event that cannot be applied").with_source(source)
                    })?;
                    folded.end = line.end;
                }
            }
            event => {
                // Commits of another version are no torn end, which would be moved away.
                if let Some(format) = event.is_none().then(|| other_format(owner, line.bytes)).flatten() {
                    return Err(error::other_format(log, format));
                }
                let event_there = head.map_or(1, |head| head.saturating_add(1));
                let middle = event.is_some_and(|event| event.n == 1) || line.end - folded.end > COMMIT_MAX;
                folded.bad = Some(Bad { offset: folded.end, event: event_there, middle });
                if middle {
                    break;
                }
            }
        }
    }
    if folded.bad.is_none() && !commit.is_empty() {
        let event = commit.last().map_or(1, |event| event.seq.next().get());
        folded.bad = Some(Bad { offset: folded.end, event, middle: false });
    }
    Ok(folded)
}

/// Returns whether an event is the next one of its commit and its session.
fn fits(event: &Event, head: Option<u64>, commit: &[Event]) -> bool {
    let next = match (head, commit.last()) {
        (Some(head), _) => head.checked_add(1) == Some(event.seq.get()),
        (None, Some(last)) => last.seq.get().checked_add(1) == Some(event.seq.get()),
        (None, None) => true,
    };
    let of_commit = commit.first().is_none_or(|first| event.commit == first.commit && event.of == first.of);
    next && of_commit && event.n as usize == commit.len() + 1
}

fn apply(
    record: &mut Option<Arc<SessionRecord>>,
    id: SessionId,
    events: impl Iterator<Item = Event>,
) -> Result<()> {
    for event in events {
        match record {
            Some(record) => Arc::make_mut(record).apply(&event)?,
            None => *record = Some(Arc::new(SessionRecord::begin(id, &event)?)),
        }
    }
    Ok(())
}

/// Loads a session from its folder; `None` if the folder does not exist. Takes no lock: a commit that is being written
/// at this moment is not included.
pub(crate) fn load(env: &Env, folder: &Path, owner: Owner) -> Result<Option<Loaded>> {
    let log = folder.join(layout::LOG);
    let file = match env.io.open(&log, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match env.io.stat(folder) {
                Ok(stat) if stat.kind == Kind::Folder => Err(corrupt(&log, "is missing")),
                Ok(_) => Err(failed("use the folder", folder, io::ErrorKind::NotADirectory.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed("look at", folder, error)),
            };
        }
        Err(error) => return Err(failed("open", &log, error)),
    };
    load_open(env, folder, owner, &*file).map(Some)
}

/// Like [`load`], with the log already open.
pub(crate) fn load_open(env: &Env, folder: &Path, owner: Owner, file: &dyn IoFile) -> Result<Loaded> {
    let log = folder.join(layout::LOG);
    let stat = file.stat().map_err(|e| failed("look at", &log, e))?;
    if let Some(record) = read_tombstone(env, folder, owner)? {
        let record = Arc::new(record);
        return Ok(Loaded { record, end: stat.len, stat, snapshot: 0, bad: None, purged: true });
    }
    let start = read_snapshot(env, folder, owner, file, stat.len);
    let (record, from) = start.map_or((None, 0), |(record, offset)| (Some(Arc::new(record)), offset));
    let folded = fold(file, &log, owner, record, from, stat.len)?;
    let Some(record) = folded.record else {
        return Err(corrupt(&log, NO_COMMIT));
    };
    Ok(Loaded { record, end: folded.end, stat, snapshot: from, bad: folded.bad, purged: false })
}

/// Returns the error for a log that holds no commit of its session.
pub(crate) fn holds_none(owner: Owner, file: &dyn IoFile, log: &Path, len: u64) -> Error {
    check_format(owner, file, log, 0, len).err().unwrap_or_else(|| corrupt(log, NO_COMMIT))
}

/// Checks that the line at `at`, which is none of this format, is none of another one.
pub(crate) fn check_format(owner: Owner, file: &dyn IoFile, log: &Path, at: u64, len: u64) -> Result<()> {
    let mut lines = Forward::new(owner, file, at, len);
    let line = lines.next().map_err(|e| failed("read", log, e))?;
    match line.and_then(|line| other_format(owner, line.bytes)) {
        Some(format) => Err(error::other_format(log, format)),
        None => Ok(()),
    }
}

// --- snapshot and tombstone ------------------------------------------------------------------------------------------

#[derive(Serialize)]
struct SnapshotOut<'a> {
    format: i64,
    offset: u64,
    record: &'a SessionRecord,
}

#[derive(Deserialize)]
struct Format {
    format: i64,
}

#[derive(Deserialize)]
struct SnapshotIn {
    format: i64,
    offset: u64,
    record: SessionRecord,
}

/// Saves the record as of `offset`, so that the next reader need not fold the whole log. The file is a cache: it is
/// not synced, and may be missing.
pub(crate) fn write_snapshot(
    env: &Env,
    folder: &Path,
    owner: Owner,
    record: &SessionRecord,
    offset: u64,
) -> Result<()> {
    let path = folder.join(layout::SNAPSHOT);
    let line = to_line(owner, &path, &SnapshotOut { format: SNAPSHOT_FORMAT, offset, record })?;
    env.replace_cache(&path, &line)
}

/// Returns the snapshot, if there is one and the log is still the one that it was derived from.
fn read_snapshot(
    env: &Env,
    folder: &Path,
    owner: Owner,
    file: &dyn IoFile,
    len: u64,
) -> Option<(SessionRecord, u64)> {
    let bytes = env.read_file(&folder.join(layout::SNAPSHOT)).ok()??;
    let json = unframe(owner, bytes.strip_suffix(b"\n")?)?;
    let SnapshotIn { format, offset, record } = serde_json::from_str(json).ok()?;
    if format != SNAPSHOT_FORMAT || record.id != owner.id || offset > len {
        return None;
    }
    let mut lines = Backward::new(owner, file, offset);
    let last = lines.next().ok()??;
    let header = last.header()?;
    let ends_here = header.seq == record.head.get() && header.n == header.of;
    (ends_here && record.recent.last().is_some_and(|commit| commit.id == header.commit))
        .then_some((record, offset))
}

#[derive(Serialize)]
struct TombstoneOut<'a> {
    format: i64,
    record: &'a SessionRecord,
}

#[derive(Deserialize)]
struct TombstoneIn {
    record: SessionRecord,
}

/// Saves the record of a deleted session durably, before its log is cut.
pub(crate) fn write_tombstone(
    env: &Env,
    folder: Locked<'_>,
    owner: Owner,
    record: &SessionRecord,
) -> Result<()> {
    let path = folder.path.join(layout::TOMBSTONE);
    let line = to_line(owner, &path, &TombstoneOut { format: TOMBSTONE_FORMAT, record })?;
    env.replace(folder, &path, &line)
}

pub(crate) fn read_tombstone(env: &Env, folder: &Path, owner: Owner) -> Result<Option<SessionRecord>> {
    let path = folder.join(layout::TOMBSTONE);
    let Some(bytes) = env.read_file(&path)? else { return Ok(None) };
    let damaged = || corrupt(&path, "is damaged, or belongs to another session");
    let line = bytes.strip_suffix(b"\n").ok_or_else(damaged)?;
    let Some(json) = unframe(owner, line) else {
        let format = other_format(owner, line);
        return Err(format.map_or_else(damaged, |format| error::other_format(&path, format)));
    };
    let Format { format } = serde_json::from_str(json).map_err(|_| damaged())?;
    if format != TOMBSTONE_FORMAT {
        return Err(error::other_format(&path, format));
    }
    let TombstoneIn { record } = serde_json::from_str(json).map_err(|_| damaged())?;
    if record.id != owner.id {
        return Err(corrupt(&path, &format!("belongs to session {}", record.id)));
    }
    Ok(Some(record))
}

fn to_line(owner: Owner, path: &Path, value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    frame(owner, &path.display(), value, &mut line)?;
    Ok(line)
}
