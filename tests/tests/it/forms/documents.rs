//! Documents: sessions with their logs, archives with blobs, states of sessions, lists of files, agents and builds.

use agent_admin::archive::Archive;
use agent_admin::export::SessionExport;
use agent_admin::manifest::{MANIFEST_FORMAT, Manifest};
use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::commit::Precondition;
use agent_core::event::{Event, Media, Message, NewEvent, Part};
use agent_core::model::{Actor, Workspace};
use agent_core::session::NewSession;
use agent_core::store::{HiddenSession, PutBlob, ReadEvents, SessionQuery, WorkspaceArea};
use agent_core::{
    MemoryStore, SessionId, SessionStore, SessionStoreExt, Storage, WorkspaceId, WorkspaceStore,
};
use agent_runtime::agents::{Agents, BuildStatus};
use agent_runtime::documents::{DocumentWrite, Documents};
use agent_runtime::files::WorkspaceFiles;
use agent_runtime::state_payload::{STATE_FORMAT, StatePayload};
use futures::{StreamExt, TryStreamExt, stream};
use std::time::Duration;

use crate::forms::golden::{self, Files};
use crate::forms::script::{self, effects};

/// Version of the list of files of an area; the event that holds the list has it in its field `format`.
const AREA_FORMAT: u64 = 1;

/// Version of the documents with agents and builds; the events that hold them have it in their field `format`.
const AGENTS_FORMAT: u64 = 1;

fn text<'a>(files: &'a Files, name: &str) -> &'a str {
    std::str::from_utf8(&files[name]).unwrap()
}

/// Exports every session of the script that has no blobs, the one that was active first as the first.
#[tokio::test]
async fn documents_are_written_as_declared() {
    let store = MemoryStore::new();
    script::write(&store).await;
    let mut written = Files::new();
    let page = SessionStore::list(&store, SessionQuery::new().with_hidden()).await.unwrap();
    for summary in page.items.iter().rev() {
        let Ok(manifest) = Manifest::export(&store, summary.id).await else { continue };
        if manifest.blobs().is_empty() {
            let name = format!("{:02}-{}.json", written.len(), summary.status.state);
            written.insert(name, manifest.to_json().unwrap().into_bytes());
        }
    }
    assert!(written.len() > 5);
    let forks = written.values().filter(|text| String::from_utf8_lossy(text).contains("\"ancestors\":"));
    assert_eq!(forks.count(), 1, "a fork has the events of its parent with it");
    let (archive, _) = archive().await;
    written.insert("session.tar".to_owned(), archive);
    golden::compare("document", MANIFEST_FORMAT, &written);
}

/// A session with a small blob, as an archive.
async fn archive() -> (Vec<u8>, SessionId) {
    let (store, effects) = (MemoryStore::new(), effects(3));
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = store.sessions(&effects).create(new).await.unwrap();
    let put = PutBlob::of_bytes(session.id, "small");
    let media = Media::blob("image/png", put.blob.name, put.blob.bytes);
    store.blobs().put(put).await.unwrap();
    let shown = NewEvent::from(Message::new("Look").with_part(Part::Image(media)));
    store.sessions(&effects).append(session.id, session.head, vec![shown]).await.unwrap();
    let export = SessionExport::read(&store, session.id, |_| {}).await.unwrap();
    let pieces: Vec<_> = export.to_archive().unwrap().try_collect().await.unwrap();
    (pieces.concat(), session.id)
}

#[tokio::test]
async fn golden_documents_are_read_whole() {
    let mut files = golden::read("document", MANIFEST_FORMAT);
    let archive = files.remove("session.tar").unwrap();
    // The fork comes after its parent, with whose open work it shares a log.
    let store = MemoryStore::new();
    for (name, bytes) in &files {
        let text = std::str::from_utf8(bytes).unwrap();
        let imported = Manifest::parse(text).unwrap().import(&store).await.unwrap();
        let again = Manifest::export(&store, imported.session.id).await.unwrap();
        assert_eq!(again.to_json().unwrap(), text, "{name}");
    }
    let opened = Archive::open(stream::iter([Ok(archive.clone().into())]).boxed()).await.unwrap();
    let imported = opened.import(&store).await.unwrap();
    let export = SessionExport::read(&store, imported.session.id, |_| {}).await.unwrap();
    let pieces: Vec<_> = export.to_archive().unwrap().try_collect().await.unwrap();
    assert!((imported.blobs, pieces.concat()) == (1, archive));
}

/// The golden files of format 4, the former one, come in with the same events, and go out as documents of this one.
#[tokio::test]
async fn golden_documents_of_the_former_format_are_read() {
    let mut files = golden::read("document", 4);
    let archive = files.remove("session.tar").unwrap();
    let store = MemoryStore::new();
    for (name, bytes) in &files {
        let former = Manifest::parse(std::str::from_utf8(bytes).unwrap()).unwrap();
        let imported = former.import(&store).await.unwrap();
        let again = Manifest::export(&store, imported.session.id).await.unwrap();
        assert_eq!((&again.events, &again.ancestors), (&former.events, &former.ancestors), "{name}");
        assert_eq!(Manifest::parse(&again.to_json().unwrap()).unwrap().events, former.events, "{name}");
    }
    let opened = Archive::open(stream::iter([Ok(archive.into())]).boxed()).await.unwrap();
    assert_eq!(opened.import(&store).await.unwrap().blobs, 1);
}

/// A session with something in every part of its state.
async fn stateful(store: &MemoryStore, effects: &Effects) -> SessionId {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let session = store.sessions(effects).create(new).await.unwrap();
    let events = vec![NewEvent::user_message("## User\n안녕"), NewEvent::agent_message("Hello")];
    store.sessions(effects).append(session.id, session.head, events).await.unwrap();
    let documents = Documents::new(store.sessions(effects), session.id);
    for write in [
        DocumentWrite::new("persona", "kind", Actor::AGENT).with_limit(2000),
        DocumentWrite::new("plan", "first", Actor::AGENT),
        DocumentWrite::new("plan", "second", Actor::USER).with_format(2),
        DocumentWrite::new(Documents::CHECKPOINT, "{\"step\": 7.10}", Actor::AGENT).with_format(3),
    ] {
        documents.put(write).await.unwrap();
    }
    session.id
}

#[tokio::test]
async fn state_is_written_as_declared() {
    let (store, effects) = (MemoryStore::new(), effects(4));
    let id = stateful(&store, &effects).await;
    let state = StatePayload::export(&store, id).await.unwrap().to_json();
    golden::compare("state", STATE_FORMAT, &Files::from([("state.json".to_owned(), state.into_bytes())]));
}

#[tokio::test]
async fn golden_state_is_read_whole() {
    let files = golden::read("state", STATE_FORMAT);
    let text = text(&files, "state.json");
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let id = store.sessions(&effects).create(new).await.unwrap().id;
    let state = StatePayload::parse(text).unwrap();
    assert_eq!((state.history.len(), state.core_memory.len(), state.documents.len()), (2, 1, 1));
    assert!(state.runtime.is_some());
    state.import(&store.sessions(&effects), id, Actor::USER).await.unwrap();
    assert_eq!(StatePayload::export(&store, id).await.unwrap().to_json(), text);
}

/// The workspace of the area.
async fn with_workspace(effects: &Effects) -> Storage {
    let store = MemoryStore::new();
    let record = Workspace::new(WorkspaceId::DEFAULT, "home", effects.new_session_id(), effects.now());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    Storage::from(store).with_effects(effects.clone())
}

#[tokio::test]
async fn file_lists_are_written_as_declared() {
    let effects = effects(5);
    let storage = with_workspace(&effects).await;
    let area = WorkspaceFiles::new(&storage, WorkspaceId::DEFAULT, WorkspaceArea::Skills);
    area.put("review/SKILL.md", "# How to review", Actor::USER).await.unwrap();
    area.put("large", vec![b'x'; 2000], Actor::AGENT).await.unwrap();
    let id = HiddenSession::area(WorkspaceId::DEFAULT, WorkspaceArea::Skills).id();
    let events = storage.sessions.read(id, ReadEvents::first(100)).await.unwrap().events;
    let lines: String = events.iter().map(|event| event.to_json() + "\n").collect();
    golden::compare("area", AREA_FORMAT, &Files::from([("events.jsonl".to_owned(), lines.into_bytes())]));
}

#[tokio::test]
async fn golden_file_lists_are_read_whole() {
    let files = golden::read("area", AREA_FORMAT);
    let events: Vec<_> =
        text(&files, "events.jsonl").lines().map(|line| Event::from_json(line).unwrap()).collect();
    let effects = Effects::default();
    let storage = with_workspace(&effects).await;
    let id = HiddenSession::area(WorkspaceId::DEFAULT, WorkspaceArea::Skills).id();
    let large = vec![b'x'; 2000];
    storage.sessions.blobs().put(PutBlob::of_bytes(id, large.clone())).await.unwrap();
    for commit in events.chunk_by(|one, next| one.commit == next.commit) {
        storage.sessions.commit(Commit::restore(id, commit.to_vec()).unwrap()).await.unwrap();
    }
    let area = WorkspaceFiles::new(&storage, WorkspaceId::DEFAULT, WorkspaceArea::Skills);
    let names: Vec<_> = area.list().await.unwrap().into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["large", "review/SKILL.md"]);
    assert_eq!(area.get("large", usize::MAX).await.unwrap().unwrap(), large);
    assert_eq!(area.get("review/SKILL.md", usize::MAX).await.unwrap().unwrap(), "# How to review");
}

/// The hidden sessions with the agents of the default workspace, and with the builds of one.
fn of_agents() -> [(&'static str, SessionId); 2] {
    let (agents, builds) =
        (HiddenSession::agents(WorkspaceId::DEFAULT), HiddenSession::builds(WorkspaceId::DEFAULT, "support"));
    [("agents.jsonl", agents.id()), ("builds.jsonl", builds.id())]
}

#[tokio::test]
async fn agents_and_builds_are_written_as_declared() {
    let storage = Storage::from(MemoryStore::new()).with_effects(effects(6));
    let agents = Agents::new(&storage, WorkspaceId::DEFAULT);
    for source in ["git:1", "git:2"] {
        agents.register("support", source, Actor::USER).await.unwrap();
        agents.request("support", Actor::USER).await.unwrap();
    }
    let claim = async || {
        let claimed = agents.claim("support", "user:builder-1".parse().unwrap(), Duration::from_secs(60));
        claimed.await.unwrap().unwrap()
    };
    let (first, second) = (claim().await, claim().await);
    agents.heartbeat(&second).await.unwrap();
    agents.complete(&first, "support:1").await.unwrap();
    agents.fail(&second, "step 4:\nno space").await.unwrap();
    agents.request("support", Actor::AGENT).await.unwrap();
    agents.request("support", Actor::AGENT).await.unwrap();
    agents.heartbeat(&claim().await).await.unwrap();
    let mut written = Files::new();
    for (name, id) in of_agents() {
        let events = storage.sessions.read(id, ReadEvents::first(100)).await.unwrap().events;
        let lines: String = events.iter().map(|event| event.to_json() + "\n").collect();
        written.insert(name.to_owned(), lines.into_bytes());
    }
    golden::compare("agents", AGENTS_FORMAT, &written);

    // A document has 32 builds.
    for _ in 4..33 {
        agents.request("support", Actor::USER).await.unwrap();
    }
    let documents = Documents::new(storage.sessions.clone(), of_agents()[1].1);
    let names = documents.list().await.unwrap().into_iter().map(|head| head.name);
    assert_eq!(names.collect::<Vec<_>>(), ["builds", "builds/0", "leases", "builds/1"]);
    assert!(documents.get("builds/1").await.unwrap().unwrap().text.starts_with(r#"{"33":{"#));
}

#[tokio::test]
async fn golden_agents_and_builds_are_read_whole() {
    let files = golden::read("agents", AGENTS_FORMAT);
    let storage = Storage::from(MemoryStore::new());
    for (name, id) in of_agents() {
        let lines = text(&files, name).lines();
        let events: Vec<_> = lines.map(|line| Event::from_json(line).unwrap()).collect();
        for commit in events.chunk_by(|one, next| one.commit == next.commit) {
            storage.sessions.commit(Commit::restore(id, commit.to_vec()).unwrap()).await.unwrap();
        }
    }
    let agents = Agents::new(&storage, WorkspaceId::DEFAULT);
    let support = agents.get("support").await.unwrap().unwrap();
    assert_eq!((&*support.source, support.revision.get()), ("git:2", 2));
    assert_eq!(agents.resolve("support").await.unwrap().image.as_deref(), Some("support:1"));
    let builds = agents.builds("support", 10, None).await.unwrap().builds;
    let states: Vec<_> = builds.iter().map(|build| (build.number, build.status)).collect();
    use BuildStatus::{Building, Completed, Failed, Pending};
    assert_eq!(states, [(4, Pending), (3, Building), (2, Failed), (1, Completed)]);
    let claimed = agents.claim("support", Actor::AGENT, Duration::from_secs(60)).await.unwrap().unwrap();
    assert_eq!(claimed.build.number, 4, "the builder of the third one may live");
}
