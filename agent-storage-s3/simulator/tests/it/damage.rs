//! Damaged objects: what can still be read is read, and what is lost is named.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Trigger;
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{ErrorKind, SessionId, SessionStore, SessionStoreExt, WorkspaceId};
use agent_storage_s3::S3Store;
use s3_simulator::Simulator;

use crate::backend::config;

/// A session whose newest commits are damaged in whatever way can be read up to the commit before them, so that it can be
/// salvaged. Each page names the damage, the record is refused, and nothing can be written.
#[tokio::test(start_paused = true)]
async fn events_before_a_damaged_head_are_read() {
    for damaged in 1..=7 {
        for kind in ["empty", "foreign", "header", "half"] {
            let simulator = Simulator::new(1);
            let effects = Effects::default();
            let store = config(&simulator, "a").open().await.unwrap();
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let mut session = store.sessions(&effects).create(new).await.unwrap();
            for n in 0..6 {
                let events = vec![NewEvent::user_message(format!("message {n}"))];
                session =
                    store.sessions(&effects).append(session.id, session.head, events).await.unwrap().session;
            }
            let other = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let other = store.sessions(&effects).create(other).await.unwrap().id.to_string();
            let slots = |id: &str| {
                let keys = simulator.keys().into_iter();
                keys.filter(|key| key.contains("/c/") && key.contains(id)).collect::<Vec<_>>()
            };
            // The newest are listed first.
            for key in &slots(&session.id.to_string())[..damaged] {
                let body = simulator.object(key).unwrap();
                simulator.put_object(
                    key,
                    match kind {
                        "empty" => Vec::new(),
                        "foreign" => simulator.object(&slots(&other)[0]).unwrap().to_vec(),
                        "header" => [b"x", &body[1..]].concat(),
                        _ => body[..body.len() / 2].to_vec(),
                    },
                );
            }
            let store = config(&simulator, "b").open().await.unwrap();
            let what = format!("{damaged} {kind}");
            let read = store.read(session.id, ReadEvents::first(100)).await;
            let left = 7 - damaged as u64;
            if left == 0 {
                assert_eq!(*read.unwrap_err().kind(), ErrorKind::Corrupt, "{what}");
                continue;
            }
            let page = read.unwrap_or_else(|error| panic!("{what}: {error}"));
            let found: Vec<_> = page.events.iter().map(|event| event.seq.get()).collect();
            assert!(found.len() as u64 >= left, "{what}: {found:?}");
            assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "{what}");
            assert!(!page.damaged.is_empty() && page.next.is_none(), "{what}: {page:?}");
            // Whoever has read all that is left is told that it is not the end.
            let after = ReadEvents::first(100).with_after(page.events.last().unwrap().seq);
            let beyond = store.read(session.id, after).await;
            assert_eq!(*beyond.unwrap_err().kind(), ErrorKind::Corrupt, "{what}");
            // Of half an object the record may be left.
            if kind != "half" {
                // What is left is not the newest.
                let last = store.read(session.id, ReadEvents::last(1)).await.unwrap_err();
                assert_eq!(*last.kind(), ErrorKind::Corrupt, "{what}");
                assert_eq!(*store.load(session.id).await.unwrap_err().kind(), ErrorKind::Corrupt, "{what}");
                let more = vec![NewEvent::user_message("more")];
                let done = store.sessions(&effects).append(session.id, session.head, more).await;
                assert!(done.is_err(), "{what}");
            }
        }
    }
}

/// A way to damage an object: what is put in its place, or nothing if it is removed.
type Damage = fn(&[u8], &[u8]) -> Option<Vec<u8>>;

/// Each with its name; the second argument is an object of another session.
const DAMAGES: [(&str, Damage); 7] = [
    ("missing", |_, _| None),
    ("empty", |_, _| Some(Vec::new())),
    ("foreign", |_, other| Some(other.to_vec())),
    ("header", |body, _| Some([b"x", &body[1..]].concat())),
    ("record", |body, _| {
        let mut lines: Vec<Vec<u8>> =
            body.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines[1][20] ^= 1;
        Some(lines.concat())
    }),
    ("half", |body, _| Some(body[..body.len() / 2].to_vec())),
    ("cut", |body, _| {
        Some(body[..body.len() - 1].rsplitn(2, |byte| *byte == b'\n').nth(1).unwrap().to_vec())
    }),
];

/// Deletes a session like hosts do: by a commit, or as a damaged one if that is refused.
async fn delete(store: &S3Store, effects: &Effects, id: SessionId) -> Arc<SessionRecord> {
    match store.sessions(effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await {
        Err(error) if *error.kind() == ErrorKind::Corrupt => {
            store.maintenance().delete_damaged(id, effects.now(), Reason::UserDeleted).await.unwrap()
        }
        done => done.unwrap().session,
    }
}

/// The keys of a session's slots, the newest first.
fn slots_of(simulator: &Simulator, id: SessionId) -> Vec<String> {
    let id = id.to_string();
    simulator.keys().into_iter().filter(|key| key.contains("/c/") && key.contains(&id)).collect()
}

/// A session with any slot damaged in any way can be deleted and purged: every store finds the tombstone, nobody who knew the
/// session goes on with it, no text is left, and the index is right.
#[tokio::test(start_paused = true)]
async fn damaged_sessions_can_be_erased() {
    let mut refused = 0;
    for (kind, damage) in DAMAGES {
        for at in 0..5 {
            let what = format!("{kind} {at}");
            let (simulator, effects) = (Simulator::new(1), Effects::default());
            let store = config(&simulator, "a").open().await.unwrap();
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let mut session = store.sessions(&effects).create(new).await.unwrap();
            for n in 0..4 {
                let events = (0..=n % 2).map(|m| NewEvent::user_message(format!("sesame {n} {m}"))).collect();
                session =
                    store.sessions(&effects).append(session.id, session.head, events).await.unwrap().session;
            }
            let other = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let other = store.sessions(&effects).create(other).await.unwrap().id;
            let key = slots_of(&simulator, session.id)[at].clone();
            let foreign = simulator.object(&slots_of(&simulator, other)[0]).unwrap();
            match damage(&simulator.object(&key).unwrap(), &foreign) {
                Some(body) => simulator.put_object(&key, body),
                None => simulator.remove_object(&key),
            }
            let fresh = config(&simulator, "b").open().await.unwrap();
            let read_before = fresh.read(session.id, ReadEvents::first(100)).await;
            let deleted = delete(&fresh, &effects, session.id).await;
            assert_eq!((deleted.id, deleted.status.state), (session.id, SessionState::Deleted), "{what}");
            assert_eq!(delete(&fresh, &effects, session.id).await, deleted, "{what}: twice");
            // What could be read before is there until the purge.
            if let (Ok(before), Ok(after)) =
                (read_before, fresh.read(session.id, ReadEvents::first(100)).await)
            {
                assert!(after.events.starts_with(&before.events), "{what}");
            }
            // The first store knows the session from before.
            let more = vec![NewEvent::user_message("sesame more")];
            let on = match (kind, at) {
                // Nobody can know of a newest commit that is gone without a trace, and only the first store does.
                ("missing", 0) => Err(ErrorKind::Corrupt),
                _ => store
                    .sessions(&effects)
                    .append(session.id, session.head, more)
                    .await
                    .map_err(|error| error.kind().clone()),
            };
            refused += usize::from(on.is_err());
            for n in 0..2 {
                let store = config(&simulator, "c").open().await.unwrap();
                let found = SessionStore::load(&store, session.id).await.unwrap();
                // Where no log can be read, a tombstone is left.
                assert_eq!(found.tombstone(), deleted.tombstone(), "{what}");
                let page = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
                let ids: Vec<_> = page.items.iter().map(|item| item.id).collect();
                assert_eq!((ids, page.damaged), (vec![other], Vec::new()), "{what}");
                let hidden = SessionQuery::new().with_states([SessionState::Deleted]);
                let page = SessionStore::list(&store, hidden).await.unwrap();
                assert_eq!(page.items.iter().map(|item| item.id).collect::<Vec<_>>(), [session.id], "{what}");
                if n == 0 {
                    store.purge(Purge::new(session.id, deleted.head)).await.unwrap();
                }
                store.maintenance().rebuild().await.unwrap();
                assert_eq!(store.maintenance().check().await.unwrap(), [], "{what}");
            }
            let left = fresh.read(session.id, ReadEvents::first(100)).await.unwrap();
            assert_eq!((left.events.len(), left.damaged.len()), (0, 0), "{what}");
            tokio::time::sleep(Duration::from_secs(200)).await;
            let has = |key: &String| simulator.object(key).unwrap().windows(6).any(|part| part == b"sesame");
            let texts: Vec<_> = simulator.keys().into_iter().filter(has).collect();
            // A commit of the one who knew the session, at a place that nobody can know any more.
            assert!(texts.is_empty() || on.is_ok(), "{what}: {texts:?}");
        }
    }
    assert!(refused >= 30, "{refused} of 35");
}

/// A session of which nothing can be read was a fork: it is deleted, and the purge of its parent keeps what the living fork of
/// it reads.
#[tokio::test(start_paused = true)]
async fn forks_of_unreadable_sessions_keep_their_history() {
    let (simulator, effects) = (Simulator::new(1), Effects::default());
    let store = config(&simulator, "a").open().await.unwrap();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut parent = store.sessions(&effects).create(new).await.unwrap();
    for n in 0..3 {
        let messages = vec![NewEvent::user_message(format!("message {n}"))];
        parent = store.sessions(&effects).append(parent.id, parent.head, messages).await.unwrap().session;
    }
    let middle = store.sessions(&effects).fork(parent.id, None).await.unwrap();
    let living = store.sessions(&effects).fork(middle.id, None).await.unwrap();
    for key in slots_of(&simulator, middle.id) {
        simulator.put_object(&key, "nothing");
    }
    let store = config(&simulator, "b").open().await.unwrap();
    let deleted = delete(&store, &effects, middle.id).await;
    assert_eq!(deleted.origin.parent(), Some(parent.id));
    let gone = delete(&store, &effects, parent.id).await;
    let purge = Purge::new(parent.id, gone.head).sparing_forks(&store).await.unwrap();
    assert_eq!(purge.keep_through, parent.head);
    store.purge(purge).await.unwrap();
    let kept = store.read(parent.id, ReadEvents::first(100)).await.unwrap().events;
    assert_eq!(kept.len() as u64, parent.head.get());
    assert_eq!(SessionStore::load(&store, living.id).await.unwrap().lineage, living.lineage);
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// Each damaged or missing slot of a session is named by a check, also one whose events are read from later commits.
#[tokio::test(start_paused = true)]
async fn checks_name_damaged_slots_that_reading_does_not_need() {
    let mut unseen = 0;
    for (kind, damage) in DAMAGES {
        for at in 0..14 {
            let what = format!("{kind} {at}");
            let (simulator, effects) = (Simulator::new(1), Effects::default());
            let store = config(&simulator, "a").open().await.unwrap();
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let mut session = store.sessions(&effects).create(new).await.unwrap();
            for n in 0..14 {
                let events = (0..=n % 3).map(|m| NewEvent::user_message(format!("said {n} {m}"))).collect();
                session =
                    store.sessions(&effects).append(session.id, session.head, events).await.unwrap().session;
            }
            let other = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let other = store.sessions(&effects).create(other).await.unwrap().id;
            assert_eq!(store.maintenance().check().await.unwrap(), [], "{what}");
            // All but the newest.
            let key = slots_of(&simulator, session.id)[at + 1].clone();
            let foreign = simulator.object(&slots_of(&simulator, other)[0]).unwrap();
            match damage(&simulator.object(&key).unwrap(), &foreign) {
                Some(body) => simulator.put_object(&key, body),
                None => simulator.remove_object(&key),
            }
            let fresh = config(&simulator, "b").open().await.unwrap();
            let page = fresh.read(session.id, ReadEvents::first(100)).await;
            unseen += usize::from(page.is_ok_and(|page| page.damaged.is_empty()));
            let [fault] = &fresh.maintenance().check().await.unwrap()[..] else {
                panic!("{what}: one fault")
            };
            assert_eq!(fault.object, format!("session {}", session.id), "{what}");
            assert!(fault.reason.contains("slot"), "{what}: {fault}");
        }
    }
    assert!(unseen >= 50, "reading shows nearly all: {unseen}");
}
