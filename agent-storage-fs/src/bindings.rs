//! Device bindings: the synchronous core of `bindings.toml`, which people also edit. The file is the only source: it
//! is read for every answer, and changed only under the lock of its folder.

use std::path::Path;
use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::store::{Binding, BindingQuery, Damaged, Page, decide_bind};
use agent_core::{DeviceId, Error, ErrorKind, Result, WorkspaceId};
use toml_edit::{DocumentMut, Item, Table, TableLike, value};

use crate::bindings_toml::Bindings;
use crate::env::{Env, held};
use crate::error::{corrupt, newer};
use crate::lock::{self, Attempt, Locked};
use crate::tenant::Tenant;
use crate::toml;

/// Newest format that this version reads, and the one that it writes. A file without a format number was written by
/// the Aptove agent.
const FORMAT: i64 = 1;
/// Last line of a file that this crate wrote. If it is missing, the file was cut short.
const LAST_LINE: &str = "# end of bindings";

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

fn read(tenant: &Tenant) -> Result<Arc<Bindings>> {
    let path = tenant.layout.bindings();
    let Some(bytes) = tenant.env.read_file(&path)? else {
        return tenant.env.check_seen(&[&tenant.env.root]).map(|()| Arc::default());
    };
    if let Some((known, bindings)) = &held(&tenant.bindings).parsed
        && *known == bytes
    {
        return Ok(bindings.clone());
    }
    let bindings = Arc::new(Bindings::of(&parse(tenant, &path, &bytes)?));
    held(&tenant.bindings).parsed = Some((bytes, bindings.clone()));
    Ok(bindings)
}

/// Returns the number of readable bindings.
pub(crate) fn count(tenant: &Tenant) -> u64 {
    read(tenant).map_or(0, |bindings| bindings.bound.len() as u64)
}

pub(crate) fn resolve(tenant: &Tenant, device: &DeviceId) -> Result<Option<WorkspaceId>> {
    read(tenant)?.get(device, &tenant.layout.bindings())
}

pub(crate) fn list(tenant: &Tenant, query: &BindingQuery) -> Result<Page<Binding>> {
    let path = tenant.layout.bindings();
    let bindings = read(tenant)?;
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
}

/// Changes the file under the lock of its folder. `change` returns its result, and whether there is anything to write.
fn mutate<T>(
    tenant: &Tenant,
    change: impl FnOnce(&Bindings, &mut dyn TableLike, &Path) -> Result<(T, bool)>,
) -> Result<Attempt<T>> {
    tenant.env.check_poison(&tenant.layout.bindings())?;
    tenant.prepare()?;
    lock::under(&tenant.env, tenant.layout.root(), |folder| {
        mutate_locked(tenant, folder, change).map(Attempt::Done)
    })
}

fn mutate_locked<T>(
    tenant: &Tenant,
    folder: Locked<'_>,
    change: impl FnOnce(&Bindings, &mut dyn TableLike, &Path) -> Result<(T, bool)>,
) -> Result<T> {
    let env = &tenant.env;
    let path = tenant.layout.bindings();
    env.sweep(tenant.layout.root());
    let bytes = env.read_file(&path)?;
    let mut document = match &bytes {
        Some(bytes) => parse(tenant, &path, bytes).map_err(|error| keep(env, folder, &path, bytes, error))?,
        None => DocumentMut::new(),
    };
    let bindings = Bindings::of(&document);
    if document.get("bindings").is_none() {
        document.insert("bindings", Item::Table(Table::new()));
    }
    let Some(table) = document.get_mut("bindings").and_then(Item::as_table_like_mut) else {
        return Err(corrupt(&path, "has `bindings` that are no table"));
    };
    let (answer, changed) = change(&bindings, table, &path)?;
    if changed {
        let text = finish(tenant, document).into_bytes();
        env.replace(folder, &path, &text)?;
        held(&tenant.bindings).durable = Some(text);
    } else if bytes.is_some() && held(&tenant.bindings).durable != bytes {
        // Another process may have written the file and ended before its name was durable.
        env.sync_name(&path)?;
        held(&tenant.bindings).durable = bytes;
    }
    Ok(answer)
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

/// Keeps a copy of an unreadable file. The same bytes are kept only once.
fn keep(env: &Env, folder: Locked<'_>, path: &Path, bytes: &[u8], error: Error) -> Error {
    if *error.kind() != ErrorKind::Corrupt {
        return error;
    }
    let copy = path.with_file_name(format!("bindings.toml.damaged-{:08x}", crc32c::crc32c(bytes)));
    match env.has_file(&copy) {
        Ok(true) => return error,
        Ok(false) => {}
        Err(_) => return error,
    }
    match env.create(folder, &copy, bytes) {
        Ok(_) => {
            tracing::warn!(path = %path.display(), kept = %copy.display(), "the bindings cannot be read; a copy was kept");
        }
        Err(second) => {
            tracing::warn!(path = %path.display(), error = %second, "no copy of the damaged bindings could be kept");
        }
    }
    error
}

pub(crate) fn bind(
    tenant: &Tenant,
    device: &DeviceId,
    to: WorkspaceId,
    expect: Precondition<WorkspaceId>,
) -> Result<Attempt<WorkspaceId>> {
    mutate(tenant, |bindings, table, path| {
        let now = bindings.get(device, path)?;
        let bound = decide_bind(device, now, to, expect)?;
        if now != Some(bound) {
            insert(table, device.as_str(), bound);
        }
        Ok((bound, now != Some(bound)))
    })
}

fn insert(table: &mut dyn TableLike, key: &str, workspace: WorkspaceId) {
    let mut new: toml_edit::Value = workspace.to_string().into();
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        _ => drop(table.insert(key, value(new))),
    }
}

pub(crate) fn unbind(tenant: &Tenant, device: &DeviceId) -> Result<Attempt<bool>> {
    let path = tenant.layout.bindings();
    if let Ok(None) = read(tenant).and_then(|bindings| bindings.get(device, &path)) {
        return Ok(Attempt::Done(false));
    }
    mutate(tenant, |bindings, table, path| {
        let bound = bindings.get(device, path)?.is_some();
        if bound {
            table.remove(device.as_str());
        }
        Ok((bound, bound))
    })
}

pub(crate) fn unbind_workspace(tenant: &Tenant, id: WorkspaceId) -> Result<Attempt<u64>> {
    if read(tenant).is_ok_and(|bindings| !bindings.bound.values().any(|bound| *bound == id)) {
        return Ok(Attempt::Done(0));
    }
    mutate(tenant, |bindings, table, _| {
        let devices: Vec<_> =
            bindings.bound.iter().filter(|(_, bound)| **bound == id).map(|(device, _)| device).collect();
        for device in &devices {
            table.remove(device.as_str());
        }
        Ok((devices.len() as u64, !devices.is_empty()))
    })
}
