//! Conversations by key in a bucket that several machines share, and their erasure: no object has a word of them.

use std::collections::BTreeSet;
use std::time::Duration;

use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Attributes, Patch, Title};
use agent_core::state::SessionState;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{ErrorKind, Seq, Storage};
use agent_runtime::retention::Erasure;
use agent_runtime::{AgentBuilder, AgentRuntime, Conversation, EchoProvider, RunError};
use agent_storage_s3::S3Config;
use futures::TryStreamExt;
use futures::future::join_all;
use s3_simulator::Simulator;
use tokio::time::timeout;

const SECRET: &str = "xyzzy-plugh-4711";

/// A machine of its own: it shares the bucket with the others, and nothing else.
async fn machine(simulator: &Simulator, name: &str) -> AgentRuntime {
    let option = |config: S3Config, name| config.with_option(name, "any").unwrap();
    let config = ["access_key_id", "secret_access_key", "region"]
        .into_iter()
        .fold(S3Config::new("bucket"), option)
        .with_http_connector(simulator.connector(name));
    let storage: Storage = config.open().await.unwrap().into();
    AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage).build().unwrap()
}

/// The keys of the objects that hold a text.
fn holding(simulator: &Simulator, text: &str) -> Vec<String> {
    let holds = |key: &String| {
        let body = simulator.object(key).unwrap();
        body.windows(text.len()).any(|part| part == text.as_bytes())
    };
    simulator.keys().into_iter().filter(holds).collect()
}

/// The key of a session in the lists of a bucket is of a minute, and is written again once in 15 minutes.
#[tokio::test]
async fn the_latest_session_is_known_despite_stale_lists() {
    let simulator = Simulator::new(1);
    let agent = machine(&simulator, "machine").await;
    let mut chats = Vec::new();
    for n in 0..70 {
        chats.push(agent.conversation(&format!("support/{n}")).await.unwrap());
    }
    let workspace = chats[0].record().workspace;
    for n in [3, 69, 0, 40] {
        timeout(Duration::from_secs(120), chats[n].ask("Hello")).await.unwrap().unwrap();
        let other = machine(&simulator, &format!("other {n}")).await;
        let latest = other.workspaces().latest_session(workspace).await.unwrap();
        assert_eq!(latest.unwrap().id, chats[n].id(), "{n}");
    }
}

/// Machines that open the same conversations at the same moment have the same sessions; what each of them says first is
/// there once.
#[tokio::test(flavor = "multi_thread")]
async fn one_winner_among_machines() {
    let simulator = Simulator::new(1);
    let machines = join_all((0..4).map(async |n| machine(&simulator, &format!("machine {n}")).await)).await;
    for key in ["support/4711", "a/b", "🙂"] {
        let opened = machines.iter().flat_map(|agent| [agent; 3]).map(|agent| agent.conversation(key));
        let opened = timeout(Duration::from_secs(120), join_all(opened)).await.unwrap();
        let ids: BTreeSet<_> = opened.into_iter().map(|chat| chat.unwrap().id()).collect();
        assert_eq!(ids.len(), 1, "{key}");
        let query = SessionQuery::new().with_label(Attributes::CONVERSATION_KEY, key);
        let listed: Vec<_> = machines[3].sessions(query).try_collect().await.unwrap();
        assert_eq!(listed.iter().map(|session| session.id).collect::<BTreeSet<_>>(), ids);
    }
    let begun = machines.iter().enumerate().map(async |(n, agent)| {
        let begun = agent.conversation_with("with", format!("from {n}")).await.unwrap();
        // The run of another machine may have the session: then that run answers.
        match begun.run.finish().await {
            Err(RunError::Queued(queued)) => begun.conversation.wait_for_answer(&queued).await.unwrap(),
            finished => finished.unwrap(),
        };
        begun.created
    });
    let created = timeout(Duration::from_secs(120), join_all(begun)).await.unwrap();
    assert_eq!(created.into_iter().filter(|created| *created).count(), 1);
    let chat = machines[0].conversation("with").await.unwrap();
    let users: BTreeSet<_> = chat
        .messages()
        .try_filter(|message| futures::future::ready(message.role == agent_core::model::Role::User))
        .map_ok(|message| message.text)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(users.len(), 4);
    assert_eq!(chat.record().counts.user, 4);

    machines[1].conversation("with").await.unwrap().delete().await.unwrap();
    let error = machines[2].conversation("with").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deleted, "{error}");
    let recreated = machines.iter().map(|agent| agent.recreate_conversation("with"));
    let recreated = timeout(Duration::from_secs(120), join_all(recreated)).await.unwrap();
    let ids: BTreeSet<_> = recreated.into_iter().map(|chat| chat.unwrap().id()).collect();
    assert!(ids.len() == 1 && !ids.contains(&chat.id()));
}

async fn fill(chat: &Conversation) {
    let patch = Patch::new()
        .with_title(Title::by_user(SECRET))
        .with_label(SECRET, SECRET)
        .with_metadata(SECRET, RawJson::of(&SECRET).unwrap());
    chat.update(patch).await.unwrap();
    // Enough commits for more than one window of slots.
    for n in 0..40 {
        let sessions = &chat.runtime().storage().sessions;
        let events = vec![NewEvent::user_message(format!("{SECRET} ").repeat(1 + n * 10))];
        sessions.append(chat.id(), Seq::ZERO, events).await.unwrap();
    }
}

/// No object in the bucket holds a word of a conversation that was erased, but for what its fork reads until that is
/// erased, too; the objects of others are as they were.
#[tokio::test]
async fn no_byte_of_an_erased_session_is_left() {
    let simulator = Simulator::new(1);
    let (here, there) = (machine(&simulator, "here").await, machine(&simulator, "there").await);
    let other = here.conversation("other").await.unwrap();
    other.prompt("what others say").await.unwrap().finish().await.unwrap();
    let others = holding(&simulator, "what others say");
    let chat = here.conversation(&format!("by/{SECRET}")).await.unwrap();
    fill(&chat).await;
    chat.prompt(SECRET).await.unwrap().finish().await.unwrap();
    let fork = there.conversation_by_id(chat.id()).await.unwrap().fork(None).await.unwrap();
    fill(&chat).await;
    let shared = fork.record().lineage.base().get();
    let was = chat.refresh().await.unwrap();
    assert!(holding(&simulator, SECRET).len() > 80, "it is found where it is");

    let done = chat.erase().await.unwrap();
    assert_eq!((done.events, done.needed_by), (was.head.get() + 1 - shared, Some(fork.id())));
    assert_eq!(there.workspaces().erase(fork.id()).await.unwrap().needed_by, None);
    let done = there.erase_conversation(&format!("by/{SECRET}")).await.unwrap();
    assert_eq!((done.events, done.needed_by), (shared, None));
    assert_eq!(here.workspaces().erase(chat.id()).await.unwrap(), Erasure::default(), "again");
    assert_eq!(holding(&simulator, SECRET), [""; 0]);
    assert_eq!(holding(&simulator, "what others say"), others);

    // Another machine, which knows nothing, sees the tombstone only.
    let cold = machine(&simulator, "cold").await.storage().clone();
    let left = cold.sessions.load(chat.id()).await.unwrap();
    assert_eq!((left.status.state, &*left), (SessionState::Deleted, &left.tombstone()));
    assert!(!left.to_json().contains(SECRET));
    assert_eq!(cold.sessions.read(chat.id(), ReadEvents::first(10)).await.unwrap().events, []);
}
