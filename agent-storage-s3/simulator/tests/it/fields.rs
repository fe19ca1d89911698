//! Index of labels and creators: what its lists show while values change, commits are cut off, and keys are lost.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Patch, Role};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, SessionQuery};
use agent_core::{ErrorKind, SessionId, SessionStore, Timestamp, WorkspaceId};
use agent_storage_s3::{IndexedField, S3Config, S3Store};
use s3_simulator::{FaultPlan, Quirks, SimulatedClock, Simulator};

use crate::backend::config;

/// The simulated server's clock starts at the same time.
const START: Timestamp = Timestamp::from_micros(20_500 * 86_400_000_000);
const INDEX: &str = "label.project,creator";

struct World {
    simulator: Simulator,
    effects: Effects,
}

impl World {
    fn new(page_limit: Option<usize>) -> Self {
        let quirks = Quirks { page_limit, ..Quirks::default() };
        let effects = Effects::seeded(1, START).with_clock(std::sync::Arc::new(SimulatedClock::new(START)));
        Self { simulator: Simulator::new(1).with_quirks(quirks), effects }
    }

    fn config(&self) -> S3Config {
        config(&self.simulator, "handle").with_effects(self.effects.clone())
    }

    async fn open(&self) -> S3Store {
        self.config().with_option("index", INDEX).unwrap().open().await.unwrap()
    }

    fn creation(&self, project: &str, creator: &Actor) -> Commit {
        let new = NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT)
            .with_patch(&Patch::new().with_label("project", project).with_label("other", project));
        Commit::create(&self.effects, new).with_actor(creator.clone())
    }

    async fn create(&self, store: &S3Store, project: &str, creator: &Actor) -> SessionId {
        store.commit(self.creation(project, creator)).await.unwrap().session.id
    }

    async fn change(&self, store: &S3Store, id: SessionId, change: impl FnOnce(Commit) -> Commit) {
        let head = store.load(id).await.unwrap().head;
        store.commit(change(Commit::seal(&self.effects, id, head))).await.unwrap();
    }

    async fn label(&self, store: &S3Store, id: SessionId, patch: Patch) {
        self.change(store, id, |commit| commit.with_event(NewEvent::updated(patch))).await;
    }

    /// Keys of the index of fields.
    fn keys(&self) -> Vec<String> {
        self.simulator.keys().into_iter().filter(|key| key.contains("/idx/l/")).collect()
    }
}

fn named(name: &str) -> Actor {
    Actor::named(Role::User, name).unwrap()
}

fn of_project(project: &str) -> SessionQuery {
    SessionQuery::new().with_label("project", project)
}

/// All sessions of a query, each page after the other.
async fn listed(store: &S3Store, query: SessionQuery) -> BTreeSet<SessionId> {
    let (mut all, mut cursor) = (BTreeSet::new(), None);
    loop {
        let page = store.list(query.clone().with_cursor(cursor)).await.unwrap();
        assert_eq!(page.damaged, []);
        for item in page.items {
            assert!(all.insert(item.id), "each is listed once");
        }
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

/// A change of the value moves the key, and so do an archive and a restore; lists show the session where it is.
#[tokio::test(start_paused = true)]
async fn changed_value_moves_the_key() {
    let world = World::new(None);
    let (store, alice) = (world.open().await, named("alice"));
    let id = world.create(&store, "red", &alice).await;
    let is = |ids: BTreeSet<SessionId>| ids.into_iter().eq([id]);
    assert_eq!(world.keys().len(), 2);
    assert!(is(listed(&store, of_project("red")).await));
    assert!(is(listed(&store, SessionQuery::new().with_creator(alice.clone())).await));
    assert!(is(listed(&store, of_project("red").with_creator(alice.clone())).await));
    assert!(listed(&store, of_project("red").with_creator(named("bob"))).await.is_empty());
    assert!(listed(&store, of_project("red").with_label("other", "blue")).await.is_empty());

    world.label(&store, id, Patch::new().with_label("project", "blue")).await;
    assert!(listed(&store, of_project("red")).await.is_empty());
    assert!(is(listed(&store, of_project("blue")).await));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(world.keys().len(), 2, "the former key is deleted");

    world.label(&store, id, Patch::new().without_label("project")).await;
    assert!(listed(&store, of_project("blue")).await.is_empty());
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(world.keys().len(), 1);

    world.label(&store, id, Patch::new().with_label("project", "red")).await;
    world.change(&store, id, |commit| commit.with_trigger(Trigger::Archive)).await;
    assert!(listed(&store, of_project("red")).await.is_empty());
    assert!(is(listed(&store, of_project("red").with_states([SessionState::Archived])).await));
    assert!(is(listed(&store, of_project("red").with_hidden()).await));
    world.change(&store, id, |commit| commit.with_trigger(Trigger::Unarchive)).await;
    assert!(is(listed(&store, of_project("red")).await));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(world.keys().len(), 2);
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// A change of a label that is cut off after any of its requests is in the lists exactly if it was made.
#[tokio::test(start_paused = true)]
async fn lists_of_labels_agree_with_loads_after_any_cut() {
    let (mut made, mut cut) = (0, 0);
    for requests in 0..10 {
        let world = World::new(None);
        let store = world.open().await;
        let id = world.create(&store, "red", &Actor::SYSTEM).await;
        let head = store.load(id).await.unwrap().head;
        let patch = Patch::new().with_label("project", "blue");
        let change = Commit::seal(&world.effects, id, head).with_event(NewEvent::updated(patch));
        world.simulator.set_plan(FaultPlan::healthy());
        let before = world.simulator.requests();
        let stop = async {
            while world.simulator.requests() < before + requests {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            biased;
            () = stop => cut += 1,
            done = store.commit(change) => drop(done.unwrap()),
        }
        world.simulator.set_plan(FaultPlan::quiet());
        let fresh = world.open().await;
        let is_made = fresh.load(id).await.unwrap().attributes.labels["project"] == "blue";
        made += usize::from(is_made);
        for (project, is_there) in [("red", !is_made), ("blue", is_made)] {
            let found = listed(&fresh, of_project(project)).await;
            assert_eq!(found.len(), usize::from(is_there), "{requests}: {project}");
        }
        assert_eq!(fresh.maintenance().check().await.unwrap(), []);
    }
    assert!(made > 3 && cut > 1, "{made} {cut}");
}

/// A session that moves to the front of the list of its label while it is read is shown, also if its old key is deleted
/// at once.
#[tokio::test(start_paused = true)]
async fn labelled_session_that_moves_is_not_left_out() {
    for seed in 0..20_u64 {
        let world = World::new(Some(3));
        let store = world.open().await;
        let mut ids = Vec::new();
        for n in 0..20 {
            let id = world.create(&store, ["red", "blue"][n % 2], &Actor::SYSTEM).await;
            ids.extend((n % 2 == 0).then_some(id));
            tokio::time::sleep(Duration::from_secs(120)).await;
        }
        let lister = world.open().await;
        world.simulator.set_plan(FaultPlan::healthy());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let mover = async {
            tokio::time::sleep(Duration::from_millis(seed * 7)).await;
            for id in ids.iter().take(3) {
                let is_its = |key: &String| key.contains(&id.to_string());
                let old: Vec<_> = world.keys().into_iter().filter(is_its).collect();
                world.change(&store, *id, |commit| commit.with_event(NewEvent::user_message("x"))).await;
                old.iter().for_each(|key| world.simulator.remove_object(key));
            }
        };
        let (list, ()) = tokio::join!(listed(&lister, of_project("red").with_limit(50)), mover);
        assert_eq!(list, ids.iter().copied().collect(), "seed {seed}");
    }
}

/// A lost key of a label is named by the check, and is put again by a rebuild.
#[tokio::test(start_paused = true)]
async fn rebuild_puts_lost_keys_of_labels_again() {
    let world = World::new(None);
    let store = world.open().await;
    let id = world.create(&store, "red", &named("alice")).await;
    let keys = world.keys();
    keys.iter().for_each(|key| world.simulator.remove_object(key));
    assert!(listed(&store, of_project("red")).await.is_empty());
    let faults = store.maintenance().check().await.unwrap();
    assert!(faults.len() == 2 && faults.iter().all(|fault| fault.reason.contains("/idx/l/")), "{faults:?}");
    store.maintenance().rebuild().await.unwrap();
    assert_eq!(world.keys(), keys);
    assert_eq!(listed(&store, of_project("red")).await, BTreeSet::from([id]));
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// A total counts all that match, and the pages are those without a total.
#[tokio::test(start_paused = true)]
async fn total_counts_all_on_every_page() {
    let world = World::new(Some(7));
    let store = world.open().await;
    let mut ids = BTreeSet::new();
    for n in 0..60 {
        let id = world.create(&store, ["red", "blue", "green"][n % 3], &Actor::SYSTEM).await;
        tokio::time::sleep(Duration::from_secs(90)).await;
        ids.extend((n % 3 == 0).then_some(id));
    }
    // Some move to the front.
    for id in ids.iter().take(5) {
        world.change(&store, *id, |commit| commit.with_event(NewEvent::user_message("x"))).await;
    }
    for by_label in [true, false] {
        let label = if by_label { "project" } else { "other" };
        let query = SessionQuery::new().with_label(label, "red").with_limit(6);
        let (mut plain, mut counted) = (query.clone(), query.with_total());
        let mut seen = BTreeSet::new();
        loop {
            let (one, two) =
                (store.list(plain.clone()).await.unwrap(), store.list(counted.clone()).await.unwrap());
            assert_eq!((&one.items, two.total, one.total), (&two.items, Some(20), None));
            assert_eq!(one.next, two.next);
            seen.extend(one.items.iter().map(|item| item.id));
            if one.next.is_none() {
                break;
            }
            (plain, counted) = (plain.with_cursor(one.next.clone()), counted.with_cursor(two.next));
        }
        assert_eq!(seen, ids, "by {label}");
        let none = store.list(counted.with_cursor(None).with_limit(0)).await.unwrap();
        assert_eq!((none.total, none.items.len(), none.next), (Some(20), 0, None));
    }
}

/// A session that moved is counted once in a total, also if its former key is far behind the present one.
#[tokio::test(start_paused = true)]
async fn total_counts_a_moved_session_once() {
    let world = World::new(None);
    let store = world.open().await;
    let moved = world.create(&store, "red", &Actor::SYSTEM).await;
    tokio::time::sleep(Duration::from_secs(1200)).await;
    for _ in 0..1100 {
        world.create(&store, "red", &Actor::SYSTEM).await;
    }
    let before = world.keys().len();
    world.change(&store, moved, |commit| commit.with_event(NewEvent::user_message("x"))).await;
    assert_eq!(world.keys().len(), before + 2, "the former keys are there");
    for query in [of_project("red"), SessionQuery::new()] {
        let page = store.list(query.with_total().with_limit(3)).await.unwrap();
        assert_eq!((page.total, page.items.len()), (Some(1101), 3));
    }
}

/// A purge removes the keys of labels and creators, whose names are made of what people wrote; the session stays in the
/// lists of the tenant.
#[tokio::test(start_paused = true)]
async fn purge_removes_the_keys_of_fields() {
    let world = World::new(None);
    let store = world.open().await;
    let id = world.create(&store, "red", &named("alice")).await;
    let delete = Trigger::Delete(Reason::UserDeleted);
    world.change(&store, id, |commit| commit.with_trigger(delete)).await;
    assert_eq!(listed(&store, of_project("red").with_hidden()).await, BTreeSet::from([id]));
    let head = store.load(id).await.unwrap().head;
    store.purge(Purge::new(id, head)).await.unwrap();
    assert_eq!(listed(&store, of_project("red").with_hidden()).await, BTreeSet::new());
    assert_eq!(listed(&store, SessionQuery::new().with_hidden()).await, BTreeSet::from([id]));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(world.keys(), [""; 0]);
    assert_eq!(store.maintenance().check().await.unwrap(), []);
}

/// The first store of a prefix decides; another index is refused by name.
#[tokio::test(start_paused = true)]
async fn index_of_a_prefix_is_kept() {
    let world = World::new(None);
    let store = world.open().await;
    let id = world.create(&store, "red", &Actor::SYSTEM).await;
    // With the copy in the result of the probe, and without it.
    for _ in 0..2 {
        let same = world.config().open().await.unwrap();
        assert_eq!(listed(&same, of_project("red")).await, BTreeSet::from([id]));
        world.create(&same, "blue", &Actor::SYSTEM).await;
        world.open().await;
        for other in ["", "creator", "creator,label.project", "label.project,creator,label.user"] {
            let error = world.config().with_option("index", other).unwrap().open().await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput);
            let named = format!("index={INDEX}, and is opened with index={other};");
            assert!(error.to_string().contains(&named), "{error}");
        }
        world.simulator.remove_object("agents/probe/passed");
    }
    assert_eq!(world.keys().len(), 6);
    let fields = [IndexedField::Label("project".to_owned()), IndexedField::Creator];
    let config = world.config().with_index(fields.clone()).unwrap();
    assert_eq!(listed(&config.open().await.unwrap(), of_project("red")).await, BTreeSet::from([id]));
    for bad in ["project", "label.", "creator,creator", "label.a\nb"] {
        let error = world.config().with_option("index", bad).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{bad}");
    }
    let many = (0..9).map(|n| IndexedField::Label(n.to_string()));
    assert!(world.config().with_index(many).is_err());
    assert!(world.config().with_index([IndexedField::Label("a,b".to_owned())]).is_err());
    // Data without settings was written without an index.
    let world = World::new(None);
    let store = world.config().open().await.unwrap();
    world.create(&store, "red", &Actor::SYSTEM).await;
    assert_eq!(world.keys(), [""; 0]);
    for key in ["agents/probe/passed", "agents/settings"] {
        world.simulator.remove_object(key);
    }
    let error = world.config().with_index(fields).unwrap().open().await.unwrap_err();
    assert!(error.to_string().contains("index=, and is opened with"), "{error}");
}
