//! Processes that end between any two requests of any operation: what they leave behind is right, and goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Patch, Timer, Workspace};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BindingQuery, Purge, PutBlob, ReadBlob, SessionQuery, SweepBlobs, WorkspaceQuery};
use agent_core::{
    Backend, BindingStore, BlobName, DeviceId, ErrorKind, Result, Seq, SessionId, SessionStore, TenantId,
    Timestamp, WorkspaceId, WorkspaceStore,
};
use agent_storage_s3::{IndexedField, S3Config, S3Store};
use futures::future::BoxFuture;
use object_store::client::HttpConnector;
use s3_simulator::{FaultPlan, SimulatedClock, Simulator};
use tokio::time::{sleep, timeout};

use crate::backend::config_of;
use crate::support::is_thorough;

/// The simulated server's clock starts at the same time.
const START: Timestamp = Timestamp::from_micros(20_500 * 86_400_000_000);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// More than an operation may take, in simulated time.
pub(crate) const STUCK: Duration = Duration::from_secs(3600);
/// Number of sessions, and of blobs, that a setup makes.
const SESSIONS: usize = 3;

pub(crate) struct World {
    pub(crate) simulator: Simulator,
    effects: Effects,
    clock: SimulatedClock,
    sessions: [SessionId; SESSIONS],
    workspace: WorkspaceId,
    /// What was sent first, so that the same is sent again.
    sent: Mutex<Option<Commit>>,
    /// How the process that is cut off opens a store, if that is the operation.
    pub(crate) opens: Mutex<Option<S3Config>>,
}

impl World {
    fn new() -> Self {
        let clock = SimulatedClock::new(START);
        let effects = Effects::seeded(1, START).with_clock(Arc::new(clock.clone()));
        Self {
            simulator: Simulator::new(1),
            sessions: std::array::from_fn(|_| effects.new_session_id()),
            workspace: effects.new_workspace_id(),
            sent: Mutex::default(),
            opens: Mutex::default(),
            clock,
            effects,
        }
    }

    pub(crate) fn config(&self, connector: impl HttpConnector) -> S3Config {
        // Each process has random numbers of its own.
        let effects = Effects::default().with_clock(Arc::new(self.clock.clone()));
        let config = config_of(connector).with_index([IndexedField::Label("project".to_owned())]);
        config.unwrap().with_effects(effects)
    }

    async fn open(&self, client: &str) -> Result<S3Store> {
        self.config(self.simulator.connector(client)).open().await
    }

    /// Sends a commit, the same one each time.
    async fn send(&self, store: &S3Store, n: usize, change: impl FnOnce(Commit) -> Commit) -> Result<()> {
        let sent = self.sent.lock().unwrap().clone();
        let commit = match sent {
            Some(commit) => commit,
            None => {
                let head = SessionStore::load(store, self.sessions[n]).await?.head;
                let commit = change(Commit::seal(&self.effects, self.sessions[n], head));
                self.sent.lock().unwrap().insert(commit).clone()
            }
        };
        store.commit(commit).await.map(drop)
    }

    async fn create(&self, store: &S3Store, new: impl FnOnce() -> NewSession) -> Result<()> {
        let sent = self.sent.lock().unwrap().clone();
        let commit = sent.unwrap_or_else(|| Commit::create(&self.effects, new()));
        *self.sent.lock().unwrap() = Some(commit.clone());
        store.commit(commit).await.map(drop)
    }

    fn forget(&self) {
        *self.sent.lock().unwrap() = None;
    }
}

type Step = for<'a> fn(&'a World, &'a S3Store) -> BoxFuture<'a, Result<()>>;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What was acknowledged before.
    setup: &'static [Step],
    pub(crate) step: Step,
}

fn create<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    let patch = Patch::new().with_label("project", "travel");
    let new = NewSession::new(world.sessions[0], world.workspace).with_patch(&patch);
    Box::pin(world.create(store, || new))
}

fn append_text<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(world.send(store, 0, |commit| commit.with_event(NewEvent::user_message("hello"))))
}

fn begin<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    let lease = LeaseRequest::new("holder", world.effects.new_run_id());
    Box::pin(world.send(store, 0, |commit| {
        commit.with_event(NewEvent::user_message("go")).with_trigger(Trigger::BeginRun(lease))
    }))
}

fn end<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let lease = SessionStore::load(store, world.sessions[0]).await?.lease.clone();
        world
            .send(store, 0, |commit| {
                let lease = lease.unwrap();
                let ended = Trigger::EndRun(RunEnd::Completed(Reason::EndTurn));
                commit.with_fence(lease.run, lease.epoch).with_trigger(ended)
            })
            .await
    })
}

fn wake<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    let at = START.plus_micros(3_600_000_000);
    Box::pin(
        world.send(store, 0, move |commit| {
            commit.with_event(NewEvent::timer_scheduled(Timer::new("wake", at)))
        }),
    )
}

fn relabel<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    let patch = Patch::new().with_label("project", "work");
    Box::pin(world.send(store, 0, |commit| commit.with_event(NewEvent::updated(patch))))
}

fn archive<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(world.send(store, 0, |commit| commit.with_trigger(Trigger::Archive)))
}

fn restore<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(world.send(store, 0, |commit| commit.with_trigger(Trigger::Unarchive)))
}

fn suspend<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(world.send(store, 0, |commit| commit.with_trigger(Trigger::Suspend(Reason::UserPaused))))
}

fn terminate<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(world.send(store, 0, |commit| commit.with_trigger(Trigger::Terminate(Reason::UserEnded))))
}

fn delete<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(world.send(store, 0, |commit| commit.with_trigger(Trigger::Delete(Reason::UserDeleted))))
}

fn purge<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let head = SessionStore::load(store, world.sessions[0]).await?.head;
        store.purge(Purge::new(world.sessions[0], head)).await.map(drop)
    })
}

fn fork<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let parent = SessionStore::load(store, world.sessions[0]).await?;
        let id = world.sessions[1];
        world.create(store, || NewSession::fork(id, &parent)).await
    })
}

fn heartbeat<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let epoch = SessionStore::load(store, world.sessions[0]).await?.epoch;
        store.leases().heartbeat(world.sessions[0], epoch).await
    })
}

fn device() -> DeviceId {
    "laptop".parse().unwrap()
}

fn bind<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(
        async move { store.bind(&device(), world.workspace, Precondition::MustNotExist).await.map(drop) },
    )
}

/// More devices of the same workspace.
fn bind_others<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for n in 0..3 {
            let other = format!("other-{n}").parse().unwrap();
            store.bind(&other, world.workspace, Precondition::MustNotExist).await?;
        }
        Ok(())
    })
}

fn rebind<'a>(_: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(
        async move { store.bind(&device(), WorkspaceId::DEFAULT, Precondition::MustExist).await.map(drop) },
    )
}

fn unbind<'a>(_: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move { store.unbind(&device()).await.map(drop) })
}

fn unbind_workspace<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move { store.unbind_workspace(world.workspace).await.map(drop) })
}

fn put_workspace<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    let new = Workspace::new(world.workspace, "Travel", world.sessions[2], START);
    Box::pin(async move { store.put(new, Precondition::MustNotExist).await.map(drop) })
}

fn touch<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    let at = START.plus_micros(3_600_000_000);
    Box::pin(async move { store.touch(world.workspace, at).await })
}

fn configure<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        store.save_config(world.workspace, Some("{}".to_owned()), Precondition::MustNotExist).await
    })
}

fn delete_workspace<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move { WorkspaceStore::delete(store, world.workspace).await })
}

const SMALL: &[u8] = b"some bytes";

fn put_blob<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(store.blobs().put(PutBlob::of_bytes(world.sessions[0], SMALL)))
}

/// More blobs of the same session.
fn put_others<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for n in 0..3 {
            store.blobs().put(PutBlob::of_bytes(world.sessions[0], format!("some bytes {n}"))).await?;
        }
        Ok(())
    })
}

fn put_large<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(store.blobs().put(PutBlob::of_bytes(world.sessions[0], vec![7; 9 << 20])))
}

fn name_blob<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    let named = NewEvent::new("x.app.drawn".parse().unwrap(), RawJson::empty_object());
    Box::pin(world.send(store, 0, |commit| commit.with_event(named.with_blob(BlobName::of(SMALL)))))
}

fn sweep<'a>(world: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move { store.blobs().sweep(SweepBlobs::of(world.sessions[0])).await.map(drop) })
}

fn sweep_early<'a>(_: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move { store.blobs().sweep(SweepBlobs::without_session()).await.map(drop) })
}

fn rebuild<'a>(_: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move { store.maintenance().rebuild().await.map(drop) })
}

fn delete_tenant<'a>(_: &'a World, store: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move { store.delete_tenant(&TenantId::default()).await.map(drop) })
}

fn lose_keys<'a>(world: &'a World, _: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    let keys =
        world.simulator.keys().into_iter().filter(|key| key.contains("/idx/") || key.contains("/work/"));
    keys.for_each(|key| world.simulator.remove_object(&key));
    Box::pin(async { Ok(()) })
}

fn rest<'a>(_: &'a World, _: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async {
        sleep(Duration::from_secs(3600)).await;
        Ok(())
    })
}

fn rest_long<'a>(_: &'a World, _: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    Box::pin(async {
        sleep(20 * DAY).await;
        Ok(())
    })
}

fn forget_settings<'a>(world: &'a World, _: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    world.simulator.remove_object("agents/settings");
    Box::pin(async { Ok(()) })
}

fn open<'a>(world: &'a World, _: &'a S3Store) -> BoxFuture<'a, Result<()>> {
    world.simulator.remove_object("agents/probe/passed");
    let config = world.opens.lock().unwrap().take();
    let config = config.unwrap_or_else(|| world.config(world.simulator.connector("probing")));
    Box::pin(async move { config.open().await.map(drop) })
}

/// Each operation that sends more than one request.
pub(crate) const CASES: &[Case] = &[
    Case { name: "create", setup: &[], step: create },
    Case { name: "fork", setup: &[create, append_text], step: fork },
    Case { name: "commit an input", setup: &[create], step: append_text },
    Case { name: "commit after a rest", setup: &[create, rest], step: append_text },
    Case { name: "begin a run", setup: &[create], step: begin },
    Case { name: "end a run", setup: &[create, begin], step: end },
    Case { name: "first heartbeat", setup: &[create, begin], step: heartbeat },
    Case { name: "schedule", setup: &[create], step: wake },
    Case { name: "change a label", setup: &[create], step: relabel },
    Case { name: "archive", setup: &[create], step: archive },
    Case { name: "restore", setup: &[create, archive], step: restore },
    Case { name: "suspend", setup: &[create], step: suspend },
    Case { name: "terminate", setup: &[create], step: terminate },
    Case { name: "delete", setup: &[create, append_text], step: delete },
    Case { name: "purge", setup: &[create, append_text, put_blob, name_blob, delete], step: purge },
    Case { name: "purge with a fork", setup: &[create, append_text, fork, append_text, delete], step: purge },
    Case { name: "bind", setup: &[], step: bind },
    Case { name: "bind to another", setup: &[bind], step: rebind },
    Case { name: "unbind", setup: &[bind], step: unbind },
    Case { name: "unbind a workspace", setup: &[bind_others], step: unbind_workspace },
    Case { name: "create a workspace", setup: &[], step: put_workspace },
    Case { name: "use a workspace", setup: &[put_workspace, rest], step: touch },
    Case { name: "configure a workspace", setup: &[put_workspace], step: configure },
    Case { name: "delete a workspace", setup: &[put_workspace], step: delete_workspace },
    Case { name: "put a blob", setup: &[create], step: put_blob },
    Case { name: "put a large blob", setup: &[create], step: put_large },
    Case { name: "put a blob before its session", setup: &[], step: put_blob },
    Case { name: "name a blob", setup: &[create, put_blob], step: name_blob },
    Case { name: "create with a blob", setup: &[put_blob], step: create },
    Case { name: "sweep", setup: &[create, put_blob, put_others, delete], step: sweep },
    Case { name: "sweep early blobs", setup: &[put_blob, put_others, rest_long], step: sweep_early },
    Case {
        name: "rebuild",
        setup: &[create, begin, bind, bind_others, put_workspace, lose_keys],
        step: rebuild,
    },
    Case {
        name: "delete a tenant",
        setup: &[create, append_text, bind, bind_others, put_workspace, put_blob, put_others],
        step: delete_tenant,
    },
    Case { name: "open for the first time", setup: &[forget_settings], step: open },
    Case { name: "open with a probe", setup: &[create], step: open },
];

/// Where a process ends: when it has sent its n-th request, or when that has been carried out and is not answered yet.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Sent(usize),
    Done(usize),
    Never,
}

impl Cut {
    fn is_now(self, world: &World, before: usize) -> bool {
        let entries = || world.simulator.entries().into_iter().skip(before);
        match self {
            Self::Sent(n) => entries().count() >= n,
            Self::Done(n) => entries().filter(|entry| !entry.done.is_empty()).count() >= n,
            Self::Never => false,
        }
    }
}

/// Makes what was acknowledged before.
pub(crate) async fn set_up(case: &Case) -> World {
    let world = World::new();
    let store = world.open("setup").await.unwrap();
    for step in case.setup {
        step(&world, &store).await.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        world.forget();
    }
    store.close().await.unwrap();
    world
}

/// Runs a case that is cut off. Returns the world, and whether the operation ended before the cut.
async fn run(case: &Case, cut: Cut) -> (World, bool) {
    let world = set_up(case).await;
    // The process that is cut off knows what it has read, but sends what it has put off no more.
    let store = world.open("cut").await.unwrap();
    world.simulator.set_plan(FaultPlan::healthy());
    let before = world.simulator.requests();
    let stop = async {
        while !cut.is_now(&world, before) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let ended = tokio::select! {
        biased;
        () = stop => false,
        done = timeout(STUCK, (case.step)(&world, &store)) => {
            done.expect("an operation ends").unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
            true
        }
    };
    world.simulator.set_plan(FaultPlan::quiet());
    store.close().await.unwrap();
    (world, ended)
}

/// What a collector does, now and then.
async fn collect(world: &World) {
    for _ in 0..3 {
        sleep(15 * DAY).await;
        let store = world.open("collector").await.unwrap();
        store.maintenance().rebuild().await.unwrap();
        store.blobs().sweep(SweepBlobs::without_session()).await.unwrap();
        for id in world.sessions {
            if let Ok(session) = SessionStore::load(&store, id).await {
                store.blobs().sweep(SweepBlobs::of(id)).await.unwrap();
                if session.status.state == SessionState::Deleted {
                    store.purge(Purge::new(id, session.head)).await.unwrap();
                }
            }
        }
        // What is superseded is deleted two minutes later.
        sleep(Duration::from_secs(300)).await;
        store.close().await.unwrap();
    }
}

/// Ends all that the case has made, so that whatever is left then is left for ever.
async fn finish(world: &World, case: &Case) {
    let store = world.open("last").await.unwrap();
    if case.name == "delete a tenant" {
        store.delete_tenant(&TenantId::default()).await.unwrap();
    }
    for id in world.sessions.into_iter().rev() {
        if let Ok(session) = SessionStore::load(&store, id).await
            && session.status.state != SessionState::Deleted
        {
            let delete = Commit::seal(&world.effects, id, session.head);
            store.commit(delete.with_trigger(Trigger::Delete(Reason::UserDeleted))).await.unwrap();
        }
    }
    for workspace in [world.workspace, WorkspaceId::DEFAULT] {
        store.unbind_workspace(workspace).await.unwrap();
    }
    if WorkspaceStore::load(&store, world.workspace).await.is_ok() {
        WorkspaceStore::delete(&store, world.workspace).await.unwrap();
    }
    store.close().await.unwrap();
    collect(world).await;
}

/// All keys, with what differs from run to run left out, and how often there is such a key.
fn shapes(world: &World) -> BTreeMap<String, usize> {
    let mut shapes = BTreeMap::new();
    for key in world.simulator.keys() {
        // Slots, ids, hashes, minutes and random numbers have digits; names of folders have none, but for formats.
        let is_name = |part: &&str| part.starts_with('v') || !part.bytes().any(|byte| byte.is_ascii_digit());
        let parts: Vec<_> = key.split('/').map(|part| if is_name(&part) { part } else { "*" }).collect();
        *shapes.entry(parts.join("/")).or_default() += 1;
    }
    shapes
}

async fn all_sessions(store: &S3Store, query: SessionQuery) -> BTreeSet<SessionId> {
    let page = SessionStore::list(store, query).await.unwrap();
    assert_eq!((page.next, page.damaged), (None, Vec::new()));
    page.items.iter().map(|item| item.id).collect()
}

/// Lists show what is there, and only that.
async fn judge(world: &World, store: &S3Store, what: &str) {
    assert_eq!(store.maintenance().check().await.unwrap(), [], "{what}");
    let everything = SessionQuery::new().with_hidden();
    let (all, in_workspace) = (
        all_sessions(store, everything.clone()).await,
        all_sessions(store, everything.clone().with_workspace(world.workspace)).await,
    );
    for id in world.sessions {
        let Ok(session) = SessionStore::load(store, id).await else {
            assert!(
                !all.contains(&id) && !in_workspace.contains(&id),
                "{what}: {id} is listed and not there"
            );
            continue;
        };
        assert!(all.contains(&id) && in_workspace.contains(&id), "{what}: {id} is not listed");
        let state = everything.clone().with_states([session.status.state]);
        assert!(all_sessions(store, state).await.contains(&id), "{what}: {id} is not listed by its state");
        let shown = all_sessions(store, SessionQuery::new()).await;
        assert_eq!(shown.contains(&id), !session.status.state.is_hidden(), "{what}: {id}");
        if let Some(label) = session.attributes.labels.get("project") {
            let labelled = everything.clone().with_label("project", label.clone());
            assert!(
                all_sessions(store, labelled).await.contains(&id),
                "{what}: {id} is not listed by its label"
            );
        }
        if let Some(at) = session.next_due_at() {
            let due = all_sessions(store, SessionQuery::new().with_due(at)).await;
            assert!(due.contains(&id), "{what}: {id} is not listed as due");
        }
    }
    let bound = store.resolve(&device()).await.unwrap();
    for query in [Some(world.workspace), Some(WorkspaceId::DEFAULT), None] {
        let list = query.map_or_else(BindingQuery::new, |id| BindingQuery::new().with_workspace(id));
        let found = BindingStore::list(store, list).await.unwrap().items;
        let expected = bound.filter(|to| query.is_none_or(|id| id == *to));
        let of_laptop: Vec<_> = found.iter().filter(|binding| binding.device == device()).collect();
        assert_eq!(of_laptop.iter().map(|binding| binding.workspace).next(), expected, "{what}: {query:?}");
        assert!(of_laptop.len() <= 1, "{what}: {found:?}");
        for other in found.iter().filter(|binding| binding.device != device()) {
            assert_eq!(store.resolve(&other.device).await.unwrap(), Some(other.workspace), "{what}");
        }
    }
    let is_there = WorkspaceStore::load(store, world.workspace).await.is_ok();
    let listed = WorkspaceStore::list(store, WorkspaceQuery::new()).await.unwrap().items;
    assert_eq!(listed.len(), usize::from(is_there), "{what}");
}

/// What an undisturbed run of a case leaves for ever.
pub(crate) async fn undisturbed(case: &Case) -> BTreeMap<String, usize> {
    let (world, ended) = run(case, Cut::Never).await;
    assert!(ended);
    finish(&world, case).await;
    assert_eq!(legible(&world), [""; 0], "{}", case.name);
    shapes(&world)
}

/// Judges what a process left that ended within a case. Returns what stays for ever beside what is `expected`. The
/// operation is done `again` by another process, or not.
pub(crate) async fn aftermath(
    world: &World,
    case: &Case,
    expected: &BTreeMap<String, usize>,
    again: bool,
    what: &str,
) -> Vec<String> {
    let store = world.open("other").await.unwrap();
    // Keys that were lost are missing until then.
    if case.name != "rebuild" {
        judge(world, &store, what).await;
    }
    if again {
        match (case.step)(world, &store).await {
            Ok(()) => {}
            // It was done, and had to be the first.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {}
            Err(error) => panic!("{what}: {error:?}"),
        }
        judge(world, &store, what).await;
    }
    store.close().await.unwrap();
    collect(world).await;
    let store = world.open("late").await.unwrap();
    judge(world, &store, what).await;
    store.close().await.unwrap();
    finish(world, case).await;
    let most = |shape: &String| expected.get(shape).copied().unwrap_or_default();
    let left = shapes(world);
    let more = left.iter().filter(|(shape, count)| **count > most(shape));
    let more = more.map(|(shape, count)| format!("{what}: {count} of {shape} are left, not {}", most(shape)));
    more.chain(legible(world).into_iter().map(|left| format!("{what}: {left}"))).collect()
}

/// Objects that hold what anybody said or named, now that everything is deleted.
fn legible(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for key in world.simulator.keys() {
        let body = world.simulator.object(&key).unwrap();
        let body = String::from_utf8_lossy(&body);
        let texts =
            ["hello", "travel", "Travel", "some bytes"].into_iter().filter(|text| body.contains(text));
        found.extend(texts.map(|text| format!("{key} still has {text:?}")));
    }
    found
}

/// A process that ends between any two requests of any operation leaves every session, workspace and device in each list
/// that it belongs to, and in no other. The same operation again, by another process, succeeds. Whether it is done again
/// or not, nothing stays that an undisturbed operation would not leave.
#[tokio::test(start_paused = true)]
async fn a_kill_between_any_two_requests_leaves_nothing_wrong() {
    let mut faults = Vec::new();
    for case in CASES {
        let expected = undisturbed(case).await;
        let mut cuts = 0;
        for at in 1.. {
            let before = cuts;
            for (n, cut) in [Cut::Sent(at), Cut::Done(at)].into_iter().enumerate() {
                // In turn done again and not; both where each cut is tried in every way.
                for again in [true, false] {
                    if !is_thorough() && again == (at + n).is_multiple_of(2) {
                        continue;
                    }
                    let (world, ended) = run(case, cut).await;
                    cuts += usize::from(!ended);
                    let what = format!("{}, {cut:?}, again: {again}", case.name);
                    faults.extend(aftermath(&world, case, &expected, again, &what).await);
                }
            }
            if cuts == before {
                break;
            }
        }
        assert!(cuts >= 2, "{} sends one request only", case.name);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A blob that an event names can be read after any cut, and a session is not the less for one that nothing names.
#[tokio::test(start_paused = true)]
async fn a_kill_loses_no_blob_that_an_event_names() {
    let mut reads = 0;
    for case in CASES.iter().filter(|case| case.name.contains("blob") || case.name == "purge") {
        for at in 1..12 {
            let (world, ended) = run(case, Cut::Done(at)).await;
            let store = world.open("other").await.unwrap();
            collect(&world).await;
            let Ok(session) = SessionStore::load(&store, world.sessions[0]).await else { continue };
            if session.status.state == SessionState::Deleted {
                continue;
            }
            let log = store.read(session.id, agent_core::store::ReadEvents::first(100)).await.unwrap();
            if log.events.iter().any(|event| event.seq > Seq::new(1) && !event.blobs.is_empty()) {
                let read = ReadBlob::new(session.id, BlobName::of(SMALL));
                let bytes = store.blobs().read(read).await.unwrap().into_bytes(1 << 20).await.unwrap();
                assert_eq!(&bytes[..], SMALL, "{} {at} {ended}", case.name);
                reads += 1;
            }
        }
    }
    assert!(reads >= 5, "{reads} blobs were named");
}

/// Keys of a creation that was cut off are removed by a rebuild alone, also if a blob was put for the session before.
#[tokio::test(start_paused = true)]
async fn rebuild_removes_the_keys_of_a_creation_with_a_blob() {
    let case = Case { name: "create with a blob", setup: &[put_blob], step: create };
    // The head, the blob and the parent are looked at, then the keys are put, then the slot.
    let keys_of_lists = |world: &World| {
        let is_key = |key: &String| key.contains("/idx/") && !key.contains("/idx/blob/");
        world.simulator.keys().into_iter().filter(is_key).count()
    };
    let mut left = 0;
    for at in 1..12 {
        let (world, _) = run(&case, Cut::Done(at)).await;
        let store = world.open("other").await.unwrap();
        if SessionStore::load(&store, world.sessions[0]).await.is_ok() {
            continue;
        }
        left += keys_of_lists(&world);
        sleep(8 * DAY).await;
        assert_eq!(store.maintenance().check().await.unwrap().is_empty(), keys_of_lists(&world) == 0, "{at}");
        store.maintenance().rebuild().await.unwrap();
        assert_eq!(keys_of_lists(&world), 0, "{at}");
    }
    assert!(left > 0, "no cut left a key");
}
