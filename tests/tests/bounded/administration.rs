//! Verification and export of a long session: bounded memory, and progress on the way.

use std::io::Write;

use agent_admin::export::SessionExport;
use agent_admin::manifest::Manifest;
use agent_admin::verify::verify;
use agent_core::Storage;
use agent_tests::{Site, each_store};
use futures::TryStreamExt;
use tokio::time::{Instant, timeout};

use super::{Form, HEAP, STUCK, alone, long_session, many_events};

/// How much more memory may be in use at most while a session is verified or exported, of any length.
const MOST: usize = 8 << 20;

/// Checks that progress is reported at least every 1,000 events, and that the last report is near the end.
fn check_progress(what: &str, reports: &[u64], events: u64) {
    let steps = reports.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(steps.clone().all(|step| step <= 1_000), "{what}: {reports:?}");
    let (first, last) = (reports.first().copied().unwrap_or(0), reports.last().copied().unwrap_or(0));
    assert!((1..=1_000).contains(&first) && last + 1_000 > events, "{what} of {events}: {first} to {last}");
}

/// Runs `work`, and returns its result and the most memory that was in use beyond what there was before.
async fn peak<T>(what: &str, work: impl Future<Output = T>) -> (T, usize) {
    let (before, since) = (HEAP.current_usage(), Instant::now());
    HEAP.reset_peak_usage();
    let done = timeout(STUCK, work).await.expect("an operation hangs");
    let peak = HEAP.peak_usage().saturating_sub(before);
    println!("{what}: {:?}, {} KiB of memory", since.elapsed(), peak >> 10);
    (done, peak)
}

async fn verify_and_export(kind: &'static str, large: u64) {
    let mut both = Vec::new();
    for (n, least) in [large / 5, large].into_iter().enumerate() {
        let site = Site::new(kind).await.unsynced();
        let storage: Storage = site.open().await;
        let id = long_session(&storage.sessions, least, Form::Chat).await;
        let events = storage.sessions.load(id).await.unwrap().head.get();

        let mut reports = Vec::with_capacity(2 * (events as usize / 1_000 + 10));
        let what = format!("{kind}, verification of {events} events");
        let (found, verified) = peak(&what, verify(&storage, |so_far| reports.push(so_far.events))).await;
        let found = found.unwrap();
        assert_eq!(found.events, events, "{kind}");
        check_progress(&what, &reports, events);

        let (mut reports, mut bytes) = (Vec::with_capacity(events as usize / 1_000 + 10), 0);
        let what = format!("{kind}, export of {events} events");
        let file = tempfile::NamedTempFile::new().unwrap();
        let work = async {
            let export = SessionExport::read(&*storage.sessions, id, |events| reports.push(events)).await?;
            let mut pieces = export.to_json()?;
            while let Some(piece) = pieces.try_next().await? {
                file.as_file().write_all(&piece).unwrap();
                bytes += piece.len() as u64;
            }
            assert_eq!(bytes, export.document_bytes(), "{kind}");
            Ok::<_, agent_core::Error>(())
        };
        let (done, exported) = peak(&what, work).await;
        done.unwrap();
        check_progress(&what, &reports, events);
        assert!(bytes > 400 * events, "{kind}: {bytes} bytes");
        both.push((verified, exported));
        if n == 0 {
            let whole = Manifest::export(&*storage.sessions, id).await.unwrap().to_json().unwrap();
            assert!(std::fs::read(file.path()).unwrap() == whole.into_bytes(), "{kind}: the bytes differ");
        }
        storage.close().await.unwrap();
    }
    for (what, small, large) in [("verification", both[0].0, both[1].0), ("export", both[0].1, both[1].1)] {
        assert!(large < MOST, "{kind}, {what}: {large} bytes");
        assert!(
            large < small + (512 << 10),
            "{kind}, {what}: {large} bytes, {small} at a fifth of the length"
        );
    }
}

/// Verification and export of a session hold a page of it, however long it is, and report progress every 1,000 events.
async fn long_sessions_are_verified_and_exported_in_pieces(site: Site) {
    let _alone = alone().await;
    verify_and_export(site.name, many_events(20_000)).await;
}

each_store!(long_sessions_are_verified_and_exported_in_pieces and files, flavor = "multi_thread", worker_threads = 2);
