//! Opens any store by its address, serves two tenants from it, and deletes one of them: `cargo run --bin stores
//! sqlite:target/stores.db`.
#![allow(clippy::print_stdout, reason = "it is an example")]

use agent::{AgentBuilder, EchoProvider, TenantId};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let backend = agent::open_backend(&url).await?;
    let agent = AgentBuilder::new()
        .with_llm(EchoProvider::new())
        .with_storage(backend.tenant(&TenantId::default()))
        .build()?;
    for name in ["alice@example.com", "bob@example.com"] {
        let tenant = TenantId::derived(name);
        let chat = agent.for_storage(backend.tenant(&tenant)).open(&"laptop".parse()?).await?;
        chat.prompt("Hello").await?.finish().await?;
        println!("{name}: {} messages so far", chat.refresh().await?.counts.messages());
    }
    let deleted = backend.delete_tenant(&TenantId::derived("alice@example.com")).await?;
    println!("alice@example.com: deleted, sessions: {}", deleted.sessions);
    println!("tenants left: {}", backend.tenants(None).await?.items.len());
    agent.close().await?;
    Ok(())
}
