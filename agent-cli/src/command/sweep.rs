//! `chat sweep`: sessions by their age.

use std::time::Duration;

use agent_core::WorkspaceId;
use agent_runtime::retention::{Act, Inactive, SweepPolicy};
use clap::ValueEnum;
use serde_json::json;

use super::consent::Consent;
use super::output::damage;
use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::Failure;

/// Each rule says after how many days. What is pinned stays as it is, and no run is ended. Without a rule nothing is done.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("rules").required(true).multiple(true)
    .args(["inactive", "delete_terminated", "delete_archived", "purge_deleted"]))]
pub(crate) struct Sweep {
    /// Set sessions aside in which nothing has happened for so many days
    #[arg(long, value_name = "DAYS")]
    inactive: Option<u64>,
    /// What becomes of sessions in which nothing happens
    #[arg(long, value_name = "WHAT", value_enum, default_value = "suspend", requires = "inactive")]
    then: Then,
    /// Delete sessions that were ended more than so many days ago
    #[arg(long, value_name = "DAYS")]
    delete_terminated: Option<u64>,
    /// Delete sessions that were archived more than so many days ago
    #[arg(long, value_name = "DAYS")]
    delete_archived: Option<u64>,
    /// Remove the bytes of sessions that were deleted more than so many days ago, but for what their forks read
    #[arg(long, value_name = "DAYS")]
    purge_deleted: Option<u64>,
    /// Only sessions of this workspace
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceId>,
    /// Only say what would be done, and what protects the rest
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    tenants: AllTenants,
}

/// What becomes of sessions in which nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Then {
    /// They are set aside, and can be resumed
    Suspend,
    /// They are over, and stay readable
    Terminate,
}

impl Sweep {
    pub(super) fn tenants(&self) -> &AllTenants {
        &self.tenants
    }

    fn policy(&self) -> SweepPolicy {
        let days = |days: u64| Duration::from_secs(days.saturating_mul(24 * 3600));
        let mut policy = SweepPolicy::new();
        policy.inactive = self.inactive.map(|after| {
            let then = match self.then {
                Then::Suspend => Inactive::Suspend,
                Then::Terminate => Inactive::Terminate,
            };
            (days(after), then)
        });
        policy.delete_terminated = self.delete_terminated.map(days);
        policy.delete_archived = self.delete_archived.map(days);
        policy.purge_deleted = self.purge_deleted.map(days);
        (policy.workspace, policy.dry_run) = (self.workspace, self.dry_run);
        policy
    }

    /// Whether all that it does can be taken back.
    fn is_harmless(&self) -> bool {
        let removes = self.delete_terminated.or(self.delete_archived).or(self.purge_deleted).is_some();
        self.dry_run || !(removes || (self.inactive.is_some() && self.then == Then::Terminate))
    }

    pub(super) async fn run(self, site: &Site<'_>) -> Result<(), Failure> {
        if !self.is_harmless() {
            self.consent.ask("a sweep")?;
        }
        let report = site.manager.sweep(&self.policy()).await?;
        let act = |act: Act| match act {
            Act::Suspended => "suspended",
            Act::Terminated => "terminated",
            Act::Deleted => "deleted",
            _ => "purged",
        };
        let swept: Vec<_> =
            report.swept.iter().map(|it| json!({"session": it.session, "act": act(it.act)})).collect();
        let kept: Vec<_> =
            report.kept.iter().map(|kept| json!({"id": kept.id, "by": kept.by.to_string()})).collect();
        let whole = json!({
            "dry_run": self.dry_run, "swept": swept, "kept": kept, "damaged": damage(&report.damaged),
        });
        let mut rows = Vec::new();
        for it in &report.swept {
            let done = if self.dry_run { "would be " } else { "" };
            rows.push(vec![it.session.to_string(), format!("{done}{}", act(it.act)), String::new()]);
        }
        for kept in &report.kept {
            rows.push(vec![kept.id.to_string(), "kept".to_owned(), kept.by.to_string()]);
        }
        if rows.is_empty() && !site.out.is_json() {
            site.out.note("(nothing to sweep)");
        } else {
            site.out.table(&whole, &["ID", "WHAT", "WHY"], &rows);
        }
        super::session::named(site, &report.damaged)
    }
}
