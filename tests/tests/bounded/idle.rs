//! Many conversations that are open and idle.

use std::fs;
use std::time::Duration;

use agent_core::Result;
use agent_core::event::NewEvent;
use agent_runtime::schemars::JsonSchema;
use agent_runtime::{AgentBuilder, AgentRuntime, Config, EchoProvider, ToolContext, tool};
use agent_tests::{Site, each_store};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::{HEAP, STUCK, alone};

/// How many conversations are open.
const OPEN: usize = 1_000;

/// What this process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    heap: usize,
    tasks: usize,
    threads: usize,
    descriptors: usize,
}

impl Held {
    /// Counts when the tasks of the last runs have ended.
    async fn now() -> Self {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let ended = async {
            while tasks() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(Duration::from_secs(20), ended).await;
        let count = |folder| fs::read_dir(folder).map_or(0, Iterator::count);
        Self {
            tasks: tasks(),
            threads: count("/proc/self/task"),
            descriptors: count("/proc/self/fd"),
            heap: HEAP.current_usage(),
        }
    }
}

/// An agent that keeps so many bytes of contexts between runs, and has a tool whose description is that long.
async fn agent(site: &Site, kept: usize, described: usize) -> AgentRuntime {
    let storage = site.open().await;
    let config = Config::new().with_context_cache_bytes(kept);
    let builder = AgentBuilder::new().with_llm(EchoProvider::new()).with_config(config);
    builder.with_tool(tool("look", "x".repeat(described), look)).with_storage(storage).build().unwrap()
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "agent_runtime::schemars")]
struct Nothing {}

async fn look(_: Nothing, _: ToolContext) -> Result<&'static str> {
    Ok("seen")
}

async fn idle(site: Site) {
    let kind = site.name;
    let first = agent(&site, 0, 1).await;
    for n in 0..=OPEN {
        let chat = first.conversation(&n.to_string()).await.unwrap();
        chat.ask("Hello").await.unwrap();
    }
    drop(first);
    // What every process has, whatever is open in it, is there after the first conversation.
    let agent = agent(&site, 0, 1).await;
    agent.conversation(&OPEN.to_string()).await.unwrap().ask("Hello").await.unwrap();
    let before = Held::now().await;
    let mut chats = Vec::with_capacity(OPEN);
    for n in 0..OPEN {
        chats.push(agent.conversation(&n.to_string()).await.unwrap());
    }
    let opened = Held::now().await;
    for chat in &chats {
        chat.ask("Hello again").await.unwrap();
    }
    let asked = Held::now().await;
    let each = |then: Held| then.heap.saturating_sub(before.heap) / OPEN;
    println!("{kind}: {} bytes for a conversation that is open, {} after a turn", each(opened), each(asked));
    println!("{kind}: {before:?} before, {opened:?} opened, {asked:?} after a turn");
    for (when, then) in [("opened", opened), ("used", asked)] {
        assert!(each(then) < 8 << 10, "{kind}, {when}: {} bytes for each conversation", each(then));
        assert_eq!(then.tasks, 0, "{kind}, {when}: tasks");
        // Those that may block come and go with the load of the machine.
        assert!(then.threads <= before.threads + 64, "{kind}, {when}: {then:?}, {before:?} before");
        // The store on files keeps the files of 128 sessions open.
        let most = if kind == "files" { 128 * 3 + 16 } else { 16 };
        assert!(then.descriptors <= before.descriptors + most, "{kind}, {when}: {then:?}, {before:?} before");
    }
    assert!(chats.iter().all(|chat| chat.record().counts.messages() == 4), "{kind}");
    agent.storage().close().await.unwrap();
}

/// A conversation that is open and idle takes less than 8 KiB, and no task, thread or descriptor of its own.
async fn idle_conversations_take_little_memory(site: Site) {
    let _alone = alone().await;
    timeout(STUCK, idle(site.unsynced())).await.expect("a conversation hangs");
}

each_store!(idle_conversations_take_little_memory and files, flavor = "multi_thread", worker_threads = 2);

/// Returns how much more memory there is after a turn in each of many conversations, some long and some short.
async fn after_turns(kept: usize, described: usize) -> usize {
    let site = Site::new("memory").await;
    let agent = agent(&site, kept, described).await;
    let mut chats = Vec::new();
    for n in 0..400 {
        let chat = agent.conversation(&n.to_string()).await.unwrap();
        let text = || "x".repeat(if n % 2 == 0 { 1000 } else { 10 });
        let turn = |_| [NewEvent::user_message(text()), NewEvent::agent_message(text())];
        let events = (0..50).flat_map(turn).collect();
        agent.storage().sessions.append(chat.id(), chat.record().head, events).await.unwrap();
        chats.push(chat);
    }
    let before = Held::now().await;
    for chat in &chats {
        chat.ask("Hello again").await.unwrap();
    }
    Held::now().await.heap.saturating_sub(before.heap)
}

/// Contexts that are kept take no more memory than they may, and about as much as is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_contexts_take_the_memory_of_their_budget() {
    let _alone = alone().await;
    let budget = 16 << 20;
    // With tools of an ordinary size, and with those of servers that say much.
    for described in [10, 100_000] {
        let none = timeout(STUCK, after_turns(0, described)).await.expect("a conversation hangs");
        let kept = timeout(STUCK, after_turns(budget, described)).await.expect("a conversation hangs");
        let all = timeout(STUCK, after_turns(1 << 30, described)).await.expect("a conversation hangs");
        println!("{none} bytes without contexts, {kept} with those of {budget}, {all} with all");
        assert!(kept - none < budget + (1 << 20), "{}", kept - none);
        assert!(kept - none > budget / 2, "{}", kept - none);
        assert!(all - none > 3 * budget / 2, "all are more than fit");
    }
}
