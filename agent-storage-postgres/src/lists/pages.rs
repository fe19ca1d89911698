//! Lists of sessions: each query walks indexes in its order, and reads no more than its page.

use std::collections::BTreeSet;

use agent_core::model::INACTIVE_AFTER_LABEL;
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{Cursor, PAGE_MAX, Page, SessionQuery};
use agent_core::{SessionId, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use crate::error::Step;
use crate::medium::db::Db;
use crate::medium::rows::{checksum, int};
use crate::medium::session_rows::{class, is_rare, is_waiting};
use crate::medium::sql::Sql;

/// Page of sessions, and the sessions on it whose rows are damaged and must be rebuilt.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) page: Page<SessionSummary>,
    pub(crate) broken: Vec<SessionId>,
}

/// Part of a list with an order of its own in an index.
#[derive(Clone, Copy, Debug)]
enum Walk {
    /// Sessions that are due, by their time.
    Due(Timestamp),
    /// Sessions of a class.
    Class(&'static str),
    /// Sessions in a state that few have.
    Rare(SessionState),
}

/// States that a query wants.
fn states(query: &SessionQuery) -> Vec<SessionState> {
    let wanted = |state: &SessionState| match query.states.as_slice() {
        [] => !state.is_hidden(),
        states => states.contains(state),
    };
    SessionState::ALL.iter().copied().filter(wanted).collect()
}

/// Parts of which the list consists.
fn walks(query: &SessionQuery, states: &[SessionState]) -> Vec<Walk> {
    if let Some(until) = query.due {
        return vec![Walk::Due(until)];
    }
    if states.iter().all(|state| is_rare(*state)) {
        return states.iter().map(|state| Walk::Rare(*state)).collect();
    }
    let classes: BTreeSet<_> = states.iter().map(|state| class(*state)).collect();
    classes.into_iter().map(Walk::Class).collect()
}

/// Query with its place.
struct Wanted<'a> {
    tenant: &'a str,
    query: &'a SessionQuery,
    states: Vec<SessionState>,
    /// Place in the list after which the page begins.
    after: Option<(Timestamp, SessionId)>,
}

impl Wanted<'_> {
    /// Returns the statement of a page.
    fn page(&self) -> Step<Sql> {
        let mut sql = Sql::of_tenant(self.tenant)?;
        let limit = int(self.query.limit.min(PAGE_MAX) as u64 + 1);
        let (walks, is_due) = (walks(self.query, &self.states), self.query.due.is_some());
        let order =
            if is_due { " ORDER BY at, session LIMIT " } else { " ORDER BY at DESC, session DESC LIMIT " };
        for (n, walk) in walks.iter().enumerate() {
            sql.push(if n > 0 { " UNION ALL (" } else { "(" });
            sql.push(if is_due { "SELECT d.at AS at" } else { "SELECT s.listed_at AS at" });
            sql.push(", s.session AS session, s.summary_crc, s.summary");
            self.walk(&mut sql, *walk)?;
            if let Some((at, id)) = self.after {
                sql.push(if is_due {
                    " AND (d.at, d.session) > ("
                } else {
                    " AND (s.listed_at, s.session) < ("
                });
                sql.value(at.as_micros())?.push(", ").value(*id.as_uuid())?.push(")");
            }
            sql.push(order).value(limit)?.push(")");
        }
        if walks.len() > 1 {
            sql.push(order).value(limit)?;
        }
        Ok(sql)
    }

    /// Returns the statement for the number of sessions on all pages.
    fn count(&self) -> Step<Sql> {
        let mut sql = Sql::of_tenant(self.tenant)?;
        sql.push("SELECT sum(n)::bigint FROM (");
        for (n, walk) in walks(self.query, &self.states).iter().enumerate() {
            sql.push(if n > 0 { " UNION ALL " } else { "" }).push("SELECT count(*) AS n");
            self.walk(&mut sql, *walk)?;
        }
        sql.push(") AS counts");
        Ok(sql)
    }

    /// Adds the tables and the conditions of one walk.
    fn walk(&self, sql: &mut Sql, walk: Walk) -> Step<()> {
        let query = self.query;
        match walk {
            Walk::Due(until) => {
                sql.push(" FROM @.due d JOIN @.sessions s ON s.tenant = d.tenant AND s.session = d.session");
                sql.push(" WHERE d.tenant = $1 AND d.at <= ").value(until.as_micros())?;
                if let Some(owner) = &query.owner {
                    // Rows of others are left out before row security looks for their sessions.
                    sql.push(" AND d.owner = ").value(owner.as_str())?;
                }
                self.in_states(sql, None)?;
            }
            Walk::Class(of) => {
                sql.push(" FROM @.sessions s WHERE s.tenant = $1 AND s.class = ").value(of)?;
                self.in_states(sql, Some(of))?;
            }
            Walk::Rare(state) => {
                sql.push(" FROM @.sessions s WHERE s.tenant = $1 AND s.rare = ").value(state.as_str())?;
            }
        }
        if let Some(workspace) = query.workspace {
            sql.push(" AND s.workspace = ").value(*workspace.as_uuid())?;
        }
        if let Some(creator) = &query.creator {
            sql.push(" AND s.creator = ").value(creator.to_string())?;
        }
        if let Some(owner) = &query.owner {
            // The condition of the index, word for word, so that a generic plan uses it, too.
            sql.push(" AND s.owner <> '' AND s.owner = ").value(owner.as_str())?;
        }
        if let Some(parent) = query.parent {
            sql.push(" AND s.parent = ").value(*parent.as_uuid())?;
        }
        if let Some(until) = query.inactive_since {
            sql.push(" AND (s.last_active_at < ").value(until.as_micros())?;
            sql.push(" OR EXISTS (SELECT 1 FROM @.labels x WHERE x.tenant = $1 AND x.session = s.session AND x.key = ");
            sql.value(INACTIVE_AFTER_LABEL)?.push("))");
        }
        for (key, value) in &query.labels {
            sql.push(" AND EXISTS (SELECT 1 FROM @.labels x WHERE x.tenant = $1 AND x.session = s.session AND x.key = ");
            sql.value(key)?.push(" AND x.value = ").value(value)?.push(")");
        }
        Ok(())
    }

    /// Adds the condition on the state, if not each session of the class fulfils it.
    fn in_states(&self, sql: &mut Sql, of: Option<&str>) -> Step<()> {
        let in_class = |state: &&SessionState| of.is_none_or(|of| class(**state) == of);
        let all = SessionState::ALL.iter().filter(in_class).count();
        let wanted: Vec<_> = self.states.iter().filter(in_class).collect();
        if wanted.len() == all {
            return Ok(());
        }
        let names: Vec<_> = wanted.iter().map(|state| state.as_str()).collect();
        sql.push(" AND s.state = ANY (").value(&names)?.push(")");
        if of.is_some() && wanted.iter().all(|state| is_waiting(**state)) {
            // Few sessions; the planner begins with them.
            sql.push(
                " AND s.session IN (SELECT w.session FROM @.due w WHERE w.tenant = $1 AND w.state = ANY (",
            );
            sql.value(&names)?.push("))");
        }
        Ok(())
    }
}

/// Returns a page of sessions. Both statements must see one snapshot if the total is wanted.
pub(crate) async fn sessions(db: &mut Db, query: &SessionQuery) -> Step<Listed> {
    let print = query.fingerprint();
    let after = query.cursor.as_ref().map(|cursor| cursor.recent_key::<SessionId>(print)).transpose()?;
    let tenant = db.scope.tenant.clone();
    let wanted = Wanted { tenant: &tenant, query, states: states(query), after };
    let limit = query.limit.min(PAGE_MAX);
    let mut listed = Listed::default();
    if wanted.states.is_empty() {
        listed.page.total = query.with_total.then_some(0);
        return Ok(listed);
    }
    let rows = db.rows(db.built(wanted.page()?)).await?;
    let mut last = None;
    for row in rows.iter().take(limit) {
        let (at, id) = (row.try_get::<i64, _>(0)?, SessionId::from_uuid(row.try_get::<Uuid, _>(1)?));
        last = Some((Timestamp::from_micros(at), id));
        match summary(&tenant, id, row)? {
            Some(summary) => listed.page.items.push(summary),
            None => listed.broken.push(id),
        }
    }
    let last = last.filter(|_| rows.len() > limit);
    listed.page.next = last.map(|(at, id)| Cursor::after_recent(print, at, id));
    if query.with_total {
        let row = db.first(db.built(wanted.count()?)).await?;
        let total: Option<i64> = row.map(|row| row.try_get(0)).transpose()?.flatten();
        listed.page.total = Some(u64::try_from(total.unwrap_or(0)).unwrap_or(0));
    }
    Ok(listed)
}

/// Returns the summary in a row; `None` if it is damaged.
fn summary(tenant: &str, id: SessionId, row: &PgRow) -> Step<Option<SessionSummary>> {
    let (crc, json): (i32, &str) = (row.try_get(2)?, row.try_get(3)?);
    let fits = checksum(&[tenant, &id.to_string(), json]) == crc;
    Ok(if fits { serde_json::from_str(json).ok() } else { None })
}
