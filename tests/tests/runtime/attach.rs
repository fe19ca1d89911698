//! The way back to a run whose stream was lost, and several readers of one run.

use std::time::Duration;

use crate::common::{Scene, agent, check_log, device, dialogue, read, until_text};
use agent_core::commit::{Commit, Trigger};
use agent_core::json::RawJson;
use agent_core::state::SessionState;
use agent_core::{Backend, MemoryStore, SessionStoreExt, TenantId};
use agent_runtime::{
    AgentBuilder, EchoProvider, Gate, Run, RunOutcome, ScriptedProvider, Turn, Update, schemars, tool,
};
use agent_tests::{Site, each_store};
use futures::StreamExt;
use futures::future::join_all;

const MIB: usize = 1 << 20;

/// How long to wait before a test is given up as stuck. Never what a test is about.
const STUCK: Duration = Duration::from_secs(60);

/// A run goes on without its stream, and a new stream has what comes from then on; history has the rest.
async fn a_lost_stream_is_attached_again(site: Site) {
    let gate = Gate::new();
    let model = || ScriptedProvider::new([Turn::new().text("so").gate(&gate).text(" late")]);
    let Scene { name, storage, agent, chat } = Scene::new(&site, model()).await;
    assert!(agent.attach(chat.id()).is_none(), "{name}: nothing runs");
    let mut run = chat.prompt("first").await.unwrap();
    until_text(&mut run).await;
    let id = run.id();
    drop(run);
    let run = agent.attach(chat.id()).unwrap();
    assert_eq!((run.id(), run.queued()), (id, None), "{name}");
    let elsewhere = crate::common::agent(&storage, model());
    assert!(elsewhere.attach(chat.id()).is_none(), "{name}: it runs in another process");
    assert!(agent.attach(agent.effects().new_session_id()).is_none(), "{name}");
    gate.open();
    let (text, report) = read(run).await;
    assert_eq!((&*text, &*report.text), (" late", "so late"), "{name}");
    assert!(agent.attach(chat.id()).is_none(), "{name}: it has ended");
    let expected = [("user", "first".to_owned()), ("agent", "so late".to_owned())];
    assert_eq!(dialogue(&chat).await, expected, "{name}");
    check_log(&chat).await;
}

each_store!(a_lost_stream_is_attached_again);

/// Any number of readers see the same run from where they come in, and each can cancel it.
async fn several_readers_see_one_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let agent = agent(
        &storage,
        ScriptedProvider::new([Turn::new().text("so").gate(&gate).text(" late").gate(&Gate::new())]),
    );
    let chat = agent.open(&device("laptop")).await.unwrap();
    let mut first = chat.prompt("first").await.unwrap();
    until_text(&mut first).await;
    let mut others: Vec<_> = (0..5).map(|_| agent.attach(chat.id()).unwrap()).collect();
    drop(others.remove(2));
    gate.open();
    for run in others.iter_mut().chain([&mut first]) {
        assert_eq!(until_text(run).await, " late", "{name}");
    }
    others[3].cancel();
    let runs = others.into_iter().chain([first]);
    for report in tokio::time::timeout(STUCK, join_all(runs.map(Run::finish))).await.unwrap() {
        let report = report.unwrap();
        assert_eq!((report.outcome, &*report.text), (RunOutcome::Interrupted, "so late"), "{name}");
    }
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Idle, "{name}");
}

each_store!(several_readers_see_one_run);

/// A reader that reads nothing slows neither the run nor the others; it holds at most 4 MiB, and gets the end.
async fn an_idle_reader_does_not_slow_the_run(site: Site) {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let calls = (0..9).fold(Turn::new().gate(&gate), |turn, n| {
        turn.call(&format!("c{n}"), "make", RawJson::empty_object())
    });
    let model = ScriptedProvider::new([calls, Turn::new().text("enough")]);
    let make = |_: Nothing, _| async { Ok::<_, String>("m".repeat(MIB)) };
    let agent = AgentBuilder::new()
        .with_llm(std::sync::Arc::new(model))
        .with_storage(storage)
        .with_tool(tool("make", "Makes a MiB.", make))
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    let reader = chat.prompt("go").await.unwrap();
    let idle = agent.attach(chat.id()).unwrap();
    gate.open();
    let report = tokio::time::timeout(STUCK, reader.finish()).await.expect("the idle one slows it").unwrap();
    assert_eq!(report.text, "enough", "{name}");
    let (mut bytes, mut skipped, mut last) = (0, 0, None);
    let updates: Vec<_> = tokio::time::timeout(STUCK, idle.collect()).await.unwrap();
    for update in updates {
        match update.unwrap() {
            Update::ToolDone(result) => {
                let full = result.full.as_ref().and_then(|full| full.text.as_ref()).map_or(0, String::len);
                bytes += result.output.get().len() + full;
            }
            Update::Skipped { updates, .. } => skipped += updates,
            Update::Ended(report) => last = Some(report),
            _ => {}
        }
    }
    assert!((2 * MIB..4 * MIB).contains(&bytes), "{name}: {bytes} bytes were held");
    assert!(skipped >= 5, "{name}: {skipped} were left out");
    assert_eq!(*last.unwrap(), report, "{name}");
}

each_store!(an_idle_reader_does_not_slow_the_run);

/// Of two runs of one session in this process, of which the earlier has lost its lease, the later is found.
#[tokio::test]
async fn attach_finds_the_run_with_the_lease() {
    let storage = MemoryStore::new().into();
    let (early, late) = (Gate::new(), Gate::new());
    let model = ScriptedProvider::new([Turn::new().gate(&early), Turn::new().gate(&late).text("second")]);
    let agent = agent(&storage, model);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let first = chat.prompt("first").await.unwrap();
    let lost = Commit::seal(agent.effects(), chat.id(), chat.record().head);
    storage
        .sessions
        .commit_with_retry(lost.with_trigger(Trigger::LeaseExpired(chat.record().epoch)))
        .await
        .unwrap();
    let second = chat.run_pending().await.unwrap().unwrap();
    assert!(first.finish().await.is_err());
    let attached = agent.attach(chat.id()).unwrap();
    assert_eq!(attached.id(), second.id());
    late.open();
    assert_eq!(attached.finish().await.unwrap().text, "second");
}

/// A run of one tenant is not found by another, also under the id of its session.
#[tokio::test]
async fn attach_finds_no_run_of_another_tenant() {
    let store = MemoryStore::new();
    let tenant = |name: &str| name.parse::<TenantId>().unwrap();
    let agent = agent(&store.tenant(&tenant("a")), EchoProvider::new().with_delay(Duration::from_millis(5)));
    let chat = agent.open(&device("laptop")).await.unwrap();
    let run = chat.prompt("for a").await.unwrap();
    assert!(agent.for_storage(store.tenant(&tenant("b"))).attach(chat.id()).is_none());
    assert!(agent.clone().attach(chat.id()).is_some());
    read(run).await;
}
