//! One conversation with a model, and what must hold of it.

use std::time::Duration;

use agent_core::event::{EventPayload, Media, Message, Part};
use agent_core::session::Fork;
use agent_core::store::ReadEvents;
use agent_core::{Error, MemoryStore, Result};
use agent_rig::RigProvider;
use agent_runtime::schemars::JsonSchema;
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, Effort, Input, LlmProvider, MediaKind, ToolContext,
    tool,
};
use serde::Deserialize;

/// Limit on the time of one answer.
const DEADLINE: Duration = Duration::from_secs(120);

/// A red square of 8 by 8 pixels.
const IMAGE: &[u8] = b"\
    \x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x08\x00\x00\x00\x08\x08\x02\x00\x00\
    \x00\x4b\x6d\x29\xdc\x00\x00\x00\x11\x49\x44\x41\x54\x78\xda\x63\xf8\xcf\xc0\x80\x15\x31\x0c\x2d\x09\x00\x28\xff\
    \x3f\xc1\xce\x77\xc8\x4f\x00\x00\x00\x00\x49\x45\x4e\x44\xae\x42\x60\x82";

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "agent_runtime::schemars")]
struct Look {
    /// Number of the shelf.
    shelf: u32,
}

fn agent(model: RigProvider) -> Result<AgentRuntime> {
    let inspect = tool("look", "Tells what lies on a shelf.", async |inspect: Look, _: ToolContext| {
        Ok::<_, String>(format!("On shelf {} lie seven red apples.", inspect.shelf))
    });
    // Long enough for the caches of the providers.
    let system = format!("You keep a list of shelves. {}", "Answer in one short sentence. ".repeat(400));
    let config = Config::new()
        .with_system_prompt(system)
        .with_max_tokens(4096)
        .with_effort(Effort::Low)
        .with_store_thinking(true)
        .with_record_usage(true);
    AgentBuilder::new()
        .with_llm(model)
        .with_storage(MemoryStore::new())
        .with_config(config)
        .with_tool(inspect)
        .build()
}

/// Prompts, and returns the tokens that came from a cache.
async fn ask(chat: &Conversation, message: impl Into<Input>) -> Result<u64> {
    let work = async { Ok::<_, Error>(chat.prompt(message).await?.finish().await?) };
    let report = tokio::time::timeout(DEADLINE, work).await;
    Ok(report.map_err(|_| Error::invalid("no answer came in two minutes"))??.usage.cache_read_tokens)
}

/// Counts calls of the tool, items that the provider signed, and answers to a request without the signed items.
async fn counts(chat: &Conversation) -> Result<(usize, usize, usize)> {
    let (mut calls, mut signed, mut refused) = (0, 0, 0);
    let mut next = Some(ReadEvents::default());
    while let Some(read) = next {
        let page = chat.history(read).await?;
        for event in &page.events {
            match event.decode()? {
                EventPayload::AgentToolUse(call) => {
                    calls += 1;
                    signed += usize::from(call.native.is_some());
                }
                EventPayload::AgentThinking(thinking) => signed += usize::from(thinking.native.is_some()),
                EventPayload::AgentResponse(response) => refused += usize::from(response.replay.is_some()),
                _ => {}
            }
        }
        next = page.next;
    }
    Ok((calls, signed, refused))
}

fn must(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::invalid(what)) }
}

/// Holds the conversation. The first failure of a step does not end it.
pub(crate) async fn confirm(model: RigProvider) -> Vec<(String, Result<()>)> {
    let takes_images = model.capabilities().takes(MediaKind::Image);
    let mut results = Vec::new();
    let opened = async { agent(model)?.conversation("confirm").await };
    let chat = match opened.await {
        Ok(chat) => chat,
        Err(error) => return vec![("the model can be asked".to_owned(), Err(error))],
    };
    let mut note = |what: &str, held| results.push((what.to_owned(), held));
    note("a model answers", ask(&chat, "Say hello.").await.map(drop));
    let called = async {
        ask(&chat, "Use the tool look for shelf 4, and tell me what lies there.").await?;
        must(counts(&chat).await?.0 > 0, "the model called no tool")
    };
    note("a tool is called, and its result is taken", called.await);
    let kept = async {
        let cached = ask(&chat, "And how many are there?").await?;
        let (_, signed, _) = counts(&chat).await?;
        Ok::<_, Error>(format!("{signed} items of the provider's own, {cached} tokens from its cache"))
    };
    let behind = "the conversation goes on behind a call";
    match kept.await {
        Ok(found) => note(&format!("{behind}: {found}"), Ok(())),
        Err(error) => note(behind, Err(error)),
    }
    if takes_images {
        let image = Part::Image(Media::inline("image/png", IMAGE.to_vec()));
        let shown = ask(&chat, Message::new("What color is this?").with_part(image)).await;
        note("an image is taken", shown.map(drop));
    }
    let cancelled = async {
        let run = chat.prompt("Count from 1 to 300, each number in a line.").await?;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        run.cancel();
        // How it ended is no matter; the answer may have been faster.
        let _ = tokio::time::timeout(DEADLINE, run.finish()).await;
        ask(&chat, "Stop counting. What lies on shelf 4?").await.map(drop)
    };
    note("the conversation goes on behind a cancelled answer", cancelled.await);
    let forked = async { ask(&chat.fork(Fork::new()).await?, "And in this copy?").await.map(drop) };
    note("a fork goes on", forked.await);
    let compacted = async {
        chat.compact(None, "Seven red apples lie on shelf 4.").await?;
        ask(&chat, "What lies on shelf 4?").await.map(drop)
    };
    note("a compacted conversation goes on", compacted.await);
    let refused = async {
        let (_, _, refused) = counts(&chat).await?;
        must(refused == 0, "a request was refused, and accepted without the items that the provider signed")
    };
    note("no signed item was refused", refused.await);
    results
}
