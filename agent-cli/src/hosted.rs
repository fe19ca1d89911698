//! Hosted models, through rig. Keys are read from the environment, and are neither stored nor printed.

use agent_core::event::ModelOrigin;
use agent_core::model::Cost;
use agent_core::{Error, Result, async_trait};
use agent_rig::rig_core::providers::anthropic::wire::AnthropicConfig;
use agent_rig::rig_core::providers::gemini::GeminiConfig;
use agent_rig::rig_core::providers::ollama::OllamaConfig;
use agent_rig::rig_core::providers::openai::wire::{LLAMACPP, OpenAIConfig};
use agent_rig::{ModelTransport, RigProvider};
use agent_runtime::{
    FaultKind, LlmProvider, ModelCapabilities, ModelRequest, ModelStream, ProviderFault, Usage,
};
use futures::StreamExt;

use crate::failure::Failure;
use crate::model::{ModelName, Vendor};

/// Variable with the key for a model at an address of its own. The keys of vendors are not sent there.
const OTHER_KEY: &str = "AGENT_MODEL_API_KEY";

/// Model of a vendor, whose faults say what the user can do about them.
#[derive(Debug)]
pub(crate) struct HostedModel {
    model: RigProvider,
    /// Variable that holds the key; `None` if the model needs none.
    key: Option<&'static str>,
    address: String,
}

/// Environment of a vendor: variables of the key, variable of the address, and the address if that is not set.
const fn environment(vendor: Vendor) -> (&'static [&'static str], &'static str, &'static str) {
    match vendor {
        Vendor::Anthropic => (&["ANTHROPIC_API_KEY"], "ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
        Vendor::OpenAi => (&["OPENAI_API_KEY"], "OPENAI_BASE_URL", "https://api.openai.com/v1"),
        Vendor::Google => (
            &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            "GOOGLE_GEMINI_BASE_URL",
            "https://generativelanguage.googleapis.com",
        ),
        Vendor::Ollama => (&[], "OLLAMA_HOST", "http://localhost:11434"),
    }
}

/// Returns the value of a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// Returns an address without a user and a password, as it may be shown.
fn without_user(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{host}{path}")
}

impl HostedModel {
    /// Returns the model that was named. Asks nothing of it.
    ///
    /// # Errors
    ///
    /// `missing_key` if the variable of the key is not set.
    pub(crate) fn new(name: &ModelName) -> std::result::Result<Option<Self>, Failure> {
        let (vendor, model) = match name {
            ModelName::Offline => return Ok(None),
            ModelName::At { url, model } => {
                let key = variable(OTHER_KEY).unwrap_or_default();
                let config = OpenAIConfig::with_key(&LLAMACPP, key).with_base_url(url);
                let client = config.client().with_http(ModelTransport::new()?);
                let provider = RigProvider::new(client.chat(model.as_str()))?.with_name("endpoint");
                return Ok(Some(Self { model: provider, key: Some(OTHER_KEY), address: url.clone() }));
            }
            ModelName::Of(vendor, model) => (*vendor, model.as_str()),
        };
        let (keys, place, usual) = environment(vendor);
        let found = keys.iter().find_map(|key| Some((*key, variable(key)?)));
        if found.is_none() && !keys.is_empty() {
            let text = format!(
                "--model {name} needs a key: set {}, as in `{}=… chat --model {name}`",
                keys.join(" or "),
                keys[0]
            );
            return Err(Failure::new(1, "missing_key", text));
        }
        let (key, secret) = found.map_or((None, String::new()), |(key, secret)| (Some(key), secret));
        let own = variable(place);
        let address = own.clone().unwrap_or_else(|| usual.to_owned());
        // The address of a host without a scheme is usual for Ollama.
        let address = if address.contains("://") { address } else { format!("http://{address}") };
        let http = ModelTransport::new()?;
        let provider = match vendor {
            Vendor::Anthropic => {
                let config = AnthropicConfig::new(secret).with_base_url(&address);
                RigProvider::new(config.client().with_http(http).completion(model))
            }
            Vendor::OpenAi => {
                let config = OpenAIConfig::new(secret).with_base_url(&address);
                RigProvider::new(config.client().with_http(http).responses(model))
            }
            Vendor::Google => {
                let config = GeminiConfig::new(secret);
                let config = if own.is_some() { config.with_base_url(&address) } else { config };
                RigProvider::gemini(config.client().with_http(http).completion(model))
            }
            Vendor::Ollama => {
                let config = OllamaConfig::new().with_base_url(&address);
                RigProvider::new(config.client().with_http(http).native_completion(model))
            }
        };
        Ok(Some(Self { model: provider?.with_name(vendor.name()), key, address: without_user(&address) }))
    }
}

/// Says of a fault what the user can do about it.
fn explained(error: Error, model: &str, key: Option<&str>, address: &str) -> Error {
    let Some(fault) = ProviderFault::of(&error) else { return error };
    let remedy = match fault.kind {
        FaultKind::Network => format!("; check that {address} can be reached"),
        FaultKind::Auth => key.map_or_else(String::new, |key| format!("; check {key}")),
        FaultKind::InvalidRequest if fault.text.contains("HTTP status 404") => {
            format!("; check that there is a model {model} at {address}")
        }
        _ => return error,
    };
    let mut explained = fault.clone();
    explained.text.push_str(&remedy);
    explained.into()
}

#[async_trait]
impl LlmProvider for HostedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn model(&self) -> &str {
        self.model.model()
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.model.capabilities()
    }

    fn rendering(&self) -> &str {
        self.model.rendering()
    }

    fn origin(&self) -> Option<ModelOrigin> {
        self.model.origin()
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let (model, key, address) = (self.model().to_owned(), self.key, self.address.clone());
        let explain = move |error| explained(error, &model, key, &address);
        let stream = self.model.generate(request).await.map_err(&explain)?;
        Ok(stream.map(move |event| event.map_err(&explain)).boxed())
    }

    fn cost(&self, usage: Usage) -> Option<Cost> {
        self.model.cost(usage)
    }
}
