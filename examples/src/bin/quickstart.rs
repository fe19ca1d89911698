//! A conversation in fifteen lines.

use std::sync::Arc;

use agent_core::{AgentBuilder, Config, EchoProvider, MemoryStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new(Config::default())
        .with_llm(Arc::new(EchoProvider::new()))
        .with_storage(MemoryStore::new())
        .build()?;
    let chat = agent.open(&"laptop".parse()?).await?;
    let answer = chat.prompt("Hello").await?.finish().await?;
    assert_eq!(answer.text, "Hello");
    Ok(())
}
