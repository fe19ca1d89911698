//! A model that needs no network, and its tool.

use std::time::Duration;

use agent::core::async_trait;
use agent::core::json::RawJson;
use agent::runtime::context::ModelMessage;
use agent::runtime::{ModelEvent, ModelRequest, ModelStream, StopReason, Usage};
use agent::schemars::JsonSchema;
use agent::{EchoProvider, LlmProvider, Tool, ToolContext, ToolMode, tool};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "agent::schemars")]
struct Forget {
    /// What is to be forgotten.
    what: String,
}

/// A tool that needs consent.
pub(crate) fn forget() -> Tool {
    // Tools take their time: `FORGET_SECONDS` says how much.
    let seconds = std::env::var("FORGET_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(0));
    let forget = move |Forget { what }: Forget, _: ToolContext| async move {
        tokio::time::sleep(time).await;
        Ok::<_, std::io::Error>(format!("{what} is forgotten"))
    };
    tool("forget", "Forgets something for good.", forget).with_mode(ToolMode::Confirm)
}

/// Model that repeats each message word by word, and calls the tool for one like `forget the milk`.
#[derive(Debug)]
pub(crate) struct Clerk(EchoProvider);

impl Default for Clerk {
    fn default() -> Self {
        Self(EchoProvider::new().with_delay(Duration::from_millis(100)))
    }
}

#[async_trait]
impl LlmProvider for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn model(&self) -> &str {
        "clerk-1"
    }

    async fn generate(&self, request: ModelRequest) -> agent::Result<ModelStream> {
        let event = match request.messages.last() {
            Some(ModelMessage::User(said)) if let Some(what) = said.text().strip_prefix("forget ") => {
                ModelEvent::call("", "forget", RawJson::of(&Forget { what: what.to_owned() })?)
            }
            Some(ModelMessage::ToolResults(results)) => ModelEvent::text(results[0].output.clone()),
            _ => return self.0.generate(request).await,
        };
        Ok(stream::iter([event, ModelEvent::done(StopReason::EndTurn, Usage::new(1, 1))].map(Ok)).boxed())
    }
}
