//! One row of a table is deleted by hand: it is named or made again, and no other session suffers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use agent_core::{
    BindingStore, ErrorKind, Expect, NewEvent, NewSession, Patch, Seq, Session, SessionStore,
    SessionStoreExt, Storage, Verification, Workspace, WorkspaceManager, WorkspaceStore,
};
use agent_storage_sqlite::SqliteStore;
use futures::TryStreamExt;
use support::Site;

const TABLES: [&str; 8] =
    ["logs", "events", "tombstones", "sessions", "labels", "beats", "workspaces", "bindings"];

/// A store with at least one row in each table.
struct Stocked {
    site: Site,
    first: Session,
    purged: Session,
    last: Session,
}

impl Stocked {
    async fn new() -> Self {
        let site = Site::new();
        let store = site.open().await;
        let effects = &site.effects;
        let id = effects.new_workspace_id();
        let place = Workspace::new(id, "place", effects.new_session_id(), effects.now());
        store.put(place, Expect::Absent).await.unwrap();
        store.bind(&"laptop".parse().unwrap(), id, Expect::Absent).await.unwrap();
        let mut made = Vec::new();
        for text in ["first", "purged", "last"] {
            let new = NewSession::new(effects.new_session_id(), id).with(&Patch::new().label("text", text));
            let new = SessionStoreExt::create(&store, effects, new).await.unwrap();
            let new = site.say(&store, &new, text).await;
            made.push(site.say(&store, &new, "and on").await);
        }
        let [first, purged, last] = made.try_into().unwrap();
        let manager = WorkspaceManager::new(Storage::from(store.clone()), effects.clone());
        manager.delete_session(purged.id).await.unwrap();
        manager.purge(purged.id).await.unwrap();
        let purged = SessionStore::load(&store, purged.id).await.unwrap();
        store.close().await.unwrap();
        site.raw().execute_batch("INSERT INTO beats SELECT log, 1 FROM logs").unwrap();
        Self { site, first, purged, last }
    }

    /// All rows of a table, as text.
    fn rows(&self, table: &str) -> Vec<String> {
        let conn = self.site.raw();
        let columns: Vec<String> = conn
            .prepare("SELECT name FROM pragma_table_info(?)")
            .unwrap()
            .query_map([table], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let quoted: Vec<_> = columns.iter().map(|name| format!("quote({name})")).collect();
        let sql = format!("SELECT {} FROM {table} ORDER BY 1", quoted.join(" || ',' || "));
        let mut query = conn.prepare(&sql).unwrap();
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// New sessions are made, and this one is read and goes on.
    async fn goes_on(&self, store: &SqliteStore, other: &Session, case: &str) -> Session {
        for _ in 0..2 {
            let new = NewSession::new(self.site.effects.new_session_id(), other.workspace);
            let new = SessionStoreExt::create(store, &self.site.effects, new).await;
            let new = new.unwrap_or_else(|error| panic!("{case}: no session can be made: {error}"));
            self.site.say(store, &new, "new").await;
        }
        assert_eq!(SessionStore::load(store, other.id).await.unwrap(), *other, "{case}");
        let said = vec![NewEvent::user_message("more")];
        let more = store.append(&self.site.effects, other.id, other.head, said).await.unwrap();
        more.session
    }
}

async fn verified(store: &SqliteStore) -> Verification {
    Storage::from(store.clone()).verify(|_| ()).await.unwrap()
}

/// Whatever row is deleted by hand, it is named by a verification or made again by a rebuild; a session is named by its id.
/// Sessions are made and others go on in every case.
///
/// Two things nobody can tell from what the library itself does: a row of `bindings` that is gone is an unbinding, and
/// `beats` are advice.
#[tokio::test]
async fn a_row_deleted_by_hand_is_named_or_made_again() {
    let mut bad = Vec::new();
    for table in TABLES {
        for which in ["min", "max"] {
            let case = format!("the {which} of {table}");
            let stocked = Stocked::new().await;
            let before = stocked.rows(table);
            let order = if table == "labels" { "value" } else { "rowid" };
            let sql = format!("DELETE FROM {table} WHERE {order} = (SELECT {which}({order}) FROM {table})");
            assert_eq!(stocked.site.raw().execute(&sql, []).unwrap(), 1, "{case}");

            let store = stocked.site.open().await;
            let found = verified(&store).await;
            let (hit, other) = match which {
                "min" => (&stocked.first, &stocked.last),
                _ => (&stocked.last, &stocked.first),
            };
            let hit = if table == "tombstones" { &stocked.purged } else { hit };
            let more = stocked.goes_on(&store, other, &case).await;
            let named =
                |id: &str| found.findings.iter().any(|it| it.object.contains(id) || it.detail.contains(id));
            let is_named = match table {
                "workspaces" => named(&other.workspace.to_string()),
                _ => named(&hit.id.to_string()),
            };
            let rebuilt = store.rebuild().await.unwrap();
            let after = stocked.rows(table);
            let is_again = before.iter().all(|row| after.contains(row));
            if !is_named && !is_again && !["bindings", "beats"].contains(&table) {
                bad.push(format!("{case}: {found:?}, {rebuilt:?}"));
            }
            // Of a session that lost an event the others stay, and the loss stays known.
            if table == "events" {
                let id = hit.id.to_string();
                assert!(rebuilt.damaged.iter().any(|it| it.object.contains(&id)), "{case}: {rebuilt:?}");
                assert!(!verified(&store).await.is_sound(), "{case}");
            } else if table != "workspaces" {
                assert_eq!(SessionStore::load(&store, hit.id).await.unwrap().head, hit.head, "{case}");
                assert!(verified(&store).await.is_sound(), "{case}: {:?}", verified(&store).await);
            }
            assert_eq!(SessionStore::load(&store, other.id).await.unwrap(), more, "{case}");
        }
    }
    assert!(bad.is_empty(), "neither named nor made again: {bad:#?}");
}

/// A session whose row in `logs` is gone is no session that never was: it is read and goes on as it was, its id makes no
/// second one, and its log number is nobody else's.
#[tokio::test]
async fn a_log_number_is_never_used_again() {
    let stocked = Stocked::new().await;
    let last = &stocked.last;
    let store = stocked.site.open().await;
    let sql = "DELETE FROM logs WHERE session = ?";
    assert_eq!(stocked.site.raw().execute(sql, [last.id.to_string()]).unwrap(), 1);
    stocked.goes_on(&store, &stocked.first, "at once").await;
    let new = NewSession::new(last.id, last.workspace);
    let taken = SessionStoreExt::create(&store, &stocked.site.effects, new).await.unwrap_err();
    assert!(matches!(taken.kind(), ErrorKind::Conflict { .. }), "{taken}");
    let last = stocked.site.say(&store, last, "still here").await;
    let sql = "DELETE FROM logs WHERE session = ?";
    assert_eq!(stocked.site.raw().execute(sql, [last.id.to_string()]).unwrap(), 1);
    let other = stocked.site.open().await;
    let page = other.read(last.id, agent_core::ReadEvents::first(10)).await.unwrap();
    assert_eq!((page.events.len() as u64, page.damaged.len()), (last.head.get(), 0));
    assert!(verified(&other).await.is_sound());
}

/// A rebuild takes no shorter log for the whole one: what was acknowledged and is gone from the end is named, and the
/// record stays.
#[tokio::test]
async fn a_rebuild_hides_no_lost_end() {
    for sql in ["DELETE FROM events WHERE seq = 3", "DELETE FROM events"] {
        let stocked = Stocked::new().await;
        stocked.site.raw().execute_batch(sql).unwrap();
        let store = stocked.site.open().await;
        let rebuilt = store.rebuild().await.unwrap();
        let named = rebuilt.damaged.iter().any(|it| it.object.contains(&stocked.last.id.to_string()));
        assert!(named, "{sql}: {rebuilt:?}");
        let record = SessionStore::load(&store, stocked.last.id).await.unwrap();
        assert_eq!(record.head, stocked.last.head, "{sql}");
    }
}

/// A session that was deleted and purged stays that, also if its tombstone is deleted by hand.
#[tokio::test]
async fn a_purged_session_does_not_come_back() {
    let stocked = Stocked::new().await;
    stocked.site.raw().execute_batch("DELETE FROM tombstones").unwrap();
    let store = stocked.site.open().await;
    assert!(!verified(&store).await.is_sound());
    store.rebuild().await.unwrap();
    assert_eq!(SessionStore::load(&store, stocked.purged.id).await.unwrap(), stocked.purged);
    assert!(verified(&store).await.is_sound());
}

/// R13: a fork whose row somebody deleted is found by no list, and a purge takes nothing of what it may read.
#[tokio::test]
async fn a_purge_waits_for_forks_without_a_row() {
    let Stocked { site, first, .. } = Stocked::new().await;
    let store = site.open().await;
    let fork = store.fork(&site.effects, first.id, None).await.unwrap();
    let before: Vec<_> = store.events(fork.id, Seq::ZERO).try_collect().await.unwrap();
    site.raw().execute("DELETE FROM sessions WHERE id = ?", [fork.id.to_string()]).unwrap();
    let manager = WorkspaceManager::new(Storage::from(store.clone()), site.effects.clone());
    manager.delete_session(first.id).await.unwrap();
    let refused = manager.purge(first.id).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert!(refused.to_string().contains("rebuild"), "{refused}");
    store.rebuild().await.unwrap();
    manager.purge(first.id).await.unwrap();
    let after: Vec<_> = store.events(fork.id, Seq::ZERO).try_collect().await.unwrap();
    assert_eq!(after, before);
}
