//! Device bindings: the synchronous core of `bindings.toml`, which people also edit, and of the changes since it was
//! written. The files are the only source: they are checked for every answer, and changed only under the lock of their
//! folder.

use std::io;
use std::path::{Path, PathBuf};

use agent_core::commit::Precondition;
use agent_core::store::{Binding, BindingQuery, Damaged, Page, decide_bind};
use agent_core::{BlobName, DeviceId, Error, ErrorKind, Result, SessionId, WorkspaceId};
use toml_edit::{DocumentMut, Item, Table, TableLike, value};

use crate::error::{corrupt, failed, newer};
use crate::io::{FileId, OpenMode, read_full, write_full};
use crate::medium::env::{FILE_MAX_BYTES, held};
use crate::medium::lock::{self, Attempt, Locked};
use crate::medium::toml;
use crate::places::binding_changes as changes;
use crate::shared::bindings_toml::{Bindings, Cache, Change, Changes, Toml};
use crate::shared::tenant::Tenant;

/// Newest format that this version reads, and the one that it writes. A file without a format number was written by
/// the Aptove agent.
pub(crate) const FORMAT: i64 = 1;
/// Last line of a file that this crate wrote. If it is missing, the file was cut short.
const LAST_LINE: &str = "# end of bindings";

/// Number of times that the files are looked at while another process writes `bindings.toml`.
const TRIES: u32 = 16;

fn parse(tenant: &Tenant, path: &Path, bytes: &[u8]) -> Result<DocumentMut> {
    let text = std::str::from_utf8(bytes)
        .map_err(|source| corrupt(path, "is not UTF-8 text").with_source(source))?;
    let document = toml::parse(path, text)?;
    let format = match document.get("format") {
        Some(item) => Some(item.as_integer().ok_or_else(|| corrupt(path, "has a format that is no number"))?),
        None => None,
    };
    match format {
        Some(format) if format > FORMAT => return Err(newer(path, format)),
        Some(format) if format < 1 => {
            return Err(corrupt(path, &format!("has format {format}, which is none")));
        }
        Some(_) if !toml::is_whole(text, LAST_LINE) => return Err(toml::cut_short(path, LAST_LINE)),
        None if document.get("bindings").is_none() => {
            return Err(corrupt(path, "holds no bindings and no last line; it may have been cut short"));
        }
        _ => {}
    }
    toml::check_owner(path, &document, "tenant", "tenant", tenant.layout.tenant().as_str())?;
    match document.get("bindings") {
        Some(item) if item.as_table_like().is_none() => {
            Err(corrupt(path, "has `bindings` that are no table"))
        }
        _ => Ok(document),
    }
}

/// Brings the cache up to date with the files.
///
/// A writer of `bindings.toml` removes the file of changes afterwards. So if that one still has its name after the other
/// was read again, both belong together: changes that `bindings.toml` has already change nothing.
fn refresh(tenant: &Tenant, cache: &mut Cache) -> Result<()> {
    let path = tenant.layout.bindings();
    for _ in 0..TRIES {
        let changes = changes::open(tenant)?;
        let is_new = cache.toml.as_mut().is_none_or(|known| !known.is_current(&tenant.env, &path));
        if is_new {
            *cache = Cache { durable: cache.durable.take(), ..Cache::default() };
            let (toml, bindings) = match Toml::read(&tenant.env, &path)? {
                Some(toml) => {
                    let bindings = Bindings::of(&parse(tenant, &path, &toml.bytes)?);
                    (toml.for_cache(tenant.env.bindings_rewrite_max), bindings)
                }
                None => (Toml::missing(), Bindings::default()),
            };
            cache.bindings = bindings;
            cache.toml = Some(toml);
        }
        if is_new && !changes.as_ref().map_or(Ok(true), |open| changes::has_name(tenant, open))? {
            continue;
        }
        if changes.is_none() && cache.toml.as_ref().is_some_and(Toml::is_missing) {
            tenant.env.check_seen(&[&tenant.env.root])?;
        }
        match changes::read(tenant, changes.as_ref(), cache)? {
            true => return Ok(()),
            // What was read before is not there any more.
            false => *cache = Cache { durable: cache.durable.take(), ..Cache::default() },
        }
    }
    Err(crate::error::replaced(&path))
}

/// Answers from the bindings as they are now.
fn read_with<T>(tenant: &Tenant, answer: impl FnOnce(&Bindings) -> Result<T>) -> Result<T> {
    let mut cache = held(&tenant.bindings);
    refresh(tenant, &mut cache).inspect_err(|_| cache.forget())?;
    answer(&cache.bindings)
}

/// Returns the number of readable bindings.
pub(crate) fn count(tenant: &Tenant) -> u64 {
    read_with(tenant, |bindings| Ok(bindings.bound.len() as u64)).unwrap_or(0)
}

pub(crate) fn resolve(tenant: &Tenant, device: &DeviceId) -> Result<Option<WorkspaceId>> {
    read_with(tenant, |bindings| bindings.get(device, &tenant.layout.bindings()))
}

pub(crate) fn list(tenant: &Tenant, query: &BindingQuery) -> Result<Page<Binding>> {
    let path = tenant.layout.bindings();
    read_with(tenant, |bindings| {
        let page = query.page(bindings.bound.iter().map(|(device, id)| Binding::new(device.clone(), *id)))?;
        if query.cursor.is_some() {
            return Ok(page);
        }
        let damaged = bindings.damaged.iter().map(|(key, reason)| {
            Damaged::new(
                path.display().to_string(),
                format!("entry {:?} {reason}", key.escape_debug().to_string()),
            )
        });
        Ok(page.with_damaged(damaged.collect()))
    })
}

/// Changes the bindings under the lock of their folder. `change` returns its result, and what is to be changed.
fn mutate<T>(
    tenant: &Tenant,
    change: impl FnOnce(&Bindings, &Path) -> Result<(T, Vec<Change>)>,
) -> Result<Attempt<T>> {
    tenant.env.check_poison(&tenant.layout.bindings())?;
    tenant.env.check_poison(&tenant.layout.binding_changes())?;
    tenant.prepare()?;
    lock::under(&tenant.env, tenant.layout.root(), |folder| {
        let done = mutate_locked(tenant, folder, change);
        if done.is_err() {
            held(&tenant.bindings).forget();
        }
        done.map(Attempt::Done)
    })
}

/// What is written for a change, from what the cache had.
enum Write {
    /// Nothing; but what others have written is made durable.
    Nothing {
        toml: Option<FileId>,
        changes: Option<Changes>,
    },
    Line {
        changes: Option<Changes>,
        change: Change,
    },
    All {
        toml: Option<Vec<u8>>,
        changes: Option<Changes>,
        bindings: Bindings,
    },
}

fn mutate_locked<T>(
    tenant: &Tenant,
    folder: Locked<'_>,
    change: impl FnOnce(&Bindings, &Path) -> Result<(T, Vec<Change>)>,
) -> Result<T> {
    tenant.env.sweep(tenant.layout.root());
    // The cache is free while something is written, so that readers do not wait for the disk.
    let (answer, devices, write) = plan(tenant, folder, &mut held(&tenant.bindings), change)?;
    match write {
        Write::Nothing { toml, changes } => {
            if toml.is_some() {
                tenant.env.sync_name(&tenant.layout.bindings())?;
            }
            let changes = changes.map(|changes| changes::make_durable(tenant, changes)).transpose()?;
            let mut cache = held(&tenant.bindings);
            cache.durable = toml.or(cache.durable);
            cache.changes = changes.or(cache.changes.take());
        }
        Write::Line { changes, change } => {
            let changes = changes::append(tenant, folder, changes, &change)?;
            let mut cache = held(&tenant.bindings);
            cache.bindings.apply(change);
            cache.changes = Some(changes);
        }
        Write::All { toml, changes, bindings } => {
            let (toml, changes) = write_all(tenant, folder, toml, changes, &bindings)?;
            let durable = toml.as_ref().map(|toml| toml.stat.id);
            *held(&tenant.bindings) = Cache { toml, changes, bindings, durable };
        }
    }
    devices.iter().for_each(|device| forget_last_session(tenant, device));
    Ok(answer)
}

/// Decides what is to be written, under the lock of the folder. Returns the devices that it is about, too.
fn plan<T>(
    tenant: &Tenant,
    folder: Locked<'_>,
    cache: &mut Cache,
    change: impl FnOnce(&Bindings, &Path) -> Result<(T, Vec<Change>)>,
) -> Result<(T, Vec<DeviceId>, Write)> {
    let path = tenant.layout.bindings();
    refresh(tenant, cache).map_err(|error| keep(tenant, folder, &path, error))?;
    changes::cut_torn_end(tenant, folder, cache)?;
    let (answer, mut changed) = change(&cache.bindings, &path)?;
    let devices = changed.iter().map(|change| change.device.clone()).collect();
    let toml = cache.toml.as_ref().filter(|toml| !toml.is_missing());
    let (written, small) = (toml.map_or(0, Toml::len), tenant.env.bindings_rewrite_max);
    let changes = cache.changes.clone();
    let since = changes.as_ref().map_or(0, |changes| changes.end);
    let is_line = changed.len() == 1
        && (written > small || since > 0)
        && since < written.max(small).min(FILE_MAX_BYTES);
    let write = match changed.pop() {
        None => {
            let toml = toml.map(|toml| toml.stat.id).filter(|id| cache.durable != Some(*id));
            Write::Nothing { toml, changes: changes.filter(|changes| changes.durable < changes.end) }
        }
        Some(change) if is_line => Write::Line { changes, change },
        Some(last) => {
            let mut bindings = cache.bindings.clone();
            changed.into_iter().chain([last]).for_each(|change| bindings.apply(change));
            // The bytes of a small file were just read.
            let toml = match toml {
                Some(toml) if toml.is_small() => Some(toml.bytes.clone()),
                _ => tenant.env.read_file(&path)?,
            };
            Write::All { toml, changes, bindings }
        }
    };
    Ok((answer, devices, write))
}

/// Writes `bindings.toml` with these bindings, and removes the file of changes. `toml` are the bytes that it has now.
fn write_all(
    tenant: &Tenant,
    folder: Locked<'_>,
    toml: Option<Vec<u8>>,
    changes: Option<Changes>,
    bindings: &Bindings,
) -> Result<(Option<Toml>, Option<Changes>)> {
    let path = tenant.layout.bindings();
    let mut document = match toml {
        Some(bytes) => parse(tenant, &path, &bytes)?,
        None => DocumentMut::new(),
    };
    if document.get("bindings").is_none() {
        document.insert("bindings", Item::Table(Table::new()));
    }
    let Some(table) = document.get_mut("bindings").and_then(Item::as_table_like_mut) else {
        return Err(corrupt(&path, "has `bindings` that are no table"));
    };
    bring_up_to_date(table, bindings);
    let text = finish(tenant, document).into_bytes();
    tenant.env.replace(folder, &path, &text)?;
    // The folder is synced with the name of the first, and then with that of the second: before anybody relies on a
    // `bindings.toml` that is written later, no old change can come back.
    let changes = changes.map(|changes| changes::remove(tenant, changes)).transpose()?.flatten();
    let toml = Toml::written(&tenant.env, &path, text);
    Ok((toml.map(|toml| toml.for_cache(tenant.env.bindings_rewrite_max)), changes))
}

/// Gives the table of a document the bindings. Entries that cannot be read stay.
fn bring_up_to_date(table: &mut dyn TableLike, bindings: &Bindings) {
    let is_known = |key: &str| {
        let device = key.parse::<DeviceId>().ok();
        bindings.damaged.contains_key(key)
            || device.is_some_and(|device| bindings.bound.contains_key(&device))
    };
    let gone: Vec<String> =
        table.iter().map(|(key, _)| key.to_owned()).filter(|key| !is_known(key)).collect();
    for key in &gone {
        table.remove(key);
    }
    for (device, workspace) in &bindings.bound {
        let workspace = workspace.to_string();
        if table.get(device.as_str()).and_then(Item::as_str) != Some(&workspace) {
            insert(table, device.as_str(), workspace);
        }
    }
}

/// Returns the text to store, with its first and last line.
fn finish(tenant: &Tenant, mut document: DocumentMut) -> String {
    if document.get("format").is_none() {
        document.insert("format", value(FORMAT));
    }
    if document.get("tenant").is_none() {
        document.insert("tenant", value(tenant.layout.tenant().as_str()));
    }
    toml::finish(&document, LAST_LINE)
}

/// Keeps a copy of an unreadable `bindings.toml`. The same bytes are kept only once.
fn keep(tenant: &Tenant, folder: Locked<'_>, path: &Path, error: Error) -> Error {
    if *error.kind() != ErrorKind::Corrupt {
        return error;
    }
    if let Ok(Some(bytes)) = tenant.env.read_file(path)
        && parse(tenant, path, &bytes).is_err()
    {
        tenant.env.keep_copy(folder, path, &bytes);
    }
    error
}

pub(crate) fn bind(
    tenant: &Tenant,
    device: &DeviceId,
    to: WorkspaceId,
    expect: Precondition<WorkspaceId>,
) -> Result<Attempt<WorkspaceId>> {
    mutate(tenant, |bindings, path| {
        let now = bindings.get(device, path)?;
        let bound = decide_bind(device, now, to, expect)?;
        let change = (now != Some(bound)).then(|| Change::new(device.clone(), Some(bound)));
        Ok((bound, change.into_iter().collect()))
    })
}

fn insert(table: &mut dyn TableLike, key: &str, workspace: String) {
    let mut new: toml_edit::Value = workspace.into();
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        _ => drop(table.insert(key, value(new))),
    }
}

pub(crate) fn unbind(tenant: &Tenant, device: &DeviceId) -> Result<Attempt<bool>> {
    if let Ok(None) = resolve(tenant, device) {
        return Ok(Attempt::Done(false));
    }
    mutate(tenant, |bindings, path| {
        let bound = bindings.get(device, path)?.is_some();
        let change = bound.then(|| Change::new(device.clone(), None));
        Ok((bound, change.into_iter().collect()))
    })
}

pub(crate) fn unbind_workspace(tenant: &Tenant, id: WorkspaceId) -> Result<Attempt<u64>> {
    if read_with(tenant, |bindings| Ok(!bindings.bound.values().any(|bound| *bound == id))).unwrap_or(false) {
        return Ok(Attempt::Done(0));
    }
    mutate(tenant, |bindings, _| {
        let bound = bindings.bound.iter().filter(|(_, bound)| **bound == id);
        let changes: Vec<_> = bound.map(|(device, _)| Change::new(device.clone(), None)).collect();
        Ok((changes.len() as u64, changes))
    })
}

// --- last session ----------------------------------------------------------------------------------------------------

/// Length in bytes of the ids of a workspace and a session, with a space and a line break. It is the same for all, so that
/// the file is overwritten in place.
const LAST_LEN: usize = 2 * 37;

/// Returns the path of the file that names the session that a device used last. The id of a device is any text.
fn last_session_path(tenant: &Tenant, device: &DeviceId) -> PathBuf {
    tenant.layout.devices().join(BlobName::of(device.as_str().as_bytes()).to_string())
}

/// Returns the session that a device used last. A file that cannot be read, or is of another workspace, names none.
pub(crate) fn last_session(tenant: &Tenant, device: &DeviceId) -> Result<Option<SessionId>> {
    let Some(bound) = resolve(tenant, device)? else { return Ok(None) };
    let mut bytes = [0; LAST_LEN];
    let file = tenant.env.io.open(&last_session_path(tenant, device), OpenMode::Read);
    if !file.is_ok_and(|file| read_full(&*file, &mut bytes, 0).is_ok()) {
        return Ok(None);
    }
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let named = text.trim_end().split_once(' ').filter(|(workspace, _)| *workspace == name_of(bound));
    Ok(named.and_then(|(_, session)| session.parse().ok()))
}

fn name_of(workspace: WorkspaceId) -> String {
    workspace.as_uuid().to_string()
}

/// Records the session that a device uses. Nothing is synced: it is advice.
pub(crate) fn set_last_session(
    tenant: &Tenant,
    device: &DeviceId,
    session: SessionId,
) -> Result<Attempt<()>> {
    if last_session(tenant, device)? == Some(session) {
        return Ok(Attempt::Done(()));
    }
    lock::under(&tenant.env, tenant.layout.root(), |_| {
        let Some(bound) = resolve(tenant, device)? else { return Ok(Attempt::Done(())) };
        let (env, path) = (&tenant.env, last_session_path(tenant, device));
        match env.io.create_dir(&tenant.layout.devices()) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("create the folder", &tenant.layout.devices(), error));
            }
            _ => {}
        }
        let file = env.io.open(&path, OpenMode::Create).map_err(|e| failed("open", &path, e))?;
        let text = format!("{} {session}\n", name_of(bound));
        write_full(&*file, text.as_bytes(), 0).map_err(|e| failed("write", &path, e))?;
        Ok(Attempt::Done(()))
    })
}

/// Removes what was recorded for a device whose binding has changed: what a crash leaves names the former workspace, and goes
/// when the device is bound again.
fn forget_last_session(tenant: &Tenant, device: &DeviceId) {
    let _ = tenant.env.io.remove_file(&last_session_path(tenant, device));
}
