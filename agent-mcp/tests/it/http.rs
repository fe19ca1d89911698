//! Servers over streamable HTTP on the loopback: one that follows a script, with errors too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::MemoryStore;
use agent_core::event::ToolOutcome;
use agent_core::model::{Access, Patch};
use agent_mcp::{Mcp, McpServer};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{AgentBuilder, ScriptedProvider};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::common::{STUCK, Site, allowing, limited, only, output, until};

/// Request that a server received: method of HTTP, headers in lower case, message.
#[derive(Clone, Debug)]
struct Received {
    method: String,
    headers: String,
    message: Value,
}

/// Answer to a request.
enum Answer {
    /// Status, further headers, body.
    Plain(u16, String, String),
    /// Message as JSON.
    Json(Value),
    /// Messages as server-sent events.
    Events(Vec<Value>),
    /// Media type and body, which need not be text.
    Bytes(&'static str, Vec<u8>),
    /// Nothing, for as long as the client waits.
    Silence,
    /// The connection is closed.
    Close,
    /// Body of this length.
    Flood(usize),
}

/// HTTP server of a test.
struct Web {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Web {
    /// Starts a server. `behave` returns the answer to a request, or `None` for the usual one.
    async fn start(behave: impl Fn(&Received) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let (behave, seen) = (Arc::new(behave), received.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (behave, seen) = (behave.clone(), seen.clone());
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read(&mut stream).await {
                        seen.lock().unwrap().push(request.clone());
                        let answer = behave(&request).unwrap_or_else(|| usual(&request));
                        if !write(&mut stream, answer).await {
                            break;
                        }
                    }
                });
            }
        });
        Self { url, received }
    }

    fn server(&self) -> McpServer {
        limited(McpServer::url(&self.url))
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let (first, headers) = head.split_once("\r\n")?;
    let method = first.split(' ').next()?.to_owned();
    let named = |name: &str| {
        headers.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let mut body = vec![0; named("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Received { method, headers: headers.to_owned(), message })
}

/// Writes an answer. Returns whether the connection stays open.
async fn write(stream: &mut BufReader<TcpStream>, answer: Answer) -> bool {
    let (status, headers, body) = match answer {
        Answer::Plain(status, headers, body) => (status, headers, body),
        Answer::Bytes(media_type, body) => {
            let head = format!(
                "HTTP/1.1 200 X\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let stream = stream.get_mut();
            // In two pieces, so that one ends within a character.
            let (start, rest) = body.split_at(body.len() / 2);
            return stream.write_all(head.as_bytes()).await.is_ok()
                && stream.write_all(start).await.is_ok()
                && stream.flush().await.is_ok()
                && stream.write_all(rest).await.is_ok();
        }
        Answer::Json(message) => (200, "content-type: application/json\r\n".to_owned(), message.to_string()),
        Answer::Events(messages) => {
            let events = messages.iter().map(|message| format!("event: message\ndata: {message}\n\n"));
            (200, "content-type: text/event-stream\r\n".to_owned(), events.collect())
        }
        Answer::Silence => {
            sleep(Duration::from_secs(600)).await;
            return false;
        }
        Answer::Close => return false,
        Answer::Flood(length) => {
            (200, "content-type: application/json\r\n".to_owned(), format!("\"{}\"", "x".repeat(length)))
        }
    };
    let session = if headers.contains("mcp-session-id") { "" } else { "mcp-session-id: s1\r\n" };
    let head = format!("HTTP/1.1 {status} X\r\n{headers}{session}content-length: {}\r\n\r\n", body.len());
    let stream = stream.get_mut();
    stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(body.as_bytes()).await.is_ok()
}

fn result(request: &Received, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result})
}

fn is_call(request: &Received) -> bool {
    request.message["method"] == "tools/call"
}

fn usual(request: &Received) -> Answer {
    let message = &request.message;
    match (request.method.as_str(), message["method"].as_str().unwrap_or_default()) {
        ("POST", "initialize") => Answer::Json(result(
            request,
            &json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            }),
        )),
        ("POST", "tools/list") => Answer::Json(result(
            request,
            &json!({"tools": [{"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}]}),
        )),
        ("POST", "tools/call") => {
            let text = message["params"]["arguments"]["text"].as_str().unwrap_or_default();
            Answer::Json(result(request, &json!({"content": [{"type": "text", "text": text}]})))
        }
        ("POST", "ping") => Answer::Json(result(request, &json!({}))),
        ("POST", _) => Answer::Plain(202, String::new(), String::new()),
        ("DELETE", _) => Answer::Plain(200, String::new(), String::new()),
        _ => Answer::Plain(405, String::new(), String::new()),
    }
}

#[tokio::test]
async fn a_server_at_an_address_is_used() {
    let web = Web::start(|_| None).await;
    let site = Site::new(only(web.server().with_header("X-Key", "abc"))).await;
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    assert_eq!(site.one("srv__echo", "again").await, "again");
    let received = web.received();
    assert!(
        received.iter().all(|request| request.headers.to_lowercase().contains("x-key: abc")),
        "{received:?}"
    );
    let starts = received.iter().filter(|request| request.message["method"] == "initialize").count();
    assert_eq!(starts, 1);
    site.agent.close().await.unwrap();
    until("the session is deleted", || web.received().iter().any(|request| request.method == "DELETE")).await;
}

#[tokio::test]
async fn answers_may_be_streams_of_events() {
    let web = Web::start(|request| {
        is_call(request).then(|| {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}});
            let done = result(request, &json!({"content": [{"type": "text", "text": "streamed"}]}));
            Answer::Events(vec![progress, done])
        })
    })
    .await;
    let site = Site::new(only(web.server())).await;
    assert_eq!(site.one("srv__echo", "hello").await, "streamed");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn calls_that_fail_over_http_report_what_is_known() {
    for (answer, want) in [
        ("500", "HTTP status 500"),
        ("close", "it could not be reached"),
        ("html", "does not follow the protocol"),
        ("silence", "it gave no answer in 2s"),
        ("flood", "does not follow the protocol"),
        ("401", "set the header Authorization"),
        ("empty stream", "it"),
        ("wrong id", "it ended"),
        ("large event", "or is too large"),
    ] {
        let web = Web::start(move |request| {
            is_call(request).then(|| match answer {
                "500" => Answer::Plain(500, String::new(), "PAYLOAD".to_owned()),
                "close" => Answer::Close,
                "html" => {
                    Answer::Plain(200, "content-type: text/html\r\n".to_owned(), "<p>PAYLOAD</p>".to_owned())
                }
                "flood" => Answer::Flood(2 << 20),
                "401" => Answer::Plain(401, "www-authenticate: Bearer\r\n".to_owned(), String::new()),
                "empty stream" => Answer::Events(Vec::new()),
                "large event" => Answer::Events(vec![json!({"a": "x".repeat(2 << 20)})]),
                "wrong id" => {
                    Answer::Events(vec![json!({"jsonrpc": "2.0", "id": 4711, "result": {"content": []}})])
                }
                _ => Answer::Silence,
            })
        })
        .await;
        let site = Site::new(only(web.server())).await;
        let start = Instant::now();
        let results = site.run(&[("srv__echo", "hello")]).await;
        assert_eq!(results[0].outcome, ToolOutcome::Error, "{answer}");
        let text = output(&results[0]);
        assert!(
            text.contains(want) && text.contains("it is not known whether the tool took effect"),
            "{answer}: {text}"
        );
        assert!(!text.contains("PAYLOAD") && !text.contains(&web.url), "{answer}: {text}");
        assert!(start.elapsed() < Duration::from_secs(20), "{answer}");
        // Once, whatever happened.
        assert_eq!(web.received().iter().filter(|request| is_call(request)).count(), 1, "{answer}");
        site.agent.close().await.unwrap();
    }
}

#[tokio::test]
async fn servers_that_cannot_be_reached_are_left_out() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let silent = Web::start(|_| Some(Answer::Silence)).await;
    let html =
        Web::start(|_| Some(Answer::Plain(200, "content-type: text/html\r\n".to_owned(), "<p>".to_owned())))
            .await;
    let locked =
        Web::start(|_| Some(Answer::Plain(401, "www-authenticate: Bearer\r\n".to_owned(), String::new())))
            .await;
    let good = Web::start(|_| None).await;
    let servers = only(good.server())
        .with_server("closed", limited(McpServer::url(format!("http://{address}/mcp"))))
        .and_then(|servers| servers.with_server("silent", silent.server()))
        .and_then(|servers| servers.with_server("html", html.server()))
        .and_then(|servers| servers.with_server("locked", locked.server()))
        .unwrap();
    let site = Site::new(servers).await;
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    let status = site.mcp.status(&site.agent, site.chat.id());
    for (name, why) in [
        ("closed", "it could not be reached"),
        ("silent", "it gave no answer in 3s"),
        ("html", "does not follow the protocol"),
        ("locked", "set the header Authorization"),
    ] {
        let error =
            status.iter().find(|server| server.name == name).unwrap().error.clone().unwrap_or_default();
        assert!(error.contains(why), "{name}: {error}");
    }
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn headers_are_not_sent_to_another_address() {
    let thief = Web::start(|_| None).await;
    for status in [301, 302, 307, 308] {
        let location = format!("location: {}\r\n", thief.url);
        let web = Web::start(move |_| Some(Answer::Plain(status, location.clone(), String::new()))).await;
        let site = Site::new(only(web.server().with_header("Authorization", "Bearer hunter22"))).await;
        assert!(site.run(&[]).await.is_empty());
        assert!(site.mcp.status(&site.agent, site.chat.id())[0].error.is_some());
        site.agent.close().await.unwrap();
    }
    assert!(thief.received().is_empty(), "{:?}", thief.received());
}

#[tokio::test]
async fn a_session_that_expired_is_begun_again() {
    let expired = Arc::new(Mutex::new(true));
    let web = Web::start(move |request| {
        let is_first = is_call(request) && std::mem::take(&mut *expired.lock().unwrap());
        is_first.then(|| Answer::Plain(404, String::new(), String::new()))
    })
    .await;
    let site = Site::new(only(web.server())).await;
    // The server has refused the call, so that it is made again.
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    let starts = web.received().iter().filter(|request| request.message["method"] == "initialize").count();
    assert_eq!(starts, 2);
    site.agent.close().await.unwrap();
}

/// Server that forgets its session before the first call, and gives this status to requests of that session.
async fn forgetful(status: u16) -> Web {
    let sessions = Arc::new(Mutex::new(0));
    Web::start(move |request| {
        let mut sessions = sessions.lock().unwrap();
        let is_known = request.headers.to_lowercase().contains(&format!("mcp-session-id: s{sessions}"));
        match request.message["method"].as_str() {
            Some("initialize") => {
                *sessions += 1;
                let Answer::Json(message) = usual(request) else { return None };
                let headers = format!("content-type: application/json\r\nmcp-session-id: s{sessions}\r\n");
                Some(Answer::Plain(200, headers, message.to_string()))
            }
            Some("tools/call") if *sessions == 1 => {
                *sessions += 1;
                refusal(status)
            }
            _ if !is_known => refusal(status),
            _ => None,
        }
    })
    .await
}

fn refusal(status: u16) -> Option<Answer> {
    let refusal =
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "no valid session"}});
    Some(Answer::Plain(status, "content-type: application/json\r\n".to_owned(), refusal.to_string()))
}

#[tokio::test]
async fn a_session_that_was_forgotten_is_begun_again() {
    for status in [400, 404, 410] {
        let web = forgetful(status).await;
        let site = Site::new(only(web.server())).await;
        assert_eq!(site.one("srv__echo", "hello").await, "hello", "{status}");
        let count = |method: &str| {
            web.received().iter().filter(|request| request.message["method"] == method).count()
        };
        assert_eq!((count("initialize"), count("tools/call")), (2, 2), "{status}");
        site.agent.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_is_refused_in_a_session_that_is_known_is_not_made_again() {
    for body in
        ["", "no session", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no session"}}"#]
    {
        let web = Web::start(move |request| {
            let headers = if body.starts_with('{') { "content-type: application/json\r\n" } else { "" };
            is_call(request).then(|| Answer::Plain(400, headers.to_owned(), body.to_owned()))
        })
        .await;
        let site = Site::new(only(web.server().with_call_timeout(STUCK))).await;
        let text = site.one("srv__echo", "hello").await;
        let want =
            if body.starts_with('{') { "refused the call: no session (-32602)" } else { "HTTP status 400" };
        assert!(text.contains(want), "{text}");
        let count = |method: &str| {
            web.received().iter().filter(|request| request.message["method"] == method).count()
        };
        assert_eq!((count("initialize"), count("tools/call")), (1, 1));
        site.agent.close().await.unwrap();
    }
}

#[tokio::test]
async fn answers_that_are_nearly_json_are_read() {
    for (media_type, text, want) in [
        ("application/json", &b"half \\ud83d."[..], "half \u{fffd}."),
        ("application/json", b"byte \xff.", "byte \u{fffd}."),
        ("text/event-stream", b"half \\ud83d.", "half \u{fffd}."),
        (
            "text/event-stream",
            b"byte \xff, \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9.",
            "byte \u{fffd}, \u{e9}\u{e9}\u{e9}\u{e9}.",
        ),
        ("application/json", b"\",\"n\":NaN,\"m\":\"", "its answer is no valid JSON"),
        ("text/event-stream", b"\",\"n\":NaN,\"m\":\"", "its answer is no valid JSON"),
    ] {
        let web = Web::start(move |request| {
            is_call(request).then(|| {
                let start = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":""#,
                    request.message["id"]
                );
                let message = [start.as_bytes(), text, br#""}]}}"#].concat();
                Answer::Bytes(
                    media_type,
                    match media_type {
                        "application/json" => message,
                        _ => [b"data: ", message.as_slice(), b"\n\n"].concat(),
                    },
                )
            })
        })
        .await;
        let site = Site::new(only(web.server().with_call_timeout(STUCK))).await;
        let given = site.one("srv__echo", "hello").await;
        assert!(given.contains(want), "{media_type}: {given}");
        site.agent.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_asks_without_end_fails_its_call() {
    let web = Web::start(|request| {
        // Nor does it take the answers.
        if request.message.get("result").is_some() {
            return Some(Answer::Silence);
        }
        is_call(request).then(|| {
            let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
            let done = result(request, &json!({"content": []}));
            Answer::Events(std::iter::repeat_n(asked, 2000).chain([done]).collect())
        })
    })
    .await;
    let site = Site::new(only(web.server().with_call_timeout(STUCK))).await;
    let text = site.one("srv__echo", "hello").await;
    assert!(text.contains("is no valid JSON, or is too large"), "{text}");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_header_holds_a_secret_by_name() {
    let name: SecretName = "web".parse().unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("tok-0123456789").unwrap())]));
    // The server gives away what it was sent.
    let web = Web::start(|request| {
        is_call(request).then(|| {
            let content = json!({"content": [{"type": "text", "text": request.headers}]});
            Answer::Json(result(request, &content))
        })
    })
    .await;
    let mcp = Mcp::new(only(web.server().with_header("Authorization", "Bearer ${secret:web}")));
    let model = ScriptedProvider::new([]);
    let builder =
        AgentBuilder::new().with_llm(model.clone()).with_plugin(mcp.clone()).with_config(allowing());
    let agent = builder.with_storage(MemoryStore::new()).with_secrets(secrets).build().unwrap();
    let chat = agent.conversation("test").await.unwrap();
    let site = Site { agent, mcp, model, chat };
    assert!(site.run(&[]).await.is_empty() && web.received().is_empty());
    site.chat.update(Patch::new().mount(name.resource(), Access::Read)).await.unwrap();
    let given = site.one("srv__echo", "").await;
    assert!(given.to_lowercase().contains("authorization: bearer (secret web)"), "{given}");
    assert!(web.received().iter().all(|request| request.headers.contains("Bearer tok-0123456789")));
    site.agent.close().await.unwrap();
}
