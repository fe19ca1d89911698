//! Place for keys on the configurations of workspaces.

use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::store::{ContentHash, Damaged, Page, WorkspaceQuery};
use agent_core::text::check_text;
use agent_core::{Error, ErrorKind, Result, SessionId, Timestamp, WorkspaceId, WorkspaceStore};
use async_trait::async_trait;
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::place::{KeyEntry, KeyPlace, KeyQuery, KeyRow};

/// Text of a row that was dropped.
const DROPPED: &str = "dropped";

/// Number of attempts of a call whose row others change meanwhile.
const ATTEMPTS: usize = 16;

/// [`KeyPlace`] on any store of workspaces.
///
/// Give it the workspaces of a tenant that serves nothing else: each row is a workspace, whose configuration is the text, and
/// whose name is the row's. The id of the workspace is derived from the name. A workspace without a configuration is a row that
/// was not put completely, and is absent.
///
/// ```
/// use agent_core::{Backend, MemoryStore, TenantId};
/// use agent_vault::StorePlace;
///
/// let (backend, tenant): (_, TenantId) = (MemoryStore::new(), "keys-of-acme".parse()?);
/// let place = StorePlace::new(backend.tenant(&tenant).workspaces);
/// # let _ = place;
/// # Ok::<(), agent_core::Error>(())
/// ```
///
/// # Bytes of a dropped text
///
/// `drop_key` and `swap` replace the configuration, so that the store's reads never return the former text. Its bytes are gone as the
/// store does it: of files, the former file is removed; SQLite overwrites the row, and its write-ahead log may have a copy until
/// [`maintain`](agent_core::Backend::maintain); a bucket with versions keeps the former version.
///
/// # Cost
///
/// A list reads every row of the place, whatever its prefix.
#[derive(Clone, Debug)]
pub struct StorePlace(Arc<dyn WorkspaceStore>);

impl StorePlace {
    /// Creates the place on a store of workspaces. No I/O.
    pub fn new(workspaces: Arc<dyn WorkspaceStore>) -> Self {
        Self(workspaces)
    }

    /// Returns the text of a row as it is stored: of a dropped one the mark.
    async fn read(&self, name: &str) -> Result<Option<String>> {
        match self.0.load_with_config(id_of(name)).await {
            Ok((workspace, text)) if workspace.name == name => Ok(text),
            Ok((workspace, _)) => Err(Error::corrupt(format!(
                "key row {name} is stored as workspace {}, which has another name; remove that workspace if no key is missing",
                workspace.id
            ))),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(None),
                // Somebody deleted the workspace: its id is never used again.
                ErrorKind::Deleted => Ok(Some(DROPPED.to_owned())),
                _ => Err(about(name, error)),
            },
        }
    }

    /// Puts the first text of a row. `false` if it has one, or was deleted.
    async fn put_first(&self, name: &str, text: &str) -> Result<bool> {
        let id = id_of(name);
        let workspace = Workspace::new(id, name, main_of(name), Timestamp::UNIX_EPOCH);
        let created = self.0.put(workspace, Precondition::MustNotExist).await;
        if let Some(error) = created.err().filter(|error| !is_taken(error)) {
            return Err(about(name, error));
        }
        self.save(name, text, Precondition::MustNotExist).await
    }

    /// Replaces the text of a row. `false` if it is another one.
    async fn save(&self, name: &str, text: &str, expect: Precondition<ContentHash>) -> Result<bool> {
        match self.0.save_config(id_of(name), Some(text.to_owned()), expect).await {
            Ok(()) => Ok(true),
            // A deleted workspace needs no mark.
            Err(error) if *error.kind() == ErrorKind::Deleted && text == DROPPED => Ok(true),
            Err(error) if is_taken(&error) => Ok(false),
            Err(error) => Err(about(name, error)),
        }
    }
}

#[async_trait]
impl KeyPlace for StorePlace {
    async fn get(&self, name: &str) -> Result<Option<KeyRow>> {
        check_name(name)?;
        Ok(self.read(name).await?.map(row_of))
    }

    async fn put_if_absent(&self, name: &str, text: &str) -> Result<KeyRow> {
        check_name(name)?;
        check_row(name, text)?;
        for _ in 0..ATTEMPTS {
            let Some(found) = self.read(name).await? else {
                if self.put_first(name, text).await? {
                    return Ok(KeyRow::Present(text.to_owned()));
                }
                continue;
            };
            // Whoever put it may have ended before it was durable.
            if found == DROPPED || self.save(name, &found, matches(&found)).await? {
                return Ok(row_of(found));
            }
        }
        Err(contended(name))
    }

    async fn swap(&self, name: &str, old: &str, new: &str) -> Result<()> {
        check_name(name)?;
        check_row(name, old)?;
        check_row(name, new)?;
        for expected in [old, new] {
            let saved = self.0.save_config(id_of(name), Some(new.to_owned()), matches(expected)).await;
            match saved {
                Ok(()) => return Ok(()),
                Err(error) if is_taken(&error) || error.is_absent() => {}
                Err(error) => return Err(about(name, error)),
            }
        }
        Err(Error::new(
            ErrorKind::Conflict { head: None },
            format!("key row {name} is not what was read; read it again"),
        ))
    }

    async fn drop_key(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        for _ in 0..ATTEMPTS {
            let found = self.read(name).await?;
            let marked = match &found {
                None => self.put_first(name, DROPPED).await?,
                Some(found) => self.save(name, DROPPED, matches(found)).await?,
            };
            if marked {
                return Ok(found.is_some_and(|found| found != DROPPED));
            }
        }
        Err(contended(name))
    }

    async fn list(&self, query: KeyQuery) -> Result<Page<KeyEntry>> {
        let workspaces = WorkspaceQuery::new().with_limit(query.limit).with_cursor(query.cursor);
        let page = self.0.list(workspaces).await?;
        let (mut entries, mut damaged) = (Vec::new(), page.damaged);
        for workspace in page.items.into_iter().filter(|it| it.name.starts_with(&query.prefix)) {
            let name = workspace.name;
            match self.read(&name).await {
                Ok(Some(text)) => entries.push(KeyEntry::new(name, row_of(text))),
                Ok(None) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    damaged.push(Damaged::of(format!("key row {name}"), &error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Page::new(entries).with_damaged(damaged).with_next(page.next))
    }
}

fn row_of(text: String) -> KeyRow {
    if text == DROPPED { KeyRow::Dropped } else { KeyRow::Present(text) }
}

fn matches(text: &str) -> Precondition<ContentHash> {
    Precondition::Matches(ContentHash::of(text))
}

/// Returns whether a write came too late: the object exists, or has another text, or was deleted.
fn is_taken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict { .. } | ErrorKind::Deleted)
}

fn about(name: &str, error: Error) -> Error {
    error.about(format_args!("key row {name}"))
}

fn contended(name: &str) -> Error {
    Error::unavailable(format!("key row {name} was changed by others {ATTEMPTS} times; try again"))
}

fn check_name(name: &str) -> Result<()> {
    Ok(check_text("name of a key row", name, 256)?)
}

fn check_row(name: &str, text: &str) -> Result<()> {
    if text.is_empty() || text == DROPPED {
        return Err(Error::invalid(format!("key row {name} cannot have this text; give a wrapped key")));
    }
    Ok(())
}

/// Returns the id of the workspace of a row. The derivation never changes.
fn id_of(name: &str) -> WorkspaceId {
    WorkspaceId::from_uuid(uuid_of("agent-vault key row", name))
}

/// Returns the id of the workspace's main session, which is never created.
fn main_of(name: &str) -> SessionId {
    SessionId::from_uuid(uuid_of("agent-vault main session", name))
}

fn uuid_of(kind: &str, name: &str) -> Uuid {
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(name).finalize();
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    Builder::from_custom_bytes(bytes).into_uuid()
}
