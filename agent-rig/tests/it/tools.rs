//! Calls of tools that are not as they should be, on each wire: what is executed, what is stored, and what is sent back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::MemoryStore;
use agent_core::event::{EventPayload, Media, Part, ToolOutcome, ToolUse};
use agent_core::json::RawJson;
use agent_core::store::ReadEvents;
use agent_rig::RigProvider;
use agent_rig::rig_core::providers::openai::wire::OPENAI;
use agent_runtime::context::{AgentItem, AgentMessage, ModelMessage, ModelToolResult};
use agent_runtime::{AgentBuilder, Config, LlmProvider, ModelRequest, Tool, ToolContext, ToolSpec, tool};
use futures::StreamExt;
use model_servers::{Item, Provider, Wire};
use serde_json::json;

use crate::server::{Answer, Request, Server, soon};
use crate::{Any, anthropic, chat, gemini, responses};

fn model_of(wire: Wire, server: &Server) -> RigProvider {
    match wire {
        Wire::Anthropic => anthropic::model(server, "claude-opus-5-5"),
        Wire::Responses => responses::model(server),
        Wire::Gemini => gemini::model(server, "gemini-3-pro"),
        Wire::Chat => chat::model(server, &OPENAI, "gpt-4o"),
    }
}

/// An answer that calls a tool with arguments as they stand; `None` where the API gives an object.
fn calls(wire: Wire, name: &str, arguments: &str) -> Option<Answer> {
    let start = r#"{"type":"message_start","message":{"id":"msg_1","content":[],"model":"claude","usage":{"input_tokens":1}}}"#;
    let events = match wire {
        Wire::Anthropic => vec![
            start.to_owned(),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}}).to_string(),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}}).to_string(),
            json!({"type": "content_block_stop", "index": 0}).to_string(),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}).to_string(),
            json!({"type": "message_stop"}).to_string(),
        ],
        Wire::Responses => {
            let item = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments, "status": "completed"});
            vec![
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": ""}}).to_string(),
                json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": arguments}).to_string(),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}).to_string(),
                json!({"type": "response.completed", "response": {"id": "resp_1", "object": "response", "model": "gpt-5.5", "status": "completed", "output": [item], "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}}).to_string(),
            ]
        }
        Wire::Gemini => return None,
        Wire::Chat => {
            let call = json!([{"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}]);
            return Some(model_servers::chat::answer(&[json!({"role": "assistant", "tool_calls": call})], "tool_calls"));
        }
    };
    Some(Answer::events(events.iter().map(String::as_str)))
}

/// What a conversation came to.
struct Talk {
    /// How often the tool was called.
    called: usize,
    payloads: Vec<EventPayload>,
    requests: Vec<Request>,
}

/// Asks twice: the first answer is given, then one text each, by a provider that checks all requests.
async fn talk(wire: Wire, first: Answer, tool: impl FnOnce(Arc<AtomicUsize>) -> Tool) -> Talk {
    let mut first = Some(first);
    let server = Server::checking(Provider::new(wire).trusting(), move |provider, request, _| {
        first.take().unwrap_or_else(|| provider.answer(request, &[Item::Text("Well.".into())]))
    })
    .await;
    let called = Arc::new(AtomicUsize::new(0));
    let builder = AgentBuilder::new().with_llm(model_of(wire, &server)).with_storage(MemoryStore::new());
    let config = Config::new().with_max_tokens(1024).with_model_retries(0);
    let agent = builder.with_config(config).with_tool(tool(called.clone())).build().unwrap();
    let chat = agent.conversation("test").await.unwrap();
    for _ in 0..2 {
        let report = soon(soon(chat.prompt("Look.")).await.unwrap().finish()).await.unwrap();
        assert_eq!(report.text, "Well.", "{wire:?}: {report:?}");
    }
    assert_eq!(server.refusals(), [], "{wire:?}");
    let session = chat.refresh().await.unwrap();
    let page = agent.storage().sessions.read(session.id, ReadEvents::default()).await.unwrap();
    let payloads = page.events.iter().map(|event| event.decode().unwrap()).collect();
    Talk { called: called.load(Ordering::SeqCst), payloads, requests: server.requests() }
}

fn counting(name: &'static str) -> impl FnOnce(Arc<AtomicUsize>) -> Tool {
    move |called| {
        tool(name, "A tool.", move |_: Any, _: ToolContext| {
            called.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, String>("done") }
        })
    }
}

/// What a model wrote that is no JSON object is not executed in another form: the result says what is wrong, the log has
/// the text, and the provider gets an object.
#[tokio::test]
async fn arguments_that_are_no_object_are_not_executed() {
    for arguments in [
        r#"{"command":"rm -rf /home/me/proj"#,
        r#"{"path":"/data","filter":"a\ud83d"}"#,
        r#"{"a":1}{"b":2}"#,
        "[1]",
        "not json",
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":1,"b":2}}"#,
        r#"{"a":1,}"#,
        r#"{"a":1e999}"#,
        r#""{}""#,
    ] {
        for wire in [Wire::Anthropic, Wire::Responses, Wire::Chat] {
            let talk = talk(wire, calls(wire, "look", arguments).unwrap(), counting("look")).await;
            assert_eq!(talk.called, 0, "{wire:?}: {arguments}");
            let call = talk.payloads.iter().find_map(|payload| match payload {
                EventPayload::AgentToolUse(call) => Some(call.clone()),
                _ => None,
            });
            let call = call.unwrap();
            assert_eq!((call.malformed.as_deref(), call.input.get()), (Some(arguments), "{}"), "{wire:?}");
            assert!(call.native.is_none());
            let result = talk.payloads.iter().find_map(|payload| match payload {
                EventPayload::AgentToolResult(result) => Some(result.clone()),
                _ => None,
            });
            let result = result.unwrap();
            assert_eq!(result.outcome, ToolOutcome::Error);
            assert!(
                result.output.get().contains("are no JSON object")
                    && result.output.get().contains("line 1 column"),
                "{result:?}"
            );
            // It is what the model is told, and what it said itself is an object.
            assert!(talk.requests[1].text.contains("are no JSON object"), "{wire:?}");
        }
    }
}

/// Where a call comes as an object, its event is read strictly: rig takes the last of two members, and half of a character
/// is none that the model said.
#[tokio::test]
async fn arguments_as_objects_are_read_strictly() {
    for (arguments, why) in [
        (r#"{"a":1,"a":2}"#, "named twice"),
        (r#"{"path":"/data","filter":"a\ud83d"}"#, "part of a character"),
        (r#"{"$serde_json::private::RawValue":"{}"}"#, "hides JSON"),
    ] {
        let call = format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{{"functionCall":{{"name":"look","args":{arguments}}},"thoughtSignature":"c2ln"}}]}},"finishReason":"STOP"}}]}}"#
        );
        let server = Server::start([Answer::events([&*call])]).await;
        let (_, fault) = crate::transport::collect(&model_of(Wire::Gemini, &server)).await;
        assert!(fault.as_ref().is_some_and(|fault| fault.text.contains(why)), "{fault:?}");
    }
}

/// Names that a model invented go back in a form that the provider takes; the log has the model's own.
#[tokio::test]
async fn names_that_a_model_invented_are_not_refused_later() {
    for name in ["functions.clock", "no such tool", "9", "Überblick"] {
        for wire in Wire::ALL {
            let answer = calls(wire, name, "{}").unwrap_or_else(|| {
                gemini::answer(&[
                    json!({"functionCall": {"name": name, "args": {}}, "thoughtSignature": "c2ln"}),
                ])
            });
            let talk = talk(wire, answer, counting("look")).await;
            let stored = talk
                .payloads
                .iter()
                .any(|payload| matches!(payload, EventPayload::AgentToolUse(call) if call.name == name));
            assert!(stored, "{wire:?} {name}: {:?}", talk.payloads);
        }
    }
}

/// A result that is a picture alone, or nothing, goes without an empty text.
#[tokio::test]
async fn results_have_no_empty_text() {
    let picture = || Part::Image(Media::inline("image/png", *b"\x89PNG\r\n\x1a\n...."));
    for (text, part) in [("", Some(picture())), ("", None), (" \n", None), (" \n", Some(picture()))] {
        for wire in Wire::ALL {
            let server = Server::checking(Provider::new(wire).trusting(), |provider, request, _| {
                provider.answer(request, &[Item::Text("Well.".into())])
            })
            .await;
            let call = ToolUse::new("call_1".parse().unwrap(), "look", RawJson::empty_object());
            let mut result = ModelToolResult::new(call.call.clone(), ToolOutcome::Ok, text);
            result.content.extend(part.clone());
            let mut request = ModelRequest::new(vec![
                ModelMessage::user("Look."),
                ModelMessage::Agent(AgentMessage::from(vec![AgentItem::call(call)])),
                ModelMessage::ToolResults(vec![result]),
            ]);
            request.max_tokens = Some(100);
            // Without tools rig would write the call and its result as texts.
            request.tools = vec![ToolSpec::new("look", "Looks.")];
            let mut stream = soon(model_of(wire, &server).generate(request)).await.unwrap();
            while let Some(event) = soon(stream.next()).await {
                event.unwrap();
            }
            assert_eq!(server.refusals(), [], "{wire:?}");
        }
    }
}
