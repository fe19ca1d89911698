//! The file `index/changes`: names the sessions that change, so that a list need not check every session.
//!
//! Writers append a line before each log write, and verify afterwards that the file was not replaced. A reader continues at
//! its last position, and checks each named session until its log has the change. The file is never synced, and a process
//! ignores lines that were written before it opened the file: it begins with a check of every session.

use std::io;
use std::path::Path;

use agent_core::{SessionId, WorkspaceId};

use crate::io::{FileId, IoFile, Kind, OpenMode, append_full, read_full};
use crate::medium::env::{held, parent};
use crate::shared::list_index::Place;
pub(crate) use crate::shared::list_state::Change;
use crate::shared::list_state::Reading;
use crate::shared::tenant::Tenant;

/// Length in bytes from which the file is removed and started again. Some 40,000 commits.
const MAX_BYTES: u64 = 4 << 20;
/// Bytes before its position by which a reader knows the file again.
const KNOWN_BYTES: usize = 256;
/// Bytes before the end at which a reader begins, to see writes that have begun and not ended.
const BEGUN_BYTES: u64 = 64 << 10;

fn line((workspace, id): Place, change: Change) -> String {
    format!("{workspace} {id} {change}\n")
}

fn parse(line: &[u8]) -> Option<(Place, Change)> {
    let mut words = std::str::from_utf8(line).ok()?.strip_suffix('\n')?.split(' ');
    let workspace: WorkspaceId = words.next()?.parse().ok()?;
    let id: SessionId = words.next()?.parse().ok()?;
    let change = match (words.next()?, words.next()) {
        ("grows", Some(len)) => Change::Grows(len.parse().ok()?),
        ("begins", None) => Change::Begins,
        ("renews", None) => Change::Renews,
        ("ends", None) => Change::Ends,
        _ => return None,
    };
    words.next().is_none().then_some(((workspace, id), change))
}

// --- writing -------------------------------------------------------------------------------------------------------

/// File to which a line was written; `None` if none could be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announced(Option<FileId>);

/// Notifies readers that a session is about to change. Call [`confirm`] after the change, before it is acknowledged.
pub(crate) fn announce(tenant: &Tenant, place: Option<Place>, change: Change) -> Announced {
    let Some(place) = place else { return Announced(None) };
    let announced = append(tenant, place, change).ok();
    if announced.is_none() {
        // Without the file each reader checks every session.
        remove(tenant);
    }
    Announced(announced)
}

/// Makes sure that readers know of a change: if the file to which its line was written has lost its name meanwhile, those who
/// have opened another one are notified, too.
pub(crate) fn confirm(tenant: &Tenant, place: Option<Place>, Announced(id): Announced) {
    let named = tenant.env.io.stat(&tenant.layout.changes()).ok();
    match named.filter(|stat| Some(stat.id) == id) {
        Some(stat) if stat.len <= MAX_BYTES => return,
        Some(_) => remove(tenant),
        None => {}
    }
    // Another thread may have opened the file that has the name now; to open it once more costs little.
    *held(&tenant.changes.0) = None;
    announce(tenant, place, Change::Ends);
}

fn append(tenant: &Tenant, place: Place, change: Change) -> io::Result<FileId> {
    let mut open = held(&tenant.changes.0);
    let (file, id) = match &mut *open {
        Some(open) => open,
        None => open.insert(open_to_append(tenant, &tenant.layout.changes())?),
    };
    let appended = append_full(&**file, line(place, change).as_bytes()).map(|()| *id);
    if appended.is_err() {
        *open = None;
    }
    appended
}

fn open_to_append(tenant: &Tenant, path: &Path) -> io::Result<(Box<dyn IoFile>, FileId)> {
    let io = &tenant.env.io;
    let file = match io.open(path, OpenMode::Append) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            tenant.make_folders(parent(path))?;
            io.open(path, OpenMode::Append)
        }
        opened => opened,
    }?;
    let id = file.stat_at_open()?.id;
    Ok((file, id))
}

fn remove(tenant: &Tenant) {
    let path = tenant.layout.changes();
    match tenant.env.io.remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(
                path = %path.display(), %error,
                "other processes may list sessions as they were; remove the file"
            );
        }
        _ => {}
    }
}

// --- reading -------------------------------------------------------------------------------------------------------

/// What a reader learns.
#[derive(Debug)]
pub(crate) enum News {
    /// These changes, since the last look.
    Changes(Vec<(Place, Change)>),
    /// Nothing is known of what happened since the last look. These changes may be under way.
    Unknown(Vec<(Place, Change)>),
}

/// Reads on. Leaves nothing open where there is no file that can be read.
pub(crate) fn read(tenant: &Tenant, reading: &mut Option<Reading>) -> News {
    let path = tenant.layout.changes();
    let stat = tenant.env.io.stat(&path).ok().filter(|stat| stat.kind == Kind::File);
    let known = reading.take();
    let Some(stat) = stat else { return News::Unknown(Vec::new()) };
    // Nobody cuts the file; if another program has, lines may be lost.
    let readable = |known: &Reading| known.len <= stat.len && stat.len - known.at <= 2 * MAX_BYTES;
    let known = known.filter(|known| known.id == stat.id && readable(known));
    if let Some(mut open) = known
        && let Ok(Some((changes, is_whole))) = read_on(&mut open, stat.len)
    {
        *reading = Some(open);
        return if is_whole { News::Changes(changes) } else { News::Unknown(changes) };
    }
    let begun = begin(tenant, &path).and_then(|mut open| {
        let read = read_on(&mut open, stat.len)?;
        Ok((open, read))
    });
    match begun {
        Ok((open, read)) => {
            *reading = Some(open);
            News::Unknown(read.map(|(changes, _)| changes).unwrap_or_default())
        }
        Err(_) => News::Unknown(Vec::new()),
    }
}

/// Opens the file some way before its end.
fn begin(tenant: &Tenant, path: &Path) -> io::Result<Reading> {
    let file = tenant.env.io.open(path, OpenMode::Read)?;
    let stat = file.stat_at_open()?;
    let mut at = stat.len.saturating_sub(BEGUN_BYTES);
    if at > 0 {
        let mut some = [0; 256];
        let count = read_full(&*file, &mut some, at)?;
        at += memchr::memchr(b'\n', &some[..count]).map_or(0, |end| end as u64 + 1);
    }
    Ok(Reading { file, id: stat.id, at, read: Vec::new(), len: stat.len })
}

/// Changes that were read, and whether all lines were changes.
type Lines = (Vec<(Place, Change)>, bool);

/// Reads the whole lines from the position of the reader up to `end`, the length of the file. Also returns whether all of them are
/// lines of this file; `None` if what was read before is there no more.
fn read_on(reading: &mut Reading, end: u64) -> io::Result<Option<Lines>> {
    if end == reading.at {
        return Ok(Some((Vec::new(), true)));
    }
    let known = reading.read.len();
    let from = reading.at - known as u64;
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or_default()];
    let count = read_full(&*reading.file, &mut bytes, from)?;
    bytes.truncate(count);
    if !bytes.starts_with(&reading.read) {
        return Ok(None);
    }
    let whole = memchr::memrchr(b'\n', &bytes[known..]).map_or(0, |last| last + 1);
    let lines = bytes[known..known + whole].split_inclusive(|byte| *byte == b'\n').map(parse);
    let (mut changes, mut is_whole) = (Vec::new(), true);
    for change in lines {
        is_whole &= change.is_some();
        changes.extend(change);
    }
    bytes.truncate(known + whole);
    bytes.drain(..bytes.len().saturating_sub(KNOWN_BYTES));
    (reading.at, reading.read) = (reading.at + whole as u64, bytes);
    // The file may have grown since its length was read.
    reading.len = end.max(reading.at);
    Ok(Some((changes, is_whole)))
}
