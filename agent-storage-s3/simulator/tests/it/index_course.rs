//! One course of events around the index: two writers, two listers, a worker and a collector on one bucket. They act in
//! bursts with long pauses, while requests fail, arrive a day later, are cut short or denied.

#![allow(clippy::print_stdout, reason = "one course that is replayed is shown")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{Failure, INACTIVE_AFTER_LABEL, Origin, Patch, Timer};
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, PutBlob, ReadBlob, ReadEvents, SessionQuery, SweepBlobs};
use agent_core::{
    Backend, BlobName, Error, ErrorKind, Result, Seq, SessionId, SessionStore, Timestamp, WorkspaceId,
};
use agent_storage_s3::{IndexedField, S3Store};
use s3_simulator::{Dialect, Fault, FaultPlan, Op, Seeded, SimulatedClock, Simulator};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::backend;
use crate::course::REPLAY;
use crate::index_judge::{Judged, Shown, Tape, Walk};

/// The simulated server's clock starts at the same time.
const START: Timestamp = Timestamp::from_micros(20_500 * 86_400_000_000);
/// All handles must have got on by so long after the last fault of a burst.
const PROGRESS: Duration = Duration::from_secs(120);
/// Late requests land up to this time later.
const LATEST: Duration = hours(25);
/// No more sessions than this are created.
const SESSIONS: usize = 8;
/// Values of the label that is indexed.
const PROJECTS: [&str; 2] = ["travel", "work"];

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn hours(hours: u64) -> Duration {
    secs(3600 * hours)
}

/// What is left of a course that went well.
#[derive(Debug)]
pub(crate) struct IndexCourse {
    pub(crate) simulator: Simulator,
    pub(crate) judged: Judged,
    pub(crate) sessions: usize,
    pub(crate) commits: usize,
    pub(crate) pages: usize,
    pub(crate) purged: usize,
    pub(crate) blobs: usize,
    /// Operations that were dropped before they ended.
    pub(crate) dropped: usize,
}

/// Everything that belongs to one course. Clones share it.
#[derive(Clone)]
struct Scene {
    simulator: Simulator,
    seed: u64,
    made: Instant,
    clock: SimulatedClock,
    deadline: Duration,
    attempt: Duration,
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    tape: Tape,
    /// Sessions that exist, or may.
    sessions: RefCell<Vec<SessionId>>,
    /// Own events of the sessions that are purged, as they were before.
    purged: RefCell<BTreeMap<SessionId, Vec<Event>>>,
    /// Number of stores that were opened.
    opened: Cell<u64>,
    dropped: Cell<usize>,
}

/// Runs the course of a seed; of an even one as on S3, of an odd one as on Google Cloud Storage.
///
/// # Errors
///
/// What was wrong.
pub(crate) fn run(seed: u64) -> Result<IndexCourse, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let local = tokio::task::LocalSet::new();
    let dialect = if seed.is_multiple_of(2) { Dialect::S3 } else { Dialect::Gcs };
    let simulator = Simulator::new(seed).with_dialect(dialect);
    let played = local.block_on(&runtime, play(seed, simulator.clone()));
    // A course that is replayed shows all that happened, above all where it goes wrong.
    if std::env::var(REPLAY).is_ok() {
        println!("{}", simulator.trace());
    }
    played
}

async fn play(seed: u64, simulator: Simulator) -> Result<IndexCourse, String> {
    let mut seeded = Seeded::new(seed);
    let mut pick = |of: &[u64]| Duration::from_secs(of[seeded.below(of.len() as u64) as usize]);
    let scene = Scene {
        seed,
        made: Instant::now(),
        clock: SimulatedClock::new(START),
        deadline: pick(&[4, 15, 60]),
        attempt: pick(&[2, 5, 10]),
        simulator: simulator.clone(),
        shared: Rc::default(),
    };
    simulator.set_plan(FaultPlan::healthy());
    scene.open("setup", scene.deadline).await?.close().await.map_err(|error| error.to_string())?;
    let mut actors = Actors {
        writers: [Writer::new(&scene, "writer-1", 1), Writer::new(&scene, "writer-2", 2)],
        listers: [Handle::lister(&scene, "lister-1", 3), Handle::lister(&scene, "lister-2", 4)],
        worker: Handle::new(&scene, "worker", 5),
        collector: Handle::new(&scene, "collector", 6),
    };
    for burst in 0..2 + seeded.below(3) {
        if burst > 0 {
            let gap = [secs(16 * 60), hours(2), hours(25), hours(8 * 24)][seeded.below(4) as usize];
            sleep(gap).await;
        }
        let hostility = [0, 40, 120, 300][seeded.below(4) as usize];
        let cut_lists = [0, 300, 800][seeded.below(3) as usize];
        // Most requests write nothing, and cannot be late.
        let faults = Fault::ALL
            .into_iter()
            .chain([Fault::Late; 8])
            .chain([Fault::Echo; 4])
            .chain([Fault::Conflict; 4]);
        let plan = FaultPlan::hostile(hostility)
            .with_faults(faults.collect::<Vec<_>>())
            .with_latest(LATEST)
            .with_cut_lists(cut_lists);
        let length = secs([10, 30, 60, 60, 210][seeded.below(5) as usize]);
        simulator.set_plan(plan);
        simulator.deny(Op::Delete, seeded.chance(250));
        let ends = Instant::now() + length;
        let calm = async {
            sleep_until(ends).await;
            simulator.deny(Op::Delete, false);
            simulator.set_plan(FaultPlan::healthy());
        };
        let ((), done) = tokio::join!(calm, actors.act(ends));
        done?;
    }
    scene.end().await
}

struct Actors {
    writers: [Writer; 2],
    listers: [Handle; 2],
    worker: Handle,
    collector: Handle,
}

impl Actors {
    /// All are at work, until the burst ends.
    async fn act(&mut self, ends: Instant) -> Result<(), String> {
        let Self { writers: [writer, other], listers: [lister, second], worker, collector } = self;
        let all = async {
            tokio::try_join!(
                writer.act(ends),
                other.act(ends),
                lister.list_until(ends),
                second.list_until(ends),
                worker.work_until(ends),
                collector.collect_until(ends),
            )
        };
        let done = timeout(ends.duration_since(Instant::now()) + PROGRESS, all).await;
        done.map_err(|_| "somebody made no progress within two minutes after the last fault")?.map(drop)
    }
}

impl Scene {
    /// Opens a store with a clock that is wrong.
    async fn open(&self, client: &'static str, deadline: Duration) -> Result<Arc<S3Store>, String> {
        let opened = self.shared.opened.get() + 1;
        self.shared.opened.set(opened);
        let random = Effects::seeded(self.seed.wrapping_mul(1009).wrapping_add(opened), START);
        // Signatures cost a third of a course, and nobody reads them.
        let config = match self.simulator.dialect() {
            Dialect::S3 => backend::config(&self.simulator, client).with_option("skip_signature", "true"),
            Dialect::Gcs => Ok(backend::config(&self.simulator, client)),
        };
        let config = config
            .map_err(|error| error.to_string())?
            .with_index([IndexedField::Label("project".to_owned())])
            .map_err(|error| error.to_string())?
            .with_deadline(deadline)
            .with_attempt(self.attempt)
            .with_effects(random.with_clock(Arc::new(self.clock_of(client))));
        let mut last = None;
        for _ in 0..50 {
            match config.clone().open().await {
                Ok(store) => return Ok(Arc::new(store)),
                Err(error) if is_trouble(&error) => last = Some(error),
                Err(error) => return Err(format!("{client} cannot open a store that is well: {error:?}")),
            }
        }
        Err(format!("{client} cannot open a store in 50 attempts: {last:?}"))
    }

    fn clock_of(&self, client: &str) -> SimulatedClock {
        let number =
            client.bytes().fold(self.seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let mut seeded = Seeded::new(number);
        let skew = secs(seeded.below(7200));
        if seeded.chance(500) { self.clock.clone().ahead(skew) } else { self.clock.clone().behind(skew) }
    }

    /// Where one course is replayed: what a client is told, on the time of the trace.
    fn log_answer(&self, client: &str, answer: &dyn std::fmt::Debug) {
        if std::env::var(REPLAY).is_ok() {
            let (at, moment) = (self.made.elapsed().as_secs_f64(), self.shared.tape.moment());
            println!("{at:>9.3} {client} at {moment} told {answer:?}");
        }
    }

    fn sessions(&self) -> Vec<SessionId> {
        self.shared.sessions.borrow().clone()
    }

    /// Long after everything: what was answered was right, and nothing is left that should not be.
    async fn end(&self) -> Result<IndexCourse, String> {
        let wrong = |error: Error| format!("in the end: {error:?}");
        sleep(LATEST + hours(1)).await;
        let mut last = Handle::new(self, "last", 7);
        let store = last.store().await?;
        check(&store).await?;
        let mut exist = Vec::new();
        for id in self.sessions() {
            match store.load(id).await {
                Ok(now) => exist.push((id, now.status.state)),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted) => {}
                Err(error) => return Err(wrong(error)),
            }
        }
        for (id, state) in &exist {
            if *state != SessionState::Deleted {
                let now = last.load(*id).await.map_err(wrong)?;
                let commit = Commit::seal(&last.effects, *id, now.head).with_event(note("at last"));
                last.commit(commit).await.map_err(wrong)?;
            }
        }
        last.list_all().await?;
        let shared = &self.shared;
        let mut logs = shared.purged.borrow().clone();
        for (id, _) in &exist {
            if !logs.contains_key(id) {
                logs.insert(*id, own_log(&store, *id).await.map_err(wrong)?);
            }
        }
        let judged = shared.tape.judge(&logs)?;
        // A purge that was cut off is done by the next one.
        let purged = shared.purged.borrow().clone();
        for (id, log) in &purged {
            let head = log.last().map_or(Seq::new(0), |event| event.seq);
            store.purge(Purge::new(*id, head)).await.map_err(wrong)?;
        }
        sleep(hours(15 * 24)).await;
        for _ in 0..2 {
            store.blobs().sweep(SweepBlobs::without_session()).await.map_err(wrong)?;
        }
        let mut blobs = 0;
        for (id, _) in &exist {
            store.blobs().sweep(SweepBlobs::of(*id)).await.map_err(wrong)?;
            let now = store.load(*id).await.map_err(wrong)?;
            if now.status.state == SessionState::Deleted {
                continue;
            }
            for name in logs[id].iter().flat_map(|event| &event.blobs) {
                let read =
                    async { store.blobs().read(ReadBlob::new(*id, *name)).await?.into_bytes(1 << 20).await };
                read.await.map_err(|error| format!("blob {name} of session {id}: {error:?}"))?;
                blobs += 1;
            }
        }
        let rebuilt = store.maintenance().rebuild().await.map_err(wrong)?;
        if !rebuilt.damaged.is_empty() {
            return Err(format!("damaged: {:?}", rebuilt.damaged));
        }
        sleep(secs(300)).await;
        check(&store).await?;
        let mut records = Vec::new();
        for (id, _) in &exist {
            records.push(store.load(*id).await.map_err(wrong)?);
        }
        self.keys_are_those_of(&records)?;
        let (pages, _) = shared.tape.pages();
        Ok(IndexCourse {
            simulator: self.simulator.clone(),
            judged,
            sessions: exist.len(),
            commits: logs.values().map(|log| log.chunk_by(|a, b| a.commit == b.commit).count()).sum(),
            pages,
            purged: shared.purged.borrow().len(),
            blobs,
            dropped: shared.dropped.get(),
        })
    }

    /// Checks that each key of the index is one that a session has in the state that it ended in, and none is missing.
    fn keys_are_those_of(&self, records: &[Arc<SessionRecord>]) -> Result<(), String> {
        let mut expected = BTreeMap::new();
        for record in records {
            let state = record.status.state;
            let class = if state.is_hidden() { "z" } else { "a" };
            let active = minute_of(record.last_active_at);
            let mut lists = vec![format!("t/{class}"), format!("w/{}/{class}", record.workspace)];
            if is_rare(state) {
                lists.push(format!("f/{state}"));
            }
            // A tombstone of a purged session has none.
            let label = record.attributes.labels.get("project");
            let hash = |value: &String| hash(&format!("label.project\n{value}"))[..32].to_owned();
            lists.extend(label.map(|value| format!("l/{}/{class}", hash(value))));
            if record.attributes.inactive_after().is_some() {
                lists.push(format!("own/{class}"));
            }
            expected.extend(lists.into_iter().map(|list| ((list, record.id), active)));
            let due = if state.may_hold_lease() { Some(0) } else { record.next_due_at().map(minute_of) };
            expected.extend(due.map(|due| (("work".to_owned(), record.id), due)));
        }
        for key in self.simulator.keys() {
            let name = key.strip_prefix("agents/v7/default/idx/");
            let found = match (name, key.strip_prefix("agents/work/v7/")) {
                (Some(name), _) => {
                    let parts: Vec<_> = name.rsplitn(3, '/').collect();
                    let [last, minute, list] = parts[..] else { return Err(format!("{key} is left")) };
                    if list == "child" {
                        // What it notes may still be created, for ever.
                        continue;
                    }
                    minute.parse::<u64>().ok().map(|minute| (list, last, 9_999_999_999 - minute))
                }
                (_, Some(name)) => {
                    let parts: Vec<_> = name.split('/').collect();
                    let [minute, "default", "0", last] = parts[..] else {
                        return Err(format!("{key} is left"));
                    };
                    minute.parse().ok().map(|minute| ("work", last, minute))
                }
                _ => continue,
            };
            let parsed = found.and_then(|(list, last, minute)| {
                Some((list, last.split_once('.')?.0.parse::<SessionId>().ok()?, minute))
            });
            let Some((list, id, minute)) = parsed else { return Err(format!("{key} is left")) };
            let wanted = expected.remove(&(list.to_owned(), id));
            let fits = |wanted: u64| minute <= wanted && wanted - minute < 15;
            if !wanted.is_some_and(fits) {
                return Err(format!("{key} is left, and {wanted:?} wanted"));
            }
        }
        if expected.is_empty() { Ok(()) } else { Err(format!("keys are missing: {expected:?}")) }
    }
}

fn minute_of(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros() / 60_000_000).unwrap()
}

/// Returns whether sessions in this state have a list of their own.
fn is_rare(state: SessionState) -> bool {
    matches!(state, SessionState::Failed | SessionState::Suspended | SessionState::Terminated)
}

/// The SHA-256 of a text in hexadecimal, by which blobs are named, too.
fn hash(text: &str) -> String {
    BlobName::of(text.as_bytes()).to_string()
}

/// Something that is no input.
fn note(text: &str) -> NewEvent {
    let data = RawJson::parse(&format!("{{\"text\":\"{text}\"}}")).unwrap();
    NewEvent::new("x.app.noted".parse().unwrap(), data)
}

/// Returns whether the same may do better another time.
fn is_trouble(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied)
}

/// Own events of a session, without those of its parents.
async fn own_log(store: &S3Store, id: SessionId) -> Result<Vec<Event>> {
    let from = match store.load(id).await?.origin {
        Origin::Fork { at, .. } => at,
        _ => Seq::new(0),
    };
    let (mut log, mut read) = (Vec::new(), Some(ReadEvents::first(200)));
    while let Some(next) = read {
        let page = store.read(id, next).await?;
        log.extend(page.events.into_iter().filter(|event| event.seq > from));
        read = page.next;
    }
    Ok(log)
}

/// No key in force is missing, at any moment.
async fn check(store: &S3Store) -> Result<(), String> {
    let found = match store.maintenance().check().await {
        Err(error) if is_trouble(&error) => return Ok(()),
        found => found.map_err(|error| format!("the check: {error:?}"))?,
    };
    let is_begun = |reason: &str| reason.contains("was begun more than 7 days ago");
    match found.into_iter().find(|fault| !is_begun(&fault.reason)) {
        None => Ok(()),
        Some(fault) => Err(format!("the check names {fault:?}")),
    }
}

/// Store of an actor, which is opened again now and then.
struct Handle {
    scene: Scene,
    client: &'static str,
    seeded: Seeded,
    effects: Effects,
    deadline: Duration,
    store: Option<Arc<S3Store>>,
}

impl Handle {
    fn new(scene: &Scene, client: &'static str, number: u64) -> Self {
        let effects = Effects::seeded(scene.seed.wrapping_mul(77).wrapping_add(number), START);
        Self {
            client,
            seeded: Seeded::new(scene.seed.wrapping_add(number << 40)),
            effects: effects.with_clock(Arc::new(scene.clock_of(client))),
            deadline: scene.deadline,
            store: None,
            scene: scene.clone(),
        }
    }

    /// A list that was cut off goes on.
    fn lister(scene: &Scene, client: &'static str, number: u64) -> Self {
        Self { deadline: secs(600), ..Self::new(scene, client, number) }
    }

    async fn store(&mut self) -> Result<Arc<S3Store>, String> {
        if self.seeded.chance(20)
            && let Some(store) = self.store.take()
            && self.seeded.chance(500)
        {
            store.close().await.map_err(|error| error.to_string())?;
        }
        if self.store.is_none() {
            self.store = Some(self.scene.open(self.client, self.deadline).await?);
        }
        self.store.clone().ok_or_else(|| "no store".to_owned())
    }

    /// Returns whether the burst goes on after a short rest.
    async fn goes_on(&mut self, ends: Instant, rest: u64) -> bool {
        sleep(self.seeded.between(Duration::ZERO, secs(rest))).await;
        Instant::now() < ends
    }

    fn session(&mut self) -> Option<SessionId> {
        let sessions = self.scene.sessions();
        sessions.get(self.seeded.below(sessions.len() as u64) as usize).copied()
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let Some(store) = &self.store else { return Err(Error::new(ErrorKind::Unavailable, "no store")) };
        let found = store.load(id).await;
        if let Ok(found) = &found {
            self.scene.shared.tape.sign(found);
        }
        self.scene.log_answer(self.client, &found.as_ref().map(|found| (id, found.head, found.status.state)));
        found
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let Some(store) = &self.store else { return Err(Error::new(ErrorKind::Unavailable, "no store")) };
        let Scene { shared, .. } = &self.scene;
        shared.tape.ask(&commit);
        let id = commit.session;
        let done = store.commit(commit).await;
        if let Ok(done) = &done {
            shared.tape.sign(&done.session);
        }
        let state = |done: &Committed| (id, done.session.head, done.session.status.state);
        self.scene.log_answer(self.client, &done.as_ref().map(state));
        done
    }

    /// Sends a commit, and drops it half-way now and then. Returns what became of it, if that is known.
    async fn try_commit(&mut self, commit: Commit) -> Result<Option<Committed>, String> {
        let done = if self.seeded.chance(150) {
            let patience = self.seeded.between(Duration::ZERO, secs(2));
            let done = timeout(patience, self.commit(commit)).await.ok();
            if done.is_none() {
                self.scene.shared.dropped.set(self.scene.shared.dropped.get() + 1);
                // The process has ended.
                self.store = None;
                return Ok(None);
            }
            done
        } else {
            Some(self.commit(commit).await)
        };
        match done {
            Some(Ok(done)) => Ok(Some(done)),
            Some(Err(error)) if matches!(error.kind(), ErrorKind::Corrupt) => {
                Err(format!("{}: {error:?}", self.client))
            }
            _ => Ok(None),
        }
    }

    async fn list_until(&mut self, ends: Instant) -> Result<(), String> {
        // A list that is cut off goes on when keys are deleted that it has not come to.
        if ends.duration_since(Instant::now()) > secs(200) {
            self.store().await?;
            sleep(self.seeded.between(Duration::ZERO, secs(10))).await;
            self.list_cut_off().await?;
        }
        while self.goes_on(ends, 8).await {
            self.store().await?;
            let query = self.query();
            self.list(query).await?;
        }
        Ok(())
    }

    /// Begins a list, is cut off while it lasts, and goes on after more than two minutes.
    async fn list_cut_off(&mut self) -> Result<(), String> {
        let due = self.effects.now().plus_micros(24 * 3_600_000_000);
        let (query, most) = match self.seeded.below(4) {
            0 => (SessionQuery::new(), 4),
            1 => (SessionQuery::new().with_hidden(), 4),
            // What is due at once is listed by the first request.
            _ => (SessionQuery::new().with_due(due), 2),
        };
        let lists = 1 + self.seeded.below(most) as usize;
        let (simulator, client) = (self.scene.simulator.clone(), self.client);
        let before = simulator.requests();
        let cut = async {
            let deadline = Instant::now() + secs(20);
            while simulator.carried_out(client, Op::List, before) < lists && Instant::now() < deadline {
                sleep(Duration::from_millis(5)).await;
            }
            simulator.cut_off(client, true);
            sleep(secs(150)).await;
            simulator.cut_off(client, false);
        };
        let ((), listed) = tokio::join!(cut, self.list(query));
        listed.map(drop)
    }

    fn query(&mut self) -> SessionQuery {
        let now = self.effects.now();
        let query = SessionQuery::new();
        let query = match self.seeded.below(14) {
            0 | 1 => query,
            2 | 3 => query.with_hidden(),
            4 => query.with_workspace(WorkspaceId::DEFAULT).with_hidden(),
            5 => query.with_states([SessionState::Suspended, SessionState::Terminated]),
            6 => query.with_states([SessionState::Running]),
            7 => query.with_label("project", PROJECTS[self.seeded.below(2) as usize]),
            8 => query.with_label("project", PROJECTS[self.seeded.below(2) as usize]).with_hidden(),
            9 => query.with_due(now.plus_micros(24 * 3_600_000_000)),
            10 => match self.session() {
                Some(parent) => query.with_parent(parent).with_hidden(),
                None => query,
            },
            11 => query.with_due(now),
            12 => query.with_inactive_since(now.plus_micros(-600_000_000)),
            _ => query.with_inactive_since(now.plus_micros(-6 * 3_600_000_000)).with_hidden(),
        };
        match self.seeded.below(10) {
            0..=3 => query.with_limit(2),
            4 => query.with_total(),
            _ => query,
        }
    }

    /// Lists with some queries of each kind, one page each.
    async fn list_all(&mut self) -> Result<(), String> {
        let all = SessionQuery::new();
        let due = all.clone().with_due(self.effects.now().plus_micros(24 * 3_600_000_000));
        let labelled = PROJECTS.map(|project| all.clone().with_label("project", project).with_hidden());
        let rare = SessionState::ALL.iter().copied().filter(|state| is_rare(*state));
        let states = all.clone().with_states(rare);
        let queries = [all.clone().with_total(), all.clone().with_hidden(), due, states];
        for query in queries.into_iter().chain(labelled) {
            self.list(query).await?;
        }
        Ok(())
    }

    /// Lists all pages of a query.
    async fn list(&mut self, query: SessionQuery) -> Result<Vec<SessionSummary>, String> {
        let Some(store) = self.store.clone() else { return Ok(Vec::new()) };
        let Scene { shared, .. } = &self.scene;
        let mut walk = Walk { query: query.clone(), pages: Vec::new(), is_whole: false };
        let mut cursor = None;
        loop {
            let asked = shared.tape.moment();
            let page = match store.list(query.clone().with_cursor(cursor)).await {
                Ok(page) => page,
                Err(error) if is_trouble(&error) => break,
                // Its parent is not there.
                Err(error) if query.parent.is_some() && *error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(format!("{}: {error:?}", self.client)),
            };
            if !page.damaged.is_empty() {
                return Err(format!("{}: {:?}", self.client, page.damaged));
            }
            let answered = shared.tape.moment();
            let items = || page.items.iter().map(|item| (item.id, item.head)).collect::<Vec<_>>();
            self.scene.log_answer(self.client, &(asked, answered, &query, items()));
            walk.pages.push(Shown { asked, answered, items: page.items, total: page.total });
            cursor = page.next;
            if cursor.is_none() {
                walk.is_whole = true;
                break;
            }
            sleep(self.seeded.between(Duration::ZERO, secs(3))).await;
        }
        let found = walk.pages.iter().flat_map(|page| page.items.clone()).collect();
        shared.tape.listed(walk);
        Ok(found)
    }

    /// Looks for what is due, and does it.
    async fn work_until(&mut self, ends: Instant) -> Result<(), String> {
        // What is due stays so for a while in a long burst.
        let rest = if ends.duration_since(Instant::now()) > secs(200) { 90 } else { 10 };
        while self.goes_on(ends, rest).await {
            let store = self.store().await?;
            let (now, asked) = (self.effects.now(), self.scene.shared.tape.moment());
            match store.busy_tenants(now, None).await {
                Ok(busy) if busy.items.is_empty() => {
                    self.scene.shared.tape.found_no_work(asked, now);
                    continue;
                }
                Ok(_) => {}
                Err(error) if is_trouble(&error) => continue,
                Err(error) => return Err(format!("{}: {error:?}", self.client)),
            }
            let due = self.list(SessionQuery::new().with_due(now)).await?;
            let running = self.list(SessionQuery::new().with_states([SessionState::Running])).await?;
            let found: Vec<_> = due.into_iter().chain(running).map(|item| item.id).collect();
            let Some(id) = found.get(self.seeded.below(found.len() as u64) as usize) else { continue };
            self.run(*id).await?;
        }
        Ok(())
    }

    /// Takes a run over or begins one, and ends it or not.
    async fn run(&mut self, id: SessionId) -> Result<(), String> {
        let Ok(seen) = self.load(id).await else { return Ok(()) };
        let mut commit = Commit::seal(&self.effects, id, seen.head);
        if let Some(lease) = &seen.lease {
            commit = commit.with_trigger(Trigger::LeaseExpired(lease.epoch));
        }
        let lease = LeaseRequest::new(self.client, self.effects.new_run_id()).if_ready();
        let begun = self.try_commit(commit.with_trigger(Trigger::BeginRun(lease))).await?;
        let Some(lease) = begun.and_then(|done| done.session.lease.clone()) else { return Ok(()) };
        for _ in 0..self.seeded.below(3) {
            sleep(self.seeded.between(Duration::ZERO, secs(3))).await;
            let Some(store) = self.store.clone() else { return Ok(()) };
            drop(store.leases().heartbeat(id, lease.epoch).await);
        }
        let failure = || Failure::new(Reason::RunError, "it failed");
        let end = match self.seeded.below(8) {
            // It is left to others.
            0 => return Ok(()),
            1 => RunEnd::Failed(failure()),
            2 => RunEnd::retry(failure(), self.effects.now().plus_micros(90_000_000), 2),
            3 => RunEnd::Interrupted,
            _ => RunEnd::Completed(Reason::EndTurn),
        };
        let Ok(seen) = self.load(id).await else { return Ok(()) };
        let commit = Commit::seal(&self.effects, id, seen.head).with_fence(lease.run, lease.epoch);
        self.try_commit(commit.with_trigger(Trigger::EndRun(end))).await.map(drop)
    }

    async fn collect_until(&mut self, ends: Instant) -> Result<(), String> {
        while self.goes_on(ends, 20).await {
            let store = self.store().await?;
            let session = self.session();
            let done = match (self.seeded.below(5), session) {
                (0, _) => store.maintenance().rebuild().await.map(drop),
                (1, _) => store.blobs().sweep(SweepBlobs::without_session()).await.map(drop),
                (2, Some(id)) => store.blobs().sweep(SweepBlobs::of(id)).await.map(drop),
                (3, Some(id)) => self.purge(&store, id).await,
                _ => {
                    check(&store).await?;
                    continue;
                }
            };
            let is_absent = |error: &Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted);
            if let Err(error) = done
                && !is_trouble(&error)
                && !is_absent(&error)
            {
                return Err(format!("the collector: {error:?}"));
            }
        }
        Ok(())
    }

    /// Purges a session if it is deleted, whose log is read before.
    async fn purge(&mut self, store: &Arc<S3Store>, id: SessionId) -> Result<()> {
        let now = self.load(id).await?;
        if now.status.state != SessionState::Deleted {
            return Ok(());
        }
        let is_known = self.scene.shared.purged.borrow().contains_key(&id);
        if !is_known {
            let log = own_log(store, id).await?;
            self.scene.shared.purged.borrow_mut().insert(id, log);
        }
        store.purge(Purge::new(id, now.head)).await.map(drop)
    }
}

/// Actor that creates and changes sessions.
struct Writer {
    handle: Handle,
    /// Commits of which it is not known whether they landed.
    doubtful: Vec<Commit>,
}

impl Writer {
    fn new(scene: &Scene, client: &'static str, number: u64) -> Self {
        Self { handle: Handle::new(scene, client, number), doubtful: Vec::new() }
    }

    async fn act(&mut self, ends: Instant) -> Result<(), String> {
        while self.handle.goes_on(ends, 4).await {
            self.handle.store().await?;
            if !self.doubtful.is_empty() && self.handle.seeded.chance(400) {
                let at = self.handle.seeded.below(self.doubtful.len() as u64) as usize;
                let commit = self.doubtful.swap_remove(at);
                // Some are given up.
                if self.handle.seeded.chance(700) {
                    self.send(commit).await?;
                }
                continue;
            }
            let count = self.handle.scene.sessions().len();
            let commit = if count < 3 || (count < SESSIONS && self.handle.seeded.chance(150)) {
                self.create().await
            } else {
                self.change().await?
            };
            if let Some(commit) = commit {
                self.send(commit).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, commit: Commit) -> Result<(), String> {
        let sent = commit.clone();
        if self.handle.try_commit(commit).await?.is_none() && self.handle.seeded.chance(500) {
            self.doubtful.push(sent);
        }
        Ok(())
    }

    async fn create(&mut self) -> Option<Commit> {
        let Handle { seeded, effects, .. } = &mut self.handle;
        let id = effects.new_session_id();
        let parent = seeded.chance(250);
        let project = PROJECTS.get(seeded.below(3) as usize);
        let text = seeded.next_u64().to_string();
        let input = seeded.chance(400).then(|| NewEvent::user_message(text.clone()));
        let early = seeded.chance(150);
        let new = if parent {
            let parent = self.handle.session()?;
            NewSession::fork(id, &*self.handle.load(parent).await.ok()?)
        } else {
            let patch =
                project.map_or_else(Patch::new, |project| Patch::new().with_label("project", *project));
            NewSession::new(id, WorkspaceId::DEFAULT).with_patch(&patch)
        };
        let mut commit = Commit::create(&self.handle.effects, new).with_events(input);
        self.handle.scene.shared.sessions.borrow_mut().push(id);
        if early && let Some(event) = self.blob(id, &text).await {
            commit = commit.with_event(event);
        }
        Some(commit)
    }

    /// Puts a blob. Returns an event that names it.
    async fn blob(&mut self, id: SessionId, text: &str) -> Option<NewEvent> {
        let bytes = text.as_bytes().to_vec();
        let name = BlobName::of(&bytes);
        let store = self.handle.store.clone()?;
        store.blobs().put(PutBlob::of_bytes(id, bytes)).await.ok()?;
        // It may be long until it is named.
        sleep(self.handle.seeded.between(Duration::ZERO, secs(10))).await;
        Some(note("drawn").with_blob(name))
    }

    async fn change(&mut self) -> Result<Option<Commit>, String> {
        let Some(id) = self.handle.session() else { return Ok(None) };
        let Ok(seen) = self.handle.load(id).await else { return Ok(None) };
        let Handle { seeded, effects, .. } = &mut self.handle;
        let commit = Commit::seal(effects, id, seen.head);
        let text = seeded.next_u64().to_string();
        let trigger = match seeded.below(20) {
            0..=2 => return Ok(Some(commit.with_event(NewEvent::user_message(text)))),
            3..=6 => {
                let minutes = [1, 10, 60, 180, 20 * 60][seeded.below(5) as usize];
                let at = effects.now().plus_micros(minutes * 60_000_000);
                let timer = Timer::new(format!("timer-{}", seeded.below(2)), at);
                return Ok(Some(commit.with_event(NewEvent::timer_scheduled(timer))));
            }
            7..=8 => {
                let patch = match seeded.below(4) {
                    0 => Patch::new().with_inactive_after(hours(1)),
                    1 => Patch::new().without_label(INACTIVE_AFTER_LABEL),
                    project => Patch::new().with_label("project", PROJECTS[project as usize - 2]),
                };
                return Ok(Some(commit.with_event(NewEvent::updated(patch))));
            }
            9..=10 => {
                let named = self.blob(id, &text[..text.len().min(3)]).await;
                return Ok(named.map(|event| commit.with_event(event)));
            }
            11..=12 => Trigger::Archive,
            13..=14 => Trigger::Unarchive,
            15 => Trigger::Suspend(Reason::UserPaused),
            16 => Trigger::Resume,
            17 => Trigger::Terminate(Reason::UserEnded),
            18 => Trigger::Delete(Reason::UserDeleted),
            _ => return Ok(Some(commit.with_event(note(&text)))),
        };
        Ok(Some(commit.with_trigger(trigger)))
    }
}
