//! `chat config`.

use std::fs;
use std::io::ErrorKind as IoKind;

use agent_core::{ErrorKind, WorkspaceId};
use agent_runtime::configuration::{ConfigLayers, LayeredConfig};
use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::output::line;
use super::site::Site;
use crate::args::Args;
use crate::bounded::{CONFIG_MAX, read_text};
use crate::failure::Failure;

/// The keys of providers, each in a variable of the environment. Their values are never shown.
const KEYS: [(&str, &str); 3] = [
    ("ANTHROPIC_API_KEY", "providers.claude.api_key"),
    ("GOOGLE_API_KEY", "providers.gemini.api_key"),
    ("OPENAI_API_KEY", "providers.openai.api_key"),
];

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show what the layers of configuration come to: the host's file, the workspace's over it, the environment over both
    Show {
        /// Of this workspace [default: the one that the device is bound to]
        #[arg(long, value_name = "ID")]
        workspace: Option<WorkspaceId>,
        /// Say of each value which layer it comes from
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
        for entry in config.entries() {
            let value = entry.value.map_or_else(|| "(secret)".to_owned(), ToString::to_string);
            let layer = if explain { format!("  # {}", entry.layer) } else { String::new() };
            line(&format!("{} = {value}{layer}", entry.key));
        }
        Ok(())
    }
}

/// The host's own layer.
pub(super) fn host(args: &Args) -> Result<ConfigLayers, Failure> {
    let file = args.config_file()?;
    let text = match fs::metadata(&file) {
        Err(error) if error.kind() == IoKind::NotFound && args.config.is_none() => String::new(),
        _ => read_text(&file, CONFIG_MAX)?,
    };
    let layers = ConfigLayers::new().global(&text);
    Ok(layers.map_err(|error| error.about(format_args!("{}", file.display())))?)
}

/// The layers of a workspace, merged. A device that is bound to none has the host's and the environment's.
async fn merged(site: &Site<'_>, workspace: Option<WorkspaceId>) -> Result<LayeredConfig, Failure> {
    let mut layers = host(site.args)?;
    // Where its key goes is the host's to say.
    for key in ["providers.*.base_url", "providers.*.api_key"] {
        layers = layers.protect(key)?;
    }
    layers = layers.secret("providers.*.api_key")?;
    for (variable, key) in KEYS {
        layers = layers.secret_variable(variable, key)?;
    }
    let bound = match workspace {
        Some(id) => Some(id),
        None => site.storage.bindings.resolve(&site.args.device()?).await?,
    };
    if let Some(id) = bound {
        let text = match site.storage.workspaces.load_config(id).await {
            // What a device is bound to may be gone.
            Err(error)
                if workspace.is_none()
                    && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted) =>
            {
                None
            }
            text => text?,
        };
        layers = layers.workspace(&text.unwrap_or_default())?;
    }
    Ok(layers.merge(|name| std::env::var(name).ok())?)
}
