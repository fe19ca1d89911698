//! `chat copy`.

use std::sync::Arc;

use agent_admin::copy::{CopyReport, CopyStage, StoreCopy};
use agent_core::{TenantId, WorkspaceId};
use clap::Args as Options;
use serde_json::{Value, json};

use super::output::{Out, damage, line};
use super::progress::{Bar, Progress};
use super::tenants::{AllTenants, choose};
use crate::args::Args;
use crate::failure::Failure;
use crate::stores::{Address, copy_address};

/// Copies what is not there yet, and reads it back. What the target has otherwise stays as it is, and is named; so is
/// what is damaged in the source. A copy that was cut off is finished by the same command.
#[derive(Clone, Debug, Options)]
pub(crate) struct Copy {
    /// The store to copy: files:PATH, sqlite:PATH, s3://BUCKET/PREFIX
    #[arg(value_name = "FROM", value_parser = copy_address)]
    from: Address,
    /// The store to copy to
    #[arg(value_name = "TO", value_parser = copy_address)]
    to: Address,
    /// Copy this workspace only
    #[arg(long, value_name = "ID")]
    workspace: Option<WorkspaceId>,
    /// Copy every tenant of the store, each to the one of its name [default: one tenant, that of --tenant]
    #[arg(long, conflicts_with_all = ["workspace", "tenant"])]
    all_tenants: bool,
    /// Who is told how far it is
    #[arg(long, value_enum, default_value = "auto")]
    progress: Progress,
}

impl Copy {
    pub(super) async fn run(self, args: &Args) -> Result<(), Failure> {
        if self.from.overlaps(&self.to) {
            let text = format!(
                "{} would be copied into itself: {} is it, or lies in it or around it; name another place",
                self.from.shown(),
                self.to.shown()
            );
            return Err(Failure::new(2, "invalid_input", text));
        }
        // What is to be copied is there, before anything is made for it.
        let from = self.from.existing().await?;
        let wanted = AllTenants { all_tenants: self.all_tenants };
        let chosen = choose(&*from, args.tenant.as_ref(), Some(&wanted)).await?;
        let tenants = &chosen.tenants;
        let to = self.to.tenants().await?;
        let bar = Arc::new(Bar::new(self.progress));
        let mut report = CopyReport::default();
        report.damaged.extend(chosen.damaged.iter().cloned());
        for tenant in tenants {
            let told = bar.clone();
            let mut copy = StoreCopy::new(from.storage(tenant), to.storage(tenant)).watch(move |progress| {
                let what = match progress.stage {
                    CopyStage::Workspaces => "workspaces",
                    CopyStage::Sessions => "sessions",
                    CopyStage::Deletions => "deletions",
                    _ => "bindings",
                };
                told.tell(what, progress.done, progress.total);
            });
            if let Some(id) = self.workspace {
                copy = copy.workspace(id);
            }
            let done = copy.run().await;
            bar.end();
            add(&mut report, done?, self.all_tenants.then_some(tenant));
        }
        from.close().await?;
        to.close().await?;
        let out = Out::new(args.json);
        let mut whole = value(&report);
        if let Some(fields) = whole.as_object_mut() {
            fields.insert("other_tenants".to_owned(), json!(chosen.others));
        }
        out.result(&whole, &told_of(&report));
        chosen.told(&out);
        if !out.is_json() {
            report.damaged.iter().for_each(|damage| line(&format!("damaged: {damage}")));
            report.refused.iter().for_each(|refused| line(&format!("refused: {refused}")));
        }
        if report.is_whole() {
            return Ok(());
        }
        Err(Failure::incomplete(format!(
            "{} could not be read and {} not be written; all else is copied",
            report.damaged.len(),
            report.refused.len()
        )))
    }
}

/// Adds what was done for one tenant; names the tenant where there are several.
fn add(sum: &mut CopyReport, report: CopyReport, tenant: Option<&TenantId>) {
    let CopyReport { copied, present, events, bytes, mut damaged, mut refused, .. } = report;
    for (sum, one) in [(&mut sum.copied, copied), (&mut sum.present, present)] {
        sum.workspaces += one.workspaces;
        sum.sessions += one.sessions;
        sum.bindings += one.bindings;
    }
    sum.events += events;
    sum.bytes += bytes;
    if let Some(tenant) = tenant {
        damaged.iter_mut().for_each(|it| it.object = format!("tenant {tenant}, {}", it.object));
        refused.iter_mut().for_each(|it| it.object = format!("tenant {tenant}, {}", it.object));
    }
    sum.damaged.append(&mut damaged);
    sum.refused.append(&mut refused);
}

fn told_of(report: &CopyReport) -> String {
    let (copied, present) = (report.copied, report.present);
    format!(
        "copied {} workspaces, {} sessions, {} bindings, {} events; {} workspaces, {} sessions, {} bindings were there",
        copied.workspaces,
        copied.sessions,
        copied.bindings,
        report.events,
        present.workspaces,
        present.sessions,
        present.bindings
    )
}

fn value(report: &CopyReport) -> Value {
    let counts = |counts: agent_admin::copy::CopyCounts| json!({"workspaces": counts.workspaces, "sessions": counts.sessions, "bindings": counts.bindings});
    let refused: Vec<_> = report
        .refused
        .iter()
        .map(|refused| json!({"object": refused.object, "reason": refused.reason}))
        .collect();
    json!({
        "copied": counts(report.copied), "present": counts(report.present), "events": report.events,
        "bytes": report.bytes, "damaged": damage(&report.damaged), "refused": refused,
    })
}
