//! Tests that each list walks an index, using SQLite's own query plans.

use super::*;
use crate::log::read;
use crate::{SqliteConfig, schema};
use agent_core::WorkspaceId;
use agent_core::model::{Actor, Role};
use agent_core::store::WorkspaceQuery;

/// Parameters are NULL if no values are given.
fn plan(conn: &Connection, sql: &str, values: Option<&Sql>) -> Vec<String> {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    for (n, value) in (1..).zip(values.iter().flat_map(|sql| &sql.values)) {
        explain.raw_bind_parameter(n, value).unwrap();
    }
    let mut rows = explain.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        lines.push(row.get(3).unwrap());
    }
    lines
}

/// The statements of a list: that of its index, and that of the recent sessions.
fn statements(query: &SessionQuery, after: Option<(Timestamp, SessionId)>, count: bool) -> Vec<Sql> {
    let label = query.labels.len().saturating_sub(1);
    let walked = by(query, label).has_state().then(|| states(query));
    let wanted = Wanted { tenant: "default", query, after, label, walked, count };
    std::iter::once(wanted.ordered()).chain(wanted.recent()).collect()
}

/// The statements of lists of workspaces: of all, and of one owner with those without an owner.
fn lists_of_workspaces() -> [String; 2] {
    let alice = "alice".parse().unwrap();
    let owned = WorkspaceQuery::new().with_owner(alice).with_unowned();
    [WorkspaceQuery::new(), owned.with_deleting()]
        .map(|query| crate::places::workspaces::page("default", &query, &(i64::MAX, "~".to_owned())).0)
}

fn assert_walks(sql: &str, plan: &[String]) {
    let bad = |line: &&String| {
        (line.contains("SCAN") && !line.contains("CONSTANT ROW") && !line.contains("json_each"))
            || line.contains("TEMP B-TREE")
    };
    let bad: Vec<_> = plan.iter().filter(bad).collect();
    assert!(bad.is_empty(), "{sql}\n{plan:#?}");
    assert!(
        plan.iter().any(|line| line.contains("USING INDEX")
            || line.contains("USING PRIMARY KEY")
            || line.contains("COVERING INDEX")),
        "{sql}\n{plan:#?}"
    );
}

/// A statement is prepared once, and not again for other values.
#[test]
fn statements_are_prepared_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let conn = schema::open(&mut SqliteConfig::new(folder.path().join("a.db"))).unwrap().0;
    let prepared_again = |sql: &str| {
        let mut statement = conn.prepare(sql).unwrap();
        for round in 0..3 {
            for n in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(n, round).unwrap();
            }
            let mut rows = statement.raw_query();
            while rows.next().unwrap().is_some() {}
        }
        statement.get_status(rusqlite::StatementStatus::RePrepare)
    };
    let parent: SessionId = "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse().unwrap();
    let lists = [
        SessionQuery::new(),
        SessionQuery::new().with_label("a", "b").with_label("c", "d"),
        SessionQuery::new().with_parent(parent),
        SessionQuery::new().with_due(Timestamp::UNIX_EPOCH),
    ];
    let lists =
        lists.iter().flat_map(|query| statements(query, Some((Timestamp::UNIX_EPOCH, parent)), false));
    let lists: Vec<_> = lists.map(|sql| sql.text).collect();
    let workspaces = lists_of_workspaces();
    let others = [
        read::OLDEST,
        read::NEWEST,
        &workspaces[0],
        &workspaces[1],
        crate::places::bindings::LIST,
        COUNT_LABEL,
        NEXT_STATE,
        crate::log::recent::COUNT,
    ];
    for sql in lists.iter().map(String::as_str).chain(others) {
        assert_eq!(prepared_again(sql), 0, "{sql}");
    }
}

/// Lists by recency, owner, workspace, state, label, creator, parent and due time, their next pages, and
/// reads of a log walk an index in order: no plan holds a scan or a sort.
#[test]
fn every_list_walks_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let conn = schema::open(&mut SqliteConfig::new(folder.path().join("a.db"))).unwrap().0;
    let id: SessionId = "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse().unwrap();
    let alice = Actor::named(Role::User, "alice").unwrap();
    let workspace = WorkspaceId::DEFAULT;
    let queries = [
        SessionQuery::new(),
        SessionQuery::new().with_hidden(),
        SessionQuery::new().with_workspace(workspace),
        SessionQuery::new().with_workspace(workspace).with_states([SessionState::Idle]),
        SessionQuery::new().with_states([SessionState::Queued]),
        SessionQuery::new().with_states([SessionState::Idle, SessionState::Archived]),
        SessionQuery::new().with_label("project", "apollo"),
        SessionQuery::new().with_label("project", "apollo").with_label("b", "c").with_workspace(workspace),
        SessionQuery::new().with_creator(alice.clone()),
        SessionQuery::new()
            .with_creator(alice.clone())
            .with_workspace(workspace)
            .with_states([SessionState::Idle]),
        SessionQuery::new().with_owner("alice".parse().unwrap()),
        SessionQuery::new()
            .with_owner("alice".parse().unwrap())
            .with_workspace(workspace)
            .with_label("project", "apollo"),
        SessionQuery::new().with_parent(id),
        SessionQuery::new().with_parent(id).with_creator(alice).with_label("a", "b"),
        SessionQuery::new().with_due(Timestamp::UNIX_EPOCH),
        SessionQuery::new().with_due(Timestamp::UNIX_EPOCH).with_workspace(workspace).with_label("a", "b"),
    ];
    for query in &queries {
        for after in [None, Some((Timestamp::UNIX_EPOCH, id))] {
            for sql in statements(query, after, false) {
                let plan = plan(&conn, &sql.text, Some(&sql));
                assert_walks(&sql.text, &plan);
                // Deleted sessions of an owner are not passed one by one.
                for line in plan.iter().filter(|line| line.contains("sessions_by_owner")) {
                    assert!(line.contains("owner=? AND state=?"), "{}\n{plan:#?}", sql.text);
                }
                // Another label is looked for with one step.
                for line in plan.iter().filter(|line| line.contains(" x ")) {
                    let is_key = line.contains("session=?") || line.contains("labels_by_log (log=?");
                    assert!(is_key, "{}\n{plan:#?}", sql.text);
                }
            }
        }
        for total in statements(query, None, true) {
            let plan = plan(&conn, &total.text, Some(&total));
            assert!(
                plan.iter().all(|line| !line.contains("SCAN s") && !line.contains("TEMP B-TREE")),
                "{plan:#?}"
            );
        }
    }
    for sql in [COUNT_LABEL, NEXT_STATE, crate::log::recent::COUNT] {
        let plan = plan(&conn, sql, None);
        let outer = |line: &String| !line.starts_with("SCAN (subquery");
        let plan: Vec<_> = plan.into_iter().filter(outer).collect();
        assert_walks(sql, &plan);
    }
    let busy = plan(&conn, crate::places::tenants::BUSY, None);
    assert!(busy.iter().any(|line| line.contains("sessions_by_due")), "{busy:#?}");
    for line in busy.iter().filter(|line| line.contains(" s ")) {
        assert!(line.contains("USING COVERING INDEX") && line.contains("tenant=?"), "{busy:#?}");
    }
    let workspaces = lists_of_workspaces();
    let others = [read::OLDEST, read::NEWEST, crate::places::bindings::LIST];
    for sql in workspaces.iter().map(String::as_str).chain(others) {
        let plan = plan(&conn, sql, None);
        let outer = |line: &String| !line.starts_with("SCAN (subquery");
        let plan: Vec<_> = plan.into_iter().filter(outer).collect();
        assert_walks(sql, &plan);
    }
    // The check sees a sort and a scan where there is one.
    let sort = plan(&conn, "SELECT id FROM sessions WHERE tenant = 'a' ORDER BY title", None);
    assert!(sort.iter().any(|line| line.contains("TEMP B-TREE")), "{sort:#?}");
    let scan = plan(&conn, "SELECT title FROM sessions", None);
    assert!(scan.iter().any(|line| line.contains("SCAN")), "{scan:#?}");
}
