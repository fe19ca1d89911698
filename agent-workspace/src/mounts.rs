//! Resources that a session may use, inherited from its tenant, its project and its objective.

use agent_core::commit::{Committed, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::{MountOrigin, MountSet, Patch};
use agent_core::session::SessionRecord;
use agent_core::store::HiddenSession;
use agent_core::{ErrorKind, Result, SessionId, SessionStore, SessionStoreExt, Sessions};

/// Label that holds the name of a session's project.
const PROJECT: &str = "project";
/// Label that holds the name of a session's objective.
const OBJECTIVE: &str = "objective";

/// Returns the resources mounted in a session.
///
/// The set holds the resources inherited from the session's tenant, project and objective, without those that the
/// session removes, and with those that it pins. The same records always give the same set.
///
/// The session's labels `project` and `objective` name its project and objective; an objective belongs to a project.
/// The mounts of a scope are those that its [hidden session](HiddenSession) pins and removes. The cost is up to three
/// reads of a record, and none for a session whose inheritance was [frozen](freeze_mounts). A deleted scope mounts
/// nothing.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = website().await?;
/// use agent_runtime::mounts::{effective_mounts, update_scope};
///
/// // `chat` is a session with the label `project` = `website`.
/// let storage = agent.storage();
/// let website = HiddenSession::project(WorkspaceId::DEFAULT, "website");
/// let style = Patch::new().mount("kb:style-guide", Access::Read);
/// update_scope(&storage.sessions, &website, style).await?;
/// chat.update(Patch::new().mount("kb:drafts", Access::Write)).await?;
///
/// let mounts = effective_mounts(&*storage.sessions, &chat.record()).await?;
/// assert!(mounts.is_mounted("kb:style-guide", Access::Read) && mounts.is_mounted("kb:drafts", Access::Write));
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Errors of the store, also for an unreadable scope, which does not count as empty.
#[doc(alias = "mounts")]
pub async fn effective_mounts(sessions: &dyn SessionStore, session: &SessionRecord) -> Result<MountSet> {
    let mounts = &session.attributes.mounts;
    let inherited = match &mounts.frozen {
        Some(frozen) => frozen.clone(),
        None => inherited_mounts(sessions, session).await?,
    };
    Ok(mounts.over(inherited, MountOrigin::Session))
}

/// Returns the resources that a session inherits at present, frozen or not.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = website().await?;
/// use agent_runtime::mounts::{effective_mounts, inherited_mounts, update_scope};
///
/// let storage = agent.storage();
/// let style = Patch::new().mount("kb:style-guide", Access::Read);
/// update_scope(&storage.sessions, &HiddenSession::Tenant, style).await?;
/// chat.update(Patch::new().remove_mount("kb:style-guide")).await?;
///
/// // The session removes the resource, and still inherits it.
/// let inherited = inherited_mounts(&*storage.sessions, &chat.record()).await?;
/// assert!(inherited.get("kb:style-guide").is_some());
/// assert!(effective_mounts(&*storage.sessions, &chat.record()).await?.is_empty());
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Errors of [`effective_mounts`].
pub async fn inherited_mounts(sessions: &dyn SessionStore, session: &SessionRecord) -> Result<MountSet> {
    let labels = &session.attributes.labels;
    let mut scopes = vec![(HiddenSession::Tenant, MountOrigin::Tenant)];
    if let Some(project) = labels.get(PROJECT) {
        scopes.push((HiddenSession::project(session.workspace, project), MountOrigin::Project));
        if let Some(objective) = labels.get(OBJECTIVE) {
            let hidden = HiddenSession::objective(session.workspace, project, objective);
            scopes.push((hidden, MountOrigin::Objective));
        }
    }
    let mut set = MountSet::default();
    for (hidden, origin) in scopes {
        let scope = match hidden.find(sessions).await {
            Err(error) if *error.kind() == ErrorKind::Deleted => None,
            other => other?,
        };
        if let Some(scope) = scope {
            set = scope.attributes.mounts.over(set, origin);
        }
    }
    Ok(set)
}

/// Updates the mounts of a scope: a tenant, a project or an objective.
///
/// Sessions that are not frozen see the change immediately. Returns the commit of the scope's hidden session, which is
/// created if it does not exist.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = website().await?;
/// use agent_runtime::mounts::{effective_mounts, update_scope};
///
/// // `chat` is a session with the label `project` = `website`.
/// let sessions = &agent.storage().sessions;
/// let website = HiddenSession::project(WorkspaceId::DEFAULT, "website");
/// let add = Patch::new().mount("kb:style-guide", Access::Read);
/// update_scope(sessions, &website, add).await?;
/// assert_eq!(effective_mounts(&**sessions, &chat.record()).await?.len(), 1);
///
/// update_scope(sessions, &website, Patch::new().unmount("kb:style-guide")).await?;
/// assert!(effective_mounts(&**sessions, &chat.record()).await?.is_empty());
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, the update was applied wholly or not at all.
///
/// # Errors
///
/// `InvalidInput` for an invalid name, `LimitExceeded`; errors of the store.
pub async fn update_scope(sessions: &Sessions, scope: &HiddenSession, patch: Patch) -> Result<Committed> {
    let now = scope.open(sessions).await?;
    sessions.append(now.id, now.head, vec![NewEvent::updated(patch)]).await
}

/// Freezes the mounts that a session inherits at present: later changes of its scopes do not affect it.
///
/// The session's own pins and removals are not frozen. [`Patch::freeze_mounts`] with `None` makes the session follow its
/// scopes again.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = website().await?;
/// use agent_runtime::mounts::{effective_mounts, freeze_mounts, update_scope};
///
/// let sessions = &agent.storage().sessions;
/// let add = Patch::new().mount("kb:style-guide", Access::Read);
/// update_scope(sessions, &HiddenSession::Tenant, add).await?;
/// freeze_mounts(sessions, chat.id()).await?;
///
/// let remove = Patch::new().unmount("kb:style-guide");
/// update_scope(sessions, &HiddenSession::Tenant, remove).await?;
/// let mounts = effective_mounts(&**sessions, &*chat.refresh().await?).await?;
/// assert!(mounts.is_mounted("kb:style-guide", Access::Read));
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, the mounts are frozen or unchanged.
///
/// # Errors
///
/// `Conflict` if the session changed meanwhile; errors of the store.
pub async fn freeze_mounts(sessions: &Sessions, session: SessionId) -> Result<Committed> {
    let now = sessions.load(session).await?;
    let inherited = inherited_mounts(&**sessions, &now).await?;
    let commit = sessions.seal(session, now.head).with_precondition(Precondition::Matches(now.head));
    sessions
        .commit_with_retry(commit.with_event(NewEvent::updated(Patch::new().freeze_mounts(Some(inherited)))))
        .await
}
