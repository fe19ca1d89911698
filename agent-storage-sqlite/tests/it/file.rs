//! The file: what is refused at open, what damage comes to, what people and backups read.

use std::fs;

use crate::support::Site;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{EventPayload, Media, Message, Native, NewEvent, Part};
use agent_core::json::RawJson;
use agent_core::model::{Patch, Timer};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{ErrorKind, Seq, SessionStore, Timestamp};
use agent_storage_sqlite::{SqliteConfig, SqliteStore, Sync};
use rusqlite::{Connection, Params};

async fn refusal(path: &std::path::Path) -> ErrorKind {
    let error = SqliteStore::open(path).await.unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "it names the file: {error}");
    error.kind().clone()
}

/// What is no file of this library is refused by a typed error that names it, and not touched.
#[tokio::test]
async fn foreign_file_is_refused_and_left_unchanged() {
    let site = Site::new();
    let path = site.path();
    let text = b"not a database, but somebody's notes; long enough for a header of SQLite, which has 100 bytes, and more";
    fs::write(&path, text).unwrap();
    assert_eq!(refusal(&path).await, ErrorKind::Corrupt);
    assert_eq!(fs::read(&path).unwrap(), text);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(refusal(&path).await, ErrorKind::Corrupt);
    fs::remove_dir(&path).unwrap();

    fs::write(&path, "").unwrap();
    site.raw().execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    let before = fs::read(&path).unwrap();
    assert_eq!(refusal(&path).await, ErrorKind::InvalidInput, "another application's");
    assert_eq!(fs::read(&path).unwrap(), before);
    site.raw().execute_batch("DROP TABLE recipes; PRAGMA application_id = 1").unwrap();
    assert_eq!(refusal(&path).await, ErrorKind::InvalidInput);
    site.raw().execute_batch("PRAGMA application_id = 0").unwrap();
    drop(site.open().await);

    site.raw().execute_batch("PRAGMA user_version = 9").unwrap();
    assert_eq!(refusal(&path).await, ErrorKind::Unsupported, "a newer schema");
    site.raw().execute_batch("PRAGMA user_version = 8").unwrap();
    drop(site.open().await);

    let under_a_file = path.join("agent.db");
    assert!(SqliteStore::open(&under_a_file).await.is_err());
}

/// A file of an older schema, as it was, is refused by its number with what to do, and nothing is written to it.
#[tokio::test]
async fn a_file_of_an_older_schema_is_refused_by_name() {
    for (schema, change) in [
        (
            1,
            "DROP VIEW v_sessions; DROP INDEX sessions_by_due; \
             ALTER TABLE sessions RENAME COLUMN next_due_at TO due_at; ALTER TABLE heartbeats RENAME TO beats; \
             ALTER TABLE beats RENAME COLUMN heartbeat TO beat; PRAGMA user_version = 1",
        ),
        (2, "DROP VIEW v_blobs; DROP TABLE blob_chunks; DROP TABLE blobs; PRAGMA user_version = 2"),
        (
            3,
            "DROP INDEX sessions_recent; DROP INDEX sessions_by_workspace; DROP INDEX sessions_by_state; \
             DROP INDEX sessions_by_creator; DROP INDEX sessions_by_owner; DROP INDEX sessions_by_parent; \
             ALTER TABLE sessions DROP COLUMN is_recent; PRAGMA user_version = 3",
        ),
        (4, "PRAGMA user_version = 4"),
    ] {
        let site = Site::new();
        let store = site.open().await;
        let session = site.session(&store).await;
        store.close().await.unwrap();
        let raw = site.raw();
        raw.execute_batch(change).unwrap();
        raw.close().unwrap();
        let before = fs::read(site.path()).unwrap();
        for create in [true, false] {
            let error = site.config().with_create(create).open().await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
            let text = error.to_string();
            assert!(text.contains(site.path().to_str().unwrap()), "{text}");
            assert!(text.contains(&format!("has schema {schema}, which was never released")), "{text}");
            assert!(text.contains("name another file") && !text.contains("damage"), "{text}");
            assert!(fs::read(site.path()).unwrap() == before, "something was written");
            let names = fs::read_dir(site.folder.path()).unwrap().map(|it| it.unwrap().file_name());
            assert_eq!(names.collect::<Vec<_>>(), ["agent.db"], "something was left beside it");
        }
        let found: String =
            site.raw().query_row("SELECT session FROM logs", [], |row| row.get(0)).expect("the session");
        assert_eq!(found, session.id.to_string());
    }
}

/// The log beside a file that is refused stays as it is: what another version has written there is not moved by this one.
#[tokio::test]
async fn refused_file_keeps_its_wal() {
    let site = Site::new();
    drop(site.open().await);
    for refused in ["PRAGMA user_version = 9", "PRAGMA application_id = 1"] {
        // Another program, which is killed: it leaves its log.
        let other = site.raw();
        other.execute_batch(refused).unwrap();
        let copy = tempfile::tempdir().unwrap();
        let beside = |path: &std::path::Path| std::path::PathBuf::from(format!("{}-wal", path.display()));
        let (path, log) = (copy.path().join("agent.db"), beside(&copy.path().join("agent.db")));
        fs::copy(site.path(), &path).unwrap();
        fs::copy(beside(&site.path()), &log).unwrap();
        let before = (fs::read(&path).unwrap(), fs::read(&log).unwrap());
        assert!(!before.1.is_empty(), "{refused}");
        refusal(&path).await;
        assert!(fs::read(&path).unwrap() == before.0, "{refused}: the file was changed");
        assert!(fs::read(&log).unwrap() == before.1, "{refused}: the log was changed");
    }
}

/// Options are read from an address; what is none is refused, and the known ones are named.
#[tokio::test]
async fn addresses_are_checked() {
    for bad in [
        "agent.db",
        "sqlite:",
        "sqlite:?sync=full",
        "sqlite:a?sync=fast",
        "sqlite:a?readers=0",
        "sqlite:a?readers=many",
        "sqlite:a?cache_kib=0",
        "sqlite:a?busy_timeout_ms=-1",
        "sqlite:a?mode=ro",
        "sqlite:a?sync",
        "sqlite:a%00b",
    ] {
        let error = SqliteConfig::from_url(bad).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{bad}");
        if bad.contains('=') && bad.contains("a?") {
            assert!(error.to_string().contains("sync=full|normal|off, busy_timeout_ms="), "{error}");
        }
    }
    let site = Site::new();
    let path = site.folder.path().join("a b?c.db");
    let address = format!(
        "sqlite://{}/a%20b%3fc.db?sync=off&busy_timeout_ms=10&readers=1&cache_kib=64",
        site.folder.path().display()
    );
    let store = SqliteConfig::from_url(&address).unwrap().open().await.unwrap();
    assert_eq!(store.path(), path);
    assert!(path.is_file());
    assert_eq!(store.capabilities().durability, agent_core::store::Durability::ProcessCrash);
    let full = site.config().with_sync(Sync::Full).open().await.unwrap();
    assert_eq!(full.capabilities().durability, agent_core::store::Durability::PowerLoss);
}

/// Conversations are private: the file and those beside it are for their owner only.
#[cfg(unix)]
#[tokio::test]
async fn files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;

    let site = Site::new();
    let store = site.open().await;
    site.session(&store).await;
    store.backup(site.folder.path().join("copy.db")).await.unwrap();
    let mut seen = Vec::new();
    for entry in fs::read_dir(site.folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        seen.push(entry.file_name().into_string().unwrap());
    }
    seen.sort();
    assert_eq!(seen, ["agent.db", "agent.db-shm", "agent.db-wal", "copy.db"]);
}

/// A flipped byte of an event is `Corrupt` and names it; an event that is gone is missing, not absent; the rest is
/// read, in either direction.
#[tokio::test]
async fn flipped_byte_is_reported_as_corrupt() {
    let site = Site::new();
    let store = site.open().await;
    let mut session = site.session(&store).await;
    for n in 0..9 {
        session = site.append_text(&store, &session, format!("message {n}")).await;
    }
    let whole = store.read(session.id, ReadEvents::first(100)).await.unwrap();
    let at = Seq::new(5);
    for damage in [
        "UPDATE events SET json = replace(json, 'message', 'massage') WHERE seq = 5",
        "UPDATE events SET json = CAST(x'ff' || json AS TEXT) WHERE seq = 5",
        "UPDATE events SET seq = 99 WHERE seq = 5",
        "DELETE FROM events WHERE seq IN (5, 99)",
    ] {
        site.raw().execute_batch(damage).unwrap();
        let page = store.read(session.id, ReadEvents::first(100)).await.unwrap();
        assert_eq!(page.events, whole.events[..4], "{damage}");
        assert!(page.damaged[0].to_string().contains("event 5 of session"), "{:?}", page.damaged);
        let error = store.read(session.id, ReadEvents::first(9).with_after(Seq::new(4))).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&format!("event 5 of session {}", session.id)), "{error}");
        assert!(!error.to_string().contains("message 3"), "payloads are not in errors: {error}");
        let end = if damage.contains("99") && damage.contains("UPDATE") { 9 } else { 10 };
        let rest = ReadEvents::last(100).with_after(at).with_before(Seq::new(end + 1));
        let rest = store.read(session.id, rest).await.unwrap();
        assert_eq!(rest.events, whole.events[5..end as usize], "{damage}");
    }
    assert_eq!(store.load(session.id).await.unwrap(), session, "the record is not the log");
}

/// A record, a summary, a label that is damaged or gone is rebuilt from the log, to the same answers.
#[tokio::test]
async fn derived_rows_are_rebuilt_from_the_log() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let patch = NewEvent::updated(Patch::new().with_label("project", "apollo"));
    let session = store
        .commit(Commit::seal(&site.effects, session.id, session.head).with_event(patch))
        .await
        .unwrap()
        .session;
    let session = site.append_text(&store, &session, "hello").await;
    let query = || SessionQuery::new().with_label("project", "apollo").with_total();
    let list = store.list(query()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    for damage in [
        "UPDATE sessions SET record = replace(record, 'apollo', 'apallo')",
        "UPDATE sessions SET record = 'x'",
        "UPDATE sessions SET summary = replace(summary, 'apollo', 'apallo')",
        "DELETE FROM sessions",
    ] {
        for first in ["load", "list", "read", "commit"] {
            site.raw().execute_batch(damage).unwrap();
            match first {
                "load" => assert_eq!(store.load(session.id).await.unwrap(), session, "{damage}"),
                "list" if !damage.contains("DELETE") => {
                    assert_eq!(store.list(query()).await.unwrap(), list, "{damage}");
                }
                "read" => {
                    assert_eq!(store.read(session.id, ReadEvents::first(9)).await.unwrap().events.len(), 3);
                }
                _ => {
                    let again = Commit::create(
                        &site.effects,
                        agent_core::session::NewSession::new(session.id, session.workspace),
                    );
                    let error = store.commit(again).await.unwrap_err();
                    assert_eq!(*error.kind(), ErrorKind::Conflict { head: Some(session.head) }, "{damage}");
                }
            }
            assert_eq!(store.load(session.id).await.unwrap(), session, "{damage}, {first}");
            assert_eq!(store.list(query()).await.unwrap(), list, "{damage}, {first}");
        }
    }
    site.raw().execute_batch("DELETE FROM labels").unwrap();
    assert_eq!(store.list(query()).await.unwrap().items.len(), 0);
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 1);
    assert_eq!(store.list(query()).await.unwrap(), list);
}

/// Copies taken while writes go on open, are whole, and hold everything that was acknowledged before they began.
#[tokio::test(flavor = "multi_thread")]
async fn backup_during_writes_is_consistent() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let (reported, mut acknowledged) = tokio::sync::watch::channel(session.head);
    let (writing, effects, id) = (store.clone(), site.effects.clone(), session.id);
    let writer = tokio::spawn(async move {
        use agent_core::SessionStoreExt;

        let mut seen = *reported.borrow();
        while !reported.is_closed() {
            let turn = vec![NewEvent::user_message("question"), NewEvent::agent_message("x".repeat(2000))];
            seen = writing.sessions(&effects).append(id, seen, turn).await.unwrap().last;
            let _ = reported.send(seen);
        }
    });
    for n in 0..5 {
        acknowledged.changed().await.unwrap();
        let (before, to) =
            (*acknowledged.borrow_and_update(), site.folder.path().join(format!("copy {n}.db")));
        store.backup(&to).await.unwrap();
        let error = store.backup(&to).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "nothing is replaced");
        let copy = SqliteStore::open(&to).await.unwrap();
        let head = copy.load(id).await.unwrap().head;
        assert!(head >= before, "{head} {before}");
        assert_eq!(head.get() % 2, 1, "no half of a commit");
        let page = copy.read(id, ReadEvents::last(1000)).await.unwrap();
        assert!(page.damaged.is_empty());
        assert_eq!(page.events.last().unwrap().seq, head);
    }
    drop(acknowledged);
    writer.await.unwrap();
}

/// After a purge the words are in no file of the store; the tombstone is there, also when it has to be found again.
#[tokio::test]
async fn a_purge_removes_every_byte() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let secret = "abracadabra".repeat(1000);
    let session = site.append_text(&store, &session, secret).await;
    let found = || {
        let files = fs::read_dir(site.folder.path()).unwrap();
        files
            .map(|file| fs::read(file.unwrap().path()).unwrap())
            .any(|bytes| bytes.windows(11).any(|word| word == b"abracadabra"))
    };
    assert!(found());
    let delete = Commit::seal(&site.effects, session.id, session.head)
        .with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = store.commit(delete).await.unwrap().session;
    store.purge(Purge::new(session.id, deleted.head)).await.unwrap();
    assert!(!found());
    site.raw().execute_batch("DELETE FROM sessions").unwrap();
    drop(store);
    let store = site.open().await;
    assert_eq!(store.load(session.id).await.unwrap(), deleted.tombstone().into());
    let hidden = store.list(SessionQuery::new().with_states([SessionState::Deleted])).await.unwrap();
    assert_eq!(hidden.items.len(), 1);
    assert!(store.read(session.id, ReadEvents::default()).await.unwrap().events.is_empty());
}

/// Nor is a word of what was said of the session, of what was said of it before, or of who made it: not in a column
/// either, nor on a page that became free.
#[tokio::test]
async fn purge_leaves_no_text_of_the_record() {
    let site = Site::new();
    let store = site.open().await;
    let creator = agent_core::model::Actor::named(agent_core::model::Role::User, "xyzzyplugh").unwrap();
    let long = |word: &str| agent_core::json::RawJson::of(&word.repeat(1000)).unwrap();
    let patch = Patch::new()
        .with_title(agent_core::model::Title::by_user("xyzzyplugh"))
        .with_label("xyzzyplugh", "xyzzyplugh")
        .with_metadata("cart", long("xyzzyplugh"));
    let new =
        agent_core::session::NewSession::new(site.effects.new_session_id(), agent_core::WorkspaceId::DEFAULT);
    let create = Commit::create(&site.effects, new.with_patch(&patch)).with_actor(creator.clone());
    let session = store.commit(create).await.unwrap().session;
    // What it was before leaves its pages.
    let other =
        Patch::new().with_title(agent_core::model::Title::by_user("short")).with_metadata("cart", long(""));
    let update = Commit::seal(&site.effects, session.id, session.head).with_event(NewEvent::updated(other));
    let session = store.commit(update).await.unwrap().session;
    let found = || {
        let files = fs::read_dir(site.folder.path()).unwrap();
        let files = files.map(|file| fs::read(file.unwrap().path()).unwrap());
        files.map(|bytes| bytes.windows(10).filter(|part| *part == b"xyzzyplugh").count()).sum::<usize>()
    };
    assert!(found() > 0);
    let delete = Commit::seal(&site.effects, session.id, session.head)
        .with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = store.commit(delete).await.unwrap().session;
    store.purge(Purge::new(session.id, deleted.head)).await.unwrap();
    assert_eq!(found(), 0);
    assert_eq!(store.load(session.id).await.unwrap(), deleted.tombstone().into());
    store.maintenance().rebuild().await.unwrap();
    assert_eq!((found(), store.load(session.id).await.unwrap()), (0, deleted.tombstone().into()));
    for query in [
        SessionQuery::new().with_creator(creator),
        SessionQuery::new().with_label("xyzzyplugh", "xyzzyplugh"),
    ] {
        assert_eq!(store.list(query.with_hidden()).await.unwrap().items.len(), 0);
    }
    site.assert_is_whole();
}

/// Sessions with inputs that wait, timers that are due and retries whose time has come are found across
/// sessions in the order in which they are due; no others.
#[tokio::test]
async fn due_sessions_are_found_in_order() {
    let site = Site::new();
    let store = site.open().await;
    let at = |minutes: i64| Timestamp::from_micros(1_771_151_400_000_000).plus_micros(minutes * 60_000_000);
    let mut timers = Vec::new();
    for minutes in [30, 10, 20] {
        let session = site.session(&store).await;
        let timer = NewEvent::timer_scheduled(Timer::new("daily", at(minutes)));
        let commit = Commit::seal(&site.effects, session.id, session.head).with_event(timer);
        timers.push(store.commit(commit).await.unwrap().session.id);
    }
    let waits = site.session(&store).await;
    let waits = site.append_text(&store, &waits, "an input").await;
    let fails = site.session(&store).await;
    let run = site.effects.new_run_id();
    let begin = Commit::seal(&site.effects, fails.id, fails.head)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run)));
    let began = store.commit(begin).await.unwrap();
    let failure = agent_core::model::Failure::new(Reason::RunError, "the model is away");
    let retry = Commit::seal(&site.effects, fails.id, began.last)
        .with_fence(run, began.epoch.unwrap())
        .with_trigger(Trigger::EndRun(RunEnd::retry(failure, at(25), 9)));
    store.commit(retry).await.unwrap();
    site.session(&store).await;
    let due = |minutes| {
        let store = &store;
        async move {
            let page = store.list(SessionQuery::new().with_due(at(minutes))).await.unwrap();
            page.items.into_iter().map(|session| session.id).collect::<Vec<_>>()
        }
    };
    assert_eq!(due(1).await, [waits.id]);
    assert_eq!(due(25).await, [waits.id, timers[1], timers[2], fails.id]);
    assert_eq!(due(60).await, [waits.id, timers[1], timers[2], fails.id, timers[0]]);
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 6);
    assert_eq!(due(60).await.len(), 5, "the index is made anew from the logs");
}

fn column(conn: &Connection, sql: &str, column: usize, values: impl Params) -> Vec<String> {
    let mut query = conn.prepare(sql).unwrap();
    let found = query.query_map(values, |row| row.get(column)).unwrap();
    found.collect::<rusqlite::Result<_>>().unwrap()
}

/// The views show sessions, messages and runs; those of one session are found without a look at another's.
#[tokio::test]
async fn sql_views_show_sessions_messages_and_runs() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let run = site.effects.new_run_id();
    let begin = Commit::seal(&site.effects, session.id, session.head)
        .with_event(NewEvent::user_message("Wie geht's?"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run)));
    let began = store.commit(begin).await.unwrap();
    let end = Commit::seal(&site.effects, session.id, began.last)
        .with_fence(run, began.epoch.unwrap())
        .with_event(NewEvent::agent_message("Gut."))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    store.commit(end).await.unwrap();
    let conn = site.raw();
    let texts = column(&conn, "SELECT text FROM v_messages WHERE session = ?", 0, [session.id.to_string()]);
    assert_eq!(texts, ["Wie geht's?", "Gut."]);
    assert_eq!(column(&conn, "SELECT state || head FROM v_sessions", 0, []), ["idle3"]);
    let runs = column(&conn, "SELECT run FROM v_runs WHERE events >= 1", 0, []);
    assert!(runs.contains(&run.to_string()), "{runs:?}");
    for view in ["v_messages", "v_runs"] {
        let sql =
            format!("EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE tenant = 'default' AND session = 'x'");
        let lines = column(&conn, &sql, 3, []);
        assert!(
            lines.iter().any(|line| line.starts_with("SEARCH events USING INDEX") && line.contains("log=?")),
            "{lines:?}"
        );
    }
}

/// The text of a message with parts is where that of a plain one is.
#[tokio::test]
async fn sql_views_show_the_text_beside_parts() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let cat = Part::Image(Media::inline("image/png", vec![7; 2000]).with_name("cat.png"));
    let native = Native::new("anthropic.messages", RawJson::constant(r#"{"text":"A tabby.","n":1.0}"#));
    let event = vec![
        NewEvent::from(Message::new("What is this?").with_part(cat)),
        NewEvent::of(&EventPayload::AgentMessage(Message::new("A tabby.").with_native(native))),
    ];
    let append = Commit::seal(&site.effects, session.id, session.head).with_events(event);
    store.commit(append).await.unwrap();
    let conn = site.raw();
    let texts = column(&conn, "SELECT text FROM v_messages ORDER BY seq", 0, []);
    assert_eq!(texts, ["What is this?", "A tabby."]);
    let names = "SELECT json ->> '$.data.parts[1].name' FROM events WHERE type = 'user.message'";
    assert_eq!(column(&conn, names, 0, []), ["cat.png"]);
}

/// A payload that SQLite cannot read spoils no other row of the views.
#[tokio::test]
async fn bad_payload_breaks_no_view() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let events = vec![NewEvent::user_message("one"), NewEvent::user_message("two")];
    let append = Commit::seal(&site.effects, session.id, session.head).with_events(events);
    store.commit(append).await.unwrap();
    let conn = site.raw();
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    for json in [deep.as_str(), "{\"data\":"] {
        conn.execute("UPDATE events SET json = ? WHERE seq = 2", [json]).unwrap();
        let texts = column(&conn, "SELECT coalesce(text, '?') FROM v_messages ORDER BY seq", 0, []);
        assert_eq!(texts, ["?", "two"]);
        column(&conn, "SELECT count(*) || '' FROM v_runs", 0, []);
    }
}
