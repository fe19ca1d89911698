//! An agent with the tools of an MCP server: `servers PROGRAM ARGUMENTS…`, which are those of the server.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use agent_core::MemoryStore;
use agent_mcp::{Mcp, McpServer, McpServers};
use agent_runtime::{AgentBuilder, EchoProvider};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().ok_or("name the program of a server")?;
    let server = McpServer::command(program).with_args(arguments);
    let mcp = Mcp::new(McpServers::new().with_server("own", server)?);
    let agent = AgentBuilder::new()
        .with_llm(EchoProvider::new()) // any `LlmProvider`
        .with_storage(MemoryStore::new())
        .with_plugin(mcp.clone())
        .build()?;
    let chat = agent.conversation("support/4711").await?;
    // The servers of a session are started when a run of it begins.
    chat.ask("What is in the folder?").await?;
    for server in mcp.status(&agent, chat.id()) {
        println!("{server:?}");
    }
    agent.close().await?; // ends the servers
    Ok(())
}
