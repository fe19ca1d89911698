//! Objects of other formats: each is refused by its number, is never called damage, and is left as it is.

use std::collections::BTreeMap;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{BindingQuery, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    BindingStore, DeviceId, Error, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, WorkspaceId,
    WorkspaceStore, WriteOutcome,
};
use agent_storage_s3::S3Store;
use bytes::Bytes;
use s3_simulator::Simulator;

use crate::backend::config;

const WORKSPACE: WorkspaceId = WorkspaceId::DEFAULT;

fn device() -> DeviceId {
    "laptop".parse().unwrap()
}

/// All objects but the probe's, and the settings that opening reads.
fn objects(simulator: &Simulator) -> BTreeMap<String, Bytes> {
    let keys =
        simulator.keys().into_iter().filter(|key| !key.contains("/probe/") && !key.ends_with("/settings"));
    keys.map(|key| (key.clone(), simulator.object(&key).unwrap())).collect()
}

/// The same object with another format in its header, whose checksum fits.
fn in_format(body: &Bytes, format: u32) -> Vec<u8> {
    let text = std::str::from_utf8(body).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let header = header[9..].replace("{\"format\":7,", &format!("{{\"format\":{format},"));
    format!("{:08x} {header}\n{rest}", crc32c::crc32c(header.as_bytes())).into_bytes()
}

/// A workspace, a device that is bound to it, and a session with a run.
async fn make(store: &S3Store, effects: &Effects) -> SessionId {
    let id = effects.new_session_id();
    let place = Workspace::new(WORKSPACE, "place", id, effects.now());
    store.put(place, Precondition::MustNotExist).await.unwrap();
    store.bind(&device(), WORKSPACE, Precondition::MustNotExist).await.unwrap();
    let made = store.sessions(effects).create(NewSession::new(id, WORKSPACE)).await.unwrap();
    let lease = LeaseRequest::new("holder", effects.new_run_id());
    let begin = Commit::seal(effects, id, made.head)
        .with_event(NewEvent::user_message("hello"))
        .with_trigger(Trigger::BeginRun(lease));
    let epoch = store.commit(begin).await.unwrap().epoch.unwrap();
    store.leases().heartbeat(id, epoch).await.unwrap();
    id
}

/// Everything that can be asked of the session, the workspace and the device, each refused.
async fn refusals(store: &S3Store, effects: &Effects, id: SessionId) -> Vec<Error> {
    let sealed = || Commit::seal(effects, id, Seq::new(2));
    let epoch = agent_core::Epoch::new(1);
    vec![
        SessionStore::load(store, id).await.unwrap_err(),
        store.read(id, ReadEvents::first(10)).await.unwrap_err(),
        store.read(id, ReadEvents::last(10)).await.unwrap_err(),
        store.commit(sealed().with_event(NewEvent::user_message("more"))).await.unwrap_err(),
        store.commit(sealed().with_trigger(Trigger::Delete(Reason::UserDeleted))).await.unwrap_err(),
        store.purge(Purge::new(id, Seq::new(2))).await.unwrap_err(),
        store.leases().heartbeat(id, epoch).await.unwrap_err(),
        store.leases().status(id, epoch).await.unwrap_err(),
        WorkspaceStore::load(store, WORKSPACE).await.unwrap_err(),
        store.touch(WORKSPACE, effects.now()).await.unwrap_err(),
        store.save_config(WORKSPACE, Some("a = 1".into()), Precondition::MustNotExist).await.unwrap_err(),
        WorkspaceStore::delete(store, WORKSPACE).await.unwrap_err(),
        store.resolve(&device()).await.unwrap_err(),
        store.bind(&device(), WORKSPACE, Precondition::None).await.unwrap_err(),
        store.unbind(&device()).await.unwrap_err(),
    ]
}

/// A bucket of format 6, and one of a newer format: each call on it is refused with the number and what to do, lists say
/// the same, and nothing is written.
#[tokio::test(start_paused = true)]
async fn another_format_is_refused_by_name() {
    let simulator = Simulator::new(1);
    let effects = Effects::default();
    let id = make(&config(&simulator, "a").open().await.unwrap(), &effects).await;
    let written = objects(&simulator);
    for (format, remedy) in [(6, "use the version that wrote it"), (8, "update the library")] {
        let mut changed = 0;
        for (key, body) in written.iter().filter(|(_, body)| body.windows(4).any(|it| it == b" H {")) {
            changed += 1;
            simulator.put_object(key, in_format(body, format));
        }
        assert_eq!(changed, 4, "two commits, a workspace, a binding");
        let (store, before) = (config(&simulator, "b").open().await.unwrap(), objects(&simulator));
        let message = format!("has format {format}, ");
        for error in refusals(&store, &effects, id).await {
            assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{error}");
            let text = error.to_string();
            assert!(text.contains(&message) && text.contains(remedy) && !text.contains("damage"), "{text}");
        }
        let mut reasons = SessionStore::list(&store, SessionQuery::new()).await.unwrap().damaged;
        reasons.extend(WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap().damaged);
        reasons.extend(BindingStore::list(&store, BindingQuery::new()).await.unwrap().damaged);
        assert!(reasons.len() == 3 && reasons.iter().all(|it| it.reason.contains(&message)), "{reasons:?}");
        assert!(reasons.iter().all(|it| it.is_unsupported), "{reasons:?}");
        assert!(objects(&simulator) == before, "something was written");
    }
}
