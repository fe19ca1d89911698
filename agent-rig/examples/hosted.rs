//! A conversation with a hosted model that is kept in a folder: `hosted FOLDER TEXT`, with the key in `ANTHROPIC_API_KEY`.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use agent_core::{Backend, Storage, TenantId};
use agent_rig::RigProvider;
use agent_runtime::AgentBuilder;
use agent_storage_fs::FsConfig;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(text)) = (arguments.next(), arguments.next()) else {
        return Err("name FOLDER TEXT".into());
    };
    let key = std::env::var("ANTHROPIC_API_KEY")?;
    let storage: Storage = FsConfig::new(folder).open().await?.tenant(&TenantId::default());
    let agent = AgentBuilder::new()
        .with_llm(RigProvider::connect("anthropic/claude-opus-5-5", key)?)
        .with_storage(storage)
        .build()?;
    let chat = agent.conversation("support/4711").await?;
    let report = chat.ask(text).await?;
    println!("{}", report.text);
    agent.close().await?;
    Ok(())
}
