//! Continues the same conversation every time it is started.
#![allow(clippy::print_stdout, reason = "it is an example")]

use agent::{AgentBuilder, EchoProvider, SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new()
        .with_llm(EchoProvider::new())
        .with_storage(SqliteStore::open("target/quickstart.db").await?)
        .build()?;
    let chat = agent.conversation("support/4711").await?;
    let answer = chat.prompt("Hello").await?.finish().await?;
    println!("{} ({} messages so far)", answer.text, chat.refresh().await?.counts.messages());
    agent.close().await?;
    Ok(())
}
