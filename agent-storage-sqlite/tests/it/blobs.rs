//! Blobs: what is left of puts that do not end, and what is removed with what.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Site, content, put, read_blob, showing};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{BlobInfo, BlobQuery, Purge, PutBlob, ReadEvents, SweepBlobs, SweptBlobs};
use agent_core::{
    Backend, ErrorKind, Result, SessionId, SessionStore, SessionStoreExt, Timestamp, WorkspaceId,
};
use agent_storage_sqlite::SqliteStore;
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};

const CHUNK: usize = 256 << 10;
const HOUR: i64 = 3_600_000_000;
/// After this a test is stuck. Nothing measures time.
const PATIENCE: Duration = Duration::from_secs(60);

const CHUNKS: &str = "SELECT count(*) FROM blob_chunks";

/// A blob of three chunks, whose stream does something before the piece `at` is handed out.
fn with<F>(id: SessionId, at: usize, does: F) -> (PutBlob, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (bytes, polled) = (content(1, 3 * CHUNK), Arc::new(AtomicUsize::new(0)));
    let blob = BlobInfo::of(&bytes);
    let does = does.shared();
    let pieces: Vec<Bytes> = bytes.chunks(CHUNK).map(Bytes::copy_from_slice).collect();
    let count = polled.clone();
    let pieces = stream::iter(pieces.into_iter().enumerate()).then(move |(n, piece)| {
        let (does, count) = (does.clone(), count.clone());
        async move {
            count.fetch_add(1, Ordering::Relaxed);
            if n == at {
                does.await;
            }
            Ok(piece)
        }
    });
    (PutBlob::new(id, blob, pieces.boxed()), polled)
}

async fn delete(store: &SqliteStore, effects: &Effects, id: SessionId) -> Arc<SessionRecord> {
    store.sessions(effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().session
}

async fn opened_at(site: &Site, hours: i64) -> SqliteStore {
    let start = Timestamp::from_micros(1_771_151_400_000_000 + hours * HOUR);
    site.config().with_effects(Effects::seeded(9, start)).open().await.unwrap()
}

/// A put whose session is deleted or purged meanwhile, by this process or another, is told so, reads no more of its
/// content, and leaves nothing.
#[tokio::test]
async fn put_to_a_session_deleted_meanwhile_leaves_nothing() {
    for (purges, own, at) in
        [(false, true, 1), (true, true, 1), (true, false, 1), (true, false, 2), (false, false, 2)]
    {
        let site = Site::new();
        let store = site.open().await;
        let session = site.session(&store).await;
        let deleter = if own { store.clone() } else { site.open().await };
        let (id, effects) = (session.id, site.effects.clone());
        let (request, polled) = with(id, at, async move {
            let deleted = delete(&deleter, &effects, id).await;
            if purges {
                deleter.purge(Purge::new(id, deleted.head)).await.unwrap();
            }
        });
        let error = store.blobs().put(request).await.unwrap_err();
        let case = format!("purged: {purges}, same handle: {own}, at {at}");
        assert_eq!(*error.kind(), ErrorKind::Deleted, "{case}: {error}");
        assert_eq!(
            polled.load(Ordering::Relaxed),
            at + 1,
            "{case}: content that cannot be published is not read"
        );
        assert_eq!((site.count(CHUNKS), site.count("SELECT count(*) FROM blobs")), (0, 0), "{case}");
    }
}

/// A put that fails, is dropped or meets the end of the store leaves nothing that anybody sees. What the end of a store
/// or a kill leaves is reported as unfinished until an hour has passed, for an id with a session and for one without; also
/// if the clock ran ahead while it was put.
#[tokio::test]
async fn unfinished_put_is_reported_until_an_hour_passed() {
    for (has_session, hours) in [(true, 2), (false, 2), (true, -2), (false, -2)] {
        let site = Site::new();
        let store = opened_at(&site, 0).await;
        let id = match has_session {
            true => site.session(&store).await.id,
            false => site.effects.new_session_id(),
        };
        let sweep = if has_session { SweepBlobs::of(id) } else { SweepBlobs::without_session() };
        let closing = store.clone();
        let (request, _) = with(id, 2, async move { closing.close().await.unwrap() });
        let error = store.blobs().put(request).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");

        let store = opened_at(&site, 0).await;
        let unfinished = SweptBlobs::default().with_unfinished(2 * CHUNK as u64);
        assert_eq!(store.blobs().list(BlobQuery::new(id)).await.unwrap().items, []);
        assert_eq!(store.blobs().sweep(sweep.with_dry_run()).await.unwrap(), unfinished);
        assert_eq!(store.blobs().sweep(sweep).await.unwrap(), unfinished);
        assert_eq!(store.maintenance().check().await.unwrap(), []);
        assert_eq!(site.count(CHUNKS), 2);
        let store = opened_at(&site, hours).await;
        let swept = SweptBlobs::new(1, 2 * CHUNK as u64);
        assert_eq!(store.blobs().sweep(sweep.with_dry_run()).await.unwrap(), swept, "{hours}");
        assert_eq!(site.count(CHUNKS), 2);
        assert_eq!(store.blobs().sweep(sweep).await.unwrap(), swept, "{hours}");
        assert_eq!((site.count(CHUNKS), site.count("SELECT count(*) FROM blobs")), (0, 0));
    }
}

/// A put that is dropped half way needs no runtime to be forgotten: the next write finds its chunks deleted.
#[test]
fn dropped_put_is_deleted_without_a_runtime() {
    let site = Site::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (store, id) = runtime().block_on(async {
        let store = site.open().await;
        let id = site.session(&store).await.id;
        (store, id)
    });
    let (request, polled) = with(id, 2, std::future::pending());
    let mut putting = Box::pin(store.blobs().put(request));
    runtime().block_on(async {
        let until_half = std::future::poll_fn(|context| {
            let _ = putting.poll_unpin(context);
            if polled.load(Ordering::Relaxed) == 3 {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        });
        tokio::time::timeout(PATIENCE, until_half).await.expect("two chunks are stored");
    });
    assert_eq!(site.count(CHUNKS), 2);
    drop(putting);
    runtime().block_on(async {
        put(&store, id, content(2, 10)).await;
        assert_eq!(site.count(CHUNKS), 1);
        assert_eq!(store.blobs().sweep(SweepBlobs::of(id)).await.unwrap(), SweptBlobs::new(1, 10));
    });
}

/// While a blob is put, other sessions, and its own, are written and read, other blobs are put, and sweeps spare it.
#[tokio::test]
async fn others_write_between_the_chunks_of_a_blob() {
    let site = Arc::new(Site::new());
    let store = site.open().await;
    let session = site.session(&store).await;
    let (other, own, within) = (store.clone(), session.clone(), site.clone());
    let (request, _) = with(session.id, 1, async move {
        let more = within.session(&other).await;
        within.append_text(&other, &more, "meanwhile").await;
        within.append_text(&other, &own, "meanwhile").await;
        within.show(&other, &more, content(3, 2 * CHUNK)).await;
        let swept = other.blobs().sweep(SweepBlobs::of(own.id)).await.unwrap();
        assert_eq!(swept, SweptBlobs::default().with_unfinished(CHUNK as u64));
        other.backup(within.folder.path().join("copy.db")).await.unwrap();
    });
    let blob = request.blob;
    tokio::time::timeout(PATIENCE, store.blobs().put(request))
        .await
        .expect("nobody waits for the blob")
        .unwrap();
    assert_eq!(read_blob(&store, session.id, blob.name).await.unwrap(), content(1, 3 * CHUNK));
    // A copy that was made half way has the half, and removes it.
    let copy = SqliteStore::open(site.folder.path().join("copy.db")).await.unwrap();
    assert_eq!(copy.maintenance().check().await.unwrap(), []);
    assert_eq!(copy.blobs().list(BlobQuery::new(session.id)).await.unwrap().items, []);
    let swept = copy.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
    assert_eq!(swept.unfinished, CHUNK as u64);
}

/// A purge goes by the kept events, whatever another program has made of the column that says which event names a blob; if
/// one of these is damaged, it keeps what the column says, too.
#[tokio::test]
async fn purge_goes_by_the_kept_events() {
    for change in [
        "SELECT 1",
        "UPDATE blobs SET named = NULL",
        "UPDATE blobs SET named = 99",
        "UPDATE blobs SET named = 2",
        "UPDATE events SET json = replace(json, 'Look', 'Book') WHERE seq = 2",
    ] {
        let site = Site::new();
        let store = site.open().await;
        let session = site.session(&store).await;
        let (session, shared) = site.show(&store, &session, content(1, CHUNK + 1)).await;
        let fork = store.sessions(&site.effects).fork(session.id, None).await.unwrap();
        let (session, _) = site.show(&store, &session, content(2, CHUNK + 1)).await;
        put(&store, session.id, content(3, 10)).await;
        let deleted = delete(&store, &site.effects, session.id).await;
        site.raw().execute_batch(change).unwrap();
        for _ in 0..2 {
            store.purge(Purge::new(session.id, deleted.head)).await.unwrap();
            let listed = store.blobs().list(BlobQuery::new(session.id)).await.unwrap();
            assert_eq!(listed.items, [shared], "{change}");
            assert_eq!(site.count(CHUNKS), 2, "{change}");
        }
        let history = store.history(fork.id, ReadEvents::first(10)).await;
        let is_read = history.is_ok_and(|page| page.damaged.is_empty() && page.events.len() == 3);
        assert_eq!(is_read, !change.contains("Book"), "{change}");
        assert_eq!(read_blob(&store, session.id, shared.name).await.unwrap(), content(1, CHUNK + 1));
    }
}

/// What an event names is not swept, though another program has cleared the column that says so, or deleted the row by
/// which the session is found; of a log that cannot be read, nothing is swept.
#[tokio::test]
async fn sweep_reads_the_log_before_it_removes() {
    for (change, fails) in [
        ("UPDATE blobs SET named = NULL", false),
        ("UPDATE blobs SET named = NULL; DELETE FROM logs", false),
        ("UPDATE blobs SET named = NULL; DELETE FROM sessions", false),
        ("UPDATE blobs SET named = NULL; DELETE FROM events WHERE seq = 3", true),
        ("UPDATE blobs SET named = NULL; DELETE FROM events WHERE seq = 2", true),
        ("UPDATE blobs SET named = NULL; DELETE FROM events WHERE seq = 1", true),
        ("UPDATE blobs SET named = NULL; UPDATE events SET json = json || ' ' WHERE seq = 3", true),
    ] {
        let site = Site::new();
        let store = site.open().await;
        let session = site.session(&store).await;
        let (session, first) = site.show(&store, &session, content(1, 10)).await;
        let (session, last) = site.show(&store, &session, content(2, CHUNK + 1)).await;
        let unnamed = put(&store, session.id, content(3, 7)).await;
        site.raw().execute_batch(change).unwrap();
        let store = site.open().await;
        let without = store.blobs().sweep(SweepBlobs::without_session()).await.unwrap();
        assert_eq!(without, SweptBlobs::default(), "{change}");
        let dry = store.blobs().sweep(SweepBlobs::of(session.id).with_dry_run()).await;
        let swept = store.blobs().sweep(SweepBlobs::of(session.id)).await;
        let mut left = vec![first, last];
        if fails {
            for refused in [dry.unwrap_err(), swept.unwrap_err()] {
                assert_eq!(*refused.kind(), ErrorKind::Corrupt, "{change}: {refused}");
                assert!(refused.to_string().contains(&session.id.to_string()), "{refused}");
            }
            left.push(unnamed);
        } else {
            assert_eq!(swept.unwrap(), SweptBlobs::new(1, 7), "{change}");
            assert_eq!(site.count("SELECT count(*) FROM blobs WHERE named IN (2, 3)"), 2, "{change}");
        }
        left.sort_unstable();
        assert_eq!(store.blobs().list(BlobQuery::new(session.id)).await.unwrap().items, left, "{change}");
    }
}

/// The deletion of a tenant takes its blobs, the large ones a part at a time, also those of ids without a session, and
/// those of no other tenant.
#[tokio::test]
async fn deleted_tenant_leaves_no_blob() {
    let site = Site::new();
    let store = site.open().await;
    let bob = store.for_tenant(&"bob".parse().unwrap());
    let mut kept = Vec::new();
    for store in [&store, &bob] {
        let session = site.session(store).await;
        let (session, large) = site.show(store, &session, content(1, 37 * CHUNK)).await;
        for n in 0..20 {
            put(store, session.id, content(n, 100)).await;
        }
        put(store, site.effects.new_session_id(), content(2, 100)).await;
        kept.push((session.id, large.name));
    }
    let before = site.count("SELECT count(*) FROM blobs WHERE tenant = 'default'");
    store.delete_tenant(&"bob".parse().unwrap()).await.unwrap();
    assert_eq!(site.count("SELECT count(*) FROM blobs"), before);
    assert_eq!(site.count(CHUNKS), 37 + 21);
    let (id, name) = kept[0];
    assert_eq!(read_blob(&store, id, name).await.unwrap(), content(1, 37 * CHUNK));
    assert_eq!(store.maintenance().check().await.unwrap(), []);
    // The same number of a session and the same bytes belong to the other tenant, too.
    assert_eq!(*read_blob(&bob, kept[1].0, name).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// What a crash leaves of a removal is deleted by the next one, in any number of steps.
#[tokio::test]
async fn interrupted_removal_is_completed_by_the_next_put() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    put(&store, session.id, content(1, 40 * CHUNK)).await;
    for n in 0..50 {
        put(&store, session.id, content(n, 30)).await;
    }
    site.raw().execute_batch("UPDATE blobs SET state = 'removed'").unwrap();
    assert_eq!(store.blobs().list(BlobQuery::new(session.id)).await.unwrap().items, []);
    assert_eq!(store.maintenance().check().await.unwrap(), []);
    put(&store, session.id, content(2, 5)).await;
    assert_eq!((site.count(CHUNKS), site.count("SELECT count(*) FROM blobs")), (1, 1));
}

/// From a file that may not be written to blobs are read, listed and counted; a put is refused before it reads its content.
#[cfg(unix)]
#[tokio::test]
async fn read_only_file_gives_out_blobs_and_takes_none() {
    use std::os::unix::fs::PermissionsExt;

    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let (session, blob) = site.show(&store, &session, content(1, 3 * CHUNK)).await;
    let unnamed = put(&store, session.id, content(2, 10)).await;
    store.close().await.unwrap();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o444)).unwrap();
    let store = site.config().with_create(false).open().await.unwrap();
    assert_eq!(read_blob(&store, session.id, blob.name).await.unwrap(), content(1, 3 * CHUNK));
    assert_eq!(store.blobs().list(BlobQuery::new(session.id)).await.unwrap().items.len(), 2);
    let dry = SweepBlobs::of(session.id).with_dry_run();
    assert_eq!(store.blobs().sweep(dry).await.unwrap(), SweptBlobs::new(1, unnamed.bytes));
    let (request, polled) = with(session.id, 0, async {});
    let put = store.blobs().put(request).await.unwrap_err();
    let swept = store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap_err();
    assert_eq!((put.kind(), swept.kind()), (&ErrorKind::Denied, &ErrorKind::Denied), "{put} {swept}");
    assert_eq!(polled.load(Ordering::Relaxed), 0);
}

/// A commit that names a blob as another process sweeps it, and a put that another replaces: whoever comes last is right.
#[tokio::test]
async fn replaced_blob_is_read_on() -> Result<()> {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let (session, blob) = site.show(&store, &session, content(1, 3 * CHUNK)).await;
    let mut read = store.blobs().read(agent_core::store::ReadBlob::new(session.id, blob.name)).await?;
    let first = read.content.next().await.unwrap()?;
    put(&store, session.id, content(1, 3 * CHUNK)).await;
    let mut bytes = first.to_vec();
    while let Some(piece) = read.content.next().await {
        bytes.extend_from_slice(&piece?);
    }
    assert_eq!(bytes, content(1, 3 * CHUNK));
    assert_eq!((site.count(CHUNKS), site.count("SELECT named FROM blobs")), (3, 2));
    // Of a creation with an early blob.
    let new = NewSession::new(site.effects.new_session_id(), WorkspaceId::DEFAULT);
    let early = put(&store, new.id, content(4, 20)).await;
    store.commit(Commit::create(&site.effects, new).with_event(showing(early))).await?;
    assert_eq!(store.blobs().sweep(SweepBlobs::without_session()).await?, SweptBlobs::default());
    Ok(())
}

/// A blob of which a chunk is gone when it is published is not published: its put fails, and a put of the same succeeds.
#[tokio::test]
async fn put_that_lost_a_chunk_is_not_published() {
    let site = Arc::new(Site::new());
    let store = site.open().await;
    let id = site.session(&store).await.id;
    let within = site.clone();
    let (request, _) = with(id, 2, async move {
        assert_eq!(within.raw().execute("DELETE FROM blob_chunks WHERE n = 0", ()).unwrap(), 1);
    });
    let blob = request.blob;
    let error = store.blobs().put(request).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("put it again"), "{error}");
    assert_eq!(store.blobs().list(BlobQuery::new(id)).await.unwrap().items, []);
    assert_eq!(site.count(CHUNKS), 0);
    put(&store, id, content(1, 3 * CHUNK)).await;
    assert_eq!(read_blob(&store, id, blob.name).await.unwrap(), content(1, 3 * CHUNK));
}

/// A blob that is removed while a commit that names it waits for its turn is missing; the commit is not applied.
#[tokio::test(flavor = "multi_thread")]
async fn commit_checks_its_blobs_in_its_transaction() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let blob = put(&store, session.id, content(1, CHUNK + 1)).await;
    let commit = Commit::seal(&site.effects, session.id, session.head).with_event(showing(blob));
    let other = site.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (waiting, first) = (store.clone(), commit.clone());
    let waiting = tokio::spawn(async move { waiting.commit(first).await });
    // Whatever it does before it waits, it has the time to do; the result is the same if it has not begun.
    tokio::time::sleep(Duration::from_millis(50)).await;
    other.execute_batch("UPDATE blobs SET state = 'removed'; COMMIT").unwrap();
    let refused = waiting.await.unwrap().unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::BlobMissing { blobs: vec![blob.name] }, "{refused}");
    assert_eq!(store.load(session.id).await.unwrap().head, session.head);
    put(&store, session.id, content(1, CHUNK + 1)).await;
    store.commit(commit).await.unwrap();
}
