//! Refusals before anything is stored or sent: prompts without text, tools that no provider takes.

use crate::common::{Scene, read};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::Patch;
use agent_core::{ErrorKind, MemoryStore, async_trait};
use agent_runtime::context::ModelMessage;
use agent_runtime::{AgentBuilder, EchoProvider, Plugin, ScriptedProvider, ToolSpec, Turn};
use agent_tests::{Site, each_store};

/// A prompt of nothing, or of white space only, is refused by every way in, and nothing of it is stored.
async fn a_blank_prompt_is_refused(site: Site) {
    let model = ScriptedProvider::new([Turn::new().text("hello")]);
    let Scene { name, chat, .. } = Scene::new(&site, model.clone()).await;
    let before = chat.refresh().await.unwrap();
    for blank in ["", " ", "\n\t \r\n", "\u{a0}\u{2003}"] {
        let refused = [
            chat.prompt(blank).await.map(drop),
            chat.send(blank).await.map(drop),
            chat.define_outcome(blank).await,
            chat.start_child(blank, &Patch::new()).await.map(drop),
        ];
        for refused in refused {
            let error = refused.expect_err(&format!("{name} {blank:?}: it was taken"));
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name} {blank:?}: {error}");
            assert!(error.to_string().contains(&chat.id().to_string()), "{name} {blank:?}: {error}");
        }
    }
    assert_eq!(*chat.refresh().await.unwrap(), *before, "{name}");
    assert_eq!(read(chat.prompt(" hi\n").await.unwrap()).await.0, "hello", "{name}");
    assert_eq!(model.requests().len(), 1, "{name}");
}

each_store!(a_blank_prompt_is_refused);

/// A plugin with one tool.
#[derive(Debug)]
struct One(ToolSpec);

#[async_trait]
impl Plugin for One {
    fn name(&self) -> &str {
        "one"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![self.0.clone()]
    }
}

/// A tool whose name or schema a provider would refuse is named when the agent is built, each of its faults.
#[test]
fn tools_that_no_provider_accepts_are_named() {
    let build = |tool: ToolSpec| {
        AgentBuilder::new()
            .with_llm(EchoProvider::new())
            .with_storage(MemoryStore::new())
            .with_plugin(One(tool))
            .build()
    };
    let json = |text: &str| RawJson::parse(text).unwrap();
    for name in ["look", "Look_2-b", &"x".repeat(64)] {
        build(ToolSpec::new(name, "looks")).unwrap();
    }
    for name in ["bad name!", "", "größe", "a.b", "a\nb", &"x".repeat(65)] {
        let error = build(ToolSpec::new(name, "looks")).map(drop).expect_err(name);
        assert_eq!(*error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(&format!("{name:?}")) && text.contains("plugin one"), "{text}");
    }
    let good = [r#"{"type":"object"}"#, r#"{"properties":{"a":{"type":"string"}},"type":"object"}"#];
    for schema in good {
        build(ToolSpec::new("look", "looks").with_input(json(schema))).unwrap();
    }
    for schema in ["3", "{}", "[]", "null", r#""object""#, r#"{"type":"string"}"#, r#"{"type":["object"]}"#] {
        let error =
            build(ToolSpec::new("look", "looks").with_input(json(schema))).map(drop).expect_err(schema);
        assert!(error.to_string().contains("tool look"), "{error}");
        assert!(error.to_string().contains("\"type\":\"object\""), "{error}");
    }
    let both = build(ToolSpec::new("bad name!", "x").with_input(json("3"))).unwrap_err().to_string();
    assert!(both.contains("64") && both.contains("schema"), "{both}");
}

/// A blank message that an older version has stored, or that was restored, does not spoil the requests after it: the
/// model is given no message of white space only. What the agent says without text is not stored.
async fn stored_blank_message_breaks_no_request(site: Site) {
    let model = ScriptedProvider::new([Turn::new().text(" \n"), Turn::new().text("hello")]);
    let Scene { name, storage, chat, .. } = Scene::new(&site, model.clone()).await;
    let blank = vec![NewEvent::user_message(" "), NewEvent::agent_message("\n"), NewEvent::user_message("")];
    let head = chat.record().head;
    storage.sessions.append(chat.id(), head, blank).await.unwrap();
    read(chat.prompt("anybody?").await.unwrap()).await;
    read(chat.prompt("hello?").await.unwrap()).await;
    for request in model.requests() {
        for message in &request.messages {
            let text = match message {
                ModelMessage::User(_) | ModelMessage::Agent(_) => message.text(),
                other => panic!("{name}: {other:?}"),
            };
            assert!(!text.trim().is_empty(), "{name}: {:?}", request.messages);
        }
    }
    assert_eq!(model.requests()[1].messages.len(), 4, "{name}: what was asked is there");
    assert_eq!(chat.refresh().await.unwrap().counts.agent, 2, "{name}");
    assert!(chat.compact(None, " ").await.is_err(), "{name}: nor does a summary without text");
}

each_store!(stored_blank_message_breaks_no_request);
