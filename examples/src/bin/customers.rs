//! One conversation for each customer, found by the host's own key. `customers KEY` erases one.
#![allow(clippy::print_stdout, reason = "it is an example")]

use agent::{AgentBuilder, AgentRuntime, EchoProvider, ErrorKind, Result, SessionQuery, SqliteStore};
use futures::TryStreamExt;

async fn ask(agent: &AgentRuntime, key: &str, text: &str) -> Result<()> {
    match agent.conversation_with(key, text).await {
        Ok(begun) => {
            let answer = begun.run.finish().await?;
            println!("{key}, {}: {}", if begun.created { "new" } else { "known" }, answer.text);
            Ok(())
        }
        Err(error) if *error.kind() == ErrorKind::Deleted => {
            println!("{key}: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let agent = AgentBuilder::new()
        .with_llm(EchoProvider::new())
        .with_storage(SqliteStore::open("target/customers.db").await?)
        .build()?;
    if let Some(key) = std::env::args().nth(1) {
        let erased = agent.erase_conversation(&key).await?;
        println!("{key}: removed {} events", erased.events);
        return agent.close().await;
    }
    ask(&agent, "customer/4711", "Where is my parcel?").await?;
    ask(&agent, "customer/4712", "Hello").await?;
    let mut sessions = agent.sessions(SessionQuery::new());
    while let Some(session) = sessions.try_next().await? {
        let mut messages = agent.conversation_by_id(session.id).await?.messages();
        while let Some(message) = messages.try_next().await? {
            println!("  {} {}: {}", message.at, message.author, message.text);
        }
    }
    agent.close().await
}
