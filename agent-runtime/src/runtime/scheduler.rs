//! Runs sessions when they are due, without anybody asking: across the sessions of a tenant, or of all tenants.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, debug, info_span, warn};

use crate::runtime::agent::AgentRuntime;
use crate::runtime::children::deliver;
use crate::runtime::rounds::{Done, Round, SchedulerConfig};
use crate::runtime::stop::is_set;
use crate::secrets::TenantSecrets;
use agent_core::isolated::isolated;
use agent_core::model::Lease;
use agent_core::state::SessionState;
use agent_core::store::{Pulse, SessionQuery};
use agent_core::{Epoch, Error, ErrorKind, Result, Seq, SessionId, TenantId, Tenants};

/// Looks after sessions: starts a run where an input, an answer, a wake or a retry is due, gives up questions whose time
/// is over, tells parents what their children have come to, and replaces holders that are gone. A host spawns [`run`](Self::run) and forgets it.
///
/// Any number of schedulers, in any number of processes, may look after one store: the session's lease decides who runs
/// it, and whoever loses goes on to the next. Each starts at an offset of its own, so that they seldom meet. A run that is
/// lost with its process is seen by the others, and offered again: what is due is done at least once, and done with
/// once.
///
/// Over several tenants it is fair: each may hold [so many](SchedulerConfig::per_tenant) of the places at once, and places
/// that become free go to the tenants that wait in turn. So a tenant with much to do, or whose model is silent, keeps no
/// other waiting.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::MemoryStore;
/// use agent_core::model::Wake;
/// use agent_runtime::{AgentBuilder, Config, EchoProvider, Scheduler};
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
    /// Of the tenants for whom it does something.
    shares: Mutex<HashMap<TenantId, Share>>,
    /// The sessions that it runs or tries to.
    own: Mutex<HashSet<Key>>,
    /// Holders of others, and since when they were seen without a sign of life.
    holders: Mutex<HashMap<Key, (Sign, Instant)>>,
}

/// What one tenant may hold.
#[derive(Clone, Debug)]
struct Share {
    places: Arc<Semaphore>,
    /// Held while what was found due to the tenant is being started.
    starting: Arc<AsyncMutex<()>>,
}

/// A session, among those of all tenants.
type Key = (TenantId, SessionId);

/// A holder's lease, the head, the beat: two that are equal a whole ttl apart say that it is gone.
type Sign = (Epoch, Seq, u64);

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
            shares: Mutex::default(),
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
            failures = match isolated(|| Box::pin(self.look(&mut runs))).await {
                Some(Ok(())) => 0,
                failed => {
                    let error = failed.and_then(Result::err).unwrap_or_else(panicked);
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
            round.add(done.unwrap_or(Round { failed: 1, ..Round::default() }));
        }
        looked.map(|()| round)
    }

    /// Finds what is due, and starts it in a task for each tenant, as soon as there are places for it.
    async fn look(&self, runs: &mut JoinSet<Round>) -> Result<()> {
        let in_use =
            |share: &Share| Arc::strong_count(&share.places) > 1 || Arc::strong_count(&share.starting) > 1;
        held(&self.0.shares).retain(|_, share| in_use(share));
        let Some(tenants) = &self.0.tenants else {
            return self.look_at(&TenantId::default(), self.0.runtime.clone(), runs).await;
        };
        let (mut after, mut seen, mut failed) = (None, false, None);
        loop {
            let page = tenants.list(after.clone()).await?;
            for tenant in &page.items {
                let looked = isolated(|| {
                    Box::pin(async {
                        let mut runtime = self.0.runtime.rebind(tenants.storage(tenant));
                        if let Some(secrets) = self.0.secrets.as_ref().and_then(|secrets| secrets.of(tenant))
                        {
                            runtime = runtime.with_secrets(secrets);
                        }
                        self.look_at(tenant, runtime, runs).await
                    })
                });
                match looked.await.unwrap_or_else(|| Err(panicked())) {
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
        runs: &mut JoinSet<Round>,
    ) -> Result<()> {
        let share = self.share(tenant);
        // What was found before is still being started; what came since is found after that.
        let Ok(starting) = share.starting.clone().try_lock_owned() else { return Ok(()) };
        let running = running(&runtime, self.0.config.page).await?;
        held(&self.0.holders).retain(|(of, id), _| of != tenant || running.contains(id));
        let mut found = Vec::new();
        for id in running {
            if let Some(epoch) = self.gone(&(tenant.clone(), id), &runtime).await {
                found.push((id, Some(epoch)));
            }
        }
        let query = SessionQuery::new().due(runtime.effects().now()).limit(self.0.config.page);
        let (next, looked) = match self.due(&runtime, query, &mut found).await {
            Ok(next) => (next, Ok(())),
            Err(error) => (None, Err(error)),
        };
        if !found.is_empty() {
            let (this, tenant) = (self.clone(), tenant.clone());
            runs.spawn(async move { this.start_all(tenant, runtime, share, starting, found, next).await });
        }
        looked
    }

    /// Adds a page of what is due; returns the query for the next one.
    async fn due(
        &self,
        runtime: &AgentRuntime,
        query: SessionQuery,
        found: &mut Vec<(SessionId, Option<Epoch>)>,
    ) -> Result<Option<SessionQuery>> {
        let mut page = runtime.storage().sessions.list(query.clone()).await?;
        for damage in &page.damaged {
            debug!(%damage, "a session cannot be looked after");
        }
        let at = self.0.offset % (page.items.len().max(1) as u64);
        page.items.rotate_left(at as usize);
        found.extend(page.items.iter().map(|session| (session.id, None)));
        Ok(page.next.map(|next| query.cursor(Some(next))))
    }

    /// Starts what is due to a tenant, page after page, and waits for the runs.
    async fn start_all(
        self,
        tenant: TenantId,
        runtime: AgentRuntime,
        share: Share,
        starting: OwnedMutexGuard<()>,
        mut found: Vec<(SessionId, Option<Epoch>)>,
        mut next: Option<SessionQuery>,
    ) -> Round {
        let (mut runs, mut round) = (JoinSet::new(), Round::default());
        'pages: loop {
            for (id, gone) in found.drain(..) {
                let Some(places) = self.places(&share, &runtime).await else { break 'pages };
                self.start((tenant.clone(), id), &runtime, gone, places, &mut runs);
                while let Some(done) = runs.try_join_next() {
                    round.count(&done.unwrap_or(Done::Failed));
                }
            }
            let Some(query) = next else { break };
            next = match self.due(&runtime, query, &mut found).await {
                Ok(next) => next,
                Err(error) => {
                    warn!(%tenant, %error, "the scheduler could not look for more of what is due to a tenant");
                    round.failed += 1;
                    break;
                }
            };
        }
        drop((starting, share));
        while let Some(done) = runs.join_next().await {
            round.count(&done.unwrap_or(Done::Failed));
        }
        round
    }

    /// Waits for a place of the tenant's, then for one of all; `None` in a shutdown. As a tenant waits for one place at a
    /// time, and these are given in the order of waiting, tenants take turns.
    async fn places(&self, share: &Share, runtime: &AgentRuntime) -> Option<[OwnedSemaphorePermit; 2]> {
        let mut closing = runtime.shared.runs.closing();
        let places = async {
            // The semaphores are never closed.
            let own = share.places.clone().acquire_owned().await.ok()?;
            Some([own, self.0.places.clone().acquire_owned().await.ok()?])
        };
        tokio::select! {
            biased;
            () = is_set(&mut closing) => None,
            places = places => places,
        }
    }

    /// Runs a session in a task.
    fn start(
        &self,
        key: Key,
        runtime: &AgentRuntime,
        gone: Option<Epoch>,
        places: [OwnedSemaphorePermit; 2],
        runs: &mut JoinSet<Done>,
    ) {
        let id = key.1;
        let Some(own) = Own::claim(&self.0, key) else { return };
        let runtime = runtime.clone();
        let work = async move {
            let done = run_one(&runtime, id, gone).await;
            drop((own, places));
            done
        };
        runs.spawn(work.instrument(info_span!("scheduled", session = %id)));
    }

    /// What a tenant may hold.
    fn share(&self, tenant: &TenantId) -> Share {
        let SchedulerConfig { parallel, per_tenant, .. } = self.0.config;
        let most = match &self.0.tenants {
            Some(_) => per_tenant.unwrap_or(parallel / 2).max(1),
            None => parallel.max(1),
        };
        let new = || Share { places: Arc::new(Semaphore::new(most)), starting: Arc::default() };
        held(&self.0.shares).entry(tenant.clone()).or_insert_with(new).clone()
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

/// What is said of code of the host that panicked while the scheduler looked for what is due.
fn panicked() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the stores, the tenants or the secrets panicked; they are asked again",
    )
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
    let Some(lease) = now.lease.clone().filter(|_| now.status.state == SessionState::Running) else {
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
