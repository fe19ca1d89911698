//! `chat config`.

use agent_core::{ErrorKind, TenantId, WorkspaceId};
use agent_runtime::configuration::{ConfigLayers, LayeredConfig};
use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::site::Site;
use crate::args::Args;
use crate::failure::Result;
use crate::help::examples;
use crate::host_config::{layers, name_unknown};
use crate::output::line;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the configuration that applies to a workspace
    ///
    /// The file of the host is overridden by the configuration of the workspace, and both by environment variables.
    #[command(after_help = examples!("chat config show", "chat config show --workspace ID --explain"))]
    Show {
        /// Workspace id (default: the workspace of the device)
        #[arg(long, value_name = "ID")]
        workspace: Option<WorkspaceId>,
        /// Show the layer of each value: global, workspace or environment
        #[arg(long)]
        explain: bool,
    },
}

impl ConfigCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        let Self::Show { workspace, explain } = self;
        let config = merged(site, workspace).await?;
        if site.out.is_json() {
            let entry = |entry: agent_runtime::configuration::ConfigEntry<'_>| {
                let value = entry.value.map_or(Value::Null, |value| json!(value));
                let mut fields = json!({"value": value, "secret": entry.value.is_none()});
                if explain {
                    fields["layer"] = entry.layer.to_string().into();
                }
                (entry.key, fields)
            };
            site.out.result(&Value::Object(config.entries().map(entry).collect::<Map<_, _>>()), "");
            return Ok(());
        }
        if config.entries().next().is_none() {
            let file = site.args.config_file()?;
            site.out.note(&format!("(no configuration is set; the file of the host is {})", file.display()));
        }
        for entry in config.entries() {
            let value = entry.value.map_or_else(|| "(secret)".to_owned(), ToString::to_string);
            let layer = if explain { format!("  # {}", entry.layer) } else { String::new() };
            line(&format!("{} = {value}{layer}", entry.key));
        }
        Ok(())
    }
}

/// Returns the merged layers of a workspace. A device that is not bound has no workspace layer.
async fn merged(site: &Site<'_>, workspace: Option<WorkspaceId>) -> Result<LayeredConfig> {
    let mut layers = layers(site.args)?;
    let bound = match workspace {
        Some(id) => Some(id),
        None => site.storage.bindings.resolve(&site.args.device()?).await?,
    };
    if let Some(id) = bound {
        let text = match site.storage.workspaces.load_config(id).await {
            // The workspace of a device may have been deleted.
            Err(error)
                if workspace.is_none()
                    && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted) =>
            {
                None
            }
            text => text?,
        };
        let (source, text) = (source(site.args, id), text.unwrap_or_default());
        let own = ConfigLayers::new().with_workspace_from(&source, &text)?.merge(|_| None)?;
        name_unknown(&source, &own)?;
        layers = layers.with_workspace_from(source, &text)?;
    }
    Ok(layers.merge(|name| std::env::var(name).ok())?)
}

/// Returns the name of a workspace's configuration in errors: the path of its file, if the store is a folder.
fn source(args: &Args, id: WorkspaceId) -> String {
    let file = args.address().ok().and_then(|address| {
        let folder = match &args.tenant {
            Some(tenant) if *tenant != TenantId::default() => {
                address.folder()?.join("tenants").join(tenant.as_str())
            }
            _ => address.folder()?.to_owned(),
        };
        Some(folder.join("workspaces").join(id.to_string()).join("config.toml"))
    });
    match file.filter(|file| file.is_file()) {
        Some(file) => file.display().to_string(),
        None => format!("the configuration of workspace {id}"),
    }
}
