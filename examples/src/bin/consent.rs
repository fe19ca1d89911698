//! Deletes a file only after a person consented in a later run of this program: ask PATH, pending, allow, deny.
#![allow(clippy::print_stdout, reason = "it is an example")]

use agent::core::async_trait;
use agent::core::event::{Decision, ToolConfirmation};
use agent::core::json::RawJson;
use agent::runtime::context::ModelMessage;
use agent::runtime::{ModelEvent, ModelRequest, ModelStream, StopReason, Usage};
use agent::schemars::JsonSchema;
use agent::{AgentBuilder, Conversation, LlmProvider, RunOutcome, SqliteStore, ToolContext, ToolMode, tool};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "agent::schemars")]
struct DeleteFile {
    /// Absolute path of the file.
    path: String,
}

async fn delete_file(DeleteFile { path }: DeleteFile, _: ToolContext) -> std::io::Result<String> {
    std::fs::remove_file(&path)?;
    Ok(format!("{path} is deleted"))
}

/// Model that takes each message for the path of a file to delete, and then says what the tool said.
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
    async fn generate(&self, request: ModelRequest) -> agent::Result<ModelStream> {
        let event = match request.messages.last() {
            Some(ModelMessage::User(content)) => {
                let input = RawJson::of(&DeleteFile { path: content.text().into_owned() })?;
                ModelEvent::call("", "delete_file", input)
            }
            Some(ModelMessage::ToolResults(results)) => ModelEvent::text(results[0].output.clone()),
            _ => ModelEvent::text("Which file?"),
        };
        Ok(stream::iter([event, ModelEvent::done(StopReason::EndTurn, Usage::new(1, 1))].map(Ok)).boxed())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tool = tool("delete_file", "Deletes a file.", delete_file).with_mode(ToolMode::Confirm);
    let store = SqliteStore::open("consent.db").await?;
    let agent = AgentBuilder::new().with_llm(Clerk).with_tool(tool).with_storage(store).build()?;
    let done = async { obey(&agent.conversation("files").await?).await }.await;
    agent.close().await?;
    done
}

async fn obey(chat: &Conversation) -> Result<(), Box<dyn std::error::Error>> {
    let (word, path) = (std::env::args().nth(1).unwrap_or_default(), std::env::args().nth(2));
    let run = match (word.as_str(), chat.record().action.clone(), path) {
        ("ask", _, Some(path)) => chat.prompt(std::path::absolute(path)?.display().to_string()).await?,
        ("pending", Some(action), _) => {
            println!("{}", action.question);
            return Ok(());
        }
        ("allow" | "deny", Some(action), _) => {
            println!("{word}: {}", action.question);
            let decision = if word == "allow" { Decision::Allow } else { Decision::Deny };
            chat.answer_and_run(ToolConfirmation::new(action.id, decision)).await?
        }
        // What a killed program left behind: its call gets the result "interrupted", and is not made again.
        ("pending" | "allow" | "deny", None, _) => chat.run_pending().await?.ok_or("no question is open")?,
        _ => return Err("usage: consent ask PATH | pending | allow | deny".into()),
    };
    let report = run.finish().await?;
    match report.outcome {
        RunOutcome::Awaiting(action) => println!("{} (allow or deny)", action.question),
        _ => println!("{}", report.text),
    }
    Ok(())
}
