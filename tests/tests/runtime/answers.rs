//! Tools that need an answer: a person's permission, or a result that is delivered from outside.

use std::sync::Arc;

use crate::common::{Tools, agent_with, awaited, calls, check_log, device, json, queued, read};
use agent_core::event::{Decision, ToolConfirmation, ToolOutcome, ToolResult};
use agent_core::model::{ActionKind, CallId};
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, Storage};
use agent_runtime::context::ModelMessage;
use agent_runtime::{AgentRuntime, Config, RunOutcome, ScriptedProvider, ToolMode, Turn};
use agent_tests::{Site, each_store};

fn tools() -> Arc<Tools> {
    Tools::new([("look", ToolMode::Direct), ("delete", ToolMode::Confirm), ("measure", ToolMode::Outside)])
}

fn careful(storage: &Storage, model: &ScriptedProvider, plugin: &Arc<Tools>, spans: bool) -> AgentRuntime {
    agent_with(storage, model.clone(), Config::default().with_spans(spans), [plugin.clone() as _])
}

/// A tool that needs permission waits for it across a restart; only the matching answer, once, lets it go on, and
/// it runs once.
async fn confirmed_tool_waits_for_consent_and_runs_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for spans in [false, true] {
        let model = ScriptedProvider::new([
            Turn::new()
                .text("I would")
                .call("a", "look", json("1"))
                .call("b", "delete", json("{\"path\":\"/tmp/x\"}"))
                .call("c", "delete", json("2")),
            Turn::new().text("deleted one"),
        ]);
        let plugin = tools();
        let agent = careful(&storage, &model, &plugin, spans);
        let chat = agent.open(&device(&format!("laptop {spans}"))).await.unwrap();
        let (_, report) = read(chat.prompt("clean up").await.unwrap()).await;
        let action = awaited(report.outcome);
        assert_eq!((action.id.as_str(), action.kind), ("b", ActionKind::ToolConfirmation), "{name}");
        assert!(action.question.contains("delete {\"path\":\"/tmp/x\"}"), "{name}: {}", action.question);
        assert_eq!(plugin.calls(), 1, "{name}: only the one that needs no answer");
        let now = chat.refresh().await.unwrap();
        assert_eq!(now.status.state, SessionState::RequiresAction, "{name}");
        assert_eq!(now.status.reason, Reason::AwaitToolConfirmation, "{name}");
        assert!(chat.run_pending().await.unwrap().is_none(), "{name}");

        // An input is kept, another answer refused, also after a restart.
        let agent = careful(&storage, &model, &plugin, spans);
        let chat = agent.conversation_by_id(chat.id()).await.unwrap();
        queued(chat.prompt("and hurry").await.unwrap()).await;
        let wrong = ToolConfirmation::new("c".parse().unwrap(), Decision::Allow);
        let error = chat.answer(wrong).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
        chat.answer(ToolConfirmation::new(action.id.clone(), Decision::Allow)).await.unwrap();
        chat.answer(ToolConfirmation::new(action.id.clone(), Decision::Allow)).await.unwrap();
        let other = chat.answer(ToolConfirmation::new(action.id, Decision::Deny)).await.unwrap_err();
        assert!(matches!(other.kind(), ErrorKind::Conflict { .. }), "{name}: {other}");

        let (_, report) = read(chat.run_pending().await.unwrap().unwrap()).await;
        let action = awaited(report.outcome);
        assert_eq!(action.id.as_str(), "c", "{name}: the next one");
        assert_eq!(plugin.calls(), 2, "{name}");
        let mut denied = ToolConfirmation::new(action.id, Decision::Deny);
        denied.note = Some("not that one".to_owned());
        chat.answer(denied).await.unwrap();
        let (text, report) = read(chat.run_pending().await.unwrap().unwrap()).await;
        assert_eq!((text.as_str(), report.outcome), ("deleted one", RunOutcome::Completed(Reason::EndTurn)));
        assert_eq!(plugin.calls(), 2, "{name}");

        let results: Vec<_> = calls(&chat)
            .await
            .into_iter()
            .map(|(_, results)| (results.len(), results[0].outcome, results[0].output.get().to_owned()))
            .collect();
        let expected = [
            (1, ToolOutcome::Ok, "\"look done\"".to_owned()),
            (1, ToolOutcome::Ok, "\"delete done\"".to_owned()),
            (1, ToolOutcome::Denied, "\"not that one\"".to_owned()),
        ];
        assert_eq!(results, expected, "{name}");
        let messages = &model.requests()[1].messages;
        assert_eq!(messages.len(), 4, "{name}: input, calls, results, and what came meanwhile");
        assert_eq!(messages[3], ModelMessage::user("and hurry"), "{name}");
        check_log(&chat).await;
    }
}

each_store!(confirmed_tool_waits_for_consent_and_runs_once);

/// A tool that runs outside delivers once, from any device, and the run goes on with it.
async fn external_result_continues_the_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([
        Turn::new().call("m", "measure", json("\"voltage\"")),
        Turn::new().text("230 volts"),
    ]);
    let plugin = tools();
    let agent = careful(&storage, &model, &plugin, true);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let action = awaited(read(chat.prompt("measure").await.unwrap()).await.1.outcome);
    assert_eq!(action.kind, ActionKind::ToolResult, "{name}");
    assert_eq!(chat.record().status.reason, Reason::AwaitToolResult, "{name}");

    let phone = careful(&storage, &model, &plugin, true).conversation_by_id(chat.id()).await.unwrap();
    let call: CallId = action.id.as_str().parse().unwrap();
    phone.answer(ToolResult::new(call, ToolOutcome::Ok, json("230"))).await.unwrap();
    assert_eq!(read(phone.run_pending().await.unwrap().unwrap()).await.0, "230 volts", "{name}");
    let ModelMessage::ToolResults(results) = &model.requests()[1].messages[2] else { panic!("{name}") };
    assert_eq!((results.len(), results[0].output.as_str()), (1, "230"), "{name}");
    assert_eq!(plugin.calls(), 0, "{name}: it is not ours to run");
    check_log(&phone).await;
}

each_store!(external_result_continues_the_run);

/// An interrupt of what waits for an answer closes every call, and the session goes on with something else.
async fn interrupt_closes_calls_awaiting_an_answer(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([
        Turn::new().call("b", "delete", json("1")).call("m", "measure", json("2")),
        Turn::new().text("fine"),
    ]);
    let plugin = tools();
    let agent = careful(&storage, &model, &plugin, false);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let _ = awaited(read(chat.prompt("go").await.unwrap()).await.1.outcome);
    chat.interrupt().await.unwrap();
    assert_eq!(chat.record().status.state, SessionState::Idle, "{name}");
    assert_eq!(read(chat.prompt("never mind").await.unwrap()).await.0, "fine", "{name}");
    for (call, results) in calls(&chat).await {
        let outcomes: Vec<_> = results.iter().map(|result| result.outcome).collect();
        assert_eq!(outcomes, [ToolOutcome::Interrupted], "{name}: {}", call.call);
    }
    assert_eq!(plugin.calls(), 0, "{name}");
    check_log(&chat).await;
}

each_store!(interrupt_closes_calls_awaiting_an_answer);
