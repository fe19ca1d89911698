//! An agent on the command line with the tools of MCP servers: `ask CONFIG FILE`, and a prompt on each line.
//!
//! CONFIG is a TOML file with the servers, as the crate's documentation shows; FILE is an SQLite file with the conversation.
//! Each call of a tool is shown, and made after `yes` or `always`. The next process goes on, also with a question that was open.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use agent_core::event::{Decision, ToolConfirmation};
use agent_core::json::RawJson;
use agent_core::model::{Actor, PendingAction};
use agent_core::{Backend, TenantId, async_trait};
use agent_mcp::{Mcp, McpServers};
use agent_runtime::configuration::ConfigLayers;
use agent_runtime::context::ModelMessage;
use agent_runtime::{
    AgentBuilder, AgentRuntime, Conversation, LlmProvider, ModelEvent, ModelRequest, ModelStream, Run,
    RunOutcome, StopReason, Usage,
};
use agent_storage_sqlite::SqliteConfig;
use futures::{StreamExt, stream};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Model that needs no network: it takes `TOOL ARGUMENTS` for a call, and says what the tool said. Use any other in its place.
#[derive(Debug)]
struct Clerk;

#[async_trait]
impl LlmProvider for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn model(&self) -> &str {
        "clerk-1"
    }

    async fn generate(&self, request: ModelRequest) -> agent_core::Result<ModelStream> {
        let event = match request.messages.last() {
            Some(ModelMessage::User(texts)) => {
                let texts = texts.text().into_owned();
                let (tool, arguments) = texts.split_once(' ').unwrap_or((&texts, "{}"));
                match request.tools.iter().any(|offered| offered.name == tool) {
                    true => ModelEvent::call("", tool, RawJson::parse(arguments)?),
                    false => {
                        let names: Vec<_> = request.tools.iter().map(|tool| &*tool.name).collect();
                        ModelEvent::text(format!("There are: {}", names.join(" ")))
                    }
                }
            }
            Some(ModelMessage::ToolResults(results)) => ModelEvent::text(results[0].output.clone()),
            _ => ModelEvent::text("Name a tool."),
        };
        Ok(stream::iter([event, ModelEvent::done(StopReason::EndTurn, Usage::new(1, 1))].map(Ok)).boxed())
    }
}

/// Asks the person about a call. `None` at the end of the input: the question stays open.
async fn decide(
    agent: &AgentRuntime,
    mcp: &Mcp,
    chat: &Conversation,
    action: &PendingAction,
) -> Outcome<Option<Decision>> {
    println!("{}\nyes, no or always?", action.question);
    stdout().flush()?;
    let Some(word) = stdin().lock().lines().next().transpose()? else { return Ok(None) };
    if word == "always" {
        // What was shown is what is allowed: if the server changes the tool, the person is asked again.
        let offered = mcp.offered(agent, chat.id());
        if let Some(tool) = offered.iter().find(|tool| Some(&tool.name) == action.tool.as_ref()) {
            mcp.always_allow(chat, tool, &Actor::USER).await?;
        }
    }
    Ok(Some(if word == "yes" || word == "always" { Decision::Allow } else { Decision::Deny }))
}

/// Follows a run to its end, and asks about its calls. Returns false at the end of the input.
async fn follow(agent: &AgentRuntime, mcp: &Mcp, chat: &Conversation, mut run: Run) -> Outcome<bool> {
    loop {
        let report = run.finish().await?;
        let RunOutcome::Awaiting(action) = report.outcome else {
            println!("{}", report.text);
            return Ok(true);
        };
        let Some(decision) = decide(agent, mcp, chat, &action).await? else { return Ok(false) };
        run = chat.answer_and_run(ToolConfirmation::new(action.id, decision)).await?;
    }
}

async fn talk(agent: &AgentRuntime, mcp: &Mcp) -> Outcome<()> {
    let chat = agent.conversation("terminal").await?;
    if let Some(action) = chat.record().action.clone() {
        let Some(decision) = decide(agent, mcp, &chat, &action).await? else { return Ok(()) };
        let run = chat.answer_and_run(ToolConfirmation::new(action.id, decision)).await?;
        if !follow(agent, mcp, &chat, run).await? {
            return Ok(());
        }
    }
    loop {
        let Some(line) = stdin().lock().lines().next().transpose()? else { return Ok(()) };
        let run = chat.prompt(line).await?;
        if !follow(agent, mcp, &chat, run).await? {
            return Ok(());
        }
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let (config, file) =
        std::env::args().nth(1).zip(std::env::args().nth(2)).ok_or("usage: ask CONFIG FILE")?;
    let layers = ConfigLayers::new().with_global_from(&config, &std::fs::read_to_string(&config)?)?;
    // A workspace's configuration may set limits, and start nothing.
    let mcp = Mcp::layered(McpServers::protect(layers)?, |name| std::env::var(name).ok());
    let store = SqliteConfig::new(file).open().await?;
    let agent = AgentBuilder::new()
        .with_llm(Clerk)
        .with_plugin(mcp.clone())
        .with_storage(store.tenant(&TenantId::default()))
        .build()?;
    let done = talk(&agent, &mcp).await;
    agent.close().await?; // ends the servers
    done
}
