//! One course of events: three writers, two readers and a purger on one bucket, while things go wrong; then they stop
//! going wrong.

#![allow(clippy::print_stdout, reason = "one course that is replayed is shown")]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{Event, Message, NewEvent};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, ReadEvents};
use agent_core::{
    Epoch, ErrorKind, RunId, Seq, SessionId, SessionStore, Timestamp, WorkspaceId, WriteOutcome,
};
use agent_storage_conformance::history::History;
use agent_storage_s3::S3Store;
use s3_simulator::{Dialect, FaultPlan, Seeded, SimulatedClock, Simulator};
use tokio::time::{Instant, sleep, timeout};

use crate::backend;

/// All handles must have got on by so long after the last fault.
const PROGRESS: Duration = Duration::from_secs(60);
/// The latest request has landed after this.
const QUIET: Duration = Duration::from_secs(700);
const START: Timestamp = Timestamp::from_micros(1_771_151_400_000_000);

/// The variable that replays one course: `S3_SEED=17 cargo test -p s3-simulator --test it log_stays_correct`.
pub(crate) const REPLAY: &str = "S3_SEED";

/// What is left of a course that went well.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) simulator: Simulator,
    pub(crate) calls: usize,
    pub(crate) unknown: usize,
    pub(crate) commits: usize,
}

/// Everything that belongs to one course.
#[derive(Clone)]
struct Scene {
    simulator: Simulator,
    history: History,
    seed: u64,
    made: Instant,
    /// One that lives on, and one that is deleted.
    sessions: [SessionId; 2],
    faults_over: Rc<Cell<Option<Instant>>>,
    deadline: Duration,
    attempt: Duration,
}

/// Runs the course of a seed.
///
/// # Errors
///
/// What was wrong.
pub(crate) fn run(dialect: Dialect, seed: u64) -> Result<Course, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let local = tokio::task::LocalSet::new();
    let simulator = Simulator::new(seed).with_dialect(dialect);
    let played = local.block_on(&runtime, play(seed, simulator.clone()));
    // A course that is replayed shows all that happened, above all where it goes wrong.
    if std::env::var(REPLAY).is_ok() {
        println!("{}", simulator.trace());
    }
    played
}

async fn play(seed: u64, simulator: Simulator) -> Result<Course, String> {
    let mut seeded = Seeded::new(seed);
    let effects = Effects::seeded(seed, START);
    let mut pick = |of: &[u64]| Duration::from_secs(of[seeded.below(of.len() as u64) as usize]);
    let (deadline, attempt) = (pick(&[4, 15, 60]), pick(&[2, 5, 10]));
    let scene = Scene {
        history: History::default(),
        seed,
        made: Instant::now(),
        sessions: [effects.new_session_id(), effects.new_session_id()],
        faults_over: Rc::default(),
        deadline,
        attempt,
        simulator: simulator.clone(),
    };
    simulator.set_plan(FaultPlan::healthy());
    let store = scene.open("setup", 0).await?;
    for id in scene.sessions {
        let commit = Commit::create(&effects, NewSession::new(id, WorkspaceId::DEFAULT));
        scene.commit("setup", &store, commit).await.map_err(|error| format!("create: {error:?}"))?;
    }
    let hostility = [60, 150, 300, 500][seeded.below(4) as usize];
    let plan = FaultPlan::hostile(hostility);
    let (opens_hostile, span) = (seeded.chance(200), seeded.between(secs(20), secs(70)));
    if opens_hostile {
        simulator.set_plan(plan.clone());
    }
    let mut actors = Vec::new();
    for (n, name) in (1..).zip(["writer-1", "writer-2", "writer-3"]) {
        actors.push(tokio::task::spawn_local(scene.clone().writer(name, n)));
    }
    for (n, name) in (4..).zip(["reader-1", "reader-2"]) {
        actors.push(tokio::task::spawn_local(scene.clone().reader(name, n)));
    }
    let purger = tokio::task::spawn_local(scene.clone().purger(seeded.between(secs(2), secs(30))));
    sleep(secs(1)).await;
    simulator.set_plan(plan);
    // Now and then somebody is cut off for a while.
    let cut = ["writer-1", "writer-2", "reader-1", "nobody"][seeded.below(4) as usize];
    sleep(span / 2).await;
    simulator.cut_off(cut, true);
    sleep(span / 2).await;
    simulator.cut_off(cut, false);
    simulator.set_plan(FaultPlan::healthy());
    let over = Instant::now();
    scene.faults_over.set(Some(over));
    for actor in actors {
        let actor = timeout(PROGRESS.saturating_sub(over.elapsed()), actor).await;
        let ended = actor.map_err(|_| "a handle made no progress within 60 seconds after the last fault")?;
        ended.map_err(|error| error.to_string())??;
    }
    let deleted = purger.await.map_err(|error| error.to_string())??;
    sleep(QUIET).await;
    scene.judge(&deleted).await?;
    let (calls, unknown) = (scene.history.calls(), scene.history.unknown());
    Ok(Course { calls, unknown, commits: deleted.len(), simulator })
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Scene {
    /// A handle of its own, with a clock that is wrong.
    async fn open(&self, client: &'static str, n: u64) -> Result<Arc<S3Store>, String> {
        let skew = secs(Seeded::new(self.seed ^ (n << 8)).below(7200));
        let clock = SimulatedClock::new(START);
        let clock = if n.is_multiple_of(2) { clock.ahead(skew) } else { clock.behind(skew) };
        let effects = Effects::seeded(self.seed.wrapping_mul(31).wrapping_add(n), START);
        for _ in 0..50 {
            let config = backend::config(&self.simulator, client)
                .with_deadline(self.deadline)
                .with_attempt(self.attempt)
                .with_effects(effects.clone().with_clock(Arc::new(clock.clone())));
            match config.open().await {
                Ok(store) => return Ok(Arc::new(store)),
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied) => {}
                Err(error) => return Err(format!("{client} cannot open a store that is well: {error:?}")),
            }
        }
        Err(format!("{client} cannot open a store in 50 attempts"))
    }

    async fn commit(
        &self,
        client: &'static str,
        store: &S3Store,
        commit: Commit,
    ) -> agent_core::Result<agent_core::commit::Committed> {
        let done = self.history.commit(client, store, commit).await;
        self.log_answer(client, &done.as_ref().map(|done| (done.first, done.last, done.session.head)));
        done
    }

    async fn load(
        &self,
        client: &'static str,
        store: &S3Store,
        id: SessionId,
    ) -> agent_core::Result<Arc<SessionRecord>> {
        let done = self.history.load(client, store, id).await;
        self.log_answer(client, &done.as_ref().map(|done| done.head));
        done
    }

    async fn read(&self, client: &'static str, store: &S3Store, id: SessionId) -> agent_core::Result<()> {
        let done = self.history.read(client, store, id).await;
        self.log_answer(client, &done.as_ref().map(|page| page.events.last().map(|event| event.seq)));
        done.map(drop)
    }

    /// Where one course is replayed: what a client is told, on the time of the trace.
    fn log_answer(&self, client: &str, answer: &dyn std::fmt::Debug) {
        if std::env::var(REPLAY).is_ok() {
            let at = self.made.elapsed().as_secs_f64();
            println!("{at:>9.3} {client} told {answer:?}");
        }
    }

    fn faults_last(&self) -> bool {
        self.faults_over.get().is_none()
    }

    /// Writes of all kinds; those in doubt are sent again, or left until the faults are over.
    async fn writer(self, client: &'static str, n: u64) -> Result<(), String> {
        let mut writer = Writer {
            seeded: Seeded::new(self.seed.wrapping_add(n << 40)),
            effects: Effects::seeded(self.seed.wrapping_mul(77).wrapping_add(n), START),
            store: self.open(client, n).await?,
            heads: [Seq::new(2); 2],
            leases: [None; 2],
            doubtful: Vec::new(),
            client,
            scene: self,
        };
        while writer.scene.faults_last() {
            sleep(writer.seeded.between(Duration::ZERO, secs(4))).await;
            writer.step().await;
        }
        writer.settle().await
    }

    async fn reader(self, client: &'static str, n: u64) -> Result<(), String> {
        let store = self.open(client, n).await?;
        let mut seeded = Seeded::new(self.seed.wrapping_add(n << 40));
        while self.faults_last() {
            sleep(seeded.between(Duration::ZERO, secs(5))).await;
            let id = self.sessions[seeded.below(2) as usize];
            // What a failure means the judge decides.
            match seeded.below(2) {
                0 => drop(self.load(client, &store, id).await),
                _ => drop(self.read(client, &store, id).await),
            }
        }
        let [living, _] = self.sessions;
        self.load(client, &store, living).await.map_err(|error| format!("{client}, at last: {error:?}"))?;
        self.read(client, &store, living).await.map_err(|error| format!("{client}, at last: {error:?}"))
    }

    /// Deletes a session, and removes its bytes; returns its log as it was when that began.
    async fn purger(self, when: Duration) -> Result<Vec<Event>, String> {
        let [_, id] = self.sessions;
        let store = self.open("purger", 6).await?;
        let effects = Effects::seeded(self.seed ^ 0xdead, START);
        sleep(when).await;
        let delete =
            Commit::seal(&effects, id, Seq::new(2)).with_trigger(Trigger::Delete(Reason::UserDeleted));
        let head = loop {
            match self.commit("purger", &store, delete.clone()).await {
                Ok(done) => break done.session.head,
                Err(error) if retryable(&error) => sleep(secs(1)).await,
                // Too long ago to tell whether it landed: another one.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { head: Some(_) }) => {
                    let seen = self.load("purger", &store, id).await.map_or(Seq::new(2), |now| now.head);
                    let again =
                        Commit::seal(&effects, id, seen).with_trigger(Trigger::Delete(Reason::UserDeleted));
                    if let Ok(done) = self.commit("purger", &store, again).await {
                        break done.session.head;
                    }
                }
                Err(error) => return Err(format!("the deletion: {error:?}")),
            }
        };
        let log = loop {
            match whole_log(&store, id).await {
                Ok(log) => break log,
                Err(error) if retryable(&error) => sleep(secs(1)).await,
                Err(error) => return Err(format!("the log before the purge: {error:?}")),
            }
        };
        if log.last().map(|event| event.seq) != Some(head) {
            return Err(format!("a log of {} events, deleted at {head}", log.len()));
        }
        loop {
            match self.history.purge("purger", &*store, Purge::new(id, head)).await {
                Ok(_) => return Ok(log),
                Err(error) if retryable(&error) => sleep(secs(1)).await,
                Err(error) => return Err(format!("the purge: {error:?}")),
            }
        }
    }

    /// Long after everything: the logs are there, and all that was said of them was right.
    async fn judge(&self, deleted: &[Event]) -> Result<(), String> {
        let store = self.open("judge", 0).await?;
        let [living, purged] = self.sessions;
        for id in self.sessions {
            self.load("judge", &store, id).await.map_err(|error| format!("in the end: {error:?}"))?;
        }
        let log = whole_log(&store, living).await.map_err(|error| format!("in the end: {error:?}"))?;
        self.history.judge(living, &log).map_err(|what| format!("session {living}: {what}"))?;
        self.history.judge(purged, deleted).map_err(|what| format!("deleted session {purged}: {what}"))?;
        let left = whole_log(&store, purged).await.map_err(|error| format!("in the end: {error:?}"))?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{} events are left of the purged session", left.len()))
        }
    }
}

/// One writer's own.
struct Writer {
    scene: Scene,
    client: &'static str,
    store: Arc<S3Store>,
    seeded: Seeded,
    effects: Effects,
    heads: [Seq; 2],
    leases: [Option<(RunId, Epoch)>; 2],
    doubtful: Vec<Commit>,
}

impl Writer {
    async fn step(&mut self) {
        if !self.doubtful.is_empty() && self.seeded.chance(600) {
            let at = self.seeded.below(self.doubtful.len() as u64) as usize;
            let commit = self.doubtful.swap_remove(at);
            self.send(commit).await;
            return;
        }
        let which = usize::from(self.seeded.chance(350));
        if self.seeded.chance(150) {
            self.refresh(which).await;
        }
        let commit = self.make(which).await;
        self.send(commit).await;
    }

    async fn refresh(&mut self, which: usize) -> Option<Arc<SessionRecord>> {
        let id = self.scene.sessions[which];
        let found = self.scene.load(self.client, &self.store, id).await.ok()?;
        self.heads[which] = found.head;
        Some(found)
    }

    async fn make(&mut self, which: usize) -> Commit {
        let (id, head) = (self.scene.sessions[which], self.heads[which]);
        let mut commit = Commit::seal(&self.effects, id, head);
        if self.seeded.chance(400) {
            commit = commit.with_precondition(Precondition::Matches(head));
        }
        let text = format!("{} {}", self.client, self.seeded.next_u64());
        let input = NewEvent::user_message(text.clone());
        match (self.seeded.below(10), self.leases[which]) {
            (0..=4, Some((run, epoch))) => {
                let commit = commit.with_fence(run, epoch);
                match self.seeded.below(6) {
                    0 => {
                        self.leases[which] = None;
                        commit.with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)))
                    }
                    _ => commit.with_event(agent_message(&text)),
                }
            }
            (0..=5, _) => {
                let lease = LeaseRequest::new(self.client, self.effects.new_run_id());
                let lease = if self.seeded.chance(500) { lease.if_ready() } else { lease };
                commit.with_event(input).with_trigger(Trigger::BeginRun(lease))
            }
            (6, _) => {
                // Another's run is taken over.
                let held = self.refresh(which).await.and_then(|now| now.lease.clone());
                let commit = Commit::seal(&self.effects, id, self.heads[which]);
                match held {
                    Some(lease) => commit
                        .with_trigger(Trigger::LeaseExpired(lease.epoch))
                        .with_event(input)
                        .with_trigger(Trigger::BeginRun(
                            LeaseRequest::new(self.client, self.effects.new_run_id()).if_ready(),
                        )),
                    None => commit.with_event(input),
                }
            }
            _ => commit.with_event(input),
        }
    }

    async fn send(&mut self, commit: Commit) {
        let which = usize::from(commit.session != self.scene.sessions[0]);
        let sent = commit.clone();
        match self.scene.commit(self.client, &self.store, commit).await {
            Ok(done) => {
                self.heads[which] = done.session.head;
                let lease = done.session.lease.as_ref().filter(|lease| lease.holder == self.client);
                if let Some(lease) = lease {
                    self.leases[which] = Some((lease.run, lease.epoch));
                }
            }
            Err(error) if error.write_outcome() == WriteOutcome::Unknown => self.doubtful.push(sent),
            Err(error) => {
                if let ErrorKind::Conflict { head: Some(head) } = error.kind() {
                    self.heads[which] = *head;
                }
            }
        }
    }

    /// The faults are over: what is in doubt is settled, and something new is written.
    async fn settle(mut self) -> Result<(), String> {
        for commit in std::mem::take(&mut self.doubtful) {
            self.send(commit).await;
        }
        if let Some(commit) = self.doubtful.first() {
            return Err(format!("{} stays in doubt of commit {}", self.client, commit.id));
        }
        let id = self.scene.sessions[0];
        let now = self.refresh(0).await.ok_or("the record cannot be loaded at last")?;
        if matches!(now.status.state, SessionState::Deleted) {
            return Err("the living session is deleted".to_owned());
        }
        let commit = Commit::seal(&self.effects, id, now.head)
            .with_event(NewEvent::user_message("at last".to_owned()));
        let done = self.scene.commit(self.client, &self.store, commit).await;
        done.map(drop).map_err(|error| format!("{}, at last: {error:?}", self.client))
    }
}

fn agent_message(text: &str) -> NewEvent {
    NewEvent::of(&agent_core::event::EventPayload::AgentMessage(Message::new(text)))
}

/// Whether the same may do better another time.
fn retryable(error: &agent_core::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied)
}

/// All events of a session.
async fn whole_log(store: &S3Store, id: SessionId) -> agent_core::Result<Vec<Event>> {
    let (mut log, mut read) = (Vec::new(), Some(ReadEvents::first(200)));
    while let Some(next) = read {
        let page = store.read(id, next).await?;
        log.extend(page.events);
        read = page.next;
    }
    Ok(log)
}
