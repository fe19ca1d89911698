//! Lists of sessions: each query reads the few recent sessions and walks one index of the others in its order. It reads
//! no more than its page.

use agent_core::model::INACTIVE_AFTER_LABEL;
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{Cursor, PAGE_MAX, Page, SessionQuery};
use agent_core::{OwnerId, SessionId, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, Params, params, params_from_iter};

use crate::error::Step;
use crate::medium::rows::{checksum, each, first, first_number, int, number, text};

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
    Owner(&'a OwnerId),
    Creator,
    Workspace,
    State,
    /// Recent sessions, which are in no index by recency.
    Recent,
}

impl By<'_> {
    /// Returns whether the state comes before the recency in the index.
    fn has_state(self) -> bool {
        matches!(self, By::Owner(_) | By::Workspace | By::State)
    }
}

/// Returns the index for a query. Of several labels, `label` is the one whose sessions are walked.
fn by(query: &SessionQuery, label: usize) -> By<'_> {
    if let Some(until) = query.due {
        By::Due(until)
    } else if let (None, Some(owner)) = (query.parent, &query.owner) {
        // Others may have the same labels.
        By::Owner(owner)
    } else if let Some((key, value)) = query.labels.iter().nth(label) {
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

/// Statements of one query, in the order in which their values are bound.
struct Wanted<'a> {
    tenant: &'a str,
    query: &'a SessionQuery,
    /// Place in the list after which the page begins.
    after: Option<(Timestamp, SessionId)>,
    /// Index of the label whose sessions are walked.
    label: usize,
    /// States, each of which is walked by itself, since the state comes before the recency in the index.
    walked: Option<Vec<SessionState>>,
    /// True for the number of sessions on all pages.
    count: bool,
}

impl Wanted<'_> {
    /// Returns the statement for sessions that are not recent; for due sessions, which have an index of their own, the
    /// statement for all.
    fn ordered(&self) -> Sql {
        let (mut sql, by) = (Sql::default(), by(self.query, self.label));
        // Merged by SQLite.
        let walks = self.walked.iter().flatten().copied().map(Some).collect::<Vec<_>>();
        let walks = if self.walked.is_some() { walks } else { vec![None] };
        let sums = self.count && walks.len() > 1;
        if sums {
            sql.push("SELECT sum(n) FROM (");
        }
        for (n, state) in walks.iter().enumerate() {
            sql.push(if n > 0 { " UNION ALL " } else { "" });
            self.select(&mut sql, by);
            self.walk(&mut sql, by, *state);
        }
        if sums {
            sql.push(")");
        }
        if !self.count {
            let order = match by {
                By::Due(_) => " ORDER BY s.next_due_at, s.id",
                By::Label(..) => " ORDER BY l.last_active_at DESC, l.session DESC",
                _ if walks.len() > 1 => " ORDER BY 1 DESC, 2 DESC",
                _ => " ORDER BY s.last_active_at DESC, s.id DESC",
            };
            let limit = self.query.limit.min(PAGE_MAX) as u64 + 1;
            sql.push(order).push(" LIMIT ").int(int(limit));
        }
        sql
    }

    /// Returns the statement for recent sessions, in no order; `None` if the other one finds them.
    fn recent(&self) -> Option<Sql> {
        let mut sql = Sql::default();
        if self.query.due.is_some() {
            return None;
        }
        self.select(&mut sql, By::Recent);
        self.walk(&mut sql, By::Recent, None);
        Some(sql)
    }

    fn select(&self, sql: &mut Sql, by: By<'_>) {
        sql.push(match by {
            _ if self.count => "SELECT count(*) AS n",
            By::Due(_) => "SELECT s.next_due_at, s.id, s.summary_crc, s.summary",
            // What the next page begins after, so that it never begins before this one.
            By::Label(..) => "SELECT l.last_active_at, l.session, s.summary_crc, s.summary",
            _ => "SELECT s.last_active_at, s.id, s.summary_crc, s.summary",
        });
    }

    /// Adds one walk along an index.
    fn walk(&self, sql: &mut Sql, by: By<'_>, state: Option<SessionState>) {
        along(sql, self.tenant, by);
        self.narrow(sql, by, state);
        if let Some((at, id)) = self.after {
            let place = match by {
                By::Due(_) => "(s.next_due_at, s.id) >",
                By::Label(..) => "(l.last_active_at, l.session) <",
                _ => "(s.last_active_at, s.id) <",
            };
            sql.push(" AND ").push(place).push(" (").int(at.as_micros()).push(", ").value(id.to_string());
            sql.push(")");
        }
    }

    /// Adds the other conditions of the query.
    fn narrow(&self, sql: &mut Sql, by: By<'_>, state: Option<SessionState>) {
        let query = self.query;
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
        if let (Some(owner), false) = (&query.owner, matches!(by, By::Owner(_))) {
            sql.push(" AND s.owner = ").value(owner.as_str());
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
        for (n, (key, value)) in query.labels.iter().enumerate() {
            match by {
                By::Label(..) if n == self.label => {}
                // In the primary key, and so without the session's row.
                By::Label(..) => {
                    sql.push(" AND EXISTS (SELECT 1 FROM labels x WHERE x.tenant = l.tenant AND x.key = ")
                        .value(key);
                    sql.push(" AND x.value = ").value(value);
                    sql.push(" AND x.last_active_at = l.last_active_at AND x.session = l.session)");
                }
                // The time in the row of a label may be an earlier one.
                _ => {
                    sql.push(" AND EXISTS (SELECT 1 FROM labels x WHERE x.log = s.log AND x.key = ")
                        .value(key);
                    sql.push(" AND x.value = ").value(value).push(")");
                }
            }
        }
    }
}

/// Adds the index to walk, and the position at which the walk begins.
fn along(sql: &mut Sql, tenant: &str, by: By<'_>) {
    let mut sessions = |index: &str, condition: &str| {
        sql.push(" FROM sessions s INDEXED BY ").push(index).push(" WHERE s.tenant = ").value(tenant);
        sql.push(condition);
    };
    match by {
        By::Due(until) => {
            sessions("sessions_by_due", " AND s.next_due_at > -9000000000000000000 AND s.next_due_at <= ");
            sql.int(until.as_micros());
        }
        By::Label(key, value) => {
            sql.push(" FROM labels l CROSS JOIN sessions s ON s.log = l.log AND s.is_recent = 0");
            sql.push(" WHERE l.tenant = ").value(tenant).push(" AND l.key = ").value(key);
            sql.push(" AND l.value = ").value(value);
        }
        By::Parent(parent) => {
            sessions("sessions_by_parent", " AND s.is_recent = 0 AND s.parent > '' AND s.parent = ");
            sql.value(parent.to_string());
        }
        By::Owner(owner) => {
            sessions("sessions_by_owner", " AND s.is_recent = 0 AND s.owner > '' AND s.owner = ");
            sql.value(owner.as_str());
        }
        By::Creator => sessions("sessions_by_creator", " AND s.is_recent = 0"),
        By::Workspace => sessions("sessions_by_workspace", " AND s.is_recent = 0"),
        By::State => sessions("sessions_by_state", " AND s.is_recent = 0"),
        By::Recent => sessions("sessions_recent", " AND s.is_recent = 1"),
    }
}

/// Next state of a tenant's sessions that are not recent, after a given one: one step along the index.
pub(crate) const NEXT_STATE: &str = "SELECT min(state) FROM sessions INDEXED BY sessions_by_state \
    WHERE tenant = ? AND is_recent = 0 AND state > ?";

/// Returns the wanted states that any of the tenant's sessions has which are not recent, so that only these are walked;
/// `None` if one walk serves all states. Mostly this is one state.
fn found_states(conn: &Connection, tenant: &str, query: &SessionQuery) -> Step<Option<Vec<SessionState>>> {
    if !by(query, 0).has_state() {
        return Ok(None);
    }
    let (mut found, mut last) = (Vec::new(), String::new());
    let wanted = states(query);
    while let Some(next) =
        first(conn, NEXT_STATE, params![tenant, last], |row| Ok(text(row, 0)?.map(str::to_owned)))?.flatten()
    {
        found.extend(wanted.iter().copied().filter(|state| state.as_str() == next));
        last = next;
    }
    if found.is_empty() {
        // A walk that finds nothing.
        found.extend(wanted.first());
    }
    Ok(Some(found))
}

/// Most rows that are counted for each label of a query, from the first step to the last.
const COUNTED: [i64; 3] = [64, 512, 4096];

const COUNT_LABEL: &str = "SELECT count(*) FROM (\
    SELECT 1 FROM labels WHERE tenant = ? AND key = ? AND value = ? LIMIT ?)";

/// Returns which of a query's labels the fewest sessions have; the first, if all of them are common. A walk along the
/// sessions of that label looks in the others for each, and so costs no more than the rarest label.
fn rarest_label(conn: &Connection, tenant: &str, query: &SessionQuery) -> Step<usize> {
    if query.labels.len() < 2 || query.due.is_some() || query.owner.is_some() {
        return Ok(0);
    }
    for most in COUNTED {
        let mut rarest = (most, 0);
        for (n, (key, value)) in query.labels.iter().enumerate() {
            let count = first_number(conn, COUNT_LABEL, params![tenant, key, value, most])?;
            rarest = rarest.min((count.unwrap_or(0), n));
        }
        if rarest.0 < most {
            return Ok(rarest.1);
        }
    }
    Ok(0)
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
    let walks = match by(query, 0) {
        By::Workspace | By::State => true,
        By::Owner(_) => query.workspace.is_none() && query.creator.is_none() && query.labels.is_empty(),
        _ => false,
    };
    walks && !is_filtered
}

/// Row of a recent session.
struct Recent {
    at: i64,
    id: String,
    crc: i64,
    summary: Option<String>,
}

/// Page on its way.
struct Taken<'a> {
    tenant: &'a str,
    limit: usize,
    listed: Listed,
    last: Option<(Timestamp, SessionId)>,
    /// Rows, including one after the page.
    count: usize,
    bytes: usize,
}

impl Taken<'_> {
    fn is_full(&self) -> bool {
        self.count > self.limit
    }

    fn add(&mut self, at: i64, id: Option<&str>, crc: i64, json: Option<&str>) {
        self.count += 1;
        self.bytes += json.map_or(0, str::len);
        let Some(text) = id.filter(|_| self.count <= self.limit) else { return };
        let Ok(id) = text.parse::<SessionId>() else { return };
        self.last = Some((Timestamp::from_micros(at), id));
        match summary(self.tenant, (id, text), crc, json) {
            Some(summary) => self.listed.page.items.push(summary),
            None => self.listed.broken.push(id),
        }
    }
}

/// Returns a page of sessions; `None` if it has more than `most` bytes. All statements must see one snapshot.
pub(crate) fn sessions(
    conn: &Connection,
    tenant: &str,
    query: &SessionQuery,
    most: usize,
) -> Step<Option<Listed>> {
    let print = query.fingerprint();
    let after = query.cursor.as_ref().map(|cursor| cursor.recent_key::<SessionId>(print)).transpose()?;
    let (limit, label) = (query.limit.min(PAGE_MAX), rarest_label(conn, tenant, query)?);
    let walked = found_states(conn, tenant, query)?;
    let mut wanted = Wanted { tenant, query, after, label, walked, count: false };
    let mut recent = recent_rows(conn, &wanted)?.into_iter().peekable();
    let mut taken = Taken { tenant, limit, listed: Listed::default(), last: None, count: 0, bytes: 0 };
    let sql = wanted.ordered();
    let mut statement = conn.prepare_cached(&sql.text)?;
    let mut rows = statement.query(sql.values())?;
    while !taken.is_full()
        && let Some(row) = rows.next()?
    {
        let (at, id) = (number(row, 0)?, text(row, 1)?);
        let is_before = |it: &Recent| (it.at, &*it.id) > (at, id.unwrap_or_default());
        while !taken.is_full()
            && let Some(Recent { at, id, crc, summary }) = recent.next_if(is_before)
        {
            taken.add(at, Some(&id), crc, summary.as_deref());
        }
        if !taken.is_full() {
            taken.add(at, id, number(row, 2)?, text(row, 3)?);
        }
        if taken.bytes > most {
            return Ok(None);
        }
    }
    for Recent { at, id, crc, summary } in recent {
        if !taken.is_full() {
            taken.add(at, Some(&id), crc, summary.as_deref());
        }
    }
    if taken.bytes > most {
        return Ok(None);
    }
    let Taken { mut listed, last, count, .. } = taken;
    listed.page.next = last.filter(|_| count > limit).map(|(at, id)| Cursor::after_recent(print, at, id));
    if query.with_total {
        (wanted.count, wanted.after) = (true, None);
        listed.page.total = Some(total(conn, &wanted)?);
    }
    Ok(Some(listed))
}

/// Returns the rows that are not in their order yet, the newest first.
fn recent_rows(conn: &Connection, wanted: &Wanted<'_>) -> Step<Vec<Recent>> {
    let mut recent = Vec::new();
    if let Some(sql) = wanted.recent() {
        each(conn, &sql.text, sql.values(), |row| {
            let (at, id) = (number(row, 0)?, text(row, 1)?.unwrap_or_default().to_owned());
            recent.push(Recent { at, id, crc: number(row, 2)?, summary: text(row, 3)?.map(str::to_owned) });
            Ok(())
        })?;
    }
    recent.sort_unstable_by(|one, other| (other.at, &other.id).cmp(&(one.at, &one.id)));
    Ok(recent)
}

/// Returns the number of rows on all pages, of a list whose statements count.
fn total(conn: &Connection, wanted: &Wanted<'_>) -> Step<u64> {
    let mut total = 0;
    for all in std::iter::once(wanted.ordered()).chain(wanted.recent()) {
        total += first_number(conn, &all.text, all.values())?.unwrap_or(0);
    }
    Ok(u64::try_from(total).unwrap_or(0))
}

/// Returns the summary of a session, whose id is also given as its row has it; `None` if the row is damaged.
fn summary(
    tenant: &str,
    (id, text): (SessionId, &str),
    crc: i64,
    json: Option<&str>,
) -> Option<SessionSummary> {
    let json = json?;
    // Another program may have spelled the id in another way.
    let fits = checksum(&[tenant, text, json]) == crc || checksum(&[tenant, &id.to_string(), json]) == crc;
    if fits { serde_json::from_str(json).ok() } else { None }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
