//! Text of `workspace.toml`. People edit it, so comments, order and unknown keys are preserved.

use std::path::Path;

use agent_core::json::{RawFields, RawJson};
use agent_core::model::{Actor, Workspace, WorkspaceStatus};
use agent_core::{Error, Result, Revision, SessionId, TenantId, Timestamp, WorkspaceId};
use toml_edit::{DocumentMut, Item, Value, value};

use crate::error::{corrupt, newer};
use crate::medium::toml;

/// Newest format that this version reads, and the one that it writes. A file without a format number was written by
/// the Aptove agent.
pub(crate) const FORMAT: i64 = 1;
/// Last line of a file that this crate wrote. If it is missing, the file was cut short.
const LAST_LINE: &str = "# end of workspace";

/// Contents of a `workspace.toml`: the text with everything that people wrote into it, and the record.
#[derive(Debug)]
pub(crate) struct Document {
    text: DocumentMut,
    pub(crate) workspace: Workspace,
}

impl Document {
    pub(crate) fn parse(path: &Path, tenant: &TenantId, id: WorkspaceId, text: &str) -> Result<Self> {
        let whole = toml::is_whole(text, LAST_LINE);
        let text: DocumentMut = toml::parse(path, text)?;
        if text.contains_key("format") && !whole {
            return Err(toml::cut_short(path, LAST_LINE));
        }
        toml::check_owner(path, &text, "owner", "workspace", &owner(tenant, id))?;
        let workspace = Reader { path, text: &text }.workspace(id)?;
        Ok(Self { text, workspace })
    }

    /// Applies a later time of last access, which is stored in a separate file.
    pub(crate) fn accessed(&mut self, at: Option<Timestamp>) {
        let last = &mut self.workspace.last_accessed;
        *last = at.map_or(*last, |at| at.max(*last));
    }

    /// Returns the text that holds `workspace`, based on the existing text.
    pub(crate) fn render(now: Option<&Self>, tenant: &TenantId, workspace: &Workspace) -> Result<String> {
        let mut text = now.map(|now| now.text.clone()).unwrap_or_default();
        let mut set = |key: &str, new: Option<Value>| match new {
            Some(new) => {
                let same = text.get(key).and_then(Item::as_value).is_some_and(|old| is_same(old, &new));
                if !same {
                    put(&mut text, key, new);
                }
            }
            None => drop(text.remove(key)),
        };
        set("format", Some(FORMAT.into()));
        set("owner", Some(owner(tenant, workspace.id).into()));
        // The seed's default workspace may have a UUID of its own there.
        if now.is_none() || workspace.id != WorkspaceId::DEFAULT {
            set("uuid", Some(workspace.id.to_string().into()));
        }
        set("name", Some(workspace.name.as_str().into()));
        set("created_at", Some(workspace.created_at.to_string().into()));
        set("last_accessed", Some(workspace.last_accessed.to_string().into()));
        set("provider", workspace.provider.as_deref().map(Into::into));
        let revision = i64::try_from(workspace.revision.get()).unwrap_or(i64::MAX);
        set("revision", Some(revision.into()));
        set("main_session", Some(workspace.main_session.to_string().into()));
        let deleting = workspace.status == WorkspaceStatus::Deleting;
        set("status", deleting.then(|| "deleting".into()));
        set("description", workspace.description.as_deref().map(Into::into));
        set("creator", workspace.creator.as_ref().map(|creator| creator.to_string().into()));
        set("settings", json(&workspace.settings)?);
        set("extra", json(&workspace.extra)?);
        Ok(toml::finish(&text, LAST_LINE))
    }
}

/// Returns the name of the file's owner.
fn owner(tenant: &TenantId, id: WorkspaceId) -> String {
    format!("{tenant}/{id}")
}

/// Sets a value and leaves the text around it unchanged.
fn put(text: &mut DocumentMut, key: &str, mut new: Value) {
    match text.get_mut(key) {
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        Some(item) => *item = value(new),
        None => drop(text.insert(key, value(new))),
    }
}

/// Returns whether two values mean the same; times may be written in several ways.
fn is_same(old: &Value, new: &Value) -> bool {
    match (plain(old), plain(new)) {
        (Some(old), Some(new)) if old == new => true,
        (Some(old), Some(new)) => {
            matches!((old.parse::<Timestamp>(), new.parse::<Timestamp>()), (Ok(old), Ok(new)) if old == new)
        }
        _ => old.as_integer().is_some() && old.as_integer() == new.as_integer(),
    }
}

/// Returns a string value, or a time as text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Datetime(time) => Some(time.value().to_string()),
        _ => None,
    }
}

/// Returns the host's fields as JSON text, because TOML would change numbers.
fn json(fields: &RawFields) -> Result<Option<Value>> {
    if fields.is_empty() {
        return Ok(None);
    }
    Ok(Some(RawJson::of(fields)?.get().into()))
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a DocumentMut,
}

impl Reader<'_> {
    fn workspace(&self, id: WorkspaceId) -> Result<Workspace> {
        let format = self.integer("format")?.unwrap_or(FORMAT);
        if format > FORMAT {
            return Err(newer(self.path, format));
        }
        if format < 1 {
            return Err(corrupt(self.path, &format!("has format {format}, which is none")));
        }
        let uuid = self.need::<String>("uuid")?;
        let fits = uuid.parse::<WorkspaceId>().is_ok_and(|uuid| uuid == id);
        if !fits && id != WorkspaceId::DEFAULT {
            return Err(corrupt(self.path, "has a uuid that is not the name of its folder"));
        }
        let created_at = self.need::<Timestamp>("created_at")?;
        let main_session = self.take("main_session")?.unwrap_or_else(|| main_session_of(id));
        let mut workspace = Workspace::new(id, self.need::<String>("name")?, main_session, created_at);
        workspace.last_accessed = self.take("last_accessed")?.unwrap_or(created_at);
        let revision = self.integer("revision")?.unwrap_or(0);
        workspace.revision = Revision::new(u64::try_from(revision).map_err(|_| self.wrong("revision"))?);
        workspace.status = match self.take::<String>("status")?.as_deref() {
            None | Some("active") => WorkspaceStatus::Active,
            Some("deleting") => WorkspaceStatus::Deleting,
            Some(_) => {
                return Err(Error::unsupported(format!(
                    "{} has a status that this version does not know; update the library",
                    self.path.display()
                )));
            }
        };
        workspace.provider = self.take("provider")?;
        workspace.description = self.take("description")?;
        workspace.creator = self.take::<Actor>("creator")?;
        workspace.settings = self.fields("settings")?;
        workspace.extra = self.fields("extra")?;
        Ok(workspace)
    }

    fn wrong(&self, key: &str) -> Error {
        corrupt(self.path, &format!("has a {key} that cannot be read"))
    }

    fn integer(&self, key: &str) -> Result<Option<i64>> {
        let Some(item) = self.text.get(key) else { return Ok(None) };
        item.as_integer().map(Some).ok_or_else(|| self.wrong(key))
    }

    fn take<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>> {
        let Some(item) = self.text.get(key) else { return Ok(None) };
        let text = item.as_value().and_then(plain).ok_or_else(|| self.wrong(key))?;
        text.parse().map(Some).map_err(|_| self.wrong(key))
    }

    fn need<T: std::str::FromStr>(&self, key: &str) -> Result<T> {
        self.take(key)?.ok_or_else(|| corrupt(self.path, &format!("has no {key}")))
    }

    fn fields(&self, key: &str) -> Result<RawFields> {
        let Some(text) = self.take::<String>(key)? else { return Ok(RawFields::new()) };
        serde_json::from_str(&text).map_err(|source| self.wrong(key).with_source(source))
    }
}

/// Returns the main session of a workspace whose record names none, because the Aptove agent wrote it. The id is
/// always the same: the workspace id's bits, mixed with a constant, as a UUID of version 8 (RFC 9562, "custom").
pub(crate) fn main_session_of(id: WorkspaceId) -> SessionId {
    const MIX: u128 = 0x6d61_696e_2073_6573_7369_6f6e_206f_6620;
    let mut bytes = (id.as_uuid().as_u128() ^ MIX).to_be_bytes();
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    SessionId::from_uuid(uuid::Uuid::from_bytes(bytes))
}
