//! Clients that are wrong: each message gets an error that names its object, and the next one is served.

use std::sync::Arc;

use agent_acp::AcpAgent;
use agent_core::event::EventType;
use agent_core::json::RawJson;
use agent_core::state::SessionState;
use agent_core::store::ReadEvents;
use agent_runtime::{Gate, ScriptedProvider, StopReason, Turn};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::common::{STUCK, Site, serve};

/// Client that writes bytes.
struct Raw {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    next: u64,
}

impl Raw {
    async fn new(stream: DuplexStream) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let mut raw = Self { lines: BufReader::new(reader).lines(), writer, next: 0 };
        let answer = raw.call("initialize", json!({ "protocolVersion": 1 })).await;
        assert_eq!(answer["result"]["protocolVersion"], 1);
        raw
    }

    async fn write(&mut self, bytes: &[u8]) {
        timeout(STUCK, self.writer.write_all(bytes)).await.expect("it is read").unwrap();
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.write(format!("{request}\n").as_bytes()).await;
        self.next
    }

    /// Returns the next message that is no update.
    async fn answer(&mut self) -> Value {
        loop {
            let line =
                timeout(STUCK, self.lines.next_line()).await.expect("an answer").unwrap().expect("an answer");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["method"] != "session/update" {
                return message;
            }
        }
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        let answer = self.answer().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a method that fails. Returns the code of the error, and the whole error as text.
    async fn fails(&mut self, method: &str, params: Value) -> (i64, String) {
        let answer = self.call(method, params).await;
        (answer["error"]["code"].as_i64().expect("an error"), answer["error"].to_string())
    }
}

/// A client that reads nothing before the turn is over: the turn ends all the same, and nothing of the answer is missing,
/// twice or in another order.
#[tokio::test]
async fn a_slow_reader_gets_the_whole_answer() {
    const TURNS: usize = 12;
    let pieces: Vec<String> = (0..5 * TURNS).map(|at| format!("[{at}]{}", "x".repeat(150_000))).collect();
    let turns = pieces.chunks(5).enumerate().map(|(at, pieces)| {
        let turn = pieces.iter().fold(Turn::new(), Turn::text);
        let call = |turn: Turn| turn.call(&format!("c{at}"), "look", RawJson::empty_object());
        if at + 1 < TURNS { call(turn) } else { turn }
    });
    let model = ScriptedProvider::new(turns);
    let agent = Site::new("memory").agent(model, &Arc::default()).await;
    let (stream, served) = serve(AcpAgent::new(agent.clone()));
    let mut raw = Raw::new(stream).await;
    let made = raw.call("session/new", json!({ "cwd": "/work", "mcpServers": [] })).await;
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    let chat = agent.conversation_by_id(session.parse().unwrap()).await.unwrap();
    let mut events = chat.follow(chat.record().head);
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "Much." }] });
    let id = raw.send("session/prompt", prompt).await;
    let ends = async {
        while chat.refresh().await.unwrap().status.state != SessionState::Idle
            || chat.record().counts.messages() <= TURNS as u64
        {
            events.next().await.unwrap().unwrap();
        }
    };
    timeout(STUCK, ends).await.expect("the turn ends without its reader");

    let (mut texts, mut streamed) = (String::new(), 0);
    loop {
        let line = timeout(STUCK, raw.lines.next_line()).await.expect("a line").unwrap().expect("a line");
        let message: Value = serde_json::from_str(&line).unwrap();
        if message["id"] == id {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            break;
        }
        let update = &message["params"]["update"];
        // Notices say that older messages are left out for the model.
        let is_notice = update["_meta"]["agent"]["notice"] == true;
        if update["sessionUpdate"] == "agent_message_chunk" && !is_notice {
            texts.push_str(update["content"]["text"].as_str().unwrap());
            streamed += usize::from(update["_meta"]["agent"]["streamed"] == true);
        }
    }
    // Some of it was streamed, and some comes from the log.
    assert!(streamed > 0 && streamed < pieces.len(), "{streamed}");
    assert!(texts == pieces.concat(), "{} bytes of {}", texts.len(), pieces.concat().len());
    drop(raw);
    timeout(STUCK, served).await.expect("the service ends").unwrap().unwrap();
    agent.close().await.unwrap();
}

/// A client that sends nothing more and reads nothing, either, holds up nobody for ever.
#[tokio::test]
async fn a_client_that_reads_nothing_is_given_up() {
    let turn = Turn::new().text("x".repeat(900_000));
    let agent = Site::new("memory").agent(ScriptedProvider::new([turn]), &Arc::default()).await;
    let (stream, served) = serve(AcpAgent::new(agent.clone()));
    let mut raw = Raw::new(stream).await;
    let made = raw.call("session/new", json!({ "cwd": "/work", "mcpServers": [] })).await;
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "Much." }] });
    let chat = agent.conversation_by_id(session.parse().unwrap()).await.unwrap();
    let mut events = chat.follow(chat.record().head);
    raw.send("session/prompt", prompt).await;
    let ends = async {
        while chat.refresh().await.unwrap().counts.messages() < 2 {
            events.next().await.unwrap().unwrap();
        }
    };
    timeout(STUCK, ends).await.expect("the turn ends without its reader");
    raw.writer.shutdown().await.unwrap();
    timeout(STUCK, served).await.expect("the service ends").unwrap().unwrap();
    drop(raw);
    agent.close().await.unwrap();
}

#[tokio::test]
async fn wrong_requests_are_answered_and_the_next_is_served() {
    let agent =
        Site::new("memory").agent(ScriptedProvider::new([Turn::new().text("Yes.")]), &Arc::default()).await;
    let (stream, served) = serve(AcpAgent::new(agent.clone()).with_message_max_bytes(100_000));
    let mut raw = Raw::new(stream).await;
    let absent = agent.effects().new_session_id().to_string();
    let at = |id: &str| json!({ "sessionId": id, "cwd": "/work", "mcpServers": [] });
    for method in ["session/load", "session/resume", "session/fork", "session/close"] {
        let (code, text) = raw.fails(method, at(&absent)).await;
        assert!(code == -32002 && text.contains(&absent), "{method}: {text}");
        let (code, text) = raw.fails(method, at("../../etc/passwd")).await;
        assert!(code == -32602 && text.contains("../../etc/passwd"), "{method}: {text}");
    }
    let prompt = |id: &str| json!({ "sessionId": id, "prompt": [{ "type": "text", "text": "Hello" }] });
    let (code, text) = raw.fails("session/prompt", prompt(&absent)).await;
    assert!(code == -32002 && text.contains(&absent), "{text}");
    for cwd in ["work", ""] {
        let (code, text) = raw.fails("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        assert!(code == -32602 && text.contains("absolute"), "{text}");
    }
    let long = format!("/{}", "x".repeat(600));
    let (code, text) = raw.fails("session/new", json!({ "cwd": long, "mcpServers": [] })).await;
    assert!(code == -32602 && text.contains("512"), "{text}");
    assert_eq!(raw.fails("session/prompt", json!({ "prompt": 7 })).await.0, -32602);
    assert_eq!(raw.fails("session/dance", json!({})).await.0, -32601);

    for (bytes, code, names) in [
        (b"hello\n".to_vec(), -32700, "hello"),
        (b"\xff\xfe\n".to_vec(), -32700, "\u{fffd}\u{fffd}"),
        (b"[]\n".to_vec(), -32600, ""),
        (b"17\n".to_vec(), -32600, ""),
        ([vec![b'{'; 1_000_000], b"\n".to_vec()].concat(), -32600, "1000000 bytes"),
        ([b"[".repeat(50_000), b"\n".to_vec()].concat(), -32700, "50000 bytes"),
    ] {
        raw.write(&bytes).await;
        let answer = raw.answer().await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert!(answer["error"].to_string().contains(names), "{answer}");
    }

    // A notification has no answer, and empty lines are nothing.
    raw.write(b"\n\n{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{\"sessionId\":\"?\"}}\n")
        .await;
    let created = raw.call("session/new", json!({ "cwd": "/work", "mcpServers": [] })).await;
    let session = created["result"]["sessionId"].as_str().unwrap();
    let answer = raw.call("session/prompt", prompt(session)).await;
    assert_eq!(answer["result"]["stopReason"], "end_turn");

    // Half a message, and the end of the input.
    raw.write(b"{\"jsonrpc\":").await;
    raw.writer.shutdown().await.unwrap();
    assert_eq!(raw.answer().await["error"]["code"], -32700);
    timeout(STUCK, served).await.expect("the service ends").unwrap().unwrap();
    agent.close().await.unwrap();
}

#[tokio::test]
async fn a_second_prompt_in_a_turn_is_refused() {
    let gate = Gate::new();
    let agent = Site::new("memory")
        .agent(ScriptedProvider::new([Turn::new().gate(&gate).text("Yes.")]), &Arc::default())
        .await;
    let (stream, served) = serve(AcpAgent::new(agent.clone()));
    let mut raw = Raw::new(stream).await;
    let created = raw.call("session/new", json!({ "cwd": "/work", "mcpServers": [] })).await;
    let session = created["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "Hello" }] });
    let first = raw.send("session/prompt", prompt.clone()).await;
    let (code, text) = raw.fails("session/prompt", prompt).await;
    assert!(code == -32600 && text.contains(&session), "{text}");
    let (code, text) =
        raw.fails("session/load", json!({ "sessionId": session, "cwd": "/work", "mcpServers": [] })).await;
    assert!(code == -32600 && text.contains(&session), "{text}");
    gate.open();
    let answer = raw.answer().await;
    assert_eq!((&answer["id"], &answer["result"]["stopReason"]), (&first.into(), &"end_turn".into()));

    // Both directions break at once, in the middle of a turn.
    let session = agent.conversation_by_id(session.parse().unwrap()).await.unwrap();
    drop(raw);
    timeout(STUCK, served).await.expect("the service ends").unwrap().unwrap();
    assert_eq!(session.refresh().await.unwrap().status.state, SessionState::Idle);
}

/// What an editor has cut inside a character is read with U+FFFD in its place, and the answer has the id of the request.
#[tokio::test]
async fn half_characters_are_read_and_answered_with_their_id() {
    const TURNS: usize = 4;
    let model = ScriptedProvider::new((0..TURNS).map(|_| Turn::new().text("Yes.")));
    let agent = Site::new("memory").agent(model, &Arc::default()).await;
    let (stream, served) = serve(AcpAgent::new(agent.clone()));
    let mut raw = Raw::new(stream).await;
    let made = raw.call("session/new", json!({ "cwd": "/work", "mcpServers": [] })).await;
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    let texts: [&[u8]; TURNS] =
        [br"a\ud83d", br"\ude00\ud83d\ude00 \\ud83d", b"b\xf0\x9f\x98", b"\xff\xed\xa0\xbd."];
    for (at, text) in texts.into_iter().enumerate() {
        let begin = format!(
            r#"{{"jsonrpc":"2.0","id":"p{at}","method":"session/prompt","params":{{"sessionId":"{session}","prompt":[{{"type":"text","text":""#
        );
        raw.write(&[begin.as_bytes(), text, b"\"}]}}\n"].concat()).await;
        let answer = raw.answer().await;
        assert_eq!(answer["id"], format!("p{at}"), "{answer}");
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }
    let chat = agent.conversation_by_id(session.parse().unwrap()).await.unwrap();
    let events = chat.history(ReadEvents::first(1000)).await.unwrap().events;
    let content = events.iter().filter(|event| event.kind == EventType::USER_MESSAGE);
    let content: Vec<_> = content.map(|event| event.text().unwrap().into_owned()).collect();
    let fives = "\u{fffd}".repeat(4);
    assert_eq!(content, ["a\u{fffd}", "\u{fffd}\u{1f600} \\ud83d", "b\u{fffd}", &format!("{fives}.")]);
    drop(raw);
    timeout(STUCK, served).await.expect("the service ends").unwrap().unwrap();
}

/// A client that shows notices is sent them as such.
#[tokio::test]
async fn notices_are_sent_to_clients_that_show_them() {
    let turn = Turn::new().text("Once").done(StopReason::MaxTokens);
    let agent = Site::new("memory").agent(ScriptedProvider::new([turn]), &Arc::default()).await;
    let (stream, served) = serve(AcpAgent::new(agent.clone()));
    let mut raw = Raw::new(stream).await;
    let client = json!({ "session": { "notices": {} } });
    raw.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": client })).await;
    let made = raw.call("session/new", json!({ "cwd": "/work", "mcpServers": [] })).await;
    let prompt =
        json!({ "sessionId": made["result"]["sessionId"], "prompt": [{ "type": "text", "text": "Tell." }] });
    raw.send("session/prompt", prompt).await;
    let notice = loop {
        let line = timeout(STUCK, raw.lines.next_line()).await.expect("a line").unwrap().expect("a line");
        let message: Value = serde_json::from_str(&line).unwrap();
        assert!(message["result"].is_null(), "the turn ended before the notice: {message}");
        let update = &message["params"]["update"];
        if update["sessionUpdate"] == "notice" {
            break update.clone();
        }
    };
    assert!(notice["title"].as_str().unwrap().contains("limit of tokens"), "{notice}");
    assert_eq!((&notice["severity"], &notice["_meta"]["agent"]["notice"]), (&json!("warning"), &json!(true)));
    assert_eq!(raw.answer().await["result"]["stopReason"], "max_tokens");
    drop(raw);
    timeout(STUCK, served).await.expect("the service ends").unwrap().unwrap();
}
