//! A conversation that goes on every time it is started.
#![allow(clippy::print_stdout, reason = "it is an example")]

use std::sync::Arc;

use agent::{AgentBuilder, Config, EchoProvider, SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new(Config::default())
        .with_llm(Arc::new(EchoProvider::new()))
        .with_storage(SqliteStore::open("target/quickstart.db").await?)
        .build()?;
    let chat = agent.open(&"laptop".parse()?).await?;
    let answer = chat.prompt("Hello").await?.finish().await?;
    println!("{} ({} messages so far)", answer.text, chat.refresh().await?.counts.messages());
    agent.close().await?;
    Ok(())
}
