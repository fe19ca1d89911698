//! Answers that arrive twice, as from a webhook that retries: the second delivery gets the result of the first.

use std::sync::Arc;

use crate::common::{Tools, agent_with, awaited, calls, check_log, device, dialogue, json, read};
use agent_core::event::{Decision, EventType, Media, Part, ToolConfirmation, ToolOutcome, ToolResult};
use agent_core::json::RawJson;
use agent_core::model::PendingAction;
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, Storage};
use agent_runtime::{
    AgentRuntime, Config, Conversation, Gate, RunError, RunOutcome, RunReport, ScriptedProvider, ToolMode,
    Turn,
};
use agent_tests::{Site, each_store};

fn tools() -> Arc<Tools> {
    Tools::new([("delete", ToolMode::Confirm), ("measure", ToolMode::Outside)])
}

fn agent(storage: &Storage, model: &ScriptedProvider, tools: &Arc<Tools>) -> AgentRuntime {
    agent_with(storage, model.clone(), Config::default(), [tools.clone() as _])
}

async fn asked(chat: &Conversation) -> PendingAction {
    awaited(read(chat.prompt("go").await.unwrap()).await.1.outcome)
}

/// What a second delivery can know of a run: everything but its usage, which the log has if it is recorded.
fn known(report: &RunReport) -> (Option<agent_core::RunId>, &str, &RunOutcome) {
    (report.run, &report.text, &report.outcome)
}

/// After the run, after a restart and after later turns the same answer gets the run's result, and writes nothing; another
/// answer is refused with the first one in its text.
async fn the_second_delivery_gets_the_first_result(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([
        Turn::new().call("d", "delete", json("{}")),
        Turn::new().text("deleted"),
        Turn::new().call("e", "delete", json("{}")),
    ]);
    let tools = tools();
    let first = agent(&storage, &model, &tools);
    let chat = first.open(&device("laptop")).await.unwrap();
    let action = asked(&chat).await;
    let allow = || ToolConfirmation::new(action.id.clone(), Decision::Allow).with_note("go on");
    let report = chat.answer_and_run(allow()).await.unwrap().finish().await.unwrap();
    assert_eq!(report.text, "deleted", "{name}");
    let again = chat.answer_and_run(allow()).await.unwrap().finish().await.unwrap();
    assert_eq!(known(&again), known(&report), "{name}");

    // Another question waits by now.
    let other = asked(&chat).await;
    let agent = agent(&site.open().await, &model, &tools);
    let chat = agent.conversation_by_id(chat.id()).await.unwrap();
    let head = chat.record().head;
    let again = chat.answer_and_run(allow()).await.unwrap().finish().await.unwrap();
    assert_eq!(known(&again), known(&report), "{name}");
    chat.answer(allow()).await.unwrap();

    let deny = ToolConfirmation::new(action.id.clone(), Decision::Deny);
    let quiet = ToolConfirmation::new(action.id.clone(), Decision::Allow);
    let delivered = ToolResult::new("d".parse().unwrap(), ToolOutcome::Ok, json("1"));
    for answer in [deny.into(), quiet.into(), agent_runtime::ActionAnswer::from(delivered)] {
        let error = chat.answer(answer.clone()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{name}: {error}");
        assert!(error.to_string().contains("d was allowed before, by event"), "{name}: {error}");
        let error = chat.answer_and_run(answer).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{name}: {error}");
    }
    // To what was never asked there is no first answer.
    let unknown = ToolConfirmation::new("unknown".parse().unwrap(), Decision::Allow);
    assert_eq!(*chat.answer(unknown).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.head, now.action.as_ref()), (head, Some(&other)), "{name}: nothing was written");
    assert_eq!(tools.calls(), 1, "{name}");
    check_log(&chat).await;
}

each_store!(the_second_delivery_gets_the_first_result and files);

/// While the run is active, a second delivery gets a stream of the same run; from another process, a reference to it.
async fn the_second_delivery_joins_an_active_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let model = ScriptedProvider::new([
        Turn::new().call("d", "delete", json("{}")),
        Turn::new().gate(&gate).text("deleted"),
    ]);
    let tools = tools();
    let here = agent(&storage, &model, &tools);
    let chat = here.open(&device("laptop")).await.unwrap();
    let allow = ToolConfirmation::new(asked(&chat).await.id, Decision::Allow);
    let run = chat.answer_and_run(allow.clone()).await.unwrap();
    let second = chat.answer_and_run(allow.clone()).await.unwrap();
    assert_eq!(second.id(), run.id(), "{name}");
    // As a server does that opens the stores of a tenant for each request.
    let request = here.for_storage(site.open().await).conversation_by_id(chat.id()).await.unwrap();
    let of_request = request.answer_and_run(allow.clone()).await.unwrap();
    assert!(of_request.queued().is_none(), "{name}");
    let there = agent(&site.open().await, &model, &tools).conversation_by_id(chat.id()).await.unwrap();
    there.answer(allow.clone()).await.unwrap();
    let third = there.answer_and_run(allow.clone()).await.unwrap();
    let queued = third.queued().expect("another process has it").clone();
    assert_eq!(queued.run, run.id(), "{name}");
    gate.open();
    let report = run.finish().await.unwrap();
    assert_eq!(report.text, "deleted", "{name}");
    assert_eq!(second.finish().await.unwrap(), report, "{name}");
    // The usage of a run is in its stream, and not in the log.
    assert_eq!(of_request.finish().await.unwrap(), report, "{name}");
    assert_eq!(known(&there.wait_for_answer(&queued).await.unwrap()), known(&report), "{name}");
    assert_eq!(tools.calls(), 1, "{name}");
}

each_store!(the_second_delivery_joins_an_active_run);

/// A run that asked a question has ended like any other once the question is closed: nobody is shown it again.
async fn a_question_that_was_answered_is_asked_by_no_report(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([
        Turn::new().call("d", "delete", json("{}")),
        Turn::new().call("e", "delete", json("{}")),
        Turn::new().text("deleted"),
    ]);
    let agent = agent(&storage, &model, &tools());
    let chat = agent.open(&device("laptop")).await.unwrap();
    let allow = |action: &PendingAction| ToolConfirmation::new(action.id.clone(), Decision::Allow);
    let first = asked(&chat).await;
    let report = chat.answer_and_run(allow(&first)).await.unwrap().finish().await.unwrap();
    let RunOutcome::Awaiting(second) = report.outcome else { panic!("{name}: it asks again") };
    let again = chat.answer_and_run(allow(&first)).await.unwrap().finish().await.unwrap();
    assert_eq!(again.outcome, RunOutcome::Awaiting(second.clone()), "{name}");
    chat.answer_and_run(allow(&second)).await.unwrap().finish().await.unwrap();
    let again = chat.answer_and_run(allow(&first)).await.unwrap().finish().await.unwrap();
    assert_eq!(again.outcome, RunOutcome::Completed(Reason::EndTurn), "{name}");
    assert_eq!(again.status.state, SessionState::Idle, "{name}");
}

each_store!(a_question_that_was_answered_is_asked_by_no_report);

/// An answer that was stored without a run is continued by its second delivery; one whose run asks again or fails has that
/// as its result.
async fn results_of_an_answer_are_those_of_its_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([
        Turn::new().call("a", "delete", json("{}")).call("b", "delete", json("{}")),
        Turn::silent().fail("overloaded"),
    ]);
    let tools = tools();
    let agent = agent(&storage, &model, &tools);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let allow = |action: &PendingAction| ToolConfirmation::new(action.id.clone(), Decision::Allow);
    let first = asked(&chat).await;
    chat.answer(allow(&first)).await.unwrap();
    chat.answer(allow(&first)).await.unwrap();
    let report = chat.answer_and_run(allow(&first)).await.unwrap().finish().await.unwrap();
    let RunOutcome::Awaiting(second) = &report.outcome else { panic!("{name}: {report:?}") };
    let again = chat.answer_and_run(allow(&first)).await.unwrap().finish().await.unwrap();
    assert_eq!(known(&again), known(&report), "{name}");

    let failed = |error| match error {
        RunError::Failed(report) => *report,
        other => panic!("{name}: {other}"),
    };
    let report = failed(chat.answer_and_run(allow(second)).await.unwrap().finish().await.unwrap_err());
    let again = failed(chat.answer_and_run(allow(second)).await.unwrap().finish().await.unwrap_err());
    assert_eq!(known(&again), known(&report), "{name}");
    let again = chat.answer_and_run(allow(&first)).await.unwrap().finish().await.unwrap();
    // The question that it asked is answered.
    assert_eq!(again.outcome, RunOutcome::Completed(Reason::EndTurn), "{name}");
    assert_eq!(tools.calls(), 2, "{name}");
    check_log(&chat).await;
}

each_store!(results_of_an_answer_are_those_of_its_run);

/// An answer whose run was never begun, and that an interrupt discarded, says so.
async fn a_discarded_answer_is_reported(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([Turn::new().call("a", "delete", json("{}"))]);
    let chat = agent(&storage, &model, &tools()).open(&device("laptop")).await.unwrap();
    let allow = ToolConfirmation::new(asked(&chat).await.id, Decision::Allow);
    chat.answer(allow.clone()).await.unwrap();
    chat.interrupt().await.unwrap();
    let error = chat.answer_and_run(allow).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{name}: {error}");
    assert!(error.to_string().contains("was discarded by event"), "{name}: {error}");
}

each_store!(a_discarded_answer_is_reported);

/// A result from outside is the same also if the store has its large output and its picture as blobs.
async fn large_results_are_recognized(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model =
        ScriptedProvider::new([Turn::new().call("m", "measure", json("{}")), Turn::new().text("measured")]);
    let tools = tools();
    let chat = agent(&storage, &model, &tools).open(&device("laptop")).await.unwrap();
    let call: agent_core::model::CallId = asked(&chat).await.id.as_str().parse().unwrap();
    let result = |last: char, pixel: u8| {
        let output = RawJson::of(&("volts ".repeat(200_000) + &last.to_string())).unwrap();
        let picture = [b"\x89PNG\r\n\x1a\n".as_slice(), &vec![pixel; 200_000]].concat();
        ToolResult::new(call.clone(), ToolOutcome::Ok, output)
            .with_part(Part::Image(Media::inline("image/png", picture)))
    };
    let report = chat.answer_and_run(result('x', 1)).await.unwrap().finish().await.unwrap();
    let chat = agent(&site.open().await, &model, &tools).conversation_by_id(chat.id()).await.unwrap();
    let again = chat.answer_and_run(result('x', 1)).await.unwrap().finish().await.unwrap();
    assert_eq!(known(&again), known(&report), "{name}");
    for other in [result('y', 1), result('x', 2)] {
        let error = chat.answer(other).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{name}: {error}");
        assert!(error.to_string().contains("a result of the outcome ok"), "{name}: {error}");
    }
    assert_eq!(calls(&chat).await[0].1.len(), 1, "{name}");
    assert_eq!(dialogue(&chat).await.last().unwrap().1, "measured", "{name}");
}

each_store!(large_results_are_recognized);

/// Of many deliveries at the same moment, all succeed and one is stored.
async fn deliveries_at_once_have_one_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model =
        ScriptedProvider::new([Turn::new().call("d", "delete", json("{}")), Turn::new().text("deleted")]);
    let tools = tools();
    let agent = agent(&storage, &model, &tools);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let allow = ToolConfirmation::new(asked(&chat).await.id, Decision::Allow);
    let mut deliveries = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (chat, allow) = (agent.conversation_by_id(chat.id()).await.unwrap(), allow.clone());
        deliveries.spawn(async move { chat.answer_and_run(allow).await.unwrap().finish().await.unwrap() });
    }
    let mut runs = Vec::new();
    while let Some(report) = deliveries.join_next().await {
        let report = report.unwrap();
        assert_eq!(report.text, "deleted", "{name}");
        runs.push(report.run);
    }
    runs.dedup();
    assert_eq!((runs.len(), tools.calls()), (1, 1), "{name}");
    let log = crate::common::log(&chat).await;
    let stored = log.iter().filter(|event| event.kind == EventType::USER_TOOL_CONFIRMATION).count();
    assert_eq!(stored, 1, "{name}");
    check_log(&chat).await;
}

each_store!(deliveries_at_once_have_one_run and files, flavor = "multi_thread", worker_threads = 2);
