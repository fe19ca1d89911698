//! `chat session list`.

use agent_core::Timestamp;
use agent_core::model::Actor;
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{Cursor, Page, SessionQuery};

use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::Result;
use crate::layout::terminal_width;
use crate::listing::{ShortIds, age, last_message, size, title, title_cell};
use crate::pick::WorkspaceRef;
use crate::zone::{GivenTime, Zone};

/// Options of `chat session list`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListCommand {
    /// Workspace id (default: all workspaces)
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceRef>,
    /// State of the sessions; can be repeated (default: all but archived and deleted)
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Vec<SessionState>,
    /// Label of the sessions; can be repeated, and all of them must match
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,
    /// Creator of the sessions: user:NAME, agent:NAME, system:NAME, or one of these without a name
    #[arg(long, value_name = "ACTOR")]
    creator: Option<Actor>,
    /// List the sessions that were last used at this time or later: a day (2026-11-28), a local time (2026-11-28T10:00), or
    /// an age (30min, 2h, 3d, 4w)
    #[arg(long, value_name = "TIME")]
    since: Option<GivenTime>,
    /// List the sessions that were last used before this time; for a day, until its end
    #[arg(long, value_name = "TIME")]
    until: Option<GivenTime>,
    /// Include archived, deleted and hidden sessions
    #[arg(long, conflicts_with = "state")]
    all: bool,
    /// Show the whole ids of sessions and workspaces
    #[arg(long)]
    ids: bool,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value = "50")]
    limit: usize,
    /// Cursor of the next page, as the previous page printed it
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
    /// Count all sessions of the list (`total` in JSON). Without it they are counted on stores where that reads no
    /// sessions, so not in a bucket. Lists by time are not counted
    #[arg(long, conflicts_with_all = ["since", "until"])]
    total: bool,
    #[command(flatten)]
    pub(super) tenants: AllTenants,
}

fn state(text: &str) -> Result<SessionState, String> {
    let known = || SessionState::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let found = SessionState::ALL.iter().find(|state| state.to_string() == text);
    found.copied().ok_or_else(|| format!("unknown state; the states are {}", known()))
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label has the form KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl ListCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let zone = Zone::now();
        let since = self.since.map(|since| since.at(zone.now, false));
        let until = self.until.map(|until| until.at(zone.now, true));
        let page = self.read(site, since, until).await?;
        // The next page must have the same time, while that of an age goes on.
        let again = match (self.until, until) {
            (Some(GivenTime::Age(_)), Some(until)) => format!("--until {until} "),
            _ => String::new(),
        };
        let (headings, rows) = self.table(&page.items, zone.now);
        site.page_by(&page, &again, |whole| site.out.cut_table(whole, &headings, &rows))
    }

    /// Reads the page. Of the two times, a store has an index for the later one, from which the list goes on to older sessions.
    async fn read(
        &self,
        site: &Site<'_>,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Result<Page<SessionSummary>> {
        let mut query = SessionQuery::new()
            .with_states(self.state.iter().copied())
            .with_limit(self.limit)
            .with_cursor(self.after.clone());
        let is_timed = since.is_some() || until.is_some();
        query.with_total = !is_timed && (self.total || !site.args.address()?.is_bucket());
        if self.all {
            query = query.with_hidden();
        }
        if let Some(workspace) = &self.workspace {
            query.workspace = Some(site.workspace(workspace).await?);
        }
        query.creator = self.creator.clone();
        query.inactive_since = until;
        query.labels.extend(self.label.iter().cloned());
        let sessions = &site.storage.sessions;
        let mut page = sessions.list(query).await?;
        if let Some(until) = until {
            // The store also lists sessions with an age of their own, whenever they were used.
            page.items.retain(|session| session.last_active_at < until);
        }
        if let Some(since) = since {
            // A list may have a session behind its place, by at most this time: behind an older one nothing belongs here.
            let lag = i64::try_from(sessions.capabilities().recency.as_micros()).unwrap_or(i64::MAX);
            page.next = page.next.filter(|_| {
                page.items.iter().all(|session| session.last_active_at.plus_micros(lag) >= since)
            });
            page.items.retain(|session| session.last_active_at >= since);
        }
        Ok(page)
    }

    /// Whether the rows are those of the list whose numbers other commands take: a number of another list would be that of
    /// another session.
    fn is_numbered(&self) -> bool {
        let Self { workspace, state, label, creator, since, until, all, after, .. } = self;
        let is_filtered = workspace.is_some() || creator.is_some() || since.is_some() || until.is_some();
        !is_filtered && state.is_empty() && label.is_empty() && !all && after.is_none()
    }

    /// Returns the headings and the rows for people.
    fn table(&self, sessions: &[SessionSummary], now: Timestamp) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let (ids, width) = (ShortIds::of(sessions.iter().map(|session| session.id)), terminal_width());
        let rows = (1..).zip(sessions).map(|(number, session)| {
            let number = self.is_numbered().then(|| format!("{number}"));
            let workspace = self.ids.then(|| session.workspace.to_string());
            let id = if self.ids { session.id.to_string() } else { ids.short(session.id) };
            let rest = [
                age(now, session.last_active_at),
                session.status.state.to_string(),
                session.counts.messages().to_string(),
                size(session.content_bytes.total()),
                title_cell(&title(session), width),
                last_message(session),
            ];
            number.into_iter().chain([id]).chain(workspace).chain(rest).collect()
        });
        let number = self.is_numbered().then_some("#");
        let workspace = self.ids.then_some("WORKSPACE");
        let rest = ["USED", "STATE", "MESSAGES", "SIZE", "TITLE", "LAST MESSAGE"];
        (number.into_iter().chain(["ID"]).chain(workspace).chain(rest).collect(), rows.collect())
    }
}
