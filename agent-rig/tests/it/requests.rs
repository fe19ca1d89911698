//! Requests: messages of all kinds, options, and the parts of a stored answer that are sent or refused.

use agent_core::event::{Media, Native, Part, ToolOutcome, ToolUse};
use agent_core::json::RawJson;
use agent_runtime::context::{AgentItem, AgentMessage, ModelMessage, ModelToolResult};
use agent_runtime::{
    Effort, FaultKind, LlmProvider, ModelEvent, ModelRequest, PartContent, ProviderFault, ToolChoice,
    ToolSpec,
};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::anthropic::{answer, model, text_answer};
use crate::server::{Answer, Server, soon};
use crate::{items, talk};

fn request(messages: Vec<ModelMessage>) -> ModelRequest {
    let mut request = ModelRequest::new(messages);
    request.max_tokens = Some(100);
    request
}

/// Body of the request that is sent.
async fn sent(name: &str, request: ModelRequest) -> Value {
    let server = Server::start([text_answer("Hi.")]).await;
    let mut stream = soon(model(&server, name).generate(request)).await.unwrap();
    while let Some(event) = soon(stream.next()).await {
        event.unwrap();
    }
    server.requests()[0].body()
}

fn call(id: &str) -> ToolUse {
    ToolUse::new(id.parse().unwrap(), "look", RawJson::constant(r#"{"at":"sea"}"#))
}

fn with_tool(mut request: ModelRequest) -> ModelRequest {
    let schema = RawJson::constant(r#"{"type":"object","properties":{"at":{"type":"string"}}}"#);
    request.tools = vec![ToolSpec::new("look", "Looks.").with_input(schema)];
    request
}

/// Anthropic caches what it is asked to, and only then.
#[tokio::test]
async fn anthropic_is_asked_to_cache_the_prompt() {
    let hello = || request(vec![ModelMessage::user(vec![Part::text("Hello")])]);
    let asked = sent("claude-opus-5-5", hello()).await;
    assert_eq!(asked["cache_control"], json!({"type": "ephemeral"}));
    let server = Server::start([text_answer("Hi.")]).await;
    let model = model(&server, "claude-opus-5-5").with_prompt_cache(false);
    let mut stream = soon(model.generate(hello())).await.unwrap();
    while let Some(event) = soon(stream.next()).await {
        event.unwrap();
    }
    assert!(!server.requests()[0].text.contains("cache_control"));
}

#[tokio::test]
async fn messages_of_every_kind_are_sent_in_their_place() {
    let mut result = ModelToolResult::new("c1".parse().unwrap(), ToolOutcome::Ok, "seen");
    result.content.push(Part::Image(Media::inline("image/png", *b"\x89PNG")));
    let failed = ModelToolResult::new("c2".parse().unwrap(), ToolOutcome::Error, "no");
    let mut request = with_tool(request(vec![
        ModelMessage::Summary("They met.".to_owned()),
        ModelMessage::agent("Hello."),
        ModelMessage::System("It rains.".to_owned()),
        ModelMessage::user(vec![
            Part::text("What is this?"),
            Part::Image(Media::inline("image/png", *b"\x89PNG")),
            Part::Image(Media::uri("image/png", "https://example.com/cat.png")),
            Part::Image(Media::inline("image/x-unknown", *b"1234").with_name("cat")),
            Part::Resource(Media::inline("application/pdf", *b"%PDF")),
        ]),
        ModelMessage::Agent(AgentMessage::from(vec![
            AgentItem::reasoning("unsigned"),
            AgentItem::text("I look."),
            AgentItem::call(call("c1")),
            AgentItem::call(call("c2")),
        ])),
        ModelMessage::ToolResults(vec![result, failed]),
    ]));
    request.system = Some("Be brief.".to_owned());
    // The first model would take system texts in their place, the second has them moved to the front.
    for name in ["claude-opus-5-5", "claude-sonnet-4-5"] {
        let body = sent(name, request.clone()).await;
        assert_eq!(body["system"], json!([{"type": "text", "text": "Be brief."}]), "{name}");
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}});
        let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {"at": "sea"}});
        let expected = json!([
            {"role": "user", "content": [text("They met.")]},
            {"role": "assistant", "content": [text("Hello.")]},
            {"role": "user", "content": [
                text("<system>\nIt rains.\n</system>"), text("What is this?"), image,
                {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.png"}},
                text("[image cat, image/x-unknown, 4 bytes]"),
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
            ]},
            {"role": "assistant", "content": [text("I look."), call("c1"), call("c2")]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("seen"), image]},
                {"type": "tool_result", "tool_use_id": "c2", "content": [text("no")], "is_error": true},
            ]},
        ]);
        assert_eq!(body["messages"], expected, "{name}");
    }
}

#[tokio::test]
async fn options_are_those_of_the_model() {
    let mut asked = with_tool(request(vec![ModelMessage::user("Hi")]));
    asked.tool_choice = ToolChoice::Tool("look".to_owned());
    let body = sent("claude-sonnet-4-5", asked.clone()).await;
    assert_eq!(body["tool_choice"], json!({"type": "tool", "name": "look"}));
    assert_eq!((&body["max_tokens"], &body["tools"][0]["name"]), (&json!(100), &json!("look")));
    asked.tool_choice = ToolChoice::None;
    assert_eq!(sent("claude-sonnet-4-5", asked).await["tool_choice"], json!({"type": "none"}));

    let mut asked = request(vec![ModelMessage::user("Hi")]);
    asked.output_schema =
        Some(RawJson::constant(r#"{"type":"object","properties":{},"additionalProperties":false}"#));
    asked.effort = Some(Effort::Minimal);
    let body = sent("claude-opus-5-5", asked.clone()).await;
    assert_eq!(body["output_config"]["format"]["type"], "json_schema");
    // The model's lowest level.
    assert_eq!(body["output_config"]["effort"], "low", "{body}");
    // A model with a number of tokens.
    asked.effort = Some(Effort::Medium);
    for (max_tokens, thinking) in [
        (100_000, json!({"type": "enabled", "budget_tokens": 8192})),
        (10_000, json!({"type": "enabled", "budget_tokens": 5000})),
        (1000, Value::Null),
    ] {
        asked.max_tokens = Some(max_tokens);
        assert_eq!(sent("claude-sonnet-4-5", asked.clone()).await["thinking"], thinking, "{max_tokens}");
    }
    // The API wants a limit. Of a model that the catalog lists it is known.
    asked.max_tokens = None;
    assert_eq!(sent("claude-of-tomorrow", asked.clone()).await["max_tokens"], json!(8192));
    assert!(
        sent("claude-opus-5-5", asked.clone()).await["max_tokens"].as_u64().is_some_and(|most| most > 8192)
    );
    // Without a level, and in a catalog that does not list the model.
    for effort in [Effort::Off, Effort::Max] {
        asked.effort = Some(effort);
        sent("claude-of-tomorrow", asked.clone()).await;
        sent("claude-sonnet-4-5", asked.clone()).await;
    }
}

fn answered(native: Native) -> ModelRequest {
    request(vec![
        ModelMessage::user("Hi"),
        ModelMessage::Agent(
            vec![AgentItem::reasoning("Hm.").with_native(native), AgentItem::text("Yes.")].into(),
        ),
        ModelMessage::user("Really?"),
    ])
}

#[tokio::test]
async fn items_that_rig_would_change_are_refused_before_sending() {
    let native = |item: &str| Native::new("anthropic.messages", RawJson::parse(item).unwrap());
    for changed in [r#"{"type":"thinking","n":1e5}"#, r#"{"type":"thinking","n":12345678901234567890123}"#] {
        let server = Server::start([text_answer("Hi.")]).await;
        let Err(error) = soon(model(&server, "claude-opus-5-5").generate(answered(native(changed)))).await
        else {
            panic!("{changed} is sent")
        };
        assert_eq!(ProviderFault::of(&error).unwrap().kind, FaultKind::ReplayRejected);
        assert!(server.requests().is_empty());
    }
    let kept = r#"{"type":"thinking","thinking":"Hm.","signature":"EqQB","n":[100000.0,1.5,18446744073709551615],"é":null}"#;
    let body = sent("claude-opus-5-5", answered(native(kept))).await;
    assert_eq!(items(&body["messages"][1]["content"])[0], kept);
}

/// With its reasoning off, a model that binds it to the system prompt and the tools is given it only if rig finds the same
/// ones.
#[tokio::test]
async fn bound_items_go_back_to_a_model_that_does_not_reason() {
    let kept = r#"{"type":"thinking","thinking":"Hm.","signature":"EqQB"}"#;
    let native = Native::new("anthropic.messages", RawJson::constant(kept));
    let mut asked = with_tool(answered(native));
    asked.system = Some("Be brief.".to_owned());
    asked.effort = Some(Effort::Off);
    let body = sent("claude-sonnet-5-5", asked).await;
    assert_eq!(body["thinking"]["type"], "between_tools", "{body}");
    assert_eq!(items(&body["messages"][1]["content"])[0], kept);
}

#[tokio::test]
async fn items_of_another_api_are_left_out() {
    let native = Native::new("openai.responses", RawJson::constant(r#"{"type":"reasoning","id":"rs_1"}"#));
    let body = sent("claude-opus-5-5", answered(native)).await;
    assert_eq!(items(&body["messages"][1]["content"]), [r#"{"type":"text","text":"Yes."}"#]);
}

/// Call that a model makes with these arguments.
async fn called(arguments: &str) -> (String, bool) {
    let events = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"look","input":{}}}"#.to_owned(),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}}).to_string(),
        r#"{"type":"content_block_stop","index":0}"#.to_owned(),
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":3}}"#.to_owned(),
    ];
    let server = Server::start([Answer::events(events.iter().map(String::as_str))]).await;
    let asked = request(vec![ModelMessage::user("Hi")]);
    let mut stream = soon(model(&server, "claude-opus-5-5").generate(asked)).await.unwrap();
    while let Some(event) = soon(stream.next()).await {
        if let ModelEvent::PartDone { part, .. } = event.unwrap()
            && let PartContent::Call(call) = part.content
        {
            return (call.input.get().to_owned(), part.native.is_some());
        }
    }
    panic!("there is no call")
}

#[tokio::test]
async fn inputs_of_calls_are_the_text_of_the_provider() {
    for (arguments, input, has_native) in [
        (r#"{"a": 1e5, "b": 1.50, "c": "\u00e9"}"#, r#"{"a":1e5,"b":1.50,"c":"\u00e9"}"#, true),
        (r#"{"id":12345678901234567890123}"#, r#"{"id":12345678901234567890123}"#, false),
        ("", "{}", true),
    ] {
        assert_eq!(called(arguments).await, (input.to_owned(), has_native));
    }
}

/// A server that refuses a signature is asked once more, without the items of earlier answers.
#[tokio::test]
async fn refused_items_cost_the_reasoning_and_not_the_session() {
    let signed = [
        json!({"type": "thinking", "thinking": "They ask.", "signature": "EqQB"}),
        json!({"type": "text", "text": "Yes."}),
    ];
    let refusal = r#"{"type":"error","error":{"type":"invalid_request_error",
        "message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#;
    let script = [answer(&signed, "end_turn"), Answer::status(400, refusal), text_answer("Still here.")];
    let server = Server::start(script).await;
    let talk = talk(model(&server, "claude-opus-5-5"), &server, &[], 3).await;
    assert_eq!(talk.reports[1].text, "Still here.");
    let content = |at: usize| items(&talk.requests[at].body()["messages"][1]["content"]);
    assert_eq!(content(1), items(&signed.to_vec().into()));
    assert_eq!(content(2), [r#"{"type":"text","text":"Yes."}"#]);
}
