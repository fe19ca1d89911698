//! Calls and their results.

use agent_core::event::{MediaSource, ToolOutcome};
use agent_mcp::McpServers;
use agent_runtime::context::ModelMessage;
use model_servers::{Provider, Request, Wire};
use serde_json::json;

use crate::common::{Site, only, output, server};

#[tokio::test]
async fn results_hold_text_media_and_data() {
    let site = Site::new(only(server("good"))).await;
    let results = site.run(&[("srv__everything", "")]).await;
    let result = &results[0];
    assert_eq!(result.outcome, ToolOutcome::Ok);
    assert_eq!(output(result), "A picture.\n[resource file:///a.txt]\ninside");
    assert_eq!(result.structured.as_ref().unwrap().get(), r#"{"pictures":1}"#);
    let tags: Vec<_> = result.content.iter().map(|part| part.tag().into_owned()).collect();
    assert_eq!(tags, ["image", "audio", "resource", "resource_link"]);
    // The log holds the picture as a blob, and the model is given its bytes.
    let picture = result.content[0].media().unwrap();
    assert!(matches!(picture.source, MediaSource::Blob { bytes: 3000, .. }), "{picture:?}");
    assert_eq!(site.chat.media_bytes(picture, 1 << 20).await.unwrap().len(), 3000);
    let requests = site.model.requests();
    let Some(ModelMessage::ToolResults(given)) = requests[1].messages.last() else {
        panic!("a result is given")
    };
    let media = given[0].content[0].media().unwrap();
    assert!(matches!(&media.source, MediaSource::Inline(bytes) if bytes.len() == 3000), "{media:?}");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn failures_and_refusals_are_failed_calls() {
    let site = Site::new(only(server("good"))).await;
    let results =
        site.run(&[("srv__fail", ""), ("srv__refuse", ""), ("srv__wrong", ""), ("srv__none", "")]).await;
    let texts: Vec<_> = results.iter().map(output).collect();
    assert!(results.iter().all(|result| result.outcome == ToolOutcome::Error), "{results:?}");
    assert_eq!(texts[0], "no such city");
    assert!(texts[1].contains("MCP server srv refused the call: text is missing (-32602)"), "{texts:?}");
    assert!(texts[2].contains("something that is no result"), "{texts:?}");
    assert!(texts[3].contains("there is no such tool"), "{texts:?}");
    // The server is still there.
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn long_results_are_shortened_and_kept() {
    let site = Site::new(only(server("good"))).await;
    let long = "0123456789".repeat(20_000);
    let results = site.run(&[("srv__echo", &long)]).await;
    assert!(output(&results[0]).len() < 40_000);
    assert_eq!(results[0].full.as_ref().unwrap().bytes, 200_000);
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn tools_are_named_by_server_and_sorted() {
    let servers = only(server("liar")).with_server("b-2", server("good")).unwrap();
    let site = Site::new(servers).await;
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    let offered = &site.offered()[0];
    assert!(offered.is_sorted() && offered.contains(&"b-2__pid".to_owned()), "{offered:?}");
    // Of the lies, what is left is the first tool of a name, and one under a name that providers take.
    let own: Vec<_> = offered.iter().filter(|name| name.starts_with("srv__")).collect();
    assert_eq!(own.len(), 2, "{own:?}");
    assert!(own[0].starts_with("srv__dotted_name_with_spaces_"), "{own:?}");
    let status = site.mcp.status(&site.agent, site.chat.id());
    assert_eq!((status[1].name.as_str(), status[1].tools, status[1].left_out), ("srv", 2, 4));
    let tool = site
        .mcp
        .offered(&site.agent, site.chat.id())
        .into_iter()
        .find(|tool| tool.name == "srv__echo")
        .unwrap();
    assert_eq!((tool.description.as_str(), tool.tool.as_str()), ("The first.", "echo"));
    site.agent.close().await.unwrap();
}

/// The protocol crate would round such a number: the server would be called with other arguments than a person allowed.
#[tokio::test]
async fn numbers_that_would_be_rounded_are_not_sent() {
    let site = Site::new(only(server("good"))).await;
    let numbers =
        ["123456789012345678901234567890", "18446744073709551616", "0.10000000000000000000001", "1e400"];
    for number in numbers {
        let results = site.run(&[("srv__echo", &format!(r#"{{"text":"a","n":{number}}}"#))]).await;
        assert_eq!(results[0].outcome, ToolOutcome::Error, "{number}: {results:?}");
        assert!(output(&results[0]).contains("64 bits do not hold"), "{number}: {results:?}");
    }
    assert_eq!(site.one("srv__echo", r#"{"text":"b","n":-9007199254740993}"#).await, "b");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn arguments_that_providers_refuse_have_other_names() {
    let site = Site::new(only(server("keys"))).await;
    site.run(&[]).await;
    let tools = site.model.requests().remove(0).tools;
    let input = |name: &str| -> serde_json::Value {
        tools.iter().find(|tool| tool.name == name).unwrap().input.to().unwrap()
    };
    let schema = input("srv__given");
    let key = schema["required"][0].as_str().unwrap().to_owned();
    let inner = schema["properties"]["in"]["properties"].as_object().unwrap().keys().next().unwrap().clone();
    let is_plain = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    assert!(schema["properties"][&key].is_object() && is_plain(&key) && is_plain(&inner), "{schema}");
    // Providers want an object at the top, and nothing beside it.
    let any = input("srv__any");
    assert!(any["properties"]["a"].is_object() && any["properties"]["b"].is_object(), "{any}");
    assert!(any["type"] == "object" && any.get("anyOf").is_none(), "{any}");
    assert_eq!(tools.iter().filter(|tool| tool.name == "srv__text").count(), 0);

    let given = json!({&key: "1", "in": {&inner: 2}}).to_string();
    assert_eq!(site.one("srv__given", &given).await, r#"{"$.xgafv":"1","in":{"a b":2}}"#);
    let twice = json!({&key: "1", "$.xgafv": "2"}).to_string();
    assert!(site.one("srv__given", &twice).await.contains("is given under two names"));

    let status = site.mcp.status(&site.agent, site.chat.id()).remove(0);
    let notes = status.notes.join("\n");
    assert!(
        notes.contains(&format!("tool \"given\": the model is given argument \"$.xgafv\" as {key}")),
        "{notes}"
    );
    assert!(notes.contains("tool \"text\" is left out: its input is no object"), "{notes}");
    assert_eq!((status.tools, status.left_out), (2, 1));
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn providers_take_the_tools_of_every_server() {
    for mode in ["good", "keys", "liar", "schemas"] {
        let site = Site::new(McpServers::new().with_server("1st", server(mode)).unwrap()).await;
        site.run(&[]).await;
        let tools = site.model.requests().remove(0).tools;
        assert!(tools.len() > 1, "{mode}");
        for wire in Wire::ALL {
            let of = |tool: &agent_runtime::ToolSpec| {
                let (name, schema): (_, serde_json::Value) = (&tool.name, tool.input.to().unwrap());
                match wire {
                    Wire::Anthropic => json!({"name": name, "input_schema": schema}),
                    Wire::Responses => json!({"type": "function", "name": name, "parameters": schema}),
                    Wire::Gemini => json!({"name": name, "parametersJsonSchema": schema}),
                    _ => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
                }
            };
            let tools: Vec<_> = tools.iter().map(of).collect();
            let messages = json!([{"role": "user", "content": "Hello"}]);
            let (path, body) = match wire {
                Wire::Anthropic => {
                    ("/v1/messages", json!({"max_tokens": 9, "tools": tools, "messages": messages}))
                }
                Wire::Responses => ("/responses", json!({"tools": tools, "input": messages})),
                Wire::Gemini => {
                    let messages = json!([{"role": "user", "parts": [{"text": "Hello"}]}]);
                    let tools = json!([{"functionDeclarations": tools}]);
                    (
                        "/v1beta/models/gemini-3:streamGenerateContent",
                        json!({"tools": tools, "contents": messages}),
                    )
                }
                _ => ("/chat/completions", json!({"tools": tools, "messages": messages})),
            };
            let checked = Provider::new(wire).check(&Request::new(path, &body));
            assert!(checked.is_ok(), "{mode}: {checked:?}");
        }
        site.agent.close().await.unwrap();
    }
}
