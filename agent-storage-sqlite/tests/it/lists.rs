//! Lists among more sessions than are recent: the same as those of the store in memory, page by page.

use std::sync::Arc;

use crate::support::Site;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Patch;
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::state::{Reason, SessionState};
use agent_core::store::SessionQuery;
use agent_core::{MemoryStore, SessionId, SessionStore, Timestamp, WorkspaceId};

/// Whether another session has the time of this one, so that the id decides.
const SAME_TIME: u64 = 5;

async fn all_pages(store: &dyn SessionStore, query: &SessionQuery, limit: usize) -> Vec<SessionSummary> {
    let (mut query, mut found) = (query.clone().with_limit(limit), Vec::new());
    loop {
        let page = store.list(query.clone()).await.unwrap();
        assert!(page.damaged.is_empty(), "{:?}", page.damaged);
        found.extend(page.items);
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return found,
        }
    }
}

/// Random sessions in three workspaces, with labels, in several states, as children of each other; then random commits,
/// some with the time of another session. Each kind of list is that of the store in memory, with pages of one, 20 and 500
/// sessions; also after a rebuild, in which no session is recent, and after further commits.
#[tokio::test]
async fn lists_are_exact_with_any_recent_sessions() {
    let site = Site::new();
    let (store, model, effects) = (site.open().await, MemoryStore::new(), &site.effects);
    let other = site.open().await;
    let workspaces = [WorkspaceId::DEFAULT, effects.new_workspace_id(), effects.new_workspace_id()];
    let mut sessions: Vec<Arc<SessionRecord>> = Vec::new();
    let random = |below: u64| effects.random_u64() % below;
    for round in 0..3 {
        for step in 0..200 {
            let commit = if sessions.len() < 60 * (round + 1) && step % 2 == 0 {
                let new = NewSession::new(effects.new_session_id(), workspaces[random(3) as usize]);
                let new = match sessions.get(random(4) as usize) {
                    Some(parent) if random(4) == 0 && parent.workspace == new.created.workspace => {
                        NewSession::child(new.id, parent)
                    }
                    _ => new,
                };
                let mut patch = Patch::new();
                for (key, of) in [("common", 1), ("some", 2), ("rare", 12)] {
                    if random(of) == 0 {
                        patch = patch.with_label(key, "yes");
                    }
                }
                Commit::create(effects, new.with_patch(&patch))
            } else {
                let session = &sessions[random(sessions.len() as u64) as usize];
                let commit = Commit::seal(effects, session.id, session.head);
                match (session.status.state, random(6)) {
                    (SessionState::Running, _) => commit
                        .with_fence(session.lease.as_ref().unwrap().run, session.epoch)
                        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))),
                    (SessionState::Archived, _) => commit.with_trigger(Trigger::Unarchive),
                    (SessionState::Idle, 0) => commit.with_trigger(Trigger::Archive),
                    (SessionState::Idle, 1) => {
                        let lease = LeaseRequest::new("test", effects.new_run_id());
                        commit.with_event(NewEvent::user_message("go")).with_trigger(Trigger::BeginRun(lease))
                    }
                    (SessionState::Idle, 2) => {
                        let patch = Patch::new().with_label("rare", "yes").without_label("some");
                        commit.with_event(NewEvent::updated(patch))
                    }
                    (_, 3) => commit.with_event(NewEvent::user_message("asked")),
                    _ => commit.with_event(NewEvent::agent_message("noted")),
                }
            };
            let mut commit = commit;
            if random(SAME_TIME) == 0 && !sessions.is_empty() {
                commit.at = sessions[sessions.len() - 1].last_active_at;
            }
            let (here, there) =
                (if random(3) == 0 { &other } else { &store }, model.commit(commit.clone()).await);
            let done = here.commit(commit).await;
            let (Ok(done), Ok(there)) = (&done, &there) else {
                panic!("{done:?} {there:?}");
            };
            assert_eq!(done.session, there.session);
            sessions.retain(|session| session.id != done.session.id);
            sessions.push(done.session.clone());
        }
        check(&store, &model, &workspaces, &sessions).await;
        let recent = site.count("SELECT count(*) FROM sessions WHERE is_recent = 1");
        assert!((49..=64).contains(&recent), "{recent} sessions are recent");
        assert_eq!(store.maintenance().check().await.unwrap(), []);
        if round == 1 {
            store.maintenance().rebuild().await.unwrap();
            assert_eq!(site.count("SELECT count(*) FROM sessions WHERE is_recent = 1"), 0);
            check(&store, &model, &workspaces, &sessions).await;
        }
    }
    site.assert_is_whole();
}

async fn check(
    store: &dyn SessionStore,
    model: &MemoryStore,
    workspaces: &[WorkspaceId],
    sessions: &[Arc<SessionRecord>],
) {
    let all = SessionQuery::new;
    let parent: SessionId =
        sessions.iter().find_map(|session| session.origin.parent()).expect("there is a child");
    let middle = Timestamp::from_micros(
        sessions.iter().map(|session| session.last_active_at.as_micros()).sum::<i64>()
            / sessions.len() as i64,
    );
    let queries = [
        all(),
        all().with_hidden(),
        all().with_states([SessionState::Archived]),
        all().with_states([SessionState::Running, SessionState::Idle]),
        all().with_workspace(workspaces[1]),
        all().with_workspace(workspaces[2]).with_states([SessionState::Idle]),
        all().with_label("common", "yes"),
        all().with_label("rare", "yes").with_hidden(),
        all().with_label("common", "yes").with_label("rare", "yes"),
        all().with_label("common", "yes").with_label("some", "yes").with_label("rare", "yes"),
        all().with_label("common", "yes").with_label("some", "no"),
        all().with_label("some", "yes").with_workspace(workspaces[0]),
        all().with_creator(sessions[0].creator.clone()),
        all()
            .with_creator(sessions[0].creator.clone())
            .with_workspace(workspaces[1])
            .with_label("some", "yes"),
        all().with_parent(parent),
        all().with_parent(parent).with_label("common", "yes"),
        all().with_due(Timestamp::MAX),
        all().with_due(Timestamp::MAX).with_label("common", "yes").with_label("some", "yes"),
        all().with_inactive_since(middle),
    ];
    let mut found = 0;
    for query in queries {
        let query = query.with_total();
        let expected = all_pages(model, &query, 500).await;
        found += expected.len();
        for limit in [1, 20, 500] {
            assert_eq!(all_pages(store, &query, limit).await, expected, "{query:?} by {limit}");
        }
        let total = store.list(query.clone()).await.unwrap().total;
        assert_eq!(total, Some(expected.len() as u64), "{query:?}");
    }
    assert!(found > 300, "{found}");
}
