//! A gateway that is killed under load.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::store::ReadEvents;
use agent_core::{CommitId, SessionStore, WorkspaceId, WriteOutcome};
use agent_storage_s3::S3Config;
use s3_servers::{Kind, Server};

const KILLS: usize = 20;
const WRITERS: usize = 4;

/// The gateway is killed twenty times while four writers write; what was acknowledged is stored, once, and
/// nothing is stored that was refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Ceph; `.ci/full` runs it"]
async fn acknowledged_commits_outlive_gateway_kills() {
    let mut server = match Server::start(Kind::Ceph) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let effects = Effects::default();
    let config = || S3Config::from_url(&server.address("gateway")).unwrap();
    let store = config().open().await.unwrap();
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = store.commit(Commit::create(&effects, new)).await.unwrap().session;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for n in 0..WRITERS {
        let store = config().with_deadline(Duration::from_secs(20)).open().await.unwrap();
        let (stop, effects, id, mut seen) = (stop.clone(), effects.clone(), session.id, session.head);
        writers.push(tokio::spawn(async move {
            let (mut stored, mut refused) = (BTreeSet::<CommitId>::new(), BTreeSet::new());
            while !stop.load(Ordering::Relaxed) {
                let message = NewEvent::user_message(format!("writer {n}, message {}", stored.len()));
                let commit = Commit::seal(&effects, id, seen).with_event(message);
                loop {
                    match store.commit(commit.clone()).await {
                        Ok(done) => {
                            seen = done.session.head;
                            stored.insert(commit.id);
                            break;
                        }
                        // Nobody knows: the same again.
                        Err(error) if error.write_outcome() == WriteOutcome::Unknown => {}
                        Err(_) => {
                            refused.insert(commit.id);
                            seen = SessionStore::load(&store, id).await.map_or(seen, |now| now.head);
                            break;
                        }
                    }
                }
            }
            (stored, refused)
        }));
    }
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(effects.random_u64() % 400)).await;
        server.kill_gateway().unwrap();
        server.start_gateway().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let (mut stored, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for writer in writers {
        let (its, not_its) = writer.await.unwrap();
        stored.extend(its);
        refused.extend(not_its);
    }
    let (mut log, mut read) = (Vec::new(), Some(ReadEvents::first(500)));
    while let Some(next) = read {
        let page = store.read(session.id, next).await.unwrap();
        log.extend(page.events);
        read = page.next;
    }
    let messages: Vec<_> = log.iter().skip(session.head.get() as usize).map(|event| event.commit).collect();
    let once: BTreeSet<_> = messages.iter().copied().collect();
    println!("{} commits stored, {} refused, {KILLS} kills", stored.len(), refused.len());
    assert_eq!(messages.len(), once.len(), "a commit is there twice");
    assert_eq!(once, stored, "acknowledged is not what is stored");
    assert!(refused.is_disjoint(&once));
    assert!(stored.len() > KILLS, "hardly any load: {}", stored.len());
}

/// The server ends with what started it, also when that is dropped in the middle.
#[test]
#[ignore = "needs Ceph; `.ci/full` runs it"]
fn dropping_the_server_stops_it() {
    let server = match Server::start(Kind::Ceph) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let address = server.endpoint().trim_start_matches("http://").to_owned();
    std::net::TcpStream::connect(&address).unwrap();
    drop(server);
    assert!(std::net::TcpStream::connect(&address).is_err());
}
