//! Refusals, broken answers and cancelled ones, on Anthropic's wire.

use std::time::Duration;

use agent_core::ErrorKind;
use agent_runtime::{FaultKind, LlmProvider, ModelEvent, ProviderFault};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::anthropic::{answer, model, text_answer};
use crate::server::{Answer, Server, soon};
use crate::transport::{self, request};

async fn fault(answer: Answer) -> ProviderFault {
    let server = Server::start([answer]).await;
    let Err(error) = soon(model(&server, "claude-opus-5-5").generate(request())).await else {
        panic!("it is refused")
    };
    assert_eq!(*error.kind(), ErrorKind::Provider);
    assert_eq!(server.requests().len(), 1, "rig repeats nothing");
    // Neither the prompt nor the key, in the error and in all below it.
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("SECRET"), "{shown}");
    ProviderFault::of(&error).unwrap().clone()
}

fn body(kind: &str, message: &str) -> String {
    json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
}

#[tokio::test]
async fn refusals_have_kinds_and_no_payload() {
    let echo = "your prompt was SECRET-PROMPT and your key SECRET-KEY";
    for (status, code, message, kind) in [
        (401, "authentication_error", echo, FaultKind::Auth),
        (403, "permission_error", echo, FaultKind::Auth),
        (429, "rate_limit_error", echo, FaultKind::RateLimited),
        (500, "api_error", echo, FaultKind::Overloaded),
        (529, "overloaded_error", echo, FaultKind::Overloaded),
        (400, "invalid_request_error", echo, FaultKind::InvalidRequest),
        (400, "invalid_request_error", "prompt is too long: SECRET-PROMPT", FaultKind::ContextTooLong),
        (413, "request_too_large", echo, FaultKind::ContextTooLong),
        (
            400,
            "invalid_request_error",
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            FaultKind::ReplayRejected,
        ),
    ] {
        let fault = fault(Answer::status(status, &body(code, message))).await;
        assert_eq!(fault.kind, kind, "{status} {code}");
        assert!(
            fault.text.starts_with(&format!("provider anthropic: HTTP status {status}, {code}")),
            "{fault}"
        );
    }
}

#[tokio::test]
async fn time_for_a_retry_is_read_from_the_headers() {
    let refused = Answer::status(429, &body("rate_limit_error", "slow")).with_header("retry-after", "7");
    assert_eq!(fault(refused).await.retry_after, Some(Duration::from_secs(7)));
    let refused = Answer::status(529, "").with_header("retry-after-ms", "1500");
    assert_eq!(fault(refused).await.retry_after, Some(Duration::from_millis(1500)));
}

#[tokio::test]
async fn unreachable_servers_are_network_faults() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = Server::start([]).await;
    server.url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let Err(error) = soon(model(&server, "claude-opus-5-5").generate(request())).await else {
        panic!("nobody listens")
    };
    assert_eq!(ProviderFault::of(&error).unwrap().kind, FaultKind::Network);
}

/// Events of a stream until its end, and the error that ends it.
async fn collect(server: &Server) -> (Vec<ModelEvent>, Option<ProviderFault>) {
    let mut stream = soon(model(server, "claude-opus-5-5").generate(request())).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = soon(stream.next()).await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(soon(stream.next()).await.is_none(), "the error is the end");
                return (events, Some(ProviderFault::of(&error).unwrap().clone()));
            }
        }
    }
    (events, None)
}

/// The first events of an answer that ends within its second block.
fn cut(end: Option<Value>) -> Answer {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "content": [], "model": "claude",
            "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "One."}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Tw"}}),
    ];
    events.extend(end);
    let events: Vec<_> = events.iter().map(Value::to_string).collect();
    Answer::events(events.iter().map(String::as_str))
}

#[tokio::test]
async fn broken_answers_keep_their_parts_and_end_in_a_fault() {
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "SECRET-PROMPT"}});
    for (end, kind) in [(None, FaultKind::Network), (Some(overloaded), FaultKind::Overloaded)] {
        let server = Server::start([cut(end)]).await;
        let (events, fault) = collect(&server).await;
        let fault = fault.unwrap();
        assert_eq!(fault.kind, kind);
        assert!(!fault.text.contains("SECRET"), "{fault}");
        let done: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                ModelEvent::PartDone { index, part, .. } => Some((*index, part.native.is_some())),
                _ => None,
            })
            .collect();
        assert_eq!(done, [(0, false)], "{events:?}");
        assert!(events.contains(&ModelEvent::delta(1, "Tw")));
    }
}

/// Events of an answer, and the fault that ends it, also before its first event.
async fn ended(answer: Answer) -> (Vec<ModelEvent>, Option<ProviderFault>) {
    let server = Server::start([answer]).await;
    transport::collect(&model(&server, "claude-opus-5-5")).await
}

fn is_done(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::Done { .. })
}

fn is_signed(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::PartDone { part, .. } if part.native.is_some())
}

#[tokio::test]
async fn answers_cut_at_any_byte_end_in_a_fault_or_whole() {
    let whole = answer(&crate::anthropic::blocks(), "tool_use");
    let (all, fault) = ended(whole.clone()).await;
    assert!(fault.is_none() && all.iter().filter(|event| is_signed(event)).count() == 5);
    let mut wholes = 0;
    for bytes in 0..=whole.body().len() {
        let (events, fault) = ended(whole.clone().cut(bytes)).await;
        match fault {
            None => {
                assert!(events == all, "{bytes}: {events:?}");
                wholes += 1;
            }
            Some(fault) => {
                assert!(matches!(fault.kind, FaultKind::Network | FaultKind::Other), "{bytes}: {fault:?}");
                assert!(
                    !events.iter().any(|event| is_done(event) || is_signed(event)),
                    "{bytes}: {events:?}"
                );
            }
        }
    }
    // Nothing is needed behind the reason of the end.
    assert!(wholes > 0 && wholes < 200, "{wholes}");
}

#[tokio::test]
async fn malformed_answers_are_faults_without_payload() {
    for event in [
        r#"{"type":"content_block_start","SECRET-PROMPT"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":["SECRET-PROMPT"]}}"#,
        r#"{"type":"content_block_start","index":"SECRET-PROMPT","content_block":{"type":"text","text":""}}"#,
    ] {
        let (_, fault) = ended(cut(None).with_event(event)).await;
        let fault = fault.unwrap();
        assert!(!fault.kind.is_retryable() || fault.kind == FaultKind::Network, "{fault:?}");
        assert!(!fault.text.contains("SECRET"), "{fault}");
    }
    // Not an answer at all.
    let (_, fault) = ended(Answer::status(200, "<html>SECRET-PROMPT</html>")).await;
    assert!(!fault.unwrap().text.contains("SECRET"));
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let mut server = Server::start([cut(None).hanging()]).await;
    let mut stream = soon(model(&server, "claude-opus-5-5").generate(request())).await.unwrap();
    let first = soon(stream.next()).await.unwrap().unwrap();
    assert!(matches!(first, ModelEvent::PartStarted { index: 0, .. }), "{first:?}");
    drop(stream);
    soon(server.client_left()).await;
}

#[tokio::test]
async fn dropping_the_future_closes_the_connection() {
    let mut server = Server::start([Answer::events([]).hanging()]).await;
    let model = model(&server, "claude-opus-5-5");
    let asking = tokio::spawn(async move { model.generate(request()).await.map(drop) });
    soon(async {
        while server.requests().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    asking.abort();
    soon(server.client_left()).await;
    assert!(soon(asking).await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn parts_are_numbered_without_gaps_and_stream_in_pieces() {
    let blocks = [
        json!({"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}),
        json!({"type": "text", "text": ""}),
        json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sea"}}),
    ];
    let server = Server::start([answer(&blocks, "tool_use")]).await;
    let (events, fault) = collect(&server).await;
    assert_eq!(fault, None);
    let shape: Vec<_> = events
        .iter()
        .map(|event| match event {
            ModelEvent::PartStarted { index, kind, .. } => format!("{index} {kind:?}"),
            ModelEvent::Delta { index, text, .. } => format!("{index} {text}"),
            ModelEvent::PartDone { index, part, .. } => format!("{index} done {:?}", part.kind()),
            ModelEvent::Done { stop, .. } => format!("{stop:?}"),
            other => format!("{other:?}"),
        })
        .collect();
    let expected =
        ["0 Reasoning", "0 Hm.", "1 Call", r#"1 {"at":"sea"}"#, "0 done Reasoning", "1 done Call", "EndTurn"];
    assert_eq!(
        shape.iter().filter(|it| *it != "Ping").collect::<Vec<_>>(),
        expected.iter().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn refused_and_cut_answers_are_reported() {
    use agent_runtime::StopReason::{MaxTokens, Refusal};
    for (stop, expected) in [("max_tokens", MaxTokens), ("refusal", Refusal)] {
        let server = Server::start([answer(&[json!({"type": "text", "text": "I"})], stop)]).await;
        let (events, fault) = collect(&server).await;
        assert_eq!(fault, None);
        assert!(
            matches!(events.last(), Some(ModelEvent::Done { stop, .. }) if *stop == expected),
            "{events:?}"
        );
    }
    let server = Server::start([answer(&[], "a_reason_of_tomorrow")]).await;
    let Err(error) = soon(model(&server, "claude-opus-5-5").generate(request())).await else {
        panic!("the reason is not known")
    };
    // It could be any text, the key too.
    assert!(error.to_string().ends_with("ended for another reason: an unknown one"), "{error}");
}

#[tokio::test]
async fn key_goes_into_its_header_only() {
    let server = Server::start([text_answer("Hi.")]).await;
    let (_, fault) = collect(&server).await;
    assert_eq!(fault, None);
    let request = &server.requests()[0];
    assert!(request.head.contains("x-api-key: SECRET-KEY"), "{}", request.head);
    assert!(!request.text.contains("SECRET-KEY") && !request.path.contains("SECRET"));
}
