//! From every kind of store to every other; and cut off at every call.

use agent_admin::copy::StoreCopy;
use agent_admin::manifest::Manifest;
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::session::NewSession;
use agent_core::store::ReadEvents;
use agent_core::{MemoryStore, Storage, WorkspaceId};

use crate::copy::cut::{Cut, Cutting};
use crate::copy::world::{KINDS, Place, fill, is_deleted, read_all};

/// From memory, files, SQLite, S3 and PostgreSQL to each of them: all that there is to see is the same, and a second copy
/// writes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_store_copies_to_every_other() {
    for from in KINDS {
        let (here, effects) = (Place::new(from), Effects::default());
        let source = here.open().await;
        let world = fill(&source, &effects).await;
        let before = read_all(&source).await;
        assert_eq!(
            (before.workspaces.len(), before.bindings.len(), before.sessions.len()),
            (3, 2, 14),
            "{from}"
        );
        for to in KINDS {
            let there = Place::new(to);
            let target = there.open().await;
            // In a task of its own, as a host may do it.
            let copy = StoreCopy::new(source.clone(), target);
            let report = tokio::spawn({
                let copy = copy.clone();
                async move { copy.run().await }
            });
            let report = report.await.unwrap().unwrap();
            assert!(report.is_whole(), "{from} to {to}: {report:?}");
            assert_eq!((report.copied.sessions, report.copied.workspaces), (14, 4), "{from} to {to}");
            let target = there.open().await;
            assert_eq!(read_all(&target).await, before, "{from} to {to}");
            assert!(is_deleted(&target, world.gone).await, "{from} to {to}");

            let again = StoreCopy::new(here.open().await, target.clone()).run().await.unwrap();
            assert!(again.is_whole(), "{from} to {to}: {again:?}");
            assert_eq!(
                (again.copied, again.events),
                Default::default(),
                "{from} to {to}: nothing is written"
            );
            assert_eq!(again.present, report.copied, "{from} to {to}");
        }
        assert_eq!(read_all(&source).await, before, "the source is as it was");
    }
}

/// A session as one document, through every kind of store in turn and in each opened again, is the same to
/// the byte, and so is each fork and child after its parent.
#[tokio::test]
async fn document_passes_every_store_unchanged() {
    let effects = Effects::default();
    let first = Place::new("memory");
    let mut source = first.open().await;
    let world = fill(&source, &effects).await;
    let all = [world.main, world.fork, world.running];
    let mut documents = Vec::new();
    for id in all {
        documents.push(Manifest::export(&*source.sessions, id).await.unwrap().to_json().unwrap());
    }
    for kind in KINDS.into_iter().chain(["files"]) {
        let there = Place::new(kind);
        let target = there.open().await;
        for (id, document) in all.iter().zip(&documents) {
            let imported = Manifest::parse(document).unwrap().import(&*target.sessions).await.unwrap();
            assert_eq!(imported.session, source.sessions.load(*id).await.unwrap(), "{kind}");
        }
        drop(target);
        let target = there.open().await;
        for (id, document) in all.iter().zip(&documents) {
            let again = Manifest::export(&*target.sessions, *id).await.unwrap().to_json().unwrap();
            assert!(again == *document, "{kind}: session {id}");
        }
        // A place outlives its store.
        source = MemoryStore::new().into();
        for document in &documents {
            Manifest::parse(document).unwrap().import(&*source.sessions).await.unwrap();
        }
    }
}

/// JSON that was written over several lines, in payloads and in a document that somebody laid out,
/// arrives whole in every kind of store, also after that was opened again.
#[tokio::test]
async fn multi_line_json_is_copied_whole() {
    let spread = |json: &str| serde_json::from_str::<RawJson>(json).unwrap();
    for from in KINDS {
        let (here, effects) = (Place::new(from), Effects::default());
        let source = here.open().await;
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = source.sessions.create(new).await.unwrap();
        let event = NewEvent::new("x.app.cart".parse().unwrap(), spread("{\n\"a b\": [\n1,\n2.0 ]\r\n}"))
            .with_extra("trace", spread("[\n]"));
        let event = vec![event, NewEvent::user_message("after it")];
        source.sessions.append(session.id, session.head, event).await.unwrap();
        drop(source);
        let source = here.open().await;
        let events = source.sessions.read(session.id, ReadEvents::first(10)).await.unwrap().events;
        assert_eq!((events.len(), events[1].payload.get()), (3, "{\"a b\":[1,2.0]}"), "{from}");
        let document = Manifest::export(&*source.sessions, session.id).await.unwrap().to_json().unwrap();
        let (body, _) = document.rsplit_once(",\"crc32c\"").unwrap();
        let body = body.replace(":{", ":\n  {\n").replace(",\"", ",\n\"");
        let laid_out = format!("{body},\"crc32c\":\"{:08x}\"}}\n", crc32c::crc32c(body.as_bytes()));
        for to in KINDS {
            let (copied, imported) = (Place::new(to), Place::new(to));
            let report = StoreCopy::new(source.clone(), copied.open().await).run().await.unwrap();
            assert!(report.is_whole(), "{from} to {to}: {report:?}");
            let target = imported.open().await;
            Manifest::parse(&laid_out).unwrap().import(&*target.sessions).await.unwrap();
            drop(target);
            for place in [copied, imported] {
                let target = place.open().await;
                let there = target.sessions.read(session.id, ReadEvents::first(10)).await.unwrap();
                assert_eq!((there.events, there.damaged), (events.clone(), vec![]), "{from} to {to}");
            }
        }
    }
}

/// One workspace alone, with all that belongs to it.
#[tokio::test]
async fn one_workspace_can_be_copied_alone() {
    let (here, archive, there) = (Place::new("files"), Place::new("sqlite"), Place::new("s3"));
    let (source, effects) = (here.open().await, Effects::default());
    let world = fill(&source, &effects).await;
    let copy = StoreCopy::new(source.clone(), archive.open().await).with_workspace(world.workspace);
    assert!(copy.run().await.unwrap().is_whole());
    let report = StoreCopy::new(archive.open().await, there.open().await).run().await.unwrap();
    assert!(report.is_whole() && report.copied.workspaces == 1 && report.copied.bindings == 1, "{report:?}");
    let mut expected = read_all(&source).await;
    expected.workspaces.retain(|(workspace, _)| workspace.id == world.workspace);
    expected.bindings.retain(|binding| binding.workspace == world.workspace);
    let all =
        agent_core::store::SessionQuery::new().with_workspace(world.workspace).with_hidden().with_limit(1000);
    let ids: Vec<_> = source.sessions.list(all).await.unwrap().items.iter().map(|item| item.id).collect();
    expected.sessions.retain(|session| ids.contains(&session.id));
    assert_eq!(read_all(&there.open().await).await, expected);
}

/// A copy that fails, or whose process dies before or after any call to the target, is finished by the next,
/// and nothing that was there is changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_copy_is_finished_by_the_next() {
    let (source, effects): (Storage, _) = (MemoryStore::new().into(), Effects::default());
    let world = fill(&source, &effects).await;
    let before = read_all(&source).await;
    for cut in Cut::ALL {
        for at in 1.. {
            let target: Storage = MemoryStore::new().into();
            let cutting = Cutting::new(&target, at, cut);
            let ended =
                StoreCopy::new(source.clone(), cutting.storage()).with_sessions_at_once(2).run().await;
            if cutting.calls() < at {
                assert!(at > 100, "there are that many calls: {at}");
                break;
            }
            // Where somebody failed who only looked, it is tried again or named.
            assert!(ended.is_err() || cut == Cut::Fails, "{cut:?} at {at}");
            let report = StoreCopy::new(source.clone(), target.clone()).run().await.unwrap();
            assert!(report.is_whole(), "{cut:?} at {at}: {report:?}");
            assert_eq!(read_all(&target).await, before, "{cut:?} at {at}");
            assert!(is_deleted(&target, world.gone).await, "{cut:?} at {at}");
        }
    }
}

/// A lease is not carried over: in the target nobody gives a sign of life, and the next run takes over; the
/// former holder goes on in the source, and there only.
#[tokio::test]
async fn lease_is_not_copied() {
    let (here, there) = (Place::new("files"), Place::new("sqlite"));
    let (source, effects) = (here.open().await, Effects::default());
    let world = fill(&source, &effects).await;
    let target = there.open().await;
    assert!(StoreCopy::new(source.clone(), target.clone()).run().await.unwrap().is_whole());
    let now = target.sessions.load(world.running).await.unwrap();
    let pulses = [
        target.sessions.leases().status(now.id, now.epoch).await.unwrap(),
        target.sessions.leases().status(now.id, now.epoch).await.unwrap(),
    ];
    assert!(pulses[0].holder_proven_dead || pulses[0] == pulses[1], "no sign of life: {pulses:?}");
    source.sessions.leases().heartbeat(now.id, now.epoch).await.unwrap();
    let taken = Commit::seal(&effects, now.id, now.head)
        .with_trigger(Trigger::LeaseExpired(now.epoch))
        .with_event(NewEvent::user_message("here now"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("here", effects.new_run_id())));
    let taken = target.sessions.commit(taken).await.unwrap().session;
    assert!(taken.epoch > now.epoch && taken.open_calls.is_empty());
    crate::copy::world::end_run(&source, &effects, &world).await.unwrap();
    let late = crate::copy::world::end_run(&target, &effects, &world).await.unwrap_err();
    assert!(matches!(
        late.kind(),
        agent_core::ErrorKind::Fenced { .. } | agent_core::ErrorKind::InvalidInput
    ));
}
