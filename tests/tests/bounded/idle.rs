//! Many conversations that are open and idle.

use std::fs;

use agent_runtime::{AgentBuilder, AgentRuntime, EchoProvider};
use agent_tests::{Site, each_store};
use tokio::runtime::Handle;
use tokio::time::timeout;

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
    fn now() -> Self {
        let count = |folder| fs::read_dir(folder).map_or(0, Iterator::count);
        Self {
            tasks: Handle::current().metrics().num_alive_tasks(),
            threads: count("/proc/self/task"),
            descriptors: count("/proc/self/fd"),
            heap: HEAP.current_usage(),
        }
    }
}

async fn open(site: &Site) -> AgentRuntime {
    let storage = site.open().await;
    AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage).build().unwrap()
}

async fn measure(site: Site) {
    let agent = open(&site).await;
    for n in 0..OPEN {
        let chat = agent.conversation(&format!("first/{n}")).await.unwrap();
        chat.ask("Hello").await.unwrap();
    }
    agent.storage().close().await.unwrap();
    drop(agent);
    let agent = open(&site).await;
    let warm = agent.conversation("first/0").await.unwrap();
    warm.ask("Hello").await.unwrap();
    for round in 0..3 {
        let before = Held::now();
        let mut chats = Vec::with_capacity(OPEN);
        for n in 0..OPEN {
            let chat = agent.conversation(&format!("first/{n}")).await.unwrap();
            chats.push(chat);
        }
        let opened = Held::now();
        for chat in &chats {
            chat.ask("Hello").await.unwrap();
        }
        let asked = Held::now();
        chats.clear();
        let dropped = Held::now();
        println!("{} round {round}", site.name);
        println!("  before {before:?}\n  opened {opened:?}\n  asked {asked:?}\n  dropped {dropped:?}");
        println!(
            "  per conversation: opened {} asked {} given back {}",
            opened.heap.saturating_sub(before.heap) / OPEN,
            asked.heap.saturating_sub(before.heap) / OPEN,
            asked.heap.saturating_sub(dropped.heap) / OPEN
        );
    }
    agent.storage().close().await.unwrap();
}

/// A conversation that is open and idle takes less than 8 KiB, and no task, thread or descriptor.
async fn idle_conversations_take_little_memory(site: Site) {
    let _alone = alone().await;
    timeout(STUCK, measure(site.unsynced())).await.expect("a conversation hangs");
}

each_store!(idle_conversations_take_little_memory, flavor = "multi_thread", worker_threads = 2);
