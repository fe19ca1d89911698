//! Questions to a person before a tool runs: all of a call can be seen, and it is answered in time or not at all.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    SetClock, Tools, agent_at, agent_with, awaited, calls, check_log, device, dialogue, log, read,
};
use agent_core::event::{Decision, EventType, ToolConfirmation, ToolOutcome, ToolResult};
use agent_core::json::RawJson;
use agent_core::model::PendingAction;
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, Storage};
use agent_runtime::context::ModelMessage;
use agent_runtime::{
    AgentRuntime, Config, ModelCall, ModelEvent, RunOutcome, ScriptedProvider, ToolMode, Turn,
};
use agent_tests::{Site, each_store};

struct Setting {
    agent: AgentRuntime,
    model: ScriptedProvider,
    tools: Arc<Tools>,
    clock: Arc<SetClock>,
}

impl Setting {
    /// An agent whose model makes this call, and then says that it is done.
    fn new(storage: &Storage, tool: &str, input: RawJson) -> Self {
        let model = ScriptedProvider::new([Turn::new().call("c", tool, input), Turn::new().text("went on")]);
        let clock = SetClock::new();
        let tools = Tools::new([
            ("shell", ToolMode::Confirm),
            ("ask_person", ToolMode::Ask),
            ("measure", ToolMode::Outside),
        ]);
        let config = Config::default().with_answer_timeout(Duration::from_secs(60));
        let agent = agent_at(&clock, storage, model.clone(), config, [tools.clone() as _]);
        Self { agent, model, tools, clock }
    }
}

/// The question for consent shows the beginning and the end of a long call, and says how much it leaves out.
async fn consent_shows_both_ends_of_a_long_call(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let command = format!("ls{}&& rm -rf /", " ".repeat(5000));
    let input = RawJson::of(&std::collections::BTreeMap::from([("command", &command)])).unwrap();
    let setting = Setting::new(&storage, "shell", input.clone());
    let chat = setting.agent.open(&device("laptop")).await.unwrap();
    let action = awaited(read(chat.prompt("clean up").await.unwrap()).await.1.outcome);
    let question = &action.question;
    assert!(question.starts_with("May shell {\"command\":\"ls "), "{name}: {question}");
    assert!(question.ends_with("&& rm -rf /\"}"), "{name}: the end is hidden: {question}");
    assert!(question.len() <= PendingAction::QUESTION_MAX_BYTES, "{name}");
    let shown = question.len();
    let (_, rest) = question.split_once("[… ").unwrap_or_else(|| panic!("{name}: {question}"));
    let left_out: usize = rest.split_once(" bytes left out").unwrap().0.parse().unwrap();
    let whole = "May shell ".len() + input.get().len();
    assert!(left_out < whole && left_out + shown > whole, "{name}: {left_out} of {whole}");

    // A host can show all of it, also after a restart.
    assert_eq!(action.tool.as_deref(), Some("shell"), "{name}");
    let chat = setting.agent.conversation_by_id(chat.id()).await.unwrap();
    let now = chat.refresh().await.unwrap();
    assert_eq!(now.action.as_ref(), Some(&action), "{name}");
    assert_eq!(action.seq, Some(now.open_calls[0].seq), "{name}");
    let call = chat.pending_call().await.unwrap().unwrap();
    assert_eq!((call.call.as_str(), call.name.as_str()), (action.id.as_str(), "shell"), "{name}");
    assert_eq!(call.input.get(), input.get(), "{name}");
    let run = chat.answer_and_run(ToolConfirmation::new(action.id, Decision::Allow)).await.unwrap();
    assert_eq!(read(run).await.0, "went on", "{name}");
    assert_eq!(setting.tools.inputs(), [input.get()], "{name}: what ran is what was shown");
    assert_eq!(chat.pending_call().await.unwrap(), None, "{name}");
}

each_store!(consent_shows_both_ends_of_a_long_call and files);

/// An answer and the run that goes on from it are one commit; of many answers at the same moment, from many
/// devices, one starts a run, the same ones are deliveries of it, and the tool runs once.
async fn answer_and_run_start_are_one_commit(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let setting = Setting::new(&storage, "shell", RawJson::empty_object());
    let chat = setting.agent.open(&device("laptop")).await.unwrap();
    let action = awaited(read(chat.prompt("go").await.unwrap()).await.1.outcome);
    let wrong = ToolConfirmation::new("other".parse().unwrap(), Decision::Allow);
    let error = chat.answer_and_run(wrong).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
    let mut answers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (chat, id) = (setting.agent.conversation_by_id(chat.id()).await.unwrap(), action.id.clone());
        let note = ["yes", "go"][n % 2];
        answers.spawn(async move {
            let answer = ToolConfirmation::new(id, Decision::Allow).with_note(note);
            match chat.answer_and_run(answer).await {
                Ok(run) => Ok((note, run.finish().await.unwrap())),
                Err(error) => Err(error),
            }
        });
    }
    let mut reports = Vec::new();
    while let Some(answer) = answers.join_next().await {
        match answer.unwrap() {
            Ok(report) => reports.push(report),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{name}: {error}"),
        }
    }
    assert_eq!(reports.len(), 4, "{name}: {reports:?}");
    let (first, taken) = &reports[0];
    assert!(
        reports.iter().all(|(note, report)| (note, report.run) == (first, taken.run)),
        "{name}: {reports:?}"
    );
    assert_eq!(taken.text, "went on", "{name}");
    assert_eq!(setting.tools.calls(), 1, "{name}");
    let events = log(&chat).await;
    let answer = events.iter().find(|event| event.kind == EventType::USER_TOOL_CONFIRMATION).unwrap();
    let began = answer.transition().unwrap().unwrap();
    assert_eq!((began.from, began.to), (SessionState::RequiresAction, SessionState::Running), "{name}");
    let late = chat.answer_and_run(ToolConfirmation::new(action.id, Decision::Allow)).await.unwrap_err();
    assert!(matches!(late.kind(), ErrorKind::Conflict { .. }), "{name}: {late}");
    check_log(&chat).await;
}

each_store!(answer_and_run_start_are_one_commit, flavor = "multi_thread", worker_threads = 2);

/// What a person chooses from is not cut short without a sign.
async fn choices_that_are_not_shown_are_counted(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let mut choices: Vec<String> = (0..20).map(|n| format!("choice {n}")).collect();
    choices[3] = "x".repeat(300);
    let input = format!(r#"{{"question":"Which?","choices":{}}}"#, RawJson::of(&choices).unwrap().get());
    let setting = Setting::new(&storage, "ask_person", RawJson::parse(&input).unwrap());
    let chat = setting.agent.open(&device("laptop")).await.unwrap();
    let action = awaited(read(chat.prompt("ask").await.unwrap()).await.1.outcome);
    assert_eq!(action.choices.len(), 16, "{name}");
    assert_eq!(action.question, "Which? [… 4 of 20 choices left out …]", "{name}");
}

each_store!(choices_that_are_not_shown_are_counted);

/// An answer that comes after its time is refused by every store, and nothing runs; the session still waits
/// until the process that runs it gives the question up.
async fn expired_consent_is_refused(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for tool in ["shell", "ask_person", "measure"] {
        let setting = Setting::new(&storage, tool, RawJson::empty_object());
        let chat = setting.agent.open(&device(tool)).await.unwrap();
        let action = awaited(read(chat.prompt("go").await.unwrap()).await.1.outcome);
        let before = chat.refresh().await.unwrap();
        let end = action.expires_at.unwrap();
        // At its end it is over.
        setting.clock.set(end);
        let late = match tool {
            "measure" => {
                let result = ToolResult::new("c".parse().unwrap(), ToolOutcome::Ok, RawJson::empty_object());
                chat.answer(result).await
            }
            _ => chat.answer(ToolConfirmation::new(action.id.clone(), Decision::Allow)).await,
        };
        let again = match tool {
            "measure" => Ok(()),
            _ => {
                let answer = ToolConfirmation::new(action.id.clone(), Decision::Allow);
                chat.answer_and_run(answer).await.map(drop)
            }
        };
        assert_eq!(again.is_ok(), tool == "measure", "{name} {tool}: nothing runs");
        let error = late.expect_err(&format!("{name} {tool}: it was taken"));
        assert_eq!(error.kind().name(), "expired", "{name} {tool}: {error}");
        assert!(error.to_string().contains(&end.to_string()), "{name} {tool}: {error}");
        let now = chat.refresh().await.unwrap();
        assert_eq!(
            (now.head, now.status.state),
            (before.head, SessionState::RequiresAction),
            "{name} {tool}"
        );

        let (text, _) = read(chat.run_pending().await.unwrap().unwrap()).await;
        assert_eq!(text, "went on", "{name} {tool}");
        assert!(setting.tools.inputs().is_empty(), "{name} {tool}: it ran");
        let (_, results) = calls(&chat).await.remove(0);
        let expected = if tool == "measure" { ToolOutcome::Interrupted } else { ToolOutcome::Denied };
        assert_eq!(results.iter().map(|result| result.outcome).collect::<Vec<_>>(), [expected], "{name}");
        assert_eq!(setting.model.requests().len(), 2, "{name} {tool}");
        assert_eq!(dialogue(&chat).await.len(), 2, "{name} {tool}");
        check_log(&chat).await;
    }
}

each_store!(expired_consent_is_refused and files);

/// A call whose arguments are no JSON object is not made, in any mode, and nobody is asked: the log has the text as it came,
/// and the result says what is wrong with it.
async fn calls_whose_arguments_are_no_object_ask_nobody(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let text = r#"{"command":"rm -rf /home/me/proj"#;
    for tool in ["shell", "ask_person", "measure", "unknown"] {
        let cut = ModelEvent::ToolUse(ModelCall::malformed("c", tool, text, "it ends within a text"));
        let setting = Setting::new(&storage, tool, RawJson::empty_object());
        // The turn that the setting scripts is not reached: the model calls with what is cut, and goes on.
        let model = ScriptedProvider::new([Turn::new().event(cut), Turn::new().text("went on")]);
        let plugins = [setting.tools.clone() as _];
        let agent = agent_with(&storage, model.clone(), Config::default(), plugins);
        let chat = agent.open(&device(tool)).await.unwrap();
        let (answer, report) = read(chat.prompt("go").await.unwrap()).await;
        assert_eq!(
            (answer.as_str(), &report.outcome),
            ("went on", &RunOutcome::Completed(Reason::EndTurn)),
            "{name} {tool}"
        );
        assert!(setting.tools.inputs().is_empty(), "{name} {tool}");
        let calls = calls(&chat).await;
        let (call, results) = &calls[0];
        assert_eq!((call.malformed.as_deref(), call.input.get()), (Some(text), "{}"), "{name} {tool}");
        assert_eq!((results.len(), results[0].outcome), (1, ToolOutcome::Error), "{name} {tool}");
        assert!(
            results[0].output.get().contains("no JSON object (it ends within a text)"),
            "{name}: {results:?}"
        );
        assert!(
            model.requests()[1].messages.iter().any(|message| message.text().contains("no JSON object")),
            "{name}"
        );
        check_log(&chat).await;
    }
}

each_store!(calls_whose_arguments_are_no_object_ask_nobody and files);

/// A call that goes back in another form than it came is a gap: nothing of its answer that is signed goes back.
async fn signed_items_beside_a_malformed_call_stay_behind(site: Site) {
    let storage = site.open().await;
    let malformed = ModelEvent::ToolUse(ModelCall::malformed("c", "shell", "{", "it ends within an object"));
    let invented = ModelEvent::call("c", "functions.shell", RawJson::empty_object());
    let sound = ModelEvent::call("c", "unknown", RawJson::empty_object());
    for (at, (call, is_given_back)) in
        [(malformed, false), (invented, false), (sound, true)].into_iter().enumerate()
    {
        let thought = || Turn::new().signed_thinking("Hm.");
        let model =
            ScriptedProvider::new([thought().event(call), Turn::new().text("went on")]).with_account("a");
        let config = Config::new().with_store_thinking(true);
        let agent = agent_with(&storage, model.clone(), config, []);
        let chat = agent.open(&device(&format!("device-{at}"))).await.unwrap();
        read(chat.prompt("go").await.unwrap()).await;
        let requests = model.requests();
        let items = requests[1].messages.iter().filter_map(|message| match message {
            ModelMessage::Agent(message) => Some(&message.items),
            _ => None,
        });
        let has_native = items.flatten().any(|item| item.native.is_some());
        assert_eq!(has_native, is_given_back, "{} {at}: {requests:?}", site.name);
    }
}

each_store!(signed_items_beside_a_malformed_call_stay_behind);
