//! Work that waits for people: questions with choices and an end, policies for tools, and inputs to suspended sessions.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{SetClock, Tools, agent_at, awaited, calls, check_log, device, dialogue, json, read};
use agent_core::event::{Decision, ToolConfirmation, ToolOutcome, ToolResult};
use agent_core::model::ActionKind;
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, MemoryStore, Storage};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Scheduler, ScriptedProvider, ToolMode, ToolPolicy, Turn,
};
use agent_tests::{Site, each_store};

fn tools() -> Arc<Tools> {
    Tools::new([
        ("look", ToolMode::Direct),
        ("delete", ToolMode::Confirm),
        ("ask_person", ToolMode::Ask),
        ("measure", ToolMode::Outside),
    ])
}

fn agent(
    storage: &Storage,
    model: &ScriptedProvider,
    tools: &Arc<Tools>,
    clock: &Arc<SetClock>,
    config: Config,
) -> AgentRuntime {
    agent_at(clock, storage, model.clone(), config, [tools.clone() as _])
}

/// A question, its choices and its time-out survive a restart. A wrong id, no choice and a choice that is not
/// offered are refused; of the answers that come from several devices at the same moment one is taken, which is the
/// call's result; to those who gave another one it is named.
async fn a_question_is_answered_once_from_any_device(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let question = r#"{"question":"Which colour?","choices":["red","blue"]}"#;
    let model = ScriptedProvider::new([
        Turn::new().call("q", "ask_person", json(question)),
        Turn::new().text("painted"),
    ]);
    let (tools, clock) = (tools(), SetClock::new());
    let config = || Config::default().with_answer_timeout(Duration::from_secs(3600));
    let first = agent(&storage, &model, &tools, &clock, config());
    let chat = first.open(&device("laptop")).await.unwrap();
    let (_, report) = read(chat.prompt("paint it").await.unwrap()).await;
    let asked = awaited(report.outcome);
    drop((first, chat));

    let agent = agent(&storage, &model, &tools, &clock, config());
    let chat = agent.open(&device("laptop")).await.unwrap();
    let action = chat.refresh().await.unwrap().action.clone().unwrap();
    assert_eq!(action, asked, "{name}");
    assert_eq!((action.kind, action.question.as_str()), (ActionKind::Approval, "Which colour?"), "{name}");
    assert_eq!(action.choices, ["red", "blue"], "{name}");
    assert!(action.expires_at.is_some(), "{name}");
    let allow = || ToolConfirmation::new(action.id.clone(), Decision::Allow);
    for wrong in [
        ToolConfirmation::new("other".parse().unwrap(), Decision::Allow).with_choice("red"),
        allow(),
        allow().with_choice("green"),
        ToolConfirmation::new(action.id.clone(), Decision::Deny).with_choice("green"),
    ] {
        let error = chat.answer(wrong).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
    }
    let mut answers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let chat = agent.conversation_by_id(chat.id()).await.unwrap();
        let answer = allow().with_choice(["red", "blue"][n % 2]);
        answers.spawn(async move { (n, chat.answer(answer).await) });
    }
    let mut taken = Vec::new();
    while let Some(answer) = answers.join_next().await {
        match answer.unwrap() {
            (n, Ok(())) => taken.push(["red", "blue"][n % 2]),
            (n, Err(error)) => {
                assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{name}: {error}");
                let first = format!("allowed with the choice \"{}\"", ["blue", "red"][n % 2]);
                assert!(error.to_string().contains(&first), "{name}: {error}");
            }
        }
    }
    assert_eq!(taken.len(), 4, "{name}: {taken:?}");
    assert!(taken.iter().all(|choice| *choice == taken[0]), "{name}: {taken:?}");
    let (text, _) = read(agent.run_pending(chat.id()).await.unwrap().unwrap()).await;
    assert_eq!(text, "painted", "{name}");
    let calls = calls(&chat).await;
    let result = format!(r#"{{"decision":"allow","choice":"{}"}}"#, taken[0]);
    assert_eq!(calls[0].1.len(), 1, "{name}");
    assert_eq!(calls[0].1[0].output.get(), result, "{name}");
    assert_eq!(tools.calls(), 0, "{name}: nobody runs a question");
    check_log(&chat).await;
}

each_store!(a_question_is_answered_once_from_any_device and files, flavor = "multi_thread", worker_threads = 2);

/// A question that nobody answers in time is given up by the first process that checks it, once; the call was not made, the
/// model gets that as its result and goes on, and a late answer is refused.
async fn expired_question_refuses_a_late_answer(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for tool in ["delete", "ask_person", "measure"] {
        let model =
            ScriptedProvider::new([Turn::new().call("c", tool, json("{}")), Turn::new().text("without")]);
        let (tools, clock) = (tools(), SetClock::new());
        let config = Config::default().with_answer_timeout(Duration::from_secs(60));
        let agent = agent(&storage, &model, &tools, &clock, config);
        let chat = agent.open(&device(tool)).await.unwrap();
        let action = awaited(read(chat.prompt("go").await.unwrap()).await.1.outcome);
        let scheduler = Scheduler::new(agent.clone());
        assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name} {tool}");
        clock.forward(61);
        assert_eq!(scheduler.round().await.unwrap().ran, 1, "{name} {tool}");
        assert_eq!(dialogue(&chat).await.last().unwrap().1, "without", "{name} {tool}");
        assert_eq!(scheduler.round().await.unwrap().ran, 0, "{name} {tool}");
        let (_, results) = calls(&chat).await.remove(0);
        assert_eq!(results.len(), 1, "{name} {tool}");
        let expected = if tool == "measure" { ToolOutcome::Interrupted } else { ToolOutcome::Denied };
        assert_eq!(results[0].outcome, expected, "{name} {tool}");
        assert_eq!(tools.calls(), 0, "{name} {tool}: it did not run");
        let late = chat.answer(ToolConfirmation::new(action.id.clone(), Decision::Allow)).await;
        assert!(matches!(late.unwrap_err().kind(), ErrorKind::InvalidTransition { .. }), "{name} {tool}");
        let late = ToolResult::new("c".parse().unwrap(), ToolOutcome::Ok, json("1"));
        let late = chat.answer(late).await;
        assert!(matches!(late.unwrap_err().kind(), ErrorKind::InvalidTransition { .. }), "{name} {tool}");
        check_log(&chat).await;
    }
}

each_store!(expired_question_refuses_a_late_answer);

/// An answer that is given in time, and the time-out that somebody else finds at the same moment: one of them is
/// taken, and the call has one result. An answer is in time by the clock of the process that gives it.
async fn answer_and_timeout_exclude_each_other(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let mut answered = 0;
    for round in 0..12 {
        let model = ScriptedProvider::new([
            Turn::new().call("c", "delete", json("{}")),
            Turn::new().text("on"),
            Turn::new().text("never"),
        ]);
        let (tools, clock) = (tools(), SetClock::new());
        let config = Config::default().with_answer_timeout(Duration::from_secs(60));
        let agent = agent(&storage, &model, &tools, &clock, config);
        let chat = agent.open(&device(&format!("d{round}"))).await.unwrap();
        let action = awaited(read(chat.prompt("go").await.unwrap()).await.1.outcome);
        let slow = SetClock::at(clock.in_seconds(0));
        clock.forward(61);
        let config = Config::default().with_answer_timeout(Duration::from_secs(60));
        let person =
            self::agent(&storage, &model, &tools, &slow, config).conversation_by_id(chat.id()).await.unwrap();
        let watch = agent.clone();
        let id = chat.id();
        let answer =
            tokio::spawn(
                async move { person.answer(ToolConfirmation::new(action.id, Decision::Allow)).await },
            );
        let timeout = tokio::spawn(async move {
            match watch.run_pending(id).await? {
                Some(run) => run.finish().await.map(drop),
                None => Ok(()),
            }
        });
        let was_taken = answer.await.unwrap().is_ok();
        timeout.await.unwrap().unwrap();
        if let Some(run) = agent.run_pending(id).await.unwrap() {
            read(run).await;
        }
        answered += u32::from(was_taken);
        assert_eq!(tools.calls(), usize::from(was_taken), "{name}");
        let (_, results) = calls(&chat).await.remove(0);
        assert_eq!(results.len(), 1, "{name}");
        assert_eq!(results[0].outcome == ToolOutcome::Ok, was_taken, "{name}: {results:?}");
        assert_eq!(dialogue(&chat).await.last().unwrap().1, "on", "{name}");
        check_log(&chat).await;
    }
    println!("{name}: {answered} of 12 were answered first");
}

each_store!(answer_and_timeout_exclude_each_other and files, flavor = "multi_thread", worker_threads = 2);

/// A host's policy decides on a tool, and overrides its plugin: to call it at once, to ask each time, or not to offer
/// it and to refuse its calls.
async fn tools_are_allowed_asked_for_or_denied_by_policy(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let turn = || Turn::new().call("l", "look", json("{}")).call("d", "delete", json("{}"));
    let config = Config::default()
        .with_tool_policy("delete", ToolPolicy::Allow)
        .with_tool_policy("look", ToolPolicy::Deny)
        .with_tool_policy("measure", ToolPolicy::Deny);
    let model = ScriptedProvider::new([turn(), Turn::new().text("done")]);
    let tools = tools();
    let lax = agent(&storage, &model, &tools, &SetClock::new(), config);
    let chat = lax.open(&device("lax")).await.unwrap();
    let (text, _) = read(chat.prompt("go").await.unwrap()).await;
    assert_eq!(text, "done", "{name}: it waits for nobody");
    let offered: Vec<_> = model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(offered, ["delete", "ask_person", "read_output"], "{name}");
    let outcomes: Vec<_> = calls(&chat).await.iter().map(|(_, results)| results[0].outcome).collect();
    assert_eq!(outcomes, [ToolOutcome::Denied, ToolOutcome::Ok], "{name}");
    assert_eq!(tools.calls(), 1, "{name}: the denied one did not run");

    let config = Config::default().with_tool_policy("look", ToolPolicy::Ask);
    let model = ScriptedProvider::new([turn(), Turn::new().text("done")]);
    let tools = self::tools();
    let strict = agent(&storage, &model, &tools, &SetClock::new(), config);
    let chat = strict.open(&device("strict")).await.unwrap();
    let action = awaited(read(chat.prompt("go").await.unwrap()).await.1.outcome);
    assert_eq!(action.id.as_str(), "l", "{name}");
    assert_eq!(tools.calls(), 0, "{name}");
    check_log(&chat).await;
}

each_store!(tools_are_allowed_asked_for_or_denied_by_policy);

/// What no policy can mean is named when the agent is built.
#[test]
fn impossible_tool_policy_is_refused() {
    let build = |tool: &str, policy| {
        AgentBuilder::new()
            .with_config(Config::default().with_tool_policy(tool, policy))
            .with_llm(ScriptedProvider::new([]))
            .with_storage(MemoryStore::new())
            .with_plugin(tools())
            .build()
    };
    for tool in ["measure", "ask_person"] {
        let error = build(tool, ToolPolicy::Allow).unwrap_err();
        assert!(error.to_string().contains(tool), "{error}");
        build(tool, ToolPolicy::Deny).unwrap();
    }
}

/// A message to a session that was set aside is stored, and waits until it is resumed; where the policy says so, it
/// lets the session go on and is answered, in the commit that stores it, also where nobody here knew that it was set
/// aside.
async fn message_resumes_a_suspended_session_by_policy(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for policy in [false, true] {
        let model = ScriptedProvider::new([Turn::new().text("back"), Turn::new().text("again")]);
        let tools = tools();
        let config = Config::default().with_resume_on_prompt(policy);
        let agent = agent(&storage, &model, &tools, &SetClock::new(), config);
        let chat = agent.open(&device(&format!("{policy}"))).await.unwrap();
        chat.suspend().await.unwrap();
        let run = chat.prompt("hello").await.unwrap();
        assert_eq!(run.id().is_some(), policy, "{name}");
        if !policy {
            let now = chat.refresh().await.unwrap();
            assert_eq!(
                (now.status.state, now.inputs_open),
                (SessionState::Suspended, 1),
                "{name}: it is kept"
            );
            chat.resume().await.unwrap();
            assert_eq!(read(agent.run_pending(chat.id()).await.unwrap().unwrap()).await.0, "back", "{name}");
            continue;
        }
        assert_eq!(read(run).await.0, "back", "{name}");
        let stale = agent.conversation_by_id(chat.id()).await.unwrap();
        chat.suspend().await.unwrap();
        assert_eq!(stale.record().status.state, SessionState::Idle, "{name}");
        assert_eq!(read(stale.prompt("hello?").await.unwrap()).await.0, "again", "{name}");
        let now = chat.refresh().await.unwrap();
        assert_eq!((now.status.reason, now.inputs_open), (Reason::EndTurn, 0), "{name}");
        check_log(&chat).await;
    }
}

each_store!(message_resumes_a_suspended_session_by_policy);
