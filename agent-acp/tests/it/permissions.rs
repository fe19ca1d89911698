//! Permissions: requested once, stored, and requested again from each client that connects later.

use std::sync::Arc;

use agent_acp::AcpAgent;
use agent_client_protocol::v1::schema;
use agent_core::event::{Decision, EventPayload, EventType, ToolConfirmation, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::state::SessionState;
use agent_runtime::{AgentBuilder, AgentRuntime, ScriptedProvider, Turn};
use schema::{StopReason, ToolCallStatus};

use crate::common::{
    Counter, Site, client, created, each_store, empty, has_status, id, load, log, prompt, shown,
};

each_store!(a_permission_outlives_its_client);
each_store!(a_refused_call_is_not_made);
each_store!(an_answer_of_another_program_counts);

fn pays() -> ScriptedProvider {
    ScriptedProvider::new([Turn::new().text("I pay.").call("p1", "pay", empty()), Turn::new().text("Paid.")])
}

async fn outcomes(agent: &AgentRuntime, session: &schema::SessionId) -> Vec<ToolOutcome> {
    let results = log(agent, session).await.into_iter().filter_map(|event| match event.decode().unwrap() {
        EventPayload::AgentToolResult(result) => Some(result.outcome),
        _ => None,
    });
    results.collect()
}

async fn a_permission_outlives_its_client(site: Site) {
    let tool = Arc::new(Counter::default());
    let agent = site.agent(pays(), &tool).await;
    // The client is asked, and goes away without an answer.
    let session = client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        connection.send_request(prompt(&session, "Pay.")).detach();
        seen.until(|update| has_status(update, ToolCallStatus::Pending)).await;
        session
    })
    .await;
    let chat = agent.conversation_by_id(id(&session)).await.unwrap();
    assert_eq!(chat.record().status.state, SessionState::RequiresAction);
    site.end(agent).await;
    assert_eq!(tool.calls(), 0);

    // Another process; its client resumes, is asked, and goes away, too.
    let agent = site.agent(ScriptedProvider::new([]), &tool).await;
    client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let resume = schema::ResumeSessionRequest::new(session.clone(), "/work");
        connection.send_request(resume).block_task().await.unwrap();
        seen.until(|update| has_status(update, ToolCallStatus::Pending)).await;
        let error = connection.send_request(prompt(&session, "Hello?")).block_task().await.unwrap_err();
        assert!(error.message.contains("permission") && error.message.contains(&*session.0), "{error:?}");
    })
    .await;
    site.end(agent).await;

    let agent = site.agent(ScriptedProvider::new([Turn::new().text("Paid.")]), &tool).await;
    client(AcpAgent::new(agent.clone()), Some("allow"), async |connection, seen| {
        connection.send_request(load(&session)).block_task().await.unwrap();
        seen.until(|update| has_status(update, ToolCallStatus::Completed)).await;
        let messages = |update: &schema::SessionUpdate| {
            matches!(update, schema::SessionUpdate::AgentMessageChunk(chunk)
                if matches!(&chunk.content, schema::ContentBlock::Text(text) if text.text == "Paid."))
        };
        seen.until(messages).await;
        let lines = shown(&seen.take());
        let calls: Vec<_> = lines.iter().filter(|line| line.starts_with("p1")).collect();
        assert_eq!(calls, ["p1 pay Pending", "p1 Pending", "p1 InProgress", "p1 Completed"]);
    })
    .await;
    assert_eq!(tool.calls(), 1);
    assert_eq!(outcomes(&agent, &session).await, [ToolOutcome::Ok]);
    site.end(agent).await;
}

async fn a_refused_call_is_not_made(site: Site) {
    let tool = Arc::new(Counter::default());
    let agent = site.agent(pays(), &tool).await;
    let session = client(AcpAgent::new(agent.clone()), Some("reject"), async |connection, seen| {
        let session = created(&connection).await;
        let answer = connection.send_request(prompt(&session, "Pay.")).block_task().await.unwrap();
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
        assert!(seen.take().iter().any(|update| has_status(update, ToolCallStatus::Failed)));
        session
    })
    .await;
    assert_eq!((tool.calls(), outcomes(&agent, &session).await), (0, vec![ToolOutcome::Denied]));
    site.end(agent).await;
}

/// The client is asked and does not answer. Another program does, twice: the turn goes on, and ends.
async fn an_answer_of_another_program_counts(site: Site) {
    let tool = Arc::new(Counter::default());
    let model = ScriptedProvider::new([
        Turn::new().text("I pay.").call("p1", "pay", empty()),
        Turn::new().call("p2", "pay", empty()),
        Turn::new().text("Paid."),
    ]);
    let agent = site.agent(model, &tool).await;
    let session = client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        let (other, asked, id) = (agent.clone(), seen.clone(), id(&session));
        let answers = tokio::spawn(async move {
            for (call, decision) in [("p1", Decision::Allow), ("p2", Decision::Deny)] {
                let asks = |update: &schema::SessionUpdate| {
                    has_status(update, ToolCallStatus::Pending)
                        && matches!(update, schema::SessionUpdate::ToolCallUpdate(update)
                            if update.tool_call_id.to_string() == call)
                };
                asked.until(asks).await;
                let chat = other.conversation_by_id(id).await.unwrap();
                let action = chat.record().action.clone().unwrap();
                let answer = ToolConfirmation::new(action.id, decision);
                chat.answer_and_run(answer).await.unwrap().finish().await.unwrap();
            }
        });
        let answer = connection.send_request(prompt(&session, "Pay.")).block_task().await.unwrap();
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
        answers.await.unwrap();
        let lines = shown(&seen.take());
        let calls: Vec<_> = lines.iter().filter(|line| line.starts_with('p')).map(String::as_str).collect();
        assert_eq!(
            calls,
            ["p1 pay Pending", "p1 Pending", "p1 Completed", "p2 pay Pending", "p2 Pending", "p2 Failed"]
        );
        assert!(lines.iter().any(|line| line.ends_with(": Paid.")), "{lines:?}");
        session
    })
    .await;
    assert_eq!(outcomes(&agent, &session).await, [ToolOutcome::Ok, ToolOutcome::Denied]);
    site.end(agent).await;
}

#[tokio::test]
async fn an_option_that_was_not_offered_answers_nothing() {
    let tool = Arc::new(Counter::default());
    let agent = Site::new("memory").agent(pays(), &tool).await;
    let session = client(AcpAgent::new(agent.clone()), Some("always"), async |connection, seen| {
        let session = created(&connection).await;
        let error = connection.send_request(prompt(&session, "Pay.")).block_task().await.unwrap_err();
        assert!(error.message.contains("always") && error.message.contains(&*session.0), "{error:?}");
        // The next prompt asks again first, and stores nothing before the answer.
        seen.take();
        let error = connection.send_request(prompt(&session, "Hello?")).block_task().await.unwrap_err();
        assert!(error.message.contains("always"), "{error:?}");
        assert!(seen.take().iter().any(|update| has_status(update, ToolCallStatus::Pending)));
        session
    })
    .await;
    let asked = log(&agent, &session).await.into_iter().filter(|event| event.kind == EventType::USER_MESSAGE);
    assert_eq!(asked.count(), 1);
    let chat = agent.conversation_by_id(id(&session)).await.unwrap();
    assert_eq!((tool.calls(), chat.record().status.state), (0, SessionState::RequiresAction));
}

/// A client that has gone wrong with its answer, and a person who types on: asked again, and then answered.
#[tokio::test]
async fn a_prompt_while_a_question_is_open_asks_again_first() {
    let tool = Arc::new(Counter::default());
    let model = ScriptedProvider::new([
        Turn::new().call("p1", "pay", empty()),
        Turn::new().text("Paid."),
        Turn::new().text("Yes?"),
    ]);
    let agent = Site::new("memory").agent(model, &tool).await;
    let session = client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        connection.send_request(prompt(&session, "Pay.")).detach();
        seen.until(|update| has_status(update, ToolCallStatus::Pending)).await;
        session
    })
    .await;
    client(AcpAgent::new(agent.clone()), Some("allow"), async |connection, seen| {
        // As a client that was not asked when it opened the session.
        let other = created(&connection).await;
        assert_ne!(other, session);
        connection.send_request(load(&session)).block_task().await.unwrap();
        seen.until(|update| has_status(update, ToolCallStatus::Completed)).await;
        let answer = loop {
            match connection.send_request(prompt(&session, "Hello?")).block_task().await {
                Ok(answer) => break answer,
                // The turn that asked again has not ended.
                Err(error) => assert!(error.message.contains("has a turn"), "{error:?}"),
            }
        };
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
    })
    .await;
    assert_eq!((tool.calls(), outcomes(&agent, &session).await), (1, vec![ToolOutcome::Ok]));
}

#[tokio::test]
async fn a_turn_is_cancelled_while_it_waits_for_permission() {
    let tool = Arc::new(Counter::default());
    let model = ScriptedProvider::new([Turn::new().call("p1", "pay", empty()), Turn::new().text("Fine.")]);
    let agent = Site::new("memory").agent(model, &tool).await;
    client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        let asked = connection.send_request(prompt(&session, "Pay."));
        seen.until(|update| has_status(update, ToolCallStatus::Pending)).await;
        connection.send_notification(schema::CancelNotification::new(session.clone())).unwrap();
        assert_eq!(asked.block_task().await.unwrap().stop_reason, StopReason::Cancelled);
        let answer = connection.send_request(prompt(&session, "Never mind.")).block_task().await.unwrap();
        assert_eq!(answer.stop_reason, StopReason::EndTurn);
    })
    .await;
    assert_eq!(tool.calls(), 0);
}

/// What is asked about is the call as it is made: whole, and with marks for what nobody sees.
#[tokio::test]
async fn a_permission_request_carries_the_whole_call() {
    let path = format!("/tmp/{}\u{200b}x\u{202e}\u{e0041}", "y".repeat(9_000));
    let input = serde_json::json!({ "path": path, "more": ["x".repeat(5_000), 7] });
    let tool = Arc::new(Counter::default());
    let model = ScriptedProvider::new([Turn::new().call("p1", "pay", RawJson::of(&input).unwrap())]);
    let agent = Site::new("memory").agent(model, &tool).await;
    client(AcpAgent::new(agent.clone()), None, async |connection, seen| {
        let session = created(&connection).await;
        connection.send_request(prompt(&session, "Pay.")).detach();
        seen.until(|update| has_status(update, ToolCallStatus::Pending)).await;
        let asked = seen.take().into_iter().find_map(|update| match update {
            schema::SessionUpdate::ToolCallUpdate(update) => Some(update.fields),
            _ => None,
        });
        let asked = asked.expect("it is asked");
        assert_eq!(asked.raw_input, Some(input.clone()));
        let content = serde_json::to_string(&asked.content.unwrap()).unwrap();
        let marked = format!("{}<U+200B>x<U+202E><U+E0041>", "y".repeat(9_000));
        assert!(content.contains(&marked) && content.contains(&"x".repeat(5_000)), "{content}");
        assert!(!content.contains("left out"), "{content}");
    })
    .await;
    assert_eq!(tool.calls(), 0);
}

/// The sentence of the host stands before the whole call.
#[tokio::test]
async fn a_permission_request_carries_the_sentence_of_the_host() {
    let tool = Arc::new(Counter::default());
    let input = RawJson::parse(r#"{"euro":120}"#).unwrap();
    let model = ScriptedProvider::new([Turn::new().call("p1", "pay", input)]);
    let builder = AgentBuilder::new().with_llm(model).with_plugin(tool.clone());
    let builder = builder.with_question("pay", |_| Some("Pay the invoice of Acme?".to_owned()));
    let agent = builder.with_storage(Site::new("memory").open().await).build().unwrap();
    client(AcpAgent::new(agent), None, async |connection, seen| {
        let session = created(&connection).await;
        connection.send_request(prompt(&session, "Pay.")).detach();
        seen.until(|update| has_status(update, ToolCallStatus::Pending)).await;
        let asked = seen.take().into_iter().find_map(|update| match update {
            schema::SessionUpdate::ToolCallUpdate(update) => Some(update.fields),
            _ => None,
        });
        let content = serde_json::to_string(&asked.expect("it is asked").content.unwrap()).unwrap();
        assert!(content.contains(r#"Pay the invoice of Acme?\n\npay {\"euro\":120}"#), "{content}");
    })
    .await;
    assert_eq!(tool.calls(), 0);
}
