//! Blobs: how fast they are put, and what others see of it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agent_core::store::{BlobInfo, BlobStream, PutBlob, ReadBlob};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::at_once::{sessions, turns};
use super::place::Place;
use crate::ours::new_session;
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::compare;

/// Mebibytes of a blob that is put in one round.
const MEBIBYTES: u32 = 32;
const WRITERS: u32 = 32;
const TURNS: u32 = 8;

fn content() -> BlobStream {
    let piece: Bytes = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    stream::iter(0..MEBIBYTES).map(move |_| Ok(piece.clone())).boxed()
}

/// A blob is put, against a file that is written and synced.
pub(super) async fn put(place: &Place) -> Outcome<Figure> {
    let ours = place.new_store().await?;
    let id = new_session(ours.store.as_ref(), &ours.effects).await?.id;
    let blob = BlobInfo::of_stream(content()).await?;
    let sides = compare(
        &place.meter,
        MEBIBYTES,
        async |_| {
            ours.store.put_blob(PutBlob::new(id, blob, content())).await?;
            Ok(Vec::new())
        },
        async |_| {
            let mut file = std::fs::File::create(place.path("file"))?;
            let mut pieces = content();
            while let Some(piece) = pieces.try_next().await? {
                file.write_all(&piece)?;
            }
            file.sync_all()?;
            Ok(Vec::new())
        },
    )
    .await?;
    Ok(Figure::timed(place.backend, "a MiB of a blob is put", sides).note("floor: a file".to_owned()))
}

/// A blob is read and checked, against a file that is read.
pub(super) async fn read(place: &Place) -> Outcome<Figure> {
    let ours = place.new_store().await?;
    let id = new_session(ours.store.as_ref(), &ours.effects).await?.id;
    let blob = BlobInfo::of_stream(content()).await?;
    ours.store.put_blob(PutBlob::new(id, blob, content())).await?;
    let path = place.path("file");
    let mut pieces = content();
    let mut file = std::fs::File::create(&path)?;
    while let Some(piece) = pieces.try_next().await? {
        file.write_all(&piece)?;
    }
    let sides = compare(
        &place.meter,
        MEBIBYTES,
        async |_| {
            let mut read = ours.store.read_blob(ReadBlob::new(id, blob.name)).await?;
            while read.content.try_next().await?.is_some() {}
            Ok(Vec::new())
        },
        async |_| {
            let (mut file, mut buffer) = (std::fs::File::open(&path)?, vec![0; 256 << 10]);
            while std::io::Read::read(&mut file, &mut buffer)? > 0 {}
            Ok(Vec::new())
        },
    )
    .await?;
    Ok(Figure::timed(place.backend, "a MiB of a blob is read", sides).note("floor: a file".to_owned()))
}

/// 32 sessions commit while blobs are put without a pause, against the same without blobs.
pub(super) async fn beside(place: &Place) -> Outcome<Figure> {
    let ours = place.new_store().await?;
    let id = new_session(ours.store.as_ref(), &ours.effects).await?.id;
    let blob = BlobInfo::of_stream(content()).await?;
    let (mut with, mut without) = (sessions(&ours, WRITERS).await?, sessions(&ours, WRITERS).await?);
    let put = Arc::new(AtomicU64::new(0));
    let sides = compare(
        &place.meter,
        WRITERS * TURNS,
        async |_| {
            let ends = Arc::new(AtomicBool::new(false));
            let putting = tokio::spawn({
                let (store, ends, put) = (Arc::clone(&ours.store), ends.clone(), put.clone());
                async move {
                    while !ends.load(Ordering::Relaxed) {
                        let (ends, put) = (ends.clone(), put.clone());
                        // Ends within a blob, as soon as the others have ended.
                        let content = content().inspect_ok(move |piece| {
                            put.fetch_add(piece.len() as u64, Ordering::Relaxed);
                        });
                        let content = content.take_while(move |_| {
                            let goes_on = !ends.load(Ordering::Relaxed);
                            async move { goes_on }
                        });
                        // A put that is cut short is refused.
                        drop(store.put_blob(PutBlob::new(id, blob, content.boxed())).await);
                    }
                }
            });
            let latencies = turns(&ours, &mut with, TURNS).await;
            ends.store(true, Ordering::Relaxed);
            putting.await?;
            latencies
        },
        async |_| turns(&ours, &mut without, TURNS).await,
    )
    .await?;
    let note = format!("{} MiB of blobs were put meanwhile", put.load(Ordering::Relaxed) >> 20);
    Ok(Figure::timed(place.backend, "a turn of 32 sessions beside a blob", sides)
        .aim("1.5 times a turn without the blob, which is the floor here")
        .note(note))
}
