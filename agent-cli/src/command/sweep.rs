//! `chat sweep`: retention rules by the age of sessions.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_core::WorkspaceId;
use agent_runtime::retention::{InactivityPolicy, SweepAction, SweepPolicy};
use clap::ValueEnum;
use serde_json::json;

use super::consent::Consent;
use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::Result;
use crate::help::examples;
use crate::output::{damage, print_copies, retained_row, retained_value, tense};
use crate::screen::counted;

/// Heading of the rules in the help.
const RULES: &str = "Rules (at least one)";

/// Options of `chat sweep`.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "chat sweep <RULES> [OPTIONS]", after_help = examples!(
    "chat sweep --inactive 30 --dry-run",
    "chat sweep --inactive 90 --then terminate --delete-terminated 180 --yes",
))]
#[command(group = clap::ArgGroup::new("rules").required(true).multiple(true)
    .args(["inactive", "delete_terminated", "delete_archived", "purge_deleted"]))]
pub(crate) struct Sweep {
    /// Age in days from which sessions without events are suspended or terminated
    #[arg(long, value_name = "DAYS", help_heading = RULES)]
    inactive: Option<u64>,
    /// Treatment of inactive sessions
    #[arg(long, value_name = "WHAT", value_enum, default_value = "suspend", requires = "inactive", help_heading = RULES)]
    then: Then,
    /// Age in days from which terminated sessions are deleted
    #[arg(long, value_name = "DAYS", help_heading = RULES)]
    delete_terminated: Option<u64>,
    /// Age in days from which archived sessions are deleted
    #[arg(long, value_name = "DAYS", help_heading = RULES)]
    delete_archived: Option<u64>,
    /// Age in days from which the events of deleted sessions are removed, except those that forks read
    #[arg(long, value_name = "DAYS", help_heading = RULES)]
    purge_deleted: Option<u64>,
    /// Id of the only workspace to sweep (default: all workspaces)
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceId>,
    /// Report what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Also list the sessions that were used too recently, which reads every session
    #[arg(long)]
    recent: bool,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    pub(super) tenants: AllTenants,
}

/// Treatment of inactive sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Then {
    /// Suspend them; they can be resumed
    Suspend,
    /// Terminate them; they stay readable, but take no more messages
    Terminate,
}

impl Sweep {
    fn policy(&self) -> SweepPolicy {
        let days = |days: u64| Duration::from_secs(days.saturating_mul(24 * 3600));
        let mut policy = SweepPolicy::new();
        policy.inactive = self.inactive.map(|after| {
            let then = match self.then {
                Then::Suspend => InactivityPolicy::Suspend,
                Then::Terminate => InactivityPolicy::Terminate,
            };
            (days(after), then)
        });
        policy.delete_terminated = self.delete_terminated.map(days);
        policy.delete_archived = self.delete_archived.map(days);
        policy.purge_deleted = self.purge_deleted.map(days);
        (policy.workspace, policy.dry_run) = (self.workspace, self.dry_run);
        policy.report_recent = self.recent;
        policy
    }

    /// Returns whether the sweep can be undone.
    fn is_harmless(&self) -> bool {
        let removes = self.delete_terminated.or(self.delete_archived).or(self.purge_deleted).is_some();
        self.dry_run || !(removes || (self.inactive.is_some() && self.then == Then::Terminate))
    }

    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        if !self.is_harmless() {
            self.consent.ask_or_preview("this sweep")?;
        }
        let report = site.manager.sweep(&self.policy()).await?;
        let swept: Vec<_> = report
            .swept
            .iter()
            .map(|entry| json!({"session": entry.session, "action": action_name(entry.action)}))
            .collect();
        let retained: Vec<_> = report.retained.iter().map(retained_value).collect();
        let whole = json!({
            "dry_run": self.dry_run, "examined": report.examined, "swept": swept, "retained": retained,
            "damaged": damage(&report.damaged), "rewrite_pending": report.rewrite_pending,
        });
        let mut rows = Vec::new();
        for entry in &report.swept {
            let what = tense(action_name(entry.action), self.dry_run);
            let why = format!("{} since {}", entry.state, entry.last_used);
            rows.push(vec![entry.session.to_string(), what, why]);
        }
        rows.extend(report.retained.iter().map(retained_row));
        if !rows.is_empty() || site.out.is_json() {
            site.out.table(&whole, &["SESSION", "WHAT", "WHY"], &rows);
        }
        // A session may be purged in part, and is then in both lists.
        let kept: BTreeSet<_> = report.retained.iter().map(|it| it.id).collect();
        let changed: BTreeSet<_> = report.swept.iter().map(|it| it.session).collect();
        let kept = kept.difference(&changed).count() as u64;
        let what = tense("changed", self.dry_run);
        site.out.note(&format!(
            "{} examined: {} {what}, {kept} kept",
            counted(report.examined, "session"),
            changed.len()
        ));
        print_copies(&site.out, report.rewrite_pending);
        site.named(&report.damaged)
    }
}

/// Returns the name of an action, in the past tense.
const fn action_name(action: SweepAction) -> &'static str {
    match action {
        SweepAction::Suspended => "suspended",
        SweepAction::Terminated => "terminated",
        SweepAction::Deleted => "deleted",
        _ => "purged",
    }
}
