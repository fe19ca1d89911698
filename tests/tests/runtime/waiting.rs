//! Inputs that are only queued, and how their callers get their answers.

use std::time::Duration;

use crate::common::{
    Faulty, Scene, agent, agent_with, check_log, device, dialogue, eventually, log, queued, read, until_text,
};
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::{Decision, NewEvent, ToolConfirmation};
use agent_core::json::RawJson;
use agent_core::model::{Failure, Usage};
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, MemoryStore, Seq, SessionStoreExt, Storage};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, EchoProvider, Gate, Queued, Retry, Run, RunError,
    RunOutcome, RunReport, ScriptedProvider, StopReason, ToolMode, Turn, schemars, tool,
};
use agent_tests::{Site, each_store};
use futures::future::join_all;
use tokio::time::{Instant, timeout};

const TTL: Duration = Duration::from_secs(30);

/// How long to wait before a test is given up as stuck. Never what a test is about.
const STUCK: Duration = Duration::from_secs(60);

fn named(storage: &Storage, holder: &str, turns: impl IntoIterator<Item = Turn>) -> AgentRuntime {
    let config = Config::default().with_holder(holder).with_lease_ttl(TTL).with_record_usage(true);
    agent_with(storage, ScriptedProvider::new(turns), config, [])
}

/// A session that `holder` runs; the answer is held up at a gate after its first word.
async fn held(storage: &Storage, gate: &Gate, more: impl IntoIterator<Item = Turn>) -> (Conversation, Run) {
    let first = Turn::new().text("so").gate(gate).text(" late");
    let chat =
        named(storage, "holder", [first].into_iter().chain(more)).open(&device("laptop")).await.unwrap();
    let mut run = chat.prompt("first").await.unwrap();
    assert_eq!(until_text(&mut run).await, "so");
    (chat, run)
}

async fn wait(chat: &Conversation, input: &Queued) -> Result<RunReport, RunError> {
    timeout(STUCK, chat.wait_for_answer(input)).await.expect("it waits too long")
}

/// What a client does that wants an answer, and nothing else.
async fn ask(chat: &Conversation, text: String) -> RunReport {
    match chat.prompt(text).await.unwrap().finish().await {
        Err(RunError::Queued(input)) => wait(chat, &input).await.unwrap(),
        other => other.unwrap(),
    }
}

fn kind(error: RunError) -> ErrorKind {
    match error {
        RunError::Store(error) => error.kind().clone(),
        other => panic!("{other:?}"),
    }
}

fn state(error: RunError) -> SessionState {
    match error {
        RunError::Queued(queued) => queued.state,
        other => panic!("{other:?}"),
    }
}

/// Clients that ask at once, on one session, through one process or two, all get an answer with a text.
async fn clients_at_once_all_get_an_answer(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = || EchoProvider::new().with_delay(Duration::from_millis(2));
    for round in 0..5 {
        let one = agent(&storage, model()).open(&device(&format!("laptop {round}"))).await.unwrap();
        let two = agent(&site.open().await, model()).conversation_by_id(one.id()).await.unwrap();
        let clients = [(&one, "a"), (&one, "b"), (&two, "c"), (&two, "d")];
        let tasks = clients.map(|(chat, client)| {
            let (chat, text) = (chat.clone(), format!("{client} asks"));
            tokio::spawn(async move { ask(&chat, text).await })
        });
        for task in join_all(tasks).await {
            let report = task.unwrap();
            assert!(report.text.ends_with(" asks"), "{name}: {report:?}");
            assert!(matches!(report.outcome, RunOutcome::Completed(_)), "{name}: {report:?}");
        }
        let now = one.refresh().await.unwrap();
        assert_eq!((now.counts.user, now.inputs_open), (4, 0), "{name}");
        check_log(&one).await;
    }
}

each_store!(clients_at_once_all_get_an_answer, flavor = "multi_thread", worker_threads = 4);

/// A caller that waits starts the run when the holder, in another process, has ended its own.
async fn the_one_who_waits_runs_next(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let (chat, run) = held(&storage, &gate, []).await;
    let other = named(&site.open().await, "other", [Turn::new().text("second's answer")]);
    let other = other.conversation_by_id(chat.id()).await.unwrap();
    let input = queued(other.prompt("second").await.unwrap()).await;
    assert_eq!((input.holder.as_deref(), input.run), (Some("holder"), None), "{name}");
    let waiting = tokio::spawn({
        let (other, input) = (other.clone(), input.clone());
        async move { wait(&other, &input).await }
    });
    gate.open();
    let first = read(run).await.1;
    let report = waiting.await.unwrap().unwrap();
    assert_eq!(report.text, "second's answer", "{name}");
    assert_ne!(report.run, first.run, "{name}");
    assert_eq!(wait(&chat, &input).await.unwrap(), report, "{name}: any other caller is told the same");
    check_log(&chat).await;
}

each_store!(the_one_who_waits_runs_next);

/// The answer that another process gave is read from the log, by any caller and at any time, from the input on.
async fn the_answer_of_another_is_read_in_the_log(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let cut = Turn::new().text("second's").done(StopReason::MaxTokens);
    let (chat, run) = held(&storage, &gate, [cut, Turn::new().text("third's")]).await;
    let faulty = Faulty::new(site.open().await);
    let other = named(&faulty.storage(), "other", []).conversation_by_id(chat.id()).await.unwrap();
    let input = queued(other.prompt("second").await.unwrap()).await;
    gate.open();
    let first = read(run).await.1;
    let report = read(chat.run_pending().await.unwrap().unwrap()).await.1;
    assert_eq!(report.usage, Usage::new(1, 1), "{name}");
    read(chat.prompt("third").await.unwrap()).await;
    let reads = faulty.reads();
    assert_eq!(wait(&other, &input).await.unwrap(), report, "{name}");
    assert_eq!(faulty.reads() - reads, 1, "{name}: one page");
    // The session went on with the second, so that the log does not keep why the first ended.
    let begun = Queued::new(chat.id(), log(&chat).await.iter().find(|it| it.text().is_some()).unwrap().seq);
    assert_eq!(wait(&other, &begun).await.unwrap(), first, "{name}");
}

each_store!(the_answer_of_another_is_read_in_the_log);

/// Prompts that are stored together are answered by one run: the caller that has it and all others get its report, and
/// others can stream it.
async fn prompts_stored_together_share_the_answer(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let (faulty, gate) = (Faulty::new(storage), Gate::new());
    let agent = named(&faulty.storage(), "holder", [Turn::new().text("to all").gate(&gate)]);
    let chat = agent.open(&device("laptop")).await.unwrap();
    faulty.hold_commits(true);
    // Stored alone, since no other input waited.
    let alone = tokio::spawn({
        let chat = chat.clone();
        async move { chat.send("alone").await }
    });
    let yields = async || {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    };
    yields().await;
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let chat = chat.clone();
            tokio::spawn(async move { chat.prompt(format!("prompt {n}")).await.unwrap() })
        })
        .collect();
    yields().await;
    faulty.hold_commits(false);
    let alone = Queued::new(chat.id(), alone.await.unwrap().unwrap());
    let runs: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    let id = runs.iter().find_map(Run::id).unwrap();
    let mut reports = Vec::new();
    for run in runs {
        let Some(input) = run.queued().cloned() else {
            reports.push(tokio::spawn(run.finish()));
            continue;
        };
        assert_eq!(input.run, Some(id), "{name}");
        let chat = chat.clone();
        reports.push(tokio::spawn(async move { wait(&chat, &input).await }));
    }
    reports.push(tokio::spawn(agent.attach(chat.id()).unwrap().finish()));
    reports.push(tokio::spawn(async move { wait(&chat, &alone).await }));
    yields().await;
    gate.open();
    for report in join_all(reports).await {
        let report = report.unwrap().unwrap();
        assert_eq!((report.run, &*report.text), (Some(id), "to all"), "{name}");
        assert_eq!(report.outcome, RunOutcome::Completed(Reason::EndTurn), "{name}");
    }
}

each_store!(prompts_stored_together_share_the_answer);

/// A holder that was killed is replaced by the one who waits: at once if it is proven dead, else when its lease has
/// expired.
async fn a_killed_holder_is_replaced(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for (proven, ttl) in [(false, Duration::from_millis(200)), (true, TTL)] {
        let faulty = Faulty::new(storage.clone());
        let turns = [Turn::new().text("taken over")];
        let other =
            named(&faulty.storage(), "other", turns).open(&device(&format!("{proven}"))).await.unwrap();
        let effects = other.runtime().effects();
        let lease = LeaseRequest::new("killed", effects.new_run_id()).with_ttl(ttl);
        let begin = Commit::seal(effects, other.id(), other.record().head)
            .with_event(NewEvent::user_message("first"))
            .with_trigger(Trigger::BeginRun(lease));
        let epoch = storage.sessions.commit_with_retry(begin).await.unwrap().epoch.unwrap();
        let begun = Instant::now();
        let input = queued(other.prompt("second").await.unwrap()).await;
        let waiting = tokio::spawn({
            let (other, input) = (other.clone(), input.clone());
            async move { wait(&other, &input).await }
        });
        if proven {
            faulty.bury(epoch);
        }
        assert_eq!(waiting.await.unwrap().unwrap().text, "taken over", "{name}");
        match proven {
            true => assert!(begun.elapsed() < TTL, "{name}: {:?}", begun.elapsed()),
            false => assert!(begun.elapsed() >= ttl, "{name}: {:?}", begun.elapsed()),
        }
        let texts: Vec<_> = dialogue(&other).await.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["first", "second", "taken over"], "{name}");
        check_log(&other).await;
    }
}

each_store!(a_killed_holder_is_replaced, flavor = "multi_thread", worker_threads = 2);

/// The future may be dropped at any time, also while it begins a run: there is one answer, and the next call has it.
async fn waiting_may_be_dropped_at_any_time(site: Site) {
    let Scene { name, chat, .. } =
        Scene::new(&site, EchoProvider::new().with_delay(Duration::from_millis(3))).await;
    let mut runs = 0;
    for step in 1..=6 {
        let input = Queued::new(chat.id(), chat.send(format!("input {step} in four words")).await.unwrap());
        let mut patience = Duration::ZERO;
        let report = loop {
            match timeout(patience, chat.wait_for_answer(&input)).await {
                Ok(report) => break report.unwrap(),
                Err(_) => patience += Duration::from_micros(250 * step),
            }
            assert!(patience < STUCK, "{name}");
        };
        assert_eq!(report.text, format!("input {step} in four words"), "{name}");
        let now = chat.refresh().await.unwrap();
        assert_eq!((now.counts.runs - runs, now.inputs_open), (1, 0), "{name}: one run for one input");
        runs = now.counts.runs;
    }
    check_log(&chat).await;
}

each_store!(waiting_may_be_dropped_at_any_time, flavor = "multi_thread", worker_threads = 2);

/// A run that the one who waits has started may lose its lease; the answer is then that of the run that took over.
async fn a_run_that_is_fenced_is_no_answer(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let turns = [Turn::new().gate(&gate).text("too late")];
    let chat = named(&storage, "slow", turns).open(&device("laptop")).await.unwrap();
    let input = Queued::new(chat.id(), chat.send("hello").await.unwrap());
    let waiting = tokio::spawn({
        let chat = chat.clone();
        async move { wait(&chat, &input).await }
    });
    eventually(async || chat.refresh().await.unwrap().status.state == SessionState::Running).await;
    let faulty = Faulty::new(storage);
    faulty.bury(chat.record().epoch);
    let other = named(&faulty.storage(), "other", [Turn::new().text("in time")])
        .conversation_by_id(chat.id())
        .await
        .unwrap();
    let report = read(other.run_pending().await.unwrap().unwrap()).await.1;
    assert_eq!(waiting.await.unwrap().unwrap(), report, "{name}");
    assert_eq!(report.text, "in time", "{name}");
    check_log(&chat).await;
}

each_store!(a_run_that_is_fenced_is_no_answer);

/// A run that the one who waits has started may come too late for its input, and answer that of another.
async fn a_run_for_another_input_is_no_answer(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let faulty = Faulty::new(storage.clone());
    let late = named(&faulty.storage(), "late", [Turn::new().text("second's")])
        .open(&device("laptop"))
        .await
        .unwrap();
    let chat =
        named(&storage, "quick", [Turn::new().text("first's")]).conversation_by_id(late.id()).await.unwrap();
    let input = Queued::new(chat.id(), chat.send("first").await.unwrap());
    faulty.hold_commits(true);
    let waiting = tokio::spawn(async move { wait(&late, &input).await });
    eventually(async || faulty.holds()).await;
    let report = read(chat.run_pending().await.unwrap().unwrap()).await.1;
    chat.send("second").await.unwrap();
    faulty.hold_commits(false);
    assert_eq!(waiting.await.unwrap().unwrap(), report, "{name}");
    assert_eq!(report.text, "first's", "{name}");
    assert_eq!(dialogue(&chat).await.last().unwrap().1, "second's", "{name}");
}

each_store!(a_run_for_another_input_is_no_answer);

/// The run that claimed the input may fail, again and again with the same text, or be interrupted: the caller gets
/// that, with the text until then.
async fn the_end_of_the_run_is_reported(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let broken = || Turn::silent().text("half an").fail("it is overloaded");
    let (gate, never) = (Gate::new(), Gate::new());
    let turns = [broken(), broken(), Turn::new().text("half").gate(&gate).text(" an").gate(&never)];
    let chat = named(&storage, "holder", turns).open(&device("laptop")).await.unwrap();
    let other = named(&storage, "other", []).conversation_by_id(chat.id()).await.unwrap();
    for _ in 0..2 {
        let input = Queued::new(chat.id(), chat.send("hello").await.unwrap());
        let run = chat.run_pending().await.unwrap().unwrap();
        let (id, failed) = (run.id(), run.finish().await.unwrap_err());
        let RunError::Failed(report) = wait(&other, &input).await.unwrap_err() else { panic!("{name}") };
        assert_eq!((report.run, &*report.text, report.stored), (id, "half an", true), "{name}");
        let RunError::Failed(failed) = failed else { panic!("{name}") };
        assert_eq!(report.outcome, failed.outcome, "{name}");
    }
    let input = Queued::new(chat.id(), chat.send("hello").await.unwrap());
    let mut run = chat.run_pending().await.unwrap().unwrap();
    until_text(&mut run).await;
    gate.open();
    until_text(&mut run).await;
    run.cancel();
    let report = run.finish().await.unwrap();
    assert_eq!(report.outcome, RunOutcome::Interrupted, "{name}");
    let found = wait(&other, &input).await.unwrap();
    assert_eq!((found.run, found.outcome, found.text), (report.run, report.outcome, report.text), "{name}");
}

each_store!(the_end_of_the_run_is_reported);

/// A question of the run that claimed the input is its end, as for its own caller. An input behind a question that is
/// not answered says so, and is answered after it.
async fn a_question_is_reported(site: Site) {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let (name, storage) = (site.name, site.open().await);
    let delete = tool("delete", "Deletes.", |_: Nothing, _| async { Ok::<_, String>("deleted") });
    let call = Turn::new().text("May I?").call("c", "delete", RawJson::empty_object());
    let model = ScriptedProvider::new([call, Turn::new().text("both are answered")]);
    let agent = AgentBuilder::new()
        .with_llm(std::sync::Arc::new(model))
        .with_storage(storage)
        .with_tool(delete.with_mode(ToolMode::Confirm))
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    let first = Queued::new(chat.id(), chat.send("clean up").await.unwrap());
    let report = wait(&chat, &first).await.unwrap();
    let RunOutcome::Awaiting(action) = report.outcome.clone() else { panic!("{name}: {report:?}") };
    let read_again = wait(&chat, &first).await.unwrap();
    assert_eq!(
        (read_again.run, read_again.outcome, read_again.text),
        (report.run, report.outcome, report.text)
    );
    let second = queued(chat.prompt("and hurry").await.unwrap()).await;
    assert_eq!(state(wait(&chat, &second).await.unwrap_err()), SessionState::RequiresAction, "{name}");
    chat.answer(ToolConfirmation::new(action.id, Decision::Allow)).await.unwrap();
    for input in [&second, &first] {
        assert_eq!(wait(&chat, input).await.unwrap().text, "both are answered", "{name}");
    }
    assert_eq!(chat.refresh().await.unwrap().counts.runs, 2, "{name}");
}

each_store!(a_question_is_reported);

/// If the session may not run, the error says why, and the input is answered after that.
async fn a_session_that_may_not_run_is_reported(site: Site) {
    let Scene { name, storage, agent, chat } = Scene::echo(&site).await;
    let send = async |text: &str| Queued::new(chat.id(), chat.send(text).await.unwrap());
    let input = send("one").await;
    chat.suspend().await.unwrap();
    assert_eq!(state(wait(&chat, &input).await.unwrap_err()), SessionState::Suspended, "{name}");
    chat.archive().await.unwrap();
    assert_eq!(state(wait(&chat, &input).await.unwrap_err()), SessionState::Archived, "{name}");
    chat.unarchive().await.unwrap();
    chat.resume().await.unwrap();
    assert_eq!(wait(&chat, &input).await.unwrap().text, "one", "{name}");

    let input = send("two").await;
    let failure = Failure::new(Reason::ResourceError, "the disk failed");
    let fail =
        Commit::seal(agent.effects(), chat.id(), chat.record().head).with_trigger(Trigger::Fail(failure));
    storage.sessions.commit_with_retry(fail).await.unwrap();
    let error = wait(&chat, &input).await.unwrap_err();
    assert!(error.to_string().contains("the disk failed"), "{name}: {error}");
    assert!(matches!(error, RunError::Failed(report) if report.run.is_none()), "{name}");
    let recover =
        Commit::seal(agent.effects(), chat.id(), chat.record().head).with_trigger(Trigger::ClearFailure);
    storage.sessions.commit_with_retry(recover.with_trigger(Trigger::Ready)).await.unwrap();
    assert_eq!(wait(&chat, &input).await.unwrap().text, "two", "{name}");

    let input = send("three").await;
    chat.interrupt().await.unwrap();
    assert!(matches!(kind(wait(&chat, &input).await.unwrap_err()), ErrorKind::Conflict { .. }), "{name}");
    let input = send("four").await;
    chat.clear().await.unwrap();
    assert!(matches!(kind(wait(&chat, &input).await.unwrap_err()), ErrorKind::Conflict { .. }), "{name}");
    let input = send("five").await;
    chat.terminate().await.unwrap();
    assert_eq!(state(wait(&chat, &input).await.unwrap_err()), SessionState::Terminated, "{name}");
    chat.delete().await.unwrap();
    assert_eq!(kind(wait(&chat, &input).await.unwrap_err()), ErrorKind::Deleted, "{name}");
}

each_store!(a_session_that_may_not_run_is_reported);

/// What is no input of the session is refused at once.
#[tokio::test]
async fn what_is_no_input_is_refused() {
    let chat = agent(&MemoryStore::new().into(), EchoProvider::new()).open(&device("laptop")).await.unwrap();
    read(chat.prompt("hello").await.unwrap()).await;
    let answer =
        log(&chat).await.into_iter().find(|event| event.kind.as_str() == "agent.message").unwrap().seq;
    let elsewhere = chat.runtime().effects().new_session_id();
    let head = chat.record().head;
    let ours = [Seq::ZERO, Seq::new(1), answer, head, head.next()].map(|seq| Queued::new(chat.id(), seq));
    for input in ours.iter().chain([&Queued::new(elsewhere, Seq::new(3))]) {
        assert_eq!(kind(wait(&chat, input).await.unwrap_err()), ErrorKind::InvalidInput, "{input:?}");
    }
}

/// In a shutdown a run of this process has its time, and so have those who wait for it; others get an error.
#[tokio::test]
async fn a_shutdown_is_reported() {
    let storage = MemoryStore::new().into();
    let gate = Gate::new();
    let (chat, run) = held(&storage, &gate, []).await;
    let first = Queued::new(chat.id(), chat.record().last_input);
    let second = queued(chat.prompt("second").await.unwrap()).await;
    let waiting = [first, second].map(|input| {
        let chat = chat.clone();
        tokio::spawn(async move { wait(&chat, &input).await })
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let runtime = chat.runtime().clone();
    let shutdown = tokio::spawn(async move { runtime.shutdown(STUCK).await });
    tokio::task::yield_now().await;
    gate.open();
    read(run).await;
    shutdown.await.unwrap().unwrap();
    let [first, second] = waiting;
    assert_eq!(first.await.unwrap().unwrap().text, "so late");
    assert_eq!(kind(second.await.unwrap().unwrap_err()), ErrorKind::Unavailable);
}

/// An input whose unattended run failed is answered after the pause, by the one who waits.
#[tokio::test]
async fn a_failed_run_is_retried_after_its_pause() {
    let pause = Duration::from_millis(150);
    let config = Config::default().with_retry(Retry::new(pause, pause, 5));
    let model = ScriptedProvider::new([Turn::silent().fail("overloaded"), Turn::new().text("at last")]);
    let agent = agent_with(&MemoryStore::new().into(), model, config, []);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let input = Queued::new(chat.id(), chat.send("hello").await.unwrap());
    let begun = Instant::now();
    assert!(agent.run_pending(chat.id()).await.unwrap().unwrap().finish().await.is_err());
    assert_eq!(wait(&chat, &input).await.unwrap().text, "at last");
    assert!(begun.elapsed() >= pause, "{:?}", begun.elapsed());
}
