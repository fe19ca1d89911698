//! Environment of a clause: one fresh store, any number of handles on it, and common objects.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, LeaseRequest, Precondition, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::store::{Consistency, ReadEvents};
use agent_core::{Backend, DeviceId, RunId, Seq, SessionId, Storage, TenantId, Timestamp};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::claims::Claims;
use crate::factory::{AnyFactory, AnySite, Damage, FailingCall};
use crate::failure::{Checked, Failure};
use crate::journal::{Journal, Recorded};

/// Settings of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Number of times that each race is run. Default: 200.
    pub rounds: usize,
    /// Seed of ids, times and random sequences.
    pub seed: u64,
}

impl Settings {
    /// Environment variable that sets [`rounds`](Self::rounds).
    pub const ROUNDS: &'static str = "AGENT_STORAGE_ROUNDS";
    /// Environment variable that sets [`seed`](Self::seed).
    pub const SEED: &'static str = "AGENT_STORAGE_SEED";

    /// Returns settings with this number of rounds of each race, and with ids, times and sequences that follow from
    /// `seed`.
    pub const fn new(rounds: usize, seed: u64) -> Self {
        Self { rounds, seed }
    }

    /// Returns settings from the environment, with a random seed if none is given.
    pub fn from_env() -> Self {
        fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
            std::env::var(name).ok()?.parse().ok()
        }
        Self {
            rounds: number(Self::ROUNDS).unwrap_or(200),
            // Short enough to be typed again.
            seed: number(Self::SEED).unwrap_or_else(|| Effects::default().random_u64() >> 32),
        }
    }
}

/// Fresh store for one clause.
pub(crate) struct Stage {
    /// Clock, ids and randomness, which follow from the seed.
    pub(crate) effects: Effects,
    pub(crate) settings: Settings,
    pub(crate) journal: Journal,
    factory: Arc<dyn AnyFactory>,
    site: AnySite,
    claims: Claims,
    opened: AtomicUsize,
}

/// Start of the suite's clock, 2026-02-15T10:30:00Z, far from any limit.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_771_151_400_000_000);

impl Stage {
    pub(crate) async fn new(
        factory: Arc<dyn AnyFactory>,
        settings: Settings,
        journal: Journal,
    ) -> Checked<Self> {
        let site = factory.fresh().await?;
        let effects = Effects::seeded(settings.seed, START);
        Ok(Self::at(factory, site, effects, settings, journal))
    }

    fn at(
        factory: Arc<dyn AnyFactory>,
        site: AnySite,
        effects: Effects,
        settings: Settings,
        journal: Journal,
    ) -> Self {
        let (claims, opened) = (Claims::default(), AtomicUsize::new(0));
        Self { effects, settings, journal, factory, site, claims, opened }
    }

    /// Returns a stage on a fresh store for many rounds, with its own ids and randomness.
    pub(crate) async fn another(&self, journal: Journal) -> Checked<Self> {
        let site = self.factory.fresh_for_rounds().await?;
        let effects = Effects::seeded(self.effects.random_u64(), START);
        Ok(Self::at(self.factory.clone(), site, effects, self.settings, journal))
    }

    /// Runs the rounds of a race in parts, each on a fresh store. Existing data slows some stores down, and each round
    /// depends only on what it creates itself.
    pub(crate) async fn in_parts<F>(&self, run: impl Fn(Arc<Self>, Range<usize>) -> F) -> Checked
    where
        F: Future<Output = Checked>,
    {
        self.in_parts_of(200, self.settings.rounds, run).await
    }

    /// Like [`in_parts`](Self::in_parts), with a given number of rounds, and of rounds on one store.
    pub(crate) async fn in_parts_of<F>(
        &self,
        part: usize,
        rounds: usize,
        run: impl Fn(Arc<Self>, Range<usize>) -> F,
    ) -> Checked
    where
        F: Future<Output = Checked>,
    {
        for start in (0..rounds).step_by(part) {
            let stage = Arc::new(self.another(self.journal.clone()).await?);
            run(stage.clone(), start..rounds.min(start + part)).await?;
            stage.outcomes_hold().await?;
        }
        Ok(())
    }

    /// Opens another handle on the store, for the tenant `default`.
    pub(crate) async fn open(&self) -> Checked<Storage> {
        self.open_for(&TenantId::default()).await
    }

    /// Opens another handle on the store, for a tenant.
    pub(crate) async fn open_for(&self, tenant: &TenantId) -> Checked<Storage> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let whose =
            if *tenant == TenantId::default() { String::new() } else { format!(" of tenant {tenant}") };
        let name = format!("handle {number}{whose}:");
        let storage = self.factory.open(&self.site, tenant).await?;
        self.note(format_args!("{name} opened"));
        let (journal, claims) = (self.journal.clone(), self.claims.clone());
        let recorded = Recorded::new(storage, journal, claims, tenant.clone(), name);
        Ok(Storage::from(recorded).with_effects(self.effects.clone()))
    }

    /// Checks that no commit was applied for which an error claimed that it was not.
    pub(crate) async fn outcomes_hold(&self) -> Checked {
        for tenant in self.claims.tenants() {
            // A clause may have left the store in a state in which it cannot be opened.
            if let Ok(storage) = self.factory.open(&self.site, &tenant).await {
                self.claims.check(&tenant, &*storage.sessions).await?;
            }
        }
        Ok(())
    }

    /// Returns a stage on a fresh store whose medium can fail.
    pub(crate) async fn for_faults(&self) -> Checked<Self> {
        let site = self.factory.fresh_for_faults().await?;
        let effects = Effects::seeded(self.effects.random_u64(), START);
        Ok(Self::at(self.factory.clone(), site, effects, self.settings, self.journal.clone()))
    }

    /// Cuts the power. Returns a stage on what is left of the store, with no handle open.
    pub(crate) async fn lose_power(self, storage: Storage) -> Checked<Self> {
        self.note("the power goes");
        let site = self.factory.lose_power(&self.site).await?;
        drop(storage);
        Ok(Self::at(self.factory.clone(), site, self.effects.clone(), self.settings, self.journal.clone()))
    }

    /// Makes a call to the medium fail, or clears the planned failure; returns whether the call planned before was
    /// made.
    pub(crate) async fn fail(&self, call: Option<FailingCall>) -> Checked<bool> {
        if let Some(FailingCall { skip, done }) = call {
            let how = if done { "after its work" } else { "without its work" };
            self.note(format_args!("the call to the medium after {skip} others fails, {how}"));
        }
        Ok(self.factory.fail(&self.site, call).await?)
    }

    /// Opens several handles on the store.
    pub(crate) async fn handles(&self, count: usize) -> Checked<Vec<Storage>> {
        let mut handles = Vec::new();
        for _ in 0..count {
            handles.push(self.open().await?);
        }
        Ok(handles)
    }

    /// Drops the last handle and opens another, as after a restart.
    pub(crate) async fn reopen(&self, storage: Storage) -> Checked<Storage> {
        drop(storage);
        self.open().await
    }

    pub(crate) async fn tenants(&self) -> Checked<Arc<dyn Backend>> {
        let tenants = self.factory.tenants(&self.site).await?;
        tenants.ok_or_else(|| Failure::new("the factory's tenants", "a list of tenants", "none"))
    }

    /// Returns the number of bytes that the store has of blobs of these sizes.
    pub(crate) fn stored_bytes(&self, sizes: &[u64]) -> u64 {
        sizes.iter().map(|size| self.factory.stored_bytes(*size)).sum()
    }

    pub(crate) fn address(&self) -> Option<String> {
        self.factory.address(&self.site)
    }

    pub(crate) async fn damage(&self, damage: Damage) -> Checked {
        self.note(format_args!("damage: {damage:?}"));
        Ok(self.factory.damage(&self.site, damage).await?)
    }

    /// Returns whether lists show a write as soon as it is acknowledged.
    pub(crate) fn lists_at_once(&self, storage: &Storage) -> bool {
        storage.sessions.capabilities().listing == Consistency::Immediate
    }

    /// Adds a line to the steps that a failure shows.
    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        self.journal.note(what);
    }

    // --- the usual objects --------------------------------------------------------------------------------------

    /// Returns a workspace that is not stored yet.
    pub(crate) fn workspace(&self, name: &str) -> Workspace {
        let effects = &self.effects;
        Workspace::new(effects.new_workspace_id(), name, effects.new_session_id(), effects.now())
    }

    /// Creates and stores a workspace.
    pub(crate) async fn new_workspace(&self, storage: &Storage) -> Checked<Workspace> {
        Ok(storage.workspaces.put(self.workspace("project"), Precondition::MustNotExist).await?)
    }

    /// Returns a session that is not stored yet, in a stored workspace.
    pub(crate) async fn session(&self, storage: &Storage) -> Checked<NewSession> {
        let workspace = self.new_workspace(storage).await?;
        Ok(NewSession::new(self.effects.new_session_id(), workspace.id))
    }

    /// Creates and stores an idle session.
    pub(crate) async fn new_session(&self, storage: &Storage) -> Checked<Arc<SessionRecord>> {
        let new = self.session(storage).await?;
        self.create(storage, new).await
    }

    /// Stores a session.
    pub(crate) async fn create(&self, storage: &Storage, new: NewSession) -> Checked<Arc<SessionRecord>> {
        Ok(storage.sessions.commit(Commit::create(&self.effects, new)).await?.session)
    }

    /// Returns a commit for a session, without steps.
    pub(crate) fn seal(&self, session: &SessionRecord) -> Commit {
        self.seal_at(session.id, session.head)
    }

    pub(crate) fn seal_at(&self, session: SessionId, seen: Seq) -> Commit {
        Commit::seal(&self.effects, session, seen)
    }

    /// Commits one message of a person.
    pub(crate) async fn append(
        &self,
        storage: &Storage,
        session: &SessionRecord,
        text: &str,
    ) -> Checked<Committed> {
        let commit = self.seal(session).with_event(NewEvent::user_message(text));
        Ok(storage.sessions.commit(commit).await?)
    }

    /// Commits `count` messages, in commits of at most a thousand; returns the session after them.
    pub(crate) async fn fill(
        &self,
        storage: &Storage,
        session: &SessionRecord,
        count: usize,
    ) -> Checked<Arc<SessionRecord>> {
        let mut session = Arc::new(session.clone());
        let mut done = 0;
        while done < count {
            let part = (count - done).min(1000);
            let events = (done..done + part).map(|n| NewEvent::user_message(format!("message {n}")));
            session = storage.sessions.commit(self.seal(&session).with_events(events)).await?.session;
            done += part;
        }
        Ok(session)
    }

    /// Commits an input and the start of its run; returns the session and the run.
    pub(crate) async fn begin_run(
        &self,
        storage: &Storage,
        session: &SessionRecord,
        text: &str,
    ) -> Checked<(Arc<SessionRecord>, RunId)> {
        let run = self.effects.new_run_id();
        let commit = self
            .seal(session)
            .with_event(NewEvent::user_message(text))
            .with_trigger(Trigger::BeginRun(LeaseRequest::new("holder", run)));
        Ok((storage.sessions.commit(commit).await?.session, run))
    }

    /// Returns a commit of the run `run`, under the session's current epoch.
    pub(crate) fn seal_run(&self, session: &SessionRecord, run: RunId) -> Commit {
        self.seal(session).with_fence(run, session.epoch)
    }

    pub(crate) fn device(&self, name: &str) -> Checked<DeviceId> {
        Ok(name.parse()?)
    }
}

/// Returns all of a session's own events, read by pages of the given size.
pub(crate) async fn own_events(storage: &Storage, id: SessionId, page: usize) -> Checked<Vec<Event>> {
    walk(storage, id, ReadEvents::first(page)).await
}

/// Returns the events of a read and of all pages after it.
pub(crate) async fn walk(storage: &Storage, id: SessionId, read: ReadEvents) -> Checked<Vec<Event>> {
    let newest = read.newest;
    let (mut pages, mut next) = (Vec::new(), Some(read));
    while let Some(read) = next {
        let limit = read.limit;
        let page = storage.sessions.read(id, read).await?;
        if page.events.len() > limit {
            return Err(Failure::new("a page of events", format_args!("at most {limit}"), page.events.len()));
        }
        if page.events.is_empty() && page.next.is_some() {
            return Err(Failure::new("a page of events", "no empty page before the last", "an empty page"));
        }
        if let Some(damage) = page.damaged.first() {
            return Err(Failure::new("a page of events", "nothing damaged", damage));
        }
        goes_on(&pages, &page.events, newest)?;
        pages.push(page.events);
        next = page.next;
    }
    if newest {
        pages.reverse();
    }
    Ok(pages.into_iter().flatten().collect())
}

/// Checks that a page comes after the earlier pages, in the direction of the read, so that paging ends.
pub(crate) fn goes_on(pages: &[Vec<Event>], page: &[Event], newest: bool) -> Checked {
    let (Some(before), Some(first), Some(last)) = (pages.last(), page.first(), page.last()) else {
        return Ok(());
    };
    let (expected, on) = if newest {
        let edge = before.first().map(|event| event.seq);
        (format!("events before {edge:?}"), edge.is_none_or(|edge| last.seq < edge))
    } else {
        let edge = before.last().map(|event| event.seq);
        (format!("events after {edge:?}"), edge.is_none_or(|edge| first.seq > edge))
    };
    if on {
        Ok(())
    } else {
        Err(Failure::new("the next page", expected, format_args!("{} to {}", first.seq, last.seq)))
    }
}

/// Checks that a list which the clause created itself ends.
pub(crate) fn ends(listed: usize) -> Checked {
    const MOST: usize = 10_000;
    if listed <= MOST {
        Ok(())
    } else {
        Err(Failure::new("the pages of a list", "an end", format_args!("{listed} items")))
    }
}

/// Results of several tasks: the successes, and the errors.
pub(crate) type Split<T> = (Vec<T>, Vec<agent_core::Error>);

/// Splits results into successes and errors.
pub(crate) fn split<T>(results: Vec<agent_core::Result<T>>) -> Split<T> {
    let mut split = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => split.0.push(value),
            Err(error) => split.1.push(error),
        }
    }
    split
}

/// Runs futures in separate tasks that start together; returns their results, in order.
pub(crate) async fn race<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    futures: impl IntoIterator<Item = F>,
) -> Checked<Vec<T>> {
    let futures: Vec<F> = futures.into_iter().collect();
    let count = futures.len();
    let barrier = Arc::new(Barrier::new(count));
    let mut tasks = JoinSet::new();
    for (index, future) in futures.into_iter().enumerate() {
        let barrier = barrier.clone();
        tasks.spawn(async move {
            barrier.wait().await;
            (index, future.await)
        });
    }
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    while let Some(joined) = tasks.join_next().await {
        let (index, value) =
            joined.map_err(|error| Failure::new("tasks that race", "each ends", format_args!("{error}")))?;
        results[index] = Some(value);
    }
    Ok(results.into_iter().flatten().collect())
}

/// Polls a future at most `polls` times, each time that it is woken, and then drops it; returns `None` if it was dropped.
pub(crate) async fn dropped_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    struct Limited<F> {
        future: Option<Pin<Box<F>>>,
        left: usize,
    }
    impl<F: Future> Future for Limited<F> {
        type Output = Option<F::Output>;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            if self.left == 0 {
                self.future = None;
                return Poll::Ready(None);
            }
            self.left -= 1;
            let polled = self.future.as_mut().map(|future| future.as_mut().poll(context));
            match polled {
                Some(Poll::Ready(value)) => Poll::Ready(Some(value)),
                Some(Poll::Pending) if self.left == 0 => {
                    self.future = None;
                    Poll::Ready(None)
                }
                Some(Poll::Pending) => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }
    Limited { future: Some(Box::pin(future)), left: polls }.await
}
