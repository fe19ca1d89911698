//! HTTP between us and a model's server: redirects, answers that are none, and false sizes.

use agent_rig::RigProvider;
use agent_rig::rig_core::providers::openai::wire::OPENAI;
use agent_runtime::context::ModelMessage;
use agent_runtime::{FaultKind, LlmProvider, ModelEvent, ModelRequest, PartContent, ProviderFault, Usage};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::server::{Answer, Server, soon};
use crate::{anthropic, chat, gemini, responses};

/// The same server as each API.
pub(crate) fn models(server: &Server) -> [RigProvider; 4] {
    [
        anthropic::model(server, "claude-opus-5-5"),
        responses::model(server),
        gemini::model(server, "gemini-3-pro"),
        chat::model(server, &OPENAI, "gpt-4o"),
    ]
}

pub(crate) fn request() -> ModelRequest {
    let mut request = ModelRequest::new(vec![ModelMessage::user("SECRET-PROMPT")]);
    request.max_tokens = Some(100);
    request
}

/// Events of an answer, and the fault that ends it.
pub(crate) async fn collect(model: &RigProvider) -> (Vec<ModelEvent>, Option<ProviderFault>) {
    let mut events = Vec::new();
    let mut stream = match soon(model.generate(request())).await {
        Ok(stream) => stream,
        Err(error) => return (events, ProviderFault::of(&error).cloned()),
    };
    while let Some(event) = soon(stream.next()).await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, ProviderFault::of(&error).cloned()),
        }
    }
    (events, None)
}

/// A key and a conversation go to the address that was configured, and to no other.
#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Server::answering(|_| Answer::status(200, "{}")).await;
    for status in [301, 302, 303, 307, 308] {
        let place = format!("{}/v1/messages", other.url);
        let server =
            Server::answering(move |_| Answer::status(status, "").with_header("location", &place)).await;
        for model in models(&server) {
            let (_, fault) = collect(&model).await;
            let fault = fault.unwrap();
            assert!(fault.text.contains(&format!("HTTP status {status}, which sends to another")), "{fault}");
            assert!(!fault.kind.is_retryable(), "{fault:?}");
        }
        assert_eq!(server.requests().len(), 4);
    }
    assert_eq!(other.requests(), []);
}

/// A page of a login, an error as JSON and a whole answer are no lost connection, which would be asked for again.
#[tokio::test]
async fn answers_that_are_no_stream_are_not_asked_for_again() {
    let page = Answer::status(200, "<html>Log in</html>").with_type("text/html; charset=utf-8");
    let error = Answer::status(200, r#"{"error":{"message":"no such project","code":"invalid_value"}}"#);
    let whole = Answer::status(
        200,
        r#"{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"}}]}"#,
    );
    for (answer, texts) in [(page, None), (error, Some("no such project")), (whole, None)] {
        let server = Server::answering(move |_| answer.clone()).await;
        for model in models(&server) {
            let (_, fault) = collect(&model).await;
            let fault = fault.unwrap();
            assert!(!fault.kind.is_retryable() && fault.text.contains("no stream of events"), "{fault:?}");
            assert_eq!(fault.said(), texts);
        }
    }
}

/// What a provider says of a refusal is at hand for the person, and in no text of the fault.
#[tokio::test]
async fn words_of_a_refusal_are_apart_from_its_text() {
    let body =
        json!({"error": {"message": "model `SECRET` is not there", "code": "SECRET-KEY", "type": "SECRET"}});
    let server = Server::answering(move |_| Answer::status(404, &body.to_string())).await;
    for model in models(&server) {
        let (_, fault) = collect(&model).await;
        let fault = fault.unwrap();
        assert_eq!(fault.said(), Some("model `SECRET` is not there"));
        assert!(!format!("{fault} {fault:?}").contains("SECRET"), "{fault:?}");
    }
}

#[tokio::test]
async fn an_account_without_credit_is_not_asked_again() {
    for (status, code, message) in [
        (
            429,
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        (400, "invalid_request_error", "Your credit balance is too low to access the API."),
        (402, "invalid_request_error", "Insufficient Balance"),
    ] {
        let body = json!({"error": {"message": message, "type": code, "code": code}}).to_string();
        let server = Server::answering(move |_| Answer::status(status, &body)).await;
        for model in models(&server) {
            assert_eq!(collect(&model).await.1.unwrap().kind, FaultKind::Quota, "{status} {code}");
        }
    }
}

/// In the words of each provider.
#[tokio::test]
async fn requests_that_are_too_long_are_understood() {
    for message in [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        "Your input exceeds the context window of this model.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "Invalid request: Your request exceeded model token limit: 262144",
        "Input is too long for requested model.",
        "Please reduce the length of the messages or completion.",
        "the request exceeds the available context size, try increasing it",
    ] {
        let body = json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
        let server = Server::answering(move |_| Answer::status(400, &body)).await;
        for model in models(&server) {
            assert_eq!(collect(&model).await.1.unwrap().kind, FaultKind::ContextTooLong, "{message}");
        }
    }
}

/// Where the catalog knows how much the model takes, no words are needed.
#[tokio::test]
async fn a_request_beyond_the_models_context_is_too_long_in_any_words() {
    let server = Server::answering(|_| Answer::status(400, r#"{"error":{"message":"No."}}"#)).await;
    let kind = async |name: &str, bytes: usize| {
        let request = ModelRequest::new(vec![ModelMessage::user("a b ".repeat(bytes / 4))]);
        let refused = soon(chat::model(&server, &OPENAI, name).generate(request)).await.err().unwrap();
        ProviderFault::of(&refused).unwrap().kind
    };
    assert_eq!(kind("gpt-4", 40_000).await, FaultKind::ContextTooLong);
    assert_eq!(kind("gpt-4", 20_000).await, FaultKind::InvalidRequest);
    assert_eq!(kind("a-model-that-no-catalog-has", 40_000).await, FaultKind::InvalidRequest);
}

/// An answer with these events of Anthropic's wire between its beginning and its end.
fn with(events: &[Value], usage: &str) -> Answer {
    let mut all = vec![
        r#"{"type":"message_start","message":{"id":"msg_1","content":[],"model":"claude","usage":{"input_tokens":1}}}"#.to_owned(),
    ];
    all.extend(events.iter().map(Value::to_string));
    all.push(format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#));
    all.push(r#"{"type":"message_stop"}"#.to_owned());
    Answer::events(all.iter().map(String::as_str))
}

/// A number of a provider makes no room.
#[tokio::test]
async fn numbers_of_parts_are_bounded() {
    let anthropic = with(
        &[
            json!({"type": "content_block_start", "index": 4_000_000_000_u64, "content_block": {"type": "text", "text": ""}}),
        ],
        "{}",
    );
    let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 4_000_000_000_u64, "id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}}]});
    let item = json!({"type": "response.output_item.added", "output_index": 4_000_000_000_u64, "item": {"type": "message", "id": "m", "content": []}});
    for (at, answer) in [
        (0, anthropic),
        (1, Answer::events([&*item.to_string()])),
        (3, Answer::events([&*chunk.to_string()])),
    ] {
        let server = Server::answering(move |_| answer.clone()).await;
        let (_, fault) = collect(&models(&server)[at]).await;
        let fault = fault.unwrap();
        assert!(fault.text.contains("numbers a part above 4096"), "{at}: {fault}");
        assert!(!fault.kind.is_retryable());
    }
}

/// Counts of tokens that no answer has are left out, and the answer counts.
#[tokio::test]
async fn counts_of_tokens_are_believed_where_they_can_be() {
    let messages = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi."}}),
        json!({"type": "content_block_stop", "index": 0}),
    ];
    for usage in [
        r#"{"output_tokens":1e30}"#,
        r#"{"output_tokens":18446744073709551615,"input_tokens":18446744073709551615}"#,
        r#"{"output_tokens":-5}"#,
    ] {
        let server = Server::start([with(&messages, usage)]).await;
        let (events, fault) = collect(&models(&server)[0]).await;
        assert_eq!(fault, None, "{usage}");
        let Some(ModelEvent::Done { usage: counted, .. }) = events.last() else { panic!("{events:?}") };
        assert!(counted.output_tokens < 10 && counted.input_tokens < 10, "{usage}: {counted:?}");
        let _ = models(&server)[0].cost(Usage::new(u64::MAX, u64::MAX));
    }
}

/// Arguments and events are nested as deeply as they can be stored.
#[tokio::test]
async fn nesting_is_bounded_while_it_is_read() {
    let deep = "[".repeat(20_000);
    let pieces: Vec<_> =
        deep.as_bytes().chunks(50).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
    let mut anthropic = vec![
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "look", "input": {}}}),
    ];
    anthropic.extend(pieces.iter().map(|piece| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}})));
    let chat: Vec<_> = pieces.iter().map(|piece| json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": piece}}]}}]}).to_string()).collect();
    let whole = json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": deep}}).to_string();
    let event =
        format!(r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"look","args":{deep}"#);
    for (at, answer) in [
        (0, with(&anthropic, "{}")),
        (1, Answer::events([&*whole])),
        (2, Answer::events([&*event])),
        (3, Answer::events(chat.iter().map(String::as_str))),
    ] {
        let server = Server::answering(move |_| answer.clone()).await;
        let (_, fault) = collect(&models(&server)[at]).await;
        assert!(
            fault.as_ref().is_some_and(|fault| fault.text.contains("more than 100 levels")),
            "{at}: {fault:?}"
        );
    }
}

/// Halves of surrogate pairs, and bytes that are no UTF-8, do not end an answer.
#[tokio::test]
async fn broken_characters_are_replaced() {
    let messages = |text: &str| {
        format!(r#"{{"choices":[{{"index":0,"delta":{{"role":"assistant","content":"{text}"}}}}]}}"#)
    };
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}).to_string();
    let script = [messages(r"a\ud83d"), messages(r"\ude00b\ud83d\ude00"), messages(r"\\ud83d"), end];
    let server =
        Server::start([Answer::events(script.iter().map(String::as_str)).with_event("[DONE]")]).await;
    let (events, fault) = collect(&models(&server)[3]).await;
    assert_eq!(fault, None);
    assert_eq!(text(&events), "a\u{fffd}\u{fffd}b😀\\ud83d");
    let bytes = messages("a?b").into_bytes().into_iter().map(|byte| if byte == b'?' { 0xff } else { byte });
    let server =
        Server::start([Answer::events([&*json!({"choices": []}).to_string()]).with_bytes(bytes)]).await;
    assert_eq!(text(&collect(&models(&server)[3]).await.0), "a\u{fffd}b");
}

fn text(events: &[ModelEvent]) -> String {
    let pieces = events.iter().filter_map(|event| match event {
        ModelEvent::Delta { text, .. } => Some(&**text),
        _ => None,
    });
    pieces.collect()
}

/// A long line costs its length: an image of 30 MB, in small pieces of the connection.
#[tokio::test]
async fn a_long_line_costs_its_length() {
    let image = "A".repeat(40 << 20);
    let event = format!(
        r#"{{"candidates":[{{"content":{{"role":"model","parts":[{{"inlineData":{{"mimeType":"image/png","data":"{image}"}}}}]}},"finishReason":"STOP"}}]}}"#
    );
    let server = Server::start([Answer::events([&*event])]).await;
    let (events, fault) = collect(&models(&server)[2]).await;
    assert_eq!(fault, None);
    let media = events.iter().find_map(|event| match event {
        ModelEvent::PartDone { part, .. } => match &part.content {
            PartContent::Part(part) => part.media(),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(media.unwrap().media_type, "image/png");
}

/// An answer of Anthropic's wire with this body.
async fn raw(body: String) -> Option<ProviderFault> {
    let server = Server::start([Answer::status(200, &body).with_type("text/event-stream")]).await;
    collect(&models(&server)[0]).await.1
}

/// What rig reads is what is checked: numbers that are texts, what stands behind a mark of the byte order, and texts that are
/// JSON for the reader of JSON.
#[tokio::test]
async fn nothing_is_hidden_from_the_checks() {
    let block =
        r#"{"type":"content_block_start","index":4000000000,"content_block":{"type":"text","text":""}}"#;
    let as_text = block.replace("4000000000", "\" 4000000000\"");
    let hidden = serde_json::to_string(block).unwrap();
    for (body, why) in [
        (format!("data: {as_text}\n\n"), "numbers a part above 4096"),
        (format!("\u{feff}data: {block}\n\n"), "numbers a part above 4096"),
        (format!("\r\ndata:{block}\r\r"), "numbers a part above 4096"),
        (format!("data: {{\"$serde_json::private::RawValue\":{hidden}}}\n\n"), "hides JSON"),
        (format!("data: {{\"\\u0024serde_json::private::RawValue\":{hidden}}}\n\n"), "hides JSON"),
    ] {
        let fault = raw(body.clone()).await.unwrap();
        assert!(fault.text.contains(why), "{body}: {fault}");
    }
    let values = |count| format!("[{}]", vec!["0"; count].join(","));
    let fault = raw(format!("data: {{\"type\":\"ping\",\"e\":{}}}\n\n", values(66_000))).await.unwrap();
    assert!(fault.text.contains("more than 65536 values"), "{fault}");
    let many = values(60_000);
    let delta = format!(
        r#"data: {{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"x","e":{many}}}}}"#
    );
    let fault = raw(vec![delta; 10].join("\n\n") + "\n\n").await.unwrap();
    assert!(fault.text.contains("more items"), "{fault}");
}

/// Sound answers in odd clothes are read: a list of citations that is empty in each piece, a missing type, lines of JSON with
/// the type of events.
#[tokio::test]
async fn sound_answers_in_odd_clothes_are_read() {
    let piece = r#"{"choices":[{"index":0,"delta":{"content":"x","annotations":[]}}]}"#;
    let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let server =
        Server::start([Answer::events(vec![piece; 20_000].into_iter().chain([end, "[DONE]"]))]).await;
    let (events, fault) = collect(&models(&server)[3]).await;
    assert_eq!((fault, text(&events).len()), (None, 20_000));
    let line =
        r#"{"model":"q","message":{"role":"assistant","content":"Hi."},"done":true,"done_reason":"stop"}"#;
    let server = Server::start([Answer::lines([line]).with_type("text/event-stream")]).await;
    let (events, fault) = collect(&chat::ollama_model(&server)).await;
    assert_eq!((fault, &*text(&events)), (None, "Hi."));
}
