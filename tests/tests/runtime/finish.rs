//! Reasons that a run reports if there is no answer.

use std::error::Error as _;
use std::time::Duration;

use crate::common::{agent, check_log, device, dialogue, eventually, queued, read};
use agent_core::commit::{Commit, Trigger};
use agent_core::{Error, ErrorKind, MemoryStore, Result, SessionStoreExt, WriteOutcome};
use agent_runtime::{
    Conversation, EchoProvider, Gate, Queued, RunError, RunOutcome, ScriptedProvider, Turn, Update,
};
use agent_tests::{Site, each_store};
use futures::FutureExt;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

async fn ask(chat: &Conversation, text: &str) -> Result<String> {
    Ok(chat.prompt(text).await?.finish().await?.text)
}

async fn ask_boxed(
    chat: &Conversation,
    text: &str,
) -> std::result::Result<String, Box<dyn std::error::Error>> {
    Ok(chat.prompt(text).await?.finish().await?.text)
}

/// A failing model is an error, with the text until then; the session stays usable.
async fn a_failing_model_is_an_error(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let broken = || Turn::silent().text("It is ").fail("the model is overloaded");
    let model = ScriptedProvider::new([broken(), broken(), broken(), Turn::new().text("noon")]);
    let chat = agent(&storage, model).open(&device("laptop")).await.unwrap();
    let run = chat.prompt("What time is it?").await.unwrap();
    let id = run.id().unwrap();
    let error = run.finish().await.unwrap_err();
    let RunError::Failed(report) = &error else { panic!("{name}: {error:?}") };
    assert_eq!((report.session, report.run, &*report.text), (chat.id(), Some(id), "It is "), "{name}");
    assert!(matches!(&report.outcome, RunOutcome::Failed(it) if it.text == "the model is overloaded"));
    for part in
        [chat.id().to_string(), id.to_string(), "the model is overloaded".into(), "prompt again".into()]
    {
        assert!(error.to_string().contains(&part), "{name}: {error}");
    }
    let error = ask(&chat, "And now?").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.write_outcome()),
        (&ErrorKind::Provider, WriteOutcome::Unknown),
        "{name}"
    );
    let error = ask_boxed(&chat, "And now?").await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(RunError::Failed(_))), "{name}: {error}");
    assert_eq!(ask(&chat, "And now?").await.unwrap(), "noon", "{name}");
    check_log(&chat).await;
}

each_store!(a_failing_model_is_an_error);

/// An input that is only queued is an error that names who answers first, and it is stored once.
async fn a_queued_input_is_an_error(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let chat = agent(&storage, ScriptedProvider::new([Turn::new().gate(&gate)]))
        .open(&device("laptop"))
        .await
        .unwrap();
    let run = chat.prompt("first").await.unwrap();
    assert_eq!(run.queued(), None, "{name}: it runs");
    let second = chat.prompt("second").await.unwrap();
    let waits = second.queued().unwrap().clone();
    assert_eq!((waits.session, second.id(), waits.run), (chat.id(), None, None), "{name}");
    let holder = waits.holder.clone().unwrap();
    let error = second.finish().await.unwrap_err();
    for part in [chat.id().to_string(), waits.seq.to_string(), holder.clone()] {
        assert!(error.to_string().contains(&part), "{name}: {error}");
    }
    let error = ask(&chat, "third").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.write_outcome()),
        (&ErrorKind::Busy { holder }, WriteOutcome::Unknown),
        "{name}"
    );
    gate.open();
    read(run).await;
    let texts: Vec<_> = dialogue(&chat).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["first", "second", "third"], "{name}");
}

each_store!(a_queued_input_is_an_error);

/// An error of a store stays that error, with its kind and cause.
#[tokio::test]
async fn an_error_of_a_store_stays_itself() {
    let storage = MemoryStore::new().into();
    let gate = Gate::new();
    let chat = agent(&storage, ScriptedProvider::new([Turn::new().gate(&gate)]))
        .open(&device("laptop"))
        .await
        .unwrap();
    let run = chat.prompt("first").await.unwrap();
    let lost = Commit::seal(chat.runtime().effects(), chat.id(), chat.record().head);
    storage
        .sessions
        .commit_with_retry(lost.with_trigger(Trigger::LeaseExpired(chat.record().epoch)))
        .await
        .unwrap();
    let error = run.finish().await.unwrap_err();
    let RunError::Store(inner) = error.clone() else { panic!("{error:?}") };
    assert!(matches!(inner.kind(), ErrorKind::Fenced { .. }), "{error}");
    assert_eq!(error.to_string(), inner.to_string());
    assert_eq!(Error::from(error).kind(), inner.kind());
    let caused = RunError::from(Error::invalid("x").with_source(Error::invalid("cause")));
    assert_eq!(caused.source().unwrap().to_string(), "cause");
}

/// A run whose task was lost with its runtime says so, and names itself.
#[tokio::test]
async fn a_run_whose_task_is_lost_reports_it() {
    let storage = MemoryStore::new().into();
    let elsewhere =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let run = elsewhere.spawn(async move {
        let model = ScriptedProvider::new([Turn::new().gate(&Gate::new())]);
        let chat = agent(&storage, model).open(&device("laptop")).await.unwrap();
        let run = chat.prompt("first").await.unwrap();
        (chat, run)
    });
    let (chat, run) = run.await.unwrap();
    let attached = chat.runtime().attach(chat.id()).unwrap();
    elsewhere.shutdown_background();
    for run in [run, attached] {
        let id = run.id().unwrap().to_string();
        let error = Error::from(run.finish().await.unwrap_err());
        assert_eq!(*error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(&id), "{error}");
    }
}

/// What there is to do about an input that waits depends on the state of its session.
#[tokio::test]
async fn the_remedy_fits_the_state() {
    let chat = agent(&MemoryStore::new().into(), EchoProvider::new()).open(&device("laptop")).await.unwrap();
    chat.suspend().await.unwrap();
    let waits = queued(chat.prompt("first").await.unwrap()).await;
    let text = RunError::Queued(waits.clone()).to_string();
    assert!(text.contains("is suspended") && text.contains("resume the session"), "{text}");
    assert_eq!(*Error::from(RunError::Queued(waits)).kind(), ErrorKind::Busy { holder: String::new() });
    let plain = RunError::Queued(Queued::new(chat.id(), chat.record().head)).to_string();
    assert!(plain.contains("wait for its answer"), "{plain}");
}

/// Every caller gets an answer to its own input, also if another process runs the session meanwhile.
async fn ask_waits_behind_another_run(site: Site) {
    let (name, storage, other) = (site.name, site.open().await, site.open().await);
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().gate(&gate).text("one"), Turn::new().text("two")]);
    let here = agent(&storage, model.clone()).conversation("key").await.unwrap();
    let there = agent(&other, model).conversation("key").await.unwrap();
    let mut first = here.prompt("1").await.unwrap();
    first.next().await.unwrap().unwrap();
    let asked = tokio::spawn(async move { there.ask("2").await });
    eventually(|| async { here.refresh().await.unwrap().inputs_new > 0 }).await;
    gate.open();
    assert_eq!(first.finish().await.unwrap().text, "one", "{name}");
    let report = timeout(LONG, asked).await.unwrap().unwrap().unwrap();
    assert_eq!(report.text, "two", "{name}");
    assert_eq!(here.refresh().await.unwrap().inputs_open, 0, "{name}");
}

each_store!(ask_waits_behind_another_run, flavor = "multi_thread");

/// A future of `next` that is dropped while it waits takes no update with it, so a host may wait in a `select!`.
#[tokio::test]
async fn next_that_is_dropped_loses_no_update() {
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().gate(&gate).text("one").text("two")]);
    let chat = agent(&MemoryStore::new().into(), model).open(&device("laptop")).await.unwrap();
    let mut run = chat.prompt("1").await.unwrap();
    let mut text = String::new();
    let mut ended = false;
    loop {
        // Each wait is given up once before it is waited out.
        let update = match run.next().now_or_never() {
            Some(update) => update,
            None => {
                gate.open();
                timeout(LONG, run.next()).await.unwrap()
            }
        };
        match update.transpose().unwrap() {
            Some(Update::Text(piece)) => text.push_str(&piece),
            Some(Update::Ended(report)) => ended = report.text == text,
            Some(_) => {}
            None => break,
        }
    }
    assert_eq!((text.as_str(), ended), ("onetwo", true));
    assert!(run.next().await.is_none(), "the stream has ended");
}
