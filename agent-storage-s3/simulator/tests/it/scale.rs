//! Requests of the same operations among few and many sessions: the table and the plot in the docs, counted.

use std::fmt::Write;
use std::sync::Arc;

use agent_core::commit::{Commit, Precondition};
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Patch, Role, Workspace};
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::store::{BindingQuery, SessionQuery, WorkspaceQuery};
use agent_core::{BindingStore, SessionStore, Timestamp, WorkspaceId, WorkspaceStore, WorkspaceStoreExt};
use agent_storage_s3::S3Store;
use s3_simulator::{Counts, SimulatedClock, Simulator};

use crate::backend::config;

const START: Timestamp = Timestamp::from_micros(1_771_151_400_000_000);
/// Time of the last activity of the sessions that are not in use: two days before.
const BEFORE: Timestamp = Timestamp::from_micros(1_771_151_400_000_000 - 2 * 86_400_000_000);

const PAGE: &str = include_str!("../../../FORMAT.md");
/// The columns of the table.
const SIZES: [usize; 3] = [100, 10_000, 100_000];
/// Operations of the table that cost more among more sessions: they count all.
const GROWS: &str = "list a page of 50, with the total, cold";
const ALL_GROW: [&str; 2] = [GROWS, "list a page of 50 workspaces, with the total"];

/// Counts each operation in a tenant with this number of sessions, and as many workspaces and devices.
async fn counted(sessions: usize) -> Vec<(&'static str, Counts)> {
    let simulator = Simulator::new(1);
    let effects = agent_core::clock::Effects::seeded(1, START);
    let earlier = effects.clone().with_clock(Arc::new(SimulatedClock::new(BEFORE)));
    let config = || config(&simulator, "handle").with_option("index", "label.project,creator").unwrap();
    let open = async || config().with_effects(effects.clone()).open().await.unwrap();
    let store = open().await;
    let alice = Actor::named(Role::User, "alice").unwrap();
    let (own, other) = (effects.new_workspace_id(), effects.new_workspace_id());
    let mut id = effects.new_session_id();
    for n in 0..sessions {
        // Half of the sessions is in the workspace that is looked at.
        let workspace = if n % 2 == 0 { own } else { other };
        id = effects.new_session_id();
        let new = NewSession::new(id, workspace);
        // The other half has the label and the creator that are looked for.
        let project = Patch::new().with_label("project", ["blue", "red"][n % 2]);
        // The first ones were used two days ago, and not since.
        let clock = if n < 60 { &earlier } else { &effects };
        let creation = Commit::create(clock, new.with_patch(&project));
        store.commit(creation.with_actor([Actor::SYSTEM, alice.clone()][n % 2].clone())).await.unwrap();
        let workspace = Workspace::new(effects.new_workspace_id(), "name", id, effects.now());
        store.create(workspace).await.unwrap();
        let to = if n < 10 { own } else { WorkspaceId::DEFAULT };
        store.bind(&format!("device {n}").parse().unwrap(), to, Precondition::MustNotExist).await.unwrap();
    }
    let mut all = Vec::new();
    let mut note = |what, before| all.push((what, simulator.counts_since(before)));
    let listed = async |store: &S3Store, query: SessionQuery, found: usize| {
        let page = SessionStore::list(store, query).await.unwrap();
        assert_eq!(page.items.len(), found);
    };
    for (what, query) in [
        ("list a page of 50, cold", SessionQuery::new()),
        ("list a page of 50 of a workspace, cold", SessionQuery::new().with_workspace(own)),
        (
            "list a page of 50 by an indexed label, cold",
            SessionQuery::new().with_label("project", "red").with_workspace(other),
        ),
        ("list a page of 50 by the creator, indexed, cold", SessionQuery::new().with_creator(alice)),
        (
            "list a page of 50 that were not used for a day, cold",
            SessionQuery::new().with_inactive_since(BEFORE.plus_micros(86_400_000_000)),
        ),
        (GROWS, SessionQuery::new().with_total()),
    ] {
        let cold = open().await;
        let before = simulator.requests();
        listed(&cold, query.with_limit(50), 50).await;
        note(what, before);
    }
    let before = simulator.requests();
    listed(&store, SessionQuery::new().with_states([SessionState::Failed]), 0).await;
    note("list the failed sessions, of which there are none", before);
    let before = simulator.requests();
    listed(&store, SessionQuery::new().with_states([SessionState::Running]), 0).await;
    note("list the sessions that run, of which there are none", before);
    let before = simulator.requests();
    listed(&store, SessionQuery::new().with_due(effects.now()), 0).await;
    note("list the sessions that are due, of which there are none", before);
    for (what, query) in [
        ("list a page of 50 workspaces", WorkspaceQuery::new()),
        (ALL_GROW[1], WorkspaceQuery::new().with_total()),
    ] {
        let before = simulator.requests();
        let page = WorkspaceStore::list(&store, query.with_limit(50)).await.unwrap();
        assert!(page.items.len() == 50 && page.total.is_none_or(|total| total == sessions as u64));
        note(what, before);
    }
    let before = simulator.requests();
    let page = BindingStore::list(&store, BindingQuery::new().with_limit(50)).await.unwrap();
    assert_eq!(page.items.len(), 50);
    note("list a page of 50 devices of all workspaces", before);
    let before = simulator.requests();
    BindingStore::list(&store, BindingQuery::new().with_workspace(own)).await.unwrap();
    note("list the 10 devices of a workspace", before);
    let before = simulator.requests();
    assert_eq!(store.unbind_workspace(own).await.unwrap(), 10);
    note("unbind a workspace of 10 devices", before);
    let cold = open().await;
    let before = simulator.requests();
    let session = SessionStore::load(&cold, id).await.unwrap();
    note("load a session, cold", before);
    let before = simulator.requests();
    let append = Commit::seal(&effects, id, session.head).with_event(NewEvent::user_message("hello"));
    cold.commit(append).await.unwrap();
    note("commit an input to it", before);
    all
}

/// The table in FORMAT.md: each operation with the requests in each column.
fn table() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = PAGE.split("| Operation | 100 sessions |").nth(1).unwrap().lines().skip(2);
    let cells =
        |row: &'static str| row.trim_matches(|c| c == '|' || c == ' ').split(" | ").collect::<Vec<_>>();
    rows.take_while(|row| row.starts_with("| ")).map(cells).map(|row| (row[0], row[1..].to_vec())).collect()
}

fn compare(column: usize, counted: &[(&'static str, Counts)]) {
    let ours: Vec<_> = counted.iter().map(|(what, counts)| (*what, counts.to_string())).collect();
    let its: Vec<_> = table().into_iter().map(|(what, cells)| (what, cells[column].to_owned())).collect();
    assert_eq!(ours, its, "among {} sessions: counted, and in the table", SIZES[column]);
}

/// What an operation costs does not depend on how many sessions and devices there are, but for totals.
#[tokio::test(start_paused = true)]
async fn costs_do_not_grow_with_the_sessions() {
    for (column, size) in SIZES.into_iter().enumerate().take(2) {
        compare(column, &counted(size).await);
    }
    let table = table();
    for (what, cells) in &table {
        assert!(ALL_GROW.contains(what) || cells.iter().all(|cell| cell == &cells[0]), "{what}: {cells:?}");
    }
    assert_eq!(table.iter().filter(|(what, _)| ALL_GROW.contains(what)).count(), ALL_GROW.len());
}

/// The same for many more sessions.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes: .ci/full"]
async fn costs_of_100000_sessions_are_those_of_100() {
    compare(2, &counted(SIZES[2]).await);
}

/// The number of requests in a cell such as `2 GET + 1 LIST`.
fn total(cell: &str) -> f64 {
    let counts =
        cell.split(" + ").filter_map(|part| part.split(' ').next()?.replace(',', "").parse::<f64>().ok());
    counts.sum()
}

/// The plot in the docs: requests against sessions, both logarithmic.
fn plot(table: &[(&str, Vec<&str>)]) -> String {
    const COLORS: [&str; 5] = ["#0b6e4f", "#c0392b", "#1f6fb2", "#8e44ad", "#b9770e"];
    let shown = [
        "list a page of 50, cold",
        GROWS,
        "list the sessions that are due, of which there are none",
        "list the 10 devices of a workspace",
        "commit an input to it",
    ];
    let x = |sessions: usize| 70.0 + 110.0 * ((sessions as f64).log10() - 2.0);
    let y = |requests: f64| 340.0 - 55.0 * requests.log10();
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 390\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"760\" height=\"390\" fill=\"#fff\"/>\n",
    );
    for power in 0..=5 {
        let (at, label) = (y(10_f64.powi(power)), 10_u64.pow(power as u32));
        let _ = writeln!(
            svg,
            "<path d=\"M70 {at:.0}H400\" stroke=\"#ddd\"/><text x=\"62\" y=\"{:.0}\" text-anchor=\"end\">{label}</text>",
            at + 4.0
        );
    }
    for size in SIZES {
        let _ = writeln!(svg, "<text x=\"{:.0}\" y=\"362\" text-anchor=\"middle\">{size}</text>", x(size));
    }
    svg.push_str("<text x=\"235\" y=\"382\" text-anchor=\"middle\">sessions of the tenant</text>\n<text x=\"70\" y=\"24\">requests of one operation</text>\n");
    for (n, what) in shown.into_iter().enumerate() {
        let (_, cells) = table.iter().find(|(row, _)| *row == what).expect("a row of the table");
        let points: Vec<_> = SIZES
            .iter()
            .zip(cells)
            .map(|(size, cell)| format!("{:.1} {:.1}", x(*size), y(total(cell))))
            .collect();
        let end = y(total(cells.last().expect("a column")));
        let color = COLORS[n];
        let _ = writeln!(
            svg,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
            points.join("L")
        );
        let _ = writeln!(svg, "<text x=\"408\" y=\"{:.0}\" fill=\"{color}\">{what}</text>", end + 4.0);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The plot in the docs shows the table. With `WRITE_PLOT` it is written.
#[test]
fn plot_shows_the_table() {
    let (path, plot) = (concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/s3-requests.svg"), plot(&table()));
    if std::env::var_os("WRITE_PLOT").is_some() {
        std::fs::write(path, &plot).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), plot);
}
