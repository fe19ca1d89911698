//! Opens the store at an address, prints its guarantees, and adds a line to the conversation "diary".
#![allow(clippy::print_stdout, reason = "it is an example")]

use agent::core::store::{Durability, Scope};
use agent::{AgentBuilder, AgentRuntime, EchoProvider};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: open-store ADDRESS")?;
    let storage = agent::open_storage(&address).await?;
    // No model is called here, but an agent is not built without one.
    let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage).build()?;
    let written = write(&agent).await;
    // Closed also after an error: from here on, nothing in this process holds the file.
    agent.close().await?;
    println!("{} messages in the diary; the store is closed", written?);
    Ok(())
}

/// Prints the guarantees, adds the line, and returns the number of messages.
async fn write(agent: &AgentRuntime) -> agent::Result<u64> {
    let guarantees = agent.storage().sessions.capabilities();
    let scope = match guarantees.scope {
        Scope::Process => "one process",
        Scope::Host => "all processes of this machine",
        Scope::Network => "any number of machines",
        _ => "a scope that this program does not know",
    };
    let survives = match guarantees.durability {
        Durability::None => "nothing: it ends with the process",
        Durability::ProcessCrash => "the end of the process, also by kill -9",
        Durability::PowerLoss => "a loss of power",
        _ => "what this program does not know",
    };
    println!("shared by {scope}; an acknowledged line survives {survives}");

    let diary = agent.conversation("diary").await?;
    diary.send("Today I opened a store.").await?;
    Ok(diary.record().counts.messages())
}
