//! MCP server over standard input and output that does what a server must not do. The first argument is how it behaves
//! from its start; its tools misbehave when they are called. With a second argument, it writes what happens to that
//! file, a line each.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::zombie_processes,
    reason = "a server of tests, which misbehaves on purpose"
)]

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::process::{Command, Stdio, exit};
use std::time::Duration;
use std::{env, thread};

use serde_json::{Value, json};

fn main() {
    let mut args = env::args().skip(1);
    let mode = args.next().unwrap_or_default();
    let mut server = Server { mode, file: args.next(), changed: 0, lists: 0 };
    server.note(&format!("start {}", std::process::id()));
    match server.mode.as_str() {
        "exit" => exit(3),
        "complains" => {
            let key = env::var("KEY").unwrap_or_default();
            eprintln!("\u{1b}[31mError:\u{1b}[0m PAYLOAD-STDERR, no entry for key {key}\u{7}");
            exit(7)
        }
        "hang" => sleep(),
        "noise" => {
            for _ in 0..100 {
                println!("this is no message");
            }
        }
        "stderr" => eprintln!("{}", "PAYLOAD-STDERR ".repeat(100_000)),
        _ => {}
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        server.take(&message);
    }
    server.note("end of input");
    if server.mode == "stays" {
        sleep();
    }
}

fn sleep() {
    thread::sleep(Duration::from_secs(3600));
}

fn send(message: &Value) {
    let mut out = std::io::stdout().lock();
    // The client may be gone.
    let _ = writeln!(out, "{message}");
    let _ = out.flush();
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn tool(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": false},
    })
}

/// Tools that every mode has, besides those of its own.
const TOOLS: [&str; 22] = [
    "ask",
    "bytes",
    "change",
    "die",
    "echo",
    "env",
    "everything",
    "fail",
    "flood",
    "values",
    "garbage",
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
    "wrong",
];

struct Server {
    mode: String,
    file: Option<String>,
    /// Number of times that the list was changed.
    changed: u32,
    lists: u32,
}

impl Server {
    fn note(&self, line: &str) {
        if let Some(file) = &self.file {
            let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
            writeln!(file, "{line}").unwrap();
        }
    }

    fn take(&mut self, message: &Value) {
        let id = message.get("id").cloned().unwrap_or(Value::Null);
        let answer = |result: &Value| send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        match message["method"].as_str().unwrap_or("answer") {
            "initialize" => match self.mode.as_str() {
                "mute" => {}
                "wrong_id" => send(&json!({"jsonrpc": "2.0", "id": 4711, "result": self.hello(message)})),
                "refuses" => {
                    let error = json!({"code": -32600, "message": "PAYLOAD-REFUSAL"});
                    send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                }
                _ => answer(&self.hello(message)),
            },
            "ping" => match self.mode.as_str() {
                "stuck" => {}
                _ => answer(&json!({})),
            },
            "tools/list" => {
                self.lists += 1;
                if let Some(page) = self.page(message) {
                    answer(&page);
                }
            }
            "tools/call" => {
                let name = message["params"]["name"].as_str().unwrap_or_default().to_owned();
                self.note(&format!("call {name}"));
                let input = &message["params"]["arguments"];
                if let Some(result) = self.call(&name, input, &id) {
                    answer(&result);
                }
            }
            "notifications/cancelled" => self.note("cancelled"),
            "answer" => self.note(&format!("answer {message}")),
            _ => {}
        }
    }

    fn hello(&self, message: &Value) -> Value {
        json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "misbehaving", "version": "1"},
        })
    }

    /// Returns a page of the list of tools.
    fn page(&self, message: &Value) -> Option<Value> {
        let described = |name: &str| format!("Does {name}, version {}.", self.changed);
        let own = || TOOLS.iter().map(|name| tool(name, &described(name))).collect::<Vec<_>>();
        let more = |count: usize| {
            (0..count).map(|at| tool(&format!("more{at}"), "One of many.")).collect::<Vec<_>>()
        };
        Some(match self.mode.as_str() {
            "lists_nothing" => return None,
            "lists_nothing_later" if self.lists > 1 => return None,
            "endless" => {
                let at =
                    message["params"]["cursor"].as_str().and_then(|at| at.parse::<u32>().ok()).unwrap_or(0);
                json!({"tools": [tool(&format!("page{at}"), "On a page.")], "nextCursor": (at + 1).to_string()})
            }
            "circle" => json!({"tools": [tool("page", "On a page.")], "nextCursor": "again"}),
            "huge" => json!({"tools": more(3000)}),
            "liar" => json!({"tools": [
                tool("echo", "The first."),
                tool("echo", "The second."),
                {"name": "array", "inputSchema": {"type": "array"}},
                {"name": "text", "inputSchema": "none"},
                {"name": 7, "inputSchema": {"type": "object"}},
                tool("dotted.name/with spaces", "Has a name that providers refuse."),
            ]}),
            "no_list" => json!({"tools": "none"}),
            "schemas" => {
                let schemas = [
                    json!({"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "any", "required": true}}}),
                    json!({"properties": {"a": {"items": [{}, {}], "type": ["array", "null"]}}, "required": true}),
                    json!({"$ref": "#/definitions/A", "definitions": {"A": {"properties": {"\u{e9}": {}}}}}),
                    json!({"oneOf": [{"allOf": [{"not": {}}]}, true, 7], "enum": [], "properties": []}),
                    json!({"type": ["object", "null"], "properties": {"a": {"$ref": "#/nowhere"}, "b": 7, "": {}}}),
                ];
                let tool = |(at, schema)| json!({"name": format!("tool{at}"), "inputSchema": schema});
                json!({"tools": schemas.iter().enumerate().map(tool).collect::<Vec<_>>()})
            }
            "keys" => {
                let keys = json!({"$.xgafv": {"type": "string"}, "in": {"type": "object", "properties": {"a b": {}}}});
                let taken = json!({"type": "object", "properties": keys, "required": ["$.xgafv"]});
                json!({"tools": [
                    {"name": "given", "description": "Returns its arguments.", "inputSchema": taken},
                    {"name": "any", "inputSchema": {"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}},
                    {"name": "text", "inputSchema": {"type": "string"}},
                ]})
            }
            _ => json!({"tools": own()}),
        })
    }

    fn call(&mut self, name: &str, input: &Value, id: &Value) -> Option<Value> {
        let given = input["text"].as_str().unwrap_or_default();
        Some(match name {
            "echo" => text(given),
            "given" => text(&input.to_string()),
            "half" => {
                println!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"half \ud83d."}}]}}}}"#
                );
                return None;
            }
            "bytes" => {
                let mut out = std::io::stdout().lock();
                let start = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"byte "#
                );
                let line = [start.as_bytes(), b"\xff", br#"."}]}}"#, b"\n"].concat();
                let _ = out.write_all(&line).and_then(|()| out.flush());
                return None;
            }
            "nag" => {
                // Asks without end, and reads no answer.
                let mut out = std::io::stdout().lock();
                while out.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").is_ok() {}
                return None;
            }
            "values" => {
                // Each takes two bytes here, and many more in memory.
                let values = "0,".repeat(510_000) + "0";
                println!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"structuredContent":{{"n":[{values}]}}}}}}"#
                );
                return None;
            }
            "nan" => {
                println!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"structuredContent":{{"n":NaN}}}}}}"#
                );
                return None;
            }
            "pid" => text(&std::process::id().to_string()),
            "fail" => json!({"content": [{"type": "text", "text": "no such city"}], "isError": true}),
            "refuse" => {
                let error = json!({"code": -32602, "message": "text is missing"});
                send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                return None;
            }
            "env" => {
                let names: Vec<_> = env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                text(&names.join("\n"))
            }
            "everything" => {
                // 3,000 bytes: more than an event holds itself.
                let image = "iVBORw0K".repeat(500);
                json!({
                    "content": [
                        {"type": "text", "text": "A picture."},
                        {"type": "image", "data": image, "mimeType": "image/png"},
                        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
                        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
                        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAEC", "mimeType": "application/x-a"}},
                        {"type": "resource_link", "uri": "https://example.com/x", "name": "x"},
                    ],
                    "structuredContent": {"pictures": 1},
                })
            }
            "die" => exit(4),
            "last_words" => {
                send(&json!({"jsonrpc": "2.0", "id": id, "result": text("the last words")}));
                exit(0);
            }
            "stall" => return None,
            "stop" => {
                // Reads nothing any more, and answers no ping.
                self.note("stopped");
                sleep();
                return None;
            }
            "flood" => {
                let mut out = std::io::stdout().lock();
                let piece = "x".repeat(1 << 16);
                while out.write_all(piece.as_bytes()).is_ok() {}
                return None;
            }
            "garbage" => {
                println!("no message");
                println!("{{\"jsonrpc\":\"2.0\",\"id\":");
                println!("[1, 2, 3]");
                println!("\u{0}\u{1b}[2J");
                send(&json!({"jsonrpc": "2.0", "id": 987_654, "result": text("for nobody")}));
                send(&json!({"jsonrpc": "2.0", "id": "text", "error": {"code": 1, "message": "for nobody"}}));
                send(&json!({"jsonrpc": "2.0", "method": "notifications/unknown", "params": {"a": 1}}));
                send(&json!({"jsonrpc": "1.0", "id": id, "result": 7}));
                text("after the garbage")
            }
            "wrong" => json!({"tools": [1, 2]}),
            "ask" => {
                for (at, method) in
                    ["sampling/createMessage", "elicitation/create", "roots/list"].iter().enumerate()
                {
                    let params = json!({"messages": [], "maxTokens": 1, "message": "?", "requestedSchema": {"type": "object", "properties": {}}});
                    send(&json!({"jsonrpc": "2.0", "id": 1000 + at, "method": method, "params": params}));
                }
                text("asked")
            }
            "change" => {
                self.changed += 1;
                send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                text("changed")
            }
            "secretly" => {
                self.changed += 1;
                text("changed, and nobody knows")
            }
            "spawn" => {
                let child = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().unwrap();
                text(&format!("{} {}", std::process::id(), child.id()))
            }
            _ => json!({"content": [{"type": "text", "text": "unknown tool"}], "isError": true}),
        })
    }
}
