//! `chat copy`.

use agent_admin::copy::{CopyCounts, CopyReport, CopyStage, StoreCopy};
use agent_core::{TenantId, WorkspaceId};
use clap::Args as Options;
use serde_json::{Value, json};

use super::tenants::{AllTenants, choose};
use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::output::{Out, damage, line, unread};
use crate::progress::{Bar, Progress};
use crate::screen::counted;
use crate::stores::{Address, copy_address};

/// Options of `chat copy`.
#[derive(Clone, Debug, Options)]
#[command(after_help = examples!(
    "chat copy files:./notes sqlite:./notes.db",
    "chat copy files:./notes s3://my-bucket/notes --all-tenants --progress lines",
    "chat copy sqlite:./notes.db postgres://agent@localhost/agents --all-tenants",
))]
pub(crate) struct Copy {
    /// Source store: files:PATH, sqlite:PATH, s3://BUCKET/PREFIX or postgres://USER@HOST/DATABASE
    #[arg(value_name = "FROM", value_parser = copy_address)]
    from: Address,
    /// Target store
    #[arg(value_name = "TO", value_parser = copy_address)]
    to: Address,
    /// Id of the only workspace to copy (default: all workspaces)
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceId>,
    /// Copy all tenants, each to the tenant of the same name (default: the tenant of --tenant)
    #[arg(long, conflicts_with_all = ["workspace", "tenant"])]
    all_tenants: bool,
    /// Compare the lists of both stores, and read only sessions that they do not show alike, for a copy that is brought up to date
    #[arg(long)]
    changed: bool,
    /// Progress output on standard error
    #[arg(long, value_enum, default_value = "auto")]
    progress: Progress,
    /// Whether it is the restore of a backup.
    #[arg(skip)]
    fences: bool,
}

impl Copy {
    /// A copy of one tenant.
    pub(super) fn of_tenant(from: Address, to: Address, progress: Progress) -> Self {
        Self { from, to, workspace: None, all_tenants: false, changed: false, progress, fences: false }
    }

    /// A backup of all tenants, which is brought up to date.
    pub(super) fn backup(from: Address, to: Address, progress: Progress) -> Self {
        Self { all_tenants: true, changed: true, ..Self::of_tenant(from, to, progress) }
    }

    /// The restore of a backup, of all tenants.
    pub(super) fn restore(from: Address, to: Address, progress: Progress) -> Self {
        Self { all_tenants: true, fences: true, ..Self::of_tenant(from, to, progress) }
    }

    /// Copies this tenant, or those that the options choose.
    pub(super) async fn run(self, args: &Args, tenant: Option<&TenantId>) -> Result<()> {
        if self.from.overlaps(&self.to) {
            let text = format!(
                "cannot copy {} into itself: {} is the same store, or one contains the other; name another target",
                self.from.shown(),
                self.to.shown()
            );
            return Err(Failure::new(2, "invalid_input", text));
        }
        // The source is opened first, so that no target is created if it does not exist.
        let (from, converted) = self.from.source().await?;
        let wanted = AllTenants { all_tenants: self.all_tenants };
        let chosen = choose(&*from, tenant, Some(&wanted), true).await?;
        let to = self.to.tenants().await?;
        let mut report = CopyReport::default();
        report.damaged.extend(chosen.damaged.iter().cloned());
        for tenant in &chosen.tenants {
            let bar = Bar::new(self.progress);
            let mut copy =
                StoreCopy::new(from.tenant(tenant), to.tenant(tenant)).with_progress(move |progress| {
                    let what = match progress.stage {
                        CopyStage::Workspaces => "workspaces",
                        CopyStage::Sessions => "sessions",
                        CopyStage::Deletions => "deletions",
                        _ => "bindings",
                    };
                    bar.report(what, progress.done, progress.total);
                });
            if let Some(id) = self.workspace {
                copy = copy.with_workspace(id);
            }
            if self.changed {
                copy = copy.with_changed_only();
            }
            if self.fences {
                copy = copy.with_fences();
            }
            add(&mut report, copy.run().await?, self.all_tenants.then_some(tenant));
        }
        from.close().await?;
        to.close().await?;
        drop(converted);
        let out = Out::new(args.json);
        let mut whole = value(&report);
        whole["other_tenants"] = json!(chosen.others);
        out.result(&whole, &summary(&report));
        chosen.print_omitted(&out);
        if !out.is_json() {
            for damage in &report.damaged {
                line(&format!("not copied from the source, {}", unread(damage)));
            }
            for refused in &report.refused {
                line(&format!("not copied: {refused}"));
            }
        }
        if report.is_whole() {
            return Ok(());
        }
        Err(Failure::incomplete(not_copied(&report)))
    }
}

/// Adds the report of one tenant; prefixes objects with the tenant, if there are several.
fn add(sum: &mut CopyReport, report: CopyReport, tenant: Option<&TenantId>) {
    let CopyReport {
        copied,
        present,
        fenced,
        events,
        bytes,
        blobs,
        blob_bytes,
        mut damaged,
        mut refused,
        ..
    } = report;
    for (sum, one) in [(&mut sum.copied, copied), (&mut sum.present, present)] {
        sum.workspaces += one.workspaces;
        sum.sessions += one.sessions;
        sum.bindings += one.bindings;
    }
    sum.fenced += fenced;
    sum.events += events;
    sum.bytes += bytes;
    sum.blobs += blobs;
    sum.blob_bytes += blob_bytes;
    if let Some(tenant) = tenant {
        damaged.iter_mut().for_each(|it| it.object = format!("tenant {tenant}, {}", it.object));
        refused.iter_mut().for_each(|it| it.object = format!("tenant {tenant}, {}", it.object));
    }
    sum.damaged.append(&mut damaged);
    sum.refused.append(&mut refused);
}

/// Returns the counts of a copy as text.
fn summary(report: &CopyReport) -> String {
    let counts = |counts: CopyCounts| {
        let CopyCounts { workspaces, sessions, bindings, .. } = counts;
        format!(
            "{}, {}, {}",
            counted(workspaces, "workspace"),
            counted(sessions, "session"),
            counted(bindings, "device binding")
        )
    };
    let blobs = match report.blobs {
        0 => String::new(),
        blobs => format!(", {} ({} bytes)", counted(blobs, "blob"), report.blob_bytes),
    };
    let fenced = match report.fenced {
        0 => String::new(),
        fenced => format!("; no run from before writes to {}", counted(fenced, "restored session")),
    };
    format!(
        "copied {}, {}{blobs}; already in the target: {}{fenced}",
        counts(report.copied),
        counted(report.events, "event"),
        counts(report.present)
    )
}

/// Returns how many objects were not copied, with the next commands.
fn not_copied(report: &CopyReport) -> String {
    let (damaged, refused) = (report.damaged.len() as u64, report.refused.len() as u64);
    let mut text = format!(
        "{} not copied (listed above); all other objects were copied.",
        counted(damaged + refused, "object")
    );
    if report.damaged.iter().any(|damage| !damage.is_unsupported) {
        text.push_str(" Damaged in the source: run `chat verify` on it.");
    }
    if report.damaged.iter().any(|damage| damage.is_unsupported) {
        text.push_str(" Of another format: copy with the version that wrote it.");
    }
    if refused > 0 {
        text.push_str(" Nothing was overwritten in the target; resolve the listed reasons, and run the same command again.");
    }
    text
}

fn value(report: &CopyReport) -> Value {
    let counts = |counts: CopyCounts| json!({"workspaces": counts.workspaces, "sessions": counts.sessions, "bindings": counts.bindings});
    let refused: Vec<_> = report
        .refused
        .iter()
        .map(|refused| json!({"object": refused.object, "reason": refused.reason}))
        .collect();
    json!({
        "copied": counts(report.copied), "present": counts(report.present), "fenced": report.fenced, "events": report.events,
        "bytes": report.bytes, "blobs": report.blobs, "blob_bytes": report.blob_bytes, "damaged": damage(&report.damaged), "refused": refused,
    })
}
