//! A chat turn from end to end: prompt, stream, stored.

use std::sync::Arc;

use agent_core::runtime::{AgentBuilder, Config, EchoProvider, Update};
use agent_core::{Body, MemoryStore, ReadEvents, SessionState};
use futures::StreamExt;

/// A22, A38, R06, R07: a turn is two commits, and what was streamed is what is stored.
#[tokio::test]
async fn a22_a38_a_turn_is_stored_as_it_was_streamed() {
    let agent = AgentBuilder::new(Config::default())
        .with_llm(Arc::new(EchoProvider::new()))
        .with_storage(MemoryStore::new())
        .build()
        .unwrap();
    let chat = agent.open(&"laptop".parse().unwrap()).await.unwrap();
    let mut run = chat.prompt("Grüße aus 서울 🙂").await.unwrap();
    let mut text = String::new();
    while let Some(update) = run.next().await {
        if let Update::Text(piece) = update.unwrap() {
            text.push_str(&piece);
        }
    }
    assert_eq!(text, "Grüße aus 서울 🙂");
    let now = chat.refresh().await.unwrap();
    assert_eq!(now.status.state, SessionState::Idle);
    let events = chat.history(ReadEvents::last(10)).await.unwrap().events;
    let Body::AgentMessage(said) = events.last().unwrap().body().unwrap() else { panic!("no answer") };
    assert_eq!(said.text, text);
}
