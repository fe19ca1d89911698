//! Blobs: how fast they are put, and what others see of it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_core::store::{BlobInfo, BlobStream, PutBlob, ReadBlob};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::watch;

use super::at_once::{sessions, turns};
use super::place::Place;
use crate::ours::new_session;
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::compare;

/// Mebibytes of a blob that is put in one round.
const MEBIBYTES: u32 = 32;
const WRITERS: u32 = 32;
const TURNS: u32 = 64;

fn content() -> BlobStream {
    let piece: Bytes = (0..1u32 << 18).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    stream::iter(0..MEBIBYTES * 4).map(move |_| Ok(piece.clone())).boxed()
}

/// A blob is put, against a file that is written and synced.
pub(super) async fn put(place: &Place) -> Outcome<Figure> {
    let ours = place.new_store().await?;
    let id = new_session(&ours.store).await?.id;
    let blob = BlobInfo::of_stream(content()).await?;
    let sides = compare(
        &place.meter,
        MEBIBYTES,
        async |_| {
            ours.store.blobs().put(PutBlob::new(id, blob, content())).await?;
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
    let id = new_session(&ours.store).await?.id;
    let blob = BlobInfo::of_stream(content()).await?;
    ours.store.blobs().put(PutBlob::new(id, blob, content())).await?;
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
            let mut read = ours.store.blobs().read(ReadBlob::new(id, blob.name)).await?;
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
    let id = new_session(&ours.store).await?.id;
    let blob = BlobInfo::of_stream(content()).await?;
    let (mut with, mut without) = (sessions(&ours, WRITERS).await?, sessions(&ours, WRITERS).await?);
    let put = Arc::new(AtomicU64::new(0));
    // The content of the blob stands still while the other side is measured.
    let (gate, goes_on) = watch::channel(false);
    let putting = tokio::spawn({
        let (store, put) = (ours.store.clone(), put.clone());
        async move {
            loop {
                let (put, goes_on) = (put.clone(), goes_on.clone());
                let content = content().then(move |piece| {
                    let mut goes_on = goes_on.clone();
                    put.fetch_add(piece.as_ref().map_or(0, Bytes::len) as u64, Ordering::Relaxed);
                    async move {
                        goes_on
                            .wait_for(|goes_on| *goes_on)
                            .await
                            .map_err(|error| agent_core::Error::invalid(error.to_string()))?;
                        piece
                    }
                });
                store.blobs().put(PutBlob::new(id, blob, content.boxed())).await?;
            }
            #[allow(unreachable_code, reason = "it gives the task its type")]
            Ok::<_, agent_core::Error>(())
        }
    });
    let sides = compare(
        &place.meter,
        WRITERS * TURNS,
        async |_| {
            gate.send_replace(true);
            let latencies = turns(&ours, &mut with, TURNS).await;
            gate.send_replace(false);
            latencies
        },
        async |_| turns(&ours, &mut without, TURNS).await,
    )
    .await?;
    putting.abort();
    if let Ok(failed) = putting.await {
        failed?;
    }
    let note = format!("{} MiB of blobs were put meanwhile", put.load(Ordering::Relaxed) >> 20);
    Ok(Figure::timed(place.backend, "a turn of 32 sessions beside a blob", sides)
        .aim("1.5 times a turn without the blob, which is the floor here")
        .note(note))
}
