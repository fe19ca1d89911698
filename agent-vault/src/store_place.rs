//! Place for keys on the configurations of workspaces.

use std::fmt;
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

/// Number of attempts of a call whose row others change meanwhile.
const ATTEMPTS: usize = 16;

/// [`KeyPlace`] on any store of workspaces.
///
/// Give it the workspaces of a tenant that serves nothing else: each row is a workspace, whose configuration is the text, and
/// whose name is the row's. The id of the workspace is derived from the name. A workspace without a configuration is a row that
/// was not put completely, and is absent; a deleted workspace is a row that was dropped.
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
/// Reads never return a text that was swapped or dropped. Its bytes are gone when the row is dropped and the store has done what
/// it put off ([`maintain`](agent_core::Backend::maintain)): SQLite has copies in its file until then. A bucket with versions
/// keeps the former versions of an object: [`Backend::check_removal`](agent_core::Backend::check_removal) finds that out, and
/// [`Keys::with_backend`](crate::Keys::with_backend) refuses a drop then.
///
/// # Cost
///
/// A list reads every row of the place, whatever its prefix.
#[derive(Clone)]
pub struct StorePlace(Arc<dyn WorkspaceStore>);

impl fmt::Debug for StorePlace {
    /// Shows nothing of the store, which has wrapped keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StorePlace").finish_non_exhaustive()
    }
}

impl StorePlace {
    /// Creates the place on a store of workspaces. No I/O.
    pub fn new(workspaces: Arc<dyn WorkspaceStore>) -> Self {
        Self(workspaces)
    }

    async fn read(&self, name: &str) -> Result<Found> {
        match self.0.load_with_config(id_of(name)).await {
            Ok((workspace, text)) if workspace.name == name => Ok(text.map_or(Found::Begun, Found::Present)),
            Ok((workspace, _)) => Err(Error::corrupt(format!(
                "key row {name} is stored as workspace {}, which has another name; restore that workspace from a backup",
                workspace.id
            ))),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(Found::Absent),
                ErrorKind::Deleted => Ok(Found::Dropped),
                _ => Err(about(name, error)),
            },
        }
    }

    /// Creates the workspace of a row, unless it exists or was deleted.
    async fn create(&self, name: &str) -> Result<()> {
        let workspace = Workspace::new(id_of(name), name, main_of(name), Timestamp::UNIX_EPOCH);
        match self.0.put(workspace, Precondition::MustNotExist).await {
            Err(error) if !is_taken(&error) => Err(about(name, error)),
            _ => Ok(()),
        }
    }

    /// Saves the text of a row. `false` if it has another text than expected, or was dropped.
    async fn save(&self, name: &str, text: &str, expect: Precondition<ContentHash>) -> Result<bool> {
        match self.0.save_config(id_of(name), Some(text.to_owned()), expect).await {
            Ok(()) => Ok(true),
            Err(error) if is_taken(&error) => Ok(false),
            Err(error) => Err(about(name, error)),
        }
    }
}

#[async_trait]
impl KeyPlace for StorePlace {
    async fn get(&self, name: &str) -> Result<Option<KeyRow>> {
        check_name(name)?;
        Ok(match self.read(name).await? {
            Found::Absent | Found::Begun => None,
            Found::Present(text) => Some(KeyRow::Present(text)),
            Found::Dropped => Some(KeyRow::Dropped),
        })
    }

    async fn put_if_absent(&self, name: &str, text: &str) -> Result<KeyRow> {
        check_name(name)?;
        check_row(name, text)?;
        for _ in 0..ATTEMPTS {
            let (text, expect) = match self.read(name).await? {
                Found::Dropped => return Ok(KeyRow::Dropped),
                // Whoever put it may have ended before it was durable.
                Found::Present(found) => {
                    let expect = matches(&found);
                    (found, expect)
                }
                Found::Absent | Found::Begun => {
                    self.create(name).await?;
                    (text.to_owned(), Precondition::MustNotExist)
                }
            };
            if self.save(name, &text, expect).await? {
                return Ok(KeyRow::Present(text));
            }
        }
        Err(Error::unavailable(format!("key row {name} was changed by others {ATTEMPTS} times; try again")))
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
        let found = match self.read(name).await {
            // A damaged row is dropped, too, unless another one is in its place.
            Err(error) if *error.kind() == ErrorKind::Corrupt && self.0.load(id_of(name)).await.is_err() => {
                Found::Begun
            }
            found => found?,
        };
        if found == Found::Absent {
            self.create(name).await?;
        }
        self.0.delete(id_of(name)).await.map_err(|error| about(name, error))?;
        Ok(matches!(found, Found::Present(_)))
    }

    async fn list(&self, query: KeyQuery) -> Result<Page<KeyEntry>> {
        let workspaces = WorkspaceQuery::new().with_limit(query.limit).with_cursor(query.cursor);
        let page = self.0.list(workspaces).await?;
        let (mut entries, mut damaged) = (Vec::new(), page.damaged);
        for workspace in page.items.into_iter().filter(|it| it.name.starts_with(&query.prefix)) {
            let name = workspace.name;
            match self.read(&name).await {
                Ok(Found::Present(text)) => entries.push(KeyEntry::new(name, text)),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    damaged.push(Damaged::of(format!("key row {name}"), &error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Page::new(entries).with_damaged(damaged).with_next(page.next))
    }
}

/// What is stored of a row.
#[derive(PartialEq, Eq)]
enum Found {
    Absent,
    /// The workspace, without a text: whoever put it ended.
    Begun,
    Present(String),
    Dropped,
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

fn check_name(name: &str) -> Result<()> {
    Ok(check_text("name of a key row", name, 256)?)
}

fn check_row(name: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(format!("key row {name} cannot have an empty text; give a wrapped key")));
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
