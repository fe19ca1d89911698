//! Conversations of rig's agents in the stores: messages come back as they were, in any store, and are readable to others.

#[path = "../../examples/remember.rs"]
#[allow(dead_code, reason = "its `main` is for a person with a key")]
mod remember;

use std::error::Error as _;

use agent_core::event::EventType;
use agent_core::state::SessionState;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{Backend, Error, ErrorKind, MemoryStore, Storage, TenantId, WorkspaceId};
use agent_rig::RigMemory;
use agent_rig::rig_core::completion::Message;
use agent_rig::rig_core::memory::{ConversationMemory, MemoryError};
use agent_rig::rig_core::message::{
    AssistantContent, AssistantMessage, CallId, Origin, Reasoning, StopReason, ToolResultContent, UserContent,
};
use agent_rig::rig_core::providers::anthropic::wire::AnthropicConfig;
use agent_runtime::{AgentBuilder, EchoProvider};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteConfig;
use serde_json::json;

use crate::server::{Answer, Server, soon};

/// A conversation of all kinds of messages.
fn conversation() -> Vec<Message> {
    let item =
        json!({"type": "thinking", "thinking": "They ask.", "signature": "EqQB", "z": 1, "a": 100000.0});
    let reasoning = AssistantContent::Reasoning(Reasoning::new("They ask.")).with_native(item);
    let call =
        AssistantContent::tool_call("call_1", "look".try_into().unwrap(), json!({"z": 1, "a": [1.5, "é"]}));
    let turn = AssistantMessage::new(vec![reasoning, AssistantContent::text("I look."), call])
        .with_origin(Origin::new("anthropic.messages", "anthropic", "claude-opus-5-5"))
        .with_stop(StopReason::ToolUse);
    let result = UserContent::tool_result(
        CallId::from_wire("call_1"),
        "look".try_into().unwrap(),
        vec![ToolResultContent::text("seen"), ToolResultContent::json(json!({"b": 1, "a": 2}))],
    );
    vec![
        Message::system("Be brief."),
        Message::User {
            content: vec![UserContent::text("Hello"), UserContent::image_base64("iVBORw==", None, None)],
        },
        turn.into(),
        Message::User { content: vec![result] },
        Message::assistant("Done."),
    ]
}

fn json_of(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| serde_json::to_string(message).unwrap()).collect()
}

/// Messages are kept by two handles of a store, which `open` opens anew.
async fn keeps_conversations(open: impl AsyncFn() -> Storage) {
    let (one, two) = ("support/4711".into(), "support/4712".into());
    let storage = open().await;
    let memory = RigMemory::new(storage.clone());
    assert!(soon(memory.load(&one)).await.unwrap().is_empty());
    soon(memory.clear(&one)).await.unwrap();
    let messages = conversation();
    soon(memory.append(&one, messages[..3].to_vec())).await.unwrap();
    soon(memory.append(&one, messages[3..].to_vec())).await.unwrap();
    soon(memory.append(&two, vec![Message::user("Another")])).await.unwrap();
    storage.close().await.unwrap();

    let storage = open().await;
    let memory = RigMemory::new(storage.clone());
    let found = soon(memory.load(&one)).await.unwrap();
    assert_eq!(found, messages);
    assert_eq!(json_of(&found), json_of(&messages));
    assert_eq!(soon(memory.load(&two)).await.unwrap(), [Message::user("Another")]);
    // Nothing waits for a run of this library.
    let sessions = storage.sessions.list(SessionQuery::new()).await.unwrap().items;
    assert!(sessions.len() == 2 && sessions.iter().all(|session| session.status.state == SessionState::Idle));

    soon(memory.clear(&one)).await.unwrap();
    assert!(soon(memory.load(&one)).await.unwrap().is_empty());
    soon(memory.append(&one, vec![Message::user("Again")])).await.unwrap();
    assert_eq!(soon(memory.load(&one)).await.unwrap(), [Message::user("Again")]);
    storage.close().await.unwrap();
}

#[tokio::test]
async fn memory_keeps_conversations() {
    let backend = MemoryStore::new();
    // Closing would end the data with the store.
    let memory = RigMemory::new(Storage::from(backend.clone()));
    let messages = conversation();
    soon(memory.append(&"a".into(), messages.clone())).await.unwrap();
    assert_eq!(soon(RigMemory::new(backend).load(&"a".into())).await.unwrap(), messages);
}

#[tokio::test]
async fn files_keep_conversations() {
    let folder = tempfile::tempdir().unwrap();
    keeps_conversations(async || {
        let backend = FsConfig::new(folder.path()).open().await.unwrap();
        backend.tenant(&TenantId::default())
    })
    .await;
}

#[tokio::test]
async fn sqlite_keeps_conversations() {
    let folder = tempfile::tempdir().unwrap();
    keeps_conversations(async || {
        let backend = SqliteConfig::new(folder.path().join("store.db")).open().await.unwrap();
        backend.tenant(&TenantId::default())
    })
    .await;
}

#[tokio::test]
async fn conversations_are_those_of_the_runtime() {
    let storage = Storage::from(MemoryStore::new());
    let agent =
        AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage.clone()).build().unwrap();
    let memory = RigMemory::new(storage.clone());
    let key = "support/4711".into();
    soon(memory.append(&key, vec![Message::user("Hello"), Message::assistant("Hi")])).await.unwrap();
    let chat = agent.conversation("support/4711").await.unwrap();
    assert_eq!(chat.refresh().await.unwrap().counts.messages(), 2);
    let report = soon(soon(chat.prompt("More")).await.unwrap().finish()).await.unwrap();
    assert_eq!(report.text, "More");
    let texts =
        [Message::user("Hello"), Message::assistant("Hi"), Message::user("More"), Message::assistant("More")];
    assert_eq!(soon(memory.load(&key)).await.unwrap(), texts);
    let page = storage.sessions.read(chat.id(), ReadEvents::default()).await.unwrap();
    let kinds = page.events.iter().filter(|event| event.kind == EventType::USER_MESSAGE).count();
    assert_eq!(kinds, 2);

    chat.delete().await.unwrap();
    assert!(soon(memory.load(&key)).await.unwrap().is_empty());
    soon(memory.append(&key, vec![Message::user("Anew")])).await.unwrap();
    assert_eq!(soon(memory.load(&key)).await.unwrap(), [Message::user("Anew")]);
}

/// On a store whose reads take time, so that all of them find no conversation.
#[tokio::test]
async fn appends_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let backend = SqliteConfig::new(folder.path().join("store.db")).open().await.unwrap();
    let memory = RigMemory::new(backend.tenant(&TenantId::default()));
    let append = async |n: usize| {
        let messages =
            vec![Message::user(format!("question {n}")), Message::assistant(format!("answer {n}"))];
        soon(memory.append(&"a".into(), messages)).await.unwrap();
    };
    futures::future::join_all((0..16).map(append)).await;
    let found = json_of(&soon(memory.load(&"a".into())).await.unwrap());
    assert_eq!(found.len(), 32);
    for two in found.chunks(2) {
        // Each append is whole.
        assert_eq!(
            two[0].replace("user", "assistant").replace("question", "answer").len(),
            two[1].len(),
            "{two:?}"
        );
    }
}

fn kind(error: MemoryError) -> ErrorKind {
    let MemoryError::Backend(source) = error else { panic!("{error}") };
    source.downcast_ref::<Error>().unwrap().kind().clone()
}

#[tokio::test]
async fn errors_are_those_of_the_store() {
    let storage = Storage::from(MemoryStore::new());
    let memory = RigMemory::new(storage.clone());
    let hello = || vec![Message::user("Hello")];
    assert_eq!(kind(soon(memory.append(&"".into(), hello())).await.unwrap_err()), ErrorKind::InvalidInput);
    let elsewhere = memory.clone().with_workspace("018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse().unwrap());
    assert_eq!(kind(soon(elsewhere.append(&"a".into(), hello())).await.unwrap_err()), ErrorKind::NotFound);
    let many = vec![Message::user("Hello"); 2000];
    assert_eq!(kind(soon(memory.append(&"a".into(), many)).await.unwrap_err()), ErrorKind::LimitExceeded);

    // An input that waits for a run of this library.
    soon(memory.append(&"a".into(), hello())).await.unwrap();
    let session = storage.sessions.list(SessionQuery::new()).await.unwrap().items.remove(0);
    let input = vec![agent_core::event::NewEvent::user_message("Wait")];
    storage.sessions.append(session.id, session.head, input).await.unwrap();
    let error = soon(memory.append(&"a".into(), hello())).await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("open input"), "{error}");
    assert_eq!(session.workspace, WorkspaceId::DEFAULT);
    storage.close().await.unwrap();
    assert_eq!(kind(soon(memory.load(&"a".into())).await.unwrap_err()), ErrorKind::Unavailable);
}

/// An agent of rig, whose second prompt holds the first one's answer, signed reasoning included.
#[tokio::test]
async fn agents_of_rig_remember_in_one_line() {
    let blocks = json!([
        {"type": "thinking", "thinking": "They greet.", "signature": "EqQB"},
        {"type": "text", "text": "Hi, Alice."}
    ]);
    let answer = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": blocks,
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let server =
        Server::start([Answer::status(200, &answer.to_string()), Answer::status(200, &answer.to_string())])
            .await;
    let storage = Storage::from(MemoryStore::new());
    for prompt in ["I am Alice.", "Who am I?"] {
        let config = AnthropicConfig::new("key").with_base_url(&server.url);
        let model = config.client().completion("claude-sonnet-4-5");
        let agent = rig_agent::agent::AgentBuilder::new(model)
            .memory(RigMemory::new(storage.clone()))
            .conversation("support/4711")
            .build();
        let _ = soon(async { agent.prompt(prompt).await }).await.unwrap();
    }
    let body = server.requests()[1].body();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    assert_eq!(body["messages"][0], json!({"role": "user", "content": text("I am Alice.")}));
    assert_eq!(body["messages"][1]["content"], blocks);
    assert_eq!(body["messages"][2], json!({"role": "user", "content": text("Who am I?")}));
}

/// The example goes on with a conversation in another process, which has opened the files anew.
#[tokio::test]
async fn the_example_remembers() {
    let answer = |text: &str| {
        let answer = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1}});
        Answer::status(200, &answer.to_string())
    };
    let server = Server::start([answer("Hi, Alice."), answer("You are Alice.")]).await;
    let folder = tempfile::tempdir().unwrap();
    for (text, wanted) in [("I am Alice.", "Hi, Alice."), ("Who am I?", "You are Alice.")] {
        let backend = FsConfig::new(folder.path()).open().await.unwrap();
        let storage = backend.tenant(&TenantId::default());
        let config = AnthropicConfig::new("key").with_base_url(&server.url);
        let model = config.client().completion("claude-sonnet-4-5").erase();
        let messages = soon(remember::answer(model, storage.clone(), "support/4711", text)).await.unwrap();
        assert_eq!(messages, wanted);
        storage.close().await.unwrap();
    }
    assert_eq!(server.requests()[1].body()["messages"].as_array().unwrap().len(), 3);
}
