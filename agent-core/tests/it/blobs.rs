//! Blobs in the model: the names on events, what a commit needs, and the content as stores and readers see it.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{COMMIT_MAX_BLOBS, Commit, Trigger};
use agent_core::event::{
    AgentPart, DocumentWritten, Event, EventPayload, FullOutput, Media, Message, NewEvent, Part, ToolOutcome,
    ToolResult,
};
use agent_core::json::RawJson;
use agent_core::model::{Artifact, NeededBlob};
use agent_core::store::{
    BLOB_CHUNK_BYTES, BLOB_MAX_BYTES, BlobChunk, BlobContent, BlobInfo, BlobQuery, PutBlob, ReadBlob,
    SweepBlobs,
};
use agent_core::{BlobName, Error, ErrorKind, MemoryStore, Plan, Result, SessionId, SessionStore, plan};
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::time::timeout;

use crate::common::{Driver, json};

fn name(text: &str) -> BlobName {
    BlobName::of(text.as_bytes())
}

fn image(text: &str) -> Part {
    Part::Image(Media::blob("image/png", name(text), text.len() as u64))
}

#[allow(clippy::needless_pass_by_value, reason = "payloads are written in place")]
fn of(body: EventPayload) -> NewEvent {
    NewEvent::of(&body)
}

/// Plans an event, and returns it with the blobs that the commit needs.
fn planned(event: NewEvent) -> Result<(Event, Vec<NeededBlob>)> {
    let driver = Driver::created();
    match plan(driver.session.as_ref(), &driver.seal().with_event(event))? {
        Plan::Write { mut events, blobs, .. } => Ok((events.remove(0), blobs)),
        _ => panic!("it writes"),
    }
}

/// The names on an event are those of its payload: found by the library in what it knows, given by the host elsewhere.
#[test]
fn events_name_the_blobs_of_their_payload() {
    let mut two = [name("one"), name("two")];
    two.sort_unstable();
    let hologram = Part::Other(RawJson::constant(r#"{"type":"hologram","blob":"?"}"#));
    let full = ToolResult::new("c".parse().unwrap(), ToolOutcome::Ok, json("\"1 ...\""))
        .with_part(image("one"))
        .with_full(FullOutput::blob(name("two"), 3));
    let message =
        Message::new("Look").with_part(image("two")).with_part(image("one")).with_part(image("two"));
    for (event, names) in [
        (NewEvent::user_message("plain"), vec![]),
        (of(EventPayload::UserMessage(message.clone())), two.to_vec()),
        (of(EventPayload::AgentMessage(message.clone())), two.to_vec()),
        (
            NewEvent::artifact_registered(Artifact::new("a").with_blob(BlobInfo::of(b"one"))),
            vec![name("one")],
        ),
        // The same name may be given as well.
        (of(EventPayload::UserMessage(message)).with_blob(name("one")), two.to_vec()),
        (of(EventPayload::AgentPart(AgentPart::new(image("one")))), vec![name("one")]),
        (
            of(EventPayload::UserMessage(Message::new("x").with_part(hologram))).with_blob(name("one")),
            vec![name("one")],
        ),
        (NewEvent::new("x.cad.drawn".parse().unwrap(), json("1")).with_blob(name("one")), vec![name("one")]),
    ] {
        let (event, needed) = planned(event).unwrap();
        assert_eq!(event.blobs, names);
        assert_eq!(needed.iter().map(|blob| blob.name).collect::<Vec<_>>(), names);
        let line = event.to_json();
        assert_eq!(line.contains("\"blobs\""), !names.is_empty(), "{line}");
        assert_eq!(Event::from_json(&line).unwrap(), event);
    }
    // A call is open, so that its result is legal.
    let mut driver = Driver::created();
    driver.prompt();
    let call = NewEvent::tool_use("c".parse().unwrap(), "list", json("{}"));
    let commit = driver.seal_fenced().with_event(call);
    driver.commit(commit).unwrap();
    let commit = driver.seal_fenced().with_event(of(EventPayload::AgentToolResult(full)));
    let Plan::Write { events, blobs, .. } = plan(driver.session.as_ref(), &commit).unwrap() else { panic!() };
    assert_eq!(events[0].blobs, two);
    assert!(blobs.iter().all(|blob| blob.bytes == Some(3)));
}

/// What an event says of its blobs is checked when it is committed.
#[test]
fn names_without_a_reason_are_refused() {
    let new_event = |message: Message| of(EventPayload::UserMessage(message));
    let lies = Part::Image(Media::blob("image/png", name("one"), 4));
    for (event, fault) in [
        (NewEvent::user_message("plain").with_blob(name("one")), "to which its payload does not refer"),
        (
            new_event(Message::new("x").with_part(image("one"))).with_blob(name("two")),
            "to which its payload does not refer",
        ),
        (new_event(Message::new("x").with_part(image("one")).with_part(lies)), "and the event says"),
        (NewEvent::user_message("x").with_extra("blobs", json("[]")), "belongs to the header"),
    ] {
        let error = planned(event).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(fault), "{error}");
    }
    let many = |count: usize| {
        (0..count).fold(NewEvent::new("x.a.b".parse().unwrap(), json("1")), |event, n| {
            event.with_blob(name(&n.to_string()))
        })
    };
    assert_eq!(planned(many(COMMIT_MAX_BLOBS)).unwrap().1.len(), COMMIT_MAX_BLOBS);
    let error = planned(many(COMMIT_MAX_BLOBS + 1)).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{error}");
    // A document may be a manifest of blobs.
    let written = NewEvent::document_written(DocumentWritten::after(None, "manifest", Some("{}".to_owned())))
        .with_blob(name("one"));
    assert_eq!(planned(written).unwrap().0.blobs, [name("one")]);
}

/// A restored event names exactly the blobs of its payload, in order.
#[test]
fn restored_events_name_their_blobs() {
    let mut driver = Driver::created();
    let first = driver.log.clone();
    driver.event(of(EventPayload::UserMessage(Message::new("x").with_part(image("one"))))).unwrap();
    let event = driver.log.last().unwrap().clone();
    let restore = |event: Event| {
        let mut copy = Driver::nothing();
        copy.id = driver.id;
        copy.commit(Commit::restore(driver.id, first.clone()).unwrap()).unwrap();
        plan(copy.session.as_ref(), &Commit::restore(driver.id, vec![event]).unwrap())
    };
    let Plan::Write { blobs, .. } = restore(event.clone()).unwrap() else { panic!() };
    assert_eq!(blobs, [NeededBlob::new(name("one"), Some(3))]);
    let two = [name("one"), name("two")];
    for blobs in [vec![], vec![name("two")], two.to_vec(), vec![name("one"), name("one")]] {
        let mut forged = event.clone();
        forged.blobs = blobs;
        let error = restore(forged).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

fn put(session: SessionId, blob: BlobInfo, pieces: Vec<Result<Bytes>>) -> PutBlob {
    PutBlob::new(session, blob, stream::iter(pieces).boxed())
}

/// Content is stored only if it has its name and its size, in whatever pieces it comes.
#[tokio::test]
async fn content_is_checked_as_it_is_put() {
    let (store, session) =
        (MemoryStore::new(), Effects::seeded(1, "2026-02-15T10:30:00Z".parse().unwrap()).new_session_id());
    let bytes: Vec<u8> = (0..700_001u32).map(|n| (n % 251) as u8).collect();
    let blob = BlobInfo::of(&bytes);
    let pieces =
        |size: usize| bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect::<Vec<_>>();
    for size in [1, 1000, BLOB_CHUNK_BYTES - 1, BLOB_CHUNK_BYTES, BLOB_CHUNK_BYTES + 1, bytes.len()] {
        let mut with_empty = pieces(size);
        with_empty.insert(0, Ok(Bytes::new()));
        with_empty.push(Ok(Bytes::new()));
        let mut chunks = put(session, blob, with_empty).into_chunks(BLOB_MAX_BYTES).unwrap();
        let mut lengths = Vec::new();
        while let Some(chunk) = timeout(Duration::from_secs(60), chunks.next()).await.unwrap().unwrap() {
            lengths.push(chunk.len());
        }
        assert_eq!(lengths, [BLOB_CHUNK_BYTES, BLOB_CHUNK_BYTES, 700_001 - 2 * BLOB_CHUNK_BYTES], "{size}");
        assert_eq!(lengths, (0..blob.chunks()).map(|n| blob.chunk_len(n)).collect::<Vec<_>>());
    }
    assert_eq!((BlobInfo::of(b"").chunks(), blob.chunk_len(3)), (0, 0));
    let flipped = [&bytes[..bytes.len() - 1], b"!"].concat();
    let faulty = vec![
        (put(session, blob, vec![Ok(flipped.into())]), "has the SHA-256"),
        (put(session, blob, pieces(1000)[1..].to_vec()), "bytes, not 700001"),
        (put(session, blob, [pieces(1000), pieces(1000)].concat()), "more than 700001 bytes"),
        (put(session, BlobInfo::new(blob.name, 700_000), pieces(700_000)), "more than 700000 bytes"),
        (
            put(session, blob, [pieces(1000), vec![Err(Error::invalid("the disk is gone"))]].concat()),
            "the disk is gone",
        ),
    ];
    for (put, fault) in faulty {
        let error = store.blobs().put(put).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(fault), "{error}");
    }
    let huge = BlobInfo::new(blob.name, BLOB_MAX_BYTES + 1);
    let error = store.blobs().put(put(session, huge, pieces(1000))).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{error}");
    assert_eq!(store.blobs().list(BlobQuery::new(session)).await.unwrap().items, []);
    assert_eq!(store.blobs().sweep(SweepBlobs::without_session()).await.unwrap().blobs, 0);
}

/// A reader is handed no byte that was not checked, and nothing outside of its range is read.
#[tokio::test]
async fn content_is_checked_as_it_is_read() {
    let session = Effects::seeded(1, "2026-02-15T10:30:00Z".parse().unwrap()).new_session_id();
    let bytes: Bytes = (0..700_001u32).map(|n| (n % 251) as u8).collect();
    let blob = BlobInfo::of(&bytes);
    let chunk = move |bytes: &Bytes, index: u64| {
        let start = usize::try_from(index).unwrap() * BLOB_CHUNK_BYTES;
        let bytes = bytes.slice(start..start + blob.chunk_len(index));
        BlobChunk::new(bytes.clone(), Some(blob.checksum(index, &bytes)))
    };
    let size = BLOB_CHUNK_BYTES as u64;
    let reversed = std::ops::Range { start: 5, end: 3 };
    for (range, indexes) in [
        (0..u64::MAX, 0..3),
        (0..0, 0..0),
        (0..1, 0..1),
        (size - 1..size + 1, 0..2),
        (size..2 * size, 1..2),
        (700_000..700_001, 2..3),
        (700_001..900_000, 2..2),
        (reversed, 0..0),
        (u64::MAX - 1..u64::MAX, 2..2),
    ] {
        let (seen, all) = (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), bytes.clone());
        let note = seen.clone();
        let read = ReadBlob::new(session, blob.name).with_range(range.clone());
        let content = BlobContent::from_chunks(&read, blob, move |index| {
            note.lock().unwrap().push(index);
            let chunk = chunk(&all, index);
            async move { Ok(chunk) }
        });
        let within = |at: u64| usize::try_from(at.min(blob.bytes)).unwrap();
        let expected = bytes.slice(within(range.start.min(range.end))..within(range.end));
        assert_eq!(content.into_bytes(bytes.len()).await.unwrap(), expected, "{range:?}");
        assert_eq!(*seen.lock().unwrap(), indexes.collect::<Vec<_>>(), "{range:?}");
    }
    let damaged = move |fault: fn(u64, BlobChunk) -> BlobChunk| {
        let all = bytes.clone();
        let read = ReadBlob::new(session, blob.name);
        BlobContent::from_chunks(&read, blob, move |index| {
            let chunk = fault(index, chunk(&all, index));
            async move { Ok(chunk) }
        })
    };
    let flip = |index, mut chunk: BlobChunk| {
        if index == 1 {
            let mut bytes = chunk.bytes.to_vec();
            bytes[5] ^= 1;
            chunk.bytes = bytes.into();
        }
        chunk
    };
    let shorter = |index, mut chunk: BlobChunk| {
        if index == 1 {
            chunk.bytes = chunk.bytes.slice(1..);
        }
        chunk
    };
    let unchecked = |index, mut chunk: BlobChunk| {
        chunk.checksum = chunk.checksum.filter(|_| index != 1);
        chunk
    };
    for fault in [flip, shorter, unchecked] {
        let mut content = damaged(fault).content;
        assert_eq!(content.next().await.unwrap().unwrap().len(), BLOB_CHUNK_BYTES);
        let error = content.next().await.unwrap().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("chunk 1 of 3 is damaged"), "{error}");
        assert!(content.next().await.is_none());
    }
    // Other bytes, whose checksums were made to match.
    let forged = move |index, mut chunk: BlobChunk| {
        if index == 1 {
            chunk.bytes = vec![0; BLOB_CHUNK_BYTES].into();
            chunk.checksum = Some(
                BlobInfo::of(&(0..700_001u32).map(|n| (n % 251) as u8).collect::<Vec<_>>())
                    .checksum(1, &chunk.bytes),
            );
        }
        chunk
    };
    let error = damaged(forged).into_bytes(1 << 20).await.unwrap_err();
    assert!(error.to_string().contains("its bytes have the SHA-256"), "{error}");
    let error = damaged(|_, chunk| chunk).into_bytes(700_000).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{error}");
}

/// A commit that creates the session finds the blobs that were put before, and a deleted session takes none.
#[tokio::test]
async fn blobs_come_before_their_session() {
    let (store, effects) = (MemoryStore::new(), Effects::seeded(1, "2026-02-15T10:30:00Z".parse().unwrap()));
    let driver = Driver::nothing();
    let event = of(EventPayload::UserMessage(Message::new("x").with_part(image("one"))));
    let create = Commit::create(&effects, driver.new_session()).with_event(event);
    let error = store.commit(create.clone()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::BlobMissing { blobs: vec![name("one")] }, "{error}");
    store.blobs().put(PutBlob::of_bytes(driver.id, "one")).await.unwrap();
    let done = store.commit(create.clone()).await.unwrap();
    assert!(store.commit(create).await.unwrap().replayed);
    assert_eq!(store.blobs().sweep(SweepBlobs::of(driver.id)).await.unwrap().blobs, 0);
    let delete = Trigger::Delete(agent_core::state::Reason::UserDeleted);
    store.commit(Commit::seal(&effects, driver.id, done.last).with_trigger(delete)).await.unwrap();
    let error = store.blobs().put(PutBlob::of_bytes(driver.id, "two")).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deleted, "{error}");
}
