//! Answers what waits, of all customers, in any number of processes: `worker STORE add CUSTOMER COUNT`, `worker STORE run`,
//! `worker STORE count`. A worker that is killed loses nothing: the others go on with what it had begun.
#![allow(clippy::print_stdout, reason = "it is an example")]

use std::sync::Arc;
use std::time::Duration;

use agent::core::Backend;
use agent::runtime::SchedulerConfig;
use agent::{AgentBuilder, AgentRuntime, EchoProvider, Scheduler, SessionQuery, TenantId};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (store, command) =
        arguments.split_first().ok_or("usage: worker STORE add CUSTOMER COUNT | run | count")?;
    let customers = agent::open_backend(store).await?;
    let model = EchoProvider::new().with_delay(Duration::from_millis(20));
    let storage = customers.tenant(&TenantId::default());
    let agent = AgentBuilder::new().with_llm(model).with_storage(storage).build()?;
    match *command {
        ["add", customer, count] => {
            let agent = agent.for_storage(customers.tenant(&customer.parse()?));
            for number in 1..=count.parse::<u32>()? {
                // The message is stored when `send` returns; a worker answers it.
                agent
                    .conversation(&format!("job/{number}"))
                    .await?
                    .send(format!("job {number} is done"))
                    .await?;
            }
        }
        ["run"] => run(&agent, customers).await?,
        ["count"] => println!("{}", count(&*customers).await?),
        _ => return Err("usage: worker STORE add CUSTOMER COUNT | run | count".into()),
    }
    Ok(agent.close().await?)
}

/// Works until it is told to stop.
async fn run(agent: &AgentRuntime, customers: Arc<dyn Backend>) -> agent::Result<()> {
    // No customer's work delays another's: each has at most two of the eight runs at once.
    let config = SchedulerConfig::new()
        .with_interval(Duration::from_millis(200))
        .with_max_runs(8)
        .with_max_runs_per_tenant(2);
    let work = tokio::spawn(Scheduler::over(agent.clone(), customers).with_config(config).run());
    println!("at work");
    let _ = tokio::signal::ctrl_c().await;
    // What has begun comes to its end, for ten seconds; the rest is another worker's.
    let stopped = agent.shutdown(Duration::from_secs(10)).await;
    let _ = work.await;
    stopped.map(drop)
}

/// Counts the answers of all customers.
async fn count(customers: &dyn Backend) -> agent::Result<u64> {
    let mut count = 0;
    for customer in customers.tenants(None).await?.items {
        let sessions = customers.tenant(&customer).sessions;
        count += sessions
            .list(SessionQuery::new().with_limit(1000))
            .await?
            .items
            .iter()
            .map(|it| it.counts.agent)
            .sum::<u64>();
    }
    Ok(count)
}
