//! Costs of a turn in requests, from end to end: of the library, and of the program on a real server.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::Chat;
use crate::proxy::Proxy;
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::model::Patch;
use agent_core::session::NewSession;
use agent_core::{Result, Storage, WorkspaceId, async_trait};
use agent_runtime::{AgentBuilder, AgentRuntime, EchoProvider, Plugin, SessionContext, ToolSpec};
use agent_storage_s3::S3Config;
use s3_servers::{Kind, Server};
use s3_simulator::Simulator;
use tokio::time::Instant;

/// Time after which a test is stuck. No test measures it.
const STUCK: Duration = Duration::from_secs(120);

/// Plugin that needs the configuration of the workspace, as that of MCP servers does.
#[derive(Debug, Default)]
struct Configured(Mutex<Vec<Option<Arc<str>>>>);

#[async_trait]
impl Plugin for Configured {
    fn name(&self) -> &str {
        "configured"
    }

    fn reads_workspace_config(&self) -> bool {
        true
    }

    async fn session_tools(&self, context: SessionContext) -> Result<Vec<ToolSpec>> {
        let config = context.workspace_config().await?;
        self.0.lock().unwrap().push(config);
        Ok(Vec::new())
    }
}

async fn runtime(simulator: &Simulator) -> AgentRuntime {
    builder(simulator).await.build().unwrap()
}

async fn builder(simulator: &Simulator) -> AgentBuilder {
    let option = |config: S3Config, name| config.with_option(name, "any").unwrap();
    let config = ["access_key_id", "secret_access_key", "region"]
        .into_iter()
        .fold(S3Config::new("bucket"), option)
        .with_http_connector(simulator.connector("machine"));
    let storage: Storage = config.open().await.unwrap().into();
    AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage)
}

/// A turn writes its two commits and the key by which schedulers find it, and reads the workspace. What this process has
/// written or read before is not asked again, however long the conversation is; that the workspace is in use is recorded
/// once in 15 minutes.
#[tokio::test]
async fn a_turn_costs_three_puts_and_one_get() {
    let simulator = Simulator::new(1);
    let agent = runtime(&simulator).await;
    let chat = agent.conversation("support/4711").await.unwrap();
    for turn in 0..150 {
        let before = simulator.requests();
        let run = chat.prompt(format!("question {turn}")).await.unwrap();
        tokio::time::timeout(STUCK, run.finish()).await.unwrap().unwrap();
        let counts = simulator.counts_since(before);
        let touched = usize::from(turn == 0);
        let counts = [counts.put, counts.get, counts.list, counts.delete + counts.head];
        assert_eq!(counts, [3 + touched, 1 + touched, 0, 0], "turn {turn}");
    }
    // Another process finds the conversation, and reads what it does not know once.
    let other = runtime(&simulator).await;
    let before = simulator.requests();
    let chat = other.conversation("support/4711").await.unwrap();
    let counts = simulator.counts_since(before);
    assert_eq!((counts.list, counts.get, counts.total()), (1, 1, 2));
    for turn in 0..3 {
        let before = simulator.requests();
        let run = chat.prompt(format!("more {turn}")).await.unwrap();
        tokio::time::timeout(STUCK, run.finish()).await.unwrap().unwrap();
        let counts = simulator.counts_since(before);
        // 300 events are in five big windows, and what follows.
        let most = if turn == 0 { 8 } else { 1 };
        assert!(counts.get <= most && counts.list == 0, "turn {turn}: {counts}");
        assert_eq!(counts.put, 3 + usize::from(turn == 0), "turn {turn}: {counts}");
    }
}

/// A plugin that needs the configuration of the workspace costs no further request: it is read with the workspace.
#[tokio::test]
async fn a_turn_reads_the_workspace_once_with_its_configuration() {
    let simulator = Simulator::new(1);
    let plugin = Arc::new(Configured::default());
    let agent = builder(&simulator).await.with_plugin(plugin.clone()).build().unwrap();
    let chat = agent.conversation("support/4711").await.unwrap();
    for turn in 0..4 {
        let text = format!("turn = {turn}");
        let expect = if turn == 0 { Precondition::MustNotExist } else { Precondition::MustExist };
        let (workspaces, workspace) = (&agent.storage().workspaces, chat.record().workspace);
        workspaces.save_config(workspace, Some(text.clone()), expect).await.unwrap();
        let before = simulator.requests();
        let run = chat.prompt("Hello").await.unwrap();
        tokio::time::timeout(STUCK, run.finish()).await.unwrap().unwrap();
        let touched = usize::from(turn == 0);
        assert_eq!(simulator.counts_since(before).get, 1 + touched, "turn {turn}");
        assert_eq!(plugin.0.lock().unwrap().last().unwrap().as_deref(), Some(&*text));
    }
}

/// A conversation is opened by its key, and a session is begun, at the requests that the format page of the S3 store says.
#[tokio::test]
async fn conversations_are_opened_at_the_requests_of_the_page() {
    let simulator = Simulator::new(1);
    let (agent, other) = (runtime(&simulator).await, runtime(&simulator).await);
    let page = include_str!("../../../../agent-storage-s3/FORMAT.md");
    let mut messages = BTreeMap::new();
    let rows = page.split("| Of the runtime | Requests |").nth(1).unwrap().lines().skip(2);
    for row in rows.take_while(|row| row.starts_with("| ")) {
        let (what, requests) = row[2..].trim_end_matches(" |").split_once(" | ").unwrap();
        messages.insert(what, requests);
    }
    let mut counted = BTreeMap::new();
    for (what, agent, key) in [
        ("the first conversation of a tenant, with its workspace", &agent, "support/1"),
        ("a new conversation", &agent, "support/2"),
        ("a conversation that the process knows", &agent, "support/2"),
        ("a conversation that another process has begun", &other, "support/1"),
    ] {
        let before = simulator.requests();
        agent.conversation(key).await.unwrap();
        counted.insert(what, simulator.counts_since(before).to_string());
    }
    for _ in 0..2 {
        let before = simulator.requests();
        agent.new_session(WorkspaceId::DEFAULT, &Patch::new()).await.unwrap();
        counted.insert("a new session of a workspace", simulator.counts_since(before).to_string());
    }
    let counted: BTreeMap<_, _> = counted.iter().map(|(what, counts)| (*what, counts.as_str())).collect();
    assert_eq!(counted, messages);
}

/// The same, counted between the program and a server.
async fn counted(kind: Kind) {
    let server = match kind.check().and_then(|()| Server::start(kind)) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let proxy = Proxy::to(server.endpoint());
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-s3"));
        command
            .args([
                "--store",
                &format!("s3://{}/chats?allow_http=true", Server::BUCKET),
                "--device",
                "laptop",
            ])
            .env("AWS_ENDPOINT_URL", proxy.endpoint())
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", Server::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", Server::SECRET_KEY);
        Chat::spawn(command)
    };
    for process in 0..2 {
        let mut chat = start();
        chat.err.wait_for("data in ");
        let opened = proxy.requests();
        if process > 0 {
            assert!(
                opened[0].ends_with("/probe/passed") && opened[1].ends_with("/generations/default"),
                "{opened:#?}"
            );
            // Two to open the bucket; the binding and the workspace; the head of the main session; the binding for the last
            // session of the device, and once more to find that it is recorded; the generation of the tenant. The session is
            // polled meanwhile.
            let is_commit = |request: &&String| request.starts_with("GET") && request.contains("/c/");
            let (commits, others): (Vec<_>, Vec<_>) = opened.iter().partition(is_commit);
            let of = |kind: &str| others.iter().filter(|request| request.starts_with(kind)).count();
            assert_eq!((of("GET"), of("LIST"), others.len()), (7, 1, 8), "{opened:#?}");
            assert!(!commits.is_empty(), "{opened:#?}");
        }
        proxy.forget();
        for turn in 0..6 {
            let (question, since) = (format!("question {process} {turn}"), Instant::now());
            chat.send(&question);
            chat.out.wait_for(&format!("{question}\n"));
            // What follows the answer.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let requests = proxy.forget();
            let count = |is: fn(&str) -> bool| requests.iter().filter(|request| is(request)).count();
            // The first records that the workspace is used, and finds the session's last commits.
            if turn > 0 {
                let polls = count(|request| request.starts_with("GET") && request.contains("/c/"));
                let most = since.elapsed().as_millis() / 250 + 1;
                assert!(polls as u128 <= most, "{polls} in a time for {most}: {requests:#?}");
                assert_eq!(count(|request| request.starts_with("GET")), 1 + polls, "{requests:#?}");
                assert_eq!(count(|request| request.starts_with("PUT")), 3, "{requests:#?}");
                let others = count(|request| !request.starts_with("GET") && !request.starts_with("PUT"));
                assert_eq!(others, 0, "{requests:#?}");
            }
        }
        assert_eq!(chat.finish(), 0, "{}", chat.err.text());
        proxy.forget();
    }
}

/// Runs a command of the program on a bucket; returns its exit code, its output and its errors.
fn command(endpoint: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-s3"));
    command
        .args(arguments)
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ALLOW_HTTP", "1")
        .env("AWS_ACCESS_KEY_ID", Server::ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", Server::SECRET_KEY);
    let mut chat = Chat::spawn(command);
    (chat.finish(), chat.out.text(), chat.err.text())
}

/// A list and a sweep of the program read what they show; counting all, and listing what was used recently, is asked for.
/// A copy of a bucket into itself is a wrong command line.
#[tokio::test]
async fn commands_on_a_bucket_read_what_they_show() {
    let server = match Kind::Ministack.check().and_then(|()| Server::start(Kind::Ministack)) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let storage: Storage = S3Config::from_url(&server.address("many")).unwrap().open().await.unwrap().into();
    let effects = Effects::default();
    for _ in 0..30 {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        storage.sessions.create(new).await.unwrap();
    }
    let proxy = Proxy::to(server.endpoint());
    let store = format!("s3://{}/many", Server::BUCKET);
    let run = |arguments: &[&str]| {
        proxy.forget();
        let (code, out, err) = command(proxy.endpoint(), &[&["--store", &store], arguments].concat());
        assert_eq!(code, 0, "{arguments:?}: {err}");
        (out, proxy.forget().len())
    };
    // The first one at this address probes the server.
    run(&["session", "list", "--limit", "2"]);
    let (page, few) = run(&["session", "list", "--limit", "2", "--json"]);
    assert!(page.contains(r#""total":null"#), "{page}");
    let (page, all) = run(&["session", "list", "--limit", "2", "--json", "--total"]);
    assert!(page.contains(r#""total":30"#), "{page}");
    assert!(few <= 12 && all >= 60, "{few} {all}");
    let (_, few) = run(&["sweep", "--inactive", "30"]);
    let (report, all) = run(&["sweep", "--inactive", "30", "--recent", "--json"]);
    assert!(report.contains(r#""examined":30"#), "{report}");
    assert!(few <= 12 && all >= 60, "{few} {all}");
    for same in [store.clone(), format!("{store}/"), format!("{store}?concurrency=3")] {
        let (code, _, err) = command(server.endpoint(), &["copy", &store, &same]);
        assert_eq!(code, 2, "{same}: {err}");
    }
}

/// A turn of the program costs the server what one of the library costs, and a look for the messages of others each 250 ms at first,
/// each 2 s later. A start is nine requests, two of them to open the bucket, and no process but the first writes for it.
#[tokio::test]
async fn a_turn_of_the_program_costs_the_same_on_ministack() {
    counted(Kind::Ministack).await;
}

/// The same on Ceph.
#[tokio::test]
#[ignore = "needs Ceph; `.ci/full` runs it"]
async fn a_turn_of_the_program_costs_the_same_on_ceph() {
    counted(Kind::Ceph).await;
}
