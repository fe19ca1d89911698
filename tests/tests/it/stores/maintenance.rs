//! Looking after stores: what is wrong is found and named, and what can be read is saved.

use std::sync::Arc;

use crate::common::{call, json};
use crate::stores::shared::{log, new_session};
use agent_admin::audit::audited;
use agent_admin::copy::StoreCopy;
use agent_admin::salvage::salvage;
use agent_admin::verify::{self, FindingKind, Verification};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{DocumentWritten, EventPayload, NewEvent, ToolOutcome};
use agent_core::model::{Actor, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    Damaged, EventPage, HiddenSession, Maintenance, MaintenanceWrapper, Purge, ReadEvents,
    SessionStoreWrapper,
};
use agent_core::{
    Error, ErrorKind, MemoryStore, Result, SessionId, SessionStore, SessionStoreExt, Storage, WorkspaceId,
    async_trait,
};
use agent_runtime::{NewWorkspace, WorkspaceManager};
use agent_storage_sqlite::SqliteStore;
use agent_tests::{Site, each_store};

/// A workspace with a bound device, and a session in it that has a bit of everything.
async fn world(storage: &Storage, effects: &Effects) -> Arc<SessionRecord> {
    let workspace = effects.new_workspace_id();
    let main = effects.new_session_id();
    let record = Workspace::new(workspace, "home", main, effects.now());
    storage.workspaces.put(record, Precondition::MustNotExist).await.unwrap();
    storage
        .workspaces
        .save_config(workspace, Some("a = 1".into()), Precondition::MustNotExist)
        .await
        .unwrap();
    storage.bindings.bind(&"laptop".parse().unwrap(), workspace, Precondition::MustNotExist).await.unwrap();
    let mut now = storage.sessions.create(NewSession::new(main, workspace)).await.unwrap();
    for n in 0..4 {
        let run = effects.new_run_id();
        let prompt = Commit::seal(effects, main, now.head)
            .with_event(NewEvent::user_message(format!("question {n}")))
            .with_trigger(Trigger::BeginRun(LeaseRequest::new("test", run)));
        now = storage.sessions.commit(prompt).await.unwrap().session;
        let answer = Commit::seal(effects, main, now.head)
            .with_fence(run, now.epoch)
            .with_event(NewEvent::tool_use(call(&format!("call {n}")), "ls", json("{}")))
            .with_event(NewEvent::tool_result(call(&format!("call {n}")), ToolOutcome::Ok, json("{}")))
            .with_event(NewEvent::agent_message(format!("answer {n}")))
            .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
        now = storage.sessions.commit(answer).await.unwrap().session;
    }
    let fork = storage.sessions.fork(main, None).await.unwrap();
    storage.sessions.append(fork.id, fork.head, vec![NewEvent::user_message("aside")]).await.unwrap();
    let gone = new_session_in(storage, effects, workspace).await;
    let delete = Commit::seal(effects, gone.id, gone.head).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let gone = storage.sessions.commit(delete).await.unwrap().session;
    storage.sessions.purge(Purge::new(gone.id, gone.head)).await.unwrap();
    now
}

async fn new_session_in(storage: &Storage, effects: &Effects, workspace: WorkspaceId) -> Arc<SessionRecord> {
    let new = NewSession::new(effects.new_session_id(), workspace);
    storage.sessions.create(new).await.unwrap()
}

async fn verify(storage: &Storage) -> Verification {
    verify::verify(storage, |_| ()).await.unwrap()
}

/// What was said, by whom, in the part that is shown.
async fn texts_of(storage: &Storage, session: &SessionRecord) -> Vec<String> {
    let events = log(storage, session.id).await;
    let shown = events.iter().filter(|event| event.seq > session.visible_from);
    shown
        .filter_map(|event| match event.decode().unwrap() {
            EventPayload::UserMessage(texts_of) => Some(format!("user: {}", texts_of.text)),
            EventPayload::AgentMessage(texts_of) => Some(format!("agent: {}", texts_of.text)),
            EventPayload::SystemMessage(texts_of) => Some(format!("system: {}", texts_of.text)),
            EventPayload::AgentToolUse(tool) => Some(format!("call: {}", tool.call)),
            EventPayload::AgentToolResult(result) => {
                Some(format!("result: {} {:?}", result.call, result.outcome))
            }
            _ => None,
        })
        .collect()
}

/// A healthy session is saved whole: what is shown, with its calls and their results, and its documents; what was
/// cleared stays cleared, and nothing waits.
async fn salvage_keeps_visible_and_drops_cleared_data(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = world(&storage, &effects).await;
    let secret = vec![NewEvent::user_message("secret")];
    let now = storage.sessions.append(session.id, session.head, secret).await.unwrap().session;
    let now = storage.sessions.clear(now.id).await.unwrap().session;
    let after = vec![
        NewEvent::agent_message("after"),
        NewEvent::tool_use(call("open"), "ls", json("{}")),
        NewEvent::new("x.app.note".parse().unwrap(), json("[1.10]")).with_extra("y", json("2")),
        NewEvent::user_message("waits"),
    ];
    let now = storage.sessions.append(now.id, now.head, after).await.unwrap().session;
    let text = DocumentWritten::after(None, "notes", Some("old".to_owned()));
    let first = vec![NewEvent::of(&EventPayload::SessionDocumentWritten(text))];
    let now = storage.sessions.append(now.id, now.head, first).await.unwrap().session;
    let text = DocumentWritten::after(now.document("notes"), "notes", Some("new".to_owned()));
    let second = vec![NewEvent::of(&EventPayload::SessionDocumentWritten(text))];
    let now = storage.sessions.append(now.id, now.head, second).await.unwrap().session;

    let saved = salvage(&storage, now.id, None).await.unwrap();
    assert_eq!((saved.read, saved.lost.len()), (now.head.get(), 0), "{}", site.name);
    let new = saved.session;
    assert_eq!(new.workspace, now.workspace);
    assert_eq!(new.attributes.labels.get("salvage.of"), Some(&now.id.to_string()));
    let expected = ["agent: after", "call: open", "user: waits", "result: open Interrupted"];
    assert_eq!(texts_of(&storage, &new).await, expected, "{}", site.name);
    let events = log(&storage, new.id).await;
    assert!(!events.iter().any(|event| event.payload.get().contains("secret")), "{}", site.name);
    let note = events.iter().find(|event| event.kind.as_str() == "x.app.note").unwrap();
    assert_eq!(
        (note.payload.get(), note.extra.get("y").map(|y| y.get().to_owned())),
        ("[1.10]", Some("2".into()))
    );
    let document = events.iter().find_map(|event| match event.decode().unwrap() {
        EventPayload::SessionDocumentWritten(written) => written.text,
        _ => None,
    });
    assert_eq!(document.as_deref(), Some("new"));
    assert_eq!((new.inputs_open, new.status.state), (0, SessionState::Idle));
    assert_eq!(storage.sessions.load(now.id).await.unwrap(), now, "the damaged one is as it was");
    assert!(verify(&storage).await.is_sound());
}

each_store!(salvage_keeps_visible_and_drops_cleared_data and files);

/// A long history, of a fork, is saved in several commits; a deleted session is not brought back.
#[tokio::test]
async fn salvage_saves_long_but_no_deleted_sessions() {
    let (storage, effects): (Storage, _) = (MemoryStore::new().into(), Effects::default());
    let mut now = new_session(&storage, &effects).await;
    for n in 0..30 {
        let events = (0..100).map(|m| NewEvent::user_message(format!("{n} {m}"))).collect();
        now = storage.sessions.append(now.id, now.head, events).await.unwrap().session;
    }
    let fork = storage.sessions.fork(now.id, None).await.unwrap();
    let saved = salvage(&storage, fork.id, None).await.unwrap();
    let texts = texts_of(&storage, &saved.session).await;
    let expected: Vec<_> = (0..30).flat_map(|n| (0..100).map(move |m| format!("user: {n} {m}"))).collect();
    assert_eq!(texts, expected);
    assert_eq!(saved.session.inputs_open, 0);

    let delete = Commit::seal(&effects, now.id, now.head).with_trigger(Trigger::Delete(Reason::UserDeleted));
    storage.sessions.commit(delete).await.unwrap();
    let refused = salvage(&storage, now.id, None).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Deleted);
    let refused = salvage(&storage, effects.new_session_id(), None).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::NotFound);
}

/// The tenant's hidden session and its audit lie in the workspace `default`; that nobody has made it is no mistake.
async fn tenant_sessions_are_not_reported_as_dangling(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    HiddenSession::Tenant.open(&storage.sessions).await.unwrap();
    let storage = audited(&storage, Actor::USER);
    WorkspaceManager::new(storage.clone().with_effects(effects))
        .create(NewWorkspace::new("Notes"))
        .await
        .unwrap();
    let seen = verify(&storage).await;
    assert_eq!((seen.sessions, seen.findings), (2, Vec::new()), "{}", site.name);
}

each_store!(tenant_sessions_are_not_reported_as_dangling);

/// As in the examples of the stores: a host that keeps sessions alone makes no workspace.
async fn sessions_of_the_default_workspace_are_not_dangling(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let new = |workspace| NewSession::new(effects.new_session_id(), workspace);
    storage.sessions.create(new(WorkspaceId::DEFAULT)).await.unwrap();
    assert_eq!(verify(&storage).await.findings, [], "{}", site.name);
    // Another workspace has been there, or its id is wrong.
    storage.sessions.create(new(effects.new_workspace_id())).await.unwrap();
    assert_eq!(verify(&storage).await.findings.len(), 1, "{}", site.name);
    // A default workspace that was deleted has no sessions.
    WorkspaceManager::new(storage.clone().with_effects(effects)).default_workspace().await.unwrap();
    storage.workspaces.delete(WorkspaceId::DEFAULT).await.unwrap();
    assert_eq!(verify(&storage).await.findings.len(), 2, "{}", site.name);
}

each_store!(sessions_of_the_default_workspace_are_not_dangling);

/// A store whose disk fails to read one session.
#[derive(Debug)]
struct BadSector {
    store: MemoryStore,
    bad: SessionId,
    /// Whether the record can be read, and only the log cannot.
    has_record: bool,
}

impl BadSector {
    fn check(&self, id: SessionId) -> Result<()> {
        if id != self.bad {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(5);
        Err(Error::new(ErrorKind::Unavailable, format!("cannot read the log of {id}")).with_source(source))
    }
}

#[async_trait]
impl SessionStoreWrapper for BadSector {
    fn inner(&self) -> &dyn SessionStore {
        &self.store
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        if !self.has_record {
            self.check(id)?;
        }
        self.store.load(id).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.check(id)?;
        self.store.read(id, read).await
    }
}

/// A session that the disk cannot read is named as damage; the others are copied and verified.
#[cfg(unix)]
#[tokio::test]
async fn unreadable_sector_stops_no_copy() {
    for has_record in [true, false] {
        let (store, effects) = (MemoryStore::new(), Effects::default());
        let mut ids = Vec::new();
        for _ in 0..3 {
            let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
            ids.push(store.sessions(&effects).create(new).await.unwrap().id);
        }
        let mut here: Storage = store.clone().into();
        here = here.with_session_store(Arc::new(BadSector { store, bad: ids[1], has_record }));
        let there: Storage = MemoryStore::new().into();
        let report = StoreCopy::new(here.clone(), there.clone()).run().await.unwrap();
        assert_eq!((report.copied.sessions, report.damaged.len()), (2, 1), "{report:?}");
        assert!(report.damaged[0].object.contains(&ids[1].to_string()), "{report:?}");
        let found = verify::verify(&here, |_| {}).await.unwrap();
        let named: Vec<_> = found.findings.iter().map(|it| (it.kind, it.object.clone())).collect();
        assert_eq!(named, [(FindingKind::Damaged, format!("session {}", ids[1]))], "{found:?}");
    }
}

/// A store that finds an object of another program among its own.
#[derive(Debug)]
struct WithForeign(MemoryStore);

#[async_trait]
impl SessionStoreWrapper for WithForeign {
    fn inner(&self) -> &dyn SessionStore {
        &self.0
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

#[async_trait]
impl MaintenanceWrapper for WithForeign {
    fn inner(&self) -> &dyn Maintenance {
        self.0.maintenance()
    }

    async fn check(&self) -> Result<Vec<Damaged>> {
        Ok(vec![Damaged::foreign("object agents/.DS_Store", "is ignored")])
    }
}

/// An object of another program is named, and is no finding.
#[tokio::test]
async fn foreign_objects_are_named_and_no_finding() {
    let store = MemoryStore::new();
    let mut storage: Storage = store.clone().into();
    storage = storage.with_session_store(Arc::new(WithForeign(store)));
    let found = verify::verify(&storage, |_| {}).await.unwrap();
    assert!(found.is_sound(), "{found:?}");
    assert_eq!(found.foreign[0].object, "object agents/.DS_Store");
}

/// Stores a fork of a session as it is elsewhere, where that has more events than here.
async fn restore_a_fork(storage: &Storage, effects: &Effects, parent: &SessionRecord) -> SessionId {
    let elsewhere = MemoryStore::new();
    let new = NewSession::new(parent.id, parent.workspace);
    let there = elsewhere.sessions(effects).create(new).await.unwrap();
    let texts_of = (0..100).map(|n| NewEvent::user_message(format!("{n}"))).collect();
    elsewhere.sessions(effects).append(there.id, there.head, texts_of).await.unwrap();
    let fork = elsewhere.sessions(effects).fork(there.id, None).await.unwrap();
    let events = elsewhere.read(fork.id, ReadEvents::first(10)).await.unwrap().events;
    storage.sessions.commit(Commit::restore(fork.id, events).unwrap()).await.unwrap();
    fork.id
}

/// What names something that is not there is found: two sessions and a device of a workspace that is gone, a history
/// that was never there.
async fn dangling_references_are_found(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = world(&storage, &effects).await;
    assert_eq!(verify(&storage).await.findings, [], "{}", site.name);
    let fork = restore_a_fork(&storage, &effects, &session).await;
    // Past the manager, which would not do this.
    storage.workspaces.delete(session.workspace).await.unwrap();
    let delete =
        Commit::seal(&effects, session.id, session.head).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await.unwrap().session;
    storage.sessions.purge(Purge::new(deleted.id, deleted.head)).await.unwrap();
    let seen = verify(&storage).await;
    let texts: Vec<_> = seen.findings.iter().map(ToString::to_string).collect();
    assert!(seen.findings.iter().all(|finding| finding.kind == FindingKind::Dangling), "{texts:#?}");
    let has = |what: &str| texts.iter().filter(|text| text.contains(what)).count();
    assert_eq!(has("device laptop: its workspace"), 1, "{}: {texts:#?}", site.name);
    assert_eq!(has("was deleted"), 3, "{}: {texts:#?}", site.name);
    let missing = format!("session {fork}: its history up to event 101 is missing in session {}", session.id);
    assert_eq!(has(&missing), 1, "{}: {texts:#?}", site.name);
    assert_eq!(texts.len(), 4, "{}: {texts:#?}", site.name);
}

each_store!(dangling_references_are_found and files);

/// A list that cannot be read is a finding, and the rest is checked all the same: if any page of a database is overwritten,
/// `verify` reports it and completes.
#[tokio::test]
async fn unreadable_list_does_not_stop_verification() {
    const PAGE: usize = 4096;
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let path = folder.path().join("sound.db");
    let store = SqliteStore::open(&path).await.unwrap();
    world(&Storage::from(store.clone()), &effects).await;
    store.close().await.unwrap();
    let sound = std::fs::read(&path).unwrap();
    let mut unreadable = 0;
    // The first page is the database's own: without it the file is none.
    for at in (PAGE..sound.len()).step_by(PAGE) {
        let mut damaged = sound.clone();
        damaged[at..at + 16].fill(0);
        let path = folder.path().join(format!("{at}.db"));
        std::fs::write(&path, damaged).unwrap();
        let Ok(store) = SqliteStore::open(&path).await else { continue };
        let seen = verify(&Storage::from(store.clone())).await;
        unreadable +=
            u32::from(seen.findings.iter().any(|finding| finding.object.starts_with("the list of")));
        store.close().await.unwrap();
    }
    assert!(unreadable > 0, "some page holds what lists are made of");
}
