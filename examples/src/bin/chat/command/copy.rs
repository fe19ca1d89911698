//! `chat copy`.

use std::sync::Arc;

use agent_core::copy::{CopyReport, CopyStage, StoreCopy};
use agent_core::{TenantId, Tenants, WorkspaceId};
use clap::Args as Options;
use serde_json::{Value, json};

use super::Failure;
use super::output::{Out, damage, line};
use super::progress::{Bar, Progress};
use crate::args::Args;
use crate::stores::{Address, copy_address};

/// Copies what is not there yet, and reads it back. What the target has otherwise stays as it is, and is named; so is
/// what is damaged in the source. A copy that was cut off is finished by the same command.
#[derive(Debug, Options)]
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
    /// Copy every tenant of the store, each to the one of its name [default: the tenant `default`]
    #[arg(long, conflicts_with = "workspace")]
    all_tenants: bool,
    /// Who is told how far it is
    #[arg(long, value_enum, default_value = "auto")]
    progress: Progress,
}

impl Copy {
    pub(super) async fn run(self, args: &Args) -> Result<(), Failure> {
        let (from, to) = (self.from.tenants().await?, self.to.tenants().await?);
        let tenants = if self.all_tenants { all(&*from).await? } else { vec![TenantId::default()] };
        let bar = Arc::new(Bar::new(self.progress));
        let mut report = CopyReport::default();
        for tenant in &tenants {
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
        out.result(&value(&report), &told_of(&report));
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

/// The tenants that hold anything.
async fn all(store: &dyn Tenants) -> Result<Vec<TenantId>, Failure> {
    let mut all: Vec<TenantId> = Vec::new();
    loop {
        let page = store.list(all.last().cloned()).await?;
        if let Some(damaged) = page.damaged.first() {
            return Err(Failure::incomplete(format!(
                "the list of tenants is damaged: {damaged}; nothing was copied"
            )));
        }
        if page.items.is_empty() {
            return Ok(all);
        }
        all.extend(page.items);
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
    let counts = |counts: agent_core::copy::CopyCounts| json!({"workspaces": counts.workspaces, "sessions": counts.sessions, "bindings": counts.bindings});
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
