//! Requests per operation: the table in the docs, counted.

use agent_core::{
    BindingStore, Commit, DeviceId, Effects, Expect, NewEvent, NewSession, Purge, ReadEvents, Reason,
    Session, SessionQuery, SessionStore, Timestamp, Trigger, WorkspaceId,
};
use agent_storage_s3::S3Store;
use s3_simulator::Simulator;

use crate::backend::config;

struct Shop {
    simulator: Simulator,
    effects: Effects,
}

impl Shop {
    fn new() -> Self {
        let effects = Effects::seeded(1, Timestamp::from_micros(1_771_151_400_000_000));
        Self { simulator: Simulator::new(1), effects }
    }

    /// A handle that knows no head yet.
    async fn open(&self) -> S3Store {
        config(&self.simulator, "handle").with_effects(self.effects.clone()).open().await.unwrap()
    }

    async fn cost<T>(&self, work: impl Future<Output = agent_core::Result<T>>) -> (T, String) {
        let before = self.simulator.requests();
        let done = work.await.unwrap();
        (done, self.simulator.counts_since(before).to_string())
    }

    fn said(&self, session: &Session, texts: usize) -> Commit {
        let said = (0..texts).map(|n| NewEvent::user_message(format!("message {n}")));
        Commit::seal(&self.effects, session.id, session.head).events(said)
    }

    async fn session(&self, store: &S3Store) -> Session {
        let new = NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT);
        store.commit(Commit::create(&self.effects, new)).await.unwrap().session
    }
}

/// O12, F10: what each operation costs, in requests.
#[tokio::test(start_paused = true)]
async fn o12_f10_requests_per_operation() {
    let shop = Shop::new();
    let (store, opening) = shop.cost(config(&shop.simulator, "handle").open()).await;
    println!("open: {opening}");
    let new = NewSession::new(shop.effects.new_session_id(), WorkspaceId::DEFAULT);
    let (made, cost) = shop.cost(store.commit(Commit::create(&shop.effects, new))).await;
    assert_eq!(cost, "1 PUT", "create");
    let (said, cost) = shop.cost(store.commit(shop.said(&made.session, 1))).await;
    assert_eq!(cost, "1 PUT", "commit, head known");
    let cold = shop.open().await;
    let (said, cost) = shop.cost(cold.commit(shop.said(&said.session, 1))).await;
    assert_eq!(cost, "1 LIST + 1 GET + 1 PUT", "commit, cold");
    // The first handle does not know of that yet.
    let (said, cost) = shop.cost(store.commit(shop.said(&said.session, 1))).await;
    assert_eq!(cost, "1 GET + 2 PUT", "commit, race lost");
    let (_, cost) = shop.cost(SessionStore::load(&store, said.session.id)).await;
    assert_eq!(cost, "1 GET", "load, warm");
    let (_, cost) = shop.cost(store.read(said.session.id, ReadEvents::last(50))).await;
    assert_eq!(cost, "1 GET", "last 50, warm");
    let (_, cost) = shop.cost(store.beat(said.session.id, said.session.epoch)).await;
    assert_eq!(cost, "1 GET", "beat of no lease");
    let fork = NewSession::fork(shop.effects.new_session_id(), &said.session);
    let (_, cost) = shop.cost(store.commit(Commit::create(&shop.effects, fork))).await;
    println!("fork: {cost}");
    let device: DeviceId = "laptop".parse().unwrap();
    let (_, cost) = shop.cost(store.bind(&device, WorkspaceId::DEFAULT, Expect::Absent)).await;
    println!("bind: {cost}");
    let (_, cost) = shop.cost(store.resolve(&device)).await;
    assert_eq!(cost, "1 GET", "resolve");
    for _ in 0..8 {
        shop.session(&store).await;
    }
    let (page, cost) = shop.cost(SessionStore::list(&shop.open().await, SessionQuery::new())).await;
    println!("list of {} sessions, with an opening: {cost}", page.items.len());
    let delete = Commit::seal(&shop.effects, made.session.id, said.session.head)
        .trigger(Trigger::Delete(Reason::UserDeleted));
    let (deleted, cost) = shop.cost(store.commit(delete)).await;
    assert_eq!(cost, "1 PUT", "delete");
    let (_, cost) = shop.cost(store.purge(Purge::new(made.session.id, deleted.session.head))).await;
    println!("purge of {} commits: {cost}", 5);
}

/// A33, F10: opening a session cold and reading its last 50 events costs at most four requests at any length, and a
/// commit one.
#[tokio::test(start_paused = true)]
async fn a33_f10_costs_do_not_grow_with_the_session() {
    for (length, batch) in [(100, 1), (10_000, 16), (1_000_000, 1000)] {
        let shop = Shop::new();
        let store = shop.open().await;
        let mut session = shop.session(&store).await;
        while session.head.get() < length {
            session = store.commit(shop.said(&session, batch)).await.unwrap().session;
        }
        // The last ones as in a chat.
        for _ in 0..70 {
            session = store.commit(shop.said(&session, 1)).await.unwrap().session;
        }
        let (_, cost) = shop.cost(store.commit(shop.said(&session, 1))).await;
        assert_eq!(cost, "1 PUT", "at {length}");
        let cold = shop.open().await;
        let before = shop.simulator.requests();
        let found = SessionStore::load(&cold, session.id).await.unwrap();
        let page = cold.read(session.id, ReadEvents::last(50)).await.unwrap();
        assert_eq!((page.events.len(), page.events.last().unwrap().seq), (50, found.head));
        let counts = shop.simulator.counts_since(before);
        println!("open + last 50 at {length}: {counts}");
        assert!(counts.total() <= 4, "{counts} at {length}");
    }
}
