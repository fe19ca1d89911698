//! Model and tools of the program. They work offline, so that the first start needs no API key.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::json::RawJson;
use agent_core::model::Usage;
use agent_core::{Error, Result, async_trait};
use agent_runtime::context::ModelMessage;
use agent_runtime::schemars::JsonSchema;
use agent_runtime::{
    EchoProvider, LlmProvider, ModelCall, ModelEvent, ModelRequest, ModelStream, StopReason, Tool, ToolMode,
    ToolSpec, tool,
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

/// Input of the tool `clock`.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "agent_runtime::schemars")]
struct Nothing {}

/// Input of the tool `sleep`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "agent_runtime::schemars")]
struct Sleep {
    seconds: f64,
}

/// Returns tools that return the time, and wait. Calls need consent if `mode` says so.
pub(crate) fn tools(effects: Effects, mode: ToolMode) -> [Tool; 2] {
    let clock = tool("clock", "Returns the time in UTC.", move |_: Nothing, _| {
        std::future::ready(Ok::<_, Error>(effects.now()))
    });
    let sleep = tool("sleep", "Waits for `seconds` seconds.", |Sleep { seconds }, _| async move {
        let time = Duration::try_from_secs_f64(seconds);
        tokio::time::sleep(time.map_err(|_| format!("cannot wait {seconds} seconds"))?).await;
        Ok::<_, String>(format!("waited {seconds} s"))
    });
    [clock, sleep].map(|tool| tool.with_mode(mode))
}
