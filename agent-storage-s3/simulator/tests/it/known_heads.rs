//! Reads at a head that the caller knows: they send no request for a newer one, and show only what was there.

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents};
use agent_core::{BindingStore, Seq, SessionId, SessionStore, Timestamp, WorkspaceId};
use agent_storage_s3::S3Store;
use s3_simulator::Simulator;

use crate::backend::config;

const EVENTS: u64 = 300;

async fn filled(store: &S3Store, effects: &Effects) -> SessionId {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = store.commit(Commit::create(effects, new)).await.unwrap().session;
    while session.head.get() < EVENTS {
        let event = NewEvent::user_message(format!("message {}", session.head));
        let commit = Commit::seal(effects, session.id, session.head).with_event(event);
        session = store.commit(commit).await.unwrap().session;
    }
    session.id
}

/// All events, from the newest on.
async fn read_back(store: &S3Store, id: SessionId, known: Seq) -> agent_core::Result<Vec<Event>> {
    let (mut all, mut next) = (Vec::new(), Some(ReadEvents::last(64).with_known_head(known)));
    while let Some(read) = next {
        let page = store.read(id, read).await?;
        assert_eq!(page.damaged, []);
        all.extend(page.events.into_iter().rev());
        next = page.next;
    }
    Ok(all)
}

/// The first such read fetches what the store has not seen, and the next ones nothing, also after commits of this store.
#[tokio::test(start_paused = true)]
async fn known_history_is_read_once() {
    let (simulator, effects) = (Simulator::new(1), Effects::seeded(1, Timestamp::UNIX_EPOCH));
    let writer = config(&simulator, "writer").open().await.unwrap();
    let id = filled(&writer, &effects).await;
    let store = config(&simulator, "reader").open().await.unwrap();
    let head = store.load(id).await.unwrap().head;
    let expected = read_back(&store, id, Seq::ZERO).await.unwrap();
    assert_eq!(expected.len() as u64, EVENTS);
    for turn in 0..3 {
        let before = simulator.requests();
        assert_eq!(read_back(&store, id, head).await.unwrap(), expected);
        let counts = simulator.counts_since(before);
        assert!(if turn == 0 { counts.get <= 6 } else { counts.total() == 0 }, "{turn}: {counts}");
    }
    let append = Commit::seal(&effects, id, head).with_event(NewEvent::user_message("more"));
    let head = store.commit(append).await.unwrap().session.head;
    let before = simulator.requests();
    assert_eq!(read_back(&store, id, head).await.unwrap()[1..], expected);
    assert!(simulator.counts_since(before).total() <= 1);
    // A head that this store has not seen is looked for.
    let append = Commit::seal(&effects, id, head).with_event(NewEvent::user_message("of another"));
    let head = writer.commit(append).await.unwrap().session.head;
    assert_eq!(read_back(&store, id, head).await.unwrap()[0].seq, head);
}

/// While another store deletes and purges the session, such reads show its events as they were, or none of them.
#[tokio::test(start_paused = true)]
async fn known_history_that_is_purged_is_no_damage() {
    for seen in [0, 1, 100, 300] {
        let (simulator, effects) = (Simulator::new(1), Effects::seeded(1, Timestamp::UNIX_EPOCH));
        let other = config(&simulator, "other").open().await.unwrap();
        let id = filled(&other, &effects).await;
        let store = config(&simulator, "reader").open().await.unwrap();
        let head = store.load(id).await.unwrap().head;
        let expected = read_back(&other, id, Seq::ZERO).await.unwrap();
        // What this store has seen of it.
        store.read(id, ReadEvents::last(seen).with_known_head(head)).await.unwrap();
        let delete = Commit::seal(&effects, id, head).with_trigger(Trigger::Delete(Reason::UserDeleted));
        let deleted = other.commit(delete).await.unwrap().session;
        other.purge(Purge::new(id, deleted.head)).await.unwrap();
        let events = read_back(&store, id, head).await.unwrap();
        assert!(expected.starts_with(&events), "{seen}: {} events", events.len());
        assert_eq!(read_back(&store, id, Seq::ZERO).await.unwrap(), [], "{seen}");
    }
}

/// A store remembers something of a bounded number of tenants, however many names are asked for: of the others it reads again
/// what it needs, and answers the same.
#[tokio::test(start_paused = true)]
async fn many_tenants_are_forgotten() {
    let simulator = Simulator::new(1);
    let store = config(&simulator, "a").open().await.unwrap();
    let laptop = "laptop".parse().unwrap();
    let gets = async |n: u32| {
        let before = store.requests().get;
        let tenant = store.for_tenant(&format!("user-{n}").parse().unwrap());
        assert_eq!(tenant.resolve(&laptop).await.unwrap(), None);
        store.requests().get - before
    };
    let (first, again) = (gets(0).await, gets(0).await);
    assert_eq!(first, again + 1, "the generation is remembered");
    for n in 1..=5_000 {
        assert_eq!(gets(n).await, first, "{n}");
    }
    assert_eq!(gets(0).await, first, "the generation of one of 5,000 is not");
}
