//! Hosted models of the program, on servers of the loopback: keys, requests, faults, and a change of the model in a
//! conversation.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::common::{Chat, PROGRAM, found, homes};
use serde_json::{Value, json};

const SECRET: &str = "SECRET-KEY-4711";
/// Deadline of every wait.
const STUCK: Duration = Duration::from_secs(60);

/// Request that a server received: path, head and body.
struct Request {
    path: String,
    head: String,
    body: Value,
}

/// Server that gives each request the answer for its path.
struct Server {
    url: String,
    requests: Receiver<Request>,
}

/// Status and body of an answer to a path.
type Answers = fn(&str) -> (u16, String);

impl Server {
    fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (send, requests) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Some(request) = stream.ok().and_then(|stream| serve(stream, answers)) else { continue };
                if send.send(request).is_err() {
                    return;
                }
            }
        });
        Self { url, requests }
    }

    fn next(&self) -> Request {
        self.requests.recv_timeout(STUCK).expect("a request arrives")
    }
}

fn serve(stream: TcpStream, answers: Answers) -> Option<Request> {
    stream.set_read_timeout(Some(STUCK)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).ok()? > 0 && !head.ends_with("\r\n\r\n") {}
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let (status, answer) = answers(&path);
    let kind = if answer.starts_with("data:") { "text/event-stream" } else { "application/json" };
    let mut stream = reader.into_inner();
    let size = answer.len();
    let head_of_answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head_of_answer}{answer}").as_bytes()).ok()?;
    Some(Request { path, head, body: serde_json::from_slice(&body).ok()? })
}

fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// An answer of each API, to any question.
fn answers(path: &str) -> (u16, String) {
    let usage = json!({"input_tokens": 10, "output_tokens": 2});
    let body = if path.contains("/v1/messages") {
        events(&[
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                "content": [], "model": "claude", "usage": usage}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I am Claude."}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
            json!({"type": "message_stop"}),
        ])
    } else if path.contains("generateContent") || path.contains("streamGenerateContent") {
        events(&[json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "I am Gemini."}]},
            "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 2}})])
    } else if path.contains("/responses") {
        let item = json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "I am GPT."}]});
        let usage = json!({"input_tokens": 10, "output_tokens": 2, "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}});
        events(&[
            json!({"type": "response.created", "response": {"id": "resp_1", "output": []}}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": "response.completed", "response": {"id": "resp_1", "model": "gpt-5.5",
                "status": "completed", "output": [item], "usage": usage}}),
        ])
    } else if path.contains("/chat/completions") {
        let chunk = |delta: Value, end: Value| {
            json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "local",
                "choices": [{"index": 0, "delta": delta, "finish_reason": end}]})
        };
        let text = chunk(json!({"role": "assistant", "content": "I am local."}), Value::Null);
        events(&[text, chunk(json!({}), json!("stop"))]) + "data: [DONE]\n\n"
    } else if path.contains("/api/chat") {
        let message = json!({"role": "assistant", "content": "I am a llama."});
        let line = json!({"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": true,
            "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 2});
        format!("{line}\n")
    } else {
        return (404, json!({"error": {"type": "not_found_error", "message": path}}).to_string());
    };
    (200, body)
}

/// A chat with a model of a server, and no other key or address than these.
fn chat(folder: &Path, model: &str, variables: &[(&str, &str)]) -> Chat {
    Chat::spawn(program(folder, model, variables))
}

/// Returns the program of such a chat.
fn program(folder: &Path, model: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(PROGRAM);
    match crate::common::database(folder) {
        Some(path) => command.arg("--store").arg(format!("sqlite:{}", path.display())),
        None => command.arg("--data-dir").arg(folder),
    };
    command.args(["--device", "laptop", "--model", model]);
    for unset in
        ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "AGENT_MODEL_API_KEY"]
    {
        command.env_remove(unset);
    }
    // A proxy of the machine is not asked for the loopback.
    command.env("NO_PROXY", "127.0.0.1").envs(variables.iter().copied());
    command
}

/// Returns whether a file below a folder has these bytes.
fn holds(folder: &Path, bytes: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, bytes);
        }
        let content = std::fs::read(&path).unwrap_or_default();
        content.windows(bytes.len()).any(|window| window == bytes.as_bytes())
    })
}

/// A conversation goes on with another model at each start. Each is sent what the others said, and the key only where it
/// belongs: not to another vendor's address, and into no file and no output.
#[tokio::test]
async fn a_conversation_goes_on_with_another_model() {
    for folder in homes() {
        let server = Server::start(answers);
        let models = [
            ("anthropic:claude", "ANTHROPIC_BASE_URL", Some("ANTHROPIC_API_KEY"), "I am Claude."),
            ("ollama:llama", "OLLAMA_HOST", None, "I am a llama."),
            ("google:gemini", "GOOGLE_GEMINI_BASE_URL", Some("GEMINI_API_KEY"), "I am Gemini."),
            ("openai:gpt-5.5", "OPENAI_BASE_URL", Some("OPENAI_API_KEY"), "I am GPT."),
        ];
        let endpoint = format!("{}/v1#local", server.url);
        let mut messages = Vec::new();
        let starts = models
            .iter()
            .map(|(model, place, key, answer)| (*model, Some(*place), *key, *answer))
            .chain([(endpoint.as_str(), None, Some("AGENT_MODEL_API_KEY"), "I am local.")])
            .chain([(
                "anthropic:claude",
                Some("ANTHROPIC_BASE_URL"),
                Some("ANTHROPIC_API_KEY"),
                "I am Claude.",
            )]);
        for (turn, (model, place, key, answer)) in starts.enumerate() {
            // The keys of others are there, too.
            let mut variables =
                vec![("ANTHROPIC_API_KEY", "OTHER-KEY-4712"), ("OPENAI_API_KEY", "OTHER-KEY-4713")];
            variables.extend(place.map(|place| (place, server.url.as_str())));
            variables.extend(key.map(|key| (key, SECRET)));
            let mut chat = chat(folder.path(), model, &variables);
            let question = format!("question {turn}");
            chat.send(&question);
            chat.out.wait_for(answer);
            let request = server.next();
            assert_eq!(chat.finish(), 0, "{}", chat.err.text());
            let (sent, output) = (request.body.to_string(), chat.out.text() + &chat.err.text());
            assert!(sent.contains(&question), "{sent}");
            for earlier in &messages {
                assert!(sent.contains(earlier), "{model} was not sent {earlier:?}: {sent}");
            }
            messages.extend([question, answer.to_owned()]);
            let whole = format!("{}{}{sent}", request.path, request.head);
            assert_eq!(whole.contains(SECRET), key.is_some(), "{model}: {whole}");
            assert!(!whole.contains("OTHER-KEY") && !output.contains("-KEY-"), "{model}: {output}");
        }
        assert!(!holds(folder.path(), "SECRET-KEY"), "a key was stored");
        let found = found(folder.path()).await;
        assert_eq!((found.prompts().len(), found.answered().len()), (6, 6));
        assert_eq!(found.answered()[5], "I am Claude.");
    }
}

/// What is wrong is said in one sentence that names what to do; the message is stored and can be answered later.
#[tokio::test]
async fn what_is_wrong_with_a_model_is_named() {
    let [folder, _] = homes();
    let refused = |model: &str, variables: &[(&str, &str)]| {
        let mut chat = chat(folder.path(), model, variables);
        (chat.wait(), chat.err.text())
    };
    for (model, key) in [
        ("anthropic:claude", "ANTHROPIC_API_KEY"),
        ("openai:gpt-5.5", "OPENAI_API_KEY"),
        ("google:gemini", "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ] {
        let (code, texts) = refused(model, &[]);
        assert!(code == 1 && texts.contains(&format!("set {key}, as in")), "{code} {texts}");
    }
    for wrong in ["claude", "azure:x", "http://127.0.0.1/v1", "anthropic:"] {
        let (code, texts) = refused(wrong, &[]);
        assert!(code == 2 && texts.contains("#") && texts.contains("model"), "{code} {texts}");
    }

    // Nobody listens there any more.
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let unknown = Server::start(|_| {
        (404, json!({"error": {"type": "not_found_error", "message": "model: x"}}).to_string())
    });
    let denied = Server::start(|_| {
        (401, json!({"error": {"type": "authentication_error", "message": "bad"}}).to_string())
    });
    for (address, expected) in [
        (format!("http://{away}"), format!("check that http://{away} can be reached")),
        (unknown.url.clone(), format!("check that there is a model claude-x at {}", unknown.url)),
        (denied.url.clone(), "check ANTHROPIC_API_KEY".to_owned()),
    ] {
        let variables = [("ANTHROPIC_API_KEY", SECRET), ("ANTHROPIC_BASE_URL", address.as_str())];
        let mut chat = chat(folder.path(), "anthropic:claude-x", &variables);
        chat.send("Hello");
        chat.err.wait_for(&expected);
        chat.kill();
        assert!(!chat.err.text().contains("SECRET"), "{}", chat.err.text());
    }
    // All that was said is answered by a model that is there.
    let server = Server::start(answers);
    let variables = [("ANTHROPIC_API_KEY", SECRET), ("ANTHROPIC_BASE_URL", server.url.as_str())];
    let mut chat = chat(folder.path(), "anthropic:claude", &variables);
    chat.send("Are you there?");
    chat.out.wait_for("I am Claude.");
    assert_eq!(chat.finish(), 0);
    assert_eq!(found(folder.path()).await.prompts().last().unwrap(), "Are you there?");
}

/// Returns the answer of a model of Anthropic with this text, which may be empty, and this reason for its end.
fn claude(text: &str, stop: &str) -> (u16, String) {
    let mut messages = vec![json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
        "role": "assistant", "content": [], "model": "claude", "usage": {"input_tokens": 10, "output_tokens": 2}}})];
    if !text.is_empty() {
        messages.extend([
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            json!({"type": "content_block_stop", "index": 0}),
        ]);
    }
    messages.extend([
        json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ]);
    (200, events(&messages))
}

/// Returns an answer that is cut behind a call of a tool that the program has.
fn cut_call() -> (u16, String) {
    let (code, answer) = claude("I look.", "max_tokens");
    let call = events(&[
        json!({"type": "content_block_start", "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        json!({"type": "content_block_stop", "index": 1}),
    ]);
    let end = answer
        .find("data: {\"delta\":{\"stop_reason\"")
        .or_else(|| answer.find("data: {\"type\":\"message_delta\""));
    let (begin, end) = answer.split_at(end.unwrap());
    (code, format!("{begin}{call}{end}"))
}

/// Returns the variables for a server that answers like Anthropic.
fn anthropic(server: &Server) -> [(&'static str, &str); 2] {
    [("ANTHROPIC_API_KEY", SECRET), ("ANTHROPIC_BASE_URL", &server.url)]
}

/// One line says why an answer was cut, refused or is empty.
#[tokio::test]
async fn a_person_learns_why_an_answer_is_not_whole() {
    let cases: [(Answers, &str); 4] = [
        (
            |_| claude("Once upon", "max_tokens"),
            "(the answer reached the model's limit of tokens and was cut)",
        ),
        (|_| claude("I will", "refusal"), "(the model, or a filter of its provider, refused to answer)"),
        (|_| claude("", "refusal"), "(the model, or a filter of its provider, refused to answer)"),
        (|_| claude("", "end_turn"), "(the model gave an empty answer)"),
    ];
    for (answers, why) in cases {
        let [folder, _] = homes();
        let server = Server::start(answers);
        let mut chat = chat(folder.path(), "anthropic:claude", &anthropic(&server));
        chat.send("Tell me a story.");
        chat.err.wait_for(why);
        assert_eq!(chat.finish(), 0, "{}", chat.err.text());
        assert_eq!(chat.err.text().matches("\n(").count(), 1, "{}", chat.err.text());
    }
}

/// A call of a cut answer is not made, and is shown with the reason.
#[tokio::test]
async fn a_person_sees_which_call_was_not_made() {
    let [folder, _] = homes();
    let server = Server::start(|_| cut_call());
    let mut chat = chat(folder.path(), "anthropic:claude", &anthropic(&server));
    chat.send("What time is it?");
    chat.err.wait_for("[clock]\n  [-> denied: \"not called: the answer was cut\"]");
    chat.err.wait_for("(the answer reached the model's limit of tokens and was cut)");
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    assert_eq!(found(folder.path()).await.outcomes(), [agent_core::event::ToolOutcome::Denied]);
}

/// The model that answers also writes the title, if it is asked to; the list shows it.
#[tokio::test]
async fn the_hosted_model_writes_a_title() {
    let [folder, _] = homes();
    let server = Server::start(|_| claude("Trains to Oslo", "end_turn"));
    let mut chat = chat(folder.path(), "anthropic:claude", &anthropic(&server));
    chat.send("When does it go?");
    server.next();
    chat.out.wait_for("Trains to Oslo");
    chat.send("/title auto");
    let asked = server.next().body;
    assert!(
        asked["system"].to_string().contains("title")
            && asked["messages"].to_string().contains("When does it go?")
    );
    chat.err.wait_for("(the title is Trains to Oslo)");
    chat.send("/title");
    chat.out.wait_for_times("Trains to Oslo", 2);
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
}

/// The model that answers also writes the summary: with `/compact`, and in a run whose history is too long. Both are said.
#[tokio::test]
async fn the_hosted_model_summarises_its_conversation() {
    fn answers(_: &str) -> (u16, String) {
        claude("They talk about Ada.", "end_turn")
    }
    for folder in homes() {
        let server = Server::start(answers);
        let mut chat = chat(folder.path(), "anthropic:claude", &anthropic(&server));
        chat.send("/compact");
        chat.err.wait_for("there are no messages to summarise");
        chat.send("My name is Ada.");
        server.next();
        chat.out.wait_for("They talk about Ada.");
        chat.send("/compact");
        let asked = server.next().body;
        let (system, asked) = (asked["system"].to_string(), asked["messages"].to_string());
        assert!(system.contains("summarise") && asked.contains("My name is Ada."), "{system} {asked}");
        chat.err.wait_for("They talk about Ada.\n(this stands for the messages so far; the log keeps them)");
        chat.send("What is my name?");
        let next = server.next().body["messages"].to_string();
        assert!(next.contains("They talk about Ada.") && !next.contains("My name is Ada."), "{next}");
        chat.out.wait_for_times("They talk about Ada.", 2);
        assert_eq!(chat.finish(), 1, "the first summary was refused: {}", chat.err.text());
        drop(chat);

        // A run with a history above its limit.
        let mut command = program(folder.path(), "anthropic:claude", &anthropic(&server));
        command.args(["--context-messages", "2"]);
        let mut chat = Chat::spawn(command);
        chat.send("And what is hers?");
        chat.err.wait_for("it is given a summary of them");
        chat.out.wait_for("They talk about Ada.");
        assert_eq!(chat.finish(), 0, "{}", chat.err.text());
        let asked: Vec<_> = server.requests.try_iter().map(|request| request.body.to_string()).collect();
        assert!(asked.iter().any(|body| body.contains("You summarise")), "{asked:?}");
    }
}

/// Whatever `RUST_LOG` asks for, nothing that is said and no key is shown.
#[tokio::test]
async fn the_log_quotes_no_messages_and_no_keys() {
    fn answers(_: &str) -> (u16, String) {
        claude("PAYLOAD-ANSWER", "end_turn")
    }
    let [folder, _] = homes();
    let server = Server::start(answers);
    for level in ["trace", "rig=trace,rig_core=trace,hyper=trace,reqwest=trace,rmcp=trace,agent=trace"] {
        let mut command = program(folder.path(), "anthropic:claude", &anthropic(&server));
        let mut chat = Chat::spawn({
            command.env("RUST_LOG", level);
            command
        });
        chat.send("PAYLOAD-PROMPT");
        chat.out.wait_for("PAYLOAD-ANSWER");
        assert_eq!(chat.finish(), 0, "{}", chat.err.text());
        let log = chat.err.text();
        assert!(log.contains("agent_runtime::"), "what the program does is shown: {log}");
        assert!(!log.contains("PAYLOAD") && !log.contains("SECRET"), "{log}");
    }
    let mut command = program(folder.path(), "anthropic:claude", &anthropic(&server));
    command.env("RUST_LOG", "agent_runtime=loud");
    let mut chat = Chat::spawn(command);
    chat.err.wait_for("RUST_LOG=agent_runtime=loud: ");
    chat.kill();
}
