//! Deletion of a tenant: the bytes are removed from the file, and an interrupted deletion is invisible to readers.

use std::time::Duration;

use crate::support::Site;
use agent_core::commit::{Commit, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Workspace};
use agent_core::session::NewSession;
use agent_core::store::{SessionQuery, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, ErrorKind, Seq, SessionStore, SessionStoreExt, TenantId, WorkspaceId,
    WorkspaceStore, WriteOutcome,
};
use agent_storage_sqlite::SqliteStore;

const TABLES: [&str; 9] = [
    "logs",
    "events",
    "tombstones",
    "sessions",
    "labels",
    "heartbeats",
    "workspaces",
    "bindings",
    "deletions",
];

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// A workspace with a configuration, a device, and sessions with so many events each.
async fn stock(site: &Site, store: &SqliteStore, sizes: &[usize]) -> WorkspaceId {
    let effects = &site.effects;
    let id = effects.new_workspace_id();
    let place = Workspace::new(id, "sesame", effects.new_session_id(), effects.now());
    store.put(place, Precondition::MustNotExist).await.unwrap();
    store.save_config(id, Some("open = 'sesame'".to_owned()), Precondition::MustNotExist).await.unwrap();
    store.bind(&"sesame".parse().unwrap(), id, Precondition::MustNotExist).await.unwrap();
    for size in sizes {
        let new = NewSession::new(effects.new_session_id(), id)
            .with_patch(&Patch::new().with_label("sesame", "sesame"));
        let events = (0..*size).map(|n| NewEvent::user_message(format!("sesame {n} {}", "x".repeat(2000))));
        for commit in [Commit::create(effects, new).with_events(events)] {
            store.commit(commit).await.unwrap();
        }
    }
    id
}

fn rows(site: &Site) -> Vec<i64> {
    let count = |table: &&str| {
        let sql = format!("SELECT count(*) FROM {table}");
        site.raw().query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    TABLES.iter().map(count).collect()
}

/// A large tenant is removed in several transactions; no row, and no byte in the file or its log, is left of it. Other
/// tenants keep theirs.
#[tokio::test]
async fn no_byte_of_the_tenant_is_left() {
    let site = Site::new();
    let store = site.open().await;
    let [acme, other] = ["acme", "other"].map(|name| store.for_tenant(&tenant(name)));
    let kept = site.session(&other).await;
    let before = rows(&site);
    stock(&site, &acme, &[800, 900, 3]).await;
    let done = store.erase_tenant(&tenant("acme")).await.unwrap();
    assert_eq!((done.workspaces, done.sessions, done.bindings, done.rewrite_pending), (1, 3, 1, false));
    assert_eq!(rows(&site), before);
    assert!(!holds(&site, "sesame"));
    assert_eq!(SessionStore::load(&other, kept.id).await.unwrap(), kept);
    site.assert_is_whole();
}

/// Whether the file, or what lies beside it, holds the word.
fn holds(site: &Site, word: &str) -> bool {
    std::fs::read_dir(site.folder.path()).unwrap().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        bytes.windows(word.len()).any(|part| part == word.as_bytes())
    })
}

/// Writes to two tenants in turns, with words of their own, so that their rows share pages, and that SQLite moves many of
/// them from one page to another.
async fn mix(site: &Site, store: &SqliteStore) {
    let [acme, other] = ["sesame", "other"].map(|name| store.for_tenant(&tenant(name)));
    for n in 0..60 {
        for (store, word) in [(&acme, "sesame"), (&other, "barley")] {
            let labels = Patch::new().with_label("word", word.repeat(1 + n % 40));
            let new =
                NewSession::new(site.effects.new_session_id(), WorkspaceId::DEFAULT).with_patch(&labels);
            let id = store.sessions(&site.effects).create(new).await.unwrap().id;
            for m in 0..10 {
                let events = vec![NewEvent::user_message(word.repeat((n * 7 + m * 13) % 200))];
                store.sessions(&site.effects).append(id, Seq::ZERO, events).await.unwrap();
            }
        }
    }
}

/// Bytes of what a page of the file uses: its header, the numbers of its cells, and the cells. `None` for a page that is
/// no page of a tree.
fn used(page: &[u8], is_first: bool) -> Option<Vec<u8>> {
    let header = if is_first { 100 } else { 0 };
    let number = |at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
    let len = match page[header] {
        2 | 5 => 12,
        10 | 13 => 8,
        _ => return None,
    };
    let mut used = page.to_vec();
    let (cells, mut free) = (number(header + 5).max(1), number(header + 1));
    used[header + len + 2 * number(header + 3)..cells].fill(0);
    while free != 0 {
        let (next, size) = (number(free), number(free + 2));
        used[free..free + size].fill(0);
        free = next;
    }
    Some(used)
}

/// Whether a part of the file that is in use, or a page that is in no tree, holds the word.
fn holds_in_use(site: &Site, word: &str) -> bool {
    let bytes = std::fs::read(site.path()).unwrap();
    bytes.chunks(4096).enumerate().any(|(n, page)| {
        let page = used(page, n == 0).unwrap_or_else(|| page.to_vec());
        page.windows(word.len()).any(|part| part == word.as_bytes())
    })
}

/// When the deletion returns, no row, no free page and no log has a byte of the tenant; what copies SQLite has left of rows
/// that it had moved are in the unused parts of pages, and the result says so. A rewrite removes them: not even the name of
/// the tenant is left then, while the store stays open.
#[tokio::test]
async fn copies_of_moved_rows_are_left_until_the_rewrite() {
    let site = Site::new();
    let store = site.open().await;
    mix(&site, &store).await;
    assert!(store.maintenance().pending().await.unwrap().is_empty());
    let done = store.delete_tenant(&tenant("sesame")).await.unwrap();
    assert!(done.rewrite_pending);
    assert!(!holds_in_use(&site, "sesame"));
    let log = std::fs::read(site.folder.path().join("agent.db-wal")).unwrap();
    assert!(!String::from_utf8_lossy(&log).contains("sesame"));
    assert!(holds(&site, "sesame"), "else this shows nothing");

    let pending = store.maintenance().pending().await.unwrap();
    assert!(pending[0].to_string().contains("agent.db: rewrite the file"), "{pending:?}");
    assert_eq!(store.maintenance().maintain().await.unwrap(), pending);
    assert!(!holds(&site, "sesame"));
    assert!(holds(&site, "barley"));
    assert!(store.maintenance().pending().await.unwrap().is_empty());
    assert!(!store.delete_tenant(&tenant("sesame")).await.unwrap().rewrite_pending);
    site.assert_is_whole();
}

/// A pending rewrite is remembered: by another process, and when the file is opened again. What is erased while another
/// process rewrites the file stays pending.
#[tokio::test]
async fn pending_rewrite_outlives_the_process() {
    let site = Site::new();
    let store = site.open().await;
    mix(&site, &store).await;
    let other = site.open().await;
    store.delete_tenant(&tenant("sesame")).await.unwrap();
    assert_eq!(other.maintenance().pending().await.unwrap().len(), 1);
    for store in [store, other] {
        store.close().await.unwrap();
    }
    let (store, other) = (site.open().await, site.open().await);
    assert_eq!(store.maintenance().pending().await.unwrap().len(), 1);
    assert!(store.delete_tenant(&tenant("nobody")).await.unwrap().rewrite_pending, "of the earlier deletion");
    assert_eq!(other.maintenance().maintain().await.unwrap().len(), 1);
    assert!(!holds(&site, "sesame"));
    assert!(store.maintenance().maintain().await.unwrap().is_empty());
    // As another process leaves it that read the number before this deletion, and has rewritten the file before it.
    store.delete_tenant(&tenant("other")).await.unwrap();
    site.raw().execute_batch("UPDATE rewrites SET rewritten = max(rewritten, erased - 1)").unwrap();
    assert_eq!(store.maintenance().pending().await.unwrap().len(), 1);
    assert_eq!(store.maintenance().maintain().await.unwrap().len(), 1);
    assert!(!holds(&site, "barley"));
}

/// A rewrite that others hold up, or that is cut off before it is recorded, is pending as before.
#[tokio::test]
async fn rewrite_that_is_cut_off_is_still_pending() {
    let site = Site::new();
    let store = site.config().with_busy_timeout(Duration::from_millis(300)).open().await.unwrap();
    mix(&site, &store).await;
    store.delete_tenant(&tenant("sesame")).await.unwrap();
    let reader = site.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
    // The file is rewritten in the log, which cannot be emptied.
    let error = store.maintenance().maintain().await.unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("write-ahead log"), "{error}");
    assert_eq!(store.maintenance().pending().await.unwrap().len(), 1);
    reader.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
    let error = store.maintenance().maintain().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(store.maintenance().pending().await.unwrap().len(), 1);
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(store.maintenance().maintain().await.unwrap().len(), 1);
    assert!(!holds(&site, "sesame"));
    assert!(store.maintenance().pending().await.unwrap().is_empty());
}

/// While somebody reads from the file as it was, its log holds what was deleted: that is said, and the next deletion
/// removes it.
#[tokio::test]
async fn a_deletion_that_a_reader_holds_up_is_repeated() {
    let site = Site::new();
    let store = site.config().with_busy_timeout(Duration::from_millis(300)).open().await.unwrap();
    let acme = store.for_tenant(&tenant("acme"));
    stock(&site, &acme, &[3, 3]).await;
    let reader = site.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
    let error = store.delete_tenant(&tenant("acme")).await.unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("write-ahead log"), "{error}");
    assert!(holds(&site, "sesame"), "else this shows nothing");
    assert!(Backend::tenants(&store, None).await.unwrap().items.is_empty());
    reader.execute_batch("COMMIT").unwrap();

    store.erase_tenant(&tenant("acme")).await.unwrap();
    assert!(!holds(&site, "sesame"));
    site.session(&acme).await;
}

/// While a deletion waits for a reader of the log, others write: no commit waits for it.
#[tokio::test]
async fn others_write_while_a_reader_holds_up_a_deletion() {
    let site = Site::new();
    let store = site.config().with_busy_timeout(Duration::from_secs(30)).open().await.unwrap();
    stock(&site, &store.for_tenant(&tenant("acme")), &[3, 3]).await;
    let mut session = site.session(&store.for_tenant(&tenant("other"))).await;
    let reader = site.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
    let name = tenant("acme");
    let deletion = store.delete_tenant(&name);
    tokio::pin!(deletion);
    let mut writes = 0;
    while writes < 50 {
        let work = async {
            let store = store.for_tenant(&tenant("other"));
            session = site.append_text(&store, &session, "meanwhile").await;
            // The deletion has its turns.
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        tokio::select! {
            biased;
            deleted = &mut deletion => panic!("it waits for the reader: {deleted:?}"),
            () = work => writes += 1,
        }
    }
    assert!(!Backend::tenants(&store, None).await.unwrap().items.contains(&name));
    reader.execute_batch("COMMIT").unwrap();
    let deleted = tokio::time::timeout(Duration::from_secs(60), deletion).await.unwrap().unwrap();
    assert_eq!(deleted.sessions, 2);
}

/// While a deletion is cut off, every process finds the tenant empty, and writes fail until the next deletion has
/// removed the rest. The other tenants, a rebuild and the checks go on.
#[tokio::test]
async fn a_deletion_that_was_cut_off_is_seen_by_nobody() {
    let site = Site::new();
    let store = site.open().await;
    let acme = store.for_tenant(&tenant("acme"));
    let id = stock(&site, &acme, &[3, 3]).await;
    let sessions = SessionStore::list(&acme, SessionQuery::new()).await.unwrap().items;
    // As a process leaves it that was killed within the first session.
    site.raw()
        .execute_batch(
            "INSERT INTO deletions VALUES ('acme'); DELETE FROM bindings; \
             DELETE FROM events WHERE log = (SELECT min(log) FROM logs) AND seq < 3",
        )
        .unwrap();
    for reader in [acme.clone(), site.open().await.for_tenant(&tenant("acme"))] {
        for session in &sessions {
            let error = SessionStore::load(&reader, session.id).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
        }
        assert_eq!(*WorkspaceStore::load(&reader, id).await.unwrap_err().kind(), ErrorKind::NotFound);
        let page = SessionStore::list(&reader, SessionQuery::new().with_hidden().with_total()).await.unwrap();
        assert_eq!((page.items.len(), page.total, page.damaged.len()), (0, Some(0), 0));
        assert_eq!(WorkspaceStore::list(&reader, WorkspaceQuery::new()).await.unwrap().items.len(), 0);
        let new = NewSession::new(site.effects.new_session_id(), id);
        let error = reader.sessions(&site.effects).create(new).await.unwrap_err();
        let outcome = (error.kind(), error.write_outcome());
        assert_eq!(outcome, (&ErrorKind::Unavailable, WriteOutcome::NotApplied), "{error}");
        assert!(error.to_string().contains("tenant acme is being deleted"), "{error}");
    }
    assert!(Backend::tenants(&store, None).await.unwrap().items.is_empty());
    site.session(&store).await;
    assert!(store.maintenance().rebuild().await.unwrap().damaged.is_empty());
    assert_eq!(store.maintenance().check().await.unwrap(), []);
    let unfinished = async || {
        let pending = store.maintenance().pending().await.unwrap();
        pending
            .iter()
            .filter(|it| it.work.contains("the deletion of tenant acme has begun and not ended"))
            .count()
    };
    assert_eq!(unfinished().await, 1);

    let done = store.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!((done.workspaces, done.sessions, done.bindings), (1, 2, 0));
    assert_eq!(unfinished().await, 0);
    stock(&site, &acme, &[1]).await;
    assert_eq!(SessionStore::list(&acme, SessionQuery::new()).await.unwrap().items.len(), 1);
}

/// A tenant is deleted with what only a part of its rows still names, since another program deleted the others.
#[tokio::test]
async fn what_lost_its_rows_is_deleted_too() {
    for lost in ["logs", "sessions", "events", "labels"] {
        let site = Site::new();
        let store = site.open().await;
        stock(&site, &store, &[2]).await;
        site.raw().execute(&format!("DELETE FROM {lost}"), []).unwrap();
        store.delete_tenant(&TenantId::default()).await.unwrap();
        assert_eq!(rows(&site), [0; 9], "{lost}");
        assert!(store.delete_tenant(&TenantId::default()).await.unwrap().is_empty());
    }
}

/// A handle that has written to a session whose tenant another one deletes is told so by its next write. The tenant is then as
/// one that was never written to: a new session makes it again.
#[tokio::test]
async fn commit_names_the_deletion_of_its_tenant() {
    for name in ["default", "acme"] {
        let site = Site::new();
        let (one, other) = (site.open().await, site.open().await);
        let store = one.for_tenant(&tenant(name));
        let session = site.session(&store).await;
        let session = site.append_text(&store, &session, "hello").await;
        other.delete_tenant(&tenant(name)).await.unwrap();
        let error = store.commit(site.text_commit(&session, "more")).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{error}");
        let text = error.to_string();
        assert!(text.contains(&session.id.to_string()), "{text}");
        assert!(text.contains(&format!("tenant {name} has no data: it was deleted")), "{text}");

        let made = site.session(&store).await;
        site.append_text(&store, &made, "hello").await;
        let error = store.commit(site.text_commit(&session, "more")).await.unwrap_err();
        assert!(!error.to_string().contains("has no data"), "{error}");
    }
}
