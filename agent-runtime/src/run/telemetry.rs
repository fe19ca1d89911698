//! Spans of a run, its model calls and its tool calls, under the names of the OpenTelemetry conventions.
//!
//! The names are those of version 0.1.0 of the OpenTelemetry semantic conventions for generative AI
//! (`open-telemetry/semantic-conventions-genai`), whose status is "development": this file alone holds them, so that a
//! newer version is adopted here. The `otel.*` fields are those that the bridge `tracing-opentelemetry` reads: the name
//! of a span of `tracing` is a constant, and `otel.name` holds the name that the conventions define.
//!
//! No field holds content: no prompt, no text of a model, no input or output of a tool, no text of an error.

use std::time::Duration;

use tracing::field::{Empty, debug, display};
use tracing::{Instrument, Span, info_span};

use crate::run::report::{RunOutcome, RunReport};
use agent_core::event::{ToolOutcome, ToolResult, ToolUse};
use agent_core::model::Usage;
use agent_core::{Epoch, ErrorKind, Result, RunId, SessionId};

const OTEL_NAME: &str = "otel.name";
const OTEL_KIND: &str = "otel.kind";
const OTEL_STATUS: &str = "otel.status_code";
const OPERATION: &str = "gen_ai.operation.name";
const PROVIDER: &str = "gen_ai.provider.name";
const AGENT: &str = "gen_ai.agent.name";
const CONVERSATION: &str = "gen_ai.conversation.id";
const REQUEST_MODEL: &str = "gen_ai.request.model";
const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
const REQUEST_STREAM: &str = "gen_ai.request.stream";
const OUTPUT_TYPE: &str = "gen_ai.output.type";
const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_write.input_tokens";
const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
const TOOL: &str = "gen_ai.tool.name";
const TOOL_TYPE: &str = "gen_ai.tool.type";
const TOOL_CALL: &str = "gen_ai.tool.call.id";
const ERROR_TYPE: &str = "error.type";

/// Name of a tool that the model invented; the text that it invented is content.
const UNKNOWN_TOOL: &str = "unknown";

/// Returns the span of a whole run. Provider and model are recorded when they are known: see [`record_model`].
pub(crate) fn run_span(agent: Option<&str>, session: SessionId, run: RunId, epoch: Epoch) -> Span {
    let name = agent.map_or("invoke_agent".to_owned(), |agent| format!("invoke_agent {agent}"));
    info_span!(
        "invoke_agent",
        { OTEL_NAME } = name,
        { OTEL_KIND } = "internal",
        { OTEL_STATUS } = Empty,
        { OPERATION } = "invoke_agent",
        { AGENT } = agent,
        { CONVERSATION } = %session,
        { PROVIDER } = Empty,
        { REQUEST_MODEL } = Empty,
        { INPUT_TOKENS } = Empty,
        { OUTPUT_TOKENS } = Empty,
        { CACHE_READ_TOKENS } = Empty,
        { CACHE_WRITE_TOKENS } = Empty,
        { REASONING_TOKENS } = Empty,
        { ERROR_TYPE } = Empty,
        session = %session,
        run = %run,
        epoch = %epoch,
    )
}

/// Records the provider and the model of the run in whose span this is called.
pub(crate) fn record_model(provider: &str, model: Option<&str>) {
    let span = Span::current();
    span.record(PROVIDER, provider);
    span.record(REQUEST_MODEL, model);
}

/// Runs `work` in the span of its run, and records how the run ended.
pub(crate) async fn invoke_agent(
    span: Span,
    work: impl Future<Output = Result<RunReport>>,
) -> Result<RunReport> {
    let ended = work.instrument(span.clone()).await;
    match &ended {
        Ok(report) => {
            record_usage(&span, report.usage);
            if let RunOutcome::Failed(failure) = &report.outcome {
                record_error(&span, failure.fault.as_deref().unwrap_or(ErrorKind::Provider.name()));
            }
        }
        Err(error) => record_error(&span, error.kind().name()),
    }
    ended
}

/// Target of a model call.
pub(crate) struct Target<'a> {
    pub(crate) session: SessionId,
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    pub(crate) max_tokens: Option<u32>,
    /// True if the answer is to be JSON.
    pub(crate) json: bool,
}

/// Returns the span of a model call, which lasts until the answer ends, over all its retries.
pub(crate) fn chat_span(target: &Target<'_>) -> Span {
    info_span!(
        "chat",
        { OTEL_NAME } = format!("chat {}", target.model),
        { OTEL_KIND } = "client",
        { OTEL_STATUS } = Empty,
        { OPERATION } = "chat",
        { PROVIDER } = target.provider,
        { CONVERSATION } = %target.session,
        { REQUEST_MODEL } = target.model,
        { REQUEST_MAX_TOKENS } = target.max_tokens,
        { REQUEST_STREAM } = true,
        { OUTPUT_TYPE } = target.json.then_some("json"),
        { FINISH_REASONS } = Empty,
        { FIRST_CHUNK } = Empty,
        { INPUT_TOKENS } = Empty,
        { OUTPUT_TOKENS } = Empty,
        { CACHE_READ_TOKENS } = Empty,
        { CACHE_WRITE_TOKENS } = Empty,
        { REASONING_TOKENS } = Empty,
        { ERROR_TYPE } = Empty,
    )
}

/// End of a model call, as its span records it.
pub(crate) struct ChatEnd<'a> {
    /// Reason for which the model stopped, in the words of the conventions; `error` if it did not stop by itself.
    pub(crate) finish: &'static str,
    pub(crate) usage: Usage,
    /// Time between the request and the first event of the answer.
    pub(crate) first: Option<Duration>,
    /// Class of the failure.
    pub(crate) error: Option<&'a str>,
}

/// Records the end of a model call.
pub(crate) fn record_chat(span: &Span, end: &ChatEnd<'_>) {
    // A field of `tracing` holds no list; the bridge gives this text.
    span.record(FINISH_REASONS, debug([end.finish]));
    span.record(FIRST_CHUNK, end.first.map(|time| time.as_secs_f64()));
    record_usage(span, end.usage);
    if let Some(error) = end.error {
        record_error(span, error);
    }
}

/// Makes a tool call in its span. `known` is false for a tool that does not exist.
pub(crate) async fn execute_tool(
    session: SessionId,
    call: &ToolUse,
    known: bool,
    work: impl Future<Output = ToolResult>,
) -> ToolResult {
    let name = if known { call.name.as_str() } else { UNKNOWN_TOOL };
    let span = info_span!(
        "execute_tool",
        { OTEL_NAME } = format!("execute_tool {name}"),
        { OTEL_KIND } = "internal",
        { OTEL_STATUS } = Empty,
        { OPERATION } = "execute_tool",
        { CONVERSATION } = %session,
        { TOOL } = name,
        { TOOL_TYPE } = "function",
        { TOOL_CALL } = %call.call,
        { ERROR_TYPE } = Empty,
    );
    let result = work.instrument(span.clone()).await;
    match result.outcome {
        ToolOutcome::Ok => {}
        ToolOutcome::Denied => record_error(&span, "denied"),
        _ => record_error(&span, "tool_error"),
    }
    result
}

fn record_usage(span: &Span, usage: Usage) {
    span.record(INPUT_TOKENS, usage.input_tokens);
    span.record(OUTPUT_TOKENS, usage.output_tokens);
    for (name, tokens) in [
        (CACHE_READ_TOKENS, usage.cache_read_tokens),
        (CACHE_WRITE_TOKENS, usage.cache_write_tokens),
        (REASONING_TOKENS, usage.reasoning_tokens),
    ] {
        if tokens > 0 {
            span.record(name, tokens);
        }
    }
}

fn record_error(span: &Span, class: &str) {
    span.record(ERROR_TYPE, display(class));
    span.record(OTEL_STATUS, "ERROR");
}
