//! `chat tenant`.

use agent_admin::audit::{Audit, audited_backend};
use agent_core::store::{BindingQuery, Page, SessionQuery, WorkspaceQuery, pages};
use agent_core::{Backend, Storage, TenantId};
use agent_storage_fs::FsConfig;
use clap::Subcommand;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use serde_json::json;

use super::audit::Rows;
use super::consent::Consent;
use super::copy::Copy;
use super::tenants::{absent, all};
use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::output::{Out, damage, print_copies};
use crate::progress::Progress;
use crate::screen::counted;
use crate::stores::{Address, closing, copy_address};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// List the tenants that have data
    #[command(after_help = examples!("chat tenant list", "chat tenant list --json"))]
    List,
    /// Copy a tenant to a new store: workspaces with configuration and areas, sessions, devices, audit
    ///
    /// The copy is a store with this one tenant. `chat --data-dir FOLDER --tenant NAME` opens it, and `chat copy
    /// files:FOLDER STORE --tenant NAME` copies it into another store. Existing data in the target is not changed. An
    /// interrupted export is completed by the same command. The folders mcp, skills and memory that a store on files keeps
    /// for the host are not copied.
    #[command(after_help = examples!("chat tenant export acme acme-export", "chat tenant export acme sqlite:acme.db"))]
    Export {
        /// Tenant
        name: TenantId,
        /// Target: a folder or the address of a store (sqlite:PATH, files:PATH, s3://BUCKET/PREFIX, postgres://USER@HOST/DATABASE)
        #[arg(value_name = "TO", value_parser = target)]
        to: Address,
        /// Show progress on standard error
        #[arg(long, value_enum, default_value = "auto")]
        progress: Progress,
    },
    /// Delete all data of a tenant permanently: workspaces, sessions, devices and audit
    ///
    /// Refused while a session of the tenant runs. That the tenant was deleted, by whom and when, stays in the audit of
    /// tenants, which `chat tenant audit` shows. An interrupted deletion is completed by the same command. In a SQLite
    /// file, copies of rows may be left in unused parts until `chat maintain` rewrites it; --now does both.
    #[command(after_help = examples!("chat tenant delete acme --dry-run", "chat tenant delete acme", "chat tenant delete acme --now"))]
    Delete {
        /// Tenant
        name: TenantId,
        /// Only show what would be deleted
        #[arg(long)]
        dry_run: bool,
        /// Also rewrite a SQLite file, so that no copy of the data is left in it, while other writers wait
        #[arg(long, conflicts_with = "dry_run")]
        now: bool,
        #[command(flatten)]
        consent: Consent,
    },
    /// List the deletions of tenants, newest first
    ///
    /// Shows the time, the device, the outcome, the tenant and what was removed. Every deletion has two entries, its start
    /// and its end; one without an end was cut off, and `chat tenant delete` completes it. The list is kept in the store and
    /// stays when the tenants are gone; `chat verify --all-tenants` and `chat copy --all-tenants` include it as the tenant
    /// audit-of-tenants.
    #[command(after_help = examples!("chat tenant audit", "chat tenant audit --limit 1000 --json"))]
    Audit(Rows),
}

/// Parses the target of an export: the address of a store if it has a known prefix, else a folder.
fn target(text: &str) -> Result<Address, String> {
    let is_address = text.split_once(':').is_some_and(|(kind, _)| {
        matches!(kind, "files" | "sqlite" | "s3" | "gs" | "az" | "postgres" | "postgresql" | "memory")
    });
    if is_address { copy_address(text) } else { Ok(Address::files(FsConfig::new(text))) }
}

impl TenantCommand {
    pub(super) async fn run(self, args: &Args) -> Result<()> {
        args.refuse_tenant(
            "`chat tenant` does not use --tenant; pass the tenant as an argument, as in `chat tenant delete NAME`",
        )?;
        if let Self::Export { name, to, progress } = self {
            return export(args, &name, to, progress).await;
        }
        let store = args.address()?.existing().await?;
        let store = audited_backend(store, args.actor()?);
        let (out, there) = (Out::new(args.json), &*store);
        let work = async {
            match self {
                Self::Delete { name, dry_run: true, .. } => preview(&out, there, &name).await,
                Self::Delete { name, now, consent, .. } => delete(&out, there, &name, now, &consent).await,
                Self::Audit(rows) => rows.print(&out, &Audit::of_tenants(there)).await,
                _ => list(&out, there).await,
            }
        };
        closing(there, work).await
    }
}

async fn list(out: &Out, store: &dyn Backend) -> Result<()> {
    let (tenants, damaged) = all(store).await?;
    let rows: Vec<_> = tenants.iter().map(|tenant| vec![tenant.to_string()]).collect();
    out.table(&json!({"items": tenants, "damaged": damage(&damaged)}), &["TENANT"], &rows);
    match damaged.first() {
        Some(damage) => Err(Failure::incomplete(format!("the list of tenants is damaged: {damage}"))),
        None => Ok(()),
    }
}

async fn export(args: &Args, name: &TenantId, to: Address, progress: Progress) -> Result<()> {
    let place = to.shown();
    Copy::of_tenant(args.address()?, to, progress).run(args, Some(name)).await?;
    let out = Out::new(args.json);
    out.note(&format!("(exported tenant {name} to {place}, a store with this one tenant)"));
    Ok(())
}

/// Prints what a deletion would delete.
async fn preview(out: &Out, store: &dyn Backend, name: &TenantId) -> Result<()> {
    let (there, _) = all(store).await?;
    if !there.contains(name) {
        return Err(absent(name, &there));
    }
    let [sessions, workspaces, devices] = counts(&store.tenant(name)).await?;
    let report = json!({
        "dry_run": true, "deleted": name, "sessions": sessions, "workspaces": workspaces, "devices": devices,
    });
    let text = format!("would delete tenant {name}: {}", contents(sessions, workspaces, devices));
    out.result(&report, &text);
    Ok(())
}

async fn delete(out: &Out, store: &dyn Backend, name: &TenantId, now: bool, consent: &Consent) -> Result<()> {
    let (there, _) = all(store).await?;
    let is_there = there.contains(name);
    // No question is asked about a tenant without data; the remainder of an interrupted deletion is removed.
    if is_there {
        consent.ask(&format!("the deletion of tenant {name}"))?;
    }
    let done = if now { store.erase_tenant(name).await? } else { store.delete_tenant(name).await? };
    if done.is_empty() && !is_there {
        return Err(absent(name, &there));
    }
    let report = json!({
        "dry_run": false, "deleted": name, "sessions": done.sessions, "workspaces": done.workspaces,
        "devices": done.bindings, "rewrite_pending": done.rewrite_pending,
    });
    let text = format!("deleted tenant {name}: {}", contents(done.sessions, done.workspaces, done.bindings));
    out.result(&report, &text);
    print_copies(out, done.rewrite_pending);
    Ok(())
}

/// Describes the contents of a tenant.
fn contents(sessions: u64, workspaces: u64, devices: u64) -> String {
    let (sessions, workspaces) = (counted(sessions, "session"), counted(workspaces, "workspace"));
    format!("{sessions}, {workspaces}, {}", counted(devices, "device"))
}

/// Counts the sessions, workspaces and devices of a tenant.
async fn counts(storage: &Storage) -> Result<[u64; 3]> {
    let sessions = SessionQuery::new().with_hidden().with_limit(1000);
    let workspaces = WorkspaceQuery::new().with_deleting().with_limit(1000);
    Ok([
        count(pages(sessions, |query| storage.sessions.list(query))).await?,
        count(pages(workspaces, |query| storage.workspaces.list(query))).await?,
        count(pages(BindingQuery::new().with_limit(1000), |query| storage.bindings.list(query))).await?,
    ])
}

async fn count<T>(pages: BoxStream<'_, agent_core::Result<Page<T>>>) -> agent_core::Result<u64> {
    let counts = pages.map_ok(|page| (page.items.len() + page.damaged.len()) as u64);
    counts.try_fold(0, |sum, count| std::future::ready(Ok(sum + count))).await
}
