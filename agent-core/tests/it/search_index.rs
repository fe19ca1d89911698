//! Searches with an index find what searches without one find, after any deletions, restores and updates.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::model::{Actor, Role};
use agent_core::search::{Query, Search, before_restore};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BlobQuery, Purge, PutBlob, ReadBlob, ReadEvents, SessionQuery, own_events};
use agent_core::{MemoryStore, Seq, SessionId, Sessions, Storage, Timestamp, WorkspaceId};
use futures::TryStreamExt;
use proptest::prelude::*;

const DAY: i64 = 24 * 3600 * 1_000_000;

/// What happens to a store, one after another. Times are in minutes.
#[derive(Clone, Debug)]
enum Step {
    Create,
    /// Appends messages with words to a session, by a clock that may be behind or ahead.
    Say {
        session: usize,
        words: Vec<u8>,
        count: usize,
        minutes: i64,
    },
    /// Appends more messages at once than a search reads at once.
    Burst {
        session: usize,
        words: Vec<u8>,
        minutes: i64,
    },
    /// Appends a message, and updates the index, so that it gets many segments.
    Add {
        session: usize,
        words: Vec<u8>,
        minutes: i64,
    },
    Delete {
        session: usize,
        purge: bool,
    },
    /// Restores a session that was last active long ago.
    Restore {
        words: Vec<u8>,
    },
    Update,
    /// Days go by.
    Wait {
        days: i64,
    },
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    let words = || prop::collection::vec(0u8..6, 1..4);
    prop_oneof![
        2 => Just(Step::Create),
        8 => (0usize..6, words(), 1usize..12, -90i64..90)
            .prop_map(|(session, words, count, minutes)| Step::Say { session, words, count, minutes }),
        6 => (0usize..6, words(), -90i64..90)
            .prop_map(|(session, words, minutes)| Step::Add { session, words, minutes }),
        1 => (0usize..6, words(), -90i64..90)
            .prop_map(|(session, words, minutes)| Step::Burst { session, words, minutes }),
        1 => (0usize..6, any::<bool>()).prop_map(|(session, purge)| Step::Delete { session, purge }),
        1 => words().prop_map(|words| Step::Restore { words }),
        4 => Just(Step::Update),
        2 => (0i64..4).prop_map(|days| Step::Wait { days }),
        1 => Just(Step::Remove),
    ]
}

const WORDS: [&str; 6] = ["deploy", "서울에서", "Straße", "b", "会议", "rare"];

struct World {
    sessions: Sessions,
    effects: Effects,
    ids: Vec<SessionId>,
    now: Timestamp,
    said: usize,
}

impl World {
    fn new() -> Self {
        let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
        let sessions = Storage::from(MemoryStore::new()).sessions;
        Self { sessions, effects, ids: Vec::new(), now: Timestamp::from_micros(400 * DAY), said: 0 }
    }

    /// Returns the handle as the clock is now.
    fn handle(&self) -> Sessions {
        let effects = Effects::seeded(self.effects.random_u64(), self.now);
        Sessions::new(self.sessions.store().clone(), effects)
    }

    fn text(&mut self, words: &[u8]) -> String {
        self.said += 1;
        let words: Vec<_> = words.iter().map(|n| WORDS[usize::from(*n)]).collect();
        format!("{} {}", words.join(" "), self.said)
    }

    async fn apply(&mut self, step: &Step) {
        let handle = self.handle();
        match step {
            Step::Create => {
                let new = NewSession::new(handle.effects().new_session_id(), WorkspaceId::DEFAULT);
                self.ids.push(handle.create(new).await.unwrap().id);
            }
            Step::Say { session, words, count, minutes } => {
                let Some(id) = self.ids.get(*session).copied() else { return };
                let head = handle.load(id).await.unwrap().head;
                for n in 0..*count {
                    let text = self.text(words);
                    let mut commit = handle.seal(id, head).with_event(NewEvent::user_message(text));
                    commit.at = self.now.plus_micros(minutes * 60_000_000 + n as i64);
                    self.sessions.commit(commit).await.unwrap();
                    self.now = self.now.plus_micros(60_000_000);
                }
            }
            Step::Burst { session, words, minutes } => {
                let Some(id) = self.ids.get(*session).copied() else { return };
                let head = handle.load(id).await.unwrap().head;
                let events: Vec<_> = (0..230).map(|_| NewEvent::user_message(self.text(words))).collect();
                let mut commit = handle.seal(id, head).with_events(events);
                commit.at = self.now.plus_micros(minutes * 60_000_000);
                self.sessions.commit(commit).await.unwrap();
            }
            Step::Add { session, words, minutes } => {
                let say = Step::Say { session: *session, words: words.clone(), count: 1, minutes: *minutes };
                Box::pin(self.apply(&say)).await;
                Box::pin(self.apply(&Step::Update)).await;
            }
            Step::Delete { session, purge } => {
                if *session >= self.ids.len() {
                    return;
                }
                let id = self.ids.remove(*session);
                let deleted = handle.trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
                if *purge {
                    handle.purge(Purge::new(id, deleted.session.head)).await.unwrap();
                }
            }
            Step::Restore { words } => {
                let there = Sessions::new(
                    Storage::from(MemoryStore::new()).sessions.store().clone(),
                    Effects::seeded(self.effects.random_u64(), Timestamp::from_micros(DAY)),
                );
                let new = NewSession::new(there.effects().new_session_id(), WorkspaceId::DEFAULT);
                let session = there.create(new).await.unwrap();
                let text = self.text(words);
                there.append(session.id, session.head, vec![NewEvent::user_message(text)]).await.unwrap();
                let events = there.read(session.id, ReadEvents::first(10)).await.unwrap().events;
                before_restore(&*self.sessions).await.unwrap();
                for commit in events.chunk_by(|a, b| a.commit == b.commit) {
                    self.sessions
                        .commit(Commit::restore(session.id, commit.to_vec()).unwrap())
                        .await
                        .unwrap();
                }
                self.ids.push(session.id);
            }
            Step::Update => {
                let updated = handle.update_search_index().await.unwrap();
                assert!(updated.is_complete);
            }
            Step::Wait { days } => self.now = self.now.plus_micros(days * DAY),
            Step::Remove => drop(handle.remove_search_index().await.unwrap()),
        }
    }

    /// Returns what a query finds, by looking at all events.
    async fn expected(&self, query: &str, since: Option<Timestamp>) -> Vec<(SessionId, Seq)> {
        let query = Query::parse(query).unwrap();
        let mut found = BTreeMap::new();
        for id in &self.ids {
            let events: Vec<Event> =
                own_events(&*self.sessions, *id, Seq::ZERO, None).try_collect().await.unwrap();
            let mut place = Timestamp::MAX;
            for event in events.iter().rev().filter(|event| event.kind.as_str() != "session.ended") {
                place = place.min(event.at);
                let is_in_time = since.is_none_or(|since| event.at >= since);
                if is_in_time && event.text().is_some_and(|text| query.matches(&text)) {
                    found.insert(Reverse((place, *id, event.seq)), ());
                }
            }
        }
        found.into_keys().map(|Reverse((_, id, seq))| (id, seq)).collect()
    }

    async fn check(&self) {
        for query in ["deploy", "울", "strasse b", "会", "rare -b", "\"deploy rare\"", "deploy 서울"] {
            for (since, limit, bytes) in
                [(None, 100, 1 << 20), (None, 3, 3000), (Some(self.now.plus_micros(-DAY)), 4, 1 << 20)]
            {
                let mut search = Search::new(query).with_limit(limit).with_max_bytes(bytes);
                search.since = since;
                let (mut hits, mut pages) = (Vec::new(), 0);
                loop {
                    let page = self.sessions.search(&search).await.unwrap();
                    assert!(page.damaged.is_empty());
                    hits.extend(page.hits.iter().map(|hit| (hit.session, hit.seq)));
                    pages += 1;
                    assert!(pages < 100_000, "the search ends");
                    search.cursor = page.next;
                    if search.cursor.is_none() {
                        break;
                    }
                }
                assert_eq!(hits, self.expected(query, since).await, "{query} {since:?} {limit} {bytes}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn an_index_changes_no_hit(steps in prop::collection::vec(step(), 1..50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for step in &steps {
                world.apply(step).await;
            }
            world.check().await;
        });
    }
}

#[tokio::test]
async fn an_index_has_what_it_needs_and_no_more() {
    let mut world = World::new();
    world.apply(&Step::Create).await;
    world.apply(&Step::Create).await;
    for round in 0..20 {
        world.apply(&Step::Say { session: round % 2, words: vec![0, 5], count: 9, minutes: 0 }).await;
        world.apply(&Step::Update).await;
    }
    let hidden = || SessionQuery::new().with_states([SessionState::Archived]).with_limit(100);
    // Eight segments of like size become one.
    let segments = |items: &[agent_core::session::SessionSummary]| {
        items.iter().filter(|item| item.attributes.labels["hidden"] == "search-segment").count()
    };
    let listed = world.sessions.list(hidden()).await.unwrap().items;
    assert_eq!((listed.len(), segments(&listed)), (7, 6));
    // What is deleted goes.
    world.apply(&Step::Delete { session: 0, purge: true }).await;
    world.apply(&Step::Delete { session: 0, purge: true }).await;
    world.apply(&Step::Update).await;
    let listed = world.sessions.list(hidden()).await.unwrap().items;
    assert_eq!((listed.len(), segments(&listed)), (1, 0));
    world.apply(&Step::Remove).await;
    assert!(world.sessions.list(hidden()).await.unwrap().items.is_empty());
}

/// What was said since a time is found, also if its session went on by a clock that is days behind.
#[tokio::test]
async fn a_clock_behind_hides_nothing_since_a_time() {
    let mut world = World::new();
    world.apply(&Step::Wait { days: 30 }).await;
    world.apply(&Step::Create).await;
    for days in [0, -9, -4] {
        let minutes = days * 24 * 60;
        world.apply(&Step::Say { session: 0, words: vec![0, 5], count: 1, minutes }).await;
    }
    world.apply(&Step::Update).await;
    world.check().await;
}

/// An index that is damaged, or of which only parts are there, is made anew; until then logs are read.
#[tokio::test]
async fn an_index_that_is_damaged_or_half_made_changes_no_hit() {
    let mut world = World::new();
    world.apply(&Step::Create).await;
    for _ in 0..3 {
        world.apply(&Step::Add { session: 0, words: vec![0, 5], minutes: 0 }).await;
    }
    world.apply(&Step::Wait { days: 3 }).await;
    let labelled =
        |label: &str| SessionQuery::new().with_label("hidden", label).with_hidden().with_limit(100);
    let is_there =
        |session: &&agent_core::session::SessionSummary| session.status.state == SessionState::Archived;
    let cases = [
        ("search-segment", None),
        ("search-index", None),
        ("search-index", Some("{}")),
        ("search-index", Some("7")),
    ];
    for (label, forged) in cases {
        let listed = world.sessions.list(labelled(label)).await.unwrap().items;
        let part = listed.iter().find(is_there).unwrap();
        match forged {
            Some(state) => {
                let state = agent_core::json::RawJson::parse(state).unwrap();
                let event = NewEvent::new("x.search.index".parse().unwrap(), state);
                world.sessions.append(part.id, part.head, vec![event]).await.unwrap();
            }
            None => {
                let deleted =
                    world.sessions.trigger(part.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
                world.sessions.purge(Purge::new(part.id, deleted.session.head)).await.unwrap();
            }
        }
        world.check().await;
        world.apply(&Step::Update).await;
        world.check().await;
        // What belongs to no index goes when it is old.
        world.apply(&Step::Wait { days: 1 }).await;
        world.apply(&Step::Say { session: 0, words: vec![1], count: 1, minutes: 0 }).await;
        world.apply(&Step::Update).await;
        let left =
            world.sessions.list(SessionQuery::new().with_states([SessionState::Archived])).await.unwrap();
        let segments = left.items.iter().filter(|item| item.attributes.labels["hidden"] == "search-segment");
        assert_eq!((left.items.len(), segments.count()), (3, 2), "{label} {forged:?}");
    }
}

/// What a search asks of sessions holds for what an index proposes, too.
#[tokio::test]
async fn an_index_proposes_only_sessions_that_are_searched() {
    let storage = Storage::from(MemoryStore::new());
    let alice = storage.for_owner(&"alice".parse().unwrap());
    let [ada, ben] = ["ada", "ben"].map(|name| Actor::named(Role::User, name).unwrap());
    for (storage, creator) in [(&storage, &ada), (&storage, &ben), (&alice, &ada)] {
        let effects = storage.effects();
        let create = Commit::create(effects, NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT))
            .with_actor(creator.clone())
            .with_event(NewEvent::user_message("deploy"));
        storage.sessions.commit(create).await.unwrap();
    }
    let search = || Search::new("deploy");
    for round in ["without an index", "with an index"] {
        for (search, expected) in [
            (search(), 3),
            (search().with_creator(ada.clone()), 2),
            (search().without_owner(), 2),
            (search().with_creator(ada.clone()).without_owner(), 1),
        ] {
            let found = storage.sessions.search(&search).await.unwrap().hits.len();
            assert_eq!(found, expected, "{round}: {search:?}");
        }
        storage.sessions.update_search_index().await.unwrap();
    }
}

/// What is not indexed of a session, and more than is read at once, moves what is indexed before it, and hides none of it.
#[tokio::test]
async fn a_long_end_by_a_clock_behind_moves_what_is_indexed() {
    for minutes in [-30, -5 * 24 * 60] {
        let mut world = World::new();
        world.apply(&Step::Create).await;
        world.apply(&Step::Say { session: 0, words: vec![0], count: 3, minutes: 0 }).await;
        world.apply(&Step::Update).await;
        world.apply(&Step::Burst { session: 0, words: vec![0], minutes }).await;
        world.check().await;
        // As part of the index, too, in a later segment.
        world.apply(&Step::Update).await;
        world.check().await;
    }
}

/// An index of sessions that were longer, before an older copy of them was put in their place, is made anew.
#[tokio::test]
async fn an_index_of_a_longer_log_is_made_anew() {
    let (mut there, mut here) = (World::new(), World::new());
    there.apply(&Step::Create).await;
    there.apply(&Step::Say { session: 0, words: vec![0], count: 1, minutes: 0 }).await;
    let id = there.ids[0];
    let copied = there.sessions.load(id).await.unwrap().head;
    there.apply(&Step::Update).await;
    // By a clock that is behind, which moves what was said before.
    there.apply(&Step::Say { session: 0, words: vec![5], count: 5, minutes: -60 }).await;
    there.apply(&Step::Update).await;
    // The store with its index, and of the session only the beginning.
    let listed = there.sessions.list(SessionQuery::new().with_hidden()).await.unwrap().items;
    for session in listed {
        let end = (session.id == id).then(|| copied.next());
        let mut read = ReadEvents::first(100);
        read.before = end;
        for blob in there.sessions.blobs().list(BlobQuery::new(session.id)).await.unwrap().items {
            let content = there.sessions.blobs().read(ReadBlob::new(session.id, blob.name)).await.unwrap();
            let bytes = content.into_bytes(1 << 20).await.unwrap();
            here.sessions.blobs().put(PutBlob::of_bytes(session.id, bytes)).await.unwrap();
        }
        let events = there.sessions.read(session.id, read).await.unwrap().events;
        for commit in events.chunk_by(|a, b| a.commit == b.commit) {
            here.sessions.commit(Commit::restore(session.id, commit.to_vec()).unwrap()).await.unwrap();
        }
    }
    (here.ids, here.now) = (there.ids, there.now);
    here.check().await;
    here.apply(&Step::Say { session: 0, words: vec![4], count: 3, minutes: 0 }).await;
    here.check().await;
    here.apply(&Step::Update).await;
    here.check().await;
    here.apply(&Step::Say { session: 0, words: vec![4, 2], count: 9, minutes: 0 }).await;
    here.check().await;
    here.apply(&Step::Update).await;
    here.check().await;
}

/// An update by a clock that is ahead does not hide what is said after it.
#[tokio::test]
async fn an_update_by_a_clock_ahead_hides_nothing() {
    let mut world = World::new();
    world.apply(&Step::Create).await;
    world.apply(&Step::Say { session: 0, words: vec![0], count: 1, minutes: 0 }).await;
    let now = world.now;
    world.apply(&Step::Wait { days: 30 }).await;
    world.apply(&Step::Update).await;
    world.now = now;
    world.apply(&Step::Create).await;
    world.apply(&Step::Say { session: 1, words: vec![0], count: 1, minutes: 0 }).await;
    world.check().await;
}

/// A part of an index that was deleted and not purged, as by an update that was cut off, goes with the next one.
#[tokio::test]
async fn a_removal_that_was_cut_off_is_finished_by_the_next_update() {
    for removes in [false, true] {
        let mut world = World::new();
        world.apply(&Step::Create).await;
        world.apply(&Step::Add { session: 0, words: vec![0], minutes: 0 }).await;
        let segments = SessionQuery::new().with_label("hidden", "search-segment").with_hidden();
        let segment = world.sessions.list(segments).await.unwrap().items[0].id;
        let left = async |world: &World| {
            world.sessions.blobs().list(BlobQuery::new(segment)).await.unwrap().items.len()
        };
        assert_eq!(left(&world).await, 1);
        world.sessions.trigger(segment, Trigger::Delete(Reason::Collected)).await.unwrap();
        assert_eq!(left(&world).await, 1);
        world.apply(if removes { &Step::Remove } else { &Step::Update }).await;
        assert_eq!(left(&world).await, 0, "{removes}");
    }
}

/// Marking an index twice, as two importers do, is one event, and a mark takes neither time nor chance.
#[tokio::test]
async fn a_restore_is_noted_once() {
    let mut world = World::new();
    world.apply(&Step::Create).await;
    world.apply(&Step::Add { session: 0, words: vec![0], minutes: 0 }).await;
    let query = SessionQuery::new().with_label("hidden", "search-index").with_hidden();
    let root = world.sessions.list(query).await.unwrap().items.remove(0);
    let marks = [before_restore(&*world.sessions), before_restore(&*world.sessions)];
    for noted in futures::future::join_all(marks).await {
        noted.unwrap();
    }
    before_restore(&*world.sessions).await.unwrap();
    let events = world.sessions.read(root.id, ReadEvents::first(100)).await.unwrap().events;
    let noted: Vec<_> = events.iter().filter(|event| event.kind.as_str() == "x.search.outdated").collect();
    assert_eq!(noted.len(), 1);
    assert_eq!(noted[0].at, events[events.len() - 2].at);
}
