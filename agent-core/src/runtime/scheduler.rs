//! Runs sessions when they are due, without anybody asking: across the sessions of a tenant, or of all tenants.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, debug, info_span, warn};

use crate::error::{ErrorKind, Result};
use crate::id::{Epoch, Seq, SessionId, TenantId};
use crate::page::PAGE_MAX;
use crate::runtime::AgentRuntime;
use crate::runtime::children::deliver;
use crate::runtime::stop::is_set;
use crate::secrets::TenantSecrets;
use crate::session::{Lease, Pulse, SessionQuery, SessionState};
use crate::storage::Tenants;

/// Looks after sessions: starts a run where an input, an answer, a wake or a retry is due, gives up questions whose time
/// is over, tells parents what their children have come to, and replaces holders that are gone. A host spawns [`run`](Self::run) and forgets it.
///
/// Any number of schedulers, in any number of processes, may look after one store: the session's lease decides who runs
/// it, and whoever loses goes on to the next. Each starts at an offset of its own, so that they seldom meet. A run that is
/// lost with its process is seen by the others, and offered again: what is due is done at least once, and done with
/// once.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::runtime::{AgentBuilder, Config, EchoProvider, Scheduler};
/// use agent_core::{MemoryStore, Wake};
///
/// let agent = AgentBuilder::new(Config::default())
///     .with_llm(Arc::new(EchoProvider::new()))
///     .with_storage(MemoryStore::new())
///     .build()?;
/// let session = agent.open(&"laptop".parse()?).await?;
/// session.schedule(Wake::new("daily", agent.effects().now()).with_note("Water the plants.")).await?;
/// let round = Scheduler::new(agent).round().await?;
/// assert_eq!(round.ran, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: AgentRuntime,
    tenants: Option<Arc<dyn Tenants>>,
    secrets: Option<Arc<dyn TenantSecrets>>,
    config: SchedulerConfig,
    /// Where it starts in a page, and in the time between two looks.
    offset: u64,
    places: Arc<Semaphore>,
    /// The sessions that it runs or tries to.
    own: Mutex<HashSet<Key>>,
    /// Holders of others, and since when they were seen without a sign of life.
    holders: Mutex<HashMap<Key, (Sign, Instant)>>,
}

/// A session, among those of all tenants.
type Key = (TenantId, SessionId);

/// A holder's lease, the head, the beat: two that are equal a whole ttl apart say that it is gone.
type Sign = (Epoch, Seq, u64);

/// How a [`Scheduler`] looks after sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerConfig {
    /// The time between two looks; 5 seconds unless set. What is due waits for the next look.
    pub every: Duration,
    /// How many sessions it runs at once; 8 unless set.
    pub parallel: usize,
    /// How many sessions it asks the store for at a time; 100 unless set.
    pub page: usize,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self { every: Duration::from_secs(5), parallel: 8, page: 100 }
    }
}

impl SchedulerConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time between two looks.
    #[must_use]
    pub const fn every(mut self, time: Duration) -> Self {
        self.every = time;
        self
    }

    /// Sets how many sessions it runs at once; at least one.
    #[must_use]
    pub fn parallel(mut self, runs: usize) -> Self {
        self.parallel = runs.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets how many sessions it asks the store for at a time, 1 to 1,000.
    #[must_use]
    pub fn page(mut self, sessions: usize) -> Self {
        self.page = sessions.clamp(1, PAGE_MAX);
        self
    }
}

/// What a look came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// How many runs were started, and ended.
    pub ran: u64,
    /// How many parents were told what a child of theirs has come to.
    pub reported: u64,
    /// How many sessions needed none when they were come to: somebody else was quicker, or it is backed off.
    pub skipped: u64,
    /// How many could not be looked after; each is logged.
    pub failed: u64,
}

enum Done {
    Ran,
    Reported,
    Skipped,
    Failed,
}

impl Round {
    fn count(&mut self, done: &Done) {
        match done {
            Done::Ran => self.ran += 1,
            Done::Reported => self.reported += 1,
            Done::Skipped => self.skipped += 1,
            Done::Failed => self.failed += 1,
        }
    }
}

impl Scheduler {
    /// Looks after the sessions of the runtime's tenant.
    pub fn new(runtime: AgentRuntime) -> Self {
        Self::with(runtime, None, None, SchedulerConfig::default())
    }

    /// Looks after the sessions of all tenants, with the runtime's models and plugins. Secrets are a tenant's own: see
    /// [`with_secrets`](Self::with_secrets).
    pub fn over(runtime: AgentRuntime, tenants: Arc<dyn Tenants>) -> Self {
        Self::with(runtime, Some(tenants), None, SchedulerConfig::default())
    }

    /// Sets how it does that; to be called first.
    #[must_use]
    pub fn config(self, config: SchedulerConfig) -> Self {
        Self::with(self.0.runtime.clone(), self.0.tenants.clone(), self.0.secrets.clone(), config)
    }

    /// Sets where each tenant's runs have their secrets from; to be called first. Without, runs of a scheduler over tenants
    /// have none. One whose sessions are a single tenant's takes those of its runtime.
    #[must_use]
    pub fn with_secrets(self, secrets: Arc<dyn TenantSecrets>) -> Self {
        Self::with(self.0.runtime.clone(), self.0.tenants.clone(), Some(secrets), self.0.config)
    }

    fn with(
        runtime: AgentRuntime,
        tenants: Option<Arc<dyn Tenants>>,
        secrets: Option<Arc<dyn TenantSecrets>>,
        config: SchedulerConfig,
    ) -> Self {
        let offset = runtime.effects().random_u64();
        Self(Arc::new(Inner {
            runtime,
            tenants,
            secrets,
            config,
            offset,
            places: Arc::new(Semaphore::new(config.parallel.max(1))),
            own: Mutex::default(),
            holders: Mutex::default(),
        }))
    }

    /// Looks again and again until the runtime is [shut down](AgentRuntime::shutdown). A store that cannot be asked is
    /// asked again later, at growing intervals.
    pub async fn run(self) {
        let every = self.0.config.every.max(Duration::from_millis(1));
        let mut closing = self.0.runtime.shared.runs.closing();
        let mut pause = every.mul_f64((self.0.offset % 1024) as f64 / 1024.0);
        let (mut runs, mut failures) = (JoinSet::new(), 0_u32);
        loop {
            tokio::select! {
                () = is_set(&mut closing) => break,
                () = sleep(pause) => {}
            }
            failures = match self.look(&mut runs).await {
                Ok(()) => 0,
                Err(error) => {
                    warn!(%error, "the scheduler could not look for what is due; it tries again");
                    failures.saturating_add(1)
                }
            };
            pause = every.saturating_mul(1 << failures.min(6));
            while runs.try_join_next().is_some() {}
        }
        // Shutting down waits for the runs themselves.
        runs.detach_all();
    }

    /// Looks once, and waits for the runs that it started.
    ///
    /// # Errors
    ///
    /// Those of the stores' lists; over several tenants, where none of them could be asked.
    pub async fn round(&self) -> Result<Round> {
        let (mut runs, mut round) = (JoinSet::new(), Round::default());
        let looked = self.look(&mut runs).await;
        while let Some(done) = runs.join_next().await {
            round.count(&done.unwrap_or(Done::Failed));
        }
        looked.map(|()| round)
    }

    /// Starts what is due, each in a task, as soon as there is a place for it.
    async fn look(&self, runs: &mut JoinSet<Done>) -> Result<()> {
        let Some(tenants) = &self.0.tenants else {
            return self.look_at(&TenantId::default(), self.0.runtime.clone(), runs).await;
        };
        let (mut after, mut seen, mut failed) = (None, false, None);
        loop {
            let page = tenants.list(after.clone()).await?;
            for tenant in &page.items {
                let mut runtime = self.0.runtime.rebind(tenants.storage(tenant));
                if let Some(secrets) = self.0.secrets.as_ref().and_then(|secrets| secrets.of(tenant)) {
                    runtime = runtime.with_secrets(secrets);
                }
                match self.look_at(tenant, runtime, runs).await {
                    Ok(()) => seen = true,
                    // One whose stores cannot be asked keeps nobody from the others.
                    Err(error) => {
                        warn!(%tenant, %error, "the scheduler could not look for what is due to a tenant");
                        failed = Some(error);
                    }
                }
            }
            match page.items.last() {
                Some(last) if page.next.is_some() => after = Some(last.clone()),
                _ => break,
            }
        }
        failed.filter(|_| !seen).map_or(Ok(()), Err)
    }

    async fn look_at(
        &self,
        tenant: &TenantId,
        runtime: AgentRuntime,
        runs: &mut JoinSet<Done>,
    ) -> Result<()> {
        let running = running(&runtime, self.0.config.page).await?;
        held(&self.0.holders).retain(|(of, id), _| of != tenant || running.contains(id));
        for id in running {
            let key = (tenant.clone(), id);
            if let Some(epoch) = self.gone(&key, &runtime).await {
                self.start(key, &runtime, Some(epoch), runs).await;
            }
        }
        let mut query = SessionQuery::new().due(runtime.effects().now()).limit(self.0.config.page);
        loop {
            let mut page = runtime.storage().sessions.list(query.clone()).await?;
            for damage in &page.damaged {
                debug!(%damage, "a session cannot be looked after");
            }
            let at = self.0.offset % (page.items.len().max(1) as u64);
            page.items.rotate_left(at as usize);
            for session in page.items {
                self.start((tenant.clone(), session.id), &runtime, None, runs).await;
            }
            if page.next.is_none() {
                return Ok(());
            }
            query = query.cursor(page.next);
        }
    }

    /// Runs a session in a task, once there is a place.
    async fn start(&self, key: Key, runtime: &AgentRuntime, gone: Option<Epoch>, runs: &mut JoinSet<Done>) {
        // The semaphore is never closed.
        let Ok(place) = self.0.places.clone().acquire_owned().await else { return };
        let id = key.1;
        let Some(own) = Own::claim(&self.0, key) else { return };
        let runtime = runtime.clone();
        let work = async move {
            let done = run_one(&runtime, id, gone).await;
            drop((own, place));
            done
        };
        runs.spawn(work.instrument(info_span!("scheduled", session = %id)));
    }

    /// The lease of a holder that is gone: proven dead, or seen without a sign of life for a whole ttl, by this
    /// process's own clock.
    async fn gone(&self, key: &Key, runtime: &AgentRuntime) -> Option<Epoch> {
        let id = key.1;
        if held(&self.0.own).contains(key) {
            return None;
        }
        let (lease, head, pulse) = match holder(runtime, id).await {
            Ok(found) => found?,
            Err(error) => {
                debug!(session = %id, %error, "a holder could not be looked at");
                return None;
            }
        };
        let sign = (lease.epoch, head, pulse.beat);
        let mut holders = held(&self.0.holders);
        let ttl = Duration::from_millis(lease.ttl_ms);
        let silent = match holders.get(key) {
            Some((before, since)) if *before == sign => since.elapsed() >= ttl,
            _ => {
                holders.insert(key.clone(), (sign, Instant::now()));
                false
            }
        };
        if pulse.dead || silent {
            holders.remove(key);
            return Some(lease.epoch);
        }
        None
    }
}

/// A session that this scheduler runs or tries to, until it is dropped.
#[derive(Debug)]
struct Own(Arc<Inner>, Key);

impl Own {
    /// `None` where it is at it already.
    fn claim(inner: &Arc<Inner>, key: Key) -> Option<Self> {
        held(&inner.own).insert(key.clone()).then(|| Self(inner.clone(), key))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        held(&self.0.own).remove(&self.1);
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each use is a single operation on a map, so a panic leaves none half done.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sessions that somebody runs.
async fn running(runtime: &AgentRuntime, page: usize) -> Result<HashSet<SessionId>> {
    let mut query = SessionQuery::new().states([SessionState::Running]).limit(page);
    let mut found = HashSet::new();
    loop {
        let page = runtime.storage().sessions.list(query.clone()).await?;
        found.extend(page.items.iter().map(|session| session.id));
        if page.next.is_none() {
            return Ok(found);
        }
        query = query.cursor(page.next);
    }
}

/// Who runs a session, and the signs of life of it.
async fn holder(runtime: &AgentRuntime, id: SessionId) -> Result<Option<(Lease, Seq, Pulse)>> {
    let sessions = &runtime.storage().sessions;
    let now = sessions.load(id).await?;
    let Some(lease) = now.lease.filter(|_| now.status.state == SessionState::Running) else {
        return Ok(None);
    };
    let pulse = sessions.pulse(id, lease.epoch).await?;
    Ok(Some((lease, now.head, pulse)))
}

/// Runs one session, if it still needs that.
async fn run_one(runtime: &AgentRuntime, id: SessionId, gone: Option<Epoch>) -> Done {
    let work = async {
        let handle = runtime.session(id).await?;
        if deliver(runtime, &handle.snapshot()).await? {
            return Ok(Done::Reported);
        }
        match handle.wake_unattended(gone).await? {
            Some(run) => run.finish().await.map(|_| Done::Ran),
            None => Ok(Done::Skipped),
        }
    };
    match work.await {
        Ok(done) => done,
        // Somebody else came first, or ended it.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Conflict { .. }
                    | ErrorKind::Deleted
                    | ErrorKind::Fenced { .. }
                    | ErrorKind::InvalidTransition { .. }
            ) =>
        {
            debug!(session = %id, %error, "somebody else looks after it");
            Done::Skipped
        }
        Err(error) => {
            warn!(session = %id, %error, "a session that is due could not be run");
            Done::Failed
        }
    }
}
