//! Keeps the file equal to the log: appends to it, or renders it again and keeps any other contents beside it.

use std::io;
use std::path::{Path, PathBuf};

use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::{ErrorKind, Result, Seq, SessionId};
use agent_transcript::{
    Frontmatter, Mark, Seal, Transcript, TranscriptForm, TranscriptMessage, TranscriptWriter,
};

use crate::error::failed;
use crate::io::{IoFile, Kind, OpenMode, not_a_file, read_full, write_full};
use crate::log::commit;
use crate::medium::env::{held, parent};
use crate::medium::{layout, lock};
use crate::shared::tenant::{SharedSession, Tenant};
use crate::shared::transcript_state::Written;
use crate::transcript::messages;

/// Number of bytes written or read at a time.
const CHUNK: usize = 256 << 10;
/// Number of bytes at the start of a file in which the id of its session is.
const HEAD_BYTES: usize = 256;
/// Size limit in bytes of a file that was not rendered here and is still parsed as a transcript.
pub(super) const EDIT_MAX: u64 = 64 << 20;

/// Contents found in the file's place.
enum Found {
    Nothing,
    /// Text that was rendered up to an event of the log.
    Rendered(Written),
    /// Other contents, to be kept under this name before the file is rendered again.
    Other(&'static str),
    /// File of another program, which must not be changed.
    Foreign,
}

/// Brings the file up to date; returns `false` if another process or handle has it locked.
pub(super) fn bring_up_to_date(tenant: &Tenant, cell: &SharedSession, id: SessionId) -> Result<bool> {
    let session = commit::load(tenant, cell, id)?;
    // Of a sealed session it would show nothing.
    if session.status.state == SessionState::Deleted || session.sealed_by.is_some() {
        return Ok(true);
    }
    let folder = tenant.layout.workspace(session.workspace);
    let Some(_lock) = lock::take(&tenant.env, &folder.join(layout::TRANSCRIPT_LOCK))? else {
        return Ok(false);
    };
    let path = folder.join(layout::TRANSCRIPT);
    let known = held(&cell.transcript).file.clone();
    let written = match find(tenant, &session, &path, known)? {
        Found::Foreign => return Ok(true),
        Found::Rendered(file) if file.visible_from == session.visible_from => {
            go_on(tenant, &session, &path, file)?
        }
        Found::Nothing | Found::Rendered(_) => render(tenant, &session, &path, None)?,
        Found::Other(name) => render(tenant, &session, &path, Some(name))?,
    };
    held(&cell.transcript).file = written;
    Ok(true)
}

// --- what is there ---------------------------------------------------------------------------------------------------

fn find(tenant: &Tenant, session: &SessionRecord, path: &Path, known: Option<Written>) -> Result<Found> {
    let env = &tenant.env;
    let stat = match env.io.stat(path) {
        Ok(stat) if stat.kind == Kind::File => stat,
        Ok(stat) => return Err(failed("read", path, not_a_file(stat.kind))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(failed("look at", path, error)),
    };
    if let Some(known) = known
        && known.stat == stat
        && known.seen <= session.head
    {
        return Ok(Found::Rendered(known));
    }
    let file = env.io.open(path, OpenMode::Read).map_err(|e| failed("open", path, e))?;
    let sealed = sealed(&*file, stat.len).map_err(|e| failed("read", path, e))?;
    if let Some((mark, len, checksum)) = sealed {
        let there = mark.head <= session.head
            && messages::own_event(tenant, session.id, mark.head)?
                .is_some_and(|event| event.commit == mark.commit);
        if !there && is_of_another(tenant, session.id, &*file, mark) {
            return Ok(Found::Nothing);
        }
        if !there {
            // The log was restored to an earlier state, or replaced.
            return Ok(Found::Other(layout::DAMAGED));
        }
        // Text that was rendered before a clear contains messages that are no longer visible.
        let visible_from = if mark.head >= session.visible_from { session.visible_from } else { Seq::ZERO };
        return Ok(Found::Rendered(Written { seen: mark.head, stat, len, checksum, visible_from }));
    }
    if stat.len > EDIT_MAX {
        return Ok(Found::Other(layout::UNREADABLE));
    }
    let bytes = env.read_file(path)?.unwrap_or_default();
    Ok(match std::str::from_utf8(&bytes) {
        Ok(text) if text.trim().is_empty() => Found::Nothing,
        _ if bytes.contains(&0) => Found::Other(layout::DAMAGED),
        Ok(text) => match Transcript::parse(text) {
            Ok(parsed) if parsed.form == TranscriptForm::Legacy => Found::Foreign,
            Ok(_) => Found::Other(layout::EDITED),
            Err(error) if *error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(_) => Found::Other(layout::UNREADABLE),
        },
        Err(_) => Found::Other(layout::UNREADABLE),
    })
}

/// Returns whether a file was rendered of another session, which has all of it: that was the main session before.
fn is_of_another(tenant: &Tenant, id: SessionId, file: &dyn IoFile, mark: Mark) -> bool {
    let mut head = vec![0; HEAD_BYTES];
    let count = read_full(file, &mut head, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&head[..count.min(HEAD_BYTES)]).into_owned();
    let other =
        text.lines().find_map(|line| line.strip_prefix("session: ")?.trim().parse::<SessionId>().ok());
    let Some(other) = other.filter(|other| *other != id) else { return false };
    let event = messages::own_event(tenant, other, mark.head);
    event.is_ok_and(|event| event.is_some_and(|event| event.commit == mark.commit))
}

/// Returns the position of the log at which a file was rendered, and the length and checksum of its sealed text.
///
/// Returns `None` if there is no valid seal.
fn sealed(file: &dyn IoFile, len: u64) -> io::Result<Option<(Mark, u64, u32)>> {
    let mut tail = vec![0; Seal::MAX_BYTES.min(usize::try_from(len).unwrap_or(Seal::MAX_BYTES))];
    let at = len - tail.len() as u64;
    let count = read_full(file, &mut tail, at)?;
    tail.truncate(count);
    let Some(before) = tail.strip_suffix(b"\n") else { return Ok(None) };
    let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let Some(seal) = std::str::from_utf8(&tail[start..]).ok().and_then(Seal::parse) else { return Ok(None) };
    let body = at + start as u64;
    let (mut checksum, mut done, mut buffer) = (0, 0, vec![0; CHUNK]);
    while done < body {
        let most = usize::try_from(body - done).unwrap_or(CHUNK).min(CHUNK);
        let count = read_full(file, &mut buffer[..most], done)?;
        if count == 0 {
            return Ok(None);
        }
        checksum = crc32c::crc32c_append(checksum, &buffer[..count]);
        done += count as u64;
    }
    Ok(seal.opened(checksum).map(|mark| (mark, body, checksum)))
}

// --- writing ---------------------------------------------------------------------------------------------------------

/// Returns the current position of a session's log.
fn mark(session: &SessionRecord) -> Option<Mark> {
    session.recent.last().map(|commit| Mark::new(session.head, commit.id))
}

/// Appends the messages since the file was written. A crash leaves the file ending somewhere within the appended
/// text.
fn go_on(
    tenant: &Tenant,
    session: &SessionRecord,
    path: &Path,
    mut file: Written,
) -> Result<Option<Written>> {
    let mut writer = TranscriptWriter::resume(file.len, file.checksum);
    let mut messages = Messages::default();
    if file.seen < session.head {
        messages::each(tenant, session, file.seen, |message| messages.add(message))?;
    }
    let Some(mark) = mark(session).filter(|_| !messages.0.is_empty()) else {
        file.seen = session.head;
        return Ok(Some(file));
    };
    let log = tenant.env.io.open(path, OpenMode::Write).map_err(|e| failed("open", path, e))?;
    if log.stat_at_open().map_err(|e| failed("look at", path, e))? != file.stat {
        // A person saved the file meanwhile; the next update examines it.
        return Ok(None);
    }
    let written = (|| {
        log.truncate(file.len)?;
        let mut at = file.len;
        for message in &messages.0 {
            writer.message(message);
            if writer.len() - at >= CHUNK as u64 {
                write_full(&*log, writer.take().as_bytes(), at)?;
                at = writer.len();
            }
        }
        let (len, seal) = (writer.len(), writer.seal(mark));
        write_full(&*log, (writer.take() + &seal).as_bytes(), at)?;
        Ok((len, log.stat()?))
    })();
    let (len, stat) = written.map_err(|e| failed("write", path, e))?;
    Ok(Some(Written {
        seen: session.head,
        stat,
        len,
        checksum: writer.checksum(),
        visible_from: file.visible_from,
    }))
}

/// Messages to append. A file falls behind by only a few messages, so they are held in memory.
#[derive(Default)]
struct Messages(Vec<TranscriptMessage>);

impl Messages {
    #[allow(clippy::unnecessary_wraps, reason = "handed to a walk that may fail")]
    fn add(&mut self, message: TranscriptMessage) -> Result<()> {
        self.0.push(message);
        Ok(())
    }
}

/// Renders the file again, and keeps its old contents beside it, under `keep`.
fn render(
    tenant: &Tenant,
    session: &SessionRecord,
    path: &Path,
    keep: Option<&'static str>,
) -> Result<Option<Written>> {
    let env = &tenant.env;
    let Some(mark) = mark(session) else { return Ok(None) };
    let provider = held(&tenant.mains).get(&session.workspace).and_then(|main| main.provider.clone());
    let model = session.attributes.references.get("model").cloned();
    let frontmatter =
        Frontmatter::new(session.id, session.created_at).with_provider(provider).with_model(model);
    let (temp, file) = env.create_temp(path)?;
    let made = (|| {
        let mut writer = TranscriptWriter::start(&frontmatter);
        let mut at = 0;
        let mut flush = |writer: &mut TranscriptWriter, least: u64| {
            if writer.len() - at >= least {
                write_full(&*file, writer.take().as_bytes(), at).map_err(|e| failed("write", &temp, e))?;
                at = writer.len();
            }
            Ok(())
        };
        messages::each(tenant, session, Seq::ZERO, |message| {
            writer.message(&message);
            flush(&mut writer, CHUNK as u64)
        })?;
        flush(&mut writer, 0)?;
        let (len, checksum) = (writer.len(), writer.checksum());
        write_full(&*file, writer.seal(mark).as_bytes(), len).map_err(|e| failed("write", &temp, e))?;
        if let Some(name) = keep {
            set_aside(tenant, session, path, name, (&*file, len))?;
        }
        env.io.rename(&temp, path).map_err(|e| failed("replace", path, e))?;
        let stat = file.stat().map_err(|e| failed("look at", path, e))?;
        Ok(Written { seen: session.head, stat, len, checksum, visible_from: session.visible_from })
    })();
    if made.is_err() {
        env.discard(&temp);
    }
    made.map(Some)
}

/// Moves the file to another name, which describes its contents and is not in use.
fn set_aside(
    tenant: &Tenant,
    session: &SessionRecord,
    path: &Path,
    name: &'static str,
    (rendered, len): (&dyn IoFile, u64),
) -> Result<()> {
    let env = &tenant.env;
    // A file that is too long to be read is not examined.
    let bytes = env.read_file(path).ok().flatten();
    let torn = bytes.as_ref().map_or(Ok(false), |bytes| is_beginning(bytes, rendered, len));
    let name = if torn.map_err(|e| failed("read", path, e))? { layout::DAMAGED } else { name };
    let kept = free_name(tenant, path, name, &bytes.unwrap_or_default())?;
    env.io.rename(path, &kept).map_err(|e| failed("keep aside", path, e))?;
    env.sync_dir(parent(path)).map_err(|e| failed("keep aside", path, e))?;
    tracing::warn!(
        session = %session.id,
        kept = %kept.display(),
        "session.md differs from what was rendered; it was renamed, and rendered again from the log"
    );
    Ok(())
}

/// Returns whether bytes are the beginning of what is rendered, possibly followed by part of a mark. If so, a write
/// was cut short.
fn is_beginning(bytes: &[u8], rendered: &dyn IoFile, len: u64) -> io::Result<bool> {
    let mut same = vec![0; bytes.len().min(usize::try_from(len).unwrap_or(usize::MAX))];
    let count = read_full(rendered, &mut same, 0)?;
    let common = bytes.iter().zip(&same[..count]).take_while(|(a, b)| a == b).count();
    let rest = &bytes[common..];
    let stem = b"<!-- rendered ";
    let is_mark = rest.len() <= Seal::MAX_BYTES
        && (stem.starts_with(rest) || (rest.starts_with(stem) && !rest[..rest.len() - 1].contains(&b'\n')));
    Ok(is_mark)
}

fn free_name(tenant: &Tenant, path: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let crc = crc32c::crc32c(bytes);
    for n in 0u32.. {
        let suffix = if n == 0 { String::new() } else { format!("-{n}") };
        let kept = path.with_file_name(format!("{name}{crc:08x}{suffix}.md"));
        match tenant.env.io.stat(&kept) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(kept),
            Err(error) => return Err(failed("look at", &kept, error)),
            Ok(_) => {}
        }
    }
    Err(failed("keep aside", path, io::ErrorKind::AlreadyExists.into()))
}
