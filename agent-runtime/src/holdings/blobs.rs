//! The areas of a workspace: named blobs that all of its sessions share, and whatever runs beside them.

use crate::holdings::areas::check_path;
use crate::holdings::documents::{Document, DocumentWrite, Documents};
use agent_core::clock::Effects;
use agent_core::model::{Actor, WorkspaceStatus};
use agent_core::store::{Shelf, WorkspaceArea};
use agent_core::text::quoted;
use agent_core::{Error, ErrorKind, Result, Revision, Storage, WorkspaceId};

/// How the bytes of a blob are written as a document: as the text that they are, or as hexadecimal digits.
const TEXT: u32 = 0;
const HEX: u32 = 1;

/// A [`WorkspaceArea`]: bytes under names. They lie on a [shelf](Shelf::area) of the workspace, as documents, and so have on
/// every store what documents have: durable when they are acknowledged, versions, a place in every copy. They go with the
/// workspace.
///
/// An area holds up to 64 blobs, each a text of at most 1 MiB, or other bytes of at most half of that. The folders `mcp`,
/// `skills` and `memory` that the file store makes beside a workspace's log belong to the host, and have nothing to do
/// with these.
///
/// Cheap to clone. Every method may be dropped at any point; a dropped write was applied wholly or not at all.
///
/// ```
/// use agent_core::{MemoryStore, Storage};
/// use agent_core::clock::Effects;
/// use agent_core::model::Actor;
/// use agent_core::store::WorkspaceArea;
/// use agent_runtime::holdings::WorkspaceBlobs;
/// use agent_runtime::{NewWorkspace, WorkspaceManager};
///
/// # async fn example() -> agent_core::Result<()> {
/// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
/// let manager = WorkspaceManager::new(storage.clone(), effects.clone());
/// let workspace = manager.create(NewWorkspace::new("home")).await?;
/// let skills = WorkspaceBlobs::new(&storage, &effects, workspace.id, WorkspaceArea::Skills);
/// skills.put("review/SKILL.md", b"# How to review", Actor::USER).await?;
/// assert_eq!(skills.list().await?, ["review/SKILL.md"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WorkspaceBlobs {
    storage: Storage,
    effects: Effects,
    shelf: Shelf,
}

impl WorkspaceBlobs {
    /// An area of a workspace. No I/O.
    pub fn new(storage: &Storage, effects: &Effects, workspace: WorkspaceId, area: WorkspaceArea) -> Self {
        Self { storage: storage.clone(), effects: effects.clone(), shelf: Shelf::area(workspace, area) }
    }

    /// Writes bytes under a name, whatever was there. Durable when it returns the number of the version.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is empty, longer than 128 bytes, or that has a step which is empty, `.` or `..`;
    /// `LimitExceeded`; `NotFound` and `Deleted` for the workspace; those of [`Documents::put`].
    pub async fn put(&self, name: &str, bytes: &[u8], actor: Actor) -> Result<Revision> {
        check_path(name)?;
        let workspace = self.storage.workspaces.load(self.shelf.workspace()).await?;
        if workspace.status == WorkspaceStatus::Deleting {
            return Err(Error::new(
                ErrorKind::Deleted,
                format!("workspace {} is being deleted", workspace.id),
            ));
        }
        let (text, format) = match std::str::from_utf8(bytes) {
            Ok(text) => (text.to_owned(), TEXT),
            Err(_) => (hex(bytes), HEX),
        };
        let session = self.shelf.open(&self.storage.sessions, &self.effects).await?;
        let documents = Documents::new(self.storage.sessions.clone(), self.effects.clone(), session.id);
        documents.put(DocumentWrite::new(name, text, actor).with_format(format)).await
    }

    /// What lies under a name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the name; `Corrupt`, and `Unsupported` where a newer version of this library wrote it; `Deleted`
    /// for the workspace; those of [`Documents::get`].
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        check_path(name)?;
        let Some(documents) = self.documents().await? else { return Ok(None) };
        documents.get(name).await?.map(bytes).transpose()
    }

    /// The names under which something lies, in order.
    ///
    /// # Errors
    ///
    /// `Deleted` for the workspace; those of [`Documents::list`].
    pub async fn list(&self) -> Result<Vec<String>> {
        let Some(documents) = self.documents().await? else { return Ok(Vec::new()) };
        let mut names: Vec<_> = documents.list().await?.into_iter().map(|head| head.name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Deletes what lies under a name, and returns whether something did.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the name; `Deleted` for the workspace; those of [`Documents::put`].
    pub async fn delete(&self, name: &str, actor: Actor) -> Result<bool> {
        check_path(name)?;
        let Some(documents) = self.documents().await? else { return Ok(false) };
        Ok(documents.put(DocumentWrite::remove(name, actor)).await? > Revision::ZERO)
    }

    async fn documents(&self) -> Result<Option<Documents>> {
        let shelf = self.shelf.find(&*self.storage.sessions).await?;
        Ok(shelf.map(|shelf| Documents::new(self.storage.sessions.clone(), self.effects.clone(), shelf.id)))
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(document: Document) -> Result<Vec<u8>> {
    match document.format {
        TEXT => Ok(document.text.into_bytes()),
        HEX => {
            let digits = |pair: &[u8]| {
                let is_byte = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
                let text = std::str::from_utf8(pair).ok().filter(|_| is_byte)?;
                u8::from_str_radix(text, 16).ok()
            };
            let bytes: Option<Vec<u8>> = document.text.as_bytes().chunks(2).map(digits).collect();
            bytes.ok_or_else(|| {
                Error::corrupt(format!("blob {} is not written as bytes", quoted(&document.name)))
            })
        }
        newer => Err(Error::new(
            ErrorKind::Unsupported,
            format!("blob {} has format {newer}; update this program", quoted(&document.name)),
        )),
    }
}
