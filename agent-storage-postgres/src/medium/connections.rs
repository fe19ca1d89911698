//! Connections of the store: made when they are needed, kept while it is open, at most a set number.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use std::{io, mem};

use agent_core::Error;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection as _, Executor, Postgres, Row};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::PostgresConfig;
use crate::error::{Fault, Step, is_full, read_only};
use crate::medium::count::{Count, Counted};
use crate::medium::db::{Connection, within};
use crate::medium::scope::Scope;

/// Connections that are not in use.
#[derive(Debug)]
pub(crate) struct Connections {
    config: PostgresConfig,
    idle: Mutex<Idle>,
    count: Arc<Count>,
    permits: Arc<Semaphore>,
    /// Number of the server that was used last.
    server: AtomicUsize,
}

#[derive(Debug, Default)]
struct Idle {
    /// Those that were used last are at the end, and used first.
    connections: Vec<(Instant, Connection)>,
    /// True while a task closes the old ones.
    is_watched: bool,
}

/// Order in which two connections are used to find out whether they are the server's own. It repeats no shorter order, which
/// a pooler that goes round could follow.
const USES: [bool; 6] = [true, true, false, false, true, false];

/// Fails if the server accepts reads only.
pub(crate) async fn check_accepts_writes<'c>(
    conn: impl Executor<'c, Database = Postgres>,
) -> Result<(), sqlx::Error> {
    let sql = "SELECT current_setting('transaction_read_only'), pg_catalog.pg_is_in_recovery()";
    let row = conn.fetch_one(sqlx::raw_sql(sql)).await?;
    match row.try_get::<&str, _>(0)? {
        "off" => Ok(()),
        _ => Err(sqlx::Error::Io(io::Error::new(
            io::ErrorKind::ReadOnlyFilesystem,
            read_only(row.try_get(1)?),
        ))),
    }
}

impl Connections {
    pub(crate) fn new(config: PostgresConfig) -> Self {
        let permits = Arc::new(Semaphore::new(config.connections));
        Self { config, idle: Mutex::default(), count: Arc::default(), permits, server: AtomicUsize::new(0) }
    }

    /// Names the store in errors.
    pub(crate) fn place(&self) -> String {
        self.config.place()
    }

    /// Returns when a call that begins now stops waiting for a connection.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.config.wait_timeout
    }

    /// Waits until a connection may be used.
    pub(crate) async fn permit(&self, deadline: Instant) -> Step<OwnedSemaphorePermit> {
        let wait = self.config.wait_timeout;
        match tokio::time::timeout_at(deadline, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                let most = self.config.connections;
                let text = format!(
                    "all {most} connections of the store were in use for {wait:?}; try again, or allow more"
                );
                Err(Fault::Refused(Error::unavailable(text).timed_out()))
            }
        }
    }

    /// Returns an idle connection, best one with these settings, or a new one. If the server gives no more, waits for one of the
    /// store's own.
    pub(crate) async fn take(&self, scope: &Scope, deadline: Instant) -> Result<Connection, sqlx::Error> {
        loop {
            let mut changed = pin!(self.count.changed.notified());
            // From now on none is missed.
            changed.as_mut().enable();
            if let Some(conn) = self.take_idle(scope) {
                return Ok(conn);
            }
            match self.connect().await {
                Ok(pg) => return Ok(self.of(pg)),
                Err(error) if is_full(&error) && !self.count.is_none() => {
                    if tokio::time::timeout_at(deadline, changed).await.is_err() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn of(&self, pg: PgConnection) -> Connection {
        Connection { pg, scope: None, _counted: Counted::new(&self.count) }
    }

    fn take_idle(&self, scope: &Scope) -> Option<Connection> {
        let idle = &mut self.lock().connections;
        match idle.iter().rposition(|(_, conn)| conn.scope.as_ref() == Some(scope)) {
            Some(fits) => Some(idle.remove(fits).1),
            None => idle.pop().map(|(_, conn)| conn),
        }
    }

    /// Connects to the server that was used last, or to the next one that accepts writes.
    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let (servers, start) = (&self.config.servers, self.server.load(Ordering::Relaxed));
        let mut failed = None;
        for (n, options) in servers.from(start) {
            match self.connect_to(options).await {
                Ok(conn) => {
                    self.server.store(n, Ordering::Relaxed);
                    return Ok(conn);
                }
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        Err(failed.unwrap_or(sqlx::Error::PoolClosed))
    }

    /// Settings of a connection, or of a transaction.
    pub(crate) fn settings(&self) -> [(&'static str, String); 5] {
        let statement = self.config.statement_timeout.as_millis().to_string();
        [
            // What others have created under the name of a function or operator is not called.
            ("search_path", "pg_catalog,pg_temp".to_owned()),
            ("row_security", "on".to_owned()),
            ("lock_timeout", self.config.lock_timeout.as_millis().to_string()),
            ("statement_timeout", statement.clone()),
            ("idle_in_transaction_session_timeout", statement),
        ]
    }

    async fn connect_to(&self, options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
        let config = &self.config;
        let options = options.clone();
        // With the first message, so that a new connection costs no further round trip.
        let options = if config.is_pooled { options } else { options.options(self.settings()) };
        let connect = async {
            let mut conn = PgConnection::connect_with(&options).await?;
            if config.servers.are_several() {
                check_accepts_writes(&mut conn).await?;
            }
            Ok(conn)
        };
        within(config.connect_timeout, connect).await
    }

    /// Returns whether two connections are two of the server's, and stay the same. A pooler in transaction mode gives each
    /// transaction any that is free.
    pub(crate) async fn are_kept(self: &Arc<Self>) -> Result<bool, sqlx::Error> {
        let (mut one, mut other) = (self.connect().await?, self.connect().await?);
        let (mut of_one, mut of_other) = (None, None);
        for is_one in USES {
            let (conn, seen) = if is_one { (&mut one, &mut of_one) } else { (&mut other, &mut of_other) };
            let ask = conn.fetch_one(sqlx::raw_sql("SELECT pg_backend_pid()"));
            let number: i32 = within(self.config.connect_timeout, ask).await?.try_get(0)?;
            if seen.replace(number).is_some_and(|before| before != number) || of_one == of_other {
                return Ok(false);
            }
        }
        self.give_back(self.of(one));
        other.close().await.map(|()| true)
    }

    /// Keeps a connection that is in no transaction.
    pub(crate) fn give_back(self: &Arc<Self>, conn: Connection) {
        let mut idle = self.lock();
        idle.connections.push((Instant::now(), conn));
        self.count.changed.notify_one();
        if !mem::replace(&mut idle.is_watched, true) {
            tokio::spawn(close_old(Arc::downgrade(self), self.config.idle_timeout));
        }
    }

    /// Takes the connections that were not used for a time out of the idle ones; `None` if nothing was idle.
    fn old(&self, limit: Duration) -> Option<Vec<(Instant, Connection)>> {
        let mut idle = self.lock();
        idle.is_watched = !idle.connections.is_empty();
        let count = idle.connections.partition_point(|(used, _)| used.elapsed() > limit);
        idle.is_watched.then(|| idle.connections.drain(..count).collect())
    }

    /// Drops the idle connections: one that was broken is seldom alone.
    pub(crate) fn forget(&self) {
        self.lock().connections.clear();
    }

    /// Closes the idle connections. The others are dropped with the work that uses them.
    pub(crate) async fn close(&self) {
        let idle = mem::take(&mut self.lock().connections);
        close(idle).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the connections that were not used for a time, until none is idle.
async fn close_old(connections: Weak<Connections>, limit: Duration) {
    loop {
        tokio::time::sleep(limit / 2).await;
        let old = connections.upgrade().and_then(|it| it.old(limit));
        let Some(old) = old else { return };
        close(old).await;
    }
}

async fn close(connections: Vec<(Instant, Connection)>) {
    for (_, conn) in connections {
        // The server notices a closed socket by itself.
        if let Err(error) = conn.pg.close().await {
            tracing::debug!(%error, "a connection was not closed properly");
        }
    }
}
