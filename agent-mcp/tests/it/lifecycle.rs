//! Start and end of servers: with sessions, with the agent, and without any users left.

use std::time::Duration;

use agent_core::MemoryStore;
use agent_mcp::Mcp;

use crate::common::{Site, allowing, only, runs, server, until, within};

#[tokio::test]
async fn closing_the_agent_ends_all_processes() {
    let site = Site::new(only(server("good"))).await;
    let processes = site.one("srv__spawn", "").await;
    let (own, grandchild) = processes.split_once(' ').unwrap();
    assert!(runs(own) && runs(grandchild));
    within(site.agent.close()).await.unwrap();
    assert!(!runs(own));
    until("the process that the server started is killed", || !runs(grandchild)).await;
}

#[tokio::test]
async fn a_server_that_ignores_the_end_of_its_input_is_killed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let site = Site::new(only(server("stays").with_args([file.path().to_string_lossy()]))).await;
    let own = site.one("srv__pid", "").await;
    within(site.agent.close()).await.unwrap();
    assert!(!runs(&own));
    assert!(std::fs::read_to_string(file.path()).unwrap().contains("end of input"));
}

#[tokio::test]
async fn dropping_the_agent_kills_all_processes() {
    let site = Site::new(only(server("stays"))).await;
    let processes = site.one("srv__spawn", "").await;
    let (own, grandchild) = processes.split_once(' ').unwrap();
    drop(site);
    for process in [own, grandchild] {
        until("the process is killed", || !runs(process)).await;
    }
}

#[test]
fn servers_outlive_the_runtime_that_used_them() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (site, own) = first.block_on(async {
        let site = Site::new(only(server("good"))).await;
        let own = site.one("srv__pid", "").await;
        (site, own)
    });
    drop(first);
    runtime().block_on(async {
        assert_eq!(site.one("srv__pid", "").await, own);
        site.agent.close().await.unwrap();
    });
}

#[tokio::test]
async fn a_session_that_is_not_used_loses_its_servers() {
    let mcp = Mcp::new(only(server("good"))).with_idle_timeout(Duration::from_millis(300));
    let site = Site::of(mcp, MemoryStore::new().into(), allowing()).await;
    let first = site.one("srv__pid", "").await;
    until("the server is ended", || !runs(&first)).await;
    assert!(site.mcp.status(&site.agent, site.chat.id()).is_empty());
    assert_ne!(site.one("srv__pid", "").await, first);
    // A call that takes longer than that is no rest.
    assert!(site.one("srv__stall", "").await.contains("it gave no answer in 2s"));
    site.agent.close().await.unwrap();
}
