//! Faults of a model provider: which are retried, how long the run waits, and what is reported to the host.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::json::RawJson;
use agent_core::model::{Access, Patch, Usage};
use agent_core::{Error, MemoryStore};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{
    AgentBuilder, Config, Conversation, FaultKind, ModelEvent, ProviderFault, Run, RunError, RunOutcome,
    RunReport, ScriptedProvider, StopReason, Turn, Update,
};
use agent_tests::{Site, each_store};
use tokio::time::Instant;

use crate::common::{agent, agent_with, check_log, dialogue};

const RETRIED: [FaultKind; 4] =
    [FaultKind::RateLimited, FaultKind::Overloaded, FaultKind::Timeout, FaultKind::Network];
const FINAL: [FaultKind; 6] = [
    FaultKind::Auth,
    FaultKind::Quota,
    FaultKind::ContextTooLong,
    FaultKind::Filtered,
    FaultKind::InvalidRequest,
    FaultKind::Other,
];

fn fault(kind: FaultKind) -> ProviderFault {
    ProviderFault::new(kind, "the server said no")
}

/// Conversation with a model that follows the script.
async fn chat(model: &ScriptedProvider, config: Config) -> Conversation {
    let agent = agent_with(&MemoryStore::new().into(), model.clone(), config, []);
    agent.conversation("key").await.unwrap()
}

/// Reads a run to its end; its retries and its report.
async fn watch(mut run: Run) -> (Vec<(Duration, ProviderFault)>, RunReport) {
    let mut retries = Vec::new();
    while let Some(update) = run.next().await {
        match update.unwrap() {
            Update::Retrying { after, fault, .. } => retries.push((after, fault)),
            Update::Ended(report) => return (retries, *report),
            _ => {}
        }
    }
    panic!("the stream ended without an end");
}

#[tokio::test(start_paused = true)]
async fn transient_faults_are_retried() {
    for kind in RETRIED {
        // Refused before there is a stream, and by a stream without an event.
        let model = ScriptedProvider::new([
            Turn::fault(fault(kind)),
            Turn::silent().cut(fault(kind)),
            Turn::new().text("fine"),
        ]);
        let chat = chat(&model, Config::new()).await;
        let begun = Instant::now();
        let (retries, report) = watch(chat.prompt("Hello").await.unwrap()).await;
        assert_eq!(report.outcome, RunOutcome::Completed(agent_core::state::Reason::EndTurn), "{kind}");
        assert_eq!((report.text.as_str(), report.fault()), ("fine", None), "{kind}");
        let [(first, reported), (second, _)] = &retries[..] else { panic!("{kind}: {retries:?}") };
        assert_eq!(*reported, fault(kind));
        assert!((500..=1000).contains(&first.as_millis()), "{kind}: {first:?}");
        assert!((1000..=2000).contains(&second.as_millis()), "{kind}: {second:?}");
        let waited = begun.elapsed();
        assert!(waited >= *first + *second && waited < Duration::from_secs(4), "{kind}: {waited:?}");
        let requests = model.requests();
        assert!(requests.len() == 3 && requests.iter().all(|request| *request == requests[0]), "{kind}");
        assert_eq!(agent_texts(&chat).await, ["fine"], "{kind}");
    }
}

async fn agent_texts(chat: &Conversation) -> Vec<String> {
    dialogue(chat).await.into_iter().filter(|(who, _)| *who == "agent").map(|(_, text)| text).collect()
}

#[tokio::test(start_paused = true)]
async fn retries_end_and_the_failure_has_its_kind() {
    for (retries, config) in [
        (2, Config::new()),
        (0, Config::new().with_model_retries(0)),
        (4, Config::new().with_model_retries(4)),
    ] {
        let busy = std::iter::repeat_with(|| Turn::fault(fault(FaultKind::Overloaded)));
        let model = ScriptedProvider::new(busy.take(retries + 1).chain([Turn::new().text("late")]));
        let chat = chat(&model, config).await;
        let (seen, report) = watch(chat.prompt("Hello").await.unwrap()).await;
        assert_eq!((seen.len(), model.requests().len()), (retries, retries + 1));
        assert_eq!(report.fault(), Some(FaultKind::Overloaded));
        let now = chat.refresh().await.unwrap();
        let failure = now.failure.as_ref().unwrap();
        assert_eq!((&*failure.text, failure.fault.as_deref()), ("the server said no", Some("overloaded")));
        // The error of `?` keeps the kind as well.
        let error = Error::from(RunError::Failed(Box::new(report)));
        assert_eq!(ProviderFault::of(&error).unwrap().kind, FaultKind::Overloaded);
    }
}

#[tokio::test(start_paused = true)]
async fn final_faults_are_not_retried() {
    for kind in FINAL {
        let model = ScriptedProvider::new([Turn::fault(fault(kind)), Turn::new().text("late")]);
        let chat = chat(&model, Config::new()).await;
        let (retries, report) = watch(chat.prompt("Hello").await.unwrap()).await;
        assert_eq!((retries.len(), model.requests().len(), report.fault()), (0, 1, Some(kind)));
    }
    // An error without a fault is final, and has no kind.
    let model = ScriptedProvider::new([Turn::silent().fail("no credit"), Turn::new().text("late")]);
    let (retries, report) = watch(chat(&model, Config::new()).await.prompt("Hello").await.unwrap()).await;
    assert_eq!((retries.len(), model.requests().len(), report.fault()), (0, 1, None));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_retried_after_the_first_event() {
    for kind in RETRIED {
        let model =
            ScriptedProvider::new([Turn::silent().text("It is ").cut(fault(kind)), Turn::new().text("late")]);
        let chat = chat(&model, Config::new()).await;
        let (retries, report) = watch(chat.prompt("Hello").await.unwrap()).await;
        assert_eq!((retries.len(), model.requests().len(), report.fault()), (0, 1, Some(kind)));
        assert_eq!(agent_texts(&chat).await, ["It is "], "the text so far is stored");
    }
}

#[tokio::test(start_paused = true)]
async fn empty_streams_count_as_lost_connections() {
    let model = ScriptedProvider::new([Turn::silent(), Turn::new().text("fine")]);
    let (retries, report) = watch(chat(&model, Config::new()).await.prompt("Hello").await.unwrap()).await;
    assert_eq!((retries[0].1.kind, report.text.as_str()), (FaultKind::Network, "fine"));
    // Text came, so that the model is not asked again.
    let model = ScriptedProvider::new([Turn::silent().text("It is "), Turn::new().text("late")]);
    let (retries, report) = watch(chat(&model, Config::new()).await.prompt("Hello").await.unwrap()).await;
    assert_eq!((retries.len(), report.fault()), (0, Some(FaultKind::Network)));
}

#[tokio::test(start_paused = true)]
async fn silence_is_a_timeout_and_not_retried() {
    let model = ScriptedProvider::new([Turn::new().wait(Duration::from_secs(99)), Turn::new().text("late")]);
    let config = Config::new().with_model_silence(Duration::from_secs(10));
    let (retries, report) = watch(chat(&model, config).await.prompt("Hello").await.unwrap()).await;
    assert_eq!((retries.len(), model.requests().len(), report.fault()), (0, 1, Some(FaultKind::Timeout)));
}

#[tokio::test(start_paused = true)]
async fn pause_follows_the_provider_up_to_a_minute() {
    for (named, least, most) in [(7, 7, 8), (3600, 60, 60), (0, 0, 0)] {
        let refused = fault(FaultKind::RateLimited).with_retry_after(Duration::from_secs(named));
        let model = ScriptedProvider::new([Turn::fault(refused), Turn::new().text("fine")]);
        let (retries, report) = watch(chat(&model, Config::new()).await.prompt("Hello").await.unwrap()).await;
        let after = retries[0].0;
        assert!(
            after >= Duration::from_secs(least) && after <= Duration::from_secs(most),
            "{named}: {after:?}"
        );
        assert_eq!(report.text, "fine");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_does_not_wait_for_its_retry() {
    let refused = fault(FaultKind::RateLimited).with_retry_after(Duration::from_secs(50));
    let model = ScriptedProvider::new([Turn::fault(refused), Turn::new().text("late")]);
    let chat = chat(&model, Config::new()).await;
    let begun = Instant::now();
    let mut run = chat.prompt("Hello").await.unwrap();
    let canceller = run.canceller();
    while !matches!(run.next().await.unwrap().unwrap(), Update::Retrying { .. }) {}
    canceller.cancel();
    assert_eq!(watch(run).await.1.outcome, RunOutcome::Interrupted);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn secrets_in_faults_are_redacted() {
    let name: SecretName = "github".parse().unwrap();
    let secret = Secret::new("ghp_0123456789").unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), secret)]));
    let busy = || ProviderFault::new(FaultKind::Network, "no route with ghp_0123456789");
    let model = ScriptedProvider::new([Turn::fault(busy()), Turn::fault(busy()), Turn::fault(busy())]);
    let builder = AgentBuilder::new().with_llm(model).with_storage(MemoryStore::new()).with_secrets(secrets);
    let agent = builder.build().unwrap();
    let chat = agent.conversation("key").await.unwrap();
    let mount = Patch::new().mount(name.resource(), Access::Read);
    let chat = agent.new_session(chat.record().workspace, &mount).await.unwrap();
    let (retries, report) = watch(chat.prompt("Hello").await.unwrap()).await;
    let seen = format!("{retries:?} {report:?}");
    assert!(seen.contains("no route with") && !seen.contains("0123"), "{seen}");
    // The store that redacts keeps the kind.
    let failure = chat.refresh().await.unwrap().failure.clone().unwrap();
    assert_eq!(failure.fault.as_deref(), Some("network"));
}

/// The kind of a fault is stored with the failure, and read by another process.
async fn fault_of_a_failed_run_is_stored(site: Site) {
    let storage = site.open().await;
    let model = ScriptedProvider::new([Turn::fault(fault(FaultKind::Auth)), Turn::silent().fail("away")]);
    let first = agent(&storage, model);
    let chat = first.conversation("key").await.unwrap();
    let mut ids = Vec::new();
    for kind in [Some(FaultKind::Auth), None] {
        let Err(RunError::Failed(report)) = chat.prompt("Hello").await.unwrap().finish().await else {
            panic!("the model failed")
        };
        assert_eq!(report.fault(), kind, "{}", site.name);
        let stored = storage.sessions.load(chat.id()).await.unwrap();
        let failure = stored.failure.clone().unwrap();
        assert_eq!(failure.fault.as_deref(), kind.map(FaultKind::name), "{}", site.name);
        // A failure without a fault has the bytes that it always had.
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(json.contains("fault"), kind.is_some(), "{json}");
        ids.push(stored.head);
    }
    check_log(&chat).await;
    drop((first, chat));
    let storage = site.open().await;
    let other = agent(&storage, ScriptedProvider::new([])).conversation("key").await.unwrap();
    let failure = other.refresh().await.unwrap().failure.clone().unwrap();
    assert_eq!((&*failure.text, failure.fault), ("away", None), "{}", site.name);
    check_log(&other).await;
}

each_store!(fault_of_a_failed_run_is_stored);

/// What a provider says of a refusal is shown to the person who asked, in one line without what is secret, and is in no log.
async fn words_of_a_provider_are_shown_and_not_kept(site: Site) {
    let (store, storage) = (site.name, site.open().await);
    let name: SecretName = "token".parse().unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("ghp_0123456789").unwrap())]));
    let words = format!("no\x1b[31m model `x`\r\nfor ghp_0123456789 {}", "a".repeat(400));
    let refused = fault(FaultKind::InvalidRequest).with_said(words);
    let agent = AgentBuilder::new()
        .with_llm(ScriptedProvider::new([Turn::fault(refused)]))
        .with_storage(storage.clone())
        .with_secrets(secrets)
        .build()
        .unwrap();
    let chat = agent.conversation("key").await.unwrap();
    let mount = Patch::new().mount(name.resource(), Access::Read);
    let chat = agent.new_session(chat.record().workspace, &mount).await.unwrap();
    let mut run = chat.prompt("Hello").await.unwrap();
    let mut shown = Vec::new();
    while let Some(update) = run.next().await {
        if let Update::ProviderMessage(line) = update.unwrap() {
            shown.push(line);
        }
    }
    assert_eq!(shown.len(), 1, "{store}");
    assert!(shown[0].starts_with("no [31m model `x`  for ") && shown[0].ends_with('…'), "{store}: {shown:?}");
    assert!(shown[0].len() <= 300 && !shown[0].contains("ghp_"), "{store}: {shown:?}");
    let log = crate::common::log(&chat).await;
    assert!(!format!("{log:?} {:?}", chat.refresh().await.unwrap()).contains("model `x`"), "{store}");
}

each_store!(words_of_a_provider_are_shown_and_not_kept and files);

/// Numbers from a provider are data: they may have any value.
async fn usage_of_any_size_is_added(site: Site) {
    let most = Usage::new(u64::MAX, u64::MAX).with_cache(u64::MAX, u64::MAX).with_reasoning(u64::MAX);
    let call = Turn::silent()
        .call("a", "none", RawJson::empty_object())
        .event(ModelEvent::done(StopReason::EndTurn, most));
    let end = || Turn::silent().text("Done.").event(ModelEvent::done(StopReason::EndTurn, most));
    let config = Config::new().with_record_usage(true);
    let storage = site.open().await;
    let agent = agent_with(&storage, ScriptedProvider::new([call, end(), end()]), config, []);
    let chat = agent.conversation("key").await.unwrap();
    for text in ["One", "Two"] {
        let report = chat.prompt(text).await.unwrap().finish().await.unwrap();
        assert_eq!((report.usage, report.stored), (most, true), "{}", site.name);
    }
    assert_eq!(chat.refresh().await.unwrap().usage.usage, most, "{}", site.name);
    check_log(&chat).await;
}
each_store!(usage_of_any_size_is_added);
