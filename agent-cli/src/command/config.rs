//! `chat config`.

use std::fs;
use std::io::ErrorKind as IoKind;

use agent_core::{Error, ErrorKind, TenantId, WorkspaceId};
use agent_runtime::configuration::{ConfigLayers, LayeredConfig};
use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::output::line;
use super::site::Site;
use crate::args::Args;
use crate::bounded::{CONFIG_MAX, read_text};
use crate::failure::Failure;
use crate::help::examples;
use crate::screen::print_error;

/// Environment variables with API keys of providers, and the keys that they set. Their values are never shown.
const KEYS: [(&str, &str); 3] = [
    ("ANTHROPIC_API_KEY", "providers.claude.api_key"),
    ("GOOGLE_API_KEY", "providers.gemini.api_key"),
    ("OPENAI_API_KEY", "providers.openai.api_key"),
];

/// Tables and values at the top of a configuration that mean something to the program.
const KNOWN: [&str; 3] = ["mcp", "provider", "providers"];

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
    pub(super) async fn run(self, site: &Site<'_>) -> Result<(), Failure> {
        let Self::Show { workspace, explain } = self;
        let config = merged(site, workspace).await?;
        if site.out.is_json() {
            let entry = |entry: agent_runtime::configuration::ConfigEntry<'_>| {
                let value = entry.value.map_or(Value::Null, |value| json!(value));
                let mut fields = json!({"value": value, "secret": entry.value.is_none()});
                if let (true, Some(fields)) = (explain, fields.as_object_mut()) {
                    fields.insert("layer".to_owned(), json!(entry.layer.to_string()));
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

/// Returns the layer of the host.
pub(super) fn host(args: &Args) -> Result<ConfigLayers, Failure> {
    let file = args.config_file()?;
    let text = match fs::metadata(&file) {
        Err(error) if error.kind() == IoKind::NotFound && args.config.is_none() => String::new(),
        _ => read_text(&file, CONFIG_MAX)?,
    };
    let source = file.display().to_string();
    let layers = ConfigLayers::new().with_global_from(&source, &text)?;
    name_unknown(&source, &layers.clone().merge(|_| None)?)?;
    Ok(layers)
}

/// Prints the keys at the top that mean nothing to the program. The key for MCP servers that others use is an error:
/// somebody waits for these servers, and what is secret in it would be shown.
fn name_unknown(source: &str, config: &LayeredConfig) -> Result<(), Failure> {
    for key in config.values().keys().filter(|key| !KNOWN.contains(&key.as_str())) {
        let plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
        if matches!(plain.to_ascii_lowercase().as_str(), "mcp" | "mcpserver" | "mcpservers") {
            let text = format!(
                "{source}: MCP servers are not read from `{key}`; write [mcp.NAME] instead of [{key}.NAME]"
            );
            return Err(Error::invalid(text).into());
        }
        print_error(&format!("{source}: the program does not read `{key}`; it reads {}", KNOWN.join(", ")));
    }
    Ok(())
}

/// Returns the layer of the host, with what is protected and what is secret.
pub(crate) fn layers(args: &Args) -> Result<ConfigLayers, Failure> {
    let mut layers = host(args)?;
    // Only the host decides to which server an API key is sent, and which programs are started.
    for key in ["providers.*.base_url", "providers.*.api_key"] {
        layers = layers.with_protected(key)?;
    }
    for key in ["providers.*.api_key", "mcp.*.env", "mcp.*.headers"] {
        layers = layers.with_secret(key)?;
    }
    for (variable, key) in KEYS {
        layers = layers.with_secret_variable(variable, key)?;
    }
    #[cfg(feature = "mcp")]
    let layers = agent_mcp::McpServers::protect(layers)?;
    Ok(layers)
}

/// Returns the merged layers of a workspace. A device that is not bound has no workspace layer.
async fn merged(site: &Site<'_>, workspace: Option<WorkspaceId>) -> Result<LayeredConfig, Failure> {
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
