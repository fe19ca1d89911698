//! `chat workspace`.

use std::time::Duration;

use agent_core::json::{RawFields, RawJson};
use agent_core::store::{BindingQuery, Cursor, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, WorkspaceId};
use agent_runtime::NewWorkspace;
use agent_runtime::retention::{GcPolicy, GcReport};
use clap::Subcommand;
use serde_json::{Value, json};

use super::consent::Consent;
use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::offline::OfflineModel;
use crate::output::{damage, print_copies, retained_value, tense};
use crate::pick::{SessionRef, WorkspaceRef};
use crate::screen::counted;
use crate::zone::{Zone, second};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// List workspaces, most recently used first
    #[command(after_help = examples!("chat workspace list", "chat workspace list --all-tenants --json"))]
    List {
        /// Include workspaces whose deletion is not finished
        #[arg(long)]
        all: bool,
        /// Maximum number of rows
        #[arg(long, value_name = "N", default_value = "50")]
        limit: usize,
        /// Cursor of the next page, as the previous page printed it
        #[arg(long, value_name = "CURSOR")]
        after: Option<Cursor>,
        #[command(flatten)]
        tenants: AllTenants,
    },
    /// Create a workspace, and print its id
    #[command(after_help = examples!("chat workspace create --name notes"))]
    Create {
        /// Name of the workspace
        #[arg(long)]
        name: String,
        /// Model provider of its sessions: offline
        #[arg(long)]
        provider: Option<String>,
        /// Description of the workspace
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
    },
    /// Show a workspace
    #[command(after_help = examples!("chat workspace show ID"))]
    Show {
        /// Workspace: id, or beginning or end of it
        id: WorkspaceRef,
    },
    /// Set the main session of a workspace
    ///
    /// Devices that are bound to the workspace open its main session.
    #[command(after_help = examples!("chat workspace set-main WORKSPACE SESSION"))]
    SetMain {
        /// Workspace: id, or beginning or end of it
        id: WorkspaceRef,
        /// Session of the workspace: id, beginning or end of it, or number in `chat session list`
        session: SessionRef,
    },
    /// Delete a workspace permanently, with its sessions and device bindings
    #[command(after_help = examples!("chat workspace delete ID --yes"))]
    Delete {
        /// Workspace: id, or beginning or end of it
        id: WorkspaceRef,
        #[command(flatten)]
        consent: Consent,
    },
    /// Delete unused workspaces, and finish interrupted deletions
    ///
    /// The workspace `default`, workspaces with a pinned session and workspaces in use are kept. The output lists every
    /// workspace with the reason for which it is deleted or kept. Blobs that no event names are removed, too.
    #[command(after_help = examples!("chat workspace gc --dry-run", "chat workspace gc --max-age 365 --yes"))]
    Gc {
        /// Days without use after which a workspace is deleted
        #[arg(long, value_name = "DAYS", default_value = "90")]
        max_age: u64,
        /// Report what would be deleted, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Maximum time to wait for the heartbeat of a lease
        #[arg(long, value_name = "SECONDS", default_value = "30", hide = true)]
        watch: u64,
        #[command(flatten)]
        consent: Consent,
        #[command(flatten)]
        tenants: AllTenants,
    },
}

impl WorkspaceCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        match self {
            Self::List { all, limit, after, tenants: _ } => list(site, all, limit, after).await,
            Self::Create { name, provider, description } => {
                if let Some(unknown) = provider.as_deref().filter(|name| *name != OfflineModel::NAME) {
                    let text = format!("unknown provider {unknown:?}; available: {}", OfflineModel::NAME);
                    return Err(Failure::new(1, "invalid_input", text));
                }
                let mut new = NewWorkspace::new(name);
                (new.provider, new.description) = (provider, description);
                let workspace = site.manager.create(new).await?;
                site.out.result(&workspace, &workspace.id.to_string());
                Ok(())
            }
            Self::Show { id } => show(site, site.workspace(&id).await?).await,
            Self::SetMain { id, session } => {
                let (id, session) = (site.workspace(&id).await?, site.session(&session).await?);
                let workspace = site.manager.set_main_session(id, session).await?;
                let text = format!("session {session} is now the main session of workspace {id}");
                site.out.result(&workspace, &text);
                Ok(())
            }
            Self::Delete { id, consent } => {
                let id = site.workspace(&id).await?;
                // A workspace that does not exist needs no confirmation; one that is partly deleted or damaged does.
                match site.manager.load(id).await {
                    _ if id == WorkspaceId::DEFAULT => {}
                    Err(error) if *error.kind() == ErrorKind::NotFound => return Err(error.into()),
                    _ => consent.ask(&format!("deleting workspace {id}"))?,
                }
                let done = site.manager.delete(id).await?;
                let retained: Vec<_> = done.retained.iter().map(retained_value).collect();
                let report = json!({
                    "workspace": id, "sessions": done.sessions, "events": done.events, "devices": done.devices,
                    "retained": retained, "rewrite_pending": done.rewrite_pending,
                });
                let text = format!(
                    "deleted workspace {id} with {}, {} and {}",
                    counted(done.sessions, "session"),
                    counted(done.events, "event"),
                    counted(done.devices, "device binding")
                );
                site.out.result(&report, &text);
                for kept in &done.retained {
                    site.out.note(&format!("kept events of session {}: {}", kept.id, kept.reason));
                }
                print_copies(&site.out, done.rewrite_pending);
                Ok(())
            }
            Self::Gc { max_age, dry_run, watch, consent, tenants: _ } => {
                if !dry_run {
                    consent.ask_or_preview("deleting unused workspaces")?;
                }
                gc(site, max_age, dry_run, watch).await
            }
        }
    }
}

async fn list(site: &Site<'_>, all: bool, limit: usize, after: Option<Cursor>) -> Result<()> {
    let mut query = WorkspaceQuery::new().with_total().with_limit(limit).with_cursor(after);
    query.with_deleting = all;
    let page = site.storage.workspaces.list(query).await?;
    let zone = Zone::now();
    site.page(&page, &["ID", &zone.heading("LAST USED"), "CREATED", "PROVIDER", "NAME"], |workspace| {
        vec![
            workspace.id.to_string(),
            zone.minute(workspace.last_accessed),
            zone.minute(workspace.created_at),
            workspace.provider.clone().unwrap_or_default(),
            workspace.name.clone(),
        ]
    })
}

async fn show(site: &Site<'_>, id: WorkspaceId) -> Result<()> {
    let workspace = site.storage.workspaces.load(id).await?;
    let bound = site.storage.bindings.list(BindingQuery::new().with_workspace(id)).await?;
    let devices: Vec<_> = bound.items.iter().map(|binding| binding.device.to_string()).collect();
    let sessions = SessionQuery::new().with_workspace(id).with_hidden().with_total().with_limit(1);
    let sessions = site.storage.sessions.list(sessions).await?.total.unwrap_or(0);
    let main = site.storage.sessions.load(workspace.main_session).await.ok();
    let messages = main.map_or(0, |main| main.counts.messages());
    let has_config = site.storage.workspaces.load_config(id).await?.is_some();
    let mut whole: RawFields = RawJson::sure(&workspace).to()?;
    whole.insert("devices", RawJson::sure(&devices));
    whole.insert("sessions", RawJson::sure(&sessions));
    whole.insert("messages", RawJson::sure(&messages));
    whole.insert("has_config", RawJson::sure(&has_config));
    site.out.fields(
        &whole,
        &[
            ("workspace", workspace.name),
            ("id", id.to_string()),
            ("provider", workspace.provider.unwrap_or_default()),
            ("description", workspace.description.unwrap_or_default()),
            ("created", second(workspace.created_at)),
            ("last used", second(workspace.last_accessed)),
            ("main session", workspace.main_session.to_string()),
            ("messages", messages.to_string()),
            ("sessions", sessions.to_string()),
            ("devices", devices.join(", ")),
            ("own config", if has_config { "yes" } else { "no" }.to_owned()),
        ],
    );
    Ok(())
}

async fn gc(site: &Site<'_>, days: u64, dry_run: bool, watch: u64) -> Result<()> {
    let mut policy = GcPolicy::days(days).with_watch(Duration::from_secs(watch)).with_report_recent();
    policy.dry_run = dry_run;
    let report = site.manager.gc(policy).await?;
    let whole = gc_value(&report, dry_run);
    let rows = gc_rows(&report, policy.older_than, dry_run);
    if !rows.is_empty() || site.out.is_json() {
        site.out.table(&whole, &["OBJECT", "WHAT", "WHY"], &rows);
    }
    site.out.note(&format!(
        "{} examined: {} {}, {} kept",
        counted(report.examined, "workspace"),
        report.collected.len() + report.finished.len(),
        tense("deleted", dry_run),
        report.retained.len()
    ));
    print_copies(&site.out, report.rewrite_pending);
    site.named(&report.damaged)
}

/// Returns the result of gc as JSON.
pub(super) fn gc_value(report: &GcReport, dry_run: bool) -> Value {
    let retained: Vec<_> = report.retained.iter().map(retained_value).collect();
    json!({
        "dry_run": dry_run, "examined": report.examined, "collected": report.collected,
        "finished": report.finished, "orphans": report.orphans, "unbound": report.unbound,
        "retained": retained, "damaged": damage(&report.damaged), "blobs": report.blobs,
        "rewrite_pending": report.rewrite_pending,
    })
}

/// Returns the rows of the table of what gc did with workspaces that were not used for longer than `age`.
pub(super) fn gc_rows(report: &GcReport, age: Duration, dry_run: bool) -> Vec<Vec<String>> {
    let row = |object: String, what: &str, why: &str| vec![object, tense(what, dry_run), why.to_owned()];
    let minutes = age.as_secs() / 60;
    let age = match (minutes % (24 * 60), minutes % 60) {
        (0, _) => counted(minutes / (24 * 60), "day"),
        (_, 0) => counted(minutes / 60, "hour"),
        _ => counted(minutes, "minute"),
    };
    let unused = format!("not used for more than {age}");
    let mut rows = Vec::new();
    rows.extend(report.collected.iter().map(|id| row(format!("workspace {id}"), "deleted", &unused)));
    let interrupted = "its deletion was interrupted";
    rows.extend(report.finished.iter().map(|id| row(format!("workspace {id}"), "deleted", interrupted)));
    let left = "its workspace was deleted";
    rows.extend(report.orphans.iter().map(|id| row(format!("session {id}"), "deleted", left)));
    let devices = |id: &WorkspaceId| format!("devices of workspace {id}");
    rows.extend(report.unbound.iter().map(|id| row(devices(id), "unbound", left)));
    if report.blobs.blobs > 0 {
        let why = format!("no event names them ({} bytes)", report.blobs.bytes);
        rows.push(row(counted(report.blobs.blobs, "blob"), "removed", &why));
    }
    if report.blobs.unfinished > 0 {
        let why = format!(
            "may still be written or named ({} bytes); if not, removed by a later gc",
            report.blobs.unfinished
        );
        rows.push(vec!["unfinished blobs".to_owned(), "kept".to_owned(), why]);
    }
    for kept in &report.retained {
        rows.push(vec![format!("workspace {}", kept.id), "kept".to_owned(), kept.reason.to_string()]);
    }
    rows
}
