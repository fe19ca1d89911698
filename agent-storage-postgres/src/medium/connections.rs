//! Connections of the store: made when they are needed, kept while it is open, at most a set number.

use std::sync::{Arc, Mutex, PoisonError};

use agent_core::Error;
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::PostgresConfig;
use crate::error::{Fault, Step};
use crate::medium::db::within;

/// Connections that are not in use.
#[derive(Debug)]
pub(crate) struct Connections {
    config: PostgresConfig,
    idle: Mutex<Vec<PgConnection>>,
    permits: Arc<Semaphore>,
}

impl Connections {
    pub(crate) fn new(config: PostgresConfig) -> Self {
        let permits = Arc::new(Semaphore::new(config.connections));
        Self { config, idle: Mutex::default(), permits }
    }

    /// Names the store in errors.
    pub(crate) fn place(&self) -> String {
        self.config.place()
    }

    /// Waits until a connection may be used.
    pub(crate) async fn permit(&self) -> Step<OwnedSemaphorePermit> {
        let wait = self.config.wait_timeout;
        match tokio::time::timeout(wait, self.permits.clone().acquire_owned()).await {
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

    /// Returns an idle connection, or a new one.
    pub(crate) async fn take(&self) -> Result<PgConnection, sqlx::Error> {
        let idle = self.lock().pop();
        match idle {
            Some(conn) => Ok(conn),
            None => self.connect().await,
        }
    }

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let config = &self.config;
        // With the first message, so that a new connection costs no further round trip.
        let statement = config.statement_timeout.as_millis();
        let options = config.options.clone().options([
            ("lock_timeout", config.lock_timeout.as_millis()),
            ("statement_timeout", statement),
            ("idle_in_transaction_session_timeout", statement),
        ]);
        within(config.connect_timeout, PgConnection::connect_with(&options)).await
    }

    /// Keeps a connection that is in no transaction.
    pub(crate) fn give_back(&self, conn: PgConnection) {
        self.lock().push(conn);
    }

    /// Drops the idle connections: one that was broken is seldom alone.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    /// Closes the idle connections. The others are dropped with the work that uses them.
    pub(crate) async fn close(&self) {
        let idle = std::mem::take(&mut *self.lock());
        for conn in idle {
            // The server notices a closed socket by itself.
            if let Err(error) = conn.close().await {
                tracing::debug!(%error, "a connection was not closed properly");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
