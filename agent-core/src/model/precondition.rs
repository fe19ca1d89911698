//! Precondition of a write.

use std::fmt;

use crate::base::Error;

/// Precondition of a write.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::clock::Effects;
/// use agent_core::commit::Precondition;
/// use agent_core::model::Workspace;
/// use agent_core::{ErrorKind, MemoryStore, WorkspaceId, WorkspaceStore};
///
/// let (store, effects) = (MemoryStore::new(), Effects::default());
/// let workspace = Workspace::new(WorkspaceId::DEFAULT, "Travel", effects.new_session_id(), effects.now());
/// let first = store.put(workspace.clone(), Precondition::MustNotExist).await?;
/// let error = store.put(workspace.clone(), Precondition::MustNotExist).await.unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Conflict { .. }));
/// store.put(workspace, Precondition::Matches(first.revision)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "Expect")]
pub enum Precondition<T> {
    /// The object does not exist yet.
    MustNotExist,
    /// The object exists, and has this version.
    Matches(T),
    /// The object exists, in any version.
    MustExist,
    /// No precondition. Bindings and documents accept it; sessions, workspaces and configurations refuse it as
    /// `InvalidInput`.
    None,
}

impl<T> Precondition<T> {
    /// Returns the error for an object that refuses [`Precondition::None`].
    pub(crate) fn refused(&self, object: &dyn fmt::Display) -> Error {
        Error::invalid(format!(
            "{object}: a write needs a precondition; give `MustExist` to replace any version"
        ))
    }
}
