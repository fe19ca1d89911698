//! One connection while a step uses it, for one tenant. Every statement has a deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Executor, Postgres};

use crate::error::Step;
use crate::medium::count::Counted;
use crate::medium::scope::Scope;
use crate::medium::sql::{Names, Sql};

/// Statement with its values.
pub(crate) type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// Connection, and whose rows its settings show; nobody's at first.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) pg: PgConnection,
    pub(crate) scope: Option<Scope>,
    pub(crate) _counted: Counted,
}

/// Connection in use by one call.
#[derive(Debug)]
pub(crate) struct Db {
    pub(crate) conn: Connection,
    pub(crate) names: Arc<Names>,
    pub(crate) scope: Scope,
    /// Number of the tenant's advisory lock, which its writers share, and which whoever changes all of it has alone.
    pub(crate) lock: i64,
    /// Time after which the connection counts as broken: somewhat more than the server gives a statement.
    pub(crate) limit: Duration,
    /// True if a statement stays prepared for the next call, on a connection that is one of the server's.
    pub(crate) prepares: bool,
}

impl Db {
    /// Returns a statement whose first value, `$1`, is the tenant.
    pub(crate) fn query<'q>(&self, text: &'static str) -> Statement<'q> {
        self.of_all(text).bind(self.scope.tenant.to_string())
    }

    /// Returns a statement over all tenants.
    pub(crate) fn of_all<'q>(&self, text: &str) -> Statement<'q> {
        sqlx::query(self.names.sql(text)).persistent(self.prepares)
    }

    /// Returns a statement that was put together.
    pub(crate) fn built<'q>(&self, sql: Sql) -> Statement<'q> {
        sqlx::query_with(self.names.sql(&sql.text), sql.values).persistent(self.prepares)
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(crate) async fn execute(&mut self, statement: Statement<'_>) -> Step<u64> {
        let done = within(self.limit, self.conn.pg.execute(statement)).await?;
        Ok(done.rows_affected())
    }

    /// Returns the first row.
    pub(crate) async fn first(&mut self, statement: Statement<'_>) -> Step<Option<PgRow>> {
        Ok(within(self.limit, self.conn.pg.fetch_optional(statement)).await?)
    }

    pub(crate) async fn rows(&mut self, statement: Statement<'_>) -> Step<Vec<PgRow>> {
        Ok(within(self.limit, self.conn.pg.fetch_all(statement)).await?)
    }

    /// Returns the first row of a statement that is used once, in one round trip.
    pub(crate) async fn first_once(&mut self, text: &str) -> Step<Option<PgRow>> {
        let statement = sqlx::raw_sql(self.names.sql(text));
        Ok(within(self.limit, self.conn.pg.fetch_optional(statement)).await?)
    }

    /// Runs statements without values in one round trip.
    pub(crate) async fn run(&mut self, text: String) -> Result<(), sqlx::Error> {
        within(self.limit, self.conn.pg.execute(sqlx::raw_sql(AssertSqlSafe(text)))).await.map(drop)
    }
}

/// Fails with a broken connection if the server does not answer in time.
pub(crate) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time")))
    })
}
