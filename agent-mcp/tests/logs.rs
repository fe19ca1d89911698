//! Log output holds no arguments, results or secrets, and no standard error of servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::MemoryStore;
use agent_core::json::RawJson;
use agent_core::model::{Access, Patch};
use agent_mcp::{Mcp, McpServer, McpServers};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{AgentBuilder, Config, ScriptedProvider, ToolPolicy, Turn};
use tokio::time::timeout;

/// Everything that is logged in this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_conversation_is_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    timeout(Duration::from_secs(60), converse()).await.expect("the test is stuck");
    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    // What is logged of servers is that they wrote, and which one cannot be used.
    assert!(text.contains("an MCP server writes to its standard error"), "{text}");
    assert!(text.contains("an MCP server cannot be used") && text.contains("broken"), "{text}");
    for payload in ["PAYLOAD", "hunter22", "no such city", "iVBORw", "Does echo", "text is missing", "rmcp"] {
        let line = text.lines().find(|line| line.contains(payload));
        assert_eq!(line, None, "{payload} is logged");
    }
}

async fn converse() {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/misbehaving-server");
    let server = |mode: &str| {
        McpServer::command(program.to_string_lossy())
            .with_args([mode])
            .with_call_timeout(Duration::from_secs(1))
            .with_connect_timeout(Duration::from_secs(2))
            .with_message_max_bytes(1 << 20)
    };
    let name: SecretName = "token".parse().unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("hunter22-hunter22").unwrap())]));
    let servers = McpServers::new()
        .with_server(
            "srv",
            server("stderr").with_env("TOKEN", "${secret:token}").with_env("OTHER", "PAYLOAD-ENV"),
        )
        .and_then(|servers| servers.with_server("broken", server("refuses")))
        .and_then(|servers| servers.with_server("ended", server("complains").with_env("KEY", "PAYLOAD-ENV")))
        .and_then(|servers| servers.with_server("web", McpServer::url("http://127.0.0.1:1/PAYLOAD-URL")))
        .unwrap();
    let model = ScriptedProvider::new([]);
    let mut config = Config::new();
    let tools = [
        "echo",
        "half",
        "nan",
        "fail",
        "refuse",
        "everything",
        "env",
        "garbage",
        "stall",
        "flood",
        "die",
        "wrong",
        "ask",
    ];
    for (at, tool) in tools.into_iter().enumerate() {
        config = config.with_tool_policy(format!("srv__{tool}"), ToolPolicy::Allow);
        let input = RawJson::of(&serde_json::json!({"text": "PAYLOAD-ARGUMENT"})).unwrap();
        model.push(Turn::new().call(&format!("call-{at}"), &format!("srv__{tool}"), input));
    }
    model.push(Turn::new().text("Done."));
    let agent = AgentBuilder::new()
        .with_llm(model)
        .with_plugin(Mcp::new(servers))
        .with_storage(MemoryStore::new())
        .with_secrets(secrets)
        .with_config(config)
        .build()
        .unwrap();
    let chat = agent.conversation("test").await.unwrap();
    chat.update(Patch::new().mount(name.resource(), Access::Read)).await.unwrap();
    let report = chat.prompt("PAYLOAD-PROMPT").await.unwrap().finish().await.unwrap();
    assert_eq!(report.text, "Done.");
    agent.close().await.unwrap();
}
