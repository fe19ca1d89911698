//! `chat copy`.

use agent_core::WorkspaceId;
use agent_core::copy::{CopyReport, CopyStage, StoreCopy};
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
    /// Who is told how far it is
    #[arg(long, value_enum, default_value = "auto")]
    progress: Progress,
}

impl Copy {
    pub(super) async fn run(self, args: &Args) -> Result<(), Failure> {
        let (from, to) = (self.from.open().await?, self.to.open().await?);
        let bar = std::sync::Arc::new(Bar::new(self.progress));
        let told = bar.clone();
        let mut copy = StoreCopy::new(from, to).watch(move |progress| {
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
        let report = done?;
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
