//! Redaction by pattern: keys, tokens and private keys of well-known forms, in runs and in recorded traffic.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use agent_admin::manifest::Manifest;
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::store::ReadEvents;
use agent_core::{Error, ErrorKind, MemoryStore, Result, Storage, async_trait};
use agent_runtime::secrets::Secrets;
use agent_runtime::{
    AgentBuilder, Conversation, Plugin, ScriptedProvider, SessionContext, ToolContext, ToolSpec, Turn,
};
use agent_tests::recorded;

use crate::common::{check_log, device, dialogue, read, try_read};

const KEY: &str = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6";
const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0NzExIn0.c2lnbmF0dXJl";
const PEM: &str =
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8Q\n-----END PRIVATE KEY-----";

/// What of them nobody may read, however it is escaped.
const PARTS: [&str; 4] = ["a1B2c3D4", "eyJzdWIi", "c2lnbmF0", "MC4CAQAw"];

fn assert_no_part(what: &str, text: &str) {
    for part in PARTS {
        assert!(!text.contains(part), "{what} holds {part}: {text}");
    }
}

fn patterns() -> Secrets {
    Secrets::new(BTreeMap::new()).with_patterns()
}

/// Tools of a server that tells all it has.
#[derive(Debug)]
struct Telling;

#[async_trait]
impl Plugin for Telling {
    fn name(&self) -> &str {
        "telling"
    }

    async fn session_tools(&self, _: SessionContext) -> Result<Vec<ToolSpec>> {
        let schema = serde_json::json!({"type": "object", "properties": {"of": {"type": "string", "description": JWT}}});
        let tell = ToolSpec::new("tell", format!("Uses {KEY}.")).with_input(RawJson::of(&schema)?);
        Ok(vec![tell, ToolSpec::new("fail", "")])
    }

    async fn call(&self, tool: &str, _: RawJson, _: ToolContext) -> Result<RawJson> {
        let nested = serde_json::json!({ "file": PEM, "token": JWT }).to_string();
        match tool {
            "tell" => {
                RawJson::of(&serde_json::json!({ KEY: [PEM, nested], "auth": format!("Bearer {JWT}") }))
            }
            _ => Err(Error::new(ErrorKind::Provider, format!("401 for {KEY}"))),
        }
    }
}

async fn chat(model: &ScriptedProvider, secrets: Option<Secrets>) -> (Conversation, Storage) {
    let storage: Storage = MemoryStore::new().into();
    let builder = AgentBuilder::new().with_llm(model.clone()).with_storage(storage.clone());
    let builder = builder.with_plugin(Telling);
    let builder = match secrets {
        Some(secrets) => builder.with_secrets(secrets),
        None => builder,
    };
    (builder.build().unwrap().open(&device("laptop")).await.unwrap(), storage)
}

async fn log_of(chat: &Conversation, storage: &Storage) -> String {
    let page = storage.sessions.read(chat.id(), ReadEvents::default()).await.unwrap();
    page.events.iter().map(|event| event.payload.get()).collect::<Vec<_>>().join("\n")
}

/// What a person, a model and a tool say of keys is in no event, no export, no request to the model, and no description.
#[tokio::test]
async fn patterns_are_redacted_where_values_are() {
    let json = RawJson::empty_object;
    let model = ScriptedProvider::new([
        Turn::new().call("a", "tell", json()).call("b", "fail", json()),
        Turn::new().text(format!("it is {KEY}, and {}", JWT.replace('c', "\\u0063"))),
    ]);
    let (chat, storage) = chat(&model, Some(patterns())).await;
    let (seen, _) = read(chat.prompt(format!("use {KEY}")).await.unwrap()).await;
    assert_eq!(seen, "it is (secret: API key), and (secret: JWT)");
    check_log(&chat).await;

    let sessions = &chat.runtime().storage().sessions;
    let own = RawJson::of(&BTreeMap::from([(KEY, PEM)])).unwrap();
    let events = vec![NewEvent::new("x.app.note".parse().unwrap(), own)];
    sessions.append(chat.id(), chat.refresh().await.unwrap().head, events).await.unwrap();
    let media = chat.put_media("text/plain", KEY.as_bytes().to_vec()).await;
    assert_no_part("a medium", &format!("{media:?}"));

    assert_no_part("a request", &format!("{:?}", model.requests()));
    let tool = model.requests()[0].tools.iter().find(|tool| tool.name == "tell").unwrap().description.clone();
    assert_eq!(tool, "Uses (secret: API key).");
    let log = log_of(&chat, &storage).await;
    assert_no_part("the log", &log);
    for kind in [
        "use (secret: API key)",
        "401 for (secret: API key)",
        "(secret: private key)",
        "Bearer (secret: JWT)",
    ] {
        assert!(log.contains(kind), "{kind}: {log}");
    }
    let export = Manifest::export(&*storage.sessions, chat.id()).await.unwrap().to_json().unwrap();
    assert_no_part("an export", &export);
}

/// Without the host's word nothing is redacted that nobody gave out.
#[tokio::test]
async fn patterns_stay_unless_the_host_says_so() {
    for secrets in [None, Some(Secrets::new(BTreeMap::new()))] {
        let model = ScriptedProvider::new([Turn::new().text(KEY)]);
        let (chat, storage) = chat(&model, secrets).await;
        assert_eq!(read(chat.prompt(JWT).await.unwrap()).await.0, KEY);
        let log = log_of(&chat, &storage).await;
        assert!(log.contains(KEY) && log.contains(JWT), "{log}");
    }
}

/// A key that a model says piece by piece, with and without escapes, is shown to nobody who reads along; an answer that ends
/// in the middle of it has no part of it.
#[tokio::test]
async fn patterns_split_over_chunks_are_redacted() {
    let escaped = KEY.replace('-', "\\u002d").replace('1', "\\\\u0031");
    let pem = PEM.replace('\n', "\\n");
    for (secret, kind) in
        [(KEY, "API key"), (&*escaped, "API key"), (JWT, "JWT"), (PEM, "private key"), (&*pem, "private key")]
    {
        for size in [1, 5, 29] {
            let text = format!("it is {secret}, so sk-learn and {secret}");
            let pieces: Vec<String> = text
                .as_bytes()
                .chunks(size)
                .map(|piece| String::from_utf8(piece.to_vec()).unwrap())
                .collect();
            let whole = pieces.iter().fold(Turn::new(), |turn, piece| turn.text(piece.clone()));
            let half = secret.len() / 2 / size + 1;
            let failing = pieces.iter().take(half).fold(Turn::new(), |turn, piece| turn.text(piece.clone()));
            let model = ScriptedProvider::new([whole, failing.fail("gone")]);
            let (chat, _) = chat(&model, Some(patterns())).await;
            let (seen, _) = read(chat.prompt("go").await.unwrap()).await;
            let expected = format!("it is (secret: {kind}), so sk-learn and (secret: {kind})");
            assert_eq!(seen, expected, "{size}");
            assert_eq!(dialogue(&chat).await[1].1, expected, "{size}");
            let (seen, _) = try_read(chat.prompt("again").await.unwrap()).await;
            assert!("it is ".starts_with(&seen), "{size}: {seen}");
            let last = dialogue(&chat).await.pop().unwrap().1;
            assert!(last == "again" || "it is".starts_with(last.trim_end()), "{size}: {last}");
        }
    }
}

/// Every file below a folder, with its text.
fn texts(folder: &Path, out: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, out);
        } else {
            out.push((path.clone(), String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()));
        }
    }
}

/// Every match in what models, tools and people wrote, as the stores of the repository hold it, was looked at by a person, and so
/// was each in the recorded traffic of four providers, where the recordings are at hand: there is none. Signatures and encrypted
/// items in Base64 have the beginnings of keys, but within longer words.
#[test]
fn recorded_traffic_is_taken_for_no_secret() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for folder in ["tests/golden", "agent-storage-fs/tests/golden", "agent-storage-s3/tests/golden", "docs"] {
        texts(&root.join(folder), &mut all);
    }
    assert!(all.len() > 200 && all.iter().map(|(_, text)| text.len()).sum::<usize>() > 1 << 20);
    if let Some(folder) = recorded::folder("recorded_traffic_is_taken_for_no_secret") {
        let before = all.len();
        texts(&folder, &mut all);
        let begins = |text: &String| text.matches("sk-").count() + text.matches("ghp_").count();
        assert!(
            all[before..].iter().map(|(_, text)| begins(text)).sum::<usize>() >= 5,
            "the recordings are not there"
        );
    }
    let secrets = patterns();
    let mut matches = Vec::new();
    for (path, text) in &all {
        let redacted = secrets.redact(text);
        for line in redacted.lines().filter(|line| line.contains("(secret: ")) {
            matches.push(format!("{}: {line}", path.display()));
        }
        // The search is not blind in this text.
        assert!(
            secrets.redact(&format!("{text}\n{KEY}")).ends_with("(secret: API key)"),
            "{}",
            path.display()
        );
    }
    let checked: [&str; 0] = [];
    assert_eq!(matches, checked);
}
