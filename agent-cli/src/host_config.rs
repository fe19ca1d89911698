//! Layers of the configuration that the host decides.

use std::fs;
use std::io::ErrorKind as IoKind;

use agent_core::Error;
use agent_core::store::ContentHash;
use agent_runtime::configuration::{ConfigLayers, LayeredConfig};

use crate::args::Args;
use crate::content::read_text;
use crate::failure::Result;
use crate::screen::print_error;

/// Environment variables with API keys of providers, and the keys that they set. Their values are never shown.
const KEYS: [(&str, &str); 3] = [
    ("ANTHROPIC_API_KEY", "providers.claude.api_key"),
    ("GOOGLE_API_KEY", "providers.gemini.api_key"),
    ("OPENAI_API_KEY", "providers.openai.api_key"),
];

/// Tables and values at the top of a configuration that mean something to the program.
const KNOWN: [&str; 3] = ["mcp", "provider", "providers"];

/// Returns the layer of the host.
pub(crate) fn host(args: &Args) -> Result<ConfigLayers> {
    let file = args.config_file()?;
    let text = match fs::metadata(&file) {
        Err(error) if error.kind() == IoKind::NotFound && args.config.is_none() => String::new(),
        _ => read_text(&file, ContentHash::CONFIG_MAX_BYTES as u64)?,
    };
    let source = file.display().to_string();
    let layers = ConfigLayers::new().with_global_from(&source, &text)?;
    name_unknown(&source, &layers.clone().merge(|_| None)?)?;
    Ok(layers)
}

/// Prints the keys at the top that mean nothing to the program. The key for MCP servers that others use is an error:
/// somebody waits for these servers, and what is secret in it would be shown.
pub(crate) fn name_unknown(source: &str, config: &LayeredConfig) -> Result<()> {
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
pub(crate) fn layers(args: &Args) -> Result<ConfigLayers> {
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
