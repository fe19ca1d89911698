//! Costs of operations, in calls to the system. Counted are the syncs of each write; an append, a load and a read
//! beside 10,000 blobs of the session and without; and the deletion of a tenant in a small file and in a larger one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::ReadEvents;
use agent_core::{Backend, SessionId, SessionStore, TenantId, WorkspaceId, WorkspaceStore};
use agent_storage_sqlite::Sync;
use rusqlite::Connection;

use crate::model::Disk;
use crate::script::{START, open};
use crate::vfs;

/// How often each call was made.
type Calls = BTreeMap<&'static str, usize>;

async fn counted<T>(disk: &Disk, work: impl Future<Output = T>) -> Calls {
    let calls = Arc::new(Mutex::new(Calls::new()));
    let count = calls.clone();
    disk.fail(move |_, call| {
        *count.lock().unwrap().entry(call.name).or_default() += 1;
        None
    });
    work.await;
    disk.heal();
    calls.lock().unwrap().clone()
}

/// A commit is one sync of the log. That a workspace was used, and that a run is alive, are none; with a commit that comes at
/// the same time they share its sync, which makes durable also what came before.
#[tokio::test]
async fn advice_costs_no_sync_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::new();
    vfs::note(folder.path(), &disk);
    let (store, effects) =
        (open(&folder.path().join("agent.db"), Sync::Full).await.unwrap(), Effects::seeded(2, START));
    let id = effects.new_session_id();
    let place = Workspace::new(WorkspaceId::DEFAULT, "place", id, START);
    store.put(place, Precondition::MustNotExist).await.unwrap();
    let begin = Trigger::BeginRun(LeaseRequest::new("test", effects.new_run_id()));
    let create = Commit::create(&effects, NewSession::new(id, WorkspaceId::DEFAULT))
        .with_event(NewEvent::user_message("go"))
        .with_trigger(begin);
    let begun = store.commit(create).await.unwrap().session;
    let append = |head| Commit::seal(&effects, id, head).with_event(NewEvent::user_message("more"));
    let syncs = |calls: Calls| (calls.get("sync").copied().unwrap_or(0), calls["write"] > 0);

    let touch = async || store.touch(WorkspaceId::DEFAULT, effects.now()).await.unwrap();
    assert_eq!(syncs(counted(&disk, touch()).await), (0, true));
    assert_eq!(syncs(counted(&disk, store.leases().heartbeat(id, begun.epoch)).await), (0, true));
    let calls = counted(&disk, store.commit(append(begun.head))).await;
    assert_eq!(syncs(calls), (1, true), "a commit after these");
    let both = async { tokio::join!(touch(), store.commit(append(begun.head.next()))).1.unwrap() };
    assert_eq!(syncs(counted(&disk, both).await), (1, true));
    store.close().await.unwrap();
}

/// Makes a session of 60 messages, and gives it so many blobs.
async fn make(path: &Path, blobs: u32) -> SessionId {
    let effects = Effects::seeded(1, START);
    let store = open(path, Sync::Off).await.unwrap();
    let id = effects.new_session_id();
    let events = (0..60).map(|n| NewEvent::user_message(format!("message {n}")));
    let create = Commit::create(&effects, NewSession::new(id, WorkspaceId::DEFAULT)).with_events(events);
    store.commit(create).await.unwrap();
    store.close().await.unwrap();
    let sql = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2) \
        INSERT INTO blobs (tenant, session, state, name, bytes, named, at, crc) \
        SELECT 'default', ?1, 'whole', printf('%064x', n), 1, 2, 0, 0 FROM n WHERE n <= ?2";
    let conn = Connection::open(path).unwrap();
    conn.execute(sql, (id.to_string(), blobs)).unwrap();
    conn.execute("INSERT INTO blob_chunks SELECT blob, 0, 0, x'00' FROM blobs", ()).unwrap();
    id
}

/// A session's blobs are passed over by an append of plain text, a load, and a read of the last 50 events: each makes the
/// same calls to the system, from a cold cache, with 10,000 blobs as with none.
#[tokio::test]
async fn blobs_cost_plain_sessions_no_page() {
    let mut seen = Vec::new();
    for blobs in [0, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        let id = make(&path, blobs).await;
        let disk = Disk::new();
        // The disk has to know what the file has.
        let bytes = std::fs::read(&path).unwrap();
        vfs::note(folder.path(), &disk);
        crate::put(&disk, "agent.db", &bytes);
        let mut each = Vec::new();
        for what in ["load", "last", "append"] {
            let store = open(&path, Sync::Full).await.unwrap();
            let calls = counted(&disk, async {
                match what {
                    "load" => drop(SessionStore::load(&store, id).await.unwrap()),
                    "last" => {
                        assert_eq!(store.read(id, ReadEvents::last(50)).await.unwrap().events.len(), 50)
                    }
                    _ => {
                        let effects = Effects::seeded(2, START);
                        let append = Commit::seal(&effects, id, agent_core::Seq::new(61))
                            .with_event(NewEvent::user_message("plain"));
                        store.commit(append).await.unwrap();
                    }
                }
            });
            each.push((what, calls.await));
            store.close().await.unwrap();
        }
        seen.push(each);
    }
    assert!(seen[0].iter().all(|(_, calls)| calls["read"] > 0), "else this shows nothing: {seen:?}");
    assert!(seen[0][2].1["write"] > 0, "{seen:?}");
    assert_eq!(seen[0], seen[1]);
}

/// Stores so many sessions with two messages of 100 KiB each, for a tenant.
async fn stock(path: &Path, tenant: &TenantId, sessions: usize) {
    let (store, effects) = (open(path, Sync::Off).await.unwrap(), Effects::default());
    for _ in 0..sessions {
        let event = || NewEvent::user_message("x".repeat(100 << 10));
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let create = Commit::create(&effects, new).with_event(event()).with_event(event());
        store.for_tenant(tenant).commit(create).await.unwrap();
    }
    store.close().await.unwrap();
}

/// The deletion of a tenant with two messages writes as much beside 6 MB of another tenant as beside 200 KB: the file is not
/// rewritten.
#[tokio::test]
async fn deletion_of_a_tenant_costs_the_same_in_a_larger_file() {
    let [acme, other] = ["acme", "other"].map(|name| name.parse::<TenantId>().unwrap());
    let mut writes = Vec::new();
    for sessions in [1, 30] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.db");
        stock(&path, &other, sessions).await;
        stock(&path, &acme, 1).await;
        let (disk, bytes) = (Disk::new(), std::fs::read(&path).unwrap());
        assert!(bytes.len() > sessions * (200 << 10), "{} bytes", bytes.len());
        vfs::note(folder.path(), &disk);
        crate::put(&disk, "agent.db", &bytes);
        let store = open(&path, Sync::Full).await.unwrap();
        let calls = counted(&disk, async { store.delete_tenant(&acme).await.unwrap() }).await;
        writes.push(calls["write"]);
        store.close().await.unwrap();
    }
    // Trees of the larger file are a level or two deeper.
    assert!(writes[1] <= writes[0] + 20, "{writes:?} calls that write");
}
