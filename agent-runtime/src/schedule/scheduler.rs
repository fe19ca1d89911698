//! Scheduler: runs sessions when they are due, across the sessions of one tenant or of all tenants.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, debug, info_span, warn};

use crate::agent::runtime::AgentRuntime;
use crate::run::error::RunError;
use crate::run::stop::is_set;
use crate::schedule::rounds::{Done, Round, SchedulerConfig};
use crate::turn::children::deliver;
use agent_core::isolated::isolated;
use agent_core::model::Lease;
use agent_core::state::SessionState;
use agent_core::store::{LeaseStatus, SessionQuery};
use agent_core::{Backend, Epoch, Error, ErrorKind, Result, Seq, SessionId, TenantId};
use agent_workspace::secrets::TenantSecrets;

/// Background scheduler: starts a run if an input, an answer, a timer or a retry is due. A host spawns
/// [`run`](Self::run) once.
///
/// It also gives up questions whose time limit has passed, reports the outcome of children to their parents, and
/// replaces lease holders that are dead or sent no heartbeat for a whole ttl.
///
/// Any number of schedulers, in any number of processes, may serve one store: the lease of a session decides which
/// scheduler runs it, and the others continue with the next session. Each scheduler starts at its own offset, so that
/// collisions are rare. If a process is lost during a run, the other schedulers detect and retry it: due work is
/// executed at least once, and completed once.
///
/// Scheduling over several tenants is fair: each tenant may hold a [limited
/// number](SchedulerConfig::with_max_runs_per_tenant) of permits at once, and permits that become free are given to the
/// waiting tenants in turn. A tenant with much work, or with a slow model, therefore delays no other tenant. A round
/// looks at the tenants that the store [names](Backend::busy_tenants): on SQLite and S3 those with work, else all.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::MemoryStore;
/// use agent_core::model::Timer;
/// use agent_runtime::{AgentBuilder, EchoProvider, Scheduler};
///
/// let agent = AgentBuilder::new()
///     .with_llm(EchoProvider::new())
///     .with_storage(MemoryStore::new())
///     .build()?;
/// let chat = agent.conversation("garden").await?;
/// chat.schedule(Timer::new("daily", agent.effects().now()).with_note("Water the plants.")).await?;
/// let round = Scheduler::new(agent).round().await?;
/// assert_eq!(round.ran, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: AgentRuntime,
    tenants: Option<Arc<dyn Backend>>,
    secrets: Option<Arc<dyn TenantSecrets>>,
    config: SchedulerConfig,
    /// Offset of the scheduler's start within a page, and within the time between two rounds.
    offset: u64,
    places: Arc<Semaphore>,
    /// Permits of the tenants that have due work.
    shares: Mutex<HashMap<TenantId, Share>>,
    /// Sessions that this scheduler runs or tries to run.
    own: Mutex<HashSet<Key>>,
    /// Holders in other processes, and the time since which they were seen without a heartbeat.
    holders: Mutex<HashMap<Key, (Sign, Instant)>>,
}

/// Permits of one tenant.
#[derive(Clone, Debug)]
struct Share {
    places: Arc<Semaphore>,
    /// Lock that is held while the due sessions of the tenant are being started.
    starting: Arc<AsyncMutex<()>>,
}

/// Session id, unique among all tenants.
type Key = (TenantId, SessionId);

/// Epoch of a lease, head and heartbeat. If they are equal for one ttl, the lease has expired.
type Sign = (Epoch, Seq, u64);

impl Scheduler {
    /// Creates a scheduler for the sessions of the runtime's tenant.
    pub fn new(runtime: AgentRuntime) -> Self {
        Self::with(runtime, None, None, SchedulerConfig::default())
    }

    /// Creates a scheduler for the sessions of all tenants, with the runtime's models and plugins.
    ///
    /// Each tenant has its own secrets: see [`with_secrets`](Self::with_secrets).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// use std::sync::Arc;
    /// use agent_core::{Backend, MemoryStore};
    /// use agent_runtime::Scheduler;
    ///
    /// let store = MemoryStore::new();
    /// let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(store.clone()).build()?;
    /// for tenant in ["acme", "globex"] {
    ///     let agent = agent.for_storage(store.tenant(&tenant.parse()?));
    ///     agent.conversation("garden").await?.send("Water the plants.").await?;
    /// }
    /// let round = Scheduler::over(agent, Arc::new(store)).round().await?;
    /// assert_eq!(round.ran, 2);
    /// # Ok(()) }
    /// ```
    pub fn over(runtime: AgentRuntime, tenants: Arc<dyn Backend>) -> Self {
        Self::with(runtime, Some(tenants), None, SchedulerConfig::default())
    }

    /// Sets the configuration; the default is [`SchedulerConfig::default`]. Call it before the scheduler starts.
    #[must_use]
    pub fn with_config(self, config: SchedulerConfig) -> Self {
        Self::with(self.0.runtime.clone(), self.0.tenants.clone(), self.0.secrets.clone(), config)
    }

    /// Sets the source of each tenant's secrets. Call it before the scheduler starts.
    ///
    /// Without it, runs of a scheduler over several tenants have no secrets. A scheduler for a single tenant uses the
    /// secrets of its runtime.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// use std::collections::BTreeMap;
    /// use std::sync::Arc;
    /// use agent_core::{MemoryStore, TenantId};
    /// use agent_runtime::Scheduler;
    /// use agent_runtime::secrets::{Secret, SecretName, Secrets};
    ///
    /// let name: SecretName = "github".parse()?;
    /// let acme: TenantId = "acme".parse()?;
    /// let secrets = Secrets::new(BTreeMap::from([(name, Secret::new("ghp_0123456789")?)]));
    /// let scheduler = Scheduler::over(agent, Arc::new(MemoryStore::new()))
    ///     .with_secrets(Arc::new(BTreeMap::from([(acme, secrets)])));
    /// assert_eq!(scheduler.round().await?.ran, 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_secrets(self, secrets: Arc<dyn TenantSecrets>) -> Self {
        Self::with(self.0.runtime.clone(), self.0.tenants.clone(), Some(secrets), self.0.config)
    }

    fn with(
        runtime: AgentRuntime,
        tenants: Option<Arc<dyn Backend>>,
        secrets: Option<Arc<dyn TenantSecrets>>,
        config: SchedulerConfig,
    ) -> Self {
        let (config, offset) = (config.in_range(), runtime.effects().random_u64());
        Self(Arc::new(Inner {
            runtime,
            tenants,
            secrets,
            config,
            offset,
            places: Arc::new(Semaphore::new(config.max_runs)),
            shares: Mutex::default(),
            own: Mutex::default(),
            holders: Mutex::default(),
        }))
    }

    /// Runs rounds until the runtime is [shut down](AgentRuntime::shutdown).
    ///
    /// An error of a store is logged, and the next round follows after a longer interval: twice the time after each
    /// failure, at most 64 times [`interval`](field@SchedulerConfig::interval).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use std::time::Duration;
    /// use agent_runtime::{Queued, Scheduler, SchedulerConfig};
    ///
    /// let config = SchedulerConfig::new().with_interval(Duration::from_millis(10));
    /// let scheduler = tokio::spawn(Scheduler::new(agent.clone()).with_config(config).run());
    ///
    /// let seq = chat.send("Water the plants.").await?;
    /// let report = chat.wait_for_answer(&Queued::new(chat.id(), seq)).await?;
    /// assert_eq!(report.text, "Water the plants.");
    ///
    /// agent.shutdown(Duration::from_secs(30)).await?;
    /// scheduler.await.expect("the scheduler ends with the runtime");
    /// # Ok(()) }
    /// ```
    pub async fn run(self) {
        let every = self.0.config.interval.max(Duration::from_millis(1));
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
                    warn!(%error, "the scheduler could not list due sessions; it tries again");
                    failures.saturating_add(1)
                }
            };
            pause = every.saturating_mul(1 << failures.min(6));
            while runs.try_join_next().is_some() {}
        }
        // A shutdown waits for the runs themselves.
        runs.detach_all();
    }

    /// Runs one round, and waits for the runs that it started. For tests, and for hosts with a scheduler of their own.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_runtime::Scheduler;
    ///
    /// let scheduler = Scheduler::new(agent);
    /// chat.send("Water the plants.").await?;
    /// assert_eq!(scheduler.round().await?.ran, 1);
    /// assert_eq!(scheduler.round().await?.ran, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, started runs continue; due sessions that were not started wait for the next round.
    ///
    /// # Errors
    ///
    /// Errors of the stores' lists; with several tenants, only if none of them could be listed.
    pub async fn round(&self) -> Result<Round> {
        let (mut runs, mut round) = (JoinSet::new(), Round::default());
        let looked = self.look(&mut runs).await;
        while let Some(done) = runs.join_next().await {
            round.add(done.unwrap_or(Round { failed: 1, ..Round::default() }));
        }
        looked.map(|()| round)
    }

    /// Finds due sessions, and starts them in one task for each tenant as soon as permits are available.
    async fn look(&self, runs: &mut JoinSet<Round>) -> Result<()> {
        let in_use =
            |share: &Share| Arc::strong_count(&share.places) > 1 || Arc::strong_count(&share.starting) > 1;
        held(&self.0.shares).retain(|_, share| in_use(share));
        let Some(tenants) = &self.0.tenants else {
            return self.look_at(&TenantId::default(), self.0.runtime.clone(), runs).await;
        };
        let (mut after, mut seen, mut failed) = (None, false, None);
        let (now, mut busy) = (self.0.runtime.effects().now(), HashSet::new());
        loop {
            let page = tenants.busy_tenants(now, after.clone()).await?;
            busy.extend(page.items.iter().cloned());
            for tenant in &page.items {
                let looked = isolated(|| {
                    Box::pin(async {
                        let mut runtime = self.0.runtime.for_storage(tenants.tenant(tenant));
                        if let Some(secrets) = self.0.secrets.as_ref().and_then(|secrets| secrets.of(tenant))
                        {
                            runtime = runtime.with_secrets(secrets);
                        }
                        self.look_at(tenant, runtime, runs).await
                    })
                });
                match looked.await.unwrap_or_else(|| Err(panicked())) {
                    Ok(()) => seen = true,
                    // A tenant whose stores fail does not affect the other tenants.
                    Err(error) => {
                        warn!(%tenant, %error, "the scheduler could not list the due sessions of a tenant");
                        failed = Some(error);
                    }
                }
            }
            match page.items.last() {
                Some(last) if page.next.is_some() => after = Some(last.clone()),
                _ => break,
            }
        }
        held(&self.0.holders).retain(|(tenant, _), _| busy.contains(tenant));
        failed.filter(|_| !seen).map_or(Ok(()), Err)
    }

    async fn look_at(
        &self,
        tenant: &TenantId,
        runtime: AgentRuntime,
        runs: &mut JoinSet<Round>,
    ) -> Result<()> {
        let share = self.share(tenant);
        // The sessions found earlier are still being started; a later round finds the others.
        let Ok(starting) = share.starting.clone().try_lock_owned() else { return Ok(()) };
        let running = running(&runtime, self.0.config.page_size).await?;
        held(&self.0.holders).retain(|(of, id), _| of != tenant || running.contains(id));
        let mut found = Vec::new();
        for id in running {
            if let Some(epoch) = self.gone(&(tenant.clone(), id), &runtime).await {
                found.push((id, Some(epoch)));
            }
        }
        let query = SessionQuery::new().with_due(runtime.effects().now()).with_limit(self.0.config.page_size);
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

    /// Adds a page of due sessions; returns the query for the next page.
    async fn due(
        &self,
        runtime: &AgentRuntime,
        query: SessionQuery,
        found: &mut Vec<(SessionId, Option<Epoch>)>,
    ) -> Result<Option<SessionQuery>> {
        let mut page = runtime.storage().sessions.list(query.clone()).await?;
        for damage in &page.damaged {
            debug!(%damage, "a damaged session is not scheduled");
        }
        let at = self.0.offset % (page.items.len().max(1) as u64);
        page.items.rotate_left(at as usize);
        found.extend(page.items.iter().map(|session| (session.id, None)));
        Ok(page.next.map(|next| query.with_cursor(Some(next))))
    }

    /// Starts the due sessions of a tenant, page by page, and waits for their runs.
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
                    warn!(%tenant, %error, "the scheduler could not list more due sessions of a tenant");
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

    /// Waits for a permit of the tenant, then for a global one; `None` in a shutdown. A tenant waits for one permit at
    /// a time, and permits are given in the order of waiting, so tenants take turns.
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

    /// Returns the permits of a tenant.
    fn share(&self, tenant: &TenantId) -> Share {
        let SchedulerConfig { max_runs: parallel, max_runs_per_tenant: per_tenant, .. } = self.0.config;
        let most = match &self.0.tenants {
            Some(_) => per_tenant.unwrap_or(parallel / 2).max(1),
            None => parallel.max(1),
        };
        let new = || Share { places: Arc::new(Semaphore::new(most)), starting: Arc::default() };
        held(&self.0.shares).entry(tenant.clone()).or_insert_with(new).clone()
    }

    /// Returns the epoch of a lease whose holder is proven dead, or sent no heartbeat for a whole ttl by this process's
    /// clock.
    async fn gone(&self, key: &Key, runtime: &AgentRuntime) -> Option<Epoch> {
        let id = key.1;
        if held(&self.0.own).contains(key) {
            return None;
        }
        let (lease, head, lease_status) = match holder(runtime, id).await {
            Ok(found) => found?,
            Err(error) => {
                debug!(session = %id, %error, "a holder could not be read");
                return None;
            }
        };
        let sign = (lease.epoch, head, lease_status.heartbeat);
        let mut holders = held(&self.0.holders);
        let ttl = Duration::from_millis(lease.ttl_ms);
        let silent = match holders.get(key) {
            Some((before, since)) if *before == sign => since.elapsed() >= ttl,
            _ => {
                holders.insert(key.clone(), (sign, Instant::now()));
                false
            }
        };
        if lease_status.holder_proven_dead || silent {
            holders.remove(key);
            return Some(lease.epoch);
        }
        None
    }
}

/// Marks a session as run by this scheduler, until it is dropped.
#[derive(Debug)]
struct Own(Arc<Inner>, Key);

impl Own {
    /// Marks the session; `None` if this scheduler already runs it.
    fn claim(inner: &Arc<Inner>, key: Key) -> Option<Self> {
        held(&inner.own).insert(key.clone()).then(|| Self(inner.clone(), key))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        held(&self.0.own).remove(&self.1);
    }
}

/// Returns the error for host code that panicked while the scheduler looked for due sessions.
fn panicked() -> Error {
    Error::unavailable("the stores, the tenants or the secrets panicked; the scheduler tries again")
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each use is a single operation on a map, so a panic leaves none half done.
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the sessions that are running.
async fn running(runtime: &AgentRuntime, page: usize) -> Result<HashSet<SessionId>> {
    let mut query = SessionQuery::new().with_states([SessionState::Running]).with_limit(page);
    let mut found = HashSet::new();
    loop {
        let page = runtime.storage().sessions.list(query.clone()).await?;
        found.extend(page.items.iter().map(|session| session.id));
        if page.next.is_none() {
            return Ok(found);
        }
        query = query.with_cursor(page.next);
    }
}

/// Returns the lease of a running session, its head, and the heartbeat of its holder.
async fn holder(runtime: &AgentRuntime, id: SessionId) -> Result<Option<(Lease, Seq, LeaseStatus)>> {
    let sessions = &runtime.storage().sessions;
    let now = sessions.load(id).await?;
    let Some(lease) = now.lease.clone().filter(|_| now.status.state == SessionState::Running) else {
        return Ok(None);
    };
    let lease_status = sessions.leases().status(id, lease.epoch).await?;
    Ok(Some((lease, now.head, lease_status)))
}

/// Runs one session, if it still needs a run.
async fn run_one(runtime: &AgentRuntime, id: SessionId, gone: Option<Epoch>) -> Done {
    let work = async {
        let mut handle = runtime.conversation_by_id(id).await?;
        let owner = handle.record().owner.clone();
        // What the tools of a run reach is the owner's, whoever runs it.
        let of_owner =
            owner.filter(|_| runtime.storage().owner().is_none()).map(|owner| runtime.for_owner(&owner));
        if let Some(of_owner) = &of_owner {
            handle = of_owner.conversation_by_id(id).await?;
        }
        let runtime = of_owner.as_ref().unwrap_or(runtime);
        if deliver(runtime, &handle.record()).await? {
            return Ok::<_, Error>(Done::Reported);
        }
        match handle.run_due(gone, true).await? {
            Some(run) => match run.finish().await {
                Ok(_) | Err(RunError::Failed(_)) => Ok(Done::Ran),
                Err(error) => Err(error.into()),
            },
            None => Ok(Done::Skipped),
        }
    };
    match work.await {
        Ok(done) => done,
        // Another process ran or ended the session first.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Conflict { .. }
                    | ErrorKind::Deleted
                    | ErrorKind::Fenced { .. }
                    | ErrorKind::InvalidTransition { .. }
            ) =>
        {
            debug!(session = %id, %error, "another process ran or ended the session first");
            Done::Skipped
        }
        Err(error) => {
            warn!(session = %id, %error, "a session that is due could not be run");
            Done::Failed
        }
    }
}
