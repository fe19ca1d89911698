//! An agent for editors, over standard input and output: name this program in the settings of the editor.

use agent_acp::AcpAgent;
use agent_core::MemoryStore;
use agent_runtime::{AgentBuilder, EchoProvider};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = AgentBuilder::new()
        .with_llm(EchoProvider::new()) // any `LlmProvider`
        .with_storage(MemoryStore::new()) // or files, SQLite, S3
        .build()?;
    let editor = AcpAgent::new(agent.clone()).with_device("laptop".parse()?);
    editor.serve(tokio::io::stdin(), tokio::io::stdout()).await?;
    agent.close().await?;
    Ok(())
}
