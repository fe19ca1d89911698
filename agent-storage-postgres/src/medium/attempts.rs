//! Attempts at a step: a connection and perhaps a transaction for each, again if others were in the way.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::{Error, Result};
use sqlx::{Connection as _, Row};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Fault, Step, failed_since, is_broken, is_duplicate, is_read_only, is_serialization};
use crate::medium::connections::Connections;
use crate::medium::db::{Db, within};
use crate::medium::scope::Scope;
use crate::medium::sql::Names;

/// Most attempts at a step that others undo.
const MOST: u32 = 12;
/// Pause before the second attempt; the later ones are longer.
const PAUSE: Duration = Duration::from_millis(2);

/// Time that the server has to report that a statement took too long.
pub(crate) const MARGIN: Duration = Duration::from_secs(1);

/// How a step uses its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One statement that writes nothing.
    Read,
    /// Several statements that see one snapshot and write nothing.
    Snapshot,
    /// One statement that writes: when its connection breaks, its outcome is unknown.
    Write,
    /// A transaction that shares the lock of its tenant with other writers.
    Shared,
    /// A transaction that excludes all other writers of its tenant.
    Alone,
}

/// What a step needs of its store.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) connections: Arc<Connections>,
    pub(crate) names: Arc<Names>,
    pub(crate) effects: Effects,
    pub(crate) scope: Scope,
    pub(crate) lock: i64,
    /// Time after which a connection counts as broken if the server does not answer.
    pub(crate) limit: Duration,
    /// The same time for a statement that reads or changes all of a tenant.
    pub(crate) long: Duration,
    /// True if a connection keeps its settings and statements between two transactions, as a pooler's does not.
    pub(crate) keeps: bool,
}

/// Connection in use. Dropping it closes the connection, and the server undoes what was not committed.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) db: Db,
    _permit: OwnedSemaphorePermit,
}

/// Attempts at one step.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    site: &'a Site,
    mode: Mode,
    doing: &'static str,
    count: u32,
    /// The statements may take as long as those on all of a tenant.
    is_long: bool,
    /// The statement needs no settings, or makes them itself.
    is_unset: bool,
    /// Whether the server that refused a write is a standby, if it was asked.
    is_standby: Option<bool>,
}

impl Site {
    pub(crate) const fn attempts(&self, mode: Mode, doing: &'static str) -> Attempts<'_> {
        Attempts { site: self, mode, doing, count: 0, is_long: false, is_unset: false, is_standby: None }
    }

    /// Returns the same for all owners of the tenant.
    pub(crate) fn whole(&self) -> Self {
        let scope = Scope { owner: None, ..self.scope.clone() };
        Self { scope, ..self.clone() }
    }
}

impl Attempts<'_> {
    /// Lets the statements take as long as those on all of a tenant.
    pub(crate) const fn long(mut self) -> Self {
        self.is_long = true;
        self
    }

    /// For a statement that needs no tenant, or sets it itself.
    pub(crate) const fn unset(mut self) -> Self {
        self.is_unset = true;
        self
    }

    /// Takes a connection, sets whose rows it shows, and begins a transaction if the mode has one.
    pub(crate) async fn begin(&mut self) -> Result<Open> {
        let site = self.site;
        let deadline = site.connections.deadline();
        let permit = match site.connections.permit(deadline).await {
            Ok(permit) => permit,
            Err(fault) => return Err(self.error(fault)),
        };
        let mut is_second = false;
        loop {
            let limit = if self.is_long { site.long } else { site.limit };
            let conn = site.connections.take(&site.scope, deadline).await;
            let conn = conn.map_err(|error| self.failed(error, false))?;
            let (names, scope, lock) = (site.names.clone(), site.scope.clone(), site.lock);
            let mut db = Db { conn, names, scope, lock, limit, prepares: site.keeps };
            match self.prepare(&mut db).await {
                Ok(()) => return Ok(Open { db, _permit: permit }),
                // The server may have ended idle connections.
                Err(error) if is_broken(&error) && !is_second => site.connections.forget(),
                Err(error) => return Err(self.failed(error, false)),
            }
            is_second = true;
        }
    }

    /// Returns whether the step is a transaction of its own. A single statement needs none, unless the server's connection is
    /// another one for each transaction.
    const fn has_transaction(&self) -> bool {
        !matches!(self.mode, Mode::Read | Mode::Write) || !self.site.keeps
    }

    /// Sets whose rows the connection shows, in the transaction that this begins. Without one the connection itself is set,
    /// unless it is already.
    async fn prepare(&self, db: &mut Db) -> Result<(), sqlx::Error> {
        if !self.has_transaction() {
            if self.is_unset || db.conn.scope.as_ref() == Some(&db.scope) {
                return Ok(());
            }
            db.run(db.scope.set(false)).await?;
            db.conn.scope = Some(db.scope.clone());
            return Ok(());
        }
        let lock = db.lock;
        let (isolation, lock) = match self.mode {
            Mode::Read => ("READ COMMITTED READ ONLY", String::new()),
            Mode::Write => ("READ COMMITTED", String::new()),
            Mode::Snapshot => ("REPEATABLE READ READ ONLY", String::new()),
            Mode::Shared => ("READ COMMITTED", format!("SELECT pg_advisory_xact_lock_shared({lock})")),
            Mode::Alone => ("READ COMMITTED", format!("SELECT pg_advisory_xact_lock({lock})")),
        };
        let mut settings =
            if self.site.keeps { Vec::new() } else { self.site.connections.settings().to_vec() };
        if self.is_long {
            settings
                .push(("statement_timeout", self.site.long.saturating_sub(MARGIN).as_millis().to_string()));
        }
        let settings: String =
            settings.iter().map(|(name, value)| format!("SET LOCAL {name} = {value}; ")).collect();
        let set = db.scope.set(true);
        db.run(format!("BEGIN ISOLATION LEVEL {isolation}; {settings}{set}; {lock}")).await
    }

    /// Ends an attempt: commits, or undoes what was done. Returns `None` if the step is to be tried again.
    pub(crate) async fn end<T>(&mut self, mut open: Open, done: Step<T>) -> Option<Result<T>> {
        let has_transaction = self.has_transaction();
        let fault = match done {
            Ok(value) if !has_transaction => {
                self.site.connections.give_back(open.db.conn);
                return Some(Ok(value));
            }
            Ok(value) => match open.db.run("COMMIT".to_owned()).await {
                Ok(()) => {
                    self.site.connections.give_back(open.db.conn);
                    return Some(Ok(value));
                }
                Err(error) if is_broken(&error) => {
                    self.site.connections.forget();
                    return Some(Err(self.failed(error, !matches!(self.mode, Mode::Read | Mode::Snapshot))));
                }
                Err(error) => Fault::Sql(error),
            },
            Err(fault) => fault,
        };
        if let Fault::Sql(error) = &fault
            && is_read_only(error)
        {
            self.is_standby = is_standby(&mut open.db).await;
        }
        self.undo(open, &fault, has_transaction).await;
        let again = match &fault {
            Fault::Refused(_) => false,
            // Nothing of a transaction took effect that was not committed.
            Fault::Sql(error) if is_broken(error) => {
                (!self.writes_alone() || is_read_only(error)) && self.count == 0
            }
            Fault::Sql(error) => is_serialization(error) || (is_duplicate(error) && has_transaction),
        };
        self.count += 1;
        if again && self.count < MOST {
            let most = PAUSE.saturating_mul(1 << self.count.min(6));
            tokio::time::sleep(self.site.effects.random_part(most)).await;
            return None;
        }
        Some(Err(self.error(fault)))
    }

    /// Undoes the transaction, and keeps the connection if it can be used again.
    async fn undo(&self, mut open: Open, fault: &Fault, has_transaction: bool) {
        if let Fault::Sql(error) = fault
            && is_broken(error)
        {
            self.site.connections.forget();
            return;
        }
        if has_transaction && let Err(error) = open.db.run("ROLLBACK".to_owned()).await {
            tracing::debug!(%error, "a connection is dropped, since its transaction was not rolled back");
            return;
        }
        // A statement whose rows were not all read may still have some on their way.
        if within(open.db.limit, open.db.conn.pg.flush()).await.is_ok() {
            self.site.connections.give_back(open.db.conn);
        }
    }

    fn error(&self, fault: Fault) -> Error {
        match fault {
            Fault::Refused(error) => error,
            Fault::Sql(error) => self.failed(error, self.writes_alone()),
        }
    }

    /// Returns whether the statement takes effect by itself.
    fn writes_alone(&self) -> bool {
        self.mode == Mode::Write && !self.has_transaction()
    }

    /// Error for a failure of the server, which it names.
    fn failed(&self, error: sqlx::Error, sent: bool) -> Error {
        failed_since(self.doing, error, sent, self.is_standby).about(self.site.connections.place())
    }
}

/// Asks a server that refused a write whether it is a standby.
async fn is_standby(db: &mut Db) -> Option<bool> {
    // A transaction that has failed answers nothing else.
    let row = db.first_once("ROLLBACK; SELECT pg_catalog.pg_is_in_recovery()").await.ok()??;
    row.try_get(0).ok()
}

/// Runs a step, which may be repeated: `run!(site, mode, "doing something", db => step(db).await)`. It stands in a task
/// of the store, so that no transaction is left open when a caller is dropped.
macro_rules! run {
    ($site:expr, $mode:expr, $doing:expr, $db:ident => $step:expr) => {
        $crate::medium::attempts::run!(@ $site.attempts($mode, $doing), $db => $step)
    };
    (@ $attempts:expr, $db:ident => $step:expr) => {{
        let mut attempts = $attempts;
        loop {
            let mut open = attempts.begin().await?;
            let $db = &mut open.db;
            let done: $crate::error::Step<_> = $step;
            if let Some(done) = attempts.end(open, done).await {
                break done;
            }
        }
    }};
}
pub(crate) use run;
