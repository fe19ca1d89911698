//! Another program changes the file's schema while a store has it open.

use crate::support::Site;
use agent_core::commit::Precondition;
use agent_core::model::Workspace;
use agent_core::state::SessionState;
use agent_core::store::{BindingQuery, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    BindingStore, ErrorKind, SessionStore, Timestamp, WorkspaceId, WorkspaceStore, WriteOutcome,
};
use agent_storage_sqlite::SqliteStore;

const INDEXES: [&str; 16] = [
    "sessions_by_id",
    "sessions_recent",
    "sessions_by_workspace",
    "sessions_by_state",
    "sessions_by_owner",
    "sessions_by_creator",
    "sessions_by_parent",
    "sessions_by_due",
    "labels_by_log",
    "workspaces_unowned",
    "workspaces_owned",
    "workspaces_by_owner",
    "bindings_by_workspace",
    "blobs_by_session",
    "blobs_removed",
    "blobs_unnamed",
];
const VIEWS: [&str; 4] = ["v_sessions", "v_messages", "v_runs", "v_blobs"];

/// What is there of these indexes and views.
fn derived(site: &Site) -> Vec<String> {
    let conn = site.raw();
    let mut query = conn
        .prepare("SELECT name FROM sqlite_schema WHERE type IN ('index', 'view') AND sql IS NOT NULL ORDER BY name")
        .unwrap();
    let names = query.query_map([], |row| row.get(0)).unwrap();
    names.collect::<rusqlite::Result<_>>().unwrap()
}

fn count(site: &Site, table: &str) -> i64 {
    site.raw().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// A file that another version of the library, or another application, has made its own meanwhile is refused by name as
/// it is when it is opened, and not written to; when it is as it was, the store goes on.
#[tokio::test]
async fn file_of_a_newer_version_refuses_writes() {
    for (change, kind, expected, back) in [
        ("PRAGMA user_version = 9", ErrorKind::Unsupported, "has schema 9", "PRAGMA user_version = 8"),
        ("PRAGMA user_version = 1", ErrorKind::Unsupported, "has schema 1", "PRAGMA user_version = 8"),
        ("PRAGMA user_version = 0", ErrorKind::Unsupported, "has schema 0", "PRAGMA user_version = 8"),
        (
            "PRAGMA application_id = 7",
            ErrorKind::InvalidInput,
            "another application",
            "PRAGMA application_id = 0x41474E54",
        ),
    ] {
        let site = Site::new();
        let store = site.open().await;
        let session = site.session(&store).await;
        site.raw().execute_batch(change).unwrap();
        let place = Workspace::new(site.effects.new_workspace_id(), "place", session.id, site.effects.now());
        let device = "laptop".parse().unwrap();
        for _ in 0..2 {
            let errors = [
                store.commit(site.text_commit(&session, "too late")).await.expect_err("a commit"),
                store.leases().heartbeat(session.id, session.epoch).await.expect_err("a heartbeat"),
                store.unbind(&device).await.expect_err("an unbinding"),
                store.put(place.clone(), Precondition::MustNotExist).await.expect_err("a workspace"),
                store.bind(&device, place.id, Precondition::MustNotExist).await.expect_err("a binding"),
                store.maintenance().rebuild().await.expect_err("a rebuild"),
            ];
            for error in errors {
                assert_eq!(*error.kind(), kind, "{change}: {error}");
                assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{change}: {error}");
                let text = error.to_string();
                assert!(text.contains(expected) && text.contains(site.path().to_str().unwrap()), "{text}");
            }
        }
        assert_eq!((count(&site, "events"), count(&site, "workspaces"), count(&site, "bindings")), (1, 0, 0));
        site.raw().execute_batch(back).unwrap();
        let session = site.append_text(&store, &session, "in time").await;
        assert_eq!(SessionStore::load(&store, session.id).await.unwrap(), session);
    }
}

/// All lists that walk an index.
async fn lists(store: &SqliteStore, workspace: WorkspaceId) -> agent_core::Result<usize> {
    let queries = [
        SessionQuery::new(),
        SessionQuery::new().with_workspace(workspace),
        SessionQuery::new().with_states([SessionState::Queued]),
        SessionQuery::new().with_creator(agent_core::model::Actor::USER),
        SessionQuery::new().with_parent("019c60d9-9c41-715c-8289-ec2d0a9167ec".parse()?),
        SessionQuery::new().with_due(Timestamp::from_micros(1_881_151_400_000_000)),
        SessionQuery::new().with_label("project", "apollo"),
    ];
    let mut found = 0;
    for query in queries {
        found += SessionStore::list(store, query).await?.items.len();
    }
    found += WorkspaceStore::list(store, WorkspaceQuery::new()).await?.items.len();
    let mut query = BindingQuery::new();
    query.workspace = Some(workspace);
    found += BindingStore::list(store, query).await?.items.len();
    Ok(found)
}

/// Indexes and views that another program drops while the store is open are made again: no list fails for it, and they
/// are there after the next write.
#[tokio::test]
async fn dropped_index_is_recreated() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let mut session = site.append_text(&store, &session, "hello").await;
    // One that somebody else made takes the place of none.
    site.raw().execute_batch("CREATE INDEX others ON sessions (title)").unwrap();
    let (all, found) = (derived(&site), lists(&store, session.workspace).await.unwrap());
    assert_eq!((all.len(), found), (INDEXES.len() + VIEWS.len() + 1, 4));
    for name in INDEXES.into_iter().chain(VIEWS) {
        let drop = format!("DROP {} {name}", if VIEWS.contains(&name) { "VIEW" } else { "INDEX" });
        site.raw().execute_batch(&drop).unwrap();
        assert_eq!(lists(&store, session.workspace).await.unwrap(), found, "{drop}");
        session = site.append_text(&store, &session, "on").await;
        assert_eq!(derived(&site), all, "{drop}");
        // The same, found when the file is opened.
        site.raw().execute_batch(&drop).unwrap();
        let other = site.open().await;
        assert_eq!(lists(&other, session.workspace).await.unwrap(), found, "{drop}");
        assert_eq!(derived(&site), all, "{drop}");
    }
    let drop = INDEXES.map(|name| format!("DROP INDEX {name}")).join("; ");
    site.raw().execute_batch(&drop).unwrap();
    // Only lists, and no write that somebody asked for.
    assert_eq!(lists(&store, session.workspace).await.unwrap(), found);
    assert_eq!(derived(&site), all);
    let page = store.read(session.id, ReadEvents::last(3)).await.unwrap();
    assert_eq!(page.events.len(), 3);
    site.assert_is_whole();
}

/// A table that another program drops is named as damage, and no write goes on without it.
#[tokio::test]
async fn dropped_table_is_reported_as_damage() {
    for table in [
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
    ] {
        let site = Site::new();
        let store = site.open().await;
        let session = site.session(&store).await;
        site.raw().execute_batch(&format!("DROP TABLE {table}")).unwrap();
        let error = store.commit(site.text_commit(&session, "too late")).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{table}: {error}");
        assert!(error.to_string().contains(&format!("table {table}")), "{error}");
        drop(store);
        let error = SqliteStore::open(site.path()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{table}: {error}");
        assert!(error.to_string().contains(&format!("table {table}")), "{error}");
    }
}

/// What a neighbour adds to the tables: a trigger changes nothing that this library writes, and is named; so is an index
/// that refuses rows, and a table that is not as it was made.
#[tokio::test]
async fn foreign_schema_objects_are_named_and_harmless() {
    for (sql, name) in [
        ("CREATE TRIGGER swallow BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END", "swallow"),
        ("CREATE TRIGGER forget AFTER INSERT ON logs BEGIN DELETE FROM bindings; END", "forget"),
        ("CREATE UNIQUE INDEX only_one ON events (seq, log)", "only_one"),
        ("ALTER TABLE events ADD COLUMN mine TEXT", "events"),
        ("DROP VIEW v_runs; CREATE VIEW v_runs AS SELECT 1", "v_runs"),
    ] {
        let site = Site::new();
        let store = site.open().await;
        let session = site.session(&store).await;
        let device = "laptop".parse().unwrap();
        store.bind(&device, WorkspaceId::DEFAULT, Precondition::MustNotExist).await.unwrap();
        site.raw().execute_batch(sql).unwrap();
        for store in [store, site.open().await] {
            let now = SessionStore::load(&store, session.id).await.unwrap();
            let now = site.append_text(&store, &now, "kept").await;
            let page = store.read(now.id, ReadEvents::first(10)).await.unwrap();
            assert_eq!(page.events.len() as u64, now.head.get(), "{sql}: acknowledged and not there");
            site.session(&store).await;
            assert!(store.resolve(&device).await.unwrap().is_some(), "{sql}: it did something");
            let found = store.maintenance().check().await.unwrap();
            let named = found.iter().any(|it| it.reason.contains(name));
            assert!(found.len() == 1 && named, "{sql}: {found:?}");
        }
    }
    let site = Site::new();
    let store = site.open().await;
    // What does not touch the tables is a neighbour's own.
    site.raw()
        .execute_batch("CREATE TABLE theirs (a, b UNIQUE); CREATE INDEX mine ON sessions (title); ANALYZE")
        .unwrap();
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// A file whose `user_version` somebody has set to 0 is refused by name, with what to do, and without the library's SQL.
#[tokio::test]
async fn user_version_zero_is_refused_by_name() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    store.close().await.unwrap();
    site.raw().execute_batch("PRAGMA user_version = 0").unwrap();
    for create in [true, false] {
        let error = site.config().with_create(create).open().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
        let message = format!("{error} {:?}", std::error::Error::source(&error));
        assert!(message.contains(site.path().to_str().unwrap()), "{message}");
        assert!(message.contains("user_version = 8") && !message.contains("CREATE TABLE"), "{message}");
    }
    site.raw().execute_batch("PRAGMA user_version = 8").unwrap();
    assert_eq!(SessionStore::load(&site.open().await, session.id).await.unwrap(), session);
}
