//! Logs and tombstones of other formats: each is refused by its number, is never called damage, and is left as it is.

use std::fs;
use std::path::Path;

use crate::support::{append_text, files, folder_of, framed_for, hasty, session};
use agent_admin::verify::{FindingKind, verify};
use agent_core::clock::Effects;
use agent_core::commit::Trigger;
use agent_core::event::NewEvent;
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{Error, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, Storage};
use agent_storage_fs::FsStore;

/// Session of `OLD_LOG`.
const OLD_SESSION: &str = "019c60d9-9c41-715c-8289-ec2d0a9167ec";
/// A log as a version wrote it that had format 2, with its old names.
const OLD_LOG: &str = concat!(
    r#"{"seq":1,"id":"019c60d9-9c46-853c-b6d7-6cec99e07585","commit":"019c60d9-9c46-753c-b6d7-6cec99e07585","n":1,"of":1,"#,
    r#""at":"2026-02-15T10:30:00.007000Z","type":"session.created","actor":"system","transition":{"trigger":"ready","#,
    r#""from":"initializing","to":"idle","reason":"fresh"},"data":{"workspace":"default"},"crc":"f8711416"}"#,
    "\n",
    r#"{"seq":2,"id":"019c60d9-9c49-814f-9601-77dc7567fe8b","commit":"019c60d9-9c49-714f-9601-77dc7567fe8b","n":1,"of":1,"#,
    r#""at":"2026-02-15T10:30:00.010000Z","type":"user.message","actor":"user","transition":{"trigger":"begin_run","#,
    r#""from":"idle","to":"running","reason":"input","lease":{"holder":"golden","run":"019c60d9-9c48-783d-be35-de1817499667","#,
    r#""epoch":1,"ttl_ms":30000,"since":"2026-02-15T10:30:00.010000Z"},"taken":2,"arrived":0},"data":{"text":"안녕"},"crc":"8c918745"}"#,
    "\n",
);

/// How a log or a tombstone of a format begins its checksums.
fn owner(id: SessionId, format: u32) -> String {
    match format {
        1 => String::new(),
        2 => format!("default/{id}"),
        newer => format!("default/{id}/{newer}"),
    }
}

/// Lines as another format has them: the same JSON under other checksums.
fn in_format(lines: &str, id: SessionId, format: u32) -> String {
    let plain = |line: &str| format!("{}}}", &line[..line.len() - r#","crc":"xxxxxxxx"}"#.len()]);
    lines.lines().map(|line| framed_for(&owner(id, format), &plain(line))).collect()
}

/// Everything that can be asked of a session, each refused.
async fn refusals(store: &FsStore, effects: &Effects, id: SessionId) -> Vec<Error> {
    let events = || vec![NewEvent::user_message("more")];
    vec![
        SessionStore::load(store, id).await.unwrap_err(),
        store.read(id, ReadEvents::first(10)).await.unwrap_err(),
        store.read(id, ReadEvents::last(10)).await.unwrap_err(),
        store.sessions(effects).append(id, Seq::new(2), events()).await.unwrap_err(),
        store.sessions(effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap_err(),
        store.maintenance().delete_damaged(id, effects.now(), Reason::UserDeleted).await.unwrap_err(),
        store.purge(Purge::new(id, Seq::new(2))).await.unwrap_err(),
        store.sessions(effects).fork(id, None).await.unwrap_err(),
    ]
}

/// The session is refused with `says`; lists and a verification say the same, and nothing in its folder is written.
async fn is_refused(root: &Path, id: SessionId, expected: &str) {
    let folder = folder_of(root, id);
    let (store, effects, before) = (hasty(root).await, Effects::default(), files(&folder));
    for error in refusals(&store, &effects, id).await {
        assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains(folder.to_str().unwrap()), "{text}");
        assert!(!text.contains("damage"), "{text}");
    }
    let page = SessionStore::list(&store, SessionQuery::new().with_hidden()).await.unwrap();
    let found = verify(&Storage::from(store.clone()), |_| {}).await.unwrap().findings;
    assert!(page.damaged.iter().any(|it| it.reason.contains(expected)), "{page:?}");
    assert!(!found.is_empty() && found.iter().all(|it| it.detail.contains(expected)), "{found:?}");
    assert!(found.iter().all(|it| it.kind == FindingKind::Unsupported), "{found:?}");
    assert!(page.damaged.iter().all(|it| it.is_unsupported), "{page:?}");
    let rebuilt = store.maintenance().rebuild().await.unwrap();
    assert!(rebuilt.damaged.iter().any(|it| it.reason.contains(expected)), "{rebuilt:?}");
    store.close().await.unwrap();
    assert_eq!(files(&folder), before, "something was written");
}

/// Logs of formats 1 to 5, and of newer ones, also beside a snapshot that was made of them.
#[tokio::test]
async fn a_log_of_another_format_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let store = hasty(root).await;
    let id = session(&store, &effects).await.id;
    append_text(&store, &effects, id, Seq::new(1), "hello").await;
    store.maintenance().rebuild().await.unwrap();
    drop(store);
    let [log, snapshot] = ["events.jsonl", "session.json"].map(|name| folder_of(root, id).join(name));
    let [whole, record] = [&log, &snapshot].map(|path| fs::read_to_string(path).unwrap());
    for format in [1, 2, 3, 4, 5, 7, 9] {
        fs::write(&log, in_format(&whole, id, format)).unwrap();
        fs::write(&snapshot, in_format(&record, id, format)).unwrap();
        is_refused(root, id, &format!("has format {format}, which")).await;
    }
    fs::write(&log, whole).unwrap();
    assert_eq!(SessionStore::load(&hasty(root).await, id).await.unwrap().head, Seq::new(2));
}

/// Commits of a newer version behind those of this one, as if both had been used, are refused, and not moved away as a
/// torn end; also beside a snapshot that ends before them, and while the log is open.
#[tokio::test]
async fn commits_of_another_format_behind_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let store = hasty(root).await;
    let id = session(&store, &effects).await.id;
    append_text(&store, &effects, id, Seq::new(1), "hello").await;
    let [log, snapshot] = ["events.jsonl", "session.json"].map(|name| folder_of(root, id).join(name));
    let before = fs::metadata(&log).unwrap().len();
    store.maintenance().rebuild().await.unwrap();
    let (record, open) = (fs::read(&snapshot).unwrap(), hasty(root).await);
    append_text(&open, &effects, id, Seq::new(2), "again").await;
    drop(store);
    let whole = fs::read_to_string(&log).unwrap();
    let (ours, other) = whole.split_at(usize::try_from(before).unwrap());
    fs::write(&log, format!("{ours}{}", in_format(other, id, 7))).unwrap();
    for has_snapshot in [true, false] {
        if has_snapshot {
            fs::write(&snapshot, &record).unwrap();
        } else {
            fs::remove_file(&snapshot).unwrap();
        }
        is_refused(root, id, "has format 7, which").await;
    }
    // They come while a store has the log open.
    fs::write(&log, ours).unwrap();
    let open = hasty(root).await;
    append_text(&open, &effects, id, Seq::new(2), "again").await;
    let whole = fs::read_to_string(&log).unwrap();
    let next = whole[ours.len()..].replace("\"seq\":3", "\"seq\":4");
    fs::write(&log, format!("{whole}{}", in_format(&next, id, 7))).unwrap();
    let events = vec![NewEvent::user_message("more")];
    let error = open.sessions(&effects).append(id, Seq::new(3), events).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(
        !fs::read_dir(folder_of(root, id))
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with("events.tail") })
    );
}

/// A log with the names that were stored before, as it was written.
#[tokio::test]
async fn a_log_with_the_old_names_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (root, id) = (folder.path(), OLD_SESSION.parse().unwrap());
    fs::create_dir_all(folder_of(root, id)).unwrap();
    fs::write(folder_of(root, id).join("events.jsonl"), OLD_LOG).unwrap();
    is_refused(root, id, "has format 2, which was never released").await;
}

/// Tombstones of formats 1 to 5, and of a newer one.
#[tokio::test]
async fn a_tombstone_of_another_format_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (root, effects) = (folder.path(), Effects::default());
    let store = hasty(root).await;
    let id = session(&store, &effects).await.id;
    let deleted =
        store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().session;
    store.purge(Purge::new(id, deleted.head)).await.unwrap();
    drop(store);
    let path = folder_of(root, id).join("tombstone.json");
    let whole = fs::read_to_string(&path).unwrap();
    for format in [1, 2, 3, 4, 5, 7] {
        let named = whole.replace("{\"format\":6,", &format!("{{\"format\":{format},"));
        fs::write(&path, in_format(&named, id, format)).unwrap();
        is_refused(root, id, &format!("has format {format}, which")).await;
    }
    // A number that its own checksum does not fit.
    let named = whole.replace("{\"format\":6,", "{\"format\":2,");
    fs::write(&path, in_format(&named, id, 6)).unwrap();
    is_refused(root, id, "has format 2, which").await;
}
