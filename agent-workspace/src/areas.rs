//! Durable areas of a session: texts under paths, written explicitly.

use std::fmt;

use crate::documents::{Document, DocumentWrite, Documents};
use agent_core::model::{Actor, DocumentHead};
use agent_core::{Error, Result, Revision};

/// Name of one of the four durable areas of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Area {
    /// Information for later use by the agent.
    Memory,
    /// Artifacts that the agent made.
    Artifacts,
    /// Unfinished work of the agent.
    Buffers,
    /// Metadata about the other areas.
    Meta,
}

impl Area {
    /// All areas.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Artifacts, Self::Buffers, Self::Meta];

    /// Returns the area's name: `memory`, `artifacts`, `buffers` or `meta`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Artifacts => "artifacts",
            Self::Buffers => "buffers",
            Self::Meta => "meta",
        }
    }

    /// Returns the name of the document at `path`.
    fn document(self, path: &str) -> Result<String> {
        check_path(path)?;
        Ok(format!("{self}/{path}"))
    }
}

/// Checks that a path only descends.
pub(super) fn check_path(path: &str) -> Result<()> {
    let is_step = |step: &str| !matches!(step, "" | "." | "..") && !step.contains('\\');
    if path.split('/').all(is_step) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{path:?} is not a valid name in an area: write names separated by `/`, none of them empty, `.` or `..`"
    )))
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One [`Area`] of a session, whose content survives restarts.
///
/// Each text is a [document](Documents) named `<area>/<path>`, with all properties of documents: versions, conflict
/// detection, inclusion in exports and forks. It survives the process, a clearing and a suspension, and is deleted with
/// the session.
///
/// Nothing is stored here implicitly. State that a tool holds in memory, the
/// [handles](agent_core::model::ExternalHandle) on external resources, and files of a sandbox are lost or stale after a
/// restart, unless they are written here.
///
/// Cloning is cheap. Every method may be dropped at any point; a dropped write was applied wholly or not at all.
///
/// ```
/// use agent_core::{MemoryStore, Storage, WorkspaceId};
/// use agent_core::clock::Effects;
/// use agent_core::model::Actor;
/// use agent_core::session::NewSession;
/// use agent_runtime::areas::Area;
/// use agent_runtime::documents::Documents;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
/// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// # let session = storage.sessions.create(new).await?;
/// let documents = Documents::new(storage.sessions.clone(), session.id);
/// let buffers = documents.area(Area::Buffers);
/// buffers.put("draft/one.md", "# One", Actor::AGENT).await?;
/// assert_eq!(buffers.list().await?, ["draft/one.md"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct DurableArea {
    documents: Documents,
    area: Area,
}

impl Documents {
    /// Returns one area of the session. No I/O.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_runtime::areas::Area;
    ///
    /// let memory = chat.documents().area(Area::Memory);
    /// memory.put("customer", "Prefers email.", Actor::AGENT).await?;
    /// // The area and the documents show the same text under different names.
    /// assert_eq!(chat.documents().list().await?[0].name, "memory/customer");
    /// # Ok(()) }
    /// ```
    pub fn area(&self, area: Area) -> DurableArea {
        DurableArea { documents: self.clone(), area }
    }
}

impl DurableArea {
    /// Writes a text of at most 1 MiB unconditionally. Returns the number of the version; it is durable then.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let artifacts = chat.documents().area(Area::Artifacts);
    /// let first = artifacts.put("report/summary.md", "# Draft", Actor::AGENT).await?;
    /// let second = artifacts.put("report/summary.md", "# Summary", Actor::AGENT).await?;
    /// assert_eq!((first.get(), second.get()), (1, 2));
    /// assert!(artifacts.put("../summary.md", "# Summary", Actor::AGENT).await.is_err());
    ///
    /// let summary = artifacts.get("report/summary.md").await?.expect("the area holds the summary");
    /// assert_eq!((summary.text.as_str(), summary.by), ("# Summary", Actor::AGENT));
    /// artifacts.remove("report/summary.md", Actor::AGENT).await?;
    /// assert!(artifacts.list().await?.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a path that is empty, is too long (128 bytes with the area's name), or has a component that is
    /// empty, `.` or `..`; errors of [`Documents::put`].
    pub async fn put(&self, path: &str, text: impl Into<String>, actor: Actor) -> Result<Revision> {
        self.documents.put(DocumentWrite::new(self.area.document(path)?, text, actor)).await
    }

    /// Returns the newest version of the document at a path; `None` if the path holds no document.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the path; errors of [`Documents::get`].
    pub async fn get(&self, path: &str) -> Result<Option<Document>> {
        self.documents.get(&self.area.document(path)?).await
    }

    /// Returns the paths that hold a document, in byte order. Reads the session's record only.
    ///
    /// # Errors
    ///
    /// Errors of [`Documents::list`].
    pub async fn list(&self) -> Result<Vec<String>> {
        let path = |head: DocumentHead| {
            head.name.strip_prefix(self.area.as_str())?.strip_prefix('/').map(str::to_owned)
        };
        let mut paths: Vec<_> = self.documents.list().await?.into_iter().filter_map(path).collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// Removes the document at a path. Does nothing if there is none.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the path; errors of [`Documents::put`].
    pub async fn remove(&self, path: &str, actor: Actor) -> Result<()> {
        self.documents.put(DocumentWrite::remove(self.area.document(path)?, actor)).await.map(drop)
    }
}
