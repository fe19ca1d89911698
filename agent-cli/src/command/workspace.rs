//! `chat workspace`.

use std::time::Duration;

use agent_core::json::{RawFields, RawJson};
use agent_core::model::Workspace;
use agent_core::store::{BindingQuery, Cursor, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, SessionId, WorkspaceId};
use agent_runtime::NewWorkspace;
use agent_runtime::retention::GcPolicy;
use clap::Subcommand;
use serde_json::{Value, json};

use super::consent::Consent;
use super::output::{damage, page_of, raw};
use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::Failure;
use crate::offline::OfflineModel;
use crate::slash::minute;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// List workspaces, the one that was used last first
    List {
        /// Show those whose deletion has begun, too
        #[arg(long)]
        all: bool,
        /// At most so many
        #[arg(long, value_name = "N", default_value = "50")]
        limit: usize,
        /// Go on behind this, which a list has printed as `next`
        #[arg(long, value_name = "CURSOR")]
        after: Option<Cursor>,
        #[command(flatten)]
        tenants: AllTenants,
    },
    /// Create a workspace
    Create {
        /// What to call it
        #[arg(long)]
        name: String,
        /// The provider that its sessions ask: offline
        #[arg(long)]
        provider: Option<String>,
        /// What it is for
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
    },
    /// Show a workspace
    Show {
        /// Its id
        id: WorkspaceId,
    },
    /// Make another session of a workspace its main one, which the devices that are bound to it open
    SetMain {
        /// The workspace's id
        id: WorkspaceId,
        /// The session's id
        session: SessionId,
    },
    /// Delete a workspace for good, with its sessions and bindings
    Delete {
        /// Its id
        id: WorkspaceId,
        #[command(flatten)]
        consent: Consent,
    },
    /// Delete the workspaces that nobody has used for long, and finish deletions that were cut off
    Gc {
        /// Those that were not used for more than so many days
        #[arg(long, value_name = "DAYS", default_value = "90")]
        max_age: u64,
        /// Only say what would be deleted, and what protects the rest
        #[arg(long)]
        dry_run: bool,
        /// Watch a lease for a sign of life for at most so long
        #[arg(long, value_name = "SECONDS", default_value = "30", hide = true)]
        watch: u64,
        #[command(flatten)]
        consent: Consent,
        #[command(flatten)]
        tenants: AllTenants,
    },
}

impl WorkspaceCommand {
    pub(super) fn makes_store(&self) -> bool {
        matches!(self, Self::Create { .. })
    }

    pub(super) fn tenants(&self) -> Option<&AllTenants> {
        match self {
            Self::List { tenants, .. } | Self::Gc { tenants, .. } => Some(tenants),
            _ => None,
        }
    }

    pub(super) async fn run(self, site: &Site<'_>) -> Result<(), Failure> {
        match self {
            Self::List { all, limit, after, tenants: _ } => list(site, all, limit, after).await,
            Self::Create { name, provider, description } => {
                if let Some(unknown) = provider.as_deref().filter(|name| *name != OfflineModel::NAME) {
                    let text = format!("no provider is named {unknown:?}; there is: {}", OfflineModel::NAME);
                    return Err(Failure::new(1, "invalid_input", text));
                }
                let mut new = NewWorkspace::new(name);
                (new.provider, new.description) = (provider, description);
                let workspace = site.manager.create(new).await?;
                site.out.result(&value(&workspace)?, &workspace.id.to_string());
                Ok(())
            }
            Self::Show { id } => show(site, id).await,
            Self::SetMain { id, session } => {
                let workspace = site.manager.set_main_session(id, session).await?;
                let text = format!("session {session} is the main session of workspace {id}");
                site.out.result(&value(&workspace)?, &text);
                Ok(())
            }
            Self::Delete { id, consent } => {
                // One that is not there is not asked about; one that was cut off, or is damaged, is.
                match site.manager.load(id).await {
                    _ if id == WorkspaceId::DEFAULT => {}
                    Err(error) if *error.kind() == ErrorKind::NotFound => return Err(error.into()),
                    _ => consent.ask(&format!("the deletion of workspace {id}"))?,
                }
                let done = site.manager.delete(id).await?;
                let kept: Vec<_> = done.kept.iter().map(|kept| kept_value(&kept.id, &kept.by)).collect();
                let report = json!({
                    "workspace": id, "sessions": done.sessions, "events": done.events, "devices": done.devices,
                    "kept": kept,
                });
                let text = format!(
                    "deleted workspace {id}: {} sessions, {} events, {} devices",
                    done.sessions, done.events, done.devices
                );
                site.out.result(&report, &text);
                Ok(())
            }
            Self::Gc { max_age, dry_run, watch, consent, tenants: _ } => {
                if !dry_run {
                    consent.ask("the collection of workspaces")?;
                }
                gc(site, max_age, dry_run, watch).await
            }
        }
    }
}

async fn list(site: &Site<'_>, all: bool, limit: usize, after: Option<Cursor>) -> Result<(), Failure> {
    let mut query = WorkspaceQuery::new().with_total().limit(limit).cursor(after);
    query.with_deleting = all;
    let page = site.storage.workspaces.list(query).await?;
    let rows: Vec<_> = page
        .items
        .iter()
        .map(|workspace| {
            vec![
                workspace.id.to_string(),
                minute(workspace.last_accessed),
                minute(workspace.created_at),
                workspace.provider.clone().unwrap_or_default(),
                workspace.name.clone(),
            ]
        })
        .collect();
    let items = page.items.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    let next = page.next.as_ref().map(ToString::to_string);
    let whole = page_of(&items, page.total, next.as_deref(), &page.damaged);
    site.out.table(&whole, &["ID", "LAST USED", "CREATED", "PROVIDER", "NAME"], &rows);
    if let Some(next) = next {
        site.out.note(&format!("(more: --after '{next}')"));
    }
    super::session::named(site, &page.damaged)
}

async fn show(site: &Site<'_>, id: WorkspaceId) -> Result<(), Failure> {
    let workspace = site.storage.workspaces.load(id).await?;
    let bound = site.storage.bindings.list(BindingQuery::new().workspace(id)).await?;
    let devices: Vec<_> = bound.items.iter().map(|binding| binding.device.to_string()).collect();
    let sessions = SessionQuery::new().workspace(id).with_hidden().with_total().limit(1);
    let sessions = site.storage.sessions.list(sessions).await?.total.unwrap_or(0);
    let main = site.storage.sessions.load(workspace.main_session).await.ok();
    let messages = main.map_or(0, |main| main.counts.messages());
    let has_config = site.storage.workspaces.load_config(id).await?.is_some();
    let mut whole = value(&workspace)?;
    whole.insert("devices", raw(&devices));
    whole.insert("sessions", raw(&sessions));
    whole.insert("messages", raw(&messages));
    whole.insert("has_config", raw(&has_config));
    site.out.fields(
        &whole,
        &[
            ("workspace", workspace.name),
            ("id", id.to_string()),
            ("provider", workspace.provider.unwrap_or_default()),
            ("description", workspace.description.unwrap_or_default()),
            ("created", workspace.created_at.to_string()),
            ("last used", workspace.last_accessed.to_string()),
            ("main session", workspace.main_session.to_string()),
            ("messages", messages.to_string()),
            ("sessions", sessions.to_string()),
            ("devices", devices.join(", ")),
            ("own config", if has_config { "yes" } else { "no" }.to_owned()),
        ],
    );
    Ok(())
}

async fn gc(site: &Site<'_>, days: u64, dry_run: bool, watch: u64) -> Result<(), Failure> {
    let mut policy = GcPolicy::days(days).watch(Duration::from_secs(watch));
    policy.dry_run = dry_run;
    let report = site.manager.gc(policy).await?;
    let kept: Vec<_> = report.kept.iter().map(|kept| kept_value(&kept.id, &kept.by)).collect();
    let whole = json!({
        "dry_run": dry_run, "collected": report.collected, "finished": report.finished, "orphans": report.orphans,
        "unbound": report.unbound, "kept": kept, "damaged": damage(&report.damaged),
    });
    let mut rows = Vec::new();
    let done = |what: &str| if dry_run { format!("would be {what}") } else { what.to_owned() };
    for id in &report.collected {
        rows.push(vec![id.to_string(), done("deleted"), format!("not used for more than {days} days")]);
    }
    for id in &report.finished {
        rows.push(vec![id.to_string(), done("finished"), "its deletion had been cut off".to_owned()]);
    }
    for id in &report.orphans {
        rows.push(vec![id.to_string(), done("deleted"), "a session that was left behind".to_owned()]);
    }
    for id in &report.unbound {
        rows.push(vec![id.to_string(), done("unbound"), "its devices are free".to_owned()]);
    }
    for kept in &report.kept {
        rows.push(vec![kept.id.to_string(), "kept".to_owned(), kept.by.to_string()]);
    }
    if rows.is_empty() && !site.out.is_json() {
        site.out.note("(nothing to collect)");
    } else {
        site.out.table(&whole, &["ID", "WHAT", "WHY"], &rows);
    }
    super::session::named(site, &report.damaged)
}

fn kept_value(id: &impl ToString, by: &agent_runtime::retention::Protection) -> Value {
    json!({"id": id.to_string(), "by": by.to_string()})
}

/// A record as JSON.
fn value(workspace: &Workspace) -> Result<RawFields, Failure> {
    Ok(RawJson::parse(&workspace.to_json())?.to()?)
}
