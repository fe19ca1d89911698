//! Damaged objects: what can still be read is read, and what is lost is named.

use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::store::ReadEvents;
use agent_core::{ErrorKind, SessionStore, SessionStoreExt, WorkspaceId};
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
            let mut session = store.create(&effects, new).await.unwrap();
            for n in 0..6 {
                let events = vec![NewEvent::user_message(format!("message {n}"))];
                session = store.append(&effects, session.id, session.head, events).await.unwrap().session;
            }
            let other = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            let other = store.create(&effects, other).await.unwrap().id.to_string();
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
                let done = store.append(&effects, session.id, session.head, more).await;
                assert!(done.is_err(), "{what}");
            }
        }
    }
}
