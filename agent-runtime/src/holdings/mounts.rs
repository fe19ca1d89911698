//! What a session may use, inherited from its tenant, its project and its objective.

use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, Expect};
use agent_core::event::NewEvent;
use agent_core::model::{MountOrigin, MountSet, Patch};
use agent_core::session::Session;
use agent_core::store::Shelf;
use agent_core::{ErrorKind, Result, SessionId, SessionStore, SessionStoreExt};

/// The label by which a session names its project.
const PROJECT: &str = "project";
/// The label by which a session names its objective.
const OBJECTIVE: &str = "objective";

/// What is mounted in a session: inherited from its tenant, project and objective, without what it removed, with what it
/// pinned. The same records give the same set.
///
/// Project and objective are those that the session's labels `project` and `objective` name; an objective is one of its
/// project. What a scope mounts is what its [`Shelf`] pins and removes. A session whose inheritance was
/// [frozen](freeze_mounts) reads none of them; any other reads up to three records. A scope that was deleted mounts
/// nothing.
///
/// # Errors
///
/// Those of the store: what cannot be read is not taken for empty.
pub async fn effective_mounts(sessions: &dyn SessionStore, session: &Session) -> Result<MountSet> {
    let mounts = &session.attributes.mounts;
    let inherited = match &mounts.frozen {
        Some(frozen) => frozen.clone(),
        None => inherited_mounts(sessions, session).await?,
    };
    Ok(mounts.over(inherited, MountOrigin::Session))
}

/// What a session inherits at the moment, frozen or not.
///
/// # Errors
///
/// As for [`effective_mounts`].
pub async fn inherited_mounts(sessions: &dyn SessionStore, session: &Session) -> Result<MountSet> {
    let labels = &session.attributes.labels;
    let mut scopes = vec![(Shelf::Tenant, MountOrigin::Tenant)];
    if let Some(project) = labels.get(PROJECT) {
        scopes.push((Shelf::project(session.workspace, project), MountOrigin::Project));
        if let Some(objective) = labels.get(OBJECTIVE) {
            let shelf = Shelf::objective(session.workspace, project, objective);
            scopes.push((shelf, MountOrigin::Objective));
        }
    }
    let mut set = MountSet::default();
    for (shelf, origin) in scopes {
        let scope = match shelf.find(sessions).await {
            Err(error) if *error.kind() == ErrorKind::Deleted => None,
            other => other?,
        };
        if let Some(scope) = scope {
            set = scope.attributes.mounts.over(set, origin);
        }
    }
    Ok(set)
}

/// Changes what a scope mounts; sessions that follow it see that at once.
///
/// # Errors
///
/// `InvalidInput` for a bad name, `LimitExceeded`; those of the store.
pub async fn update_scope(
    sessions: &Arc<dyn SessionStore>,
    effects: &Effects,
    scope: &Shelf,
    patch: Patch,
) -> Result<Committed> {
    let now = scope.open(sessions, effects).await?;
    sessions.append(effects, now.id, now.head, vec![NewEvent::updated(patch)]).await
}

/// Freezes what a session inherits as it is now: later changes of its scopes do not reach it. What it pins and removes
/// itself stays its own.
///
/// # Errors
///
/// `Conflict` where the session changed meanwhile; those of the store.
pub async fn freeze_mounts(
    sessions: &Arc<dyn SessionStore>,
    effects: &Effects,
    session: SessionId,
) -> Result<Committed> {
    let now = sessions.load(session).await?;
    let inherited = inherited_mounts(&**sessions, &now).await?;
    let commit = Commit::seal(effects, session, now.head).expect(Expect::Is(now.head));
    sessions.settle(commit.event(NewEvent::updated(Patch::new().freeze_mounts(Some(inherited))))).await
}
