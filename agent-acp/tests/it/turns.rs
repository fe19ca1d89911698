//! Turns: what is streamed, what is stored, and how they end.

use std::sync::Arc;

use agent_acp::AcpAgent;
use agent_client_protocol::v1::schema;
use agent_core::state::SessionState;
use agent_core::{MemoryStore, Storage};
use agent_runtime::{
    AgentBuilder, Config, EchoProvider, Gate, MediaKind, ModelCapabilities, ModelEvent, ScriptedProvider,
    StopReason as ModelStop, Turn,
};
use schema::{ContentBlock, SessionUpdate, StopReason};
use tokio::time::timeout;

use crate::common::{
    Counter, STUCK, Site, client, created, each_store, empty, id, kinds, load, log, prompt, serve, shown,
};

each_store!(a_loaded_session_is_shown_as_it_was_streamed);
each_store!(a_cancelled_turn_stores_its_text);
each_store!(a_client_that_vanishes_ends_its_turn);

fn tool_model() -> ScriptedProvider {
    let answer = Turn::new().event(ModelEvent::thinking("A question.")).text("Let me ").text("look.").call(
        "c1",
        "look",
        empty(),
    );
    ScriptedProvider::new([answer, Turn::new().text("It is ").text("there.")])
}

async fn a_loaded_session_is_shown_as_it_was_streamed(site: Site) {
    let tool = Arc::new(Counter::default());
    let agent = site.agent(tool_model(), &tool).await;
    let (session, live) = client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        let answer = connection.send_request(prompt(&session, "Where?")).block_task().await.unwrap();
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
        (session, seen.take())
    })
    .await;
    let streamed = |update: &SessionUpdate| match update {
        SessionUpdate::AgentMessageChunk(chunk) | SessionUpdate::AgentThoughtChunk(chunk) => {
            chunk.meta.as_ref().is_some_and(|meta| meta["agent"]["streamed"] == true)
        }
        _ => false,
    };
    assert_eq!(live.iter().filter(|update| streamed(update)).count(), 5, "{live:?}");
    site.end(agent).await;

    let agent = site.agent(ScriptedProvider::new([]), &tool).await;
    client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        connection.send_request(load(&session)).block_task().await.unwrap();
        // All of it was sent before the answer.
        let loaded = seen.take();
        assert!(!loaded.iter().any(streamed));
        let live = shown(&live);
        let mut loaded = shown(&loaded);
        assert!(loaded.remove(0).ends_with(": Where?"));
        assert_eq!(loaded, live);
        assert_eq!(live[3..], ["c1 look Pending", "c1 Completed"], "{live:?}");
        assert!(live[0].ends_with("/0: A question.") && live[1].ends_with("/1: Let me look."), "{live:?}");

        let resume = schema::ResumeSessionRequest::new(session.clone(), "/work");
        connection.send_request(resume).block_task().await.unwrap();
        assert!(seen.take().is_empty(), "a session that is resumed is not sent");
    })
    .await;
    assert_eq!(tool.calls(), 1);
    site.end(agent).await;
}

fn is_text(update: &SessionUpdate) -> bool {
    matches!(update, SessionUpdate::AgentMessageChunk(_))
}

async fn a_cancelled_turn_stores_its_text(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([
        Turn::new().text("Once upon").gate(&gate).text(" a time"),
        Turn::new().text("Fine."),
    ]);
    let agent = site.agent(model, &Arc::default()).await;
    let session = client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        let outcome = connection.send_request(prompt(&session, "Tell me a story."));
        seen.until(is_text).await;
        connection.send_notification(schema::CancelNotification::new(session.clone())).unwrap();
        assert_eq!(outcome.block_task().await.unwrap().stop_reason, StopReason::Cancelled);
        assert_eq!(
            agent.conversation_by_id(id(&session)).await.unwrap().record().status.state,
            SessionState::Idle
        );

        // A cancellation before anything was read of the prompt, too.
        let outcome = connection.send_request(prompt(&session, "Again."));
        connection.send_notification(schema::CancelNotification::new(session.clone())).unwrap();
        let stop = outcome.block_task().await.unwrap().stop_reason;
        assert!(matches!(stop, StopReason::Cancelled | StopReason::EndTurn));
        session
    })
    .await;
    let log = log(&agent, &session).await;
    assert!(log.iter().any(|event| event.text().is_some_and(|text| text == "Once upon")), "{log:?}");
    site.end(agent).await;
}

async fn a_client_that_vanishes_ends_its_turn(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().text("Once upon").gate(&gate), Turn::new().text("Yes.")]);
    let agent = site.agent(model, &Arc::default()).await;
    let session = client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        connection.send_request(prompt(&session, "Tell me a story.")).detach();
        seen.until(is_text).await;
        session
    })
    .await;
    let chat = agent.conversation_by_id(id(&session)).await.unwrap();
    assert_eq!((chat.record().status.state, chat.record().inputs_open), (SessionState::Idle, 0));
    assert!(kinds(&agent, &session).await.contains(&"agent.message".to_owned()));

    client(AcpAgent::new(agent.clone()), None, async |connection, _| {
        connection.send_request(load(&session)).block_task().await.unwrap();
        let answer = connection.send_request(prompt(&session, "Still there?")).block_task().await.unwrap();
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
    })
    .await;
    site.end(agent).await;
}

#[tokio::test]
async fn a_failed_model_is_an_error_that_names_the_session() {
    let agent =
        Site::new("memory").agent(ScriptedProvider::new([Turn::new().fail("no key")]), &Arc::default()).await;
    client(AcpAgent::new(agent), None, async |connection, _| {
        let session = created(&connection).await;
        let error = connection.send_request(prompt(&session, "Hello")).block_task().await.unwrap_err();
        assert!(error.message.contains("no key") && error.message.contains(&*session.0), "{error:?}");
        assert_eq!(error.data.unwrap()["sessionId"], &*session.0);
    })
    .await;
}

#[tokio::test]
async fn images_and_links_are_stored_and_loaded() {
    let capabilities = ModelCapabilities::new().with_media([MediaKind::Image]);
    let model = ScriptedProvider::new([Turn::new().text("A cat.")]).with_capabilities(capabilities);
    let agent = Site::new("memory").agent(model, &Arc::default()).await;
    let png = "iVBORw0KGgo=";
    client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        let file = schema::TextResourceContents::new("fn main() {}", "file:///work/main.rs");
        let file = schema::EmbeddedResourceResource::TextResourceContents(file);
        let blocks = vec![
            "What is this?".into(),
            ContentBlock::Image(schema::ImageContent::new(png, "image/png")),
            ContentBlock::ResourceLink(schema::ResourceLink::new("lib.rs", "file:///work/lib.rs")),
            ContentBlock::Resource(schema::EmbeddedResource::new(file)),
        ];
        let request = schema::PromptRequest::new(session.clone(), blocks);
        connection.send_request(request).block_task().await.unwrap();
        seen.take();
        connection.send_request(load(&session)).block_task().await.unwrap();
        let lines = shown(&seen.take());
        let asked = &lines[0];
        assert!(
            asked.contains("What is this?[image/png iVBORw0KGgo=][lib.rs file:///work/lib.rs]"),
            "{asked}"
        );
        assert!(asked.contains("fn main() {}") && asked.contains("file:///work/main.rs"), "{asked}");

        let wrong = ContentBlock::Image(schema::ImageContent::new("?", "image/png"));
        let request = schema::PromptRequest::new(session.clone(), vec!["And this?".into(), wrong]);
        let error = connection.send_request(request).block_task().await.unwrap_err();
        assert!(error.message.contains("block 1") && i32::from(error.code) == -32602, "{error:?}");
    })
    .await;
}

/// The session is held by another program; its run answers the prompt, and the client is sent the answer.
#[tokio::test]
async fn a_prompt_behind_another_run_is_answered() {
    let storage: Storage = MemoryStore::new().into();
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().gate(&gate).text("One."), Turn::new().text("Two.")]);
    let config = Config::new().with_holder("another program");
    let other = AgentBuilder::new()
        .with_llm(model)
        .with_config(config)
        .with_storage(storage.clone())
        .build()
        .unwrap();
    let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage).build().unwrap();
    client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        let run = other.conversation_by_id(id(&session)).await.unwrap().prompt("First").await.unwrap();
        let chat = agent.conversation_by_id(id(&session)).await.unwrap();
        let head = chat.refresh().await.unwrap().head;
        let asked = connection.send_request(prompt(&session, "Second"));
        let stored = async {
            while chat.refresh().await.unwrap().head == head {
                tokio::task::yield_now().await;
            }
        };
        timeout(STUCK, stored).await.expect("the prompt is stored");
        gate.open();
        run.finish().await.unwrap();
        let stop = asked.block_task().await.unwrap().stop_reason;
        assert_eq!(stop, StopReason::EndTurn);
        let lines = shown(&seen.take());
        assert!(lines.iter().any(|line| line.ends_with(": Two.") || line.ends_with(": Second")), "{lines:?}");
    })
    .await;
}

/// A client that waits behind the turn of another one sees that turn's answer as it is written, and each piece once.
#[tokio::test]
async fn a_waiting_client_sees_the_answer_that_is_written() {
    let gate = Gate::new();
    let story =
        Turn::new().event(ModelEvent::thinking("A story.")).text("Once upon").gate(&gate).text(" a time");
    let model = ScriptedProvider::new([story, Turn::new().text("Fine.")]);
    let agent = Site::new("memory").agent(model, &Arc::default()).await;
    client(AcpAgent::new(agent.clone()), None, async |first, seen| {
        let session = created(&first).await;
        let told = first.send_request(prompt(&session, "Tell me a story."));
        seen.until(is_text).await;
        client(AcpAgent::new(agent.clone()), None, async |second, seen| {
            second.send_request(load(&session)).block_task().await.unwrap();
            seen.take();
            let asked = second.send_request(prompt(&session, "And then?"));
            // The model has not said the rest.
            seen.until(is_text).await;
            gate.open();
            assert_eq!(asked.block_task().await.unwrap().stop_reason, StopReason::EndTurn);
            let lines = shown(&seen.take());
            let said: Vec<_> = lines.iter().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
            assert_eq!(said, ["A story.", "Once upon a time", "Fine."], "{lines:?}");
        })
        .await;
        told.block_task().await.unwrap();
    })
    .await;
}

/// The service ends when its future is dropped, and so do the turns.
#[tokio::test]
async fn a_dropped_service_cancels_its_turns() {
    let gate = Gate::new();
    let agent = Site::new("memory")
        .agent(ScriptedProvider::new([Turn::new().text("Once").gate(&gate)]), &Arc::default())
        .await;
    let (mut stream, served) = serve(AcpAgent::new(agent.clone()));
    let chat = {
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        let (reader, mut writer) = tokio::io::split(&mut stream);
        let mut lines = BufReader::new(reader).lines();
        let mut ask = async |line: String| {
            writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            timeout(STUCK, lines.next_line()).await.expect("an answer").unwrap().unwrap()
        };
        ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#.to_owned())
            .await;
        let new = r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}"#;
        let created: serde_json::Value = serde_json::from_str(&ask(new.to_owned()).await).unwrap();
        let session = created["result"]["sessionId"].as_str().unwrap();
        let blocks = r#"[{"type":"text","text":"Hello"}]"#;
        let first = ask(format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{{"sessionId":"{session}","prompt":{blocks}}}}}"#
        ))
        .await;
        assert!(first.contains("session/update"), "{first}");
        agent.conversation_by_id(session.parse().unwrap()).await.unwrap()
    };
    served.abort();
    let idle = async {
        while chat.refresh().await.unwrap().status.state != SessionState::Idle {
            tokio::task::yield_now().await;
        }
    };
    timeout(STUCK, idle).await.expect("the turn ends");
}

/// A person is told why an answer is not all that they may expect, and which calls were not made.
#[tokio::test]
async fn the_reason_for_a_cut_answer_is_reported() {
    let tool = Arc::new(Counter::default());
    let model = ScriptedProvider::new([
        Turn::new().text("I look").call("c1", "look", empty()).done(ModelStop::MaxTokens),
        Turn::new().done(ModelStop::EndTurn),
        Turn::new().done(ModelStop::Refusal),
        Turn::new().text("x".repeat((1 << 20) + 1)),
        Turn::new().text("Yes."),
    ]);
    let agent = Site::new("memory").agent(model, &tool).await;
    client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        let notices = |updates: &[SessionUpdate]| -> Vec<String> {
            let of = |update: &SessionUpdate| match update {
                SessionUpdate::AgentMessageChunk(chunk)
                    if chunk.meta.as_ref().is_some_and(|meta| meta["agent"]["notice"] == true) =>
                {
                    let ContentBlock::Text(text) = &chunk.content else { panic!("{chunk:?}") };
                    Some(text.text.trim().to_owned())
                }
                _ => None,
            };
            updates.iter().filter_map(of).collect()
        };
        for (stop, notice) in [
            (StopReason::MaxTokens, "The answer reached the model's limit of tokens and was cut."),
            (StopReason::EndTurn, "The model gave an empty answer."),
            (StopReason::Refusal, "The model, or a filter of its provider, refused to answer."),
            (
                StopReason::MaxTokens,
                "The answer reached the limit of 1048576 bytes of text in an answer (text_bytes) and was cut.",
            ),
        ] {
            let answer = connection.send_request(prompt(&session, "Look.")).block_task().await.unwrap();
            let updates = seen.take();
            assert_eq!((answer.stop_reason, notices(&updates)), (stop, vec![notice.to_owned()]));
            if notice.contains("of tokens") {
                let lines = shown(&updates);
                let calls: Vec<_> = lines.iter().filter(|line| line.starts_with("c1")).collect();
                assert_eq!(calls, ["c1 look Pending", "c1 Failed"]);
            }
        }
        connection.send_request(prompt(&session, "Look.")).block_task().await.unwrap();
        assert_eq!(notices(&seen.take()), Vec::<String>::new());
    })
    .await;
    assert_eq!(tool.calls(), 0);
}

/// A picture, a file or a link says enough without a text.
#[tokio::test]
async fn a_prompt_needs_no_text_beside_what_is_attached() {
    let answers = (0..3).map(|_| Turn::new().text("I see."));
    let agent = Site::new("memory").agent(ScriptedProvider::new(answers), &Arc::default()).await;
    client(AcpAgent::new(agent.clone()), None, async |connection, _| {
        let session = created(&connection).await;
        let file = schema::BlobResourceContents::new("JVBERi0=", "file:///a.pdf");
        let file = schema::EmbeddedResourceResource::BlobResourceContents(file);
        for block in [
            ContentBlock::Image(schema::ImageContent::new("iVBORw0KGgo=", "image/png")),
            ContentBlock::Resource(schema::EmbeddedResource::new(file)),
            ContentBlock::ResourceLink(schema::ResourceLink::new("notes", "file:///notes.md")),
        ] {
            let prompt = schema::PromptRequest::new(session.clone(), vec![block]);
            let answer = connection.send_request(prompt).block_task().await.unwrap();
            assert_eq!(answer.stop_reason, StopReason::EndTurn);
        }
        let nothing = schema::PromptRequest::new(session.clone(), vec![" ".into()]);
        let error = connection.send_request(nothing).block_task().await.unwrap_err();
        assert!(i32::from(error.code) == -32602 && error.message.contains(&*session.0), "{error:?}");
    })
    .await;
}
