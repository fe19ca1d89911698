#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]
use agent_core::Storage;
use agent_runtime::{AgentBuilder, EchoProvider};
use agent_storage_s3::S3Config;
use s3_simulator::Simulator;

#[tokio::test(flavor = "multi_thread")]
async fn look() {
    let simulator = Simulator::new(1);
    let option = |config: S3Config, name| config.with_option(name, "any").unwrap();
    for n in 0..2 {
        let show = |what: &str, from: usize| {
            println!("== {what}");
            for entry in &simulator.entries()[from..] {
                println!("   {entry:?}");
            }
        };
        let config = ["access_key_id", "secret_access_key", "region"]
            .into_iter()
            .fold(S3Config::new("bucket"), option)
            .with_http_connector(simulator.connector("a"));
        let from = simulator.requests();
        let storage: Storage = config.open().await.unwrap().into();
        show("open", from);
        let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage).build().unwrap();
        let from = simulator.requests();
        let chat = agent.conversation("a").await.unwrap();
        show("conversation", from);
        for turn in 0..3 {
            let from = simulator.requests();
            chat.prompt(format!("hello {n} {turn}")).await.unwrap().finish().await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
            show("turn", from);
        }
        let from = simulator.requests();
        drop((chat, agent));
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        show("end", from);
    }
}
