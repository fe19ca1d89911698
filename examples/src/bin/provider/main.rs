//! A model provider for a small HTTP server on the loopback: streamed text, a tool call, usage, and a 529 that is retried.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is an example")]

mod server;

use std::fmt::Display;
use std::net::SocketAddr;

use agent::core::json::RawJson;
use agent::core::{Error, Result, async_trait};
use agent::runtime::context::ModelMessage;
use agent::runtime::{
    FaultKind, ModelEvent, ModelRequest, ModelStream, ProviderFault, StopReason, Update, Usage,
};
use agent::schemars::JsonSchema;
use agent::{AgentBuilder, Config, LlmProvider, MemoryStore, ToolContext, tool};
use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// One line of the server's answer.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Text { text: String },
    // Not `RawJson`: serde cannot carry raw values through a tagged enum.
    Tool { id: String, name: String, input: Value },
    Done { input_tokens: u64, output_tokens: u64 },
}

#[derive(Debug)]
struct Loopback(SocketAddr);

fn fault(kind: FaultKind, what: impl Display) -> Error {
    ProviderFault::new(kind, format!("the model server: {what}")).into()
}

/// The connection could not be made, or broke.
fn lost(what: impl Display) -> Error {
    fault(FaultKind::Network, what)
}

/// The server's answer is not understood.
fn malformed(what: impl Display) -> Error {
    fault(FaultKind::Other, what)
}

/// Converts a message to the form of the server.
fn message(message: &ModelMessage) -> Value {
    match message {
        ModelMessage::Agent(said) => {
            json!({ "role": "agent", "text": said.text(), "calls": said.calls().collect::<Vec<_>>() })
        }
        ModelMessage::ToolResults(results) => {
            json!({ "role": "tool", "results": results.iter().map(|result| &result.output).collect::<Vec<_>>() })
        }
        ModelMessage::User(_) | ModelMessage::Summary(_) => json!({ "role": "user", "text": message.text() }),
        ModelMessage::System(text) => json!({ "role": "system", "text": text }),
        other => json!({ "role": "system", "text": format!("{other:?}") }),
    }
}

#[async_trait]
impl LlmProvider for Loopback {
    fn name(&self) -> &str {
        "loopback"
    }

    fn model(&self) -> &str {
        "loopback-1"
    }

    // Changes when the bytes below change.
    fn rendering(&self) -> &str {
        "loopback/1"
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let tools: Vec<_> =
            request.tools.iter().map(|tool| json!({ "name": tool.name, "input": tool.input })).collect();
        let messages: Vec<_> = request.messages.iter().map(message).collect();
        let body = json!({ "system": request.system, "messages": messages, "tools": tools }).to_string();
        let mut connection = TcpStream::connect(self.0).await.map_err(lost)?;
        let head = format!("POST / HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n\r\n", self.0, body.len());
        connection.write_all((head + &body).as_bytes()).await.map_err(lost)?;

        let mut lines = BufReader::new(connection).lines();
        let status = lines.next_line().await.map_err(lost)?.unwrap_or_default();
        // The run waits and asks again after a kind that passes.
        let kind = match status.split(' ').nth(1) {
            Some("200") => None,
            Some("401" | "403") => Some(FaultKind::Auth),
            Some("429") => Some(FaultKind::RateLimited),
            Some(status) if status.starts_with('5') => Some(FaultKind::Overloaded),
            _ => Some(FaultKind::InvalidRequest),
        };
        if let Some(kind) = kind {
            return Err(fault(kind, format!("status {status:?}")));
        }
        while lines.next_line().await.map_err(lost)?.is_some_and(|header| !header.is_empty()) {}
        // Dropping the stream drops the connection, which ends the request.
        let events = stream::try_unfold(lines, async |mut lines| {
            let Some(line) = lines.next_line().await.map_err(lost)? else { return Ok(None) };
            let event = match serde_json::from_str(&line).map_err(malformed)? {
                Line::Text { text } => ModelEvent::text(text),
                Line::Tool { id, name, input } => ModelEvent::call(id, name, RawJson::of(&input)?),
                Line::Done { input_tokens, output_tokens } => {
                    ModelEvent::done(StopReason::EndTurn, Usage::new(input_tokens, output_tokens))
                }
            };
            Ok(Some((event, lines)))
        });
        Ok(events.boxed())
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "agent::schemars")]
struct City {
    /// Name of the city.
    city: String,
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let weather =
        tool("weather", "Current weather of a city.", async |City { city }: City, _: ToolContext| {
            Ok::<_, String>(format!("rain in {city}"))
        });
    let agent = AgentBuilder::new()
        .with_llm(Loopback(server::start().await?))
        .with_tool(weather)
        .with_storage(MemoryStore::new())
        .with_config(Config::new().with_record_usage(true))
        .build()?;
    let chat = agent.conversation("weather").await?;
    let mut run = chat.prompt("How is the weather in Oslo?").await?;
    while let Some(update) = run.next().await {
        match update? {
            Update::Retrying { after, fault, .. } => println!("{}; asking again in {after:.1?}", fault.text),
            Update::Text(piece) => print!("{piece}"),
            Update::ToolCalled(call) => println!("{} {}", call.name, call.input.get()),
            Update::Ended(report) => println!("\n{:?}", report.outcome),
            _ => {}
        }
    }
    let record = chat.refresh().await?;
    println!("{:?}, {:?}", record.counts, record.usage);
    agent.close().await?;
    Ok(())
}
