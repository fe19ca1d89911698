//! Documents of a session: notes and memory blocks in versions, on each kind of store.

use crate::stores::shared::{agent, check_record, new_session};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Actor, DOCUMENT_MAX_BYTES, DOCUMENTS_MAX, ExternalHandle, Liveness, Patch, Role};
use agent_core::session::SessionRecord;
use agent_core::state::Reason;
use agent_core::{ErrorKind, Revision, Seq, Storage};
use agent_runtime::areas::Area;
use agent_runtime::documents::{DocumentWrite, Documents, Migrations};
use agent_runtime::{Config, EchoProvider};
use agent_tests::{Site, each_store};

fn documents(storage: &Storage, effects: &Effects, session: &SessionRecord) -> Documents {
    Documents::new(storage.clone().with_effects(effects.clone()).sessions, session.id)
}

fn by_agent(name: &str, text: &str) -> DocumentWrite {
    DocumentWrite::new(name, text, Actor::AGENT)
}

async fn text(documents: &Documents, name: &str) -> Option<String> {
    documents.get(name).await.unwrap().map(|document| document.text)
}

const NOTES: [&str; 3] = [Documents::CHECKPOINT, Documents::STATE, Documents::BUFFER];

/// A session has its own checkpoint, state note and working buffer; runs leave them alone, the system cannot
/// write over them, and they are there after a restart.
async fn session_notes_survive_runs_and_restarts(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let runtime = agent(&storage, EchoProvider::new(), Config::default().with_spans(true));
    let chat = runtime.open(&"laptop".parse().unwrap()).await.unwrap();
    let other = new_session(&storage, &effects).await;
    for note in NOTES {
        chat.documents().put(by_agent(note, note)).await.unwrap();
    }
    for _ in 0..3 {
        chat.prompt("hello").await.unwrap().finish().await.unwrap();
    }
    chat.clear().await.unwrap();
    for note in NOTES {
        let write = DocumentWrite::new(note, "from the system", Actor::SYSTEM);
        let error = chat.documents().put(write).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}", site.name);
        let remove = DocumentWrite::remove(note, Actor::named(Role::System, "keeper").unwrap());
        assert!(chat.documents().put(remove).await.is_err(), "{}", site.name);
    }
    // What the system began, it may go on with, until somebody else takes it over.
    for (actor, allowed) in
        [(Actor::SYSTEM, true), (Actor::SYSTEM, true), (Actor::USER, true), (Actor::SYSTEM, false)]
    {
        let done = chat.documents().put(DocumentWrite::new("seeded", "x", actor)).await;
        assert_eq!(done.is_ok(), allowed, "{}: {done:?}", site.name);
    }
    drop((chat.clone(), runtime, storage));
    let storage = site.open().await;
    let session = check_record(&storage, chat.id()).await;
    for note in NOTES {
        let found = documents(&storage, &effects, &session).get(note).await.unwrap().unwrap();
        assert_eq!((found.text.as_str(), found.revision, found.by), (note, Revision::new(1), Actor::AGENT));
        assert_eq!(documents(&storage, &effects, &other).get(note).await.unwrap(), None, "{}", site.name);
    }
}

each_store!(session_notes_survive_runs_and_restarts);

/// Each write keeps its predecessor, and any version can be restored, also from a fork and after a restart.
async fn every_version_is_kept_and_can_be_restored(site: Site) {
    let effects = Effects::default();
    let storage = site.open().await;
    let session = new_session(&storage, &effects).await;
    let memory = documents(&storage, &effects, &session);
    for n in 1..=5 {
        let revision = memory.put(by_agent("memory", &format!("version {n}"))).await.unwrap();
        assert_eq!(revision, Revision::new(n));
        memory.put(by_agent("another", "between")).await.unwrap();
    }
    let point = storage.sessions.load(session.id).await.unwrap().head;
    assert_eq!(memory.restore("memory", Revision::new(2), Actor::USER).await.unwrap(), Revision::new(6));
    let fork = storage.sessions.fork(session.id, Some(point)).await.unwrap();
    documents(&storage, &effects, &fork).put(by_agent("memory", "of the fork")).await.unwrap();
    drop((memory, storage));

    let storage = site.open().await;
    let texts = async |session: &SessionRecord, limit| {
        let versions = documents(&storage, &effects, session).versions("memory", limit).await.unwrap();
        versions.into_iter().map(|version| version.text).collect::<Vec<_>>()
    };
    let whole = ["version 2", "version 5", "version 4", "version 3", "version 2", "version 1"];
    assert_eq!(texts(&session, 100).await, whole, "{}", site.name);
    assert_eq!(texts(&session, 2).await, whole[..2], "{}", site.name);
    assert_eq!(texts(&fork, 2).await, ["of the fork", "version 5"], "{}", site.name);
    let memory = documents(&storage, &effects, &fork);
    let restored = memory.restore("memory", Revision::new(1), Actor::AGENT).await.unwrap();
    assert_eq!((restored, text(&memory, "memory").await.as_deref()), (Revision::new(7), Some("version 1")));
    let missing = memory.restore("memory", Revision::new(9), Actor::AGENT).await.unwrap_err();
    assert_eq!(*missing.kind(), ErrorKind::NotFound, "{}", site.name);
    memory.put(DocumentWrite::remove("memory", Actor::AGENT)).await.unwrap();
    assert_eq!(memory.get("memory").await.unwrap(), None, "{}", site.name);
    assert_eq!(memory.put(by_agent("memory", "anew")).await.unwrap(), Revision::new(1));
    check_record(&storage, session.id).await;
}

each_store!(every_version_is_kept_and_can_be_restored);

/// A block has a limit in bytes; what is over it is refused and nothing is cut; blocks and their names are bounded.
async fn block_over_its_limit_is_refused_and_not_cut(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = new_session(&storage, &effects).await;
    let blocks = documents(&storage, &effects, &session);
    let refused = async |write: DocumentWrite, kind: ErrorKind| {
        let before = storage.sessions.load(session.id).await.unwrap();
        let error = blocks.put(write).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{}", site.name);
        assert_eq!(storage.sessions.load(session.id).await.unwrap(), before, "nothing was written");
    };
    blocks.put(by_agent("persona", "한한").with_limit(8)).await.unwrap();
    blocks.put(by_agent("persona", "12345678")).await.unwrap();
    refused(by_agent("persona", "한한한"), ErrorKind::LimitExceeded).await;
    refused(by_agent("persona", "x").with_limit(0), ErrorKind::LimitExceeded).await;
    assert_eq!(text(&blocks, "persona").await.as_deref(), Some("12345678"));
    blocks.put(by_agent("persona", "123456789").with_limit(9)).await.unwrap();
    let most = "x".repeat(DOCUMENT_MAX_BYTES);
    blocks.put(by_agent("large", &most).with_limit(u64::MAX)).await.unwrap();
    refused(by_agent("large", &format!("{most}x")), ErrorKind::LimitExceeded).await;
    for name in ["", "a\nb", &"x".repeat(129)] {
        refused(by_agent(name, ""), ErrorKind::InvalidInput).await;
    }
    for n in 2..DOCUMENTS_MAX {
        blocks.put(by_agent(&format!("block {n}"), "")).await.unwrap();
    }
    refused(by_agent("one too many", ""), ErrorKind::LimitExceeded).await;
    blocks.put(by_agent("block 2", "changes all the same")).await.unwrap();
    blocks.put(DocumentWrite::remove("block 3", Actor::AGENT)).await.unwrap();
    blocks.put(by_agent("one too many", "has room now")).await.unwrap();
    assert_eq!(blocks.list().await.unwrap().len(), DOCUMENTS_MAX);
    check_record(&storage, session.id).await;
}

each_store!(block_over_its_limit_is_refused_and_not_cut);

/// A writer that names the version it has read is refused where another was quicker; writers that do not
/// name one all land, one after the other, and none is lost.
async fn one_writer_wins_per_version_and_none_is_lost(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = new_session(&storage, &effects).await;
    let blob = documents(&storage, &effects, &session);
    for (expect, works) in [
        (Precondition::MustExist, false),
        (Precondition::Matches(Revision::new(1)), false),
        (Precondition::MustNotExist, true),
        (Precondition::MustNotExist, false),
        (Precondition::Matches(Revision::new(1)), true),
        (Precondition::Matches(Revision::new(1)), false),
    ] {
        let done = blob.put(by_agent("note", "x").with_precondition(expect)).await;
        assert_eq!(done.is_ok(), works, "{}: {done:?}", site.name);
    }
    let write = |n: usize, expect: Precondition<Revision>| {
        let blob = blob.clone();
        tokio::spawn(
            async move { blob.put(by_agent("note", &format!("{n}")).with_precondition(expect)).await },
        )
    };
    let one_of: Vec<_> = (0..8).map(|n| write(n, Precondition::Matches(Revision::new(2)))).collect();
    let mut won = 0;
    for task in one_of {
        match task.await.unwrap() {
            Ok(revision) => {
                assert_eq!(revision, Revision::new(3));
                won += 1;
            }
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}"),
        }
    }
    assert_eq!(won, 1, "{}", site.name);
    let all: Vec<_> = (0..8).map(|n| write(n, Precondition::MustExist)).collect();
    let mut revisions = Vec::new();
    for task in all {
        revisions.push(task.await.unwrap().unwrap().get());
    }
    revisions.sort_unstable();
    assert_eq!(revisions, (4..12).collect::<Vec<_>>(), "{}", site.name);
    assert_eq!(blob.versions("note", 100).await.unwrap().len(), 11);
    check_record(&storage, session.id).await;
}

each_store!(one_writer_wins_per_version_and_none_is_lost, flavor = "multi_thread", worker_threads = 2);

/// A checkpoint of an older format is read through its steps and not rewritten; one of a newer format is refused by
/// name, and stays as it is.
async fn older_checkpoints_are_read_and_newer_ones_refused(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = new_session(&storage, &effects).await;
    let checkpoint = documents(&storage, &effects, &session);
    let known = Migrations::new()
        .step(|text| Ok(format!("{text}, step one")))
        .step(|text| Ok(format!("{text}, step two")));
    let expected = ["x, step one, step two", "x, step two", "x"];
    for (format, expected) in (0..).zip(expected) {
        checkpoint.put(by_agent(Documents::CHECKPOINT, "x").with_format(format)).await.unwrap();
        let found = checkpoint.get(Documents::CHECKPOINT).await.unwrap().unwrap();
        assert_eq!(known.read(&found.name, found.format, &found.text).unwrap(), expected);
    }
    let head = storage.sessions.load(session.id).await.unwrap().head;
    checkpoint.put(by_agent(Documents::CHECKPOINT, "newer").with_format(3)).await.unwrap();
    let found = checkpoint.get(Documents::CHECKPOINT).await.unwrap().unwrap();
    let error = known.read(&found.name, found.format, &found.text).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("checkpoint") && error.to_string().contains('3'), "{error}");
    assert_eq!(storage.sessions.load(session.id).await.unwrap().head, head.next(), "reading writes nothing");
    assert_eq!(text(&checkpoint, Documents::CHECKPOINT).await.as_deref(), Some("newer"));
}

each_store!(older_checkpoints_are_read_and_newer_ones_refused);

/// The state of a user interface is kept as well as may be: the last write wins, what is too large is not kept, and
/// the conversation goes on as if there were none, also while a run goes on.
async fn ui_state_never_disturbs_the_conversation(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let runtime = agent(&storage, EchoProvider::new(), Config::default());
    let chat = runtime.open(&"laptop".parse().unwrap()).await.unwrap();
    let ui = chat.documents();
    for n in 0..20 {
        let ((saved, again), run) = tokio::join!(
            async { (ui.save_ui("{\"pane\":1}").await, ui.save_ui(&format!("{{\"pane\":{n}}}")).await) },
            async { chat.prompt(format!("say {n}").as_str()).await.unwrap().finish().await.unwrap() },
        );
        assert!(saved && again && run.stored, "{}", site.name);
        assert_eq!(run.text, format!("say {n}"));
    }
    let large = "x".repeat(Documents::UI_MAX_BYTES as usize + 1);
    assert!(!ui.save_ui(&large).await, "{}", site.name);
    assert_eq!(text(&ui, Documents::UI).await.as_deref(), Some("{\"pane\":19}"));
    let now = check_record(&storage, chat.id()).await;
    assert_eq!((now.counts.user, now.counts.agent, now.inputs_open), (20, 20, 0), "{}", site.name);
    let gone = Documents::new(storage.sessions.clone(), effects.new_session_id());
    assert!(!gone.save_ui("{}").await, "no failure is more than `false`");
}

each_store!(ui_state_never_disturbs_the_conversation);

/// What a document's event says is checked: a version that follows nothing is refused from any writer.
async fn non_consecutive_version_is_refused(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = new_session(&storage, &effects).await;
    documents(&storage, &effects, &session).put(by_agent("note", "x")).await.unwrap();
    let now = storage.sessions.load(session.id).await.unwrap();
    let head = now.document("note").cloned();
    let written = agent_core::event::DocumentWritten::after(head.as_ref(), "note", Some("y".to_owned()));
    for change in [
        |w: &mut agent_core::event::DocumentWritten| w.revision = Revision::new(1),
        |w: &mut agent_core::event::DocumentWritten| w.revision = Revision::new(3),
        |w: &mut agent_core::event::DocumentWritten| w.previous = agent_core::Seq::ZERO,
        |w: &mut agent_core::event::DocumentWritten| "other".clone_into(&mut w.name),
    ] {
        let mut wrong = written.clone();
        change(&mut wrong);
        let event = NewEvent::document_written(wrong).with_actor(Actor::AGENT);
        let error = storage.sessions.append(now.id, now.head, vec![event]).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{}: {error}", site.name);
    }
    let event = NewEvent::document_written(written).with_actor(Actor::AGENT);
    storage.sessions.append(now.id, now.head, vec![event]).await.unwrap();
}

each_store!(non_consecutive_version_is_refused);

/// What is written to a durable area stays, through a restart, a clearing, a suspension and a fork, in its area and
/// its session only; nothing else does: what lived in a process is stale, and what was never written is not there. No path
/// leads out of an area.
async fn only_data_in_areas_survives_a_restart(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let (id, other) = (new_session(&storage, &effects).await.id, new_session(&storage, &effects).await.id);
    let documents = Documents::new(storage.sessions.clone(), id);
    for area in Area::ALL {
        let here = documents.area(area);
        here.put("notes/one.md", format!("in {area}"), Actor::AGENT).await.unwrap();
        here.put("gone", "for a while", Actor::AGENT).await.unwrap();
        here.remove("gone", Actor::AGENT).await.unwrap();
        for path in ["", "/", "a//b", "../meta/x", "a/../../meta/x", "./a", "a\\b", "a\nb", &"x".repeat(200)]
        {
            let error = here.put(path, "out", Actor::AGENT).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{path:?}: {error}");
        }
    }
    let live = ExternalHandle::new("interpreter", "pid 7").with_process("this one");
    let held = vec![NewEvent::updated(Patch::new().with_handle("python", live))];
    storage.sessions.append(id, Seq::ZERO, held).await.unwrap();
    storage.sessions.clear(id).await.unwrap();
    storage.sessions.trigger(id, Trigger::Suspend(Reason::UserPaused)).await.unwrap();
    drop((storage, documents));

    let storage = site.open().await;
    let fork = storage.sessions.fork(id, None).await.unwrap().id;
    for session in [id, fork] {
        let documents = Documents::new(storage.sessions.clone(), session);
        let names: Vec<_> = documents.list().await.unwrap().into_iter().map(|head| head.name).collect();
        let expected = Area::ALL.map(|area| format!("{area}/notes/one.md"));
        assert_eq!(names, expected, "{}", site.name);
        for area in Area::ALL {
            let here = documents.area(area);
            assert_eq!(here.list().await.unwrap(), ["notes/one.md"], "{}", site.name);
            let found = here.get("notes/one.md").await.unwrap().unwrap();
            assert_eq!(found.text, format!("in {area}"), "{}", site.name);
            assert_eq!(here.get("gone").await.unwrap(), None, "{}", site.name);
        }
    }
    let handles = storage.sessions.load(id).await.unwrap().attributes.handles.clone();
    assert_eq!(handles["python"].liveness("another"), Liveness::Stale);
    let documents = Documents::new(storage.sessions.clone(), other);
    assert_eq!(documents.list().await.unwrap(), [], "{}", site.name);
}

each_store!(only_data_in_areas_survives_a_restart);
