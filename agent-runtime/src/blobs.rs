//! Areas of a workspace: named blobs that its sessions share with each other and with other programs.

use crate::areas::check_path;
use crate::documents::{Document, DocumentWrite, Documents};
use agent_core::clock::Effects;
use agent_core::model::{Actor, WorkspaceStatus};
use agent_core::store::{HiddenSession, WorkspaceArea};
use agent_core::text::quoted;
use agent_core::{Error, ErrorKind, Result, Revision, Storage, WorkspaceId};

/// Encoding of a blob's bytes as a document: as text, or as hexadecimal digits.
const TEXT: u32 = 0;
const HEX: u32 = 1;

/// Named blobs in one [`WorkspaceArea`] of a workspace.
///
/// Blobs are stored as documents in a [hidden session](HiddenSession::area) of the workspace. On every store they have
/// the properties of documents: durable when acknowledged, versioned, included in every copy. Deleting the workspace
/// deletes its blobs.
///
/// An area holds up to 64 blobs, each a text of at most 1 MiB, or other bytes of at most half of that. The folders
/// `mcp`, `skills` and `memory` that the file store creates beside a workspace's log belong to the host, and are
/// unrelated.
///
/// Cloning is cheap. Every method may be dropped at any point; a dropped write was applied wholly or not at all.
///
/// ```
/// use agent_core::{MemoryStore, Storage};
/// use agent_core::clock::Effects;
/// use agent_core::model::Actor;
/// use agent_core::store::WorkspaceArea;
/// use agent_runtime::blobs::WorkspaceBlobs;
/// use agent_runtime::{NewWorkspace, WorkspaceManager};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
/// let manager = WorkspaceManager::new(storage.clone(), effects.clone());
/// let workspace = manager.create(NewWorkspace::new("home")).await?;
/// let skills = WorkspaceBlobs::new(&storage, &effects, workspace.id, WorkspaceArea::Skills);
/// skills.put("review/SKILL.md", b"# How to review", Actor::USER).await?;
/// assert_eq!(skills.list().await?, ["review/SKILL.md"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct WorkspaceBlobs {
    storage: Storage,
    effects: Effects,
    hidden: HiddenSession,
}

impl WorkspaceBlobs {
    /// Creates a handle to an area of a workspace. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// # use agent_core::store::WorkspaceArea;
    /// # use agent_core::{MemoryStore, Storage};
    /// # use agent_runtime::blobs::WorkspaceBlobs;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    /// # let workspace = WorkspaceManager::new(storage.clone(), effects.clone()).create(NewWorkspace::new("home")).await?;
    /// let memory = WorkspaceBlobs::new(&storage, &effects, workspace.id, WorkspaceArea::Memory);
    /// assert!(memory.list().await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn new(storage: &Storage, effects: &Effects, workspace: WorkspaceId, area: WorkspaceArea) -> Self {
        Self {
            storage: storage.clone(),
            effects: effects.clone(),
            hidden: HiddenSession::area(workspace, area),
        }
    }

    /// Writes bytes under a name unconditionally. Returns the number of the new version, which is durable.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// # use agent_core::model::Actor;
    /// # use agent_core::store::WorkspaceArea;
    /// # use agent_core::{MemoryStore, Storage};
    /// # use agent_runtime::blobs::WorkspaceBlobs;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    /// # let workspace = WorkspaceManager::new(storage.clone(), effects.clone()).create(NewWorkspace::new("home")).await?;
    /// let skills = WorkspaceBlobs::new(&storage, &effects, workspace.id, WorkspaceArea::Skills);
    /// let first = skills.put("logo.png", &[0x89, b'P', b'N', b'G'], Actor::USER).await?;
    /// let second = skills.put("logo.png", &[0xff, 0xd8], Actor::USER).await?;
    /// assert_eq!((first.get(), second.get()), (1, 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is empty, is longer than 128 bytes, or has a component that is empty, `.` or `..`;
    /// `LimitExceeded` for too many bytes or too many blobs; `NotFound`, and `Deleted` also while it is being deleted,
    /// for the workspace; errors of [`Documents::put`].
    pub async fn put(&self, name: &str, bytes: &[u8], actor: Actor) -> Result<Revision> {
        check_path(name)?;
        let workspace = self.storage.workspaces.load(self.hidden.workspace()).await?;
        if workspace.status == WorkspaceStatus::Deleting {
            return Err(Error::new(
                ErrorKind::Deleted,
                format!("workspace {} is being deleted; store the blob in another workspace", workspace.id),
            ));
        }
        let (text, format) = match std::str::from_utf8(bytes) {
            Ok(text) => (text.to_owned(), TEXT),
            Err(_) => (hex(bytes), HEX),
        };
        let session = self.hidden.open(&self.storage.sessions, &self.effects).await?;
        let documents = Documents::new(self.storage.sessions.clone(), self.effects.clone(), session.id);
        documents.put(DocumentWrite::new(name, text, actor).with_format(format)).await
    }

    /// Returns the bytes under a name; `None` if there is no such blob.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// # use agent_core::model::Actor;
    /// # use agent_core::store::WorkspaceArea;
    /// # use agent_core::{MemoryStore, Storage};
    /// # use agent_runtime::blobs::WorkspaceBlobs;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    /// # let workspace = WorkspaceManager::new(storage.clone(), effects.clone()).create(NewWorkspace::new("home")).await?;
    /// let skills = WorkspaceBlobs::new(&storage, &effects, workspace.id, WorkspaceArea::Skills);
    /// skills.put("review/SKILL.md", b"# How to review", Actor::USER).await?;
    /// assert_eq!(skills.get("review/SKILL.md").await?.as_deref(), Some(&b"# How to review"[..]));
    /// assert_eq!(skills.get("deploy/SKILL.md").await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the name; `Corrupt`, and `Unsupported` if a newer version of this library wrote the blob;
    /// `Deleted` for the workspace; errors of [`Documents::get`].
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        check_path(name)?;
        let Some(documents) = self.documents().await? else { return Ok(None) };
        documents.get(name).await?.map(bytes).transpose()
    }

    /// Returns the names of the blobs, in byte order.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// # use agent_core::model::Actor;
    /// # use agent_core::store::WorkspaceArea;
    /// # use agent_core::{MemoryStore, Storage};
    /// # use agent_runtime::blobs::WorkspaceBlobs;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    /// # let workspace = WorkspaceManager::new(storage.clone(), effects.clone()).create(NewWorkspace::new("home")).await?;
    /// let skills = WorkspaceBlobs::new(&storage, &effects, workspace.id, WorkspaceArea::Skills);
    /// for name in ["review/SKILL.md", "deploy/SKILL.md"] {
    ///     skills.put(name, b"# How to do it", Actor::USER).await?;
    /// }
    /// assert_eq!(skills.list().await?, ["deploy/SKILL.md", "review/SKILL.md"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Deleted` for the workspace; errors of [`Documents::list`].
    pub async fn list(&self) -> Result<Vec<String>> {
        let Some(documents) = self.documents().await? else { return Ok(Vec::new()) };
        let mut names: Vec<_> = documents.list().await?.into_iter().map(|head| head.name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Deletes the blob with this name. Returns whether it existed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::clock::Effects;
    /// # use agent_core::model::Actor;
    /// # use agent_core::store::WorkspaceArea;
    /// # use agent_core::{MemoryStore, Storage};
    /// # use agent_runtime::blobs::WorkspaceBlobs;
    /// # use agent_runtime::{NewWorkspace, WorkspaceManager};
    /// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    /// # let workspace = WorkspaceManager::new(storage.clone(), effects.clone()).create(NewWorkspace::new("home")).await?;
    /// let skills = WorkspaceBlobs::new(&storage, &effects, workspace.id, WorkspaceArea::Skills);
    /// skills.put("review/SKILL.md", b"# How to review", Actor::USER).await?;
    /// assert!(skills.delete("review/SKILL.md", Actor::USER).await?);
    /// assert!(!skills.delete("review/SKILL.md", Actor::USER).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the name; `Deleted` for the workspace; errors of [`Documents::put`].
    pub async fn delete(&self, name: &str, actor: Actor) -> Result<bool> {
        check_path(name)?;
        let Some(documents) = self.documents().await? else { return Ok(false) };
        Ok(documents.put(DocumentWrite::remove(name, actor)).await? > Revision::ZERO)
    }

    async fn documents(&self) -> Result<Option<Documents>> {
        let hidden = self.hidden.find(&*self.storage.sessions).await?;
        Ok(hidden
            .map(|hidden| Documents::new(self.storage.sessions.clone(), self.effects.clone(), hidden.id)))
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
                Error::corrupt(format!(
                    "blob {} is damaged: its text is not hexadecimal digits; put it again",
                    quoted(&document.name)
                ))
            })
        }
        newer => Err(Error::new(
            ErrorKind::Unsupported,
            format!("blob {} has format {newer}; update this program", quoted(&document.name)),
        )),
    }
}
