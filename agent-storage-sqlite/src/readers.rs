//! The connections that read: as many as configured, opened when needed, and lent one at a time.
//!
//! sqlx's own pool is tied to the runtime that it was first used in and tests a connection with each use, which costs
//! more than reading a page; a store has to outlive the host's runtime.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use agent_core::Result;
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::SqliteConfig;
use crate::error::{Fault, Step, failed, gone};
use crate::schema;

/// The connections that read.
#[derive(Debug)]
pub(crate) struct Readers {
    options: SqliteConnectOptions,
    permits: Semaphore,
    idle: Mutex<Vec<SqliteConnection>>,
}

impl Readers {
    pub(crate) fn new(config: &SqliteConfig) -> Self {
        Self {
            options: schema::reader(config),
            permits: Semaphore::new(config.readers),
            idle: Mutex::default(),
        }
    }

    /// Lends a connection, once one is free.
    pub(crate) async fn lend(&self) -> Result<Lent<'_>> {
        let permit = self.permits.acquire().await.map_err(|_| gone())?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = match idle {
            Some(conn) => conn,
            None => self.options.connect().await.map_err(|error| failed("open the file to read", error))?,
        };
        Ok(Lent { conn, readers: self, _permit: permit })
    }
}

/// A connection in use. Dropped in the middle of a read it is closed, which ends the read too.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    conn: SqliteConnection,
    readers: &'a Readers,
    _permit: SemaphorePermit<'a>,
}

impl Lent<'_> {
    /// Gives the connection back after a read that came to `result`; one on which SQLite failed is closed.
    pub(crate) fn give_back<T>(self, doing: &str, result: Step<T>) -> Result<T> {
        match result {
            Err(Fault::Sql(error)) => Err(failed(doing, error)),
            result => {
                self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.conn);
                result.map_err(|fault| match fault {
                    Fault::Refused(error) => error,
                    Fault::Sql(error) => failed(doing, error),
                })
            }
        }
    }
}

impl Deref for Lent<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.conn
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.conn
    }
}
