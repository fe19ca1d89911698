//! Sentences of a host with which people are asked about calls, instead of the calls themselves.

use agent_core::event::{Decision, ToolConfirmation};
use agent_core::model::PendingAction;
use agent_core::{Storage, WorkspaceId};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{AgentBuilder, Conversation, ScriptedProvider, ToolMode, Turn, schemars, tool};
use agent_tests::{Site, each_store};

use crate::common::{Tools, awaited, check_log, device, json, read};

async fn asked(chat: &Conversation) -> PendingAction {
    awaited(read(chat.prompt("go").await.unwrap()).await.1.outcome)
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Payment {
    to: String,
    euro: u32,
}

fn builder(storage: &Storage, model: &ScriptedProvider) -> AgentBuilder {
    let pay = tool("pay", "Pays an invoice.", |_: Payment, _| async { Ok::<_, String>("paid") })
        .with_mode(ToolMode::Confirm)
        .with_question(|Payment { to, euro }| format!("Pay {euro} EUR to {to}?"));
    AgentBuilder::new().with_llm(model.clone()).with_storage(storage.clone()).with_tool(pay)
}

/// A person reads the tool's sentence about each call, from the log too; the host's own comes first.
async fn a_person_is_asked_with_the_sentence_of_the_host(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let call = |id: &str, to: &str| (id.to_owned(), json(&format!(r#"{{"to":"{to}","euro":120}}"#)));
    let turn = [call("a", "Acme"), call("b", "Umbrella"), call("c", "Initech")];
    let turn = turn.into_iter().fold(Turn::new(), |turn, (id, input)| turn.call(&id, "pay", input));
    let model = ScriptedProvider::new([turn, Turn::new().text("done")]);
    let chat = builder(&storage, &model).build().unwrap().open(&device("laptop")).await.unwrap();
    let first = asked(&chat).await;
    assert_eq!(first.question, "Pay 120 EUR to Acme?", "{name}");

    let agent = builder(&site.open().await, &model)
        .with_question("pay", |call| {
            let Payment { to, .. } = call.input.to().ok()?;
            (to == "Umbrella").then(|| format!("Really pay {to}?"))
        })
        .build()
        .unwrap();
    let chat = agent.conversation_by_id(chat.id()).await.unwrap();
    assert_eq!(chat.record().action.as_ref(), Some(&first), "{name}: every surface has the same");
    let allow = |action: PendingAction| ToolConfirmation::new(action.id, Decision::Allow);
    let run = chat.answer_and_run(allow(first)).await.unwrap();
    let second = awaited(run.finish().await.unwrap().outcome);
    assert_eq!(second.question, "Really pay Umbrella?", "{name}");
    let call = chat.pending_call().await.unwrap().expect("the call waits");
    assert_eq!(call.input.get(), r#"{"to":"Umbrella","euro":120}"#, "{name}: the whole call is there");
    let run = chat.answer_and_run(allow(second)).await.unwrap();
    let third = awaited(run.finish().await.unwrap().outcome);
    assert_eq!(third.question, "Pay 120 EUR to Initech?", "{name}: the host leaves it to the tool");
    check_log(&chat).await;
}

each_store!(a_person_is_asked_with_the_sentence_of_the_host and files);

/// A sentence is on one line, without characters that nobody sees and values of secrets, and bounded. One that is empty,
/// missing or panics leaves the question as it is without.
#[tokio::test]
async fn a_sentence_is_stored_like_other_text() {
    let key = "ghp_0123456789";
    let (input, own) =
        (json(r#"{"key":"ghp_0123456789"}"#), json(r#"{"question":"Which?","choices":["red"]}"#));
    let long = "x".repeat(5_000);
    let shortened = PendingAction::shortened(long.clone(), PendingAction::QUESTION_MAX_BYTES);
    let control = format!("Use\n{key}\u{1b}[2J?");
    let plain = r#"May delete {"key":"(secret github)"}"#;
    let cases = [
        ("delete", &input, Some(&*control), "Use<U+000A>(secret github)<U+001B>[2J?"),
        ("delete", &input, Some(&long), &shortened),
        ("delete", &input, Some(" \n"), plain),
        ("delete", &input, Some("panic"), plain),
        ("delete", &input, None, plain),
        ("ask_person", &own, None, "Which?"),
        ("ask_person", &own, Some("A colour, please"), "A colour, please"),
        ("measure", &input, Some("Measure, please"), "Measure, please"),
    ];
    for (tool, input, sentence, expected) in cases {
        let model = ScriptedProvider::new([Turn::new().call("c", tool, input.clone())]);
        let secret: SecretName = "github".parse().unwrap();
        let secrets = Secrets::new(
            [(secret.clone(), Secret::new(key).unwrap())]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>(),
        );
        secrets.reveal(WorkspaceId::DEFAULT, &secret).await.unwrap();
        let shown = sentence.map(str::to_owned);
        let tools =
            [("delete", ToolMode::Confirm), ("ask_person", ToolMode::Ask), ("measure", ToolMode::Outside)];
        let agent = AgentBuilder::new()
            .with_llm(model)
            .with_storage(agent_core::MemoryStore::new())
            .with_plugin(Tools::new(tools))
            .with_secrets(secrets)
            .with_question(tool, move |call| {
                assert!(!call.input.get().contains("ghp_"), "{call:?}");
                assert_ne!(shown.as_deref(), Some("panic"));
                shown.clone()
            })
            .build()
            .unwrap();
        let chat = agent.open(&device("laptop")).await.unwrap();
        let action = asked(&chat).await;
        assert_eq!(action.question, expected, "{tool} {sentence:?}");
        assert_eq!(chat.refresh().await.unwrap().action.as_ref(), Some(&action), "{tool} {sentence:?}");
        assert_eq!(action.choices.len(), usize::from(tool == "ask_person"), "{tool} {sentence:?}");
    }
}
