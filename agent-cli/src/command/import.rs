//! `chat import`.

use std::path::PathBuf;

use agent_core::ErrorKind;
use agent_import::{Format, Import as Importer, ImportReport};
use clap::Args as Options;

use super::site::Site;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::output::line;
use crate::pick::WorkspaceRef;
use crate::progress::{Bar, Progress};
use crate::screen::counted;

/// Options of `chat import`.
#[derive(Clone, Debug, Options)]
#[command(after_help = examples!("chat import claude-code ~/.claude/projects --dry-run", "chat import claude-code ~/.claude/projects --store sqlite:notes.db"))]
pub(crate) struct Import {
    /// Format of the source
    #[arg(value_name = "FORMAT", value_parser = format())]
    format: Format,
    /// File of the source, or folder of its files
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Workspace of the sessions: its id, or its name (default: the workspace default)
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<WorkspaceRef>,
    /// Read the source, and write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// The source grows no more: calls without a result at the end were interrupted
    #[arg(long)]
    finished: bool,
    /// Keep what is not understood as events of the type x.FORMAT.KIND
    #[arg(long)]
    unknown: bool,
    /// Progress output on standard error
    #[arg(long, value_enum, default_value = "auto")]
    progress: Progress,
}

/// Returns the parser of a format, with the names for completions and the help.
fn format() -> impl clap::builder::TypedValueParser<Value = Format> {
    use clap::builder::TypedValueParser;
    let names = Format::ALL.iter().map(|format| format.name());
    clap::builder::PossibleValuesParser::new(names).try_map(|name| name.parse::<Format>())
}

impl Import {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let mut import = Importer::new(self.format, &self.path);
        if let Some(workspace) = &self.workspace {
            import = import.with_workspace(site.workspace(workspace).await?);
        }
        if self.dry_run {
            import = import.with_dry_run();
        }
        if self.finished {
            import = import.with_finished();
        }
        if self.unknown {
            import = import.with_unknown();
        }
        let bar = Bar::new(self.progress);
        let done = import
            .with_progress(move |now| bar.report("sessions", now.sessions, None))
            .run(&site.storage)
            .await;
        let report = done.map_err(|error| match error.kind() {
            // Of the source, whose path the text names.
            ErrorKind::NotFound => Failure::new(3, "not_found", error.to_string()),
            _ => Failure::from(error),
        })?;
        site.out.result(&report, &summary(&report, self.dry_run));
        if !site.out.is_json() {
            print_rest(&report);
        }
        match report.refused.len() as u64 {
            0 => Ok(()),
            count => Err(Failure::incomplete(format!(
                "{} not imported to the end (listed above); all others were",
                counted(count, "session")
            ))),
        }
    }
}

fn summary(report: &ImportReport, is_dry: bool) -> String {
    format!(
        "{} {} with {}; {} continued, {} unchanged",
        if is_dry { "would import" } else { "imported" },
        counted(report.created, "session"),
        counted(report.events, "event"),
        report.grown,
        report.unchanged
    )
}

/// Prints what was left out.
fn print_rest(report: &ImportReport) {
    for refused in &report.refused {
        line(&format!("not imported to the end: {}: {}", refused.place, refused.reason));
    }
    if report.unfinished > 0 {
        line(&format!(
            "{} with an open call: what is behind it is left out until the source goes on; --finished imports it now",
            match report.unfinished {
                1 => "1 session ends".to_owned(),
                count => format!("{count} sessions end"),
            }
        ));
    }
    if report.cut_off > 0 {
        line(&format!("cut off in the middle of a line: {}", counted(report.cut_off, "file")));
    }
    if !report.left_out.is_empty() {
        line("left out or changed:");
        for (kind, count) in &report.left_out {
            line(&format!("  {count}  {kind}"));
        }
    }
}
