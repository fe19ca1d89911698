//! `chat sizes`.

use agent_admin::usage::{Usage, UsageBytes, usage};
use agent_core::json::{RawFields, RawJson};

use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::Result;
use crate::help::examples;
use crate::layout::{lines, terminal_width};
use crate::listing::{ShortIds, size, title_of};
use crate::output::damage;
use crate::pick::WorkspaceRef;
use crate::screen::counted;

/// Columns of the longest bar.
const BAR: u64 = 20;

/// Options of `chat sizes`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples!("chat sizes", "chat sizes --workspace ID --limit 100", "chat sizes --all-tenants --json"))]
pub(crate) struct SizesCommand {
    /// Count the sessions of a workspace only: its id, or the beginning or end of it
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceRef>,
    /// Maximum number of sessions, and of workspaces in the table, the largest first
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    #[command(flatten)]
    pub(super) tenants: AllTenants,
}

impl SizesCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let limit = usize::try_from(self.limit).unwrap_or(1000);
        let workspace = match &self.workspace {
            Some(workspace) => Some(site.workspace(workspace).await?),
            None => None,
        };
        let found = usage(&site.storage, workspace, limit).await?;
        let mut whole: RawFields = RawJson::sure(&found).to()?;
        whole.insert("damaged", RawJson::sure(&damage(&found.damaged)));
        let text = if site.out.is_json() { String::new() } else { tables(site, &found, limit).await };
        site.out.result(&whole, &text);
        let others = found.workspaces.len().saturating_sub(limit) as u64;
        if others > 0 {
            let of = counted(others, "smaller workspace");
            site.out.note(&format!("({of} not listed: --limit N)"));
        }
        site.named(&found.damaged)
    }
}

/// Returns the tables for people: by kind of content, by workspace, and of the largest sessions.
async fn tables(site: &Site<'_>, found: &Usage, limit: usize) -> String {
    let width = terminal_width();
    let mut all = lines(&["CONTENT", "SIZE", ""], &kinds(found, width.is_some()), width);
    if !found.workspaces.is_empty() {
        let ids = ShortIds::of(found.workspaces.iter().map(|workspace| workspace.workspace));
        let largest = found.workspaces.first().map_or(0, |workspace| workspace.bytes.total);
        let mut rows = Vec::new();
        for workspace in found.workspaces.iter().take(limit) {
            // A workspace that is not there any more has no name.
            let there = site.storage.workspaces.load(workspace.workspace).await;
            let mut row = sized(&workspace.bytes, largest, width.is_some());
            let name = there.map(|there| there.name).unwrap_or_default();
            row.extend([workspace.sessions.to_string(), ids.short(workspace.workspace), name]);
            rows.push(row);
        }
        all.push(String::new());
        all.extend(lines(&["SIZE", "", "SESSIONS", "WORKSPACE", "NAME"], &rows, width));
    }
    if !found.largest.is_empty() {
        let ids = ShortIds::of(found.largest.iter().map(|session| session.session));
        let largest = found.largest.first().map_or(0, |session| session.bytes.total);
        let rows = found.largest.iter().map(|session| {
            let title = title_of(session.bytes.search_index > 0, session.title.as_deref());
            let row = sized(&session.bytes, largest, width.is_some());
            row.into_iter().chain([ids.short(session.session), session.state.to_string(), title]).collect()
        });
        all.push(String::new());
        all.extend(lines(&["SIZE", "", "SESSION", "STATE", "TITLE"], &rows.collect::<Vec<_>>(), width));
    }
    all.join("\n")
}

fn kinds(found: &Usage, is_on_terminal: bool) -> Vec<Vec<String>> {
    let bytes = &found.bytes;
    let kinds = [
        ("messages", bytes.texts),
        ("results of tools", bytes.tool_results),
        ("reasoning", bytes.reasoning),
        ("files", bytes.blobs),
        ("search index", bytes.search_index),
    ];
    let largest = kinds.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let row = |(name, bytes): (&str, u64)| {
        let bar = if is_on_terminal { bar(bytes, largest) } else { String::new() };
        vec![name.to_owned(), size(bytes), bar]
    };
    let total = format!("total of {}", counted(found.sessions, "session"));
    kinds.into_iter().map(row).chain([vec![total, size(bytes.total)]]).collect()
}

/// Returns the first cells of a row: the size and its bar, which is empty in a pipe.
fn sized(bytes: &UsageBytes, largest: u64, is_on_terminal: bool) -> Vec<String> {
    let bar = if is_on_terminal { bar(bytes.total, largest) } else { String::new() };
    vec![size(bytes.total), bar]
}

/// Returns a bar whose length is the share of `bytes` in `largest`, to an eighth of a column. What is not zero is seen.
fn bar(bytes: u64, largest: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = u128::from(bytes) * u128::from(BAR * 8) / u128::from(largest.max(1));
    let eighths = usize::try_from(eighths).unwrap_or_default().max(usize::from(bytes > 0));
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS.get(eighths % 8).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest has the longest bar, half of it half the bar, and the least that is there a line.
    #[test]
    fn bars_show_shares() {
        assert_eq!(bar(80, 80), "█".repeat(20));
        assert_eq!(bar(40, 80), "█".repeat(10));
        assert_eq!(bar(1, u64::MAX), "▏");
        assert_eq!(bar(21, 80), format!("{}▎", "█".repeat(5)));
        assert_eq!((bar(0, 80), bar(0, 0)), (String::new(), String::new()));
        assert_eq!(bar(u64::MAX, u64::MAX), "█".repeat(20));
    }
}
