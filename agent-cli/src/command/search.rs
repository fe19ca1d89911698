//! `chat search` and `chat index`.

use agent_core::search::{Hit, Search};
use agent_core::store::Cursor;
use agent_core::{SessionId, WorkspaceId};
use serde_json::json;

use super::site::Site;
use crate::failure::Result;
use crate::help::examples;
use crate::screen::minute;

/// Options of `chat search`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples!("chat search deploy failed", "chat search '\"exit code 1\" -staging' --json"))]
pub(crate) struct SearchCommand {
    /// Words to look for; in one argument, if a word has a minus or quotes
    #[arg(required = true, value_name = "WORDS")]
    words: Vec<String>,
    /// Search the sessions of a workspace only
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceId>,
    /// Search one session only
    #[arg(long = "in", value_name = "SESSION")]
    session: Option<SessionId>,
    /// Maximum number of hits
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    /// Cursor of the next page, as the previous page printed it
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

impl SearchCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let limit = usize::try_from(self.limit).unwrap_or(1000);
        let mut search = Search::new(self.words.join(" ")).with_limit(limit).with_cursor(self.after);
        (search.workspace, search.session) = (self.workspace, self.session);
        let page = site.storage.sessions.search(&search).await?;
        let rows: Vec<_> = page.hits.iter().map(row).collect();
        site.out.table(&page, &["TIME", "SESSION", "EVENT", "ACTOR", "TEXT"], &rows);
        match (&page.next, page.searched_through) {
            (Some(next), Some(until)) => {
                site.out.note(&format!("(searched back to {}; go on: --after {next})", minute(until)));
            }
            (Some(next), None) => site.out.note(&format!("(more hits: --after {next})")),
            (None, _) if page.hits.is_empty() => site.out.note("(nothing was found)"),
            (None, _) => {}
        }
        site.named(&page.damaged)
    }
}

/// Options of `chat index`.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(after_help = examples!("chat index", "chat index --remove"))]
pub(crate) struct IndexCommand {
    /// Remove the index
    #[arg(long)]
    remove: bool,
}

impl IndexCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let sessions = &site.storage.sessions;
        if self.remove {
            sessions.remove_search_index().await?;
            site.out.result(&json!({"removed": true}), "the search index is removed");
            return Ok(());
        }
        let updated = sessions.update_search_index().await?;
        let text =
            format!("{} new events of {} sessions are in the search index", updated.events, updated.sessions);
        site.out.result(&updated, &text);
        if !updated.is_complete {
            site.out.note("(not all sessions are in it: another process updates it, or some are damaged, which `chat verify` names)");
        }
        Ok(())
    }
}

fn row(hit: &Hit) -> Vec<String> {
    let (time, text) = (minute(hit.at), hit.snippet.marked("**"));
    vec![time, hit.session.to_string(), hit.seq.to_string(), hit.actor.to_string(), text]
}
