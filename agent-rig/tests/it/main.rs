//! Models of rig in runs, against loopback servers with recorded answers: streamed updates, stored events, and the next
//! request.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod anthropic;
mod cached;
mod calibrated;
mod chat;
#[path = "../../examples/confirm/checks.rs"]
mod checks;
mod confirmed;
mod faults;
mod gemini;
mod histories;
mod logs;
mod memory;
mod recorded;
mod requests;
mod responses;
mod server;
mod switch;
mod tools;
mod transport;
mod unbounded;

use agent_core::event::{Event, EventPayload};
use agent_core::store::ReadEvents;
use agent_core::{MemoryStore, Storage};
use agent_rig::{ModelTransport, RigProvider};
use agent_runtime::schemars::JsonSchema;
use agent_runtime::{AgentBuilder, AgentRuntime, Config, RunReport, ToolContext, tool};
use serde::Deserialize;
use serde_json::Value;

use server::{Request, Server, soon};

/// The client for all models here, as the program uses it.
fn http() -> ModelTransport {
    ModelTransport::new().unwrap()
}

/// Arguments of a tool that takes any.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "agent_runtime::schemars")]
struct Any {}

/// An agent with a model, and tools of these names that answer `done`.
fn agent(model: RigProvider, tools: &[&str]) -> AgentRuntime {
    agent_on(MemoryStore::new().into(), model, tools)
}

fn agent_on(storage: Storage, model: RigProvider, tools: &[&str]) -> AgentRuntime {
    agent_with(storage, model, tools, "Be brief.")
}

fn agent_with(storage: Storage, model: RigProvider, tools: &[&str], system: &str) -> AgentRuntime {
    let config = Config::new()
        .with_system_prompt(system)
        .with_store_thinking(true)
        .with_record_usage(true)
        .with_max_tokens(1024)
        .with_model_retries(0);
    let mut builder = AgentBuilder::new().with_llm(model).with_storage(storage).with_config(config);
    for name in tools {
        let answers = async |_: Any, _: ToolContext| Ok::<_, String>("done");
        builder = builder.with_tool(tool(*name, "A tool.", answers));
    }
    builder.build().unwrap()
}

/// Result of a conversation with a scripted server.
struct Talk {
    reports: Vec<RunReport>,
    events: Vec<Event>,
    requests: Vec<Request>,
}

impl Talk {
    /// Payloads of the log.
    fn payloads(&self) -> Vec<EventPayload> {
        self.events.iter().map(|event| event.decode().unwrap()).collect()
    }

    /// Bodies of the requests, of which each begins as the one before: with the same members besides the messages in
    /// `member`, and with the same messages.
    fn bodies(&self, member: &str) -> Vec<Value> {
        let bodies: Vec<_> = self.requests.iter().map(Request::body).collect();
        for two in bodies.windows(2) {
            let (earlier, later) = (items(&two[0][member]), items(&two[1][member]));
            assert!(later.len() > earlier.len(), "{}", self.requests[1].text);
            assert_eq!(earlier, later[..earlier.len()]);
            let without = |body: &Value| {
                let mut body = body.clone();
                body[member] = Value::Null;
                // Anthropic's name of the machine that ran code, which an answer gives.
                body.as_object_mut().unwrap().remove("container");
                body
            };
            assert_eq!(without(&two[0]), without(&two[1]));
        }
        bodies
    }
}

/// Items of a list, each as text, so that the order of their members counts.
fn items(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(Value::to_string).collect()
}

/// Prompts until the server has had `requests` requests; tool calls are answered within a run.
async fn talk(model: RigProvider, server: &Server, tools: &[&str], requests: usize) -> Talk {
    let agent = agent(model, tools);
    let chat = agent.conversation("test").await.unwrap();
    let mut reports = Vec::new();
    while server.requests().len() < requests {
        let run = soon(chat.prompt("Hello")).await.unwrap();
        reports.push(soon(run.finish()).await.unwrap());
    }
    let session = chat.refresh().await.unwrap();
    let page = agent.storage().sessions.read(session.id, ReadEvents::default()).await.unwrap();
    Talk { reports, events: page.events, requests: server.requests() }
}
