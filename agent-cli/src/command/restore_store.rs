//! `chat restore`.

use agent_admin::fence::fence_sessions;
use agent_core::store::Damaged;
use serde_json::json;

use super::copy::Copy;
use super::tenants::{AllTenants, choose};
use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::output::{Out, damage, line, unread};
use crate::progress::Progress;
use crate::screen::counted;
use crate::stores::{Address, closing, copy_address};

/// Options of `chat restore`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples!(
    "chat restore files:/backup/notes --store sqlite:./notes.db",
    "chat restore sqlite:./backup.db --store s3://my-bucket/notes",
    "chat restore --in-place --store postgres://agent@localhost/agents",
))]
pub(crate) struct Restore {
    /// Backup: files:PATH, sqlite:PATH, s3://BUCKET/PREFIX or postgres://USER@HOST/DATABASE
    #[arg(value_name = "BACKUP", value_parser = copy_address, required_unless_present = "in_place")]
    backup: Option<Address>,
    /// The store itself was put back, by a copy of its files or a program of the server: only end the runs from before
    #[arg(long, conflicts_with = "backup")]
    in_place: bool,
    /// Progress output on standard error
    #[arg(long, value_enum, default_value = "auto")]
    progress: Progress,
}

impl Restore {
    pub(super) async fn run(self, args: &Args) -> Result<()> {
        args.refuse_tenant(
            "`chat restore` is about all tenants, and does not use --tenant; `chat copy --tenant` copies one",
        )?;
        let Some(backup) = self.backup else { return in_place(args).await };
        let to = args.address()?;
        if backup.has_key() && !to.has_key() {
            let text = format!(
                "{} is encrypted, and {} would not be; name a key for the store: `--store '{1}?key_file=FILE'`",
                backup.shown(),
                to.shown()
            );
            return Err(Failure::new(2, "invalid_input", text));
        }
        Copy::restore(backup, to, self.progress).run(args, None).await
    }
}

/// Fences all sessions of all tenants.
async fn in_place(args: &Args) -> Result<()> {
    let store = args.address()?.existing().await?;
    let (sessions, damaged) = closing(&*store, async {
        let chosen = choose(&*store, None, Some(&AllTenants { all_tenants: true }), true).await?;
        let (mut sessions, mut damaged): (u64, Vec<Damaged>) = (0, chosen.damaged.clone());
        for tenant in &chosen.tenants {
            let fenced = fence_sessions(&store.tenant(tenant)).await?;
            sessions += fenced.sessions;
            damaged.extend(fenced.damaged);
        }
        Ok((sessions, damaged))
    })
    .await?;
    let out = Out::new(args.json);
    let text = format!("fenced {}: no run from before writes to them", counted(sessions, "session"));
    out.result(&json!({"fenced": sessions, "damaged": damage(&damaged)}), &text);
    if damaged.is_empty() {
        return Ok(());
    }
    if !out.is_json() {
        damaged.iter().for_each(|it| line(&format!("not fenced, {}", unread(it))));
    }
    Err(Failure::incomplete(format!(
        "{} not fenced (listed above); run `chat verify --all-tenants`",
        counted(damaged.len() as u64, "object")
    )))
}
