//! Models that `--model` names: the offline one, and hosted ones with the feature `models`.

use std::fmt;
use std::str::FromStr;

use crate::offline::OfflineModel;

/// Model that a conversation asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelName {
    /// Repeats what is said.
    Offline,
    /// Model of a vendor.
    Of(Vendor, String),
    /// Model at an address whose API is like OpenAI's chat completions.
    At { url: String, model: String },
}

/// Vendor whose models can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Anthropic,
    OpenAi,
    Google,
    Ollama,
}

impl Vendor {
    const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAi, Self::Google, Self::Ollama];

    /// Returns the name before the colon, by which sessions record the provider.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Google => "google",
            Self::Ollama => "ollama",
        }
    }
}

impl FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OfflineModel::NAME {
            return Ok(Self::Offline);
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            let authority = text.split('/').nth(2).unwrap_or_default();
            if authority.contains('@') {
                // The command line is shown to other users of the machine.
                return Err(
                    "the address holds a password; leave it out, and set AGENT_MODEL_API_KEY".to_owned()
                );
            }
            return match text.split_once('#') {
                Some((url, model)) if !model.is_empty() => {
                    Ok(Self::At { url: url.trim_end_matches('/').to_owned(), model: model.to_owned() })
                }
                _ => Err(format!("name the model behind the address, as in {text}#qwen3")),
            };
        }
        let known = text.split_once(':').filter(|(_, model)| !model.is_empty());
        let vendor = known.and_then(|(vendor, model)| {
            Some((Vendor::ALL.into_iter().find(|known| known.name() == vendor)?, model))
        });
        let (vendor, model) = vendor.ok_or(
            "a model is anthropic:NAME, openai:NAME, google:NAME, ollama:NAME, http://HOST/v1#NAME or offline",
        )?;
        Ok(Self::Of(vendor, model.to_owned()))
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offline => f.write_str(OfflineModel::NAME),
            Self::Of(vendor, model) => write!(f, "{}:{model}", vendor.name()),
            Self::At { url, model } => write!(f, "{url}#{model}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_printed() {
        for name in [
            "offline",
            "anthropic:claude-opus-5-5",
            "ollama:qwen3:8b",
            "google:gemini-3-pro",
            "http://127.0.0.1:8080/v1#a/b:c",
        ] {
            assert_eq!(name.parse::<ModelName>().unwrap().to_string(), name);
        }
        let secret = "https://user:SECRET@host/v1#m".parse::<ModelName>().unwrap_err();
        assert!(secret.contains("AGENT_MODEL_API_KEY") && !secret.contains("SECRET"), "{secret}");
        for wrong in ["", "claude", "anthropic:", "azure:x", "http://localhost/v1", "https://localhost/v1#"] {
            assert!(wrong.parse::<ModelName>().is_err(), "{wrong}");
        }
    }
}
