//! Searches in long sessions.

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::search::Search;
use agent_core::session::NewSession;
use agent_core::{MemoryStore, SessionStore, Sessions, Timestamp, WorkspaceId};

/// Later pages of a session that is longer than a few reads, over more days than clocks differ, begin near the place where the last one ended.
#[tokio::test]
async fn pages_of_a_long_session_go_on() {
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let start = Timestamp::from_micros(1_771_151_400_000_000);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut commit = Commit::create(&effects, new);
    commit.at = start;
    let mut session = store.commit(commit).await.unwrap().session;
    for hour in 0..1500 {
        let text = if hour % 100 == 0 { "needle" } else { "hay" };
        let mut commit =
            Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message(text));
        commit.at = start.plus_micros(hour * 3_600_000_000);
        session = store.commit(commit).await.unwrap().session;
    }
    let sessions = Sessions::new(std::sync::Arc::new(store), effects);
    let (mut found, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = sessions.search(&Search::new("NEEDLE").with_limit(2).with_cursor(cursor)).await.unwrap();
        found.extend(page.hits.iter().map(|hit| hit.seq.get()));
        (cursor, pages) = (page.next, pages + 1);
        assert!(page.is_complete && pages < 20);
        if cursor.is_none() {
            break;
        }
    }
    let expected: Vec<_> = (0..15).rev().map(|n| n * 100 + 2).collect();
    assert_eq!(found, expected);
}
