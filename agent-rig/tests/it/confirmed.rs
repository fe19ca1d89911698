//! The program for people with a key, against servers that check.

use model_servers::{Item, Provider, Server, Wire};
use serde_json::json;

use crate::checks::confirm;
use crate::server::soon;
use crate::{anthropic, chat, gemini, responses};

/// Answers as a model does: calls the tool if it is asked to, and has not yet.
async fn server(wire: Wire) -> Server {
    Server::checking(Provider::new(wire), |provider, request, _| {
        let is_asked =
            request.text.contains("Use the tool look") && !request.text.contains("seven red apples");
        let answer = match is_asked {
            true => Item::Call { name: "look".to_owned(), arguments: json!({"shelf": 4}) },
            false => Item::Text("Seven apples.".to_owned()),
        };
        provider.answer(request, &[Item::Reasoning("They ask.".to_owned()), answer])
    })
    .await
}

#[tokio::test]
async fn what_a_person_with_a_key_confirms_holds_on_servers_that_check() {
    for wire in Wire::ALL {
        let server = server(wire).await;
        let model = match wire {
            Wire::Anthropic => anthropic::model(&server, "claude-opus-5-5"),
            Wire::Responses => responses::model(&server),
            Wire::Gemini => gemini::model(&server, "gemini-3-pro-preview"),
            Wire::Chat => {
                chat::model(&server, &agent_rig::rig_core::providers::openai::wire::OPENAI, "gpt-4o")
            }
        };
        let results = soon(confirm(model)).await;
        assert!(results.len() >= 7, "{wire:?}");
        for (what, held) in results {
            assert!(held.is_ok(), "{wire:?}, {what}: {held:?}");
        }
        assert_eq!(server.refusals(), [], "{wire:?}");
    }
}

/// A model that calls nothing, and a server that is away, are seen.
#[tokio::test]
async fn failed_checks_are_reported() {
    let server = Server::answering(|_| chat::text_answer("No.")).await;
    let model = chat::model(&server, &agent_rig::rig_core::providers::openai::wire::OPENAI, "gpt-4o");
    let failed = soon(confirm(model)).await.into_iter().filter(|(_, held)| held.is_err());
    assert_eq!(
        failed.map(|(what, _)| what).collect::<Vec<_>>(),
        ["a tool is called, and its result is taken"]
    );
}
