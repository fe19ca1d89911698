//! The durable areas of a session: texts under paths, and nothing but what was written there.

use std::fmt;

use crate::holdings::documents::{Document, DocumentWrite, Documents};
use agent_core::model::{Actor, DocumentHead};
use agent_core::{Error, Result, Revision};

/// One of the four places of a session in which what is written stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Area {
    /// What the agent wants to know later.
    Memory,
    /// What it made.
    Artifacts,
    /// What it works on, half done.
    Buffers,
    /// What is known about all this.
    Meta,
}

impl Area {
    /// Every area.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Artifacts, Self::Buffers, Self::Meta];

    /// Its name: `memory`, `artifacts`, `buffers` or `meta`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Artifacts => "artifacts",
            Self::Buffers => "buffers",
            Self::Meta => "meta",
        }
    }

    /// The name of the document that lies under `path`.
    fn document(self, path: &str) -> Result<String> {
        check_path(path)?;
        Ok(format!("{self}/{path}"))
    }
}

/// Checks that a path leads nowhere but down.
pub(super) fn check_path(path: &str) -> Result<()> {
    let is_step = |step: &str| !matches!(step, "" | "." | "..") && !step.contains('\\');
    if path.split('/').all(is_step) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{path:?} is no path in an area: give names with / between them, without . and .. and empty ones"
    )))
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An [`Area`] of a session. What is written here is a [document](Documents) under `<area>/<path>`, with all that documents
/// have: versions, one winner, a place in exports and forks. It outlives the process, a clearing and a suspension, and
/// goes with the session.
///
/// Nothing gets here by itself. What a tool holds in memory, the [handles](agent_core::model::ExternalHandle) on what lives outside, and
/// files of a sandbox are gone or stale after a restart, unless somebody writes here what is to stay.
///
/// Cheap to clone. Every method may be dropped at any point; a dropped write was applied wholly or not at all.
///
/// ```
/// use agent_core::{MemoryStore, SessionStoreExt, Storage, WorkspaceId};
/// use agent_core::clock::Effects;
/// use agent_core::model::Actor;
/// use agent_core::session::NewSession;
/// use agent_runtime::holdings::{Area, Documents};
///
/// # async fn example() -> agent_core::Result<()> {
/// # let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
/// # let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// # let session = storage.sessions.create(&effects, new).await?;
/// let documents = Documents::new(storage.sessions.clone(), effects, session.id);
/// let buffers = documents.area(Area::Buffers);
/// buffers.put("draft/one.md", "# One", Actor::AGENT).await?;
/// assert_eq!(buffers.list().await?, ["draft/one.md"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DurableArea {
    documents: Documents,
    area: Area,
}

impl Documents {
    /// An area of the session. No I/O.
    pub fn area(&self, area: Area) -> DurableArea {
        DurableArea { documents: self.clone(), area }
    }
}

impl DurableArea {
    /// Writes a text of at most 1 MiB, whatever was there. Durable when it returns the number of the version.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a path that is empty, that is longer than a document's name may be, or that has a step which is
    /// empty, `.` or `..`; those of [`Documents::put`].
    pub async fn put(&self, path: &str, text: impl Into<String>, actor: Actor) -> Result<Revision> {
        self.documents.put(DocumentWrite::new(self.area.document(path)?, text, actor)).await
    }

    /// What lies under a path.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the path; those of [`Documents::get`].
    pub async fn get(&self, path: &str) -> Result<Option<Document>> {
        self.documents.get(&self.area.document(path)?).await
    }

    /// The paths under which something lies, in order.
    ///
    /// # Errors
    ///
    /// Those of [`Documents::list`].
    pub async fn list(&self) -> Result<Vec<String>> {
        let path = |head: DocumentHead| {
            head.name.strip_prefix(self.area.as_str())?.strip_prefix('/').map(str::to_owned)
        };
        let mut paths: Vec<_> = self.documents.list().await?.into_iter().filter_map(path).collect();
        paths.sort_unstable();
        Ok(paths)
    }

    /// Removes what lies under a path; nothing happens where nothing does.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the path; those of [`Documents::put`].
    pub async fn remove(&self, path: &str, actor: Actor) -> Result<()> {
        self.documents.put(DocumentWrite::remove(self.area.document(path)?, actor)).await.map(drop)
    }
}
