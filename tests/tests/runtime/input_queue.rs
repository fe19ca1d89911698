//! Concurrent inputs to one session.

use std::time::Duration;

use crate::common::{Faulty, agent, agent_with, check_log, device, dialogue, ended, eventually, log, read};
use agent_core::event::{EventPayload, Message};
use agent_core::json::RawJson;
use agent_core::state::SessionState;
use agent_core::{Error, ErrorKind, Result, Seq, Storage, WriteOutcome};
use agent_runtime::{AgentRuntime, Config, Conversation, EchoProvider, Input, Run};
use agent_tests::{Site, each_store};
use futures::future::join_all;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Instant;

/// How long to wait before a test is given up as stuck. Never what a test is about.
const STUCK: Duration = Duration::from_secs(60);

/// An agent that echoes, on a store that fails on demand, and a session of it.
async fn crowd(under: Storage) -> (Faulty, AgentRuntime, Conversation) {
    let faulty = Faulty::new(under);
    let agent = agent(&faulty.storage(), EchoProvider::new());
    let chat = agent.open(&device("laptop")).await.unwrap();
    (faulty, agent, chat)
}

/// The texts of all inputs, in the order of the log.
async fn asked(chat: &Conversation) -> Vec<String> {
    dialogue(chat).await.into_iter().filter(|(who, _)| *who == "user").map(|(_, text)| text).collect()
}

/// Begins prompts, each through a handle of its own, and waits until all of them are under way. Their tasks are begun
/// in this order.
async fn prompts(
    agent: &AgentRuntime,
    chat: &Conversation,
    inputs: impl IntoIterator<Item = Input>,
) -> Vec<JoinHandle<Result<Run>>> {
    let mut tasks = Vec::new();
    for input in inputs {
        let chat = agent.conversation_by_id(chat.id()).await.unwrap();
        tasks.push(tokio::spawn(async move { chat.prompt(input).await }));
    }
    // One thread: each of the tasks has its turn in each of these.
    for _ in 0..4 * tasks.len() + 100 {
        yield_now().await;
    }
    tasks
}

fn texts(from: usize, count: usize) -> impl Iterator<Item = Input> {
    (from..from + count).map(|n| format!("prompt {n}").into())
}

async fn all<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let done = tokio::time::timeout(STUCK, join_all(tasks)).await.expect("somebody waits for ever");
    done.into_iter().map(|task| task.unwrap()).collect()
}

/// The text of an input.
async fn text_at(chat: &Conversation, seq: Seq) -> String {
    let event = log(chat).await.into_iter().find(|event| event.seq == seq).unwrap();
    let EventPayload::UserMessage(message) = event.decode().unwrap() else { panic!("{event:?} is no input") };
    message.text
}

/// Those who wait while another is written go in one commit, in order; each gets the position of its own input, one starts a
/// run, and all are answered.
async fn waiting_inputs_are_written_in_one_commit(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let (faulty, agent, chat) = crowd(under).await;
    let before = faulty.commits();
    faulty.hold_commits(true);
    let tasks = prompts(&agent, &chat, texts(0, 300)).await;
    assert_eq!(faulty.commits(), before, "{name}");
    faulty.hold_commits(false);
    let (mut waiting, mut running) = (0, Vec::new());
    for (n, run) in (0..).zip(all(tasks).await) {
        let run = run.unwrap();
        match run.queued() {
            Some(stored) => {
                waiting += 1;
                assert_eq!(text_at(&chat, stored.seq).await, format!("prompt {n}"), "{name}");
                assert_eq!(stored.state, SessionState::Running, "{name}: by the record after it");
                assert!(stored.holder.is_some(), "{name}");
            }
            None => running.push(run),
        }
    }
    assert_eq!(running.len() + waiting, 300, "{name}");
    for run in running {
        read(run).await;
    }
    if let Some(run) = chat.run_pending().await.unwrap() {
        read(run).await;
    }
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.inputs_open), (SessionState::Idle, 0), "{name}");
    let expected: Vec<_> = (0..300).map(|n| format!("prompt {n}")).collect();
    assert_eq!(asked(&chat).await, expected, "{name}");
    // One of one, one of 256, one of 43; each of at most four runs ends, and one that goes on takes what came.
    let commits = faulty.commits() - before;
    assert!(commits <= 12, "{name}: {commits} commits");
    check_log(&chat).await;
}

each_store!(waiting_inputs_are_written_in_one_commit and files);

/// What is stored without a run goes in one commit as well, and keeps its place among prompts.
async fn sent_inputs_keep_their_order_among_prompts(site: Site) {
    let (name, under) = (site.name, site.open().await);
    let (faulty, agent, chat) = crowd(under).await;
    let before = faulty.commits();
    faulty.hold_commits(true);
    let first = prompts(&agent, &chat, texts(0, 2)).await;
    let sent: Vec<_> = (2..102)
        .map(|n| {
            let chat = chat.clone();
            tokio::spawn(async move { chat.send(format!("prompt {n}")).await })
        })
        .collect();
    for _ in 0..1000 {
        yield_now().await;
    }
    let last = prompts(&agent, &chat, texts(102, 2)).await;
    faulty.hold_commits(false);
    for run in all(first).await.into_iter().chain(all(last).await) {
        ended(run.unwrap()).await;
    }
    // The run of the last takes up what was only sent.
    eventually(async || {
        let now = chat.refresh().await.unwrap();
        (now.status.state, now.inputs_open) == (SessionState::Idle, 0)
    })
    .await;
    for (n, seq) in (2..).zip(all(sent).await) {
        assert_eq!(text_at(&chat, seq.unwrap()).await, format!("prompt {n}"), "{name}");
    }
    let expected: Vec<_> = (0..104).map(|n| format!("prompt {n}")).collect();
    assert_eq!(asked(&chat).await, expected, "{name}");
    let commits = faulty.commits() - before;
    assert!(commits <= 12, "{name}: {commits} commits");
}

each_store!(sent_inputs_keep_their_order_among_prompts);

/// An input that is refused is refused alone.
async fn refused_input_affects_no_other(site: Site) {
    let deep = RawJson::parse(&format!("{}1{}", "[".repeat(120), "]".repeat(120))).unwrap();
    let (name, storage) = (site.name, site.open().await);
    let (faulty, agent, chat) = crowd(storage).await;
    faulty.hold_commits(true);
    let mut inputs: Vec<_> = texts(0, 6).collect();
    inputs[3] = Message::new("too deep").with_metadata("deep", deep.clone()).into();
    inputs[5] = "x".repeat(20 << 20).into();
    let tasks = prompts(&agent, &chat, inputs).await;
    faulty.hold_commits(false);
    let mut done = all(tasks).await;
    for at in [5, 3] {
        let error = done.remove(at).unwrap_err();
        assert_eq!(
            (error.kind(), error.write_outcome()),
            (&ErrorKind::LimitExceeded, WriteOutcome::NotApplied)
        );
        assert!(error.to_string().contains(&chat.id().to_string()), "{name}: {error}");
    }
    for run in done {
        ended(run.unwrap()).await;
    }
    assert_eq!(asked(&chat).await, ["prompt 0", "prompt 1", "prompt 2", "prompt 4"], "{name}");
}

each_store!(refused_input_affects_no_other and files);

/// If the store refuses a commit, each caller gets the error, and nothing is stored; and where its answer is lost, each input is
/// stored once.
async fn store_error_reaches_every_queued_caller(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let (faulty, agent, chat) = crowd(storage).await;
    faulty.hold_commits(true);
    let tasks = prompts(&agent, &chat, texts(0, 20)).await;
    faulty.fail_commits(2);
    faulty.hold_commits(false);
    for run in all(tasks).await {
        let error: Error = run.unwrap_err();
        assert_eq!(
            (error.kind(), error.write_outcome()),
            (&ErrorKind::Full, WriteOutcome::NotApplied),
            "{name}"
        );
    }
    assert_eq!(dialogue(&chat).await, [], "{name}");
    faulty.hold_commits(true);
    let tasks = prompts(&agent, &chat, texts(0, 20)).await;
    faulty.lose_answers(2);
    faulty.hold_commits(false);
    for run in all(tasks).await {
        ended(run.unwrap()).await;
    }
    let asked = asked(&chat).await.len();
    assert_eq!(asked, 20, "{name}");
    check_log(&chat).await;
}

each_store!(store_error_reaches_every_queued_caller and files);

/// Where one has waited for as long as it may, nobody behind it waits as long once more.
async fn queued_inputs_share_one_timeout(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let (faulty, agent, chat) = crowd(storage).await;
    faulty.hold_commits(true);
    let begun = Instant::now();
    let tasks = prompts(&agent, &chat, texts(0, 600)).await;
    // All of them wait for most of the time that the first waits.
    tokio::time::sleep(begun.elapsed() * 3).await;
    // Two would fail, if anybody tried again.
    faulty.time_commits_out(2);
    faulty.hold_commits(false);
    for run in all(tasks).await {
        let error = run.unwrap_err();
        assert!(error.is_timeout(), "{name}: {error:?}");
        assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{name}");
    }
    assert_eq!(dialogue(&chat).await, [], "{name}");
    let error = chat.send("late").await.unwrap_err();
    assert!(error.is_timeout(), "{name}: the second is still to come");
    read(chat.prompt("now").await.unwrap()).await;
}

each_store!(queued_inputs_share_one_timeout and files);

/// A caller that goes away takes nobody along, also if it was the one that wrote for all; nor does a store that panics.
async fn dropped_caller_fails_no_other_input(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let (faulty, agent, chat) = crowd(storage).await;
    faulty.hold_commits(true);
    let mut tasks = prompts(&agent, &chat, texts(0, 10)).await;
    for at in [7, 1, 0] {
        tasks.remove(at).abort();
    }
    faulty.panic_commits(2);
    faulty.hold_commits(false);
    for run in all(tasks).await {
        ended(run.unwrap()).await;
    }
    let asked = asked(&chat).await.len();
    assert_eq!(asked, 10, "{name}: what was under way is stored");
}

each_store!(dropped_caller_fails_no_other_input and files);

/// A host that leaves the runtime on which it stored an input does not block the inputs behind it: they are written
/// alone, and the inputs in its commit have an unknown outcome.
#[tokio::test(start_paused = true)]
async fn ended_runtime_blocks_no_queued_input() {
    let (faulty, agent, chat) = crowd(agent_core::MemoryStore::new().into()).await;
    faulty.hold_commits(true);
    let (left, behind) = (
        agent.conversation_by_id(chat.id()).await.unwrap(),
        agent.conversation_by_id(chat.id()).await.unwrap(),
    );
    let runtime = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            drop(tokio::time::timeout(Duration::from_millis(20), left.prompt("left")).await);
        });
        runtime
    });
    let runtime = runtime.join().unwrap();
    faulty.hold_commits(false);
    // Its turn is held by a task that nobody polls.
    let run = tokio::time::timeout(Duration::from_secs(600), behind.prompt("behind")).await;
    read(run.expect("it waits for ever").unwrap()).await;
    assert_eq!(dialogue(&chat).await[0], ("user", "behind".to_owned()));
    runtime.shutdown_background();
    read(chat.prompt("at last").await.unwrap()).await;
}

/// A long line on a slow store goes on in line for as long as it moves.
#[tokio::test(start_paused = true)]
async fn queue_waits_while_it_makes_progress() {
    let (faulty, _, chat) = crowd(agent_core::MemoryStore::new().into()).await;
    faulty.slow_commits(Duration::from_secs(50));
    // Each is too large to go with another.
    let tasks = (0..6).map(|n| {
        let (chat, text) = (chat.clone(), "x".repeat(1 << 20) + &n.to_string());
        tokio::spawn(async move { chat.send(text).await })
    });
    let done = tokio::time::timeout(Duration::from_secs(3600), join_all(tasks)).await;
    assert!(done.expect("it waits for ever").into_iter().all(|sent| sent.unwrap().is_ok()));
    assert_eq!((dialogue(&chat).await.len(), faulty.most_at_once()), (6, 1));
}

/// Prompts that wait for a session that is set aside let it go on together, and know their places.
async fn queued_prompts_resume_a_session_together(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let faulty = Faulty::new(storage);
    let config = Config::default().with_resume_on_prompt(true);
    let agent = agent_with(&faulty.storage(), EchoProvider::new(), config, []);
    let chat = agent.open(&device("laptop")).await.unwrap();
    read(chat.prompt("first").await.unwrap()).await;
    chat.suspend().await.unwrap();
    faulty.hold_commits(true);
    let tasks = prompts(&agent, &chat, texts(0, 5)).await;
    faulty.hold_commits(false);
    for (n, run) in (0..).zip(all(tasks).await) {
        let run = run.unwrap();
        if let Some(stored) = run.queued() {
            assert_eq!(text_at(&chat, stored.seq).await, format!("prompt {n}"), "{name}");
        }
        ended(run).await;
    }
    check_log(&chat).await;
}

each_store!(queued_prompts_resume_a_session_together);

/// A crowd, of as many as `AGENT_TEST_CROWD` says: each input is stored once, and all are answered.
async fn concurrent_inputs_are_stored_once_and_answered(site: Site) {
    let count = std::env::var("AGENT_TEST_CROWD").map_or(2_000, |text| text.parse().unwrap());
    let (name, storage) = (site.name, site.open().await);
    let (faulty, _, chat) = crowd(storage).await;
    let (begun, before) = (Instant::now(), faulty.commits());
    let tasks = (0..count).map(|n| {
        let chat = chat.clone();
        tokio::spawn(async move { chat.prompt(format!("prompt {n}")).await.map(drop) })
    });
    for stored in all(tasks.collect()).await {
        stored.unwrap();
    }
    let taken = begun.elapsed();
    eventually(async || {
        let now = chat.refresh().await.unwrap();
        if now.status.state == SessionState::Queued {
            drop(chat.run_pending().await.unwrap());
        }
        (now.status.state, now.inputs_open) == (SessionState::Idle, 0)
    })
    .await;
    let commits = faulty.commits() - before;
    println!("proof: {count} inputs of a crowd on {name}, stored in {taken:?} with {commits} commits");
    let mut asked: Vec<_> = dialogue(&chat).await.into_iter().filter(|(who, _)| *who == "user").collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), count, "{name}");
}

each_store!(concurrent_inputs_are_stored_once_and_answered and files, flavor = "multi_thread", worker_threads = 2);
