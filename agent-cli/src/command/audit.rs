//! `chat audit`.

use agent_admin::audit::{Audit, AuditEntry};
use agent_core::Seq;
use serde_json::json;

use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::Result;
use crate::help::examples;
use crate::output::Out;
use crate::screen::counted;
use crate::zone::second;

/// Options of `chat audit`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples!("chat audit", "chat audit --limit 1000 --json"))]
pub(crate) struct AuditCommand {
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    pub(super) tenants: AllTenants,
}

/// Which entries are shown.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Rows {
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    /// Number of the next page, as the previous page printed it
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
}

impl AuditCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        self.rows.print(&site.out, &Audit::of(&site.storage)).await
    }
}

impl Rows {
    /// Prints entries of an audit.
    pub(super) async fn print(&self, out: &Out, audit: &Audit) -> Result<()> {
        let limit = usize::try_from(self.limit).unwrap_or(1000);
        let page = audit.list(limit, self.after.map(Seq::new)).await?;
        let rows: Vec<_> = page.entries.iter().map(row).collect();
        let item = |entry: &AuditEntry| json!({"seq": entry.seq, "at": entry.at, "by": entry.by, "noted": entry.audited});
        let items: Vec<_> = page.entries.iter().map(item).collect();
        let whole = json!({"items": items, "next": page.next});
        out.table(&whole, &["TIME", "ACTOR", "OPERATION", "OUTCOME", "OBJECT"], &rows);
        if let Some(next) = page.next {
            out.note(&format!("(more rows: --after {next})"));
        }
        Ok(())
    }
}

fn row(entry: &AuditEntry) -> Vec<String> {
    let audited = &entry.audited;
    let outcome = audited.outcome.map_or("started", |outcome| outcome.as_str());
    let outcome = match &audited.error {
        Some(error) => format!("{outcome}: {error}"),
        None => outcome.to_owned(),
    };
    let removed = audited.removed.map(|it| {
        let (workspaces, sessions) = (counted(it.workspaces, "workspace"), counted(it.sessions, "session"));
        format!("{workspaces}, {sessions}, {}", counted(it.devices, "device"))
    });
    let on = [
        audited.tenant.as_ref().map(|tenant| format!("tenant {tenant}")),
        removed,
        audited.device.as_ref().map(|device| format!("device {device}")),
        audited.session.map(|id| format!("session {id}")),
        audited.workspace.map(|id| format!("workspace {id}")),
    ];
    let on: Vec<_> = on.into_iter().flatten().collect();
    vec![second(entry.at), entry.by.to_string(), audited.operation.to_string(), outcome, on.join(", ")]
}
