//! `chat device`.

use agent_core::store::{BindingQuery, Cursor};
use agent_core::{DeviceId, WorkspaceId};
use clap::Subcommand;
use serde_json::json;

use super::output::damage;
use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::Failure;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// List devices, and the workspaces that they are bound to
    List {
        /// Only those that are bound to this workspace
        #[arg(long, value_name = "ID")]
        workspace: Option<WorkspaceId>,
        /// At most so many
        #[arg(long, value_name = "N", default_value = "100")]
        limit: usize,
        /// Go on behind this, which a list has printed as `next`
        #[arg(long, value_name = "CURSOR")]
        after: Option<Cursor>,
        #[command(flatten)]
        tenants: AllTenants,
    },
    /// Bind a device to a workspace, whatever it was bound to
    Bind {
        /// The device
        name: DeviceId,
        /// The workspace's id
        workspace: WorkspaceId,
    },
    /// Unbind a device
    Unbind {
        /// The device
        name: DeviceId,
    },
}

impl DeviceCommand {
    pub(super) fn tenants(&self) -> Option<&AllTenants> {
        match self {
            Self::List { tenants, .. } => Some(tenants),
            _ => None,
        }
    }

    pub(super) async fn run(self, site: &Site<'_>) -> Result<(), Failure> {
        match self {
            Self::List { workspace, limit, after, tenants: _ } => {
                let mut query = BindingQuery::new().limit(limit).cursor(after);
                query.workspace = workspace;
                let page = site.storage.bindings.list(query).await?;
                let row = |binding: &agent_core::store::Binding| {
                    vec![binding.workspace.to_string(), binding.device.to_string()]
                };
                let rows: Vec<_> = page.items.iter().map(row).collect();
                let next = page.next.as_ref().map(ToString::to_string);
                let whole = json!({"items": page.items, "next": next, "damaged": damage(&page.damaged)});
                site.out.table(&whole, &["WORKSPACE", "DEVICE"], &rows);
                if let Some(next) = next {
                    site.out.note(&format!("(more: --after '{next}')"));
                }
                super::session::named(site, &page.damaged)
            }
            Self::Bind { name, workspace } => {
                site.manager.bind(&name, workspace).await?;
                let text = format!("device {name} is bound to workspace {workspace}");
                site.out.result(&json!({"device": name, "workspace": workspace}), &text);
                Ok(())
            }
            Self::Unbind { name } => {
                if !site.manager.unbind(&name).await? {
                    return Err(Failure::absent(format!("device {name} is bound to no workspace")));
                }
                site.out.result(
                    &json!({"device": name, "workspace": null}),
                    &format!("device {name} is unbound"),
                );
                Ok(())
            }
        }
    }
}
