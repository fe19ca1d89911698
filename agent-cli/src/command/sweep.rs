//! `chat sweep`: retention rules by the age of sessions and workspaces.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::{Backend, WorkspaceId};
use agent_runtime::retention::{
    GcPolicy, GcReport, InactivityPolicy, RetentionPolicy, SweepAction, SweepPolicy, SweepReport,
};
use clap::ValueEnum;
use serde_json::json;

use super::consent::Consent;
use super::site::Site;
use super::tenants::AllTenants;
use super::workspace::{gc_rows, gc_value};
use crate::content::{read_text, shown};
use crate::failure::Result;
use crate::help::examples;
use crate::output::{Out, damage, pending, print_copies, retained_row, retained_value, tense};
use crate::screen::counted;

/// Heading of the rules in the help.
const RULES: &str = "Rules (at least one)";

/// Options of `chat sweep`.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "chat sweep <RULES> [OPTIONS]", after_help = examples!(
    "chat sweep --inactive 30 --dry-run",
    "chat sweep --inactive 90 --then terminate --delete-terminated 180 --yes",
    "chat sweep --policy retention.toml --all-tenants --dry-run",
))]
#[command(group = clap::ArgGroup::new("rules").required(true).multiple(true)
    .args(["inactive", "delete_terminated", "delete_archived", "purge_deleted", "policy"]))]
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
    /// TOML file with all rules, also those for unused workspaces and for the maintenance of the store
    #[arg(long, value_name = "FILE", help_heading = RULES,
        conflicts_with_all = ["inactive", "delete_terminated", "delete_archived", "purge_deleted", "workspace"])]
    policy: Option<PathBuf>,
    #[arg(skip)]
    read: Option<RetentionPolicy>,
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
    /// Reads the policy once, before anything is done for a tenant: a pipe cannot be read again.
    pub(super) fn read(&mut self) -> Result<()> {
        let Some(file) = &self.policy else { return Ok(()) };
        let text = read_text(file, RetentionPolicy::MAX_BYTES as u64)?;
        self.read = Some(RetentionPolicy::from_toml(&shown(file).display().to_string(), &text)?);
        Ok(())
    }

    fn rules(&self) -> RetentionPolicy {
        let mut policy = self.read.clone().unwrap_or_else(|| {
            let mut policy = RetentionPolicy::default();
            policy.sessions = self.of_options();
            policy
        });
        policy.sessions.report_recent = self.recent;
        if self.recent {
            policy.workspaces = policy.workspaces.map(GcPolicy::with_report_recent);
        }
        if self.dry_run { policy.with_dry_run() } else { policy }
    }

    fn of_options(&self) -> SweepPolicy {
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
        policy.workspace = self.workspace;
        policy
    }

    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let rules = self.rules();
        // A sweep that only suspends can be undone.
        if !self.dry_run && rules.removes() {
            self.consent.ask_or_preview("this sweep")?;
        }
        let report = site.manager.apply(&rules).await?;
        let collected = rules.workspaces.map(|rule| rule.older_than).zip(report.workspaces);
        self.print(site, collected.as_ref(), &report.sessions)
    }

    /// Maintains the store, if the policy says so, when all tenants are done.
    pub(super) async fn maintain(&self, out: &Out, store: &dyn Backend) -> Result<()> {
        if !self.rules().maintain {
            return Ok(());
        }
        if self.dry_run {
            out.note("(then what the store has put off would be done, as by `chat maintain`)");
            return Ok(());
        }
        let done = store.maintain().await?;
        if out.is_json() {
            out.result(&json!({"maintained": pending(&done)}), "");
        }
        done.iter().for_each(|it| out.note(&format!("done: {it}")));
        Ok(())
    }

    fn print(
        &self,
        site: &Site<'_>,
        collected: Option<&(Duration, GcReport)>,
        report: &SweepReport,
    ) -> Result<()> {
        let swept: Vec<_> = report
            .swept
            .iter()
            .map(|entry| json!({"session": entry.session, "action": action_name(entry.action)}))
            .collect();
        let retained: Vec<_> = report.retained.iter().map(retained_value).collect();
        let mut whole = json!({
            "dry_run": self.dry_run, "examined": report.examined, "swept": swept, "retained": retained,
            "damaged": damage(&report.damaged), "rewrite_pending": report.rewrite_pending,
        });
        let mut rows = Vec::new();
        if let Some((age, gc)) = collected {
            whole["workspaces"] = gc_value(gc, self.dry_run);
            rows = gc_rows(gc, *age, self.dry_run);
        }
        for entry in &report.swept {
            let what = tense(action_name(entry.action), self.dry_run);
            let why = format!("{} since {}", entry.state, entry.last_used);
            rows.push(vec![entry.session.to_string(), what, why]);
        }
        rows.extend(report.retained.iter().map(retained_row));
        if !rows.is_empty() || site.out.is_json() {
            let first = if collected.is_some() { "OBJECT" } else { "SESSION" };
            site.out.table(&whole, &[first, "WHAT", "WHY"], &rows);
        }
        self.print_counts(site, collected.map(|(_, gc)| gc), report)
    }

    fn print_counts(&self, site: &Site<'_>, gc: Option<&GcReport>, report: &SweepReport) -> Result<()> {
        if let Some(gc) = gc {
            site.out.note(&format!(
                "{} examined: {} {}, {} kept",
                counted(gc.examined, "workspace"),
                gc.collected.len() + gc.finished.len(),
                tense("deleted", self.dry_run),
                gc.retained.len()
            ));
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
        print_copies(&site.out, report.rewrite_pending || gc.is_some_and(|gc| gc.rewrite_pending));
        let mut damaged = gc.map_or_else(Vec::new, |gc| gc.damaged.clone());
        damaged.extend(report.damaged.iter().cloned());
        damaged.sort();
        damaged.dedup();
        site.named(&damaged)
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
