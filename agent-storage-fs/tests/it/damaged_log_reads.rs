//! Reads of a log that is damaged in several places show the events that its record is folded from.

use std::fs;

use crate::support::{fill, folder_of, hasty, session};
use agent_core::clock::Effects;
use agent_core::event::{Event, NewEvent};
use agent_core::store::ReadEvents;
use agent_core::{ErrorKind, Seq, SessionStore, SessionStoreExt};

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// A log of commits of one, two, one and three events, of which each line is whole or filled with zeros, in
/// every combination, or of which any lines in a row are missing, also with a commit that was torn behind them. Where the
/// record can be made, all readers show exactly its events; where it is damaged, they show what lies before the damage, name
/// it, and start behind it where they read from the end.
#[tokio::test]
async fn readers_return_the_events_of_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let mut head = Seq::new(1);
    for count in [2, 1, 3, 2] {
        let events = (0..count).map(|n| NewEvent::user_message(format!("{n} of {count}"))).collect();
        head = store.sessions(&effects).append(id, head, events).await.unwrap().last;
    }
    let events = store.read(id, ReadEvents::first(100)).await.unwrap().events;
    drop(store);
    let log = folder_of(folder.path(), id).join("events.jsonl");
    let _ = fs::remove_file(log.with_file_name("session.json"));
    let mut whole = lines(&fs::read(&log).unwrap());
    assert_eq!((whole.len(), events.len()), (9, 9));
    let torn_commit = whole.split_off(7).swap_remove(0);
    let zeros = |line: &Vec<u8>| line.iter().map(|byte| if *byte == b'\n' { b'\n' } else { 0 }).collect();
    let zeroed = (1..1 << 7).map(|case: u32| {
        let each =
            |(at, line): (usize, &Vec<u8>)| if case >> at & 1 == 1 { zeros(line) } else { line.clone() };
        (format!("zeros {case:07b}"), whole.iter().enumerate().map(each).collect::<Vec<Vec<u8>>>())
    });
    let runs = (0..7).flat_map(|from| (from + 1..=7).map(move |to| (from, to)));
    let missing =
        runs.map(|(from, to)| (format!("{from}..{to} missing"), [&whole[..from], &whole[to..]].concat()));
    let (mut torn, mut damaged) = (0, 0);
    let cases: Vec<_> = zeroed.chain(missing).collect();
    let followed = cases.iter().map(|(context, lines)| {
        let lines = lines.iter().chain([&torn_commit]).cloned().collect();
        (format!("{context}, and a torn commit"), lines)
    });
    for (context, bytes) in cases.iter().cloned().chain(followed) {
        let bytes = bytes.concat();
        fs::write(&log, &bytes).unwrap();
        let store = hasty(folder.path()).await;
        let first = store.read(id, ReadEvents::first(100)).await;
        let last = store.read(id, ReadEvents::last(100)).await;
        match SessionStore::load(&store, id).await {
            Ok(record) => {
                torn += 1;
                let there = &events[..usize::try_from(record.head.get()).unwrap()];
                for page in [first, last] {
                    let page = page.unwrap();
                    assert_eq!((page.events.as_slice(), page.damaged.len()), (there, 0), "{context}");
                }
            }
            Err(error) => {
                damaged += 1;
                assert_eq!(*error.kind(), ErrorKind::Corrupt, "{context}: {error}");
                check(&events, first, &context, |shown| events.starts_with(shown));
                check(&events, last, &context, |shown| {
                    shown.windows(2).all(|pair| pair[1].seq == pair[0].seq.next())
                });
            }
        }
    }
    assert!(torn > 10 && damaged > 100, "{torn} {damaged}");
}

fn check(
    events: &[Event],
    page: agent_core::Result<agent_core::store::EventPage>,
    context: &str,
    fits: impl Fn(&[Event]) -> bool,
) {
    match page {
        Ok(page) => {
            assert_eq!(page.damaged.len(), 1, "{context}: {page:?}");
            assert!(!page.events.is_empty() && fits(&page.events), "{context}: {page:?}");
            assert!(page.events.iter().all(|event| events.contains(event)), "{context}");
        }
        Err(error) => assert_eq!(*error.kind(), ErrorKind::Corrupt, "{context}: {error}"),
    }
}

/// A page that is full before the damage does not speak of it; the next one does.
#[tokio::test]
async fn page_before_the_damage_does_not_report_it() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    for n in 1..=7 {
        let event = NewEvent::user_message(format!("message {n}"));
        store.sessions(&effects).append(id, Seq::new(n), vec![event]).await.unwrap();
    }
    drop(store);
    let log = folder_of(folder.path(), id).join("events.jsonl");
    let mut all = lines(&fs::read(&log).unwrap());
    all[4][20] ^= 1;
    fs::write(&log, all.concat()).unwrap();
    let store = hasty(folder.path()).await;
    for (limit, named) in [(3, 0), (4, 1), (5, 1)] {
        let page = store.read(id, ReadEvents::first(limit)).await.unwrap();
        assert_eq!((page.events.len(), page.damaged.len()), (limit.min(4), named), "{limit}");
    }
    for (limit, named) in [(2, 0), (3, 1), (4, 1)] {
        let page = store.read(id, ReadEvents::last(limit)).await.unwrap();
        assert_eq!((page.events.len(), page.damaged.len()), (limit.min(3), named), "{limit}");
    }
    let page = store.read(id, ReadEvents::first(10).with_before(Seq::new(4))).await.unwrap();
    assert_eq!((page.events.len(), page.damaged.len()), (3, 0));
    let page = store.read(id, ReadEvents::last(10).with_after(Seq::new(6))).await.unwrap();
    assert_eq!((page.events.len(), page.damaged.len()), (2, 0));
}

/// A place in a long stretch that cannot be read is found by what lies before it: nothing that comes before the
/// place that was asked for is shown in its stead.
#[tokio::test]
async fn position_in_damage_yields_no_earlier_events() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = session(&store, &effects).await.id;
    for until in (100..=1000).step_by(100) {
        fill(&store, &effects, id, until).await;
    }
    fill(&store, &effects, id, 1001).await;
    drop(store);
    let log = folder_of(folder.path(), id).join("events.jsonl");
    let mut all = lines(&fs::read(&log).unwrap());
    for line in &mut all[99..998] {
        let end = line.len();
        line[end - 30] ^= 1;
    }
    fs::write(&log, all.concat()).unwrap();
    let store = hasty(folder.path()).await;
    for after in [99, 100, 500, 990] {
        let error = store.read(id, ReadEvents::first(10).with_after(Seq::new(after))).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("event 100 "), "{after}: {error}");
        let error = store.read(id, ReadEvents::last(10).with_before(Seq::new(after + 2))).await.unwrap_err();
        assert!(error.to_string().contains("event 100 "), "{after}: {error}");
    }
    let page = store.read(id, ReadEvents::first(10).with_after(Seq::new(90))).await.unwrap();
    assert_eq!((page.events.len(), page.damaged.len()), (9, 1));
    let page = store.read(id, ReadEvents::first(10).with_after(Seq::new(998))).await.unwrap();
    assert_eq!((page.events.len(), page.damaged.len()), (3, 0));
}

/// Events of two commits are no commit, though their numbers are in a row.
#[tokio::test]
async fn events_of_two_commits_do_not_form_a_commit() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let effects = Effects::default();
    let mut logs = Vec::new();
    for folder in &folders {
        let store = hasty(folder.path()).await;
        let id = session(&store, &effects).await.id;
        let two = ["one", "two"].map(NewEvent::user_message).to_vec();
        store.sessions(&effects).append(id, Seq::new(1), two).await.unwrap();
        logs.push((id, folder_of(folder.path(), id).join("events.jsonl")));
    }
    let [mine, other] = [0, 1].map(|n| lines(&fs::read(&logs[n].1).unwrap()));
    fs::write(&logs[0].1, [&mine[0][..], &mine[1], &other[2]].concat()).unwrap();
    let store = hasty(folders[0].path()).await;
    assert_eq!(SessionStore::load(&store, logs[0].0).await.unwrap().head, Seq::new(1));
    for read in [ReadEvents::first(10), ReadEvents::last(10)] {
        let page = hasty(folders[0].path()).await.read(logs[0].0, read).await.unwrap();
        assert_eq!((page.events.len(), page.damaged.len()), (1, 0));
    }
}
