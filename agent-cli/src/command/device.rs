//! `chat device`.

use agent_core::store::{BindingQuery, Cursor};
use agent_core::{DeviceId, WorkspaceId};
use clap::Subcommand;
use serde_json::json;

use super::site::Site;
use super::tenants::AllTenants;
use crate::failure::{Failure, Result};
use crate::help::examples;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// List devices with the workspaces to which they are bound
    #[command(after_help = examples!("chat device list", "chat device list --workspace ID --json"))]
    List {
        /// Id of the workspace to which the devices are bound (default: all)
        #[arg(long, value_name = "ID")]
        workspace: Option<WorkspaceId>,
        /// Maximum number of rows
        #[arg(long, value_name = "N", default_value = "100")]
        limit: usize,
        /// Cursor of the next page, as the previous page printed it
        #[arg(long, value_name = "CURSOR")]
        after: Option<Cursor>,
        #[command(flatten)]
        tenants: AllTenants,
    },
    /// Bind a device to a workspace, in place of an earlier binding
    #[command(after_help = examples!("chat device bind laptop ID"))]
    Bind {
        /// Device name
        name: DeviceId,
        /// Workspace id
        workspace: WorkspaceId,
    },
    /// Unbind a device
    ///
    /// The next conversation of the device creates a new workspace.
    #[command(after_help = examples!("chat device unbind laptop"))]
    Unbind {
        /// Device name
        name: DeviceId,
    },
}

impl DeviceCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        match self {
            Self::List { workspace, limit, after, tenants: _ } => {
                let mut query = BindingQuery::new().with_limit(limit).with_cursor(after);
                query.workspace = workspace;
                let page = site.storage.bindings.list(query).await?;
                site.page(&page, &["WORKSPACE", "DEVICE"], |binding| {
                    vec![binding.workspace.to_string(), binding.device.to_string()]
                })
            }
            Self::Bind { name, workspace } => {
                site.manager.bind(&name, workspace).await?;
                let text = format!("bound device {name} to workspace {workspace}");
                site.out.result(&json!({"device": name, "workspace": workspace}), &text);
                Ok(())
            }
            Self::Unbind { name } => {
                if !site.manager.unbind(&name).await? {
                    return Err(Failure::absent(format!(
                        "device {name} is not bound to a workspace; `chat device list` lists the bound devices"
                    )));
                }
                site.out
                    .result(&json!({"device": name, "workspace": null}), &format!("unbound device {name}"));
                Ok(())
            }
        }
    }
}
