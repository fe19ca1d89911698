//! Servers that never end: an answer of any parts costs no more memory than its bound.

use std::process::Command;

use agent_rig::RigProvider;
use agent_runtime::{LlmProvider, ProviderFault};
use futures::StreamExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::server::{Server, soon};
use crate::transport::{models, request};

/// Names the answer to the process that asks for it.
const KIND: &str = "AGENT_RIG_UNBOUNDED";

/// Most memory that an answer may take, beyond what the process has before.
const MOST_KIB: u64 = 200 << 10;

/// Status, media type, beginning, and what is repeated, by the API and the name.
fn endless(kind: &str) -> (usize, u16, &'static str, String, String) {
    let filler = "x".repeat(8 << 10);
    let start = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\"model\":\"claude\",\"usage\":{}}}\n\n";
    let block = |block: serde_json::Value| {
        format!(
            "{start}data: {}\n\n",
            json!({"type": "content_block_start", "index": 0, "content_block": block})
        )
    };
    let delta = |delta: serde_json::Value| {
        format!("data: {}\n\n", json!({"type": "content_block_delta", "index": 0, "delta": delta}))
    };
    let events = "text/event-stream";
    match kind {
        "refusal" => (0, 400, "application/json", "{\"error\":{\"message\":\"".to_owned(), filler),
        "page" => (3, 200, "text/html", String::new(), filler),
        "line" => (
            2,
            200,
            events,
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"".to_owned(),
            filler,
        ),
        "list" => (2, 200, events, "data: {\"candidates\":[".to_owned(), "[],".repeat(2000)),
        "text" => (
            0,
            200,
            events,
            block(json!({"type": "text", "text": ""})),
            delta(json!({"type": "text_delta", "text": filler})),
        ),
        "signature" => (
            0,
            200,
            events,
            block(json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(json!({"type": "signature_delta", "signature": filler})),
        ),
        "citations" => (
            0,
            200,
            events,
            block(json!({"type": "text", "text": "", "citations": []})),
            delta(
                json!({"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x", "document_index": 0,
                "document_title": "x", "start_char_index": 0, "end_char_index": 1}}),
            ),
        ),
        "arguments" => (
            0,
            200,
            events,
            block(json!({"type": "tool_use", "id": "t", "name": "look", "input": {}})),
            delta(json!({"type": "input_json_delta", "partial_json": filler})),
        ),
        "hosted" => (
            0,
            200,
            events,
            start.to_owned(),
            format!(
                "data: {}\n\n",
                json!({"type": "content_block_start", "index": 1, "content_block": {"type": "web_search_tool_result",
                "tool_use_id": "s", "content": [{"type": "web_search_result", "url": "x", "title": "x", "encrypted_content": filler}]}})
            ),
        ),
        "annotations" => (
            1,
            200,
            events,
            format!(
                "data: {}\n\n",
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m",
                "role": "assistant", "content": []}})
            ),
            format!(
                "data: {}\n\n",
                json!({"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0,
                "item_id": "m", "annotation_index": 0, "annotation": {"type": "url_citation", "url": "x", "title": "x", "start_index": 0,
                "end_index": 1}})
            ),
        ),
        "chunks" => (
            3,
            200,
            events,
            String::new(),
            format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": filler}}]})),
        ),
        "calls" => (
            3,
            200,
            events,
            String::new(),
            format!(
                "data: {}\n\n",
                json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"id": "c", "type": "function",
                "function": {"name": "look", "arguments": "{}"}}]}}]})
            ),
        ),
        "pings" => (0, 200, events, start.to_owned(), "data: {\"type\":\"ping\"}\n\n".to_owned()),
        "comments" => (0, 200, events, start.to_owned(), ": nothing\n".to_owned()),
        "empty" => (0, 200, events, start.to_owned(), "\n".repeat(1000)),
        other => panic!("{other}"),
    }
}

const KINDS: [&str; 15] = [
    "refusal",
    "page",
    "line",
    "list",
    "text",
    "signature",
    "citations",
    "arguments",
    "hosted",
    "annotations",
    "chunks",
    "calls",
    "pings",
    "comments",
    "empty",
];

/// A server that answers everything with the same, for ever.
async fn start(kind: &str) -> (Server, RigProvider) {
    let (api, status, media_type, begin, repeat) = endless(kind);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::start([]).await;
    server.url = format!("http://{}", listener.local_addr().unwrap());
    let many = repeat.repeat((64 << 10) / repeat.len() + 1);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let head = format!(
                "HTTP/1.1 {status} Endless\r\ncontent-type: {media_type}\r\nconnection: close\r\n\r\n{begin}"
            );
            let many = many.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = connection.read(&mut request).await;
                let mut next = connection.write_all(head.as_bytes()).await;
                // Until the client goes away.
                while next.is_ok() {
                    next = connection.write_all(many.as_bytes()).await;
                }
            });
        }
    });
    let model = models(&server)[api].clone();
    (server, model)
}

/// The fault in which the answer ends, none of which is kept here.
async fn fault_of(model: &RigProvider) -> Option<ProviderFault> {
    let mut stream = match soon(model.generate(request())).await {
        Ok(stream) => stream,
        Err(error) => return ProviderFault::of(&error).cloned(),
    };
    while let Some(event) = soon(stream.next()).await {
        if let Err(error) = event {
            return ProviderFault::of(&error).cloned();
        }
    }
    None
}

/// Most memory that this process has had, in KiB.
#[cfg(target_os = "linux")]
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Asks in a process of its own, and prints the memory that it took.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn asks_for_an_endless_answer() {
    let Ok(kind) = std::env::var(KIND) else { return };
    let (_server, model) = start(&kind).await;
    let before = peak_kib();
    // Megabytes are read in a build without optimisation: minutes on a busy machine.
    let fault = tokio::time::timeout(5 * crate::server::DEADLINE, fault_of(&model)).await;
    let fault = fault.expect("the answer ends before its deadline");
    println!("took {} KiB", peak_kib() - before);
    assert!(fault.is_some(), "{kind} ended");
}

/// Each ends in a fault, and takes less than 200 MiB.
#[cfg(target_os = "linux")]
#[test]
fn endless_answers_take_bounded_memory() {
    let mut most = 0;
    for kind in KINDS {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child =
            child.args(["--exact", "unbounded::asks_for_an_endless_answer", "--nocapture"]).env(KIND, kind);
        let output = child.output().unwrap();
        let (texts, wrong) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{kind}: {texts} {wrong}");
        let took = texts
            .lines()
            .find_map(|line| line.split_once("took ")?.1.strip_suffix(" KiB")?.parse::<u64>().ok());
        let took = took.unwrap_or_else(|| panic!("{kind}: {texts}"));
        println!("{kind}: {took} KiB");
        most = most.max(took);
    }
    assert!(most < MOST_KIB, "{most} KiB");
}

/// What tests outside Linux would need to know is not at hand.
#[cfg(not(target_os = "linux"))]
#[tokio::test]
async fn endless_answers_end() {
    for kind in KINDS {
        let (_server, model) = start(kind).await;
        assert!(soon(fault_of(&model)).await.is_some(), "{kind} ended");
    }
}
