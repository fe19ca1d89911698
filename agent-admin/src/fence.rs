//! A store that was put back byte for byte: no run from before writes to it.

use futures::stream::{self, StreamExt, TryStreamExt};

use agent_core::commit::Trigger;
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{Damaged, PAGE_MAX, SessionQuery, pages};
use agent_core::{Error, ErrorKind, Result, Storage};

/// Sessions that are fenced at once.
const AT_ONCE: usize = 8;

/// Result of [`fence_sessions`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fenced {
    /// Number of sessions that were fenced.
    pub sessions: u64,
    /// Sessions that cannot be read. They were not fenced, and take no writes either.
    pub damaged: Vec<Damaged>,
}

/// Fences every session of a tenant whose store was put back from a copy of its bytes: a folder, a database file, a dump. Like
/// [`StoreCopy::with_fences`](crate::copy::StoreCopy::with_fences), which restores a backup that is a store.
///
/// Each session ends its lease and leaves all epochs behind that a run from before can know
/// ([`Trigger::Fence`]). Deleted sessions take no writes and are left out. Call it before a program opens the store. It may be called
/// again, which fences again.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (storage, _, manager) = two_storages();
/// use agent_admin::fence::fence_sessions;
/// use agent_core::commit::EPOCHS_PER_FENCE;
///
/// let workspace = manager.create(NewWorkspace::new("Sales")).await?;
/// let session = manager.main_session(&workspace).await?;
/// assert_eq!(fence_sessions(&storage).await?.sessions, 1);
/// assert!(storage.sessions.load(session.id).await?.epoch.get() >= EPOCHS_PER_FENCE);
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// The future may be dropped at any point: some sessions are fenced then.
///
/// # Errors
///
/// Errors that concern the whole store: it cannot be reached, is full, or denies access.
pub async fn fence_sessions(storage: &Storage) -> Result<Fenced> {
    if storage.owner().is_some() {
        return Err(Error::new(
            ErrorKind::Denied,
            "a tenant is fenced as a whole; use its storage, and not that of an owner",
        ));
    }
    let sessions = &storage.sessions;
    let mut fenced = Fenced::default();
    let mut listed =
        pages(SessionQuery::new().with_hidden().with_limit(PAGE_MAX), |query| sessions.list(query));
    while let Some(page) = listed.try_next().await? {
        fenced.damaged.extend(page.damaged);
        // Nothing of a search index is written by a run, and each update of it writes segments of its own.
        let is_written =
            |item: &SessionSummary| item.status.state != SessionState::Deleted && !item.is_of_search_index();
        let ids: Vec<_> = page.items.iter().filter(|item| is_written(item)).map(|item| item.id).collect();
        let mut all = stream::iter(ids)
            .map(|id| async move { (id, sessions.trigger(id, Trigger::Fence).await) })
            .buffer_unordered(AT_ONCE);
        while let Some((id, done)) = all.next().await {
            let Err(error) = done else {
                fenced.sessions += 1;
                continue;
            };
            match error.kind() {
                // It was deleted meanwhile.
                ErrorKind::Deleted | ErrorKind::NotFound => {}
                ErrorKind::Corrupt | ErrorKind::Unsupported => {
                    fenced.damaged.push(Damaged::new(format!("session {id}"), error.to_string()));
                }
                _ => return Err(error),
            }
        }
    }
    fenced.damaged.sort();
    fenced.damaged.dedup();
    Ok(fenced)
}
