//! Rows of blobs that another program has changed or deleted. No reader gets other bytes, the session goes on, a check
//! or a verification names the damage, and a put or a rebuild mends it.

use crate::support::{Site, content, put, read_blob, showing};
use agent_admin::verify::verify;
use agent_core::commit::Commit;
use agent_core::store::{BlobInfo, BlobQuery, ReadBlob, ReadEvents, SweepBlobs, SweptBlobs};
use agent_core::{ErrorKind, SessionId, SessionStore, Storage};
use agent_storage_sqlite::SqliteStore;
use futures::StreamExt;

const CHUNK: usize = 256 << 10;
const SIZES: [usize; 2] = [3 * CHUNK - 1, 1000];

/// Reads until the first error, which it returns. What was handed out before that has to be right.
async fn read_up_to_damage(
    store: &SqliteStore,
    id: SessionId,
    blob: BlobInfo,
    bytes: &[u8],
) -> agent_core::Error {
    let mut read = match store.blobs().read(ReadBlob::new(id, blob.name)).await {
        Ok(read) => read,
        Err(error) => return error,
    };
    let mut at = 0;
    loop {
        match read.content.next().await.expect("damage is found before the end") {
            Ok(piece) => {
                assert!(bytes[at..].starts_with(&piece), "other bytes were handed out");
                at += piece.len();
            }
            Err(error) => return error,
        }
    }
}

/// Whoever finds the damage: a check of the file, or a verification, which reads the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finds {
    Check,
    Verify,
}

/// Whatever is changed, a read never yields other bytes, and says which blob of which session is damaged and what to do; the
/// log is read, the session is written to, and putting the blob again heals it.
#[tokio::test]
async fn damaged_blob_is_never_read_and_is_healed_by_a_put() {
    use Finds::{Check, Verify};

    // The blob has the row 2, and its last chunk the number ?; the one before is another's.
    let flip = |at: &str| {
        format!(
            "UPDATE blob_chunks SET data = CAST(substr(data, 1, {at}) || x'00ff00' || substr(data, {at} + 4) AS BLOB) \
             WHERE blob = 2 AND n = LAST"
        )
    };
    let moved = "UPDATE blob_chunks SET (data, crc) = (SELECT data, crc FROM blob_chunks o WHERE o.blob = 1 AND o.n = \
                 blob_chunks.n) WHERE blob = 2 AND n = LAST";
    for (damage, finds, kind) in [
        (flip("0"), Verify, ErrorKind::Corrupt),
        (flip("500"), Verify, ErrorKind::Corrupt),
        (
            "UPDATE blob_chunks SET crc = crc + 1 WHERE blob = 2 AND n = LAST".into(),
            Verify,
            ErrorKind::Corrupt,
        ),
        ("UPDATE blob_chunks SET crc = -crc WHERE blob = 2 AND n = LAST".into(), Verify, ErrorKind::Corrupt),
        (moved.into(), Verify, ErrorKind::Corrupt),
        ("DELETE FROM blob_chunks WHERE blob = 2 AND n = LAST".into(), Check, ErrorKind::Corrupt),
        ("UPDATE blob_chunks SET n = 77 WHERE blob = 2 AND n = LAST".into(), Check, ErrorKind::Corrupt),
        (
            "UPDATE blob_chunks SET data = substr(data, 1, 100) WHERE blob = 2 AND n = LAST".into(),
            Check,
            ErrorKind::Corrupt,
        ),
        ("UPDATE blobs SET bytes = bytes + 1 WHERE blob = 2".into(), Check, ErrorKind::Corrupt),
        ("UPDATE blobs SET bytes = -1 WHERE blob = 2".into(), Check, ErrorKind::Corrupt),
        ("UPDATE blobs SET crc = crc + 1 WHERE blob = 2".into(), Check, ErrorKind::Corrupt),
        ("UPDATE blobs SET state = 'lost' WHERE blob = 2".into(), Check, ErrorKind::NotFound),
    ] {
        for size in SIZES {
            let site = Site::new();
            let store = site.open().await;
            let session = site.session(&store).await;
            let (bytes, others) = (content(1, size), content(2, size));
            let (session, other) = site.show(&store, &session, others.clone()).await;
            let (session, blob) = site.show(&store, &session, bytes.clone()).await;
            let damage = damage.replace("LAST", &(blob.chunks() - 1).to_string());
            let case = format!("{damage}, {size} bytes");
            site.raw().execute_batch(&damage).unwrap();
            let error = read_up_to_damage(&store, session.id, blob, &bytes).await;
            assert_eq!(*error.kind(), kind, "{case}: {error}");
            let text = error.to_string();
            let is_named = text.contains(&blob.name.to_string()) && text.contains(&session.id.to_string());
            assert!(is_named, "{case}: {text}");
            let found = store.maintenance().check().await.unwrap();
            let named = |found: &str| {
                found.contains(&blob.name.to_string()) && found.contains(&session.id.to_string())
            };
            assert_eq!(found.iter().any(|it| named(&it.reason)), finds == Check, "{case}: {found:?}");
            let verified = verify(&Storage::from(store.clone()), |_| ()).await.unwrap();
            assert!(verified.findings.iter().any(|it| named(&it.to_string())), "{case}: {verified:?}");
            if kind == ErrorKind::Corrupt {
                assert!(text.contains("put the blob again, or restore"), "{case}: {text}");
            }

            // Everything else goes on.
            assert_eq!(read_blob(&store, session.id, other.name).await.unwrap(), others, "{case}");
            let page = store.read(session.id, ReadEvents::first(9)).await.unwrap();
            assert_eq!((page.events.len(), page.damaged.len()), (3, 0), "{case}");
            let session = site.append_text(&store, &session, "on").await;
            let swept = store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap();
            assert_eq!(swept, SweptBlobs::default(), "{case}");
            let listed = store.blobs().list(BlobQuery::new(session.id)).await.unwrap();
            assert!(listed.items.contains(&other), "{case}: {listed:?}");

            // A writer that names it is told to put it again, if it is known to be incomplete.
            let commit = Commit::seal(&site.effects, session.id, session.head).with_event(showing(blob));
            if let Err(refused) = store.commit(commit.clone()).await {
                assert!(matches!(refused.kind(), ErrorKind::BlobMissing { .. }), "{case}: {refused}");
            }
            put(&store, session.id, bytes.clone()).await;
            assert_eq!(read_blob(&store, session.id, blob.name).await.unwrap(), bytes, "{case}");
            store.commit(commit).await.unwrap();
            let unknown = "DELETE FROM blobs WHERE state = 'lost'; DELETE FROM blob_chunks WHERE blob NOT IN \
                (SELECT blob FROM blobs)";
            if kind == ErrorKind::NotFound {
                site.raw().execute_batch(unknown).unwrap();
            }
            assert_eq!(store.maintenance().check().await.unwrap(), [], "{case}");
            let verified = verify(&Storage::from(store.clone()), |_| ()).await.unwrap();
            assert!(!verified.findings.iter().any(|it| named(&it.to_string())), "{case}: {verified:?}");
            assert_eq!(store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap(), SweptBlobs::default());
            assert_eq!(read_blob(&store, session.id, blob.name).await.unwrap(), bytes, "{case}");
        }
    }
}

/// A damaged row spoils no list: it is listed as damaged, once, on the page where it belongs.
#[tokio::test]
async fn damaged_row_is_listed_as_damaged() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let mut blobs = Vec::new();
    for n in 0..9 {
        blobs.push(put(&store, session.id, content(n, 10)).await);
    }
    blobs.sort_unstable();
    for bad in [[0, 1], [3, 4], [4, 8], [7, 8]] {
        let names = bad.map(|n| blobs[n].name.to_string());
        site.raw().execute("UPDATE blobs SET crc = crc + 1 WHERE name IN (?, ?)", names.clone()).unwrap();
        for limit in 1..=10 {
            let (mut items, mut damaged, mut cursor) = (Vec::new(), Vec::new(), None);
            loop {
                let query = BlobQuery::new(session.id).with_limit(limit).with_cursor(cursor);
                let page = store.blobs().list(query).await.unwrap();
                items.extend(page.items);
                damaged.extend(page.damaged.into_iter().map(|it| it.object));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            let sound: Vec<_> = blobs.iter().filter(|blob| !names.contains(&blob.name.to_string())).collect();
            assert_eq!(items.iter().collect::<Vec<_>>(), sound, "{bad:?}, {limit} a page");
            let objects = names.each_ref().map(|name| format!("blob {name} of session {}", session.id));
            assert_eq!(damaged, objects, "{bad:?}, {limit} a page");
        }
        site.raw().execute("UPDATE blobs SET crc = crc - 1 WHERE name IN (?, ?)", names.clone()).unwrap();
    }
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// The column that says which event names a blob is derived: a check names what the log does not show, and a rebuild, or
/// the opening of a file without records, makes it again.
#[tokio::test]
async fn named_column_is_checked_and_rebuilt() {
    let rows = "SELECT group_concat(name || ifnull(named, '-'), ' ' ORDER BY blob) FROM blobs";
    for (change, is_named) in [
        ("UPDATE blobs SET named = 99", true),
        ("UPDATE blobs SET named = 2", true),
        ("UPDATE blobs SET named = 1 WHERE named IS NULL", true),
        ("UPDATE blobs SET named = 2 WHERE state = 'unfinished'", true),
        // Known by the log alone, which a sweep and a purge read.
        ("UPDATE blobs SET named = NULL", false),
        ("UPDATE blobs SET named = 4 WHERE named = 2", false),
        ("UPDATE blobs SET named = 99; DELETE FROM sessions", true),
    ] {
        let site = Site::new();
        let store = site.open().await;
        let session = site.session(&store).await;
        let (session, first) = site.show(&store, &session, content(1, 10)).await;
        let (session, _) = site.show(&store, &session, content(2, CHUNK + 1)).await;
        let again = Commit::seal(&site.effects, session.id, session.head).with_event(showing(first));
        store.commit(again).await.unwrap();
        put(&store, session.id, content(3, 7)).await;
        let unfinished = "INSERT INTO blobs (tenant, session, state, name, bytes, at, crc) \
            SELECT tenant, session, 'unfinished', name, bytes, at, crc FROM blobs WHERE named = 2";
        site.raw().execute_batch(unfinished).unwrap();
        let before: String = site.raw().query_row(rows, [], |row| row.get(0)).unwrap();
        assert_eq!(store.maintenance().check().await.unwrap(), [], "{change}");
        site.raw().execute_batch(change).unwrap();
        let found = store.maintenance().check().await.unwrap();
        let message = |what: &str| found.iter().any(|it| it.reason.contains(what));
        assert_eq!(
            message("is not named by the event") && message("rebuild"),
            is_named,
            "{change}: {found:?}"
        );
        if change.contains("DELETE") {
            drop(store);
            site.open().await;
        } else {
            store.maintenance().rebuild().await.unwrap();
        }
        let after: String = site.raw().query_row(rows, [], |row| row.get(0)).unwrap();
        assert_eq!(after, before, "{change}");
        assert_eq!(site.open().await.maintenance().check().await.unwrap(), [], "{change}");
    }
}

/// Chunks of which the blob is gone are named with what to do, and belong to nobody; the blob is put again.
#[tokio::test]
async fn chunks_without_a_blob_are_reported() {
    let site = Site::new();
    let store = site.open().await;
    let session = site.session(&store).await;
    let (session, blob) = site.show(&store, &session, content(1, CHUNK + 1)).await;
    site.raw().execute_batch("DELETE FROM blobs; DELETE FROM sqlite_sequence").unwrap();
    let error = read_blob(&store, session.id, blob.name).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    let found = store.maintenance().check().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let remedy = "DELETE FROM blob_chunks WHERE blob = 1";
    assert!(found[0].reason.contains(remedy), "{found:?}");
    // A blob that gets the number has its own bytes.
    let other = put(&store, session.id, content(2, 2 * CHUNK)).await;
    assert_eq!(read_blob(&store, session.id, other.name).await.unwrap(), content(2, 2 * CHUNK));
    put(&store, session.id, content(1, CHUNK + 1)).await;
    assert_eq!(read_blob(&store, session.id, blob.name).await.unwrap(), content(1, CHUNK + 1));
    assert_eq!(
        store.blobs().sweep(SweepBlobs::of(session.id)).await.unwrap(),
        SweptBlobs::new(1, other.bytes)
    );
    assert_eq!(read_blob(&store, session.id, blob.name).await.unwrap(), content(1, CHUNK + 1));
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// A row of one tenant or session that another program gives to another is no blob of that one.
#[tokio::test]
async fn blob_row_given_to_another_is_damage() {
    let site = Site::new();
    let store = site.open().await;
    let bob = store.for_tenant(&"bob".parse().unwrap());
    let session = site.session(&store).await;
    let other = site.session(&store).await;
    let blob = put(&store, session.id, content(1, 10)).await;
    for change in [
        "UPDATE blobs SET tenant = 'bob'".to_owned(),
        format!("UPDATE blobs SET tenant = 'default', session = '{}'", other.id),
    ] {
        site.raw().execute_batch(&change).unwrap();
        let (reader, id) = if change.contains("bob") { (&bob, session.id) } else { (&store, other.id) };
        let error = read_blob(reader, id, blob.name).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{change}: {error}");
        assert!(!store.maintenance().check().await.unwrap().is_empty(), "{change}");
    }
}
