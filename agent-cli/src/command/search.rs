//! `chat search` and `chat index`.

use agent_core::search::{Hit, Search};
use agent_core::store::Cursor;
use serde_json::json;

use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::Result;
use crate::help::examples;
use crate::pick::{SessionRef, WorkspaceRef};
use crate::screen::counted;
use crate::zone::{Zone, second};

/// Options of `chat search`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples!("chat search deploy failed", "chat search '\"exit code 1\" -staging' --json"))]
pub(crate) struct SearchCommand {
    /// Words to look for; in one argument, if a word has a minus or quotes
    #[arg(required = true, value_name = "WORDS")]
    words: Vec<String>,
    /// Search the sessions of a workspace only
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceRef>,
    /// Search one session only: id, beginning or end of it, or number in `chat session list`
    #[arg(long = "in", value_name = "SESSION")]
    session: Option<SessionRef>,
    /// Maximum number of hits
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    /// Cursor of the next page, as the previous page printed it
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
    #[command(flatten)]
    pub(super) tenants: AllTenants,
}

impl SearchCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let limit = usize::try_from(self.limit).unwrap_or(1000);
        let mut search = Search::new(self.words.join(" ")).with_limit(limit).with_cursor(self.after);
        if let Some(workspace) = &self.workspace {
            search.workspace = Some(site.workspace(workspace).await?);
        }
        if let Some(session) = &self.session {
            search.session = Some(site.session(session).await?);
        }
        let page = site.storage.sessions.search(&search).await?;
        let zone = Zone::now();
        let rows: Vec<_> = page.hits.iter().map(|hit| row(&zone, hit)).collect();
        site.out.table(&page, &[&zone.heading("TIME"), "SESSION", "EVENT", "ACTOR", "TEXT"], &rows);
        match (&page.next, page.searched_through) {
            (Some(next), Some(until)) => {
                site.out.note(&format!("(searched back to {}; go on: --after {next})", second(until)));
            }
            (Some(next), None) => site.out.note(&format!("(more hits: --after {next})")),
            (None, _) if page.hits.is_empty() => site.out.note("(nothing was found)"),
            (None, _) => {}
        }
        site.named(&page.damaged)
    }
}

/// Options of `chat index`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples!("chat index --all-tenants", "chat index --remove"))]
pub(crate) struct IndexCommand {
    /// Remove the index
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    pub(super) tenants: AllTenants,
}

impl IndexCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let sessions = &site.storage.sessions;
        if self.remove {
            let removed = sessions.remove_search_index().await?;
            let text = match removed {
                0 => "there is no search index",
                _ => "the search index is removed",
            };
            site.out.result(&json!({"removed": removed > 0}), text);
            return Ok(());
        }
        let updated = sessions.update_search_index().await?;
        let (events, of) = (counted(updated.events, "event"), counted(updated.sessions, "session"));
        let text = match updated.is_overtaken {
            true => "another process updates the search index; this one has given up".to_owned(),
            false => format!("new in the search index: {events}, of {of}"),
        };
        site.out.result(&updated, &text);
        if !updated.is_complete && !updated.is_overtaken {
            site.out.note("(some sessions are damaged and not in it; `chat verify` names them)");
        }
        if updated.leftovers > 0 {
            let count = updated.leftovers;
            site.out.note(&format!("({count} former parts of it keep their bytes, since a damaged session may be a fork of any other: see `chat verify`)"));
        }
        Ok(())
    }
}

fn row(zone: &Zone, hit: &Hit) -> Vec<String> {
    let (time, text) = (zone.minute(hit.at), hit.snippet.marked("**"));
    vec![time, hit.session.to_string(), hit.seq.to_string(), hit.actor.to_string(), text]
}
