//! A session of many events costs what a session of 1,000 costs.

use std::ops::Sub;

use agent_core::Seq;
use agent_core::event::NewEvent;
use agent_core::session::Fork;
use agent_core::store::ReadEvents;
use agent_core::{SessionId, SessionStoreExt, Storage};
use agent_runtime::context::{ContextLimits, ModelContext};
use agent_runtime::{AgentBuilder, EchoProvider};
use agent_tests::{Site, each_store};
use tokio::time::{Instant, timeout};

use super::{Form, HEAP, STUCK, alone, io, long_session, many_events};

/// A short session, and one that has more than a model is given.
const SHORT: u64 = 1_000;
const FULL: u64 = 5_000;

/// Operations that read the context of a model.
const CONTEXT: [&str; 3] = ["context for the model", "turn that compacts", "turn"];

/// What this process has read and written, by the system's own count, and the most memory that it had meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    peak: usize,
}

impl Cost {
    fn so_far() -> Self {
        Self {
            reads: io("syscr"),
            read_bytes: io("rchar"),
            writes: io("syscw"),
            written_bytes: io("wchar"),
            peak: HEAP.peak_usage(),
        }
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            peak: self.peak.saturating_sub(before.peak),
        }
    }
}

/// Counts what operations cost, one after the other.
struct Costs {
    before: Cost,
    since: Instant,
    all: Vec<(&'static str, Cost)>,
}

impl Costs {
    fn new() -> Self {
        let mut costs = Self { before: Cost::default(), since: Instant::now(), all: Vec::new() };
        costs.begin();
        costs
    }

    fn begin(&mut self) {
        HEAP.reset_peak_usage();
        (self.before, self.since) = (Cost::so_far(), Instant::now());
    }

    fn end(&mut self, what: &'static str) {
        let (cost, time) = (Cost::so_far() - self.before, self.since.elapsed());
        println!("  {what}: {time:?} {cost:?}");
        self.all.push((what, cost));
        self.begin();
    }
}

async fn costs(site: &Site, id: SessionId) -> Vec<(&'static str, Cost)> {
    let mut costs = Costs::new();
    let storage: Storage = site.open().await;
    let sessions = &storage.sessions;
    let record = sessions.load(id).await.unwrap();
    let page = sessions.history(id, ReadEvents::last(50)).await.unwrap();
    costs.end("open and last 50");
    assert_eq!((page.events.len(), page.events[49].seq), (50, record.head));

    let add = async |seen: Seq| {
        let new_events = vec![NewEvent::agent_message("the same")];
        sessions.append(id, seen, new_events).await.unwrap().last
    };
    // The first opens the session for writing.
    let mut seen = add(record.head).await;
    costs.end("first append");
    seen = add(seen).await;
    costs.end("append");

    sessions.fork(id, None).await.unwrap();
    costs.end("first fork");
    let fork = sessions.fork(id, Fork::new()).await.unwrap();
    costs.end("fork");
    let page = sessions.history(fork.id, ReadEvents::last(50)).await.unwrap();
    costs.end("last 50 of a fork");
    assert_eq!(page.events.len(), 50);

    let record = sessions.load(id).await.unwrap();
    assert_eq!(record.head, seen);
    costs.begin();
    let context = ModelContext::read(&**sessions, &record, ContextLimits::default()).await.unwrap();
    costs.end("context for the model");
    assert!(context.messages().len() >= 900, "{}", context.messages().len());
    drop(context);

    let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage.clone());
    let agent = agent.build().unwrap();
    let chat = agent.conversation_by_id(id).await.unwrap();
    for (round, what) in ["turn that compacts", "turn"].into_iter().enumerate() {
        costs.begin();
        let report = chat.ask(format!("question {round}")).await.unwrap();
        costs.end(what);
        assert_eq!(report.text, format!("question {round}"));
    }
    assert!(sessions.load(id).await.unwrap().context_from.get() > record.head.get() - 1_000);
    storage.close().await.unwrap();
    costs.all
}

async fn same_costs(site: Site, form: Form) {
    let kind = site.name;
    let many = many_events(10_000);
    let mut all = Vec::new();
    for events in [SHORT, FULL, many] {
        let filled = site.open().await;
        let id = long_session(&filled.sessions, events, form).await;
        filled.close().await.unwrap();
        drop(filled);
        println!("{kind}, {form:?}: {events} events");
        all.push(costs(&site, id).await);
    }
    for (n, (what, long)) in all[2].iter().enumerate() {
        // The summary is the first of a run that was not read to its beginning, which is searched once for its inputs.
        if form == Form::OneRun && *what == "turn that compacts" {
            continue;
        }
        // All of a short session fits in the context.
        let (than, at) = if CONTEXT.contains(what) { (FULL, 1) } else { (SHORT, 0) };
        let short = all[at][n].1;
        // A search in a log has some steps more, and a tree of pages some levels.
        for (count, short, long, more) in [
            ("reads", short.reads, long.reads, 32),
            ("bytes read", short.read_bytes, long.read_bytes, 512 << 10),
            ("writes", short.writes, long.writes, 16),
            ("bytes written", short.written_bytes, long.written_bytes, 64 << 10),
            ("bytes of memory", short.peak as u64, long.peak as u64, 256 << 10),
        ] {
            let most = short + short / 4 + more;
            assert!(long <= most, "{kind}, {what}, {count}: {long} at {many} events, {short} at {than}");
        }
    }
}

/// Opening a session and reading its last 50 events, appending, forking, and the context of a turn cost the same at 1,000 events
/// and at many. `AGENT_TEST_EVENTS=1000000` makes it a million.
async fn length_of_a_session_costs_nothing(site: Site) {
    let _alone = alone().await;
    timeout(STUCK, same_costs(site.unsynced(), Form::Chat)).await.expect("an operation hangs");
}

/// The same holds for a session whose only question is as many events ago.
async fn length_of_a_run_costs_nothing(site: Site) {
    let _alone = alone().await;
    timeout(STUCK, same_costs(site.unsynced(), Form::OneRun)).await.expect("an operation hangs");
}

each_store!(length_of_a_session_costs_nothing on disk, flavor = "multi_thread", worker_threads = 2);
each_store!(length_of_a_run_costs_nothing on disk, flavor = "multi_thread", worker_threads = 2);
