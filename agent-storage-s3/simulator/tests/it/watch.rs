//! Order in which the keys of due and running work are put: before the commit, after it, or never.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Timer;
use agent_core::session::{NewSession, Session};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Consistency, SessionQuery};
use agent_core::{Backend, ErrorKind, SessionId, SessionStore, TenantId, Timestamp, WorkspaceId};
use agent_storage_s3::{S3Config, S3Store, Watch};
use s3_simulator::{Fault, Op, Simulator};

use crate::backend::config;

const START: Timestamp = Timestamp::from_micros(1_771_151_400_000_000);

struct World {
    simulator: Simulator,
    effects: Effects,
}

impl World {
    fn new() -> Self {
        Self { simulator: Simulator::new(1), effects: Effects::seeded(1, START) }
    }

    async fn try_open(&self, watch: Option<Watch>) -> agent_core::Result<S3Store> {
        let config = config(&self.simulator, "handle").with_effects(self.effects.clone());
        watch.into_iter().fold(config, S3Config::with_watch).open().await
    }

    async fn open(&self, watch: Option<Watch>) -> S3Store {
        self.try_open(watch).await.unwrap()
    }

    async fn create(&self, store: &S3Store) -> Session {
        let new = NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT);
        (*store.commit(Commit::create(&self.effects, new)).await.unwrap().session).clone()
    }

    fn begin(&self, session: &Session) -> Commit {
        let lease = LeaseRequest::new("holder", self.effects.new_run_id());
        Commit::seal(&self.effects, session.id, session.head)
            .with_event(NewEvent::user_message("hello"))
            .with_trigger(Trigger::BeginRun(lease))
    }

    /// Keys of what runs or is due.
    fn work(&self) -> Vec<String> {
        self.simulator.keys().into_iter().filter(|key| key.contains("/work/")).collect()
    }
}

async fn running(store: &S3Store) -> Vec<SessionId> {
    let query = SessionQuery::new().with_states([SessionState::Running]);
    SessionStore::list(store, query).await.unwrap().items.iter().map(|session| session.id).collect()
}

async fn due(store: &S3Store, minutes: i64) -> Vec<SessionId> {
    let query = SessionQuery::new().with_due(START.plus_micros(minutes * 60_000_000)).with_limit(2);
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = SessionStore::list(store, query.clone().with_cursor(cursor)).await.unwrap();
        found.extend(page.items.iter().map(|session| session.id));
        cursor = page.next;
        if cursor.is_none() {
            return found;
        }
    }
}

/// The first store of a prefix decides; another value is refused by name, also when nothing else is stored but data.
#[tokio::test(start_paused = true)]
async fn setting_of_a_prefix_is_kept() {
    let world = World::new();
    let listing = |store: &S3Store| store.capabilities().listing;
    assert_eq!(listing(&world.open(Some(Watch::After)).await), Consistency::Eventual);
    // With the copy in the result of the probe, and without it.
    for requests in [2, 18] {
        let before = world.simulator.requests();
        assert_eq!(listing(&world.open(None).await), Consistency::Eventual);
        let counts = world.simulator.counts_since(before);
        assert!(counts.total() <= requests, "{counts}");
        world.open(Some(Watch::After)).await;
        for other in [Watch::Before, Watch::Off] {
            let error = world.try_open(Some(other)).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput);
            let named = format!("watch=after, and is opened with watch={other}");
            assert!(error.to_string().contains(&named), "{error}");
        }
        world.simulator.remove_object("agents/probe/passed");
    }
    // Data without a setting was written with the default.
    let world = World::new();
    let store = world.open(None).await;
    world.create(&store).await;
    for key in ["agents/probe/passed", "agents/settings"] {
        world.simulator.remove_object(key);
    }
    let error = world.try_open(Some(Watch::Off)).await.unwrap_err();
    assert!(error.to_string().contains("watch=before"), "{error}");
    world.open(Some(Watch::Before)).await;
}

/// A setting of another format, or that is unknown or damaged, is named.
#[tokio::test(start_paused = true)]
async fn unknown_setting_is_refused() {
    for (body, kind, named) in [
        (r#"H {"format":5,"kind":"settings","watch":"before"}"#, ErrorKind::Unsupported, "format 5"),
        (r#"H {"format":7,"kind":"settings","watch":"before"}"#, ErrorKind::Unsupported, "format 7"),
        (r#"H {"format":6,"kind":"settings","watch":"sometimes"}"#, ErrorKind::Corrupt, "settings"),
        ("H {", ErrorKind::Corrupt, "agents/settings"),
    ] {
        let world = World::new();
        world
            .simulator
            .put_object("agents/settings", format!("{:08x} {body}\n", crc32c::crc32c(body.as_bytes())));
        let error = world.try_open(None).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// The key is put when the commit is acknowledged and no sooner; a store that is closed has put it.
#[tokio::test(start_paused = true)]
async fn key_is_put_after_the_commit() {
    let world = World::new();
    let store = world.open(Some(Watch::After)).await;
    let session = world.create(&store).await;
    world.simulator.next(Op::Create, Fault::Busy);
    let before = world.simulator.requests();
    let begun = store.commit(world.begin(&session)).await.unwrap().session;
    let counts = world.simulator.counts_since(before);
    assert_eq!((counts.put, counts.total()), (2, 2), "the commit, sent twice");
    assert_eq!(world.work(), [""; 0]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.work().len(), 1);
    assert_eq!(running(&store).await, [session.id]);
    let lease = begun.lease.clone().unwrap();
    let end = Commit::seal(&world.effects, begun.id, begun.head)
        .with_fence(lease.run, lease.epoch)
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    store.commit(end).await.unwrap();
    tokio::time::sleep(Duration::from_secs(121)).await;
    assert_eq!(world.work(), [""; 0]);
    let other = world.create(&store).await;
    store.commit(world.begin(&other)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(world.work().len(), 1);
}

/// A commit whose answer was lost is acknowledged when it is sent again, and its key put then.
#[tokio::test(start_paused = true)]
async fn key_is_put_for_a_commit_sent_again() {
    let world = World::new();
    let store = world.open(Some(Watch::After)).await;
    let session = world.create(&store).await;
    let begin = world.begin(&session);
    world.simulator.next(Op::Create, Fault::ResetAfter);
    let before = world.simulator.requests();
    let stop = async {
        while world.simulator.requests() == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        () = stop => {}
        done = store.commit(begin.clone()) => drop(done.unwrap()),
    }
    assert_eq!(world.work(), [""; 0]);
    let store = world.open(None).await;
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap().status.state, SessionState::Running);
    assert!(store.commit(begin).await.unwrap().replayed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(running(&store).await, [session.id]);
}

/// Without keys, lists of what is due or runs are right, and nothing is missing; heartbeats go on. Once the setting is
/// changed, a rebuild puts the keys.
#[tokio::test(start_paused = true)]
async fn lists_are_right_without_keys() {
    let world = World::new();
    let store = world.open(Some(Watch::Off)).await;
    let mut planned = Vec::new();
    for minutes in [30, 10, 20, 40, 9] {
        let session = world.create(&store).await;
        let timer = Timer::new("t", START.plus_micros(minutes * 60_000_000));
        let timer = NewEvent::timer_scheduled(timer);
        let commit = Commit::seal(&world.effects, session.id, session.head).with_event(timer);
        store.commit(commit).await.unwrap();
        planned.push((minutes, session.id));
    }
    planned.sort_unstable();
    let session = world.create(&store).await;
    let begun = store.commit(world.begin(&session)).await.unwrap();
    let other = store.for_tenant(&"other".parse().unwrap());
    world.create(&other).await;
    assert_eq!(world.work(), [""; 0]);
    let check = async |store: &S3Store| {
        assert_eq!(running(store).await, [session.id]);
        for minutes in [0, 9, 20, 35, 100] {
            let expected = planned.iter().filter(|(at, _)| *at <= minutes);
            assert_eq!(due(store, minutes).await, expected.map(|(_, id)| *id).collect::<Vec<_>>());
        }
    };
    check(&store).await;
    let tenants = ["default", "other"].map(|tenant| tenant.parse::<TenantId>().unwrap());
    assert_eq!(store.busy_tenants(START, None).await.unwrap().items, tenants);
    assert_eq!(store.check().await.unwrap(), []);
    assert_eq!(store.rebuild().await.unwrap().sessions, 0);
    for _ in 0..2 {
        let before = store.lease_status(session.id, begun.epoch.unwrap()).await.unwrap();
        store.heartbeat(session.id, begun.epoch.unwrap()).await.unwrap();
        assert_ne!(store.lease_status(session.id, begun.epoch.unwrap()).await.unwrap(), before);
    }
    store.change_watch(Watch::Before).await.unwrap();
    store.close().await.unwrap();
    let store = world.open(Some(Watch::Before)).await;
    assert_eq!(store.check().await.unwrap().len(), planned.len(), "all but the one with heartbeats");
    assert_eq!(store.rebuild().await.unwrap().sessions, planned.len() as u64);
    assert_eq!(store.check().await.unwrap(), []);
    assert_eq!(world.work().len(), planned.len() + 1);
    check(&store).await;
    assert_eq!(store.busy_tenants(START, None).await.unwrap().items, tenants[..1]);
}
