//! Times of an encrypted store as ratios to the one around which it is, in the same run: `cargo run --release -p agent-vault --example cost`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures time, and prints it"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{Backend, MemoryStore, Storage, TenantId, WorkspaceId};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use agent_vault::{KeyRing, Vault};

const ROUNDS: usize = 300;

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// Does each of `works` in turn, so that both meet the same machine.
async fn compare<F: AsyncFnMut(&Storage)>(name: &str, stores: [&Storage; 2], mut work: F) {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (store, times) in stores.iter().zip(&mut times) {
            let start = Instant::now();
            work(store).await;
            times.push(start.elapsed());
        }
    }
    let [plain, sealed] = times.map(median);
    println!("  {name}: {plain:.1} us, encrypted {sealed:.1} us: {:.2}", sealed / plain);
}

async fn measure(name: &str, plain: Arc<dyn Backend>, inner: Arc<dyn Backend>) {
    println!("{name}");
    let vault = Vault::open(inner, KeyRing::from_bytes([7; 32])).await.unwrap();
    let tenant = TenantId::default();
    let stores = [plain.tenant(&tenant), vault.tenant(&tenant)];
    let effects = stores[0].effects().clone();
    let id = effects.new_session_id();
    let text = "What did we decide yesterday about the bridge over the river? ".repeat(4);
    for store in &stores {
        let session = store.sessions.create(NewSession::new(id, WorkspaceId::DEFAULT)).await.unwrap();
        let events = (0..200).map(|_| NewEvent::agent_message(text.as_str())).collect();
        store.sessions.append(id, session.head, events).await.unwrap();
        for _ in 0..100 {
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            store.sessions.create(new).await.unwrap();
        }
    }
    let both = [&stores[0], &stores[1]];
    compare("append a message", both, async |store| {
        let head = store.sessions.load(id).await.unwrap().head;
        store.sessions.append(id, head, vec![NewEvent::agent_message(text.as_str())]).await.unwrap();
    })
    .await;
    compare("load a record", both, async |store| drop(store.sessions.load(id).await.unwrap())).await;
    compare("read the last 50", both, async |store| {
        assert_eq!(store.sessions.read(id, ReadEvents::last(50)).await.unwrap().events.len(), 50);
    })
    .await;
    compare("list 50", both, async |store| {
        assert_eq!(store.sessions.list(SessionQuery::new()).await.unwrap().items.len(), 50);
    })
    .await;
    compare("create a session", both, async |store| {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        store.sessions.create(new).await.unwrap();
    })
    .await;
}

#[tokio::main]
async fn main() {
    measure("memory", Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let files = (FsStore::open(path("a")).await.unwrap(), FsStore::open(path("b")).await.unwrap());
    measure("files", Arc::new(files.0), Arc::new(files.1)).await;
    let sqlite =
        (SqliteStore::open(path("a.db")).await.unwrap(), SqliteStore::open(path("b.db")).await.unwrap());
    measure("SQLite", Arc::new(sqlite.0), Arc::new(sqlite.1)).await;
}
