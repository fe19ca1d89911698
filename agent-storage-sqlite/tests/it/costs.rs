//! Writes of a commit: the tables and indexes of which a page is in the write-ahead log afterwards.

use std::collections::BTreeMap;

use crate::support::Site;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Workspace};
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::{SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore};

/// Numbers of the pages in the write-ahead log, in order.
fn pages(site: &Site) -> Vec<u32> {
    let log = std::fs::read(site.folder.path().join("agent.db-wal")).unwrap();
    let frames = log[32..].chunks_exact(24 + 4096);
    frames.map(|frame| u32::from_be_bytes(frame[..4].try_into().unwrap())).collect()
}

/// Does something, and returns of which tables and indexes it wrote how many pages.
async fn written<T>(site: &Site, work: impl Future<Output = T>) -> (T, BTreeMap<String, usize>) {
    let before = pages(site).len();
    let done = work.await;
    let (raw, mut found) = (site.raw(), BTreeMap::new());
    for page in &pages(site)[before..] {
        let sql = "SELECT name FROM dbstat WHERE pageno = ?";
        let name: String = raw.query_row(sql, [page], |row| row.get(0)).unwrap();
        *found.entry(name).or_default() += 1;
    }
    (done, found)
}

fn names(found: &BTreeMap<String, usize>) -> Vec<&str> {
    found.keys().map(String::as_str).collect()
}

const EVENTS: [&str; 3] = ["events", "sessions", "sqlite_autoindex_events_1"];

/// A commit in a recent session writes its events and its row, and to no list: not to those of its workspace, its state,
/// its creator, its parent, nor of its labels. A run writes to one small index when it begins and when it ends.
#[tokio::test]
async fn commit_in_a_recent_session_writes_to_no_list() {
    let site = Site::new();
    let (store, effects) = (site.open().await, &site.effects);
    let parent = site.session(&store).await;
    let labels = Patch::new().with_label("project", "apollo").with_label("team", "moon");
    let child = NewSession::child(effects.new_session_id(), &parent).with_patch(&labels);
    let (session, found) = written(&site, store.sessions(effects).create(child)).await;
    let session = session.unwrap();
    let mut lists = names(&found);
    lists.retain(|name| name.starts_with("sessions_"));
    assert_eq!(lists, ["sessions_by_id", "sessions_recent"], "{found:?}");

    // The first input makes the session wait for a run.
    let session = site.append_text(&store, &session, "first").await;
    let (session, found) = written(&site, site.append_text(&store, &session, "short")).await;
    assert_eq!(names(&found), EVENTS);
    assert!(found.values().all(|count| *count == 1), "{found:?}");

    let run = effects.new_run_id();
    let begin = Trigger::BeginRun(LeaseRequest::new("test", run));
    let begin = site.text_commit(&session, "go").with_trigger(begin);
    let (begun, found) = written(&site, store.commit(begin)).await;
    // It is not due any more; a child is due again when it ends, to report to its parent.
    let with_state =
        ["events", "sessions", "sessions_by_due", "sessions_recent", "sqlite_autoindex_events_1"];
    assert_eq!(names(&found), with_state);
    let begun = begun.unwrap().session;
    let end = Commit::seal(effects, begun.id, begun.head)
        .with_fence(run, begun.epoch)
        .with_event(NewEvent::agent_message("gone"))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let (ended, found) = written(&site, store.commit(end)).await;
    assert_eq!(names(&found), with_state);

    // 30 messages of 1 KiB: a new page for each three of them, with the first page of the file and the inner one of the table.
    let mut session = site.append_text(&store, &ended.unwrap().session, "again").await;
    let (mut sum, count) = (0, 30);
    for _ in 0..count {
        let (next, found) = written(&site, site.append_text(&store, &session, "x".repeat(1024))).await;
        session = next;
        sum += found.values().sum::<usize>();
        assert!(
            names(&found).iter().all(|name| EVENTS.contains(name) || *name == "sqlite_schema"),
            "{found:?}"
        );
    }
    assert!(sum <= count * 17 / 4, "{sum} pages for {count} messages");
}

/// A session that is not recent leaves its lists when it is written to. If too many are recent then, the oldest go to
/// theirs, several at once.
#[tokio::test]
async fn oldest_recent_sessions_are_moved_together() {
    let site = Site::new();
    let store = site.open().await;
    let first = site.session(&store).await;
    let (mut moves, mut most) = (0, 0);
    for n in 1..200 {
        let (_, found) = written(&site, site.session(&store)).await;
        let is_move = found.contains_key("sessions_by_workspace");
        moves += usize::from(is_move);
        assert_eq!(is_move, n % 16 == 0 && n >= 64, "{n}: {found:?}");
        most = most.max(found.values().sum());
    }
    assert_eq!(moves, 9);
    assert!(most < 40, "{most} pages in one commit");
    let (first, found) = written(&site, site.append_text(&store, &first, "again")).await;
    for list in ["sessions_recent", "sessions_by_workspace", "sessions_by_state", "sessions_by_creator"] {
        assert_eq!(found.get(list), Some(&1), "{found:?}");
    }
    let (_, found) = written(&site, site.append_text(&store, &first, "and again")).await;
    assert_eq!(names(&found), EVENTS);
}

/// That a workspace was used is written with the commit that comes at the same time, and writes its two pages alone
/// otherwise.
#[tokio::test]
async fn use_of_a_workspace_rides_on_a_commit() {
    let site = Site::new();
    let (store, effects) = (site.open().await, &site.effects);
    let session = site.session(&store).await;
    let session = site.append_text(&store, &session, "first").await;
    let place = Workspace::new(WorkspaceId::DEFAULT, "place", session.id, effects.now());
    store.put(place, Precondition::MustNotExist).await.unwrap();
    let (done, found) = written(&site, store.touch(WorkspaceId::DEFAULT, effects.now())).await;
    done.unwrap();
    assert_eq!(found.values().sum::<usize>(), 2, "{found:?}");
    let at = effects.now();
    let both = async {
        tokio::join!(store.touch(WorkspaceId::DEFAULT, at), store.commit(site.text_commit(&session, "hi")))
    };
    let ((touched, stored), found) = written(&site, both).await;
    touched.unwrap();
    stored.unwrap();
    assert_eq!(found.values().sum::<usize>(), 5, "{found:?}");
    assert_eq!(WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.unwrap().last_accessed, at);
}
