//! Lists of sessions: each query walks one index in its order, and reads no more than its page.

use agent_core::model::INACTIVE_AFTER_LABEL;
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{Cursor, PAGE_MAX, Page, SessionQuery};
use agent_core::{SessionId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, Params, Row, params_from_iter};

use crate::error::Step;
use crate::rows::{checksum, each, first_number, int, number, text};

/// Text of a query with its values, in order. All text comes from this crate; everything from a caller is a value.
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
        self.values.push(Value::Integer(value));
        self
    }

    pub(crate) fn values(&self) -> impl Params {
        params_from_iter(&self.values)
    }
}

/// Index that answers a query.
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

/// Returns the query for one page, or for the count of all pages.
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
        By::Due(_) => "s.next_due_at, s.id, s.summary_crc, s.summary",
        _ => "s.last_active_at, s.id, s.summary_crc, s.summary",
    };
    // One walk for each state, merged by SQLite, since the state comes before the recency in the index.
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
            By::Due(_) => " ORDER BY s.next_due_at, s.id",
            By::Label(..) => " ORDER BY l.last_active_at DESC, l.session DESC",
            _ if walks.len() > 1 => " ORDER BY 1 DESC, 2 DESC",
            _ => " ORDER BY s.last_active_at DESC, s.id DESC",
        };
        let limit = query.limit.min(PAGE_MAX) as u64 + 1;
        sql.push(order).push(" LIMIT ").int(int(limit));
    }
    sql
}

/// Adds one walk along an index.
fn walk(
    sql: &mut Sql,
    tenant: &str,
    query: &SessionQuery,
    by: By<'_>,
    state: Option<SessionState>,
    after: Option<(Timestamp, SessionId)>,
) {
    along(sql, tenant, by);
    narrow(sql, query, by, state);
    if let Some((at, id)) = after {
        let place = match by {
            By::Due(_) => "(s.next_due_at, s.id) >",
            By::Label(..) => "(l.last_active_at, l.session) <",
            _ => "(s.last_active_at, s.id) <",
        };
        sql.push(" AND ").push(place).push(" (").int(at.as_micros()).push(", ").value(id.to_string());
        sql.push(")");
    }
}

/// Adds the index to walk, and the position at which the walk begins.
fn along(sql: &mut Sql, tenant: &str, by: By<'_>) {
    match by {
        By::Due(until) => {
            sql.push(" FROM sessions s INDEXED BY sessions_by_due WHERE s.tenant = ").value(tenant);
            sql.push(" AND s.next_due_at > -9000000000000000000 AND s.next_due_at <= ")
                .int(until.as_micros());
        }
        By::Label(key, value) => {
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
}

/// Adds the other conditions of the query.
fn narrow(sql: &mut Sql, query: &SessionQuery, by: By<'_>, state: Option<SessionState>) {
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
    if let Some(until) = query.inactive_since {
        sql.push(" AND (s.last_active_at < ").int(until.as_micros());
        sql.push(" OR EXISTS (SELECT 1 FROM labels x WHERE x.log = s.log AND x.key = ")
            .value(INACTIVE_AFTER_LABEL);
        sql.push("))");
    }
    let others = query.labels.iter().skip(usize::from(matches!(by, By::Label(..))));
    for (key, value) in others {
        sql.push(" AND EXISTS (SELECT 1 FROM labels x WHERE x.tenant = s.tenant AND x.key = ").value(key);
        sql.push(" AND x.value = ").value(value);
        sql.push(" AND x.last_active_at = s.last_active_at AND x.session = s.id)");
    }
}

/// Page of sessions, and the sessions on it whose rows are damaged. The writer must rebuild those.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) page: Page<SessionSummary>,
    pub(crate) broken: Vec<SessionId>,
}

/// Returns whether a page is read by walking an index no further than the page: no row on the way is skipped or
/// counted.
pub(crate) fn is_one_walk(query: &SessionQuery) -> bool {
    let is_filtered = query.with_total || query.inactive_since.is_some();
    matches!(by(query), By::Workspace | By::State) && !is_filtered
}

/// Returns a page of sessions; `None` if it has more than `most` bytes.
pub(crate) fn sessions(
    conn: &Connection,
    tenant: &str,
    query: &SessionQuery,
    most: usize,
) -> Step<Option<Listed>> {
    let print = query.fingerprint();
    let after = query.cursor.as_ref().map(|cursor| cursor.recent_key::<SessionId>(print)).transpose()?;
    let limit = query.limit.min(PAGE_MAX);
    let (mut listed, mut last, mut count, mut found) = (Listed::default(), None, 0, 0);
    let wanted = sql(tenant, query, after, false);
    each(conn, &wanted.text, wanted.values(), |row| {
        count += 1;
        found += row.get_ref(3)?.as_bytes().map_or(0, <[u8]>::len);
        if found > most {
            return Ok(());
        }
        let Some(id) = text(row, 1)?.and_then(|id| id.parse::<SessionId>().ok()).filter(|_| count <= limit)
        else {
            return Ok(());
        };
        last = Some((Timestamp::from_micros(number(row, 0)?), id));
        match summary(row, 2, tenant, id)? {
            Some(summary) => listed.page.items.push(summary),
            None => listed.broken.push(id),
        }
        Ok(())
    })?;
    if found > most {
        return Ok(None);
    }
    listed.page.next = last.filter(|_| count > limit).map(|(at, id)| Cursor::after_recent(print, at, id));
    if query.with_total {
        let all = sql(tenant, query, None, true);
        let total = first_number(conn, &all.text, all.values())?;
        listed.page.total = Some(u64::try_from(total.unwrap_or(0)).unwrap_or(0));
    }
    Ok(Some(listed))
}

fn summary(
    row: &Row<'_>,
    at: usize,
    tenant: &str,
    id: SessionId,
) -> rusqlite::Result<Option<SessionSummary>> {
    let Some(json) = text(row, at + 1)? else { return Ok(None) };
    if checksum(&[tenant, &id.to_string(), json]) != number(row, at)? {
        return Ok(None);
    }
    Ok(serde_json::from_str(json).ok())
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
