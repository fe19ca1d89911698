//! Model and tools of the program. They work offline, so that the first start needs no API key.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::json::RawJson;
use agent_core::model::Usage;
use agent_core::{Error, ErrorKind, Result, async_trait};
use agent_runtime::context::ModelMessage;
use agent_runtime::{
    EchoProvider, LlmProvider, ModelCall, ModelEvent, ModelRequest, ModelStream, Plugin, StopReason,
    ToolContext, ToolMode, ToolSpec,
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

/// Model that repeats each message, and turns `!time`, `!sleep SECONDS` and `!TOOL {"argument": …}` into tool calls.
#[derive(Debug)]
pub(crate) struct OfflineModel(EchoProvider);

impl OfflineModel {
    /// Name by which workspaces and sessions choose the model.
    pub(crate) const NAME: &'static str = "offline";

    /// Creates a model that waits for `delay` before each word.
    pub(crate) fn new(delay: Duration) -> Self {
        Self(EchoProvider::new().with_delay(delay))
    }
}

#[async_trait]
impl LlmProvider for OfflineModel {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn model(&self) -> &str {
        "echo"
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let answer = match request.messages.last() {
            Some(ModelMessage::User(content)) => match tool_call(&content.text(), &request.tools)? {
                Some(call) => ModelEvent::ToolUse(call),
                None => return self.0.generate(request).await,
            },
            Some(ModelMessage::ToolResults(results)) => {
                let outputs: Vec<_> = results.iter().map(|result| result.output.as_str()).collect();
                ModelEvent::Text(format!("The tool returned {}.", outputs.join(", ")))
            }
            _ => return self.0.generate(request).await,
        };
        let done = ModelEvent::done(StopReason::EndTurn, Usage::default());
        Ok(futures::stream::iter([Ok(answer), Ok(done)]).boxed())
    }
}

/// Returns the tool call that a message requests.
fn tool_call(text: &str, tools: &[ToolSpec]) -> Result<Option<ModelCall>> {
    let mut words = text.split_whitespace();
    let command = text
        .strip_prefix('!')
        .map(|command| command.split_once(char::is_whitespace).unwrap_or((command, "{}")));
    if let Some((name, arguments)) = command
        && tools.iter().any(|tool| tool.name == name)
        && arguments.trim_start().starts_with('{')
        && let Ok(arguments) = RawJson::parse(arguments.trim())
    {
        return Ok(Some(ModelCall::new("", name, arguments)));
    }
    Ok(match (words.next(), words.next().map(str::parse::<f64>)) {
        (Some("!time"), None) => Some(ModelCall::new("", "clock", RawJson::empty_object())),
        (Some("!sleep"), Some(Ok(seconds))) => {
            Some(ModelCall::new("", "sleep", RawJson::of(&Sleep { seconds })?))
        }
        _ => None,
    })
}

/// Input of the tool `sleep`.
#[derive(Debug, Serialize, Deserialize)]
struct Sleep {
    seconds: f64,
}

/// Tools that return the time, and wait.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) effects: Effects,
    /// Whether calls need consent.
    pub(crate) mode: ToolMode,
}

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "offline tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![
            ToolSpec::new("clock", "Returns the time in UTC.").with_mode(self.mode),
            ToolSpec::new("sleep", "Waits for `seconds` seconds.").with_mode(self.mode),
        ]
    }

    async fn call(&self, tool: &str, input: RawJson, _: ToolContext) -> Result<RawJson> {
        match tool {
            "clock" => RawJson::of(&self.effects.now()),
            "sleep" => {
                let Sleep { seconds } = input.to()?;
                let time = Duration::try_from_secs_f64(seconds).map_err(|source| {
                    Error::new(ErrorKind::InvalidInput, format!("cannot wait {seconds} seconds"))
                        .with_source(source)
                })?;
                tokio::time::sleep(time).await;
                RawJson::of(&format!("waited {seconds} s"))
            }
            _ => Err(Error::new(ErrorKind::Provider, format!("unknown tool {tool}"))),
        }
    }
}
