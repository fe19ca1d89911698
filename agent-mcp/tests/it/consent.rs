//! Consent: asked by default, and for good only for what was shown.

use agent_core::event::{Decision, ToolConfirmation, ToolOutcome};
use agent_core::model::Actor;
use agent_mcp::{Mcp, McpServer, McpTool};
use agent_runtime::documents::DocumentWrite;
use agent_runtime::{Config, RunOutcome, ToolMode, Turn};

use crate::common::{Site, allow, call, only, output, results, server, waits, within};

fn tool(site: &Site, name: &str) -> McpTool {
    site.mcp
        .offered(&site.agent, site.chat.id())
        .into_iter()
        .find(|tool| tool.name == name)
        .expect("the tool is offered")
}

#[tokio::test]
async fn each_call_waits_for_consent_by_default() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let logging = server("good").with_args([file.path().to_string_lossy()]);
    let site = Site::asking(only(logging)).await;
    // The server says of each tool that it only reads; nobody believes it.
    let report = waits(&site, "srv__echo", "hello").await;
    let RunOutcome::Awaiting(action) = &report.outcome else { panic!("{report:?}") };
    assert!(action.question.contains("srv__echo") && action.question.contains("hello"), "{action:?}");
    let modes: Vec<_> = site.model.requests()[0].tools.iter().map(|tool| tool.mode).collect();
    assert!(modes.iter().filter(|mode| **mode == ToolMode::Confirm).count() >= 17, "{modes:?}");
    assert!(!std::fs::read_to_string(file.path()).unwrap().contains("call"));
    assert_eq!(allow(&site).await, "hello");

    waits(&site, "srv__echo", "again").await;
    let refusal = ToolConfirmation::new(site.chat.record().action.clone().unwrap().id, Decision::Deny);
    site.model.push(Turn::new().text("Done."));
    within(async { site.chat.answer_and_run(refusal).await.unwrap().finish().await.unwrap() }).await;
    assert_eq!(results(&site.chat).await.last().unwrap().outcome, ToolOutcome::Denied);
    assert_eq!(std::fs::read_to_string(file.path()).unwrap().matches("call echo").count(), 1);
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn always_holds_until_the_tool_changes() {
    let site = Site::asking(only(server("good"))).await;
    waits(&site, "srv__echo", "one").await;
    site.mcp.always_allow(&site.chat, &tool(&site, "srv__echo"), &Actor::USER).await.unwrap();
    assert_eq!(allow(&site).await, "one");

    // Nobody is asked any more.
    assert_eq!(site.one("srv__echo", "two").await, "two");
    assert!(tool(&site, "srv__echo").always && !tool(&site, "srv__pid").always);

    // The server changes its tools in the middle of a run.
    site.mcp.always_allow(&site.chat, &tool(&site, "srv__change"), &Actor::USER).await.unwrap();
    site.model.push(call("c1", "srv__change", ""));
    site.model.push(call("c2", "srv__echo", "three"));
    let report = within(async { site.chat.prompt("Go.").await.unwrap().finish().await.unwrap() }).await;
    assert!(matches!(report.outcome, RunOutcome::Awaiting(_)), "{report:?}");
    assert!(!tool(&site, "srv__echo").always);
    assert_eq!(allow(&site).await, "three");

    // What was allowed is the digest: allowing the new one lets it through again, and it can be taken back.
    site.mcp.always_allow(&site.chat, &tool(&site, "srv__echo"), &Actor::USER).await.unwrap();
    assert_eq!(site.one("srv__echo", "four").await, "four");
    site.mcp.ask_again(&site.chat, "srv__echo", &Actor::USER).await.unwrap();
    waits(&site, "srv__echo", "five").await;
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_fork_has_the_permissions_of_its_parent() {
    let storage = tempfile::tempdir().unwrap();
    let open = || agent_storage_sqlite::SqliteStore::open(storage.path().join("agent.db"));
    let build = async || {
        let mcp = agent_mcp::Mcp::new(only(server("good")));
        Site::of(mcp, open().await.unwrap().into(), agent_runtime::Config::new()).await
    };
    let site = build().await;
    waits(&site, "srv__echo", "one").await;
    site.mcp.always_allow(&site.chat, &tool(&site, "srv__echo"), &Actor::USER).await.unwrap();
    assert_eq!(allow(&site).await, "one");
    let fork = site.chat.fork(agent_core::session::Fork::new()).await.unwrap().id();
    site.agent.close().await.unwrap();

    // Another process, on the same file.
    let site = build().await;
    let site = Site { chat: site.agent.conversation_by_id(fork).await.unwrap(), ..site };
    assert_eq!(site.one("srv__echo", "two").await, "two");
    waits(&site, "srv__pid", "").await;
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_tool_that_changes_in_secret_is_asked_about_again() {
    let site = Site::asking(only(server("good"))).await;
    waits(&site, "srv__secretly", "").await;
    for name in ["srv__secretly", "srv__echo"] {
        site.mcp.always_allow(&site.chat, &tool(&site, name), &Actor::USER).await.unwrap();
    }
    allow(&site).await;
    // The list is read again with each run, whatever the server says.
    waits(&site, "srv__echo", "hello").await;
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_tool_that_changes_after_the_question_is_not_called() {
    let site = Site::asking(only(server("good"))).await;
    waits(&site, "srv__secretly", "").await;
    let before = tool(&site, "srv__secretly");
    // Two questions in one answer; the first call changes the second tool.
    let echo = agent_core::json::RawJson::parse(r#"{"text":"hello"}"#).unwrap();
    allow(&site).await;
    site.model.push(Turn::new().call("a", "srv__secretly", echo.clone()).call("b", "srv__echo", echo));
    within(async { site.chat.prompt("Go.").await.unwrap().finish().await.unwrap() }).await;
    let mut answered = 0;
    while let Some(action) = site.chat.record().action.clone() {
        site.model.push(Turn::new().text("Done."));
        let answer = ToolConfirmation::new(action.id, Decision::Allow);
        within(async { site.chat.answer_and_run(answer).await.unwrap().finish().await.unwrap() }).await;
        answered += 1;
    }
    assert_eq!(answered, 2);
    let results = results(&site.chat).await;
    let last = results.last().unwrap();
    assert_eq!(last.outcome, ToolOutcome::Error);
    assert!(output(last).contains("has changed tool srv__echo since it was offered"), "{last:?}");
    assert_ne!(tool(&site, "srv__secretly").digest, before.digest);
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn always_in_the_configuration_is_a_digest() {
    let site = Site::asking(only(server("good"))).await;
    waits(&site, "srv__echo", "one").await;
    let digest = tool(&site, "srv__echo").digest;
    site.agent.close().await.unwrap();

    let allowed = Site::asking(only(server("good").with_always("echo", &digest))).await;
    assert_eq!(allowed.one("srv__echo", "two").await, "two");
    allowed.agent.close().await.unwrap();
    // Another digest, and another program with the same tools.
    let other = server("good").with_always("echo", digest.replace(['0', '1'], "2"));
    let elsewhere = server("better").with_always("echo", &digest);
    for server in [other, elsewhere] {
        let site = Site::asking(only(server)).await;
        waits(&site, "srv__echo", "three").await;
        site.agent.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_cannot_allow_itself_anything() {
    let site = Site::asking(only(server("good"))).await;
    waits(&site, "srv__echo", "one").await;
    let text = format!(r#"{{"srv__echo":"{}"}}"#, tool(&site, "srv__echo").digest);
    let write = DocumentWrite::new("mcp.permissions", text, Actor::AGENT).with_format(1);
    site.chat.documents().put(write).await.unwrap();
    assert_eq!(allow(&site).await, "one");
    waits(&site, "srv__echo", "two").await;
    // A person's permission takes the place of what the agent wrote.
    site.mcp.always_allow(&site.chat, &tool(&site, "srv__echo"), &Actor::USER).await.unwrap();
    assert_eq!(allow(&site).await, "two");
    assert_eq!(site.one("srv__echo", "three").await, "three");
    site.agent.close().await.unwrap();
}

/// Two processes have another server of the same name. One asks, the other one is given the answer: it does not call what
/// nobody was asked about.
#[tokio::test]
async fn what_another_process_has_asked_is_compared() {
    let storage = agent_core::Storage::from(agent_core::MemoryStore::new());
    let site =
        async |server: McpServer| Site::of(Mcp::new(only(server)), storage.clone(), Config::new()).await;
    let first = site(server("good")).await;
    // The first process has offered its own tools.
    first.run(&[]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let second = site(server("good").with_args([file.path().to_string_lossy()])).await;
    waits(&second, "srv__echo", "hello").await;
    first.chat.refresh().await.unwrap();
    assert!(allow(&first).await.contains("has changed tool srv__echo"));
    first.agent.close().await.unwrap();
}
