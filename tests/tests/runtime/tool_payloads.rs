//! Tool payloads in the log: everything, or only calls and outcomes; and the model context of each.

use std::sync::Arc;

use crate::common::{agent_with, calls, check_log, device, log, read};
use agent_core::event::{Decision, ToolConfirmation, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{Patch, ToolPayloads};
use agent_core::{Result, async_trait};
use agent_runtime::context::{Messages, ModelMessage};
use agent_runtime::{
    Config, Conversation, Plugin, RunOutcome, ScriptedProvider, ToolContext, ToolMode, ToolPolicy, ToolSpec,
    Turn,
};
use agent_tests::{Site, each_store};

const GIVEN: &str = "what-the-tool-was-given";
const GAVE: &str = "what-the-tool-gave";

#[derive(Debug)]
struct Tools;

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("look", "looks"), ToolSpec::new("delete", "deletes").with_mode(ToolMode::Confirm)]
    }

    async fn call(&self, _: &str, input: RawJson, _: ToolContext) -> Result<RawJson> {
        assert!(input.get().contains(GIVEN), "it is given its input: {}", input.get());
        RawJson::of(&GAVE)
    }
}

fn given() -> RawJson {
    RawJson::of(&serde_json::json!({ "text": GIVEN })).unwrap()
}

/// How often a text stands in the log.
async fn count(chat: &Conversation, text: &str) -> usize {
    log(chat).await.iter().filter(|event| event.to_json().contains(text)).count()
}

fn tools_of(messages: &Messages) -> usize {
    let is_tool = |message: &&ModelMessage| match message {
        ModelMessage::Agent(message) => message.calls().next().is_some(),
        ModelMessage::ToolResults(_) => true,
        _ => false,
    };
    messages.iter().filter(is_tool).count()
}

/// By the host's choice a log keeps what tools are given and give, or not: then not a byte of it is in the log, the run
/// itself goes on with all of it, and later runs are given the texts. The choice is recorded in the session and holds for
/// it under each later configuration of the host; a patch of the session changes it.
async fn tool_payload_policy_is_stored_in_the_session(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for keep in [ToolPayloads::Store, ToolPayloads::Omit] {
        let turn = || Turn::new().text("I look.").call("l", "look", given());
        let model = ScriptedProvider::new([
            turn(),
            Turn::new().text("seen"),
            turn(),
            Turn::new().text("seen again"),
            turn(),
            Turn::new().text("seen at last"),
        ]);
        let agent = |keep| {
            agent_with(
                &storage,
                model.clone(),
                Config::default().with_tool_payloads(keep),
                [Arc::new(Tools) as _],
            )
        };
        let chat = agent(keep).open(&device(keep.as_str())).await.unwrap();
        read(chat.prompt("go").await.unwrap()).await;
        let now = chat.refresh().await.unwrap();
        assert_eq!(now.attributes.tool_payloads, Some(keep), "{name}: recorded");
        let there = usize::from(keep == ToolPayloads::Store);
        assert_eq!((count(&chat, GIVEN).await, count(&chat, GAVE).await), (there, there), "{name} {keep}");
        let made = calls(&chat).await;
        assert_eq!(
            (made[0].0.name.as_str(), made[0].1[0].outcome),
            ("look", ToolOutcome::Ok),
            "{name} {keep}"
        );
        let asked = model.requests();
        assert_eq!(tools_of(&asked[1].messages), 2, "{name} {keep}: the run itself knows");
        assert!(format!("{:?}", asked[1].messages).contains(GAVE), "{name} {keep}");

        // Another host, another choice: the session's own holds.
        let other = if keep == ToolPayloads::Omit { ToolPayloads::Store } else { ToolPayloads::Omit };
        let chat = agent(other).conversation_by_id(chat.id()).await.unwrap();
        read(chat.prompt("go on").await.unwrap()).await;
        let there = there * 2;
        assert_eq!((count(&chat, GIVEN).await, count(&chat, GAVE).await), (there, there), "{name} {keep}");
        let later = &model.requests()[2].messages;
        assert_eq!(tools_of(later), there, "{name} {keep}: {later:?}");
        let texts = [
            ModelMessage::user("go"),
            ModelMessage::agent("I look."),
            ModelMessage::agent("seen"),
            ModelMessage::user("go on"),
        ];
        if keep == ToolPayloads::Omit {
            assert_eq!(*later, texts, "{name}");
        }
        let fork = chat.fork(None).await.unwrap();
        assert_eq!(fork.record().attributes.tool_payloads, Some(keep), "{name}: a fork keeps to it");

        chat.update(Patch::new().with_tool_payloads(other)).await.unwrap();
        read(chat.prompt("and on").await.unwrap()).await;
        let there = there + usize::from(other == ToolPayloads::Store);
        assert_eq!((count(&chat, GIVEN).await, count(&chat, GAVE).await), (there, there), "{name} {keep}");
        check_log(&chat).await;
    }
}

each_store!(tool_payload_policy_is_stored_in_the_session and files);

/// Where only text is kept, a call for which a person is asked is kept until it can be made, by whichever process, and
/// the model is given it; its result is not kept.
async fn waiting_call_is_stored_until_it_is_executed(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([
        Turn::new().call("l", "look", given()).call("d", "delete", given()),
        Turn::new().text("deleted"),
        Turn::new().text("well"),
    ]);
    let agent = || {
        let config = Config::default()
            .with_tool_payloads(ToolPayloads::Omit)
            .with_tool_policy("look", ToolPolicy::Allow);
        agent_with(&storage, model.clone(), config, [Arc::new(Tools) as _])
    };
    let chat = agent().open(&device("laptop")).await.unwrap();
    let (_, report) = read(chat.prompt("go").await.unwrap()).await;
    let RunOutcome::Awaiting(action) = report.outcome else { panic!("{name}: {report:?}") };
    let chat = agent().conversation_by_id(chat.id()).await.unwrap();
    chat.answer(ToolConfirmation::new(action.id, Decision::Allow)).await.unwrap();
    read(chat.run_pending().await.unwrap().unwrap()).await;
    let asked = model.requests().remove(1).messages;
    assert_eq!(tools_of(&asked), 2, "{name}: {asked:?}");
    assert!(format!("{asked:?}").contains(GAVE), "{name}: {asked:?}");
    assert_eq!(count(&chat, GAVE).await, 0, "{name}");
    let outcomes: Vec<_> = calls(&chat).await.iter().map(|(_, results)| results[0].outcome).collect();
    assert_eq!(outcomes, [ToolOutcome::Ok, ToolOutcome::Ok], "{name}");
    read(chat.prompt("thanks").await.unwrap()).await;
    let asked = model.requests().remove(2).messages;
    assert_eq!(tools_of(&asked), 0, "{name}: {asked:?}");
    check_log(&chat).await;
}

each_store!(waiting_call_is_stored_until_it_is_executed);
