//! Forks and children that are created while their parent is deleted or purged.

use std::ops::Range;
use std::sync::Arc;

use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{Purge, SessionQuery};
use agent_core::{ErrorKind, Seq, Storage};

use crate::clauses::lineage::history;
use crate::failure::{Checked, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{Stage, own_events, race};

pub(super) fn clauses() -> Vec<Clause> {
    table![Lineage:
        child_precedes_parent_deletion_or_is_refused (Needs::ImmediateLists),
        purge_takes_nothing_from_a_concurrent_fork (Needs::ImmediateLists),
    ]
}

type Racer = futures::future::BoxFuture<'static, Outcome>;

/// Result of one task in a race with a deletion.
enum Outcome {
    Made(agent_core::Result<Arc<SessionRecord>>),
    /// Tombstone, and the sessions that had been created from the session until then.
    Deleted(agent_core::Result<(Arc<SessionRecord>, Vec<SessionSummary>)>),
}

async fn delete(
    storage: &Storage,
    commit: Commit,
) -> agent_core::Result<(Arc<SessionRecord>, Vec<SessionSummary>)> {
    let deleted = storage.sessions.commit(commit).await?.session;
    let made = storage.sessions.list(SessionQuery::new().with_parent(deleted.id).with_hidden()).await?.items;
    Ok((deleted, made))
}

/// If a deletion and the creation of a child happen at the same time, either the child comes first, and the deleting
/// caller sees it, or it is refused and does not exist.
async fn child_precedes_parent_deletion_or_is_refused(stage: &Stage) -> Checked {
    stage.in_parts(race_for_children).await
}

async fn race_for_children(stage: Arc<Stage>, rounds: Range<usize>) -> Checked {
    let handles = stage.handles(3).await?;
    let workspace = stage.new_workspace(&handles[0]).await?.id;
    // What one round makes is the parent in another.
    let mut children = Vec::new();
    for round in rounds {
        let parent = match children.pop() {
            Some(child) => child,
            None => {
                let new = NewSession::new(stage.effects.new_session_id(), workspace);
                stage.create(&handles[0], new).await?
            }
        };
        children.extend(race_for_a_child(&stage, &handles, round, parent).await?);
    }
    Ok(())
}

/// Runs one round; returns the children that were created.
async fn race_for_a_child(
    stage: &Stage,
    handles: &[Storage],
    round: usize,
    parent: Arc<SessionRecord>,
) -> Checked<Vec<Arc<SessionRecord>>> {
    let (mut children, mut racers) = (Vec::new(), Vec::<Racer>::new());
    for storage in &handles[..2] {
        let new = NewSession::child(stage.effects.new_session_id(), &parent);
        children.push(new.id);
        let (store, commit) = (storage.sessions.clone(), Commit::create(&stage.effects, new));
        racers.push(Box::pin(
            async move { Outcome::Made(store.commit(commit).await.map(|done| done.session)) },
        ));
    }
    let (storage, end) = (handles[2].clone(), stage.seal(&parent));
    let end = end.with_trigger(Trigger::Delete(Reason::UserDeleted));
    racers.push(Box::pin(async move { Outcome::Deleted(delete(&storage, end).await) }));
    let (mut made, mut seen) = (Vec::new(), Vec::new());
    for outcome in race(racers).await? {
        match outcome {
            Outcome::Made(child) => made.push(child),
            Outcome::Deleted(deleted) => seen = deleted?.1,
        }
    }
    let mut whole = Vec::new();
    for (id, result) in children.into_iter().zip(made) {
        match result {
            Ok(child) => {
                holds_for(
                    format_args!("round {round}: whoever deleted the parent sees child {id}"),
                    &seen,
                    seen.iter().any(|child| child.id == id),
                )?;
                whole.push(child);
            }
            Err(error) => {
                holds_for("a refused child says Deleted", &error, *error.kind() == ErrorKind::Deleted)?;
                let load = handles[round % 3].sessions.load(id).await;
                refused!("the refused child", load, ErrorKind::NotFound)?;
            }
        }
    }
    Ok(whole)
}

/// If a purge and forks happen at the same time, each fork that was created can permanently read everything that it
/// forked; every other one was refused.
async fn purge_takes_nothing_from_a_concurrent_fork(stage: &Stage) -> Checked {
    stage.in_parts(race_purges).await
}

/// Creates sessions to be forked and purged, many at a time, because creating them is not part of the race.
async fn forked(stage: &Stage, storage: &Storage, count: usize) -> Checked<Vec<Arc<SessionRecord>>> {
    let workspace = stage.new_workspace(storage).await?.id;
    let mut parents = Vec::new();
    while parents.len() < count {
        let some = (parents.len()..count).take(16).map(|_| {
            let new = NewSession::new(stage.effects.new_session_id(), workspace);
            let event = |n: u32| NewEvent::user_message(format!("message {n}"));
            let create = Commit::create(&stage.effects, new).with_events((0..3).map(event));
            async move {
                let made = storage.sessions.commit(create).await?.session;
                storage.sessions.commit(stage.seal(&made).with_event(event(3))).await
            }
        });
        let made = futures::future::try_join_all(some).await?;
        parents.extend(made.into_iter().map(|made| made.session));
    }
    Ok(parents)
}

async fn race_purges(stage: Arc<Stage>, rounds: Range<usize>) -> Checked {
    let handles = stage.handles(3).await?;
    let parents = forked(&stage, &handles[0], rounds.len()).await?;
    for (round, parent) in rounds.zip(parents) {
        race_a_purge(&stage, &handles, round, parent).await?;
    }
    Ok(())
}

async fn race_a_purge(
    stage: &Stage,
    handles: &[Storage],
    round: usize,
    parent: Arc<SessionRecord>,
) -> Checked {
    let before = own_events(&handles[0], parent.id, 100).await?;
    let mut racers = Vec::<Racer>::new();
    for (storage, at) in handles[..2].iter().zip([Seq::new(4), parent.head]) {
        let (storage, id) = (storage.clone(), parent.id);
        racers.push(Box::pin(async move { Outcome::Made(storage.sessions.fork(id, Some(at)).await) }));
    }
    let (storage, end) = (handles[2].clone(), stage.seal(&parent));
    let end = end.with_trigger(Trigger::Delete(Reason::UserDeleted));
    racers.push(Box::pin(async move {
        let purge = async {
            let (deleted, made) = delete(&storage, end).await?;
            storage.sessions.purge(Purge::new(deleted.id, deleted.head)).await?;
            Ok((deleted, made))
        };
        Outcome::Deleted(purge.await)
    }));
    for outcome in race(racers).await? {
        match outcome {
            Outcome::Made(Ok(fork)) => {
                let base = fork.lineage.base().get() as usize;
                let all = history(&handles[round % 3], fork.id, 3, false).await?;
                same("what it forked", &all[..base.min(all.len())], &before[..base])?;
            }
            Outcome::Made(Err(error)) => {
                holds_for("a refused fork says Deleted", &error, *error.kind() == ErrorKind::Deleted)?;
            }
            Outcome::Deleted(deleted) => drop(deleted?),
        }
    }
    Ok(())
}
