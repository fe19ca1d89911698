//! Servers, agents and models of the tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::event::{Decision, EventPayload, ToolConfirmation, ToolResult};
use agent_core::json::RawJson;
use agent_core::store::ReadEvents;
use agent_core::{MemoryStore, Storage};
use agent_mcp::{Mcp, McpServer, McpServers};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, RunOutcome, RunReport, ScriptedProvider, ToolPolicy,
    Turn,
};
use tokio::time::{Instant, sleep, timeout};

/// How long to wait before a test is given up as stuck. Never what a test is about.
pub(crate) const STUCK: Duration = Duration::from_secs(60);

/// Returns the output of a test's work, which must end.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(STUCK, work).await.expect("the test is stuck")
}

/// Path of the server that misbehaves, which cargo builds beside the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap().join("examples");
    let program = folder.join(format!("misbehaving-server{}", std::env::consts::EXE_SUFFIX));
    assert!(program.exists(), "build it: cargo build -p agent-mcp --example misbehaving-server");
    program
}

/// Returns the server that misbehaves, with short limits.
pub(crate) fn server(mode: &str) -> McpServer {
    limited(McpServer::command(program().to_string_lossy()).with_args([mode]))
}

pub(crate) fn limited(server: McpServer) -> McpServer {
    server
        .with_connect_timeout(Duration::from_secs(3))
        .with_list_timeout(Duration::from_secs(2))
        .with_call_timeout(Duration::from_secs(2))
        .with_message_max_bytes(1 << 20)
}

/// Returns the server as the only one, named `srv`.
pub(crate) fn only(server: McpServer) -> McpServers {
    McpServers::new().with_server("srv", server).unwrap()
}

/// Agent with a script of calls, of which nobody is asked about any.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) agent: AgentRuntime,
    pub(crate) mcp: Mcp,
    pub(crate) model: ScriptedProvider,
    pub(crate) chat: Conversation,
}

impl Site {
    pub(crate) async fn new(servers: McpServers) -> Self {
        Self::of(Mcp::new(servers), MemoryStore::new().into(), allowing()).await
    }

    /// Like [`new`](Self::new), with consent as it is by default.
    pub(crate) async fn asking(servers: McpServers) -> Self {
        Self::of(Mcp::new(servers), MemoryStore::new().into(), Config::new()).await
    }

    pub(crate) async fn of(mcp: Mcp, storage: Storage, config: Config) -> Self {
        let model = ScriptedProvider::new([]);
        let builder =
            AgentBuilder::new().with_llm(model.clone()).with_plugin(mcp.clone()).with_config(config);
        let agent = builder.with_storage(storage).build().unwrap();
        let chat = agent.conversation("test").await.unwrap();
        Self { agent, mcp, model, chat }
    }

    /// Lets the model make these calls, one after the other, and then answer.
    pub(crate) fn script(&self, calls: &[(&str, &str)]) {
        for (tool, text) in calls {
            let id = format!("{tool}-{}", self.model.requests().len());
            self.model.push(call(&id, tool, text));
        }
        self.model.push(Turn::new().text("Done."));
    }

    /// Runs a prompt in which the model makes these calls. Returns their results.
    pub(crate) async fn run(&self, calls: &[(&str, &str)]) -> Vec<ToolResult> {
        let before = results(&self.chat).await.len();
        self.script(calls);
        let report = within(async { self.chat.prompt("Go.").await.unwrap().finish().await.unwrap() }).await;
        assert_eq!(report.text, "Done.");
        results(&self.chat).await.split_off(before)
    }

    /// Runs a prompt in which the model makes one call. Returns the text of its result.
    pub(crate) async fn one(&self, tool: &str, text: &str) -> String {
        let results = self.run(&[(tool, text)]).await;
        assert_eq!(results.len(), 1);
        output(&results[0])
    }

    /// Names of the tools that the model was offered with each request.
    pub(crate) fn offered(&self) -> Vec<Vec<String>> {
        let names = |request: agent_runtime::ModelRequest| {
            request.tools.into_iter().map(|tool| tool.name).filter(|name| name != "read_output").collect()
        };
        self.model.requests().into_iter().map(names).collect()
    }
}

/// Policies that allow the tools of the server `srv`.
pub(crate) fn allowing() -> Config {
    const TOOLS: [&str; 28] = [
        "any",
        "ask",
        "bytes",
        "change",
        "die",
        "echo",
        "env",
        "everything",
        "fail",
        "flood",
        "garbage",
        "given",
        "half",
        "last_words",
        "nag",
        "nan",
        "pid",
        "refuse",
        "secretly",
        "spawn",
        "stall",
        "stop",
        "values",
        "wrong",
        "get-sum",
        "get-tiny-image",
        "get-structured-content",
        "get-resource-reference",
    ];
    let mut config = Config::new();
    for tool in TOOLS {
        config = config.with_tool_policy(format!("srv__{tool}"), ToolPolicy::Allow);
    }
    config
}

/// Turn of a model that makes one call.
pub(crate) fn call(id: &str, tool: &str, text: &str) -> Turn {
    let input = if text.starts_with('{') {
        RawJson::parse(text).unwrap()
    } else {
        RawJson::of(&serde_json::json!({ "text": text })).unwrap()
    };
    Turn::new().call(id, tool, input)
}

/// Results of the calls of a conversation.
pub(crate) async fn results(chat: &Conversation) -> Vec<ToolResult> {
    let events = chat.history(ReadEvents::first(1000)).await.unwrap().events;
    let results = events.iter().filter_map(|event| match event.decode().unwrap() {
        EventPayload::AgentToolResult(result) => Some(result),
        _ => None,
    });
    results.collect()
}

pub(crate) fn output(result: &ToolResult) -> String {
    result.output.to().unwrap_or_else(|_| result.output.get().to_owned())
}

/// Asks the model, which makes a call that waits for consent.
pub(crate) async fn waits(site: &Site, tool: &str, text: &str) -> RunReport {
    site.model.push(call(&format!("{tool}-{}", site.model.requests().len()), tool, text));
    let report = within(async { site.chat.prompt("Go.").await.unwrap().finish().await.unwrap() }).await;
    assert!(matches!(report.outcome, RunOutcome::Awaiting(_)), "{report:?}");
    report
}

/// Allows the call that waits, and runs to the end. Returns the text of its result.
pub(crate) async fn allow(site: &Site) -> String {
    let action = site.chat.record().action.clone().expect("a question waits");
    site.model.push(Turn::new().text("Done."));
    let answer = ToolConfirmation::new(action.id, Decision::Allow);
    within(async { site.chat.answer_and_run(answer).await.unwrap().finish().await.unwrap() }).await;
    output(results(&site.chat).await.last().unwrap())
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < STUCK, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Returns whether a process runs: not if it has ended and nobody has asked how.
pub(crate) fn runs(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
