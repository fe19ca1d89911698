//! Forks a conversation of six turns at its third, continues both, and shows their differences and their common part.
#![allow(clippy::print_stdout, reason = "it is an example")]

use agent::core::model::Origin;
use agent::runtime::ConversationMessage;
use agent::{AgentBuilder, Conversation, EchoProvider};
use futures::TryStreamExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let storage = agent::open_storage(&address).await?;
    let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage).build()?;
    let essay = agent.conversation("essay").await?;
    for turn in essay.record().counts.runs + 1..=6 {
        essay.ask(format!("Chapter {turn}")).await?;
    }

    // Each turn is a run; the fork begins after the last event of the third.
    let runs = essay.view().runs(1_000, None).await?.runs;
    let third = runs.iter().find(|run| run.index == 3).and_then(|run| run.last).ok_or("no third turn")?;
    let other = essay.fork(third).await?;
    essay.ask("Now the end, please").await?;
    other.ask("Chapter 4, but a sad one").await?;

    let (ours, theirs) = (messages(&essay).await?, messages(&other).await?);
    let shared = ours
        .iter()
        .zip(&theirs)
        .take_while(|(one, two)| (one.seq, &one.text) == (two.seq, &two.text))
        .count();
    println!("{shared} messages are the same; then they differ:");
    for (name, messages) in [("original", &ours), ("fork", &theirs)] {
        for message in &messages[shared..] {
            println!("  {name} {}: {}: {}", message.seq, message.role, message.text);
        }
    }

    let record = other.record();
    if let Origin::Fork { parent, at, .. } = record.origin {
        println!("{} was forked from {parent} at event {at}", record.id);
    }
    for segment in &record.lineage.segments {
        println!("  events to {} are in {}", segment.until, segment.session);
    }
    println!("  events {} to {} are its own", record.lineage.base().next(), record.head);
    for branch in other.view().siblings().await?.ok_or("it is not a fork")?.branches {
        let next = branch.message.as_ref().and_then(agent::core::event::Event::text).unwrap_or_default();
        println!("branch {}: {next}", branch.session);
    }
    agent.close().await?;
    Ok(())
}

/// All messages of a conversation, those that it shares with its parent included.
async fn messages(chat: &Conversation) -> agent::Result<Vec<ConversationMessage>> {
    chat.messages().try_collect().await
}
