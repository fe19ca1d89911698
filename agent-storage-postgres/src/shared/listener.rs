//! One connection that listens for the hints of other stores, and wakes the callers that wait for a change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::clock::Backoff;
use agent_core::store::Heads;
use agent_core::{Error, ErrorKind, Result};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::address::Servers;
use crate::config::PostgresConfig;
use crate::error::failed;
use crate::medium::attempts::{Mode, Site, run};
use crate::medium::connections::check_accepts_writes;
use crate::medium::db::within;
use crate::medium::session_rows::new_version;
use crate::shared::hints::{self, Hints};

/// Pauses before a connection is made again.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));

/// Callers that wait, and whether they are woken by changes of other stores.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) heads: Heads,
    listens: AtomicBool,
}

impl Live {
    /// Returns whether a change by another store wakes those who wait from now on.
    pub(crate) fn listens(&self) -> bool {
        self.listens.load(Ordering::SeqCst)
    }

    /// Sets whether the store listens, and wakes all: anything may have changed before.
    fn set(&self, listens: bool) {
        self.listens.store(listens, Ordering::SeqCst);
        self.heads.wake_all();
    }
}

/// Task that listens. Dropping this ends it.
#[derive(Debug, Default)]
pub(crate) struct Listener(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Listening(JoinHandle<()>),
    Stopped,
}

impl Listener {
    /// Starts the task, unless it runs or was stopped, or the store is not to listen.
    pub(crate) fn start(
        &self,
        runtime: &Handle,
        config: &PostgresConfig,
        live: &Arc<Live>,
        hints: &Arc<Hints>,
    ) {
        let mut state = self.lock();
        let (State::Idle, Some(servers)) = (&*state, config.listener()) else { return };
        let task = listen(config.clone(), servers.clone(), live.clone(), hints.clone());
        *state = State::Listening(runtime.spawn(task));
    }

    /// Ends the task for good.
    pub(crate) async fn stop(&self) {
        let state = std::mem::replace(&mut *self.lock(), State::Stopped);
        if let State::Listening(task) = state {
            task.abort();
            // It was told to end.
            let _ = task.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let State::Listening(task) = &*self.lock() {
            task.abort();
        }
    }
}

/// Listens, on a new connection whenever the last one has ended.
async fn listen(config: PostgresConfig, servers: Servers, live: Arc<Live>, hints: Arc<Hints>) {
    let (mut failures, mut next) = (0, 0);
    loop {
        let Some((n, options)) = servers.from(next).next() else { return };
        let done = receive(&config, options.clone(), &live, &hints).await;
        if live.listens() {
            failures = 0;
        } else {
            next = n + 1;
        }
        live.set(false);
        tracing::debug!(error = ?done.err(), "the store does not listen for changes, and tries again");
        tokio::time::sleep(PAUSES.pause(failures, &config.effects)).await;
        failures += 1;
    }
}

/// Listens on one connection until it ends.
async fn receive(
    config: &PostgresConfig,
    options: PgConnectOptions,
    live: &Live,
    hints: &Hints,
) -> Result<(), sqlx::Error> {
    let mut listener = connect(config, options, &config.schema).await?;
    live.set(true);
    while let Some(notification) = listener.try_recv().await? {
        if let Some((tenant, id)) = hints.read(notification.payload()) {
            live.heads.wake(&tenant, id);
        }
    }
    Ok(())
}

async fn connect(
    config: &PostgresConfig,
    options: PgConnectOptions,
    channel: &str,
) -> Result<PgListener, sqlx::Error> {
    let limit = config.connect_timeout;
    // The driver listens on a connection of a pool only. This one has no task and logs nothing.
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let pool = pool.test_before_acquire(false).acquire_timeout(limit).acquire_slow_threshold(limit * 2);
    let pool = pool.connect_lazy_with(options);
    let connect = async {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        check_accepts_writes(&mut listener).await?;
        listener.listen(channel).await?;
        Ok(listener)
    };
    within(limit, connect).await
}

/// Refuses an address of its own for the listener at which nothing is heard of the store: that of a pooler, or of another server or
/// database. One that cannot be reached now may be so later.
pub(crate) async fn check(site: &Site, config: &PostgresConfig) -> Result<()> {
    let Some(servers) = config.listens_elsewhere() else { return Ok(()) };
    let place = format!("`listen`: database {} on {}", servers.database(), servers.hosts());
    // A pooler would pass what is heard on a channel to any client that sends there, so that this one is nobody else's.
    let channel = format!("agent_{:x}", new_version()?);
    let mut connected = None;
    for (_, options) in servers.from(0) {
        match connect(config, options.clone(), &channel).await.map_err(|error| failed("listen", error, false))
        {
            Ok(listener) => {
                connected = Some(listener);
                break;
            }
            Err(error) if *error.kind() == ErrorKind::Unavailable => {
                tracing::debug!(%error, "it is not known whether changes are heard where the store is to listen");
            }
            Err(error) => return Err(error.about(place)),
        }
    }
    let Some(mut listener) = connected else { return Ok(()) };
    let payloads = [String::new()];
    let send = async || {
        let attempts = site.attempts(Mode::Write, "tell the listener of the store").unset();
        run!(@ attempts, db => hints::send(db, &channel, &payloads).await)
    };
    match send().await {
        // The driver fails if a pooler answers with what the listener should have heard.
        Err(error) if !config.is_pooled => return Err(error),
        _ => {}
    }
    if let Ok(Some(_)) = within(config.connect_timeout, listener.try_recv()).await {
        return Ok(());
    }
    let store = config.place();
    Err(Error::unsupported(format!(
        "{place} hears nothing of {store}; it is a pooler, or another server or database: name the server of the store itself, or \
         write `listen=off`"
    )))
}
