//! Kills itself in the middle of an answer and of a tool call, then continues the conversation and checks its log.
#![allow(clippy::print_stdout, reason = "it is an example")]

use std::process::Stdio;
use std::time::Duration;

use agent::core::event::{EventPayload, ToolOutcome};
use agent::core::json::RawJson;
use agent::core::store::ReadEvents;
use agent::runtime::{ScriptedProvider, Turn};
use agent::schemars::JsonSchema;
use agent::{AgentBuilder, AgentRuntime, SqliteStore, ToolContext, Update, tool};
use tokio::io::{AsyncBufReadExt, BufReader};

const HOUR: Duration = Duration::from_secs(3600);

#[derive(serde::Deserialize, JsonSchema)]
#[schemars(crate = "agent::schemars")]
struct Charge {
    cents: u64,
}

/// Takes effect at once, and returns an hour later: the process is killed in between.
async fn charge(Charge { cents }: Charge, _context: ToolContext) -> Result<String, String> {
    println!("charged {cents}");
    tokio::time::sleep(HOUR).await;
    Ok("charged".to_owned())
}

async fn build(store: &str, model: ScriptedProvider) -> Result<AgentRuntime, agent::Error> {
    let charge = tool("charge", "Charges the customer's card.", charge);
    AgentBuilder::new()
        .with_llm(model)
        .with_tool(charge)
        .with_storage(SqliteStore::open(store).await?)
        .build()
}

/// The child: prompts, and shows how far it came, until it is killed.
async fn child(store: &str, prompt: &str) -> Result<(), Box<dyn std::error::Error>> {
    let turn = match prompt {
        "What does it cost?" => Turn::new().text("Nine euros").wait(HOUR).text(" and 99 cents."),
        _ => Turn::new().call("call-1", "charge", RawJson::parse(r#"{"cents":999}"#)?),
    };
    let agent = build(store, ScriptedProvider::new([turn])).await?;
    let mut run = agent.conversation("orders/7").await?.prompt(prompt).await?;
    while let Some(update) = run.next().await {
        if let Update::Text(piece) = update? {
            println!("answered {piece}");
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [store, prompt] = &args[..] {
        return child(store, prompt).await;
    }
    let folder = std::env::temp_dir().join(format!("crash-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let store = folder.join("agent.db").display().to_string();
    for prompt in ["What does it cost?", "I take it."] {
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        let mut child = command.args([&store, prompt]).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let reached = lines.next_line().await?.ok_or("the child ended early")?;
        child.kill().await?; // SIGKILL
        println!("killed after: {prompt} / {reached}");
    }

    let model = ScriptedProvider::new([Turn::new().text("I do not know whether you were charged.")]);
    let agent = build(&store, model.clone()).await?;
    let chat = agent.conversation("orders/7").await?;
    println!("{}", chat.prompt("Did it work?").await?.finish().await?.text);

    let (mut inputs, mut answers, mut calls, mut results) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for event in chat.history(ReadEvents::first(1000)).await?.events {
        match event.decode()? {
            EventPayload::UserMessage(message) => inputs.push(message.text),
            EventPayload::AgentMessage(message) => answers.push(message.text),
            EventPayload::AgentToolUse(call) => calls.push((call.call, ToolOutcome::Interrupted)),
            EventPayload::AgentToolResult(result) => results.push((result.call, result.outcome)),
            _ => {}
        }
    }
    assert_eq!(inputs, ["What does it cost?", "I take it.", "Did it work?"], "nothing lost, nothing doubled");
    assert_eq!((answers.len(), calls.len()), (1, 1));
    assert_eq!(results, calls, "the cut-off call has exactly one result");
    println!("the model was given {:#?}", model.requests()[0].messages);
    agent.close().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
