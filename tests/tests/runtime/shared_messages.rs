//! The requests of a run share the messages of its conversation: none is copied for a further request.

use std::sync::{Arc, Mutex};

use crate::common::agent_with;
use agent_core::event::{Media, MediaSource, Message, ModelOrigin, NewEvent, Part};
use agent_core::json::RawJson;
use agent_core::{MemoryStore, Result, Storage, async_trait};
use agent_runtime::context::{ContextLimits, ModelMessage};
use agent_runtime::{
    Config, FaultKind, LlmProvider, ModelCall, ModelCapabilities, ModelEvent, ModelRequest, ModelStream,
    Plugin, ProviderFault, StopReason, ToolContext, ToolSpec, Usage,
};
use futures::{StreamExt, stream};

const MESSAGES: usize = 10_000;

/// Provider that keeps its requests. It refuses the first, calls a tool in the next ones, and then answers.
#[derive(Debug)]
struct Keeping {
    calls: usize,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

#[async_trait]
impl LlmProvider for Keeping {
    fn name(&self) -> &str {
        "keeping"
    }

    fn model(&self) -> &str {
        "keeping"
    }

    fn capabilities(&self) -> ModelCapabilities {
        ModelCapabilities::all()
    }

    fn origin(&self) -> Option<ModelOrigin> {
        Some(ModelOrigin::new("keeping", "keeping", "keeping"))
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let mut requests = self.requests.lock().unwrap();
        requests.push(request);
        let event = match requests.len() - 1 {
            0 => return Err(ProviderFault::new(FaultKind::Overloaded, "busy").into()),
            n if n <= self.calls => {
                ModelEvent::ToolUse(ModelCall::new(format!("c{n}"), "look", RawJson::empty_object()))
            }
            _ => ModelEvent::text("Done."),
        };
        let end = ModelEvent::done(StopReason::EndTurn, Usage::default());
        Ok(stream::iter([Ok(event), Ok(end)]).boxed())
    }
}

#[derive(Debug)]
struct Tools;

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("look", "looks")]
    }

    async fn call(&self, _: &str, _: RawJson, _: ToolContext) -> Result<RawJson> {
        RawJson::of(&"seen")
    }
}

/// Returns the requests of a run that makes this number of calls, in a conversation of 10,000 messages and a picture.
async fn requests(calls: usize) -> Vec<ModelRequest> {
    let storage = Storage::from(MemoryStore::new());
    let kept = Arc::default();
    let model = Keeping { calls, requests: Arc::clone(&kept) };
    let limits = ContextLimits::new(4 * MESSAGES, 64 << 20);
    let agent = agent_with(
        &storage,
        model,
        Config::default().with_context_limits(limits).with_max_turns(1000).with_max_tool_calls(1000),
        [Arc::new(Tools)],
    );
    let chat = agent.conversation("long").await.unwrap();
    let mut head = chat.record().head;
    for _ in 0..MESSAGES / 100 {
        let exchange = [NewEvent::user_message("What is it?"), NewEvent::agent_message("It rains.")];
        let events = std::iter::repeat_n(exchange, 50).flatten().collect();
        head = storage.sessions.append(chat.id(), head, events).await.unwrap().last;
    }
    let picture = Part::Image(Media::inline("image/png", vec![1; 5000]));
    chat.send(Message::new("Look.").with_part(picture)).await.unwrap();
    assert_eq!(chat.prompt("Go.").await.unwrap().finish().await.unwrap().text, "Done.");
    std::mem::take(&mut *kept.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn requests_share_the_messages_of_a_long_conversation() {
    let requests = requests(2).await;
    let lengths: Vec<_> = requests.iter().map(|request| request.messages.len()).collect();
    // The second repeats the first, and each call adds two messages.
    assert_eq!(lengths, [2, 2, 4, 6].map(|more| MESSAGES + more));
    for pair in requests.windows(2) {
        let both = pair[0].messages.iter().zip(pair[1].messages.iter());
        let shared = both.filter(|(one, other)| std::ptr::eq::<ModelMessage>(*one, *other)).count();
        assert!(shared >= MESSAGES + 2, "only {shared} messages are shared");
    }
    // Each has the bytes of the picture that were read for the first one.
    for request in &requests[1..] {
        assert!(std::ptr::eq(&requests[0].messages[MESSAGES], &request.messages[MESSAGES]), "read again");
    }
    let ModelMessage::User(content) = &requests[3].messages[MESSAGES] else { panic!("the picture is there") };
    let Some(MediaSource::Inline(bytes)) = content.parts[1].media().map(|media| &media.source) else {
        panic!("{content:?}")
    };
    assert_eq!(bytes.len(), 5000);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_long_run_are_copied_seldom() {
    let requests = requests(200).await;
    let mut copies = 0;
    for pair in requests.windows(2) {
        assert!(pair[1].messages.starts_with(&pair[0].messages));
        let both = pair[0].messages.iter().zip(pair[1].messages.iter());
        copies += both.filter(|(one, other)| !std::ptr::eq::<ModelMessage>(*one, *other)).count();
    }
    // The run has 400 messages of its own, and 200 further requests.
    println!("proof: {copies} copies of 400 messages in 200 requests");
    assert!(copies < 400 * 8, "{copies} copies");
}
