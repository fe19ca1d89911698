//! Changes of bindings since `bindings.toml` was written: one line for each, in `bindings.changes`, so that a change among
//! many bindings does not write them all.
//!
//! The file has a name from the first change until `bindings.toml` is written with all of them; the next change makes another
//! one. A line that is not whole at the end was never acknowledged.

use std::io;
use std::path::Path;

use agent_core::Result;

use crate::error::{corrupt, failed, in_doubt, replaced, too_long};
use crate::io::{FileId, IoFile, OpenMode, Stat, read_full, still_ours, write_full};
use crate::medium::env::FILE_MAX_BYTES;
use crate::medium::lock::Locked;
use crate::medium::log::{self, Forward};
use crate::shared::bindings_toml::{Cache, Change, Changes};
use crate::shared::tenant::Tenant;

/// Maximum bytes of a line. The end of one that was not written whole has fewer.
const LINE_MAX_BYTES: u64 = 4096;

/// Maximum bytes of the file. Before it is so long, `bindings.toml` is written with all changes.
const MAX_BYTES: u64 = FILE_MAX_BYTES + LINE_MAX_BYTES;

/// Open file of changes.
#[derive(Debug)]
pub(crate) struct OpenChanges {
    file: Box<dyn IoFile>,
    stat: Stat,
}

/// Opens the file; `None` if there are no changes.
///
/// # Errors
///
/// `Corrupt` if it is longer than any that this library writes.
pub(crate) fn open(tenant: &Tenant) -> Result<Option<OpenChanges>> {
    let path = tenant.layout.binding_changes();
    let file = match tenant.env.io.open(&path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", &path, error)),
    };
    let stat = file.stat().map_err(|e| failed("look at", &path, e))?;
    if stat.len > MAX_BYTES {
        return Err(too_long(&path, stat.len, MAX_BYTES));
    }
    Ok(Some(OpenChanges { file, stat }))
}

/// Returns whether the open file still has its name.
pub(crate) fn has_name(tenant: &Tenant, open: &OpenChanges) -> Result<bool> {
    let path = tenant.layout.binding_changes();
    let named = still_ours(&*tenant.env.io, open.stat.id, &path);
    Ok(named.map_err(|error| failed("look at", &path, error))?.is_some())
}

/// Applies the changes that the cache does not have. Returns `false` if it has some that the file has not.
///
/// # Errors
///
/// `Corrupt` if a line other than the last is damaged.
pub(crate) fn read(tenant: &Tenant, open: Option<&OpenChanges>, cache: &mut Cache) -> Result<bool> {
    let Some(open) = open else { return Ok(cache.changes.is_none()) };
    let path = tenant.layout.binding_changes();
    let unreadable = |error| failed("read", &path, error);
    let mut known = match cache.changes.take() {
        Some(known) if known.id != open.stat.id || open.stat.len < known.end => return Ok(false),
        Some(known) => known,
        None => Changes { id: open.stat.id, end: 0, len: 0, last: None, durable: 0 },
    };
    if let Some((at, line)) = &known.last {
        let mut now = vec![0; line.len()];
        let count = read_full(&*open.file, &mut now, *at).map_err(unreadable)?;
        if now[..count] != line[..] {
            return Ok(false);
        }
    }
    known.len = open.stat.len;
    let mut lines = Forward::new(tenant.layout.owner_of_bindings(), &*open.file, known.end, known.len);
    let mut bad = None;
    while let Some(line) = lines.next().map_err(unreadable)? {
        match line.value::<Change>() {
            _ if bad.is_some() => {
                let what = format!(
                    "has a damaged line at byte {}, and changes of bindings behind it",
                    bad.unwrap_or_default()
                );
                return Err(corrupt(&path, &what));
            }
            Some(change) => {
                cache.bindings.apply(change);
                let mut bytes = line.bytes.to_vec();
                bytes.push(b'\n');
                known.last = Some((line.offset, bytes));
                known.end = line.end;
            }
            None => bad = Some(line.offset),
        }
    }
    if let Some(bad) = bad.filter(|bad| known.len - bad > LINE_MAX_BYTES) {
        return Err(corrupt(&path, &format!("has a line at byte {bad} that is longer than any change")));
    }
    cache.changes = Some(known);
    Ok(true)
}

/// Moves away the end of a line that was not written whole, under the lock of the folder.
pub(crate) fn cut_torn_end(tenant: &Tenant, folder: Locked<'_>, cache: &mut Cache) -> Result<()> {
    let Some(changes) = cache.changes.as_mut().filter(|changes| changes.len > changes.end) else {
        return Ok(());
    };
    let path = tenant.layout.binding_changes();
    let file = writable(tenant, &path, changes.id)?;
    let mut torn = vec![0; usize::try_from(changes.len - changes.end).unwrap_or_default()];
    let count = read_full(&*file, &mut torn, changes.end).map_err(|e| failed("read", &path, e))?;
    tenant.env.keep_copy(folder, &path, &torn[..count]);
    let cut = file.truncate(changes.end).and_then(|()| tenant.env.sync_file(&*file));
    cut.map_err(|e| failed("cut the torn end off", &path, e))?;
    changes.len = changes.end;
    Ok(())
}

/// Opens the file for writing, if it is still the one that was read.
fn writable(tenant: &Tenant, path: &Path, id: FileId) -> Result<Box<dyn IoFile>> {
    let file = tenant.env.io.open(path, OpenMode::Write).map_err(|e| failed("open", path, e))?;
    let stat = file.stat().map_err(|e| failed("look at", path, e))?;
    if stat.id == id { Ok(file) } else { Err(replaced(path)) }
}

/// Adds a change with one write and one sync, under the lock of the folder.
pub(crate) fn append(
    tenant: &Tenant,
    folder: Locked<'_>,
    known: Option<Changes>,
    change: &Change,
) -> Result<Changes> {
    let (env, path) = (&tenant.env, tenant.layout.binding_changes());
    let mut line = Vec::new();
    let what = format_args!("the binding of device {}", change.device);
    log::frame(tenant.layout.owner_of_bindings(), &what, change, &mut line)?;
    folder.check(env)?;
    let (file, changes) = match known {
        Some(changes) => (writable(tenant, &path, changes.id)?, changes),
        None => {
            let file = env.io.open(&path, OpenMode::CreateNew).map_err(|e| failed("create", &path, e))?;
            let id = file.stat().map_err(|e| failed("look at", &path, e))?.id;
            (file, Changes { id, end: 0, len: 0, last: None, durable: 0 })
        }
    };
    let mut bytes = not_durable(&*file, &path, &changes)?;
    bytes.extend_from_slice(&line);
    let written = write_full(&*file, &bytes, changes.durable).and_then(|()| env.sync_file(&*file));
    if let Err(source) = written {
        drop(file);
        return Err(take_back(tenant, &path, &changes, source));
    }
    match still_ours(&*env.io, changes.id, &path) {
        Ok(Some(_)) => {}
        // Nobody finds what was written, or somebody has moved it.
        Ok(None) => return Err(in_doubt("write", &path, io::ErrorKind::NotFound.into())),
        Err(error) => return Err(in_doubt("look at", &path, error)),
    }
    if changes.durable == 0 {
        // Nobody may have made the name durable.
        env.sync_name(&path)?;
    }
    let end = changes.end + line.len() as u64;
    Ok(Changes { end, len: end, durable: end, last: Some((changes.end, line)), ..changes })
}

/// Returns the whole lines that this process has not made durable. They are written again, in their place, before they are
/// synced: if another process's sync of them has failed, the system takes them for written, and a sync leaves them out.
fn not_durable(file: &dyn IoFile, path: &Path, changes: &Changes) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(changes.end - changes.durable).unwrap_or_default()];
    let count = read_full(file, &mut bytes, changes.durable).map_err(|e| failed("read", path, e))?;
    if count < bytes.len() { Err(replaced(path)) } else { Ok(bytes) }
}

/// Takes back a line that was not written, or not made durable. If that fails, too, nothing more is written by this process.
fn take_back(tenant: &Tenant, path: &Path, changes: &Changes, source: io::Error) -> agent_core::Error {
    let env = &tenant.env;
    // A new descriptor: a sync on the old one could succeed without having written anything.
    let cut = env.io.open(path, OpenMode::Write).and_then(|file| {
        if file.stat()?.id == changes.id {
            file.truncate(changes.end)?;
            env.sync_file(&*file)?;
        }
        Ok(())
    });
    match cut {
        Ok(()) => failed("write", path, source),
        Err(_) => {
            env.poison(path);
            in_doubt("write", path, source)
        }
    }
}

/// Removes the file, whose changes `bindings.toml` has now. Where that fails it stays: its changes change nothing.
pub(crate) fn remove(tenant: &Tenant, changes: Changes) -> Result<Option<Changes>> {
    let path = tenant.layout.binding_changes();
    match tenant.env.io.remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "changes of bindings that were written elsewhere are not removed");
            return Ok(Some(changes));
        }
    }
    tenant.env.sync_name(&path).map(|()| None)
}

/// Makes durable what other processes have written and may not have made durable.
pub(crate) fn make_durable(tenant: &Tenant, changes: Changes) -> Result<Changes> {
    let path = tenant.layout.binding_changes();
    let file = writable(tenant, &path, changes.id)?;
    let bytes = not_durable(&*file, &path, &changes)?;
    let written = write_full(&*file, &bytes, changes.durable).and_then(|()| tenant.env.sync_file(&*file));
    if let Err(source) = written {
        tenant.env.poison(&path);
        return Err(in_doubt("make durable", &path, source));
    }
    if changes.durable == 0 {
        tenant.env.sync_name(&path)?;
    }
    Ok(Changes { durable: changes.end, ..changes })
}
