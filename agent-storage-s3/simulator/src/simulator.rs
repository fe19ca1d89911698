//! The bucket, its state of health, and what has been asked of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::answer::{Answer, http_date};
use crate::bucket::{Bucket, md5, server_time};
use crate::faults::{Fault, FaultPlan};
use crate::object::{Dialect, Quirks};
use crate::op::Op;
use crate::request::{Condition, Request};
use crate::seeded::Seeded;
use crate::trace::{Counts, Entry};

/// An in-memory S3 with one bucket, whatever it is called. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Simulator(Arc<Mutex<World>>);

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulator").finish_non_exhaustive()
    }
}

struct World {
    bucket: Bucket,
    plan: FaultPlan,
    script: VecDeque<(Op, Fault)>,
    cut_off: Vec<Arc<str>>,
    denied: BTreeSet<Op>,
    refusal: Option<Fault>,
    seeded: Seeded,
    start: Option<Instant>,
    entries: Vec<Entry>,
    fired: BTreeMap<Fault, u64>,
}

/// What is to become of a request.
#[derive(Debug)]
pub(crate) struct Fate {
    /// Which entry of the log it is.
    pub(crate) number: usize,
    pub(crate) fault: Option<Fault>,
    /// How long it takes to the store.
    pub(crate) there: Duration,
    /// How long the answer takes back.
    pub(crate) back: Duration,
    /// How much later it lands, where it is late.
    pub(crate) late: Duration,
    /// When the client's library gives up.
    pub(crate) timeout: Duration,
    /// For what else is drawn by lot.
    pub(crate) lot: u64,
}

impl Simulator {
    /// An empty store in good health. All that is ever drawn by lot follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(World {
            bucket: Bucket::default(),
            plan: FaultPlan::quiet(),
            script: VecDeque::new(),
            cut_off: Vec::new(),
            denied: BTreeSet::new(),
            refusal: None,
            seeded: Seeded::new(seed),
            start: None,
            entries: Vec::new(),
            fired: BTreeMap::new(),
        })))
    }

    /// Returns this simulator with deviations from the protocol.
    #[must_use]
    pub fn with_quirks(self, quirks: Quirks) -> Self {
        self.world().bucket.quirks = quirks;
        self
    }

    /// Returns this simulator with another protocol than that of S3.
    #[must_use]
    pub fn with_dialect(self, dialect: Dialect) -> Self {
        self.world().bucket.dialect = dialect;
        self
    }

    /// Returns the protocol.
    pub fn dialect(&self) -> Dialect {
        self.world().bucket.dialect
    }

    /// From now on requests fare by `plan`. What is on its way stays on its way.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.world().plan = plan;
    }

    /// The next request of the kind `op` meets this fault; those named first come first. Goes before the plan.
    pub fn next(&self, op: Op, fault: Fault) {
        self.world().script.push_back((op, fault));
    }

    /// While a client is cut off, its requests get no connection. What is on its way stays on its way.
    pub fn cut_off(&self, client: &str, cut: bool) {
        let mut world = self.world();
        world.cut_off.retain(|name| **name != *client);
        if cut {
            world.cut_off.push(client.into());
        }
    }

    /// While a kind of requests is denied, each is answered with 403 and not carried out. What is on its way stays on its
    /// way.
    pub fn deny(&self, op: Op, denied: bool) {
        let mut world = self.world();
        if denied {
            world.denied.insert(op)
        } else {
            world.denied.remove(&op)
        };
    }

    /// While set, every request is answered with this status and an error with this code, and not carried out. What is on
    /// its way stays on its way.
    pub fn refuse_all(&self, refusal: Option<(u16, &'static str)>) {
        self.world().refusal = refusal.map(|(status, code)| Fault::Refusal(status, code));
    }

    /// The body stored under a key.
    pub fn object(&self, key: &str) -> Option<Bytes> {
        self.world().bucket.get(key).cloned()
    }

    /// Every key, in order.
    pub fn keys(&self) -> Vec<String> {
        self.world().bucket.keys().cloned().collect()
    }

    /// Returns the number of uploads in parts that were begun and have not ended.
    pub fn uploads(&self) -> usize {
        self.world().bucket.uploads()
    }

    /// Stores an object behind every client's back.
    pub fn put_object(&self, key: &str, body: impl Into<Bytes>) {
        let mut world = self.world();
        let now = world.now();
        world.bucket.put(key.to_owned(), body.into(), now);
    }

    /// Removes an object behind every client's back.
    pub fn remove_object(&self, key: &str) {
        let mut world = self.world();
        let now = world.now();
        world.bucket.remove(key, now);
    }

    /// Every request so far, in the order in which they left.
    pub fn entries(&self) -> Vec<Entry> {
        self.world().entries.clone()
    }

    /// Returns how many requests of a client and a kind, after the first `from`, were carried out.
    pub fn carried_out(&self, client: &str, op: Op, from: usize) -> usize {
        let is_done = |entry: &&Entry| *entry.client == *client && entry.op == op && !entry.done.is_empty();
        self.world().entries.iter().skip(from).filter(is_done).count()
    }

    /// Returns the number of requests of each kind.
    pub fn counts(&self) -> Counts {
        Counts::of(self.world().entries.iter())
    }

    /// Returns the number of requests of each kind after the first `from`, which shows the cost of one operation.
    pub fn counts_since(&self, from: usize) -> Counts {
        Counts::of(self.world().entries.iter().skip(from))
    }

    /// Returns the number of requests.
    pub fn requests(&self) -> usize {
        self.world().entries.len()
    }

    /// Returns how often each fault has happened.
    pub fn fired(&self) -> BTreeMap<Fault, u64> {
        self.world().fired.clone()
    }

    /// Every request and its fate, one a line: two runs of one seed are equal to the byte.
    pub fn trace(&self) -> String {
        let world = self.world();
        world.entries.iter().fold(String::new(), |mut text, entry| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{entry}");
            text
        })
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a request that is about to leave, and says what is to become of it.
    pub(crate) fn decide(&self, client: &Arc<str>, request: &Request) -> Fate {
        let mut world = self.world();
        let op = request.op();
        let cut = world.cut_off.contains(client);
        let scripted = world.script.iter().position(|(planned, _)| *planned == op);
        let fault = match scripted.and_then(|at| world.script.remove(at)) {
            Some((_, fault)) => Some(fault),
            None if cut => Some(Fault::Refused),
            None if world.denied.contains(&op) => Some(Fault::Forbidden),
            None if world.refusal.is_some() => world.refusal,
            None => {
                let World { plan, seeded, .. } = &mut *world;
                plan.draw(seeded, op)
            }
        };
        fault.into_iter().for_each(|fault| *world.fired.entry(fault).or_default() += 1);
        let at = world.now();
        let etag = match request {
            Request::Put { condition: Some(Condition::Matches(etag)), .. } => Some(etag.clone()),
            _ => None,
        };
        let sent = request.body().map(|body| (body.len(), md5(body)));
        let (client, target) = (client.clone(), request.target());
        world.entries.push(Entry {
            at,
            client,
            op,
            target,
            etag,
            sent,
            fault,
            done: Vec::new(),
            answered: 0,
        });
        let number = world.entries.len() - 1;
        let World { plan, seeded, .. } = &mut *world;
        let (low, high) = plan.latency;
        Fate {
            number,
            fault,
            there: seeded.between(low, high),
            back: seeded.between(low, high),
            late: seeded.between(Duration::from_secs(1), plan.latest),
            timeout: plan.timeout,
            lot: seeded.next_u64(),
        }
    }

    /// Carries a request out.
    pub(crate) fn carry_out(&self, number: usize, mut request: Request) -> Answer {
        let mut world = self.world();
        let now = world.now();
        if let Request::List(list) = &mut request {
            let World { plan, seeded, .. } = &mut *world;
            let most = plan.cut(seeded).into_iter().chain(list.max_keys).min();
            list.max_keys = most;
        }
        let mut answer = world.bucket.apply(request, now);
        let name = world.bucket.quirks.server.map(|name| (http::header::SERVER, name.to_owned()));
        answer.headers.extend(name);
        if !world.bucket.quirks.omits_date {
            answer.headers.push((http::header::DATE, http_date(server_time(now))));
        }
        let status = answer.status.as_u16();
        if let Some(entry) = world.entries.get_mut(number) {
            entry.done.push((now, status));
            entry.answered += answer.body.len();
        }
        answer
    }
}

impl World {
    /// The time since the first request.
    fn now(&mut self) -> Duration {
        self.start.get_or_insert_with(Instant::now).elapsed()
    }
}
