//! Completion models of rig as providers.

use std::fmt;

use agent_core::event::ModelOrigin;
use agent_core::model::Cost;
use agent_core::setters;
use agent_core::{Error, Result, async_trait};
use agent_runtime::context::ModelMessage;
use agent_runtime::{
    FaultKind, LlmProvider, MediaKind, ModelCapabilities, ModelRequest, ModelStream, ProviderFault, Usage,
};
use rig_core::DynModel;
use rig_core::catalog::{Catalog, ModelSpec};
use rig_core::driver::Model;
use rig_core::message::Origin;
use rig_core::operation::Completion;
use rig_core::providers::gemini::GeminiConfig;
use rig_core::providers::gemini::completion::{GenerateContent, PROVIDER_NAME as GEMINI};
use rig_core::providers::registry::{self, ProviderId};
use rig_core::wire::Secret;

use crate::answer::begin;
use crate::fault::{fault, too_long};
use crate::gemini;
use crate::quiet::quietly;
use crate::request::{Target, convert, probe};
use crate::transport::ModelTransport;

/// Name and version of what turns a request into bytes. The first number is raised when `request.rs` changes them.
const RENDERING: &str = "agent-rig/2+rig/0.44.0";

/// Bytes of English text that a token stands for, on average; of code and of most languages it is fewer.
const TOKEN_BYTES: usize = 4;

/// Completion model of rig as a provider of runs.
///
/// The [name](LlmProvider::name) is rig's name of the provider, like `anthropic`, and the [model](LlmProvider::model) the
/// one that the requests name. What the model takes, how much of it, and what it costs is read from rig's catalog; a model
/// that is not in it is said to take text, images and tools.
///
/// ```
/// use agent_rig::RigProvider;
/// use agent_runtime::LlmProvider;
///
/// # fn main() -> agent_core::Result<()> {
/// let model = RigProvider::connect("openai/gpt-5.5", "the key")?.with_account("team-a");
/// assert_eq!((model.name(), model.model()), ("openai", "gpt-5.5"));
/// assert!(!format!("{model:?}").contains("the key"));
/// # Ok(()) }
/// ```
///
/// # What is sent
///
/// - The conversation, each message from itself alone: a request begins with the bytes of the one before. Texts that the
///   system inserts are texts of the user between `<system>` and `</system>`, which a user can write, too.
/// - Items of the model's own earlier answers as rig has them, in their order; see the [crate](crate#what-rig-keeps-of-a-providers-items).
///   Reasoning without such an item is left out.
/// - A limit on the answer of 8,192 tokens, if the request has none, the API is Anthropic's and the model is not in rig's catalog:
///   the API wants one.
/// - To Anthropic, that it should keep the prompt in its [cache](Self::with_prompt_cache).
/// - Effort as the nearest level that the model has, or as a number of tokens, at most half of `max_tokens`. An option that the model does not take is left out.
///
/// # Cancel safety
///
/// Dropping the stream closes the connection.
///
/// # Limits
///
/// - Parts end when the whole answer has ended, because rig decides then which items can be sent back.
/// - rig shows no signs of life: a model that is silent for longer than
///   [`model_silence`](field@agent_runtime::Limits::model_silence) fails the run, also if its server sends pings.
/// - rig reads a paused answer of Anthropic (`pause_turn`) as the end of the turn.
#[derive(Clone)]
pub struct RigProvider {
    model: DynModel<Completion>,
    name: String,
    /// Origin that rig gives to answers of this model.
    origin: Origin,
    account: Option<String>,
    capabilities: ModelCapabilities,
    spec: Option<&'static ModelSpec>,
    caches: bool,
}

impl fmt::Debug for RigProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RigProvider")
            .field("name", &self.name)
            .field("model", &self.origin.model)
            .field("api", &self.origin.api.as_str())
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

impl RigProvider {
    /// Creates a provider for a model of rig. Sends nothing.
    ///
    /// ```
    /// use agent_rig::RigProvider;
    /// use agent_rig::rig_core::providers::ollama::Ollama;
    /// use agent_runtime::LlmProvider;
    ///
    /// # fn main() -> agent_core::Result<()> {
    /// let model = RigProvider::new(Ollama::new().completion("qwen3"))?;
    /// assert_eq!(model.model(), "qwen3");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Provider` if rig cannot write a request for the model.
    pub fn new(model: impl Into<DynModel<Completion>>) -> Result<Self> {
        let model = model.into();
        let name = model.name().to_owned();
        let origin = origin(&model, &name, None)?;
        let vendor = ProviderId::catalog(&name);
        let spec = vendor.and_then(|vendor| Catalog::builtin().find(vendor, &origin.model));
        Ok(Self { model, name, origin, account: None, capabilities: capabilities(spec), spec, caches: true })
    }

    /// Creates a provider for a model of Gemini's `generateContent`. Sends nothing.
    ///
    /// Unlike with [`new`](Self::new), the key is sent in a header and not in the address, a call that came without an id
    /// goes back without one, and a text with a signature is not joined with the texts behind it.
    ///
    /// ```
    /// use agent_rig::RigProvider;
    /// use agent_rig::rig_core::providers::gemini::GeminiConfig;
    /// use agent_runtime::LlmProvider;
    ///
    /// # fn main() -> agent_core::Result<()> {
    /// let config = GeminiConfig::new("the key").with_base_url("http://127.0.0.1:4711");
    /// let model = RigProvider::gemini(config.client().completion("gemini-3-pro"))?;
    /// assert_eq!(model.model(), "gemini-3-pro");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Provider` if rig cannot write a request for the model.
    pub fn gemini(model: Model<GenerateContent>) -> Result<Self> {
        Self::new(gemini::model(model))
    }

    /// Creates a provider for a model by rig's reference, `vendor/model` or `vendor/format:model`, on a
    /// [`ModelTransport`]. Sends nothing; a wrong key is found by the first request.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if rig knows no such vendor; `Unavailable` as [`ModelTransport::new`].
    pub fn connect(reference: &str, key: impl Into<Secret>) -> Result<Self> {
        let key = key.into();
        let transport = ModelTransport::new()?;
        let model = registry::connect_with(reference, key.clone(), transport.clone()).map_err(|error| {
            let what =
                format!("{error}; name a model of a vendor that rig knows, like `anthropic/claude-opus-5-5`");
            Error::invalid(what)
        })?;
        match model.id() {
            Some(id) if model.name() == GEMINI => {
                Self::gemini(GeminiConfig::new(key).client().with_http(transport).completion(id))
            }
            _ => Self::new(model),
        }
    }

    setters! {
        /// Sets the name by which the configuration chooses the provider: 1 to 256 bytes; the default is rig's name of the
        /// provider.
        ///
        /// Needed if an agent has two models of one provider.
        pub fn with_name(name: impl Into<String>) => name = name.into();

        /// Sets the name that the log gives to the account; the default is none.
        ///
        /// Providers bind signed reasoning to an account. If keys of different accounts are used, each needs its name.
        pub fn with_account(account: impl Into<String>) => account = Some(account.into());

        /// Sets whether Anthropic is asked to keep the prompt in its cache for five minutes; the default is true. The other
        /// providers cache without being asked.
        ///
        /// A request begins with the bytes of the one before. Anthropic charges less for what it finds in its cache, and more for
        /// what it writes there ([prices](https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching)). So for single
        /// questions without a conversation, set it to false.
        pub fn with_prompt_cache(caches: bool) => caches = caches;

        /// Sets what the model takes, in place of what rig's catalog says.
        pub fn with_capabilities(capabilities: ModelCapabilities) => capabilities = capabilities;
    }

    /// Returns whether the text of a request has more tokens than the model takes, as far as that is known.
    fn is_too_long(&self, request: &ModelRequest) -> bool {
        let Some(window) = self.capabilities.context_tokens else { return false };
        let bytes: usize = request.messages.iter().map(ModelMessage::size_bytes).sum();
        bytes / TOKEN_BYTES > window as usize
    }
}

/// Returns the origin of an answer to a request with this system prompt and these tools.
///
/// A stream of rig names it before anything is sent.
fn origin(model: &DynModel<Completion>, name: &str, request: Option<&ModelRequest>) -> Result<Origin> {
    let probe = probe(request)?;
    let stream = quietly(|| model.stream(probe).map_err(|error| fault(name, &error)))?;
    Ok(stream.partial().origin)
}

fn capabilities(spec: Option<&ModelSpec>) -> ModelCapabilities {
    let Some(spec) = spec else {
        return ModelCapabilities::new().with_parallel_calls(true).with_media([MediaKind::Image]);
    };
    let takes = [
        (spec.input.image, MediaKind::Image),
        (spec.input.audio, MediaKind::Audio),
        (spec.input.video, MediaKind::Video),
        (spec.input.pdf, MediaKind::File),
    ];
    ModelCapabilities::new()
        .with_tools(spec.tools)
        .with_parallel_calls(spec.tools)
        .with_structured_output(spec.structured_output)
        .with_context_tokens(spec.context_window)
        .with_media(takes.into_iter().filter(|(takes, _)| *takes).map(|(_, kind)| kind))
}

#[async_trait]
impl LlmProvider for RigProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn model(&self) -> &str {
        &self.origin.model
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities.clone()
    }

    fn rendering(&self) -> &str {
        RENDERING
    }

    fn origin(&self) -> Option<ModelOrigin> {
        let Origin { api, provider, model, .. } = &self.origin;
        let mut origin = ModelOrigin::new(api.as_str(), provider, model);
        origin.account.clone_from(&self.account);
        Some(origin)
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        // Some models bind their items to the tools and the system prompt, and rig compares that with the request's. The
        // run has compared all that stood before them.
        let bound = match self.origin.context {
            Some(_) => Some(origin(&self.model, &self.name, Some(&request))?),
            None => None,
        };
        let origin = bound.as_ref().unwrap_or(&self.origin);
        let target = Target { provider: &self.name, origin, spec: self.spec, caches: self.caches };
        let converted = convert(&target, &request)?;
        let stream = quietly(|| self.model.stream(converted).map_err(|error| fault(&self.name, &error)))?;
        let answer = begin(&self.name, origin.api.as_str(), stream).await;
        answer.map_err(|error| match ProviderFault::of(&error) {
            Some(fault) if fault.kind == FaultKind::InvalidRequest && self.is_too_long(&request) => {
                too_long(fault.clone()).into()
            }
            _ => error,
        })
    }

    fn cost(&self, usage: Usage) -> Option<Cost> {
        let counted = rig_core::completion::Usage::new()
            .input_tokens(usage.input_tokens)
            .output_tokens(usage.output_tokens)
            .cached_input_tokens(usage.cache_read_tokens)
            .cache_creation_input_tokens(usage.cache_write_tokens);
        let cost = self.spec?.pricing.as_ref()?.cost(&counted)?;
        let micros = (cost.total * 1e6).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        (micros >= 0.0).then(|| Cost::new("USD", micros as u64))
    }
}
