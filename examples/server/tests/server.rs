//! The server keeps users apart, streams, asks for consent, and continues after a kill.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

/// Time after which a test is stuck. No test measures it.
const STUCK: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(store: &Path) -> Self {
        Self::start_with(store, Duration::ZERO)
    }

    /// Starts a server whose tool takes this time.
    fn start_with(store: &Path, tool: Duration) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_example-server"));
        command.args(["127.0.0.1:0", &format!("sqlite:{}", store.display())]);
        command.env("FORGET_SECONDS", tool.as_secs().to_string());
        command.env("USERS", "alice:token-of-alice,bob:token-of-bob").env("READ_SECONDS", "1");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").expect("it prints its address").to_owned();
        Self { child, address }
    }

    /// Sends a request of HTTP 1.0, which is answered without chunks.
    fn send(&self, user: &str, line: &str, headers: &str, body: &str) -> BufReader<TcpStream> {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        connection.set_read_timeout(Some(STUCK)).unwrap();
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.0\r\nauthorization: Bearer token-of-{user}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        connection.write_all(request.as_bytes()).unwrap();
        BufReader::new(connection)
    }

    /// Sends a request, and returns the status and the body when it has ended.
    fn ask(&self, user: &str, line: &str, body: &str) -> (u16, String) {
        let json = if body.starts_with('{') { "content-type: application/json\r\n" } else { "" };
        let mut answer = String::new();
        self.send(user, line, json, body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Returns the answer of the agent to a message.
    fn say(&self, user: &str, key: &str, text: &str) -> Vec<Value> {
        let (status, body) = self.ask(user, &format!("POST /conversations/{key}/messages"), text);
        assert_eq!(status, 200, "{body}");
        events(&body)
    }

    /// Returns the data of stored events after one, until `is_last` holds for one.
    fn follow(&self, user: &str, key: &str, after: u64, is_last: fn(&Value) -> bool) -> Vec<Value> {
        self.read(user, &format!("{key}/events"), after, |found| found.last().is_some_and(is_last))
    }

    /// Returns the data of a stream of a conversation after an event, until `is_all` holds.
    fn read(&self, user: &str, path: &str, after: u64, is_all: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let (begun, mut found) = (Instant::now(), Vec::new());
        let line = format!("GET /conversations/{path}");
        let answer = self.send(user, &line, &format!("last-event-id: {after}\r\n"), "");
        for line in answer.lines() {
            assert!(begun.elapsed() < STUCK, "{found:#?}");
            found.extend(events(&line.unwrap()));
            if is_all(&found) {
                return found;
            }
        }
        panic!("the events ended: {found:#?}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the data of the events of a stream.
fn events(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn text(updates: &[Value]) -> String {
    updates
        .iter()
        .filter(|update| update["type"] == "text")
        .filter_map(|update| update["data"].as_str())
        .collect()
}

fn is_answer(event: &Value) -> bool {
    event["type"] == "agent.message"
}

#[test]
fn users_talk_at_once_and_apart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("agent.db"));
    std::thread::scope(|scope| {
        for user in ["alice", "bob"] {
            let server = &server;
            scope.spawn(move || {
                let said = format!("this is {user}");
                assert_eq!(text(&server.say(user, "notes", &said)), said);
            });
        }
    });
    // The ids of both are made from the key, and are the same: what they name is not.
    for (user, other) in [("alice", "bob"), ("bob", "alice")] {
        let stored = Value::from(server.follow(user, "notes", 0, is_answer)).to_string();
        assert!(stored.contains(user) && !stored.contains(other), "{stored}");
    }
    assert_eq!(server.ask("mallory", "GET /conversations/notes", "").0, 401);
}

#[test]
fn consent_outlives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("agent.db");
    for (decision, wanted) in [("allow", "the milk is forgotten"), ("deny", "")] {
        let server = Server::start(&store);
        server.say("alice", decision, "forget the milk");
        server.kill();
        let server = Server::start(&store);
        let (_, shown) = server.ask("alice", &format!("GET /conversations/{decision}"), "");
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let answer = json!({"action": shown["action"]["id"], "decision": decision}).to_string();
        // Nobody else can answer.
        let line = format!("POST /conversations/{decision}/answers");
        let (status, _) = server.ask("bob", &line, &answer);
        assert!((400..500).contains(&status), "{status}");
        let (status, body) = server.ask("alice", &line, &answer);
        assert_eq!(status, 200, "{body}");
        let first = events(&body);
        assert!(text(&first).contains(wanted), "{body}");
        // The client was cut off, and sends its answer again, also to the next server.
        server.kill();
        let server = Server::start(&store);
        let (status, body) = server.ask("alice", &line, &answer);
        assert_eq!(status, 200, "{body}");
        let (first, second) = (&first.last().unwrap()["data"], &events(&body)[0]["data"]);
        for member in ["run", "text", "outcome"] {
            assert_eq!(second[member], first[member], "{member}: {body}");
        }
        let other = if decision == "allow" { "deny" } else { "allow" };
        let other = json!({"action": shown["action"]["id"], "decision": other}).to_string();
        assert_eq!(server.ask("alice", &line, &other).0, 409);
    }
}

#[test]
fn killed_answers_are_given_by_the_next_server() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("agent.db");
    let server = Server::start(&store);
    let long = "one two three four five six seven eight nine ten";
    let mut answer = server.send("alice", "POST /conversations/count/messages", "", long);
    let mut line = String::new();
    while !line.contains("one") {
        line.clear();
        assert_ne!(answer.read_line(&mut line).unwrap(), 0);
    }
    server.kill();
    let server = Server::start(&store);
    let stored =
        server.follow("alice", "count", 0, |event| is_answer(event) && event.to_string().contains("ten"));
    let asked = stored.iter().filter(|event| event["type"] == "user.message").count();
    assert_eq!(asked, 1, "{stored:#?}");
    // A client that was cut off goes on after the last event that it has seen.
    let last = stored[1]["seq"].as_u64().unwrap();
    let rest =
        server.follow("alice", "count", last, |event| is_answer(event) && event.to_string().contains("ten"));
    assert_eq!(rest, stored[2..]);
}

/// What a client of the live stream has of an answer: the texts of its parts, joined.
fn written(live: &[Value]) -> String {
    let is_piece = |live: &&Value| live["type"] == "part" || live["type"] == "piece";
    live.iter().filter(is_piece).filter_map(|live| live["data"]["text"].as_str()).collect()
}

/// A client that comes back in the middle of an answer sees what was written so far, once, and what comes; so does another
/// client. The stored event has what the pieces had.
#[test]
fn clients_come_back_in_the_middle_of_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("agent.db"));
    let is_stored = |live: &[Value]| live.last().is_some_and(|live| is_answer(&live["data"]));
    // On a slow machine a short answer may end before the second client has come.
    let is_seen = [20, 100, 500].into_iter().any(|words| {
        let (key, said) = (format!("count-{words}"), (0..words).map(|n| format!("{n} ")).collect::<String>());
        let mut answer = server.send("alice", &format!("POST /conversations/{key}/messages"), "", &said);
        let mut line = String::new();
        while !line.contains("0 ") {
            line.clear();
            assert_ne!(answer.read_line(&mut line).unwrap(), 0);
        }
        drop(answer);
        let live = format!("{key}/live");
        let first = server.read("alice", &live, 0, |live| written(live).len() > 4 || is_stored(live));
        if is_stored(&first) {
            return false;
        }
        let last = first.iter().filter_map(|live| live["data"]["seq"].as_u64()).max().unwrap();
        std::thread::scope(|scope| {
            let reads = [last, 0].map(|after| {
                let (server, live) = (&server, &live);
                scope.spawn(move || server.read("alice", live, after, is_stored))
            });
            let reads = reads.map(|read| read.join().unwrap());
            for read in &reads {
                let whole = read.last().unwrap()["data"]["data"]["text"].as_str().unwrap();
                assert_eq!(whole, said);
                // The last pieces may come as the event only.
                assert!(said.starts_with(&written(read)), "{read:#?}");
            }
            reads.iter().all(|read| written(read).starts_with(&written(&first)) && written(&first).len() > 4)
        })
    });
    assert!(is_seen);
}

/// A call that was cut off gets one result, which says that its outcome is not known, and is not made again.
#[test]
fn killed_calls_are_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("agent.db");
    let server = Server::start_with(&store, Duration::from_secs(600));
    server.say("alice", "notes", "forget the milk");
    let (_, shown) = server.ask("alice", "GET /conversations/notes", "");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let answer = json!({"action": shown["action"]["id"], "decision": "allow"}).to_string();
    let json = "content-type: application/json\r\n";
    let _answers = server.send("alice", "POST /conversations/notes/answers", json, &answer);
    // The permission is stored, and the tool runs.
    let is_allowed = |event: &Value| event["type"] == "user.tool_confirmation";
    let stored = server.follow("alice", "notes", 0, is_allowed);
    let allowed = stored.last().unwrap()["seq"].as_u64().unwrap();
    server.kill();
    let server = Server::start(&store);
    let stored = server.follow("alice", "notes", allowed, is_answer);
    let results: Vec<_> = stored.iter().filter(|event| event["type"] == "agent.tool_result").collect();
    assert_eq!(results.len(), 1, "{stored:#?}");
    assert!(results[0].to_string().contains("outcome unknown"), "{stored:#?}");
    assert!(!stored.iter().any(|event| event["type"] == "agent.tool_use"), "{stored:#?}");
}

#[test]
fn wrong_requests_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("agent.db"));
    let refused = |line: &str, body: &str| server.ask("alice", line, body).0;
    let long = format!("POST /conversations/{}/messages", "x".repeat(2000));
    assert_eq!(refused(&long, "hello"), 400);
    assert_eq!(refused("POST /conversations/a/messages", ""), 400);
    assert_eq!(refused("POST /conversations/a/answers", "{}"), 422);
    assert_eq!(refused("POST /conversations/a/messages", &"x".repeat(3 << 20)), 413);
    assert_eq!(refused("GET /other", ""), 404);
}

/// What reads creates nothing, and nor does an answer to nothing.
#[tokio::test]
async fn gets_make_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("agent.db");
    let server = Server::start(&store);
    assert_eq!(server.ask("alice", "GET /conversations/notes", "").0, 404);
    assert_eq!(server.ask("alice", "GET /conversations/notes/events", "").0, 404);
    let answer = json!({"action": "call-1", "decision": "allow"}).to_string();
    assert_eq!(server.ask("alice", "POST /conversations/notes/answers", &answer).0, 404);
    server.kill();
    let tenants = agent::open_backend(&format!("sqlite:{}", store.display())).await.unwrap();
    assert!(tenants.tenants(None).await.unwrap().items.is_empty());
    tenants.close().await.unwrap();
}

/// A client learns when a retry may help: here, when the operator has put the file back.
#[test]
fn answers_to_retry_name_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.db");
    let server = Server::start(&path);
    server.say("alice", "count", "hello");
    std::fs::rename(&path, folder.path().join("away.db")).unwrap();
    let mut answer = String::new();
    server.send("alice", "GET /conversations/count", "", "").read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 503") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
}

/// A server does not start if it could not tell two users apart, and says who they are.
#[tokio::test]
async fn two_users_with_one_token_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("agent.db").display());
    for (users, said) in [
        ("alice:secret-1,carol:secret-2,bob:secret-1", "alice and bob have the same token"),
        ("alice:secret-1,bob:", "NAME:TOKEN"),
        // A header comes without the space.
        ("alice:secret-1 ,bob:secret-1", "no spaces in tokens"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_example-server"));
        command.args(["127.0.0.1:0", &store]).env("USERS", users);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut server = Server { child, address: String::new() };
        let status = ended(&mut server).await;
        let mut text = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(!status.success() && text.contains(said), "{text}");
        assert!(!text.contains("secret-1"), "the token is not shown: {text}");
    }
}

/// Sends the beginning of a request, and keeps the connection.
fn half(server: &Server, request: &str) -> TcpStream {
    let mut connection = TcpStream::connect(&server.address).unwrap();
    connection.set_read_timeout(Some(STUCK)).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    connection
}

const HALF_HEADER: &str = "POST /conversations/a/messages HTTP/1.1\r\nhost: a\r\nauthorization: Bea";
const HALF_BODY: &str = "POST /conversations/a/messages HTTP/1.1\r\nhost: a\r\nauthorization: Bearer token-of-alice\r\n\
                         content-length: 100\r\n\r\nhello";

#[test]
fn half_requests_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("agent.db"));
    let mut answer = String::new();
    half(&server, HALF_HEADER).read_to_string(&mut answer).unwrap();
    assert!(!answer.contains(" 200 "), "{answer}");
    answer.clear();
    half(&server, HALF_BODY).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(server.ask("alice", "GET /conversations/a", "").0, 404);
}

/// Clients that sent half of a request do not keep a server from its end.
#[cfg(unix)]
#[tokio::test]
async fn half_requests_do_not_stop_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("agent.db"));
    let _halves = [half(&server, HALF_HEADER), half(&server, HALF_BODY), half(&server, "")];
    // The server has them: it answers one that came later.
    assert_eq!(server.ask("alice", "GET /conversations/a", "").0, 404);
    assert!(stopped(&mut server).await.success());
}

/// Tells a server to stop, and waits until it has.
#[cfg(unix)]
async fn stopped(server: &mut Server) -> std::process::ExitStatus {
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    ended(server).await
}

/// Waits until a server has ended.
async fn ended(server: &mut Server) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < STUCK);
        match server.child.try_wait().unwrap() {
            Some(status) => return status,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A server that is told to stop ends its runs and its streams first.
#[cfg(unix)]
#[tokio::test]
async fn stopped_servers_end_what_they_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("agent.db"));
    server.say("alice", "count", "hello");
    let mut follower = server.send("alice", "GET /conversations/count/events", "", "");
    let mut answer = server.send("alice", "POST /conversations/count/messages", "", "one two three");
    let mut line = String::new();
    while !line.contains("one") {
        line.clear();
        assert_ne!(answer.read_line(&mut line).unwrap(), 0);
    }
    let status = stopped(&mut server).await;
    assert!(status.success(), "{status}");
    let mut rest = String::new();
    follower.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("one two three"), "{rest}");
}
