//! Keeps the conversations of three customers apart in one SQLite file, and deletes one customer without a trace.
#![allow(clippy::print_stdout, reason = "it is an example")]

use agent::{AgentBuilder, AgentRuntime, EchoProvider, SessionQuery, TenantId};
use futures::future::try_join_all;

const FILE: &str = "customers.db";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = agent::open_backend(&format!("sqlite:{FILE}")).await?;
    let customers: [TenantId; 3] = ["acme".parse()?, "globex".parse()?, "initech".parse()?];

    // One agent for each customer; all share the model and the file.
    let first = AgentBuilder::new()
        .with_llm(EchoProvider::new())
        .with_storage(backend.tenant(&customers[0]))
        .build()?;
    let agents = customers.each_ref().map(|customer| first.for_storage(backend.tenant(customer)));
    let talks = customers
        .iter()
        .zip(&agents)
        .flat_map(|(customer, agent)| (1..=5).map(move |n| talk(agent, customer, n)));
    try_join_all(talks).await?;

    for (customer, agent) in customers.iter().zip(&agents) {
        let total = agent.storage().sessions.list(SessionQuery::new().with_total()).await?.total;
        println!("{customer}: {} sessions", total.unwrap_or(0));
    }

    let deleted = backend.erase_tenant(&customers[1]).await?;
    println!("erased {}: {} sessions", customers[1], deleted.sessions);
    for tenant in backend.tenants(None).await?.items {
        println!("tenant {tenant}");
    }
    first.close().await?;

    // Only now: a process that reads a database file while it has the database open loses its locks on it.
    for customer in &customers {
        println!("{customer}: its name stands {} times in the file", traces(customer)?);
    }
    match traces(&customers[1])? {
        0 => Ok(()),
        count => Err(format!("{count} traces of {} are left", customers[1]).into()),
    }
}

/// Holds one conversation, in which the customer's name is said.
async fn talk(agent: &AgentRuntime, customer: &TenantId, number: u32) -> agent::Result<()> {
    let chat = agent.conversation(&format!("ticket/{number}")).await?;
    chat.set_title(&format!("Ticket {number} of {customer}")).await?;
    chat.ask(format!("We are {customer}, and this is a secret.")).await?;
    Ok(())
}

/// Counts the places in the database and the files beside it at which the customer's name stands.
fn traces(customer: &TenantId) -> std::io::Result<usize> {
    let word = customer.as_str().as_bytes();
    let mut count = 0;
    for file in [FILE.to_owned(), format!("{FILE}-wal"), format!("{FILE}-shm")] {
        match std::fs::read(file) {
            Ok(bytes) => count += bytes.windows(word.len()).filter(|window| *window == word).count(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
