//! Blobs: content comes back byte for byte, and a commit finds the blobs that it names. Concurrent or dropped calls
//! leave a blob whole or absent.

use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::store::{
    BLOB_CHUNK_BYTES, BLOB_MAX_BYTES, BlobInfo, BlobQuery, BlobStream, PutBlob, ReadBlob, ReadEvents,
    SweepBlobs,
};
use agent_core::{BlobName, Error, ErrorKind, Result, Seq, SessionId, SessionStore, Storage, TenantId};
use futures::{StreamExt, TryStreamExt, stream};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::samples::{content, showing};
use crate::stage::{Stage, dropped_after, ends, own_events, race};

pub(super) fn clauses() -> Vec<Clause> {
    table![Blobs:
        blobs_of_any_size_come_back_byte_for_byte (Needs::Blobs),
        ranges_return_the_requested_bytes (Needs::Blobs),
        blobs_are_listed_by_name_in_pages (Needs::Blobs),
        blobs_survive_reopening (Needs::Blobs),
        wrong_content_stores_nothing (Needs::Blobs),
        too_large_blob_is_refused_unread (Needs::Blobs),
        commit_without_its_blobs_is_not_applied (Needs::Blobs),
        wrong_size_in_an_event_is_refused (Needs::Blobs),
        blob_of_another_session_is_missing (Needs::Blobs),
        blobs_belong_to_one_tenant (Needs::Blobs),
        dropped_put_leaves_a_blob_whole_or_absent (Needs::Blobs),
        dropped_reader_blocks_nothing (Needs::Blobs),
        concurrent_puts_of_one_blob_succeed (Needs::Blobs),
        readers_get_right_bytes_or_an_error (Needs::Blobs),
        session_with_many_blobs_stays_usable (Needs::Blobs),
        store_without_blobs_refuses_them (Needs::NoBlobs),
    ]
}

/// Returns a stream of the bytes in pieces of these sizes, in turns. Each piece takes another poll.
fn in_pieces(bytes: &[u8], sizes: &[usize]) -> BlobStream {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, more) = rest.split_at((*size).min(rest.len()));
        pieces.push(Ok(piece.to_vec().into()));
        rest = more;
    }
    let pause = |piece| async {
        tokio::task::yield_now().await;
        piece
    };
    stream::iter(pieces).then(pause).boxed()
}

/// Puts a blob of the session.
pub(super) async fn put(storage: &Storage, session: SessionId, bytes: &[u8]) -> Checked<BlobInfo> {
    storage.sessions.blobs().put(PutBlob::of_bytes(session, bytes.to_vec())).await?;
    Ok(BlobInfo::of(bytes))
}

/// Reads a whole blob.
pub(super) async fn read(storage: &Storage, session: SessionId, name: BlobName) -> Result<Vec<u8>> {
    let read = storage.sessions.blobs().read(ReadBlob::new(session, name)).await?;
    Ok(read.into_bytes(usize::MAX).await?.to_vec())
}

/// Checks that the session has this blob, and no other bytes under its name.
pub(super) async fn is_there(what: &str, storage: &Storage, session: SessionId, blob: BlobInfo) -> Checked {
    match read(storage, session, blob.name).await {
        Ok(bytes) => same(what, &BlobInfo::of(&bytes), &blob),
        Err(error) => Err(Failure::of(what, "its bytes", &error)),
    }
}

/// Checks that the session has no such blob.
pub(super) async fn is_absent(what: &str, storage: &Storage, session: SessionId, name: BlobName) -> Checked {
    let read = storage.sessions.blobs().read(ReadBlob::new(session, name)).await;
    refused!(what, read, ErrorKind::NotFound).map(drop)
}

/// Returns the blobs of the session, from all pages.
pub(super) async fn listed(storage: &Storage, session: SessionId) -> Checked<Vec<BlobInfo>> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = storage.sessions.blobs().list(BlobQuery::new(session).with_cursor(cursor)).await?;
        same("damaged blobs", &page.damaged, &vec![])?;
        found.extend(page.items);
        ends(found.len())?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// Checks that the session has exactly these blobs, each with its bytes.
pub(super) async fn has_exactly(
    what: &str,
    storage: &Storage,
    session: SessionId,
    blobs: &[BlobInfo],
) -> Checked {
    let mut expected = blobs.to_vec();
    expected.sort_unstable();
    same(what, &listed(storage, session).await?, &expected)?;
    for blob in expected {
        is_there(what, storage, session, blob).await?;
    }
    Ok(())
}

/// Returns an event of a host's own type that names blobs.
pub(super) fn naming(blobs: impl IntoIterator<Item = BlobName>) -> Checked<NewEvent> {
    let event = NewEvent::new("x.app.drawn".parse()?, RawJson::empty_object());
    Ok(blobs.into_iter().fold(event, NewEvent::with_blob))
}

/// Blobs of sizes around those of a chunk, also an empty one, come in pieces of any size and are read byte for byte, on
/// another handle too.
async fn blobs_of_any_size_come_back_byte_for_byte(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let chunk = BLOB_CHUNK_BYTES;
    let mut blobs = Vec::new();
    for (seed, size) in [0, 1, 1000, chunk - 1, chunk, chunk + 1, 1_000_000].into_iter().enumerate() {
        let bytes = content(seed as u64, size);
        let blob = BlobInfo::of(&bytes);
        let pieces = in_pieces(&bytes, &[70_001, chunk, 0, 1, chunk + 1]);
        handles[0].sessions.blobs().put(PutBlob::new(session.id, blob, pieces)).await?;
        for handle in &handles {
            let whole = handle.sessions.blobs().read(ReadBlob::new(session.id, blob.name)).await?;
            same(
                "the size and the range of a blob",
                &(whole.blob, whole.range.clone()),
                &(blob, 0..blob.bytes),
            )?;
            let back = whole.into_bytes(size).await?;
            holds_for(format_args!("the {size} bytes that were put"), &back.len(), back == bytes)?;
        }
        blobs.push(blob);
    }
    // A blob that is there is stored again.
    put(&handles[1], session.id, &content(6, 1_000_000)).await?;
    let commit = stage.seal(&session).with_event(naming(blobs.iter().map(|blob| blob.name))?);
    handles[1].sessions.commit(commit).await?;
    has_exactly("the blobs of the session", &handles[0], session.id, &blobs).await
}

/// A range gives its bytes and no more: none, the first and the last one, across the border of a chunk, and beyond the
/// end.
async fn ranges_return_the_requested_bytes(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let bytes = content(1, 700_001);
    let (blob, size) = (put(&storage, session.id, &bytes).await?, BLOB_CHUNK_BYTES as u64);
    for (range, expected) in [
        (0..0, 0..0),
        (0..1, 0..1),
        (1..3, 1..3),
        (size - 1..size + 1, size - 1..size + 1),
        (size..2 * size, size..2 * size),
        (5..2 * size + 5, 5..2 * size + 5),
        (700_000..700_001, 700_000..700_001),
        (699_999..u64::MAX, 699_999..700_001),
        (700_001..900_000, 700_001..700_001),
        (u64::MAX - 1..u64::MAX, 700_001..700_001),
    ] {
        let request = ReadBlob::new(session.id, blob.name).with_range(range.clone());
        let part = storage.sessions.blobs().read(request).await?;
        same("the size of the whole blob", &part.blob, &blob)?;
        let back = part.into_bytes(bytes.len()).await?;
        let right = back == bytes[expected.start as usize..expected.end as usize];
        holds_for(format_args!("the bytes {expected:?}, for the range {range:?}"), &back.len(), right)?;
    }
    let absent = BlobName::of(b"absent");
    is_absent("a blob that was not put", &storage, session.id, absent).await?;
    let none = stage.effects.new_session_id();
    is_absent("a blob of an id without session", &storage, none, blob.name).await
}

/// Pages of any size list each blob once, ordered by name, with its size. A cursor of another session is refused.
async fn blobs_are_listed_by_name_in_pages(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let mut blobs = Vec::new();
    for n in 0..23 {
        blobs.push(put(&storage, session.id, &content(n, 10 + n as usize)).await?);
    }
    blobs.sort_unstable();
    let query = BlobQuery::new(session.id);
    for limit in [1, 2, 7, 22, 23, 24, 1000] {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let query = query.clone().with_limit(limit).with_cursor(cursor);
            let page = storage.sessions.blobs().list(query).await?;
            let fits = page.items.len() <= limit && (!page.items.is_empty() || page.next.is_none());
            holds_for(format_args!("a page of 1 to {limit}"), &page.items.len(), fits)?;
            found.extend(page.items);
            ends(found.len())?;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        same(format_args!("the blobs, {limit} a page"), &found, &blobs)?;
    }
    let page = storage.sessions.blobs().list(query.clone().with_limit(0)).await?;
    same("a page of none", &(page.items.len(), page.next), &(0, None))?;
    let cursor = storage.sessions.blobs().list(query.with_limit(1)).await?.next;
    let none = BlobQuery::new(stage.effects.new_session_id());
    same(
        "the blobs of an id without session",
        &storage.sessions.blobs().list(none.clone()).await?.items,
        &vec![],
    )?;
    let other = storage.sessions.blobs().list(none.with_cursor(cursor)).await;
    refused!("a cursor of another session", other, ErrorKind::InvalidInput).map(drop)
}

/// Blobs are there after reopening, named by events or not, and with a session or before it.
async fn blobs_survive_reopening(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let named = put(&storage, session.id, &content(1, 300_000)).await?;
    storage.sessions.commit(stage.seal(&session).with_event(showing(named))).await?;
    let unnamed = put(&storage, session.id, &content(2, 2000)).await?;
    let later = stage.effects.new_session_id();
    let early = put(&storage, later, &content(3, 3000)).await?;
    for _ in 0..2 {
        storage = stage.reopen(storage).await?;
        has_exactly("the blobs after reopening", &storage, session.id, &[named, unnamed]).await?;
        has_exactly("those of an id without session", &storage, later, &[early]).await?;
    }
    Ok(())
}

/// Content with other bytes, with fewer or more of them, or that fails, stores nothing; right content is stored then.
async fn wrong_content_stores_nothing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let bytes = content(1, 600_000);
    let blob = BlobInfo::of(&bytes);
    let wrong = |bytes: &[u8]| in_pieces(bytes, &[100_000]);
    let flipped = [&bytes[..599_999], &[!bytes[599_999]]].concat();
    let failing = wrong(&bytes[..500_000])
        .chain(stream::iter([Err(Error::new(ErrorKind::Denied, "the source cannot be read"))]))
        .boxed();
    for (what, size, content, kind) in [
        ("other bytes", 600_000, wrong(&flipped), ErrorKind::InvalidInput),
        ("fewer bytes", 600_000, wrong(&bytes[..599_999]), ErrorKind::InvalidInput),
        ("no bytes", 600_000, wrong(&[]), ErrorKind::InvalidInput),
        ("more bytes", 600_000, wrong(&[&*bytes, b"!"].concat()), ErrorKind::InvalidInput),
        ("a smaller size", 599_999, wrong(&bytes), ErrorKind::InvalidInput),
        ("a larger size", 600_001, wrong(&bytes), ErrorKind::InvalidInput),
        ("content that fails", 600_000, failing, ErrorKind::Denied),
    ] {
        stage.note(format_args!("put a blob with {what}"));
        let info = BlobInfo::new(blob.name, size);
        let stored = storage.sessions.blobs().put(PutBlob::new(session.id, info, content)).await;
        refused!(what, stored, found if *found == kind)?;
        is_absent(what, &storage, session.id, blob.name).await?;
        same(what, &listed(&storage, session.id).await?, &vec![])?;
        let commit = stage.seal(&session).with_event(naming([blob.name])?);
        refused!(what, storage.sessions.commit(commit).await, ErrorKind::BlobMissing { .. })?;
    }
    put(&storage, session.id, &bytes).await?;
    has_exactly("the right content", &storage, session.id, &[blob]).await
}

/// A blob over the store's limit is refused before any of its content is read.
async fn too_large_blob_is_refused_unread(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let most = storage.sessions.capabilities().blob_max_bytes;
    holds_for(format_args!("a limit of at most {BLOB_MAX_BYTES} bytes"), &most, most <= BLOB_MAX_BYTES)?;
    let blob = BlobInfo::new(BlobName::of(b"too large"), most + 1);
    let unread = stream::iter([Err(Error::new(ErrorKind::Denied, "the content was read"))]).boxed();
    let stored = storage.sessions.blobs().put(PutBlob::new(session.id, blob, unread)).await;
    refused!("a blob over the limit", stored, ErrorKind::LimitExceeded)?;
    same("the blobs", &listed(&storage, session.id).await?, &vec![])
}

/// A commit that names missing blobs is not applied, and its error names all of them. Once they are put, the same commit
/// is applied, once.
async fn commit_without_its_blobs_is_not_applied(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let contents = [content(1, 100), content(2, 300_000), content(3, 10)];
    let blobs = contents.each_ref().map(|bytes| BlobInfo::of(bytes));
    let commit = stage
        .seal(&session)
        .with_event(NewEvent::user_message("first"))
        .with_event(naming([blobs[0].name, blobs[1].name])?)
        .with_event(showing(blobs[2]));
    let mut missing = blobs.map(|blob| blob.name).to_vec();
    missing.sort_unstable();
    for bytes in &contents {
        let refused = handles[0].sessions.commit(commit.clone()).await;
        refused!("a commit", refused, ErrorKind::BlobMissing { blobs } if *blobs == missing)?;
        same("the session", &handles[1].sessions.load(session.id).await?, &session)?;
        let put = put(&handles[1], session.id, bytes).await?;
        missing.retain(|name| *name != put.name);
    }
    let done = handles[0].sessions.commit(commit.clone()).await?;
    same("its number", &done.first, &session.head.next())?;
    let again = handles[1].sessions.commit(commit).await?;
    same("the answer to the commit sent again", &(again.replayed, again.last), &(true, done.last))?;
    let events = own_events(&handles[1], session.id, 100).await?;
    same("the events", &(events.len() as u64), &done.last.get())?;
    let mut two = vec![blobs[0].name, blobs[1].name];
    two.sort_unstable();
    let named: Vec<_> =
        events[session.head.get() as usize..].iter().map(|event| event.blobs.clone()).collect();
    same("the blobs that they name", &named, &vec![vec![], two, vec![blobs[2].name]])?;
    has_exactly("the blobs", &handles[0], session.id, &blobs).await
}

/// A commit with an event that gives a blob another size than it has is refused.
async fn wrong_size_in_an_event_is_refused(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let blob = put(&storage, session.id, &content(1, 1000)).await?;
    for bytes in [0, 999, 1001] {
        let commit = stage.seal(&session).with_event(showing(BlobInfo::new(blob.name, bytes)));
        refused!(
            format_args!("a size of {bytes}"),
            storage.sessions.commit(commit).await,
            ErrorKind::InvalidInput
        )?;
    }
    same("the session", &storage.sessions.load(session.id).await?, &session)?;
    storage.sessions.commit(stage.seal(&session).with_event(showing(blob))).await.map(drop)?;
    Ok(())
}

/// A commit finds the blobs of its own session only: not those of another one, and not those of its parent.
async fn blob_of_another_session_is_missing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (parent, other) = (stage.new_session(&storage).await?, stage.new_session(&storage).await?);
    let bytes = content(1, 300_000);
    let blob = put(&storage, parent.id, &bytes).await?;
    let append = storage.sessions.commit(stage.seal(&parent).with_event(showing(blob))).await?.session;
    let fork = storage.sessions.fork(append.id, None).await?;
    for (what, session) in [("a fork", fork), ("another session", other)] {
        is_absent(what, &storage, session.id, blob.name).await?;
        same(what, &listed(&storage, session.id).await?, &vec![])?;
        let commit = stage.seal(&session).with_event(showing(blob));
        let refused = storage.sessions.commit(commit.clone()).await;
        refused!(what, refused, ErrorKind::BlobMissing { blobs } if *blobs == [blob.name])?;
        same(what, &storage.sessions.load(session.id).await?, &session)?;
        // Its own copy of the same bytes.
        put(&storage, session.id, &bytes).await?;
        storage.sessions.commit(commit).await?;
        has_exactly(what, &storage, session.id, &[blob]).await?;
    }
    has_exactly("the parent", &storage, parent.id, &[blob]).await
}

/// Blobs of one tenant are not found, named or removed by another, also under the same id of a session.
async fn blobs_belong_to_one_tenant(stage: &Stage) -> Checked {
    let one = stage.open_for(&"one".parse::<TenantId>()?).await?;
    let two = stage.open_for(&"two".parse::<TenantId>()?).await?;
    let id = stage.effects.new_session_id();
    let bytes = content(1, 1000);
    let blob = put(&one, id, &bytes).await?;
    is_absent("another tenant's blob", &two, id, blob.name).await?;
    same("the blobs of the other tenant", &listed(&two, id).await?, &vec![])?;
    let swept = two.sessions.blobs().sweep(SweepBlobs::without_session()).await?;
    same("what the other tenant removes", &(swept.blobs, swept.bytes), &(0, 0))?;
    has_exactly("the blob, where it belongs", &one, id, &[blob]).await?;
    let session = stage.new_session(&two).await?;
    put(&one, session.id, &bytes).await?;
    let commit = stage.seal(&session).with_event(naming([blob.name])?);
    refused!("a commit", two.sessions.commit(commit).await, ErrorKind::BlobMissing { .. }).map(drop)
}

/// Number of polls after which a call is dropped, at most.
const POLLS: usize = 20;

/// A put that is dropped at any point leaves the blob whole or absent, and the next put of it succeeds.
async fn dropped_put_leaves_a_blob_whole_or_absent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    for polls in 1..=POLLS {
        let bytes = content(polls as u64, 600_000);
        let blob = BlobInfo::of(&bytes);
        let request = || PutBlob::new(session.id, blob, in_pieces(&bytes, &[90_000]));
        let ended = dropped_after(storage.sessions.blobs().put(request()), polls).await;
        // It may still come to be there.
        let is_listed = listed(&storage, session.id).await?.contains(&blob);
        match read(&storage, session.id, blob.name).await {
            Ok(back) => holds_for("the bytes that were put", &back.len(), back == bytes)?,
            Err(error) if *error.kind() == ErrorKind::NotFound && !is_listed && ended.is_none() => {}
            Err(error) => {
                return Err(Failure::of("a blob whose put was dropped", "it whole, or NotFound", &error));
            }
        }
        storage.sessions.blobs().put(request()).await?;
        is_there("the blob that was put again", &storage, session.id, blob).await?;
        session = storage.sessions.commit(stage.seal(&session).with_event(showing(blob))).await?.session;
    }
    Ok(())
}

/// A read that is dropped before its end, at any point, keeps no other call from its work.
async fn dropped_reader_blocks_nothing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let bytes = content(1, 1_000_000);
    let blob = put(&storage, session.id, &bytes).await?;
    for polls in 1..=POLLS {
        drop(dropped_after(read(&storage, session.id, blob.name), polls).await);
        let mut half = storage.sessions.blobs().read(ReadBlob::new(session.id, blob.name)).await?;
        let first = half.content.try_next().await?.unwrap_or_default();
        holds_for("the first bytes", &first.len(), !first.is_empty() && bytes.starts_with(&first))?;
        drop(half);
        put(&storage, session.id, &bytes).await?;
        is_there("the blob", &storage, session.id, blob).await?;
        session = storage.sessions.commit(stage.seal(&session).with_event(showing(blob))).await?.session;
        storage.sessions.blobs().sweep(SweepBlobs::of(session.id)).await?;
    }
    is_there("the blob", &storage, session.id, blob).await
}

/// Several puts of one blob at the same time all succeed, and leave it whole.
async fn concurrent_puts_of_one_blob_succeed(stage: &Stage) -> Checked {
    let handles = stage.handles(4).await?;
    let session = stage.new_session(&handles[0]).await?;
    for round in 0..(stage.settings.rounds / 20).max(3) {
        let bytes = content(round as u64, 300_000);
        let blob = BlobInfo::of(&bytes);
        let puts = handles.iter().cloned().map(|handle| {
            let request = PutBlob::new(session.id, blob, in_pieces(&bytes, &[100_000]));
            async move { handle.sessions.blobs().put(request).await }
        });
        for stored in race(puts).await? {
            stored?;
        }
        is_there("the blob that all put", &handles[round % 4], session.id, blob).await?;
    }
    Ok(())
}

/// A reader whose blob is put again or removed meanwhile gets the right bytes, or an error.
async fn readers_get_right_bytes_or_an_error(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    for round in 0..(stage.settings.rounds / 20).max(3) {
        let bytes = content(round as u64, 1_000_000);
        let blob = put(&handles[0], session.id, &bytes).await?;
        let mut reader =
            handles[1].sessions.blobs().read(ReadBlob::new(session.id, blob.name)).await?.content;
        let mut seen = reader.try_next().await?.unwrap_or_default().to_vec();
        match round % 3 {
            0 => drop(handles[0].sessions.blobs().sweep(SweepBlobs::of(session.id)).await?),
            _ => drop(put(&handles[0], session.id, &bytes).await?),
        }
        let failed = loop {
            match reader.try_next().await {
                Ok(Some(piece)) => seen.extend_from_slice(&piece),
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        holds_for("the start of the bytes that were put", &seen.len(), bytes.starts_with(&seen))?;
        holds_for("the whole, or an error", &seen.len(), failed || seen.len() == bytes.len())?;
        if round % 3 != 0 {
            is_there("the blob after that", &handles[1], session.id, blob).await?;
        }
        // Names what is there, or not.
        put(&handles[0], session.id, &bytes).await?;
        session = handles[1].sessions.commit(stage.seal(&session).with_event(showing(blob))).await?.session;
    }
    Ok(())
}

/// A session of 2,000 blobs lists and reads them, and is loaded, read and written like another.
async fn session_with_many_blobs_stays_usable(stage: &Stage) -> Checked {
    let stage = stage.another(stage.journal.clone()).await?;
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let mut blobs = Vec::new();
    for part in 0..40 {
        let contents: Vec<_> = (0..50).map(|n| content(part * 50 + n, 40)).collect();
        let puts = contents.iter().map(|bytes| put(&storage, session.id, bytes));
        let part: Vec<BlobInfo> = stream::iter(puts.collect::<Vec<_>>()).buffered(8).try_collect().await?;
        let events = part.iter().map(|blob| showing(*blob));
        session = storage.sessions.commit(stage.seal(&session).with_events(events)).await?.session;
        blobs.extend(part);
    }
    storage = stage.reopen(storage).await?;
    same("the session", &storage.sessions.load(session.id).await?, &session)?;
    let page = storage.sessions.read(session.id, ReadEvents::last(50)).await?;
    let seqs: Vec<_> = page.events.iter().map(|event| event.seq).collect();
    let last: Vec<_> = (session.head.get() - 49..=session.head.get()).map(Seq::new).collect();
    same("the last 50 events", &seqs, &last)?;
    let one = put(&storage, session.id, b"one more").await?;
    storage.sessions.commit(stage.seal(&session).with_event(showing(one))).await?;
    for blob in [blobs[0], blobs[1000], blobs[1999], one] {
        is_there("one of the blobs", &storage, session.id, blob).await?;
    }
    blobs.push(one);
    blobs.sort_unstable();
    same("the list", &listed(&storage, session.id).await?, &blobs)
}

/// A store without blobs answers `Unsupported` to each call about them, and applies no commit that names one.
async fn store_without_blobs_refuses_them(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (id, name) = (session.id, BlobName::of(b"hello"));
    let store: &dyn SessionStore = &*storage.sessions;
    refused!("a put", store.blobs().put(PutBlob::of_bytes(id, "hello")).await, ErrorKind::Unsupported)?;
    refused!("a read", store.blobs().read(ReadBlob::new(id, name)).await, ErrorKind::Unsupported)?;
    refused!("a list", store.blobs().list(BlobQuery::new(id)).await, ErrorKind::Unsupported)?;
    for sweep in [SweepBlobs::of(id), SweepBlobs::without_session()] {
        refused!("a sweep", store.blobs().sweep(sweep).await, ErrorKind::Unsupported)?;
    }
    let commit = stage.seal(&session).with_event(naming([name])?);
    refused!("a commit", store.commit(commit).await, ErrorKind::BlobMissing { .. } | ErrorKind::Unsupported)?;
    same("the session", &storage.sessions.load(id).await?, &session)
}
