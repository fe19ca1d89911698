//! Log output holds no words of people, models or tools, and nothing of a client's servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_acp::AcpAgent;
use agent_core::MemoryStore;
use agent_core::json::RawJson;
use agent_runtime::{AgentBuilder, ScriptedProvider, ToolMode, Turn, schemars, tool};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
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

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Pay {
    #[allow(dead_code, reason = "the tool says the same to everybody")]
    to: String,
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
    assert!(text.contains("session/prompt") && text.contains("session/request_permission"), "{text}");
    for payload in ["PAYLOAD", "hunter22", "iVBORw"] {
        let line = text.lines().find(|line| line.contains(payload));
        assert_eq!(line, None, "{payload} is logged");
    }
}

async fn converse() {
    let input = RawJson::of(&json!({ "to": "PAYLOAD-ARGUMENT" })).unwrap();
    let model = ScriptedProvider::new([
        Turn::new().text("PAYLOAD-ANSWER").call("c1", "pay", input),
        Turn::new().text("PAYLOAD-END"),
    ]);
    let pay = tool("pay", "Pays.", |_: Pay, _| async { Ok::<_, String>("PAYLOAD-RESULT") });
    let agent = AgentBuilder::new()
        .with_llm(model)
        .with_tool(pay.with_mode(ToolMode::Confirm))
        .with_storage(MemoryStore::new())
        .build()
        .unwrap();
    let (client, ours) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(ours);
    let served = {
        let served = AcpAgent::new(agent.clone());
        tokio::spawn(async move { served.serve(reader, writer).await })
    };
    let (answers, mut requests) = tokio::io::split(client);
    let mut answers = BufReader::new(answers).lines();
    let servers = json!([{ "name": "PAYLOAD-SERVER", "command": "PAYLOAD-COMMAND", "args": ["PAYLOAD-ARGS"],
        "env": [{ "name": "TOKEN", "value": "hunter22" }] }]);
    let session = |id: &Value| json!({ "sessionId": id, "cwd": "/work", "mcpServers": servers });
    let mut id = Value::Null;
    let image = json!({ "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" });
    for step in 0..9 {
        let line = match step {
            0 => json!({ "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } }),
            1 => json!({ "id": 1, "method": "session/new", "params": session(&Value::Null) }),
            2 => {
                let prompt = json!([{ "type": "text", "text": "PAYLOAD-PROMPT" }, image]);
                json!({ "id": 2, "method": "session/prompt", "params": { "sessionId": id, "prompt": prompt } })
            }
            3 => json!({ "id": 3, "method": "unknown/method", "params": { "PAYLOAD": "PAYLOAD" } }),
            4 => {
                let prompt = json!([{ "type": "PAYLOAD-TYPE", "text": "PAYLOAD-PROMPT" }]);
                json!({ "id": 4, "method": "session/prompt", "params": { "sessionId": id, "prompt": prompt } })
            }
            5 => json!({ "id": 5, "method": "session/load", "params": session(&id) }),
            6 => json!({ "id": 6, "method": "session/fork", "params": session(&id) }),
            7 => json!({ "id": 7, "method": "session/resume", "params": session(&json!("PAYLOAD-ID")) }),
            _ => {
                requests.write_all(b"{\"PAYLOAD-NO-JSON\": }\n").await.unwrap();
                continue;
            }
        };
        let mut line = line;
        line["jsonrpc"] = json!("2.0");
        requests.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        loop {
            let answer: Value =
                serde_json::from_str(&answers.next_line().await.unwrap().expect("an answer")).unwrap();
            if answer["method"] == "session/request_permission" {
                let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
                let answer = json!({ "jsonrpc": "2.0", "id": answer["id"], "result": outcome });
                requests.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            } else if answer["id"] == step {
                if step == 1 {
                    id = answer["result"]["sessionId"].clone();
                }
                let fails = [3, 4, 7].contains(&step);
                assert_eq!(answer["error"].is_object(), fails, "{step}: {answer}");
                break;
            }
        }
    }
    requests.shutdown().await.unwrap();
    served.await.unwrap().unwrap();
    agent.close().await.unwrap();
}
