//! Prompt caches: each request of a conversation begins with the whole previous one, also from another process.

use agent_core::{MemoryStore, Storage};
use agent_rig::RigProvider;
use agent_rig::rig_core::providers::openai::wire::OPENAI;
use model_servers::{Item, Provider, Server, Wire};
use serde_json::{Value, json};

use crate::server::soon;
use crate::{agent_on, anthropic, chat, gemini, items, responses};

/// Turns of the conversation. Each is two requests: the model calls a tool, and then says what came of it.
const TURNS: usize = 20;

fn model(wire: Wire, server: &Server) -> RigProvider {
    match wire {
        Wire::Anthropic => anthropic::model(server, "claude-opus-5-5"),
        Wire::Responses => responses::model(server),
        Wire::Gemini => gemini::model(server, "gemini-3-pro-preview"),
        Wire::Chat => chat::model(server, &OPENAI, "gpt-4o"),
    }
}

/// What a cache compares, in its order: the tools, the system prompt, the messages.
fn cached(wire: Wire, body: &Value) -> Vec<String> {
    let messages = match wire {
        Wire::Anthropic | Wire::Chat => "messages",
        Wire::Responses => "input",
        Wire::Gemini => "contents",
    };
    let system = ["system", "systemInstruction", "instructions"].map(|member| body[member].to_string());
    let mut parts = vec![body["tools"].to_string()];
    parts.extend(system);
    parts.extend(items(&body[messages]));
    parts
}

fn bytes(parts: &[String]) -> usize {
    parts.iter().map(String::len).sum()
}

#[tokio::test]
async fn requests_begin_with_all_of_the_one_before() {
    for wire in Wire::ALL {
        let mut number = 0;
        let server = Server::checking(Provider::new(wire), move |provider, request, _| {
            number += 1;
            let messages = match number % 2 {
                1 => {
                    Item::Call { name: "look".to_owned(), arguments: json!({"z": number, "a": [1.5, "é"]}) }
                }
                _ => Item::Text(format!("There are {number} apples.")),
            };
            provider.answer(request, &[Item::Reasoning(format!("Thought {number}.")), messages])
        })
        .await;
        let storage: Storage = MemoryStore::new().into();
        for turn in 0..TURNS {
            // Another process each time.
            let agent = agent_on(storage.clone(), model(wire, &server), &["look"]);
            let chat = agent.conversation("test").await.unwrap();
            let run = soon(chat.prompt(format!("How many apples are on shelf {turn}?"))).await.unwrap();
            soon(run.finish()).await.unwrap();
        }
        assert_eq!(server.refusals(), [], "{wire:?}");
        let requests: Vec<_> =
            server.requests().iter().map(|request| cached(wire, &request.body())).collect();
        assert_eq!(requests.len(), 2 * TURNS);
        let (mut known, mut all) = (0, bytes(&requests[0]));
        for two in requests.windows(2) {
            assert!(two[1].starts_with(&two[0]), "{wire:?}: {:#?}", two[1]);
            known += bytes(&two[0]);
            all += bytes(&two[1]);
        }
        let asks = server.requests().iter().all(|request| !request.body()["cache_control"].is_null());
        assert_eq!(asks, wire == Wire::Anthropic);
        println!("proof: {} % of {all} bytes are cached by {wire:?}", known * 100 / all);
        assert!(known * 100 >= 90 * all, "{wire:?}: {known} of {all} bytes");
    }
}
