//! Sessions that help others: started with a task, run by whoever looks after the sessions, and their outcome told to the
//! parent once.

#![cfg(feature = "runtime")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod runtime_common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::runtime::{AgentRuntime, EchoProvider, Scheduler, ScriptedProvider, Turn};
use agent_core::{
    Body, Capabilities, Commit, Committed, Epoch, Error, ErrorKind, EventPage, EventType, NewEvent, Page,
    Patch, Pulse, Purge, Purged, ReadEvents, Result, Seq, Session, SessionHandle, SessionId, SessionQuery,
    SessionState, SessionStore, SessionStoreExt, SessionSummary, Storage, Title, WriteOutcome, async_trait,
};
use runtime_common::{agent, all_storages, check_log, device, log, read, said};

/// A session with a child that has done its task, told or not.
async fn family(agent: &AgentRuntime, name: &str) -> (SessionHandle, SessionHandle) {
    let parent = agent.open(&device(name)).await.unwrap();
    let patch = Patch::new().title(Title::by_user("search"));
    let child = parent.start_child("find it", &patch).await.unwrap();
    (parent, child)
}

/// What the parent's log says of its children's ends, and the inputs that these were.
async fn told(parent: &SessionHandle) -> (Vec<Option<String>>, Vec<String>) {
    let (mut ends, mut inputs) = (Vec::new(), Vec::new());
    for event in log(parent).await {
        match event.body().unwrap() {
            Body::SessionChildIdle(end) => ends.push(end.result),
            Body::UserMessage(message) => inputs.push(message.text),
            _ => {}
        }
    }
    (ends, inputs)
}

fn found() -> (Vec<Option<String>>, Vec<String>) {
    let words = "The session \"search\" that was started here has come to rest: idle (end_turn).\n\nfind it";
    (vec![Some("find it".to_owned())], vec![words.to_owned()])
}

/// O19: a child is linked when it is made, told of in its parent's log, listed by its parent, and run with its task; its
/// result is an input of the parent, once, and the parent's next run answers it.
#[tokio::test]
async fn o19_a_child_does_its_task_and_its_parent_is_told_once() {
    for (name, storage) in all_storages().await {
        let agent = agent(&storage, EchoProvider::new());
        let (parent, child) = family(&agent, "laptop").await;
        let made = child.snapshot();
        assert_eq!((made.origin.parent(), made.depth), (Some(parent.id()), 1), "{name}");
        assert_eq!(made.status.state, SessionState::Queued, "{name}: it waits for whoever runs it");
        let listed = storage.sessions.list(SessionQuery::new().parent(parent.id())).await.unwrap().items;
        assert_eq!(listed.iter().map(|child| child.id).collect::<Vec<_>>(), [child.id()], "{name}");
        let announced = log(&parent).await;
        assert_eq!(announced.last().unwrap().kind, EventType::SESSION_CHILD_CREATED, "{name}");

        let scheduler = Scheduler::new(agent.clone());
        assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
        assert_eq!(told(&parent).await, found(), "{name}: as soon as it is done");
        let round = scheduler.round().await.unwrap();
        assert_eq!((round.ran, round.reported), (1, 0), "{name}: the parent, with the result");
        assert_eq!(said(&parent).await.last().unwrap().1, found().1[0], "{name}");
        let round = scheduler.round().await.unwrap();
        assert_eq!((round.ran, round.reported), (0, 0), "{name}: nothing is left to do");

        // What the child does later is told as well, each time once.
        read(child.prompt("and that").await.unwrap()).await;
        read(child.prompt("and this").await.unwrap()).await;
        assert_eq!(told(&parent).await.0.len(), 3, "{name}");
        child.terminate().await.unwrap();
        let round = scheduler.round().await.unwrap();
        assert_eq!(round.reported, 1, "{name}: that it is over");
        scheduler.round().await.unwrap();
        assert_eq!(told(&parent).await.0.len(), 4, "{name}");
        check_log(&parent).await;
        check_log(&child).await;
    }
}

/// O19: a parent that takes no inputs any more is told in its log; where there is no parent any more, nobody is told, and
/// nobody tries for ever.
#[tokio::test]
async fn o19_a_parent_that_is_over_is_told_without_an_input() {
    for (name, storage) in all_storages().await {
        for delete in [false, true] {
            let agent = agent(&storage, EchoProvider::new());
            let (parent, child) = family(&agent, &format!("{delete}")).await;
            if delete {
                parent.delete().await.unwrap();
            } else {
                parent.terminate().await.unwrap();
            }
            let scheduler = Scheduler::new(agent.clone());
            assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name}");
            assert!(child.refresh().await.unwrap().to_report().is_none(), "{name}");
            let round = scheduler.round().await.unwrap();
            assert_eq!((round.ran, round.reported, round.failed), (0, 0, 0), "{name}");
            if !delete {
                assert_eq!(told(&parent).await, (found().0, vec![]), "{name}");
            }
        }
    }
}

/// O19, O04: many who tell at the same moment, and one who tells again much later since it was cut off before it could
/// note that it had, tell once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o19_o04_a_result_is_told_once_whoever_tells_it() {
    for (name, storage) in all_storages().await {
        let dying = Dying::new(&storage);
        let agent = agent(&storage, EchoProvider::new());
        let doomed = agent.rebind(dying.storage(&storage));
        let (parent, child) = family(&agent, "laptop").await;
        // Begin, end, read what was said, tell; then it dies.
        dying.die_before_noting(child.id());
        let theirs = doomed.session(child.id()).await.unwrap();
        read(theirs.wake().await.unwrap().unwrap()).await;
        assert_eq!(told(&parent).await, found(), "{name}");
        assert!(child.refresh().await.unwrap().to_report().is_some(), "{name}: it could not note that");
        for n in 0..40 {
            parent.update(Patch::new().label("n", n.to_string())).await.unwrap();
        }
        let mut tellers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let scheduler = Scheduler::new(agent.clone());
            tellers.spawn(async move { scheduler.round().await.unwrap() });
        }
        while let Some(round) = tellers.join_next().await {
            assert_eq!(round.unwrap().failed, 0, "{name}");
        }
        assert_eq!(told(&parent).await, found(), "{name}");
        assert!(child.refresh().await.unwrap().to_report().is_none(), "{name}");
        check_log(&parent).await;
        check_log(&child).await;
    }
}

/// O19, O27, X06: whoever runs and delivers dies at any call to the store, before or after it took effect: once somebody
/// else looks, the child's result has been told once, and the parent has one input.
#[tokio::test]
async fn o19_o27_x06_a_crash_at_any_step_of_a_delivery_delivers_once() {
    for (name, storage) in all_storages().await {
        let mut steps = 0;
        for applied in [false, true] {
            for call in 0.. {
                let living =
                    agent(&storage, ScriptedProvider::new((0..4).map(|_| Turn::new().text("find it"))));
                let (parent, child) = family(&living, &format!("{applied} {call}")).await;
                let dying = Dying::new(&storage);
                let doomed = living.rebind(dying.storage(&storage));
                let theirs = doomed.session(child.id()).await.unwrap();
                dying.die_in(call, applied);
                let ended = match theirs.wake().await {
                    Ok(Some(run)) => run.finish().await.is_ok(),
                    _ => false,
                };
                let survived = !dying.is_dead();
                // A holder that died is replaced; in memory there is no proof of death, so its lease is ended by hand.
                let now = child.refresh().await.unwrap();
                if now.status.state == SessionState::Running {
                    let lost = agent_core::Trigger::LeaseExpired(now.epoch);
                    storage.sessions.trigger(living.effects(), child.id(), lost).await.unwrap();
                }
                let scheduler = Scheduler::new(living.clone());
                let due = |id| move |session: &SessionSummary| session.id == id;
                for _ in 0..3 {
                    scheduler.round().await.unwrap();
                    let left =
                        storage.sessions.list(SessionQuery::new().due(agent_core::Timestamp::MAX)).await;
                    if !left.unwrap().items.iter().any(due(child.id())) {
                        break;
                    }
                }
                let (ends, inputs) = told(&parent).await;
                let what = format!("{name}: died at call {call}, applied: {applied}, ended: {ended}");
                assert_eq!((ends, inputs.len()), (found().0, 1), "{what}");
                assert!(child.refresh().await.unwrap().to_report().is_none(), "{what}");
                check_log(&parent).await;
                check_log(&child).await;
                steps += 1;
                if survived {
                    break;
                }
            }
        }
        println!("{name}: {steps} deaths");
        assert!(steps > 10, "{name}: {steps}");
    }
}

/// A session store that dies: from some call on nothing gets through any more.
#[derive(Debug)]
struct Dying {
    under: Arc<dyn SessionStore>,
    left: AtomicUsize,
    applied: std::sync::atomic::AtomicBool,
    dead: std::sync::atomic::AtomicBool,
    noting: std::sync::Mutex<Option<SessionId>>,
}

impl Dying {
    fn new(storage: &Storage) -> Arc<Self> {
        Arc::new(Self {
            under: storage.sessions.clone(),
            left: AtomicUsize::new(usize::MAX),
            applied: false.into(),
            dead: false.into(),
            noting: std::sync::Mutex::default(),
        })
    }

    fn storage(self: &Arc<Self>, storage: &Storage) -> Storage {
        Storage::new(storage.workspaces.clone(), self.clone(), storage.bindings.clone())
    }

    /// Dies in the call number `call` from now on, before or after that took effect.
    fn die_in(&self, call: usize, applied: bool) {
        self.left.store(call, Ordering::SeqCst);
        self.applied.store(applied, Ordering::SeqCst);
    }

    /// Dies when it is to note in this child's log that its parent was told.
    fn die_before_noting(&self, child: SessionId) {
        *self.noting.lock().unwrap() = Some(child);
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Whether this call still takes effect, and whether anybody hears of it.
    fn call(&self) -> (bool, bool) {
        if self.is_dead() {
            return (false, false);
        }
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() {
            return (true, true);
        }
        self.dead.store(true, Ordering::SeqCst);
        (self.applied.load(Ordering::SeqCst), false)
    }
}

fn dead(applied: bool) -> Error {
    let outcome = if applied { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
    Error::new(ErrorKind::Poisoned, "the process has died, says the test").with_outcome(outcome)
}

macro_rules! unless_dead {
    ($self:ident, $call:expr) => {{
        let (runs, told) = $self.call();
        let result = if runs { $call.await } else { return Err(dead(false)) };
        if told { result } else { Err(dead(true)) }
    }};
}

#[async_trait]
impl SessionStore for Dying {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let notes = commit.steps.iter().any(|step| {
            matches!(step, agent_core::Step::Event(NewEvent { kind, .. }) if *kind == EventType::SESSION_REPORTED)
        });
        if notes && *self.noting.lock().unwrap() == Some(commit.session) {
            self.dead.store(true, Ordering::SeqCst);
        }
        unless_dead!(self, self.under.commit(commit))
    }

    async fn load(&self, id: SessionId) -> Result<Session> {
        unless_dead!(self, self.under.load(id))
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        unless_dead!(self, self.under.read(id, read))
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        unless_dead!(self, self.under.list(query))
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        unless_dead!(self, self.under.purge(purge))
    }

    async fn beat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        if self.is_dead() { Ok(()) } else { self.under.beat(id, epoch).await }
    }

    async fn pulse(&self, id: SessionId, epoch: Epoch) -> Result<Pulse> {
        unless_dead!(self, self.under.pulse(id, epoch))
    }

    fn capabilities(&self) -> Capabilities {
        self.under.capabilities()
    }

    /// Not counted: a run looks for changes as often as it likes.
    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        self.under.changed(id, seen).await
    }
}
