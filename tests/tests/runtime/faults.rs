//! Failures of the model and of the store, and their reports to the host.

use std::time::Duration;

use crate::common::{Faulty, Scene, agent_with, check_log, device, dialogue, read, try_read, until_text};
use agent_core::ErrorKind;
use agent_core::json::RawJson;
use agent_core::state::{Reason, SessionState};
use agent_runtime::{Config, Gate, OnStoreError, RunOutcome, ScriptedProvider, StopReason, Turn, Update};
use agent_tests::{Site, each_store};

/// A model that fails, panics or stops in the middle ends the run as failed; the text is kept, the session is
/// usable.
async fn a_failing_provider_leaves_the_session_usable(site: Site) {
    let model = ScriptedProvider::new([
        Turn::silent().text("I was ").fail("quota exceeded; add credit"),
        Turn::silent().panic(),
        Turn::silent().text("cut"),
        Turn::new().text("fine"),
    ]);
    let Scene { name, agent: _, chat, .. } = Scene::new(&site, model).await;
    for text in ["quota exceeded; add credit", "provider scripted panicked", "without a stop reason"] {
        let mut run = chat.prompt("secret words").await.unwrap();
        let mut failed = None;
        let mut report = None;
        while let Some(update) = run.next().await {
            match update.unwrap() {
                Update::Failed(failure) => failed = Some(failure),
                Update::Ended(end) => report = Some(*end),
                _ => {}
            }
        }
        let (failed, report) = (failed.unwrap(), report.unwrap());
        assert!(failed.text.contains(text), "{name}: {}", failed.text);
        assert!(!failed.text.contains("secret"), "{name}");
        assert_eq!(report.outcome, RunOutcome::Failed(failed.clone()), "{name}");
        let now = chat.refresh().await.unwrap();
        assert_eq!((now.status.state, now.status.reason), (SessionState::Idle, Reason::RunError), "{name}");
        assert_eq!((now.failure.as_ref(), now.inputs_open), (Some(&failed), 0), "{name}: kept, not pending");
    }
    let (text, report) = read(chat.prompt("again").await.unwrap()).await;
    assert_eq!((text.as_str(), report.outcome), ("fine", RunOutcome::Completed(Reason::EndTurn)), "{name}");
    assert!(chat.refresh().await.unwrap().failure.is_none(), "{name}");
    assert_eq!(dialogue(&chat).await[1], ("agent", "I was ".to_owned()), "{name}: what was heard is kept");
    // The script is at its end: the provider fails before it streams.
    assert!(matches!(read(chat.prompt("5").await.unwrap()).await.1.outcome, RunOutcome::Failed(_)), "{name}");
    check_log(&chat).await;
}

each_store!(a_failing_provider_leaves_the_session_usable);

/// A model that is silent for too long is given up; one that goes on saying something is not.
async fn silent_provider_times_out(site: Site) {
    let second = Duration::from_secs(1);
    let slow = (0..30).fold(Turn::new(), |turn, n| turn.wait(second * 9).text(format!("{n} ")));
    let model = ScriptedProvider::new([slow, Turn::new().text("so").gate(&Gate::new())]);
    let Scene { name, chat, .. } =
        Scene::with(&site, model, Config::default().with_model_silence(second * 10), []).await;
    assert!(read(chat.prompt("1").await.unwrap()).await.0.ends_with("29 "), "{name}");
    let (text, report) = read(chat.prompt("2").await.unwrap()).await;
    let RunOutcome::Failed(failure) = report.outcome else { panic!("{name}: {:?}", report.outcome) };
    assert_eq!(
        (text.as_str(), failure.text.as_str()),
        ("so", "provider scripted was silent for 10s"),
        "{name}"
    );
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Idle, "{name}");
}

each_store!(silent_provider_times_out, start_paused = true);

/// Strict: a turn that cannot be stored fails, with the store's error; the session stays usable.
async fn store_error_fail_fails_the_turn(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().text("lost").gate(&gate), Turn::new().text("kept")]);
    let (faulty, Scene { name, chat, .. }) = Scene::faulty(&site, model, Config::default()).await;
    let mut run = chat.prompt("1").await.unwrap();
    until_text(&mut run).await;
    faulty.fail_commits(1);
    gate.open();
    let (_, end) = try_read(run).await;
    assert_eq!(*end.unwrap_err().kind(), ErrorKind::Full, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.status.reason), (SessionState::Idle, Reason::RunError), "{name}");
    assert!(now.failure.as_ref().unwrap().text.contains("no space"), "{name}");
    read(chat.prompt("2").await.unwrap()).await;
    let texts: Vec<_> = dialogue(&chat).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["1", "2", "kept"], "{name}");
}

each_store!(store_error_fail_fails_the_turn);

/// An input that cannot be stored starts no run, in either mode.
async fn unstored_input_starts_no_run(site: Site) {
    let (name, under) = (site.name, site.open().await);
    for persistence in [OnStoreError::Fail, OnStoreError::Continue] {
        let faulty = Faulty::new(under.clone());
        let model = ScriptedProvider::new([]);
        let config = Config::default().with_on_store_error(persistence);
        let agent = agent_with(&faulty.storage(), model.clone(), config, []);
        let chat = agent.open(&device("laptop")).await.unwrap();
        let head = chat.record().head;
        faulty.fail_commits(1);
        let error = chat.prompt("1").await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Full, "{name}");
        assert_eq!(chat.refresh().await.unwrap().head, head, "{name}");
        assert!(model.requests().is_empty(), "{name}");
    }
}

each_store!(unstored_input_starts_no_run);

/// Best effort: what cannot be stored is reported, the turn goes on to the user, and it is stored with the next
/// step, once and in order.
async fn store_error_continue_reports_and_stores_later(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([
        Turn::new().text("I look.").gate(&gate).call("c", "nothing", RawJson::empty_object()),
        Turn::new().text("done"),
    ]);
    let config = Config::default().with_on_store_error(OnStoreError::Continue);
    let (faulty, Scene { name, chat, .. }) = Scene::faulty(&site, model.clone(), config).await;
    let mut run = chat.prompt("1").await.unwrap();
    until_text(&mut run).await;
    faulty.fail_commits(2);
    gate.open();
    let (mut missed, mut text, mut end) = (0, String::new(), None);
    while let Some(update) = run.next().await {
        match update.unwrap() {
            Update::NotStored(error) => {
                assert_eq!(*error.kind(), ErrorKind::Full, "{name}");
                missed += 1;
            }
            Update::Text(piece) => text.push_str(&piece),
            Update::Ended(report) => end = Some(report),
            _ => {}
        }
    }
    assert_eq!((missed, text.as_str()), (2, "done"), "{name}");
    assert!(end.unwrap().stored, "{name}: the last step stored what was missing");
    assert_eq!(model.requests()[1].messages.len(), 3, "{name}: the model saw it all the same");
    let calls = crate::common::calls(&chat).await;
    assert_eq!((calls.len(), calls[0].1.len()), (1, 1), "{name}");
    let texts: Vec<_> = dialogue(&chat).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["1", "I look.", "done"], "{name}");
    check_log(&chat).await;
}

each_store!(store_error_continue_reports_and_stores_later);

/// Best effort: if nothing can be stored to the end, the user gets the answer, marked as not stored.
async fn store_error_continue_reports_an_unstored_turn(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().text("so far").gate(&gate)]);
    let config = Config::default().with_on_store_error(OnStoreError::Continue);
    let (faulty, Scene { name, chat, .. }) = Scene::faulty(&site, model, config).await;
    let mut run = chat.prompt("1").await.unwrap();
    assert_eq!(until_text(&mut run).await, "so far", "{name}");
    faulty.fail_commits(1000);
    gate.open();
    let (_, report) = read(run).await;
    assert!(!report.stored, "{name}");
    assert_eq!((report.text.as_str(), report.status.state), ("so far", SessionState::Running), "{name}");
    assert_eq!(dialogue(&chat).await.len(), 1, "{name}");
}

each_store!(store_error_continue_reports_an_unstored_turn);

/// An answer that is larger than an event is cut, and the session stays usable.
async fn oversized_answer_is_cut_and_session_stays_usable(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for persistence in [OnStoreError::Fail, OnStoreError::Continue] {
        let model = ScriptedProvider::new([
            Turn::new().text("x".repeat(17 << 20)).done(StopReason::EndTurn),
            Turn::new().text("short"),
        ]);
        let config = Config::default().with_on_store_error(persistence);
        let agent = agent_with(&storage, model, config, []);
        let chat = agent.open(&device(&format!("{persistence:?}"))).await.unwrap();
        let (text, report) = read(chat.prompt("1").await.unwrap()).await;
        assert_eq!(report.outcome, RunOutcome::Completed(Reason::MaxOutput), "{name}");
        assert!(report.stored && dialogue(&chat).await[1] == ("agent", text), "{name}");
        assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Idle, "{name}");
        assert_eq!(read(chat.prompt("2").await.unwrap()).await.0, "short", "{name}");
    }
}

each_store!(oversized_answer_is_cut_and_session_stays_usable);
