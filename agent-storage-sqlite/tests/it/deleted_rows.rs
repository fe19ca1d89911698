//! One row of a table is deleted by hand: it is named or made again, and no other session suffers.

use std::sync::Arc;

use crate::support::Site;
use agent_admin::verify::{Verification, verify};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, SessionQuery};
use agent_core::{
    BindingStore, ErrorKind, Seq, SessionStore, SessionStoreExt, Storage, WorkspaceId, WorkspaceStore,
};
use agent_runtime::WorkspaceManager;
use agent_runtime::retention::GcPolicy;
use agent_storage_sqlite::SqliteStore;
use futures::TryStreamExt;

const TABLES: [&str; 10] = [
    "logs",
    "events",
    "tombstones",
    "sessions",
    "labels",
    "heartbeats",
    "workspaces",
    "bindings",
    "blobs",
    "blob_chunks",
];

/// A store with at least one row in each table.
struct Stocked {
    site: Site,
    first: Arc<SessionRecord>,
    purged: Arc<SessionRecord>,
    last: Arc<SessionRecord>,
}

impl Stocked {
    async fn new() -> Self {
        let site = Site::new();
        let store = site.open().await;
        let effects = &site.effects;
        let id = effects.new_workspace_id();
        let place = Workspace::new(id, "place", effects.new_session_id(), effects.now());
        store.put(place, Precondition::MustNotExist).await.unwrap();
        store.bind(&"laptop".parse().unwrap(), id, Precondition::MustNotExist).await.unwrap();
        let mut made = Vec::new();
        for text in ["first", "purged", "last"] {
            let new = NewSession::new(effects.new_session_id(), id)
                .with_patch(&Patch::new().with_label("text", text));
            let new = store.sessions(effects).create(new).await.unwrap();
            let new = site.append_text(&store, &new, text).await;
            made.push(site.show(&store, &new, text.into()).await.0);
        }
        let [first, purged, last] = made.try_into().unwrap();
        let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(effects.clone()));
        manager.delete_session(purged.id).await.unwrap();
        manager.purge(purged.id).await.unwrap();
        let purged = SessionStore::load(&store, purged.id).await.unwrap();
        store.close().await.unwrap();
        site.raw().execute_batch("INSERT INTO heartbeats SELECT log, 1 FROM logs").unwrap();
        Self { site, first, purged, last }
    }

    /// All rows of a table, as text, without the random versions.
    fn rows(&self, table: &str) -> Vec<String> {
        let conn = self.site.raw();
        let columns: Vec<String> = conn
            .prepare("SELECT name FROM pragma_table_info(?) WHERE name <> 'version'")
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
    async fn goes_on(&self, store: &SqliteStore, other: &SessionRecord, case: &str) -> Arc<SessionRecord> {
        for _ in 0..2 {
            let new = NewSession::new(self.site.effects.new_session_id(), other.workspace);
            let new = store.sessions(&self.site.effects).create(new).await;
            let new = new.unwrap_or_else(|error| panic!("{case}: no session can be made: {error}"));
            self.site.append_text(store, &new, "new").await;
        }
        assert_eq!(SessionStore::load(store, other.id).await.unwrap().as_ref(), other, "{case}");
        let events = vec![NewEvent::user_message("more")];
        let more = store.sessions(&self.site.effects).append(other.id, other.head, events).await.unwrap();
        more.session
    }
}

async fn verified(store: &SqliteStore) -> Verification {
    verify(&Storage::from(store.clone()), |_| ()).await.unwrap()
}

/// Whatever row is deleted by hand, it is named by a verification or made again by a rebuild; a session is named by its id.
/// Sessions are made and others go on in every case.
///
/// Two things nobody can tell from what the library itself does: a row of `bindings` that is gone is an unbinding, and
/// `heartbeats` are advice.
#[tokio::test]
async fn deleted_row_is_reported_or_rebuilt() {
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
            let rebuilt = store.maintenance().rebuild().await.unwrap();
            let after = stocked.rows(table);
            let is_again = before.iter().all(|row| after.contains(row));
            if !is_named && !is_again && !["bindings", "heartbeats"].contains(&table) {
                bad.push(format!("{case}: {found:?}, {rebuilt:?}"));
            }
            // Of a session that lost an event the others stay, and the loss stays known; so does that of a blob.
            if table == "events" {
                let id = hit.id.to_string();
                assert!(rebuilt.damaged.iter().any(|it| it.object.contains(&id)), "{case}: {rebuilt:?}");
                assert!(!verified(&store).await.is_sound(), "{case}");
            } else if table.starts_with("blob") {
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
async fn log_numbers_are_never_reused() {
    let stocked = Stocked::new().await;
    let last = &stocked.last;
    let store = stocked.site.open().await;
    let sql = "DELETE FROM logs WHERE session = ?";
    assert_eq!(stocked.site.raw().execute(sql, [last.id.to_string()]).unwrap(), 1);
    stocked.goes_on(&store, &stocked.first, "at once").await;
    let new = NewSession::new(last.id, last.workspace);
    let taken = store.sessions(&stocked.site.effects).create(new).await.unwrap_err();
    assert!(matches!(taken.kind(), ErrorKind::Conflict { .. }), "{taken}");
    let last = stocked.site.append_text(&store, last, "still here").await;
    let sql = "DELETE FROM logs WHERE session = ?";
    assert_eq!(stocked.site.raw().execute(sql, [last.id.to_string()]).unwrap(), 1);
    let other = stocked.site.open().await;
    let page = other.read(last.id, agent_core::store::ReadEvents::first(10)).await.unwrap();
    assert_eq!((page.events.len() as u64, page.damaged.len()), (last.head.get(), 0));
    assert!(verified(&other).await.is_sound());
}

/// A rebuild takes no shorter log for the whole one: what was acknowledged and is gone from the end is named, and the
/// record stays.
#[tokio::test]
async fn rebuild_reports_events_lost_from_the_end() {
    for sql in ["DELETE FROM events WHERE seq = 3", "DELETE FROM events"] {
        let stocked = Stocked::new().await;
        stocked.site.raw().execute_batch(sql).unwrap();
        let store = stocked.site.open().await;
        let rebuilt = store.maintenance().rebuild().await.unwrap();
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
    store.maintenance().rebuild().await.unwrap();
    assert_eq!(SessionStore::load(&store, stocked.purged.id).await.unwrap(), stocked.purged);
    assert!(verified(&store).await.is_sound());
}

/// A fork whose row somebody deleted is found by no list, and a purge takes nothing of what it may read.
#[tokio::test]
async fn purge_spares_forks_whose_row_is_missing() {
    let Stocked { site, first, .. } = Stocked::new().await;
    let store = site.open().await;
    let fork = store.sessions(&site.effects).fork(first.id, None).await.unwrap();
    let before: Vec<_> = store.events(fork.id, Seq::ZERO).try_collect().await.unwrap();
    site.raw().execute("DELETE FROM sessions WHERE id = ?", [fork.id.to_string()]).unwrap();
    let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(site.effects.clone()));
    manager.delete_session(first.id).await.unwrap();
    let refused = manager.purge(first.id).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert!(refused.to_string().contains("rebuild"), "{refused}");
    store.maintenance().rebuild().await.unwrap();
    manager.purge(first.id).await.unwrap();
    let after: Vec<_> = store.events(fork.id, Seq::ZERO).try_collect().await.unwrap();
    assert_eq!(after, before);
}

/// Nothing is written behind events that are gone from the end, and nothing is forked from there.
#[tokio::test]
async fn nothing_is_appended_after_a_lost_end() {
    let Stocked { site, last, .. } = Stocked::new().await;
    let deleted = "DELETE FROM events WHERE seq = ?1 AND log = (SELECT log FROM logs WHERE session = ?2)";
    let end = i64::try_from(last.head.get()).unwrap();
    assert_eq!(site.raw().execute(deleted, (end, last.id.to_string())).unwrap(), 1);
    let store = site.open().await;
    let more =
        store.sessions(&site.effects).append(last.id, last.head, vec![NewEvent::user_message("more")]).await;
    let refused = more.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert!(refused.to_string().contains(&last.id.to_string()), "{refused}");
    let refused = store.sessions(&site.effects).fork(last.id, None).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Corrupt, "{refused}");
    let events: i64 =
        site.raw().query_row("SELECT count(*) FROM events WHERE seq >= ?", [end], |row| row.get(0)).unwrap();
    assert_eq!(events, 1, "that of the other session");
}

/// A workspace stays whose pinned session has no row any more: the row is made again, and a session of which that fails
/// keeps its workspace, too.
#[tokio::test]
async fn gc_keeps_the_workspace_of_a_session_without_a_row() {
    for is_damaged in [false, true] {
        let Stocked { site, first, .. } = Stocked::new().await;
        let store = site.open().await;
        let pinned = vec![NewEvent::updated(Patch::new().pin("for the audit"))];
        store.sessions(&site.effects).append(first.id, first.head, pinned).await.unwrap();
        let conn = site.raw();
        let deleted = conn.execute("DELETE FROM sessions WHERE id = ?", [first.id.to_string()]).unwrap();
        assert_eq!(deleted, 1);
        if is_damaged {
            let sql = "UPDATE events SET json = replace(json, 'first', 'worst') WHERE seq = 2";
            assert!(conn.execute(sql, []).unwrap() > 0);
        }
        let later = Effects::seeded(8, site.effects.now().plus_micros(1000 * 24 * 3600 * 1_000_000));
        let manager = WorkspaceManager::new(Storage::from(store.clone()).with_effects(later));
        let report = manager.gc(GcPolicy::days(1)).await.unwrap();
        assert_eq!(report.collected, [], "damaged: {is_damaged}");
        let kept: Vec<_> = report.retained.iter().map(|kept| kept.id).collect();
        assert!(kept.contains(&first.workspace), "damaged: {is_damaged}: {report:?}");
        assert_eq!(WorkspaceStore::load(&store, first.workspace).await.unwrap().id, first.workspace);
    }
}

/// A column by which lists find a session, and that another program has changed, is named by a verification, and made
/// again by a rebuild; so is a label.
#[tokio::test]
async fn edited_column_is_reported_and_rebuilt() {
    let columns = [
        ("workspace", "'019c60d9-9c41-715c-8289-ec2d0a9167ed'"),
        ("state", "'archived'"),
        ("reason", "'user_deleted'"),
        ("head", "99"),
        ("base", "1"),
        ("epoch", "7"),
        ("creator", "'user:mallory'"),
        ("parent", "'019c60d9-9c41-715c-8289-ec2d0a9167ed'"),
        ("created_at", "1"),
        ("last_active_at", "1"),
        ("next_due_at", "1"),
        ("title", "'another'"),
    ];
    let of_sessions = columns.map(|(name, value)| (name, format!("UPDATE sessions SET {name} = {value}")));
    // What is no text, in a column of text.
    let no_text = [("title", "UPDATE sessions SET title = CAST(X'ff41' AS TEXT)")];
    let added = "INSERT INTO labels SELECT tenant, 'added', value, last_active_at, session, log FROM labels";
    let stale = "INSERT INTO labels SELECT tenant, key, value, 1, session, log FROM labels";
    let labels = [
        ("labels", "UPDATE labels SET value = 'other'"),
        ("labels", "UPDATE labels SET value = CAST(X'ff' AS TEXT)"),
        ("labels", "UPDATE labels SET session = 'another'"),
        ("labels", added),
        ("labels", stale),
    ];
    let others = no_text.into_iter().chain(labels).map(|(name, sql)| (name, sql.to_owned()));
    // A rebuild leaves no session recent.
    let rebuilt = Stocked::new().await;
    rebuilt.site.open().await.rebuild_all().await.unwrap();
    let before = (rebuilt.rows("sessions"), rebuilt.rows("labels"));
    let changes = of_sessions.into_iter().chain(others);
    for ((name, sql), is_recent) in changes.flat_map(|change| [(change.clone(), true), (change, false)]) {
        let stocked = Stocked::new().await;
        if !is_recent {
            stocked.site.open().await.rebuild_all().await.unwrap();
        }
        assert!(stocked.site.raw().execute(&sql, []).unwrap() > 0);
        let store = stocked.site.open().await;
        let found = store.maintenance().check().await.unwrap();
        for session in [&stocked.first, &stocked.last] {
            let id = session.id.to_string();
            let is_named = found.iter().any(|it| it.reason.contains(&id) && it.reason.contains(name));
            assert!(is_named, "{name}: {found:?}");
        }
        store.maintenance().rebuild().await.unwrap();
        assert_eq!((stocked.rows("sessions"), stocked.rows("labels")), before, "{name}");
        assert_eq!(store.maintenance().check().await.unwrap(), [], "{name}");
    }
}

/// Every write of a session's record gives its row another version, so that equal versions mean the same record; what does not
/// write it leaves the version.
#[tokio::test]
async fn a_row_has_the_version_of_its_record() {
    let site = Site::new();
    let store = site.open().await;
    let effects = &site.effects;
    let version =
        || -> i64 { site.raw().query_row("SELECT version FROM sessions", [], |row| row.get(0)).unwrap() };
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let created = store.sessions(effects).create(new).await.unwrap();
    let mut seen = vec![version()];
    let mut differs = |what: &str| {
        let now = version();
        assert!(!seen.contains(&now), "{what}");
        seen.push(now);
    };
    let said = site.append_text(&store, &created, "first").await;
    differs("a commit");
    SessionStore::list(&store, SessionQuery::new()).await.unwrap();
    SessionStore::load(&store, said.id).await.unwrap();
    store.maintain().await.unwrap();
    let same = version();
    store.close().await.unwrap();
    let store = site.open().await;
    assert_eq!(version(), same, "reading, and opening again");
    store.sessions(effects).trigger(said.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    differs("a deletion");
    store.maintenance().rebuild().await.unwrap();
    differs("a rebuild");
    let deleted = SessionStore::load(&store, said.id).await.unwrap();
    SessionStore::purge(&store, Purge::new(deleted.id, deleted.head)).await.unwrap();
    differs("a purge");
    assert!(!seen.contains(&0));
}
