//! The file `index/summaries`: summaries of sessions, so that the first list of a process need not read each log.
//!
//! It is derived, and believed for a session only if the session's log has the metadata that its line names. So it may be
//! missing, damaged, or as old as it likes. A session without a line that is believed is read from its log.
//!
//! What is written is what a process has in memory, which may be what another process is about to purge. So the file is written
//! under the lock of its folder, after a look at the changes that were announced; and a purge, which has announced itself,
//! removes the file under that lock.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use agent_core::{Result, SessionId, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::failed;
use crate::io::{Kind, OpenMode, Stat, read_full};
use crate::medium::env::Env;
use crate::medium::layout::{self, Layout};
use crate::medium::lock::{self, HeldLock};
use crate::medium::log::{CRC_LEN, frame, unframe};
use crate::medium::record::SNAPSHOT_FORMAT;
use crate::shared::list_index::{Entry, Keys, Place, Source, Text};

/// Length in bytes up to which the file is written and read; some 100,000 sessions.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// Metadata of a file: device, inode, time of its creation, length, times of the last write and of the last change.
type Stamp = (u64, u64, i64, u64, i64, i64);

/// Time of the last activity, that at which the session is due, and the numbers of its fields.
type KeysOf = (i64, Option<i64>, Vec<u64>);

/// One line, without its last field, `summary`.
#[derive(Deserialize)]
struct Head {
    /// That of `session.json`: a version that folds logs in another way does not believe these summaries.
    format: i64,
    workspace: WorkspaceId,
    id: SessionId,
    log: Stamp,
    #[serde(default)]
    tombstone: Option<Stamp>,
    keys: KeysOf,
}

#[derive(Serialize)]
struct Line<'a, T: ?Sized> {
    format: i64,
    workspace: WorkspaceId,
    id: SessionId,
    log: Stamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    tombstone: Option<Stamp>,
    keys: KeysOf,
    summary: &'a T,
}

/// Beginning of the last field. What comes before it are numbers and ids.
const SUMMARY: &[u8] = b",\"summary\":";

/// Summary that the file has of a session.
#[derive(Debug)]
pub(crate) struct Kept {
    log: Stamp,
    tombstone: Option<Stamp>,
    pub(crate) keys: Keys,
    pub(crate) text: Text,
}

impl Kept {
    /// Returns what the summary was read from, if the files are still the same: `log` is the metadata of the log, and `folder`
    /// the session's.
    pub(crate) fn source(&self, env: &Env, folder: &Path, log: Stat) -> Option<Source> {
        if stamp(log) != Some(self.log) {
            return None;
        }
        let tombstone = match self.tombstone {
            None => None,
            Some(known) => {
                let stat = env.io.stat(&folder.join(layout::TOMBSTONE)).ok()?;
                Some(Some(stat).filter(|stat| stamp(*stat) == Some(known))?)
            }
        };
        Some(Source { log, tombstone, is_settled: true })
    }
}

/// Returns the metadata of a file as a line has it; `None` if it does not tell one state of the file from another.
fn stamp(stat: Stat) -> Option<Stamp> {
    let whole = |nanos: i128| i64::try_from(nanos).ok();
    let is_told = stat.kind == Kind::File && stat.id.inode != 0 && stat.changed != 0;
    let (device, inode) = (stat.id.device, stat.id.inode);
    is_told.then_some((
        device,
        inode,
        whole(stat.id.born)?,
        stat.len,
        whole(stat.modified)?,
        whole(stat.changed)?,
    ))
}

/// Returns the summaries in the file; none if there is no file that can be read.
pub(crate) fn read(env: &Env, layout: &Layout) -> HashMap<Place, Kept> {
    let path = layout.summaries();
    let bytes = match read_bytes(env, &path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return HashMap::new(),
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "the summaries of sessions are not used");
            return HashMap::new();
        }
    };
    let (file, mut at) = (Arc::<[u8]>::from(bytes), 0);
    let mut kept = HashMap::new();
    for end in memchr::memchr_iter(b'\n', &file) {
        kept.extend(parse(layout, &file, at..end));
        at = end + 1;
    }
    kept
}

fn read_bytes(env: &Env, path: &Path) -> io::Result<Vec<u8>> {
    let file = env.io.open(path, OpenMode::Read)?;
    let len = usize::try_from(file.stat_at_open()?.len).unwrap_or(usize::MAX);
    if len > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; len];
    let count = read_full(&*file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn parse(layout: &Layout, file: &Arc<[u8]>, range: Range<usize>) -> Option<(Place, Kept)> {
    let line = &file[range.clone()];
    let at = memchr::memmem::find(line, SUMMARY)?;
    let head = [&line[..at], b"}"].concat();
    let Head { format, workspace, id, log, tombstone, keys } = serde_json::from_slice(&head).ok()?;
    unframe(layout.owner(id), line).filter(|_| format == SNAPSHOT_FORMAT)?;
    let text = Text { file: file.clone(), range: range.start + at + SUMMARY.len()..range.end - CRC_LEN };
    let (last_active_at, due, numbers) = keys;
    let last_active_at = Timestamp::from_micros(last_active_at);
    let keys = Keys { last_active_at, due: due.map(Timestamp::from_micros), numbers };
    Some(((workspace, id), Kept { log, tombstone, keys, text }))
}

/// Appends the line of a session, unless the metadata of its files tells too little, or the file would become too long.
pub(crate) fn push(layout: &Layout, place: Place, entry: &Entry, out: &mut Vec<u8>) -> Result<()> {
    let Source { log, tombstone, .. } = entry.source;
    let (Some(log), None | Some(Some(_))) = (stamp(log), tombstone.map(stamp)) else { return Ok(()) };
    let stamps = (log, tombstone.and_then(stamp));
    if let Some(text) = &entry.text {
        return push_text(layout, place, stamps, (&entry.keys, text), out);
    }
    let Some(summary) = entry.summary(place) else { return Ok(()) };
    push_line(layout, place, stamps, (&entry.keys, summary), out)
}

/// Appends a line that the file had.
pub(crate) fn push_again(layout: &Layout, place: Place, kept: &Kept, out: &mut Vec<u8>) -> Result<()> {
    push_text(layout, place, (kept.log, kept.tombstone), (&kept.keys, &kept.text), out)
}

fn push_text(
    layout: &Layout,
    place: Place,
    stamps: (Stamp, Option<Stamp>),
    (keys, text): (&Keys, &Text),
    out: &mut Vec<u8>,
) -> Result<()> {
    match serde_json::from_slice::<&RawValue>(text.bytes()) {
        Ok(summary) => push_line(layout, place, stamps, (keys, summary), out),
        // It is read from the log.
        Err(_) => Ok(()),
    }
}

fn push_line(
    layout: &Layout,
    (workspace, id): Place,
    (log, tombstone): (Stamp, Option<Stamp>),
    (keys, summary): (&Keys, &(impl Serialize + ?Sized)),
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let keys = (keys.last_active_at.as_micros(), keys.due.map(Timestamp::as_micros), keys.numbers.clone());
    let line = Line { format: SNAPSHOT_FORMAT, workspace, id, log, tombstone, keys, summary };
    frame(layout.owner(id), &format_args!("summary of session {id}"), &line, out)?;
    if out.len() > MAX_BYTES {
        out.truncate(start);
    }
    Ok(())
}

/// Takes the lock under which the file is written and removed; `None` if it is held, or there is no such folder.
pub(crate) fn lock(env: &Env, layout: &Layout) -> Result<Option<HeldLock>> {
    lock::take_folder(env, &layout.index())
}

/// Removes the file, durably, and what a writer that was killed has left of it. Returns `false` if a writer has the lock. Call it
/// after a change was announced that replaces what a summary was read from, and before that change.
pub(crate) fn erase(env: &Env, layout: &Layout) -> Result<bool> {
    let folder = layout.index();
    match env.kind(&folder)? {
        Some(Kind::Folder) => {}
        _ => return Ok(true),
    }
    let Some(_lock) = lock(env, layout)? else { return Ok(false) };
    for (name, kind) in env.list(&folder)? {
        let text = name.to_string_lossy();
        let is_left = layout::is_temp(&text) && text[1..].starts_with(layout::SUMMARIES);
        if (text == layout::SUMMARIES || is_left) && kind != Kind::Folder {
            let path = folder.join(&name);
            match env.io.remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path, error));
                }
                _ => {}
            }
        }
    }
    // Also if there was none: an earlier attempt may have removed it and failed here.
    env.sync_name(&layout.summaries())?;
    Ok(true)
}
