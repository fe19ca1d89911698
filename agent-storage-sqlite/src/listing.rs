//! Lists of sessions: each query walks one index in its order, and reads no more than its page.

use agent_core::page::PAGE_MAX;
use agent_core::{Cursor, Page, Result, SessionId, SessionQuery, SessionState, SessionSummary, Timestamp};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, query, query_scalar};

use crate::error::Step;
use crate::rows::{checksum, int, number, text};

/// A value that a query's text leaves open.
#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Int(i64),
}

/// The text of a query with its values, in order. All text comes from this crate; whatever a caller gave is a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sql {
    text: String,
    values: Vec<Value>,
}

impl Sql {
    fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    fn value(&mut self, value: impl Into<String>) -> &mut Self {
        self.text.push('?');
        self.values.push(Value::Text(value.into()));
        self
    }

    fn int(&mut self, value: i64) -> &mut Self {
        self.text.push('?');
        self.values.push(Value::Int(value));
        self
    }

    /// The text, as SQLite gets it.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn query<'q>(&self) -> Query<'q, Sqlite, SqliteArguments> {
        self.bind(query(AssertSqlSafe(self.text.clone())))
    }

    pub(crate) fn bind<'q>(
        &self,
        query: Query<'q, Sqlite, SqliteArguments>,
    ) -> Query<'q, Sqlite, SqliteArguments> {
        self.values.iter().fold(query, |query, value| match value {
            Value::Text(text) => query.bind(text.clone()),
            Value::Int(number) => query.bind(*number),
        })
    }
}

/// By which index a query is answered.
#[derive(Clone, Copy, Debug)]
enum By<'a> {
    Due(Timestamp),
    Label(&'a str, &'a str),
    Parent(SessionId),
    Creator,
    Workspace,
    State,
}

fn by(query: &SessionQuery) -> By<'_> {
    if let Some(until) = query.due {
        By::Due(until)
    } else if let Some((key, value)) = query.labels.iter().next() {
        By::Label(key, value)
    } else if let Some(parent) = query.parent {
        By::Parent(parent)
    } else if query.creator.is_some() {
        By::Creator
    } else if query.workspace.is_some() {
        By::Workspace
    } else {
        By::State
    }
}

fn states(query: &SessionQuery) -> Vec<SessionState> {
    if query.states.is_empty() {
        return SessionState::ALL.iter().copied().filter(|state| !state.is_hidden()).collect();
    }
    let wanted = |state: &SessionState| query.states.contains(state);
    SessionState::ALL.iter().copied().filter(wanted).collect()
}

/// The query for one page, or for the count of all pages.
pub(crate) fn sql(
    tenant: &str,
    query: &SessionQuery,
    after: Option<(Timestamp, SessionId)>,
    count: bool,
) -> Sql {
    let mut sql = Sql::default();
    let by = by(query);
    let columns = match by {
        _ if count => "count(*)",
        By::Due(_) => "s.due_at, s.id, s.summary_crc, s.summary",
        _ => "s.last_active_at, s.id, s.summary_crc, s.summary",
    };
    // One walk for each state, merged by SQLite, where the state comes before the recency in the index.
    let walks = match by {
        By::Workspace | By::State => states(query).into_iter().map(Some).collect(),
        _ => vec![None],
    };
    if count && walks.len() > 1 {
        sql.push("SELECT sum(n) FROM (");
    }
    for (n, state) in walks.iter().enumerate() {
        sql.push(if n > 0 { " UNION ALL " } else { "" }).push("SELECT ").push(columns);
        if count && walks.len() > 1 {
            sql.push(" AS n");
        }
        walk(&mut sql, tenant, query, by, *state, after);
    }
    if count && walks.len() > 1 {
        sql.push(")");
    }
    if !count {
        let order = match by {
            By::Due(_) => " ORDER BY s.due_at, s.id",
            By::Label(..) => " ORDER BY l.last_active_at DESC, l.session DESC",
            _ if walks.len() > 1 => " ORDER BY 1 DESC, 2 DESC",
            _ => " ORDER BY s.last_active_at DESC, s.id DESC",
        };
        let limit = query.limit.clamp(1, PAGE_MAX) as u64 + 1;
        sql.push(order).push(" LIMIT ").int(int(limit));
    }
    sql
}

/// One walk along an index.
fn walk(
    sql: &mut Sql,
    tenant: &str,
    query: &SessionQuery,
    by: By<'_>,
    state: Option<SessionState>,
    after: Option<(Timestamp, SessionId)>,
) {
    let mut place = "(s.last_active_at, s.id) <";
    match by {
        By::Due(until) => {
            place = "(s.due_at, s.id) >";
            sql.push(" FROM sessions s INDEXED BY sessions_by_due WHERE s.tenant = ").value(tenant);
            sql.push(" AND s.due_at > -9000000000000000000 AND s.due_at <= ").int(until.as_micros());
        }
        By::Label(key, value) => {
            place = "(l.last_active_at, l.session) <";
            sql.push(" FROM labels l CROSS JOIN sessions s ON s.log = l.log");
            sql.push(" WHERE l.tenant = ").value(tenant).push(" AND l.key = ").value(key);
            sql.push(" AND l.value = ").value(value);
        }
        By::Parent(parent) => {
            sql.push(" FROM sessions s INDEXED BY sessions_by_parent WHERE s.tenant = ").value(tenant);
            sql.push(" AND s.parent > '' AND s.parent = ").value(parent.to_string());
        }
        By::Creator => {
            sql.push(" FROM sessions s INDEXED BY sessions_by_creator WHERE s.tenant = ").value(tenant);
        }
        By::Workspace => {
            sql.push(" FROM sessions s INDEXED BY sessions_by_workspace WHERE s.tenant = ").value(tenant);
        }
        By::State => {
            sql.push(" FROM sessions s INDEXED BY sessions_by_state WHERE s.tenant = ").value(tenant);
        }
    }
    if let Some(workspace) = query.workspace {
        sql.push(" AND s.workspace = ").value(workspace.as_uuid().to_string());
    }
    match state {
        Some(state) => {
            sql.push(" AND s.state = ").value(state.as_str());
        }
        None => {
            sql.push(" AND s.state IN (");
            for (n, state) in states(query).into_iter().enumerate() {
                sql.push(if n > 0 { ", " } else { "" }).value(state.as_str());
            }
            sql.push(")");
        }
    }
    if let Some(creator) = &query.creator {
        sql.push(" AND s.creator = ").value(creator.to_string());
    }
    if let (Some(parent), false) = (query.parent, matches!(by, By::Parent(_))) {
        sql.push(" AND s.parent = ").value(parent.to_string());
    }
    let others = query.labels.iter().skip(usize::from(matches!(by, By::Label(..))));
    for (key, value) in others {
        sql.push(" AND EXISTS (SELECT 1 FROM labels x WHERE x.tenant = s.tenant AND x.key = ").value(key);
        sql.push(" AND x.value = ").value(value);
        sql.push(" AND x.last_active_at = s.last_active_at AND x.session = s.id)");
    }
    if let Some((at, id)) = after {
        sql.push(" AND ").push(place).push(" (").int(at.as_micros()).push(", ").value(id.to_string());
        sql.push(")");
    }
}

/// A page of sessions, and those on it whose rows are damaged: the writer has to make them anew.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) page: Page<SessionSummary>,
    pub(crate) broken: Vec<SessionId>,
}

/// A page of sessions.
pub(crate) async fn sessions(
    conn: &mut SqliteConnection,
    tenant: &str,
    query: &SessionQuery,
) -> Step<Listed> {
    let print = query.fingerprint();
    let after = query.cursor.as_ref().map(|cursor| cursor.recent_key::<SessionId>(print)).transpose()?;
    let mut rows = sql(tenant, query, after, false).query().fetch_all(&mut *conn).await?;
    let limit = query.limit.clamp(1, PAGE_MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let mut listed = Listed::default();
    let mut last = None;
    for row in &rows {
        let Some(id) = text(row, 1)?.and_then(|id| id.parse::<SessionId>().ok()) else { continue };
        last = Some(Cursor::after_recent(print, Timestamp::from_micros(number(row, 0)?), id));
        match summary(row, 2, tenant, id)? {
            Some(summary) => listed.page.items.push(summary),
            None => listed.broken.push(id),
        }
    }
    listed.page.next = last.filter(|_| more);
    if query.with_total {
        let row = sql(tenant, query, None, true).query().fetch_one(&mut *conn).await?;
        listed.page.total = Some(u64::try_from(number(&row, 0)?).unwrap_or(0));
    }
    Ok(listed)
}

fn summary(row: &SqliteRow, at: usize, tenant: &str, id: SessionId) -> sqlx::Result<Option<SessionSummary>> {
    let Some(json) = text(row, at + 1)? else { return Ok(None) };
    if checksum(&[tenant, &id.to_string(), json]) != number(row, at)? {
        return Ok(None);
    }
    Ok(serde_json::from_str(json).ok())
}

/// The tenants that hold anything: one step along an index for each.
pub(crate) async fn tenants(conn: &mut SqliteConnection, after: &str) -> Result<Vec<String>, sqlx::Error> {
    let steps = |table: &str| {
        format!(
            "SELECT n FROM (WITH RECURSIVE t (n) AS (SELECT (SELECT min(tenant) FROM {table} WHERE tenant > ?) \
             UNION ALL SELECT (SELECT min(tenant) FROM {table} WHERE tenant > n) FROM t WHERE n IS NOT NULL) \
             SELECT n FROM t WHERE n IS NOT NULL)"
        )
    };
    let tables = ["logs", "tombstones", "workspaces", "bindings"];
    let sql = tables.map(steps).join(" UNION ");
    let mut names = query_scalar(AssertSqlSafe(sql));
    for _ in tables {
        names = names.bind(after.to_owned());
    }
    names.fetch_all(conn).await
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
