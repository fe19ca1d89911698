//! A server that signs its reasoning as Anthropic does, over everything that was sent before it, and refuses a request in
//! which a signature does not fit: whatever happens to a conversation, it has nothing to refuse.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use agent_core::clock::Effects;
use agent_core::event::{Media, Message, Part};
use agent_core::session::Fork;
use agent_core::{MemoryStore, Storage, Timestamp};
use agent_runtime::AgentRuntime;
use serde_json::{Value, json};

use crate::anthropic::{answer, model};
use crate::server::{Answer, Request, Server, soon};
use crate::{agent_on, agent_with};

/// What the server has seen.
#[derive(Debug, Default)]
struct Seen {
    requests: usize,
    /// Signatures that the server made, in order.
    made: Vec<String>,
    /// Signatures in the last request.
    last: BTreeSet<String>,
    /// Signatures of all requests together.
    given_back: usize,
    refused: Vec<String>,
}

/// Hash over what was sent before a block: the prompt, the tools, the messages, and the blocks of its own answer.
fn sign(body: &Value, messages: &[Value], blocks: &[Value]) -> String {
    let mut hasher = DefaultHasher::new();
    let before = json!([body["model"], body["system"], body["tools"], messages, blocks]);
    before.to_string().hash(&mut hasher);
    format!("sig{:016x}", hasher.finish())
}

fn signature(block: &Value) -> Option<&str> {
    block["signature"].as_str().or(block["data"].as_str())
}

/// Checks the signatures of a request, and answers.
///
/// `repeats` is for ids of calls that are not unique: the run replaces them, and such an answer goes back as text and calls.
fn serve(seen: &mut Seen, effects: &Effects, repeats: bool, request: &Request) -> Answer {
    let body = request.body();
    let messages = body["messages"].as_array().unwrap();
    seen.requests += 1;
    seen.last.clear();
    for (at, message) in messages.iter().enumerate().filter(|(_, message)| message["role"] == "assistant") {
        let blocks = message["content"].as_array().unwrap();
        for (n, block) in blocks.iter().enumerate() {
            let Some(given) = signature(block) else { continue };
            seen.last.insert(given.to_owned());
            seen.given_back += 1;
            if given != sign(&body, &messages[..at], &blocks[..n]) {
                let what = format!("messages.{at}.content.{n}: Invalid `signature` in `thinking` block");
                seen.refused.push(what.clone());
                let error =
                    json!({"type": "error", "error": {"type": "invalid_request_error", "message": what}});
                return Answer::status(400, &error.to_string());
            }
        }
    }
    let pick = |of: u64| effects.random_u64() % of;
    let mut blocks = Vec::new();
    let mut stop = "end_turn";
    for n in 0..=pick(3) {
        let signature = sign(&body, messages, &blocks);
        match pick(3) {
            0 => blocks.push(
                json!({"type": "thinking", "thinking": format!("Thought {n}. 한🙂"), "signature": signature}),
            ),
            1 => blocks.push(json!({"type": "redacted_thinking", "data": signature})),
            _ => blocks.push(json!({"type": "text", "text": format!("Text {n}. \u{2028}é")})),
        }
        seen.made.extend(blocks.last().and_then(signature_of));
    }
    if pick(2) == 0 {
        for n in 0..=pick(2) {
            let input = json!({"z": n, "a": [1.5, "é"], "m": {"y": null, "b": true}});
            let id = if repeats { pick(50) } else { 10 * seen.requests as u64 + n };
            let id = format!("toolu_{id}");
            blocks.push(json!({"type": "tool_use", "id": id, "name": "look", "input": input}));
        }
        stop = "tool_use";
    } else {
        blocks.push(json!({"type": "text", "text": "Done."}));
    }
    answer(&blocks, stop)
}

fn signature_of(block: &Value) -> Option<String> {
    signature(block).map(str::to_owned)
}

/// One conversation on a server of its own.
struct Life {
    seen: Arc<Mutex<Seen>>,
    server: Server,
    storage: Storage,
    effects: Effects,
}

impl Life {
    async fn new(seed: u64, repeats: bool) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        let (serving, chance) = (seen.clone(), effects.clone());
        let server =
            Server::answering(move |request| serve(&mut serving.lock().unwrap(), &chance, repeats, request))
                .await;
        Self { seen, server, storage: MemoryStore::new().into(), effects }
    }

    fn agent(&self, system: &str) -> AgentRuntime {
        agent_with(self.storage.clone(), model(&self.server, "claude-opus-5-5"), &["look"], system)
    }

    fn pick(&self, of: u64) -> u64 {
        self.effects.random_u64() % of
    }

    fn input(&self) -> Message {
        match self.pick(3) {
            0 => Message::new("Look:").with_part(Part::Image(Media::inline("image/png", *b"\x89PNG"))),
            _ => Message::new(format!("Question {}", self.pick(1000))),
        }
    }
}

/// Nothing changes: prompts, tool calls and new processes. Every signature goes back in every request.
#[tokio::test]
async fn no_reasoning_is_lost_where_nothing_changes() {
    let mut given_back = 0;
    for seed in 0..40 {
        let life = Life::new(seed, false).await;
        for _ in 0..5 {
            // A new process each time.
            let agent = agent_on(life.storage.clone(), model(&life.server, "claude-opus-5-5"), &["look"]);
            let chat = agent.conversation("test").await.unwrap();
            let before = life.seen.lock().unwrap().made.clone();
            soon(soon(chat.prompt(life.input())).await.unwrap().finish()).await.unwrap();
            let seen = life.seen.lock().unwrap();
            assert_eq!(seen.refused, [""; 0], "{seed}");
            let lost: Vec<_> = before.iter().filter(|made| !seen.last.contains(*made)).collect();
            assert!(lost.is_empty(), "{seed}: {lost:?}");
        }
        given_back += life.seen.lock().unwrap().given_back;
    }
    assert!(given_back > 1000, "{given_back}");
}

/// Forks, compactions, cleared histories and other system prompts: the server has nothing to refuse.
#[tokio::test]
async fn servers_that_check_signatures_refuse_nothing() {
    let (mut given_back, mut requests) = (0, 0);
    for seed in 0..60 {
        let life = Life::new(seed, true).await;
        let mut system = "Be brief.";
        let mut id = life.agent(system).conversation("test").await.unwrap().id();
        for _ in 0..8 {
            let agent = life.agent(system);
            let chat = agent.session(id).await.unwrap();
            match life.pick(9) {
                0 => id = chat.fork(Fork::new()).await.unwrap().id(),
                1 => {
                    // There may be nothing to compact.
                    let _ = chat.compact(None, "They talked.").await;
                }
                2 if life.pick(3) == 0 => chat.clear().await.unwrap(),
                3 => system = ["Be brief.", "Be long."][usize::try_from(life.pick(2)).unwrap()],
                _ => {
                    soon(soon(chat.prompt(life.input())).await.unwrap().finish()).await.unwrap();
                }
            }
        }
        let seen = life.seen.lock().unwrap();
        assert_eq!(seen.refused, [""; 0], "{seed}");
        (given_back, requests) = (given_back + seen.given_back, requests + seen.requests);
    }
    println!("{requests} requests, {given_back} signatures given back");
    assert!(requests > 300 && given_back > 500, "{requests} requests, {given_back} signatures");
}
