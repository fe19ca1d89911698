//! Script of the writes to each store, the same each time, and of everything that can be read.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{DocumentWritten, Media, Message, NewEvent, Part, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{ActionKind, Actor, CallId, Patch, PendingAction, Timer, Title, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    BindingQuery, BlobInfo, BlobQuery, Cursor, Purge, PutBlob, ReadBlob, ReadEvents, SessionQuery,
    WorkspaceQuery,
};
use agent_core::{Backend, ErrorKind, Seq, SessionId, Storage, TenantId, WorkspaceId};

/// Effects of the script, or of a store: the same each time.
pub(crate) fn effects(seed: u64) -> Effects {
    Effects::seeded(seed, "2026-02-15T10:30:00Z".parse().unwrap())
}

/// Bytes of a blob of two chunks.
pub(crate) fn large() -> Vec<u8> {
    let mut bytes = vec![0; (256 << 10) + 5];
    bytes.extend_from_slice(b"end");
    bytes
}

/// Ids that lists do not show.
#[derive(Debug)]
pub(crate) struct Written {
    /// Workspace that was deleted.
    deleted: WorkspaceId,
    /// Id of a session that was not created, with a blob.
    early: SessionId,
}

/// Writes workspaces, bindings, sessions in many states with all kinds of content, and three tenants, of which one is
/// deleted.
pub(crate) async fn write(backend: &dyn Backend) -> Written {
    let effects = effects(1);
    let acme: TenantId = "acme".parse().unwrap();
    let gone: TenantId = "gone".parse().unwrap();
    let written = write_tenant(&backend.tenant(&TenantId::default()), &effects).await;
    for tenant in [&acme, &gone] {
        write_little(&backend.tenant(tenant), &effects).await;
    }
    backend.delete_tenant(&gone).await.unwrap();
    written
}

/// A workspace, a device and a session of another tenant.
async fn write_little(storage: &Storage, effects: &Effects) {
    let id = effects.new_workspace_id();
    let record = Workspace::new(id, "acme", effects.new_session_id(), effects.now());
    storage.workspaces.put(record, Precondition::MustNotExist).await.unwrap();
    storage.bindings.bind(&"laptop".parse().unwrap(), id, Precondition::MustNotExist).await.unwrap();
    let created = Commit::create(effects, NewSession::new(effects.new_session_id(), id));
    storage.sessions.commit(created).await.unwrap();
}

async fn write_tenant(storage: &Storage, effects: &Effects) -> Written {
    let main = effects.new_session_id();
    let (other, deleted) = (effects.new_workspace_id(), effects.new_workspace_id());
    let kitchen = Workspace::new(WorkspaceId::DEFAULT, "Küche", main, effects.now())
        .with_provider("claude")
        .with_description("two\nlines")
        .with_creator(Actor::USER)
        .with_setting("number", RawJson::parse("12345678901234567890.10").unwrap());
    let workspaces = &storage.workspaces;
    let kitchen = workspaces.put(kitchen, Precondition::MustNotExist).await.unwrap();
    workspaces.put(kitchen.clone(), Precondition::Matches(kitchen.revision)).await.unwrap();
    for id in [other, deleted] {
        let record = Workspace::new(id, "other", effects.new_session_id(), effects.now());
        workspaces.put(record, Precondition::MustNotExist).await.unwrap();
    }
    let config = Some("provider = \"gemini\"\n".to_owned());
    workspaces.save_config(WorkspaceId::DEFAULT, config, Precondition::MustNotExist).await.unwrap();
    workspaces.touch(WorkspaceId::DEFAULT, effects.now()).await.unwrap();
    workspaces.delete(deleted).await.unwrap();
    for (device, workspace) in
        [("laptop \"2\"", WorkspaceId::DEFAULT), ("전화", other), ("unbound", WorkspaceId::DEFAULT)]
    {
        let device = device.parse().unwrap();
        storage.bindings.bind(&device, workspace, Precondition::MustNotExist).await.unwrap();
    }
    assert!(storage.bindings.unbind(&"unbound".parse().unwrap()).await.unwrap());
    let early = effects.new_session_id();
    storage.sessions.blobs().put(PutBlob::of_bytes(early, "early")).await.unwrap();
    write_sessions(&Writer { storage, effects }, main, other).await;
    Written { deleted, early }
}

struct Writer<'a> {
    storage: &'a Storage,
    effects: &'a Effects,
}

impl Writer<'_> {
    async fn create(&self, new: NewSession) -> Arc<SessionRecord> {
        self.send(Commit::create(self.effects, new)).await
    }

    async fn send(&self, commit: Commit) -> Arc<SessionRecord> {
        self.storage.sessions.commit(commit).await.unwrap().session
    }

    fn seal(&self, session: &SessionRecord) -> Commit {
        Commit::seal(self.effects, session.id, session.head)
    }

    /// One turn, which ends like this.
    async fn turn(&self, session: &SessionRecord, text: &str, end: RunEnd) -> Arc<SessionRecord> {
        let run = self.effects.new_run_id();
        let lease = LeaseRequest::new("golden", run).with_ttl(Duration::from_secs(120));
        let begin = self
            .seal(session)
            .with_actor("user:alice".parse().unwrap())
            .with_event(NewEvent::user_message(text).with_extra("x", RawJson::parse("1e400").unwrap()))
            .with_trigger(Trigger::BeginRun(lease));
        let begun = self.send(begin).await;
        let call: CallId = "call 1".parse().unwrap();
        let input = RawJson::parse("{\"n\":1.10}").unwrap();
        let step = self
            .seal(&begun)
            .with_fence(run, begun.epoch)
            .with_event(NewEvent::tool_use(call.clone(), "ls", input))
            .with_event(NewEvent::tool_result(call, ToolOutcome::Ok, RawJson::empty_object()));
        let stepped = self.send(step).await;
        let end = self
            .seal(&stepped)
            .with_fence(run, begun.epoch)
            .with_event(NewEvent::agent_message("Hello.\n"))
            .with_trigger(Trigger::EndRun(end));
        self.send(end).await
    }

    async fn append(
        &self,
        session: &SessionRecord,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Arc<SessionRecord> {
        self.send(self.seal(session).with_events(events)).await
    }
}

async fn write_sessions(writer: &Writer<'_>, main: SessionId, other: WorkspaceId) {
    let (effects, sessions) = (writer.effects, &writer.storage.sessions);
    let done = || RunEnd::Completed(Reason::EndTurn);
    // The main session, with text that the transcript must escape, and one that fills its snapshot.
    let session = writer.create(NewSession::new(main, WorkspaceId::DEFAULT)).await;
    let session = writer.turn(&session, "## User\n---\n\\안녕\r\n\u{0}", done()).await;
    let patch = Patch::new().with_title(Title::by_user("Küche")).with_label("project", "apollo");
    let document = DocumentWritten::after(None, "state", Some("Begun.".to_owned()));
    let note = NewEvent::new("x.app.note".parse().unwrap(), RawJson::parse("[0.10]").unwrap());
    let session =
        writer.append(&session, [NewEvent::updated(patch), NewEvent::document_written(document), note]).await;
    let mut session = writer.append(&session, [NewEvent::user_message("long ".repeat(2000))]).await;
    // So many commits that a bucket begins another window.
    for n in 0..12 {
        session = writer.append(&session, [NewEvent::user_message(format!("{n}"))]).await;
    }
    // A fork, which says something else.
    let fork = writer.create(NewSession::fork(effects.new_session_id(), &session)).await;
    writer.append(&fork, [NewEvent::user_message("another way")]).await;
    // Blobs of one chunk and of two.
    let new = NewSession::new(effects.new_session_id(), other);
    let session = writer.create(new).await;
    let mut message = Message::new("Look");
    for bytes in [b"small".to_vec(), large()] {
        let blob = BlobInfo::of(&bytes);
        sessions.blobs().put(PutBlob::of_bytes(session.id, bytes)).await.unwrap();
        message = message.with_part(Part::Image(Media::blob("image/png", blob.name, blob.bytes)));
    }
    writer.append(&session, [NewEvent::from(message)]).await;
    // One that waits for an answer, one with a timer, one that was suspended, one in the archive.
    let new = || NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let question = PendingAction::new("q1".parse().unwrap(), ActionKind::Approval, "Really?");
    let session = writer.create(new()).await;
    writer.turn(&session, "ask", RunEnd::Await(question)).await;
    let session = writer.create(new()).await;
    let due = effects.now().plus_micros(3_600_000_000);
    writer.append(&session, [NewEvent::timer_scheduled(Timer::new("daily", due))]).await;
    for trigger in [Trigger::Suspend(Reason::UserPaused), Trigger::Archive] {
        let session = writer.create(new()).await;
        writer.send(writer.seal(&session).with_trigger(trigger)).await;
    }
    // One that was deleted and purged but for its first event.
    let session = writer.create(new()).await;
    let session = writer.turn(&session, "secret", done()).await;
    let delete = writer.seal(&session).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let session = writer.send(delete).await;
    sessions.purge(Purge::new(session.id, session.head).with_keep_through(Seq::new(1))).await.unwrap();
    // One that runs, with a heartbeat.
    let session = writer.create(new()).await;
    let lease = LeaseRequest::new("golden", effects.new_run_id()).with_ttl(Duration::from_secs(120));
    let begin = writer.seal(&session).with_event(NewEvent::user_message("run"));
    let session = writer.send(begin.with_trigger(Trigger::BeginRun(lease))).await;
    sessions.leases().heartbeat(session.id, session.epoch).await.unwrap();
}

/// Describes everything that can be read: lists, records, configurations, devices, events and blobs of each tenant.
pub(crate) async fn read_all(backend: &dyn Backend, written: &Written) -> String {
    let mut seen = String::new();
    for tenant in ["acme", "default"] {
        let tenant = tenant.parse().unwrap();
        let storage = backend.tenant(&tenant);
        writeln!(seen, "tenant {tenant}").unwrap();
        let workspaces = WorkspaceQuery::new().with_deleting().with_total();
        let workspaces = storage.workspaces.list(workspaces).await.unwrap();
        for workspace in &workspaces.items {
            let config = storage.workspaces.load_config(workspace.id).await.unwrap();
            writeln!(seen, "{workspace:?} {config:?}").unwrap();
        }
        let mut bindings = storage.bindings.list(BindingQuery::new()).await.unwrap();
        // On S3 they are in the order of their workspaces.
        bindings.items.sort_by_key(|binding| binding.device.to_string());
        for binding in &bindings.items {
            let bound = storage.bindings.resolve(&binding.device).await.unwrap();
            writeln!(seen, "{binding:?} {bound:?}").unwrap();
        }
        let query = SessionQuery::new().with_hidden().with_total();
        let sessions = storage.sessions.list(query).await.unwrap();
        assert!(
            [workspaces.damaged, bindings.damaged, sessions.damaged].iter().all(Vec::is_empty),
            "damaged objects"
        );
        writeln!(seen, "{:?} workspaces, {:?} sessions", workspaces.total, sessions.total).unwrap();
        for summary in &sessions.items {
            let record = storage.sessions.load(summary.id).await.unwrap();
            writeln!(seen, "{summary:?}\n{}", record.to_json()).unwrap();
            let page = storage.sessions.read(summary.id, ReadEvents::first(1000)).await.unwrap();
            assert!(page.damaged.is_empty() && page.next.is_none(), "{:?}", page.damaged);
            page.events.iter().for_each(|event| writeln!(seen, "{}", event.to_json()).unwrap());
            read_blobs(&storage, summary.id, &mut seen).await;
        }
    }
    let storage = backend.tenant(&TenantId::default());
    read_blobs(&storage, written.early, &mut seen).await;
    let deleted = storage.workspaces.load(written.deleted).await.unwrap_err();
    writeln!(seen, "{}", deleted.kind().name()).unwrap();
    seen
}

async fn read_blobs(storage: &Storage, id: SessionId, seen: &mut String) {
    let mut blobs = storage.sessions.blobs().list(BlobQuery::new(id)).await.unwrap().items;
    blobs.sort_by_key(|blob| blob.bytes);
    for blob in blobs {
        let content = storage.sessions.blobs().read(ReadBlob::new(id, blob.name)).await.unwrap();
        let bytes = content.into_bytes(usize::MAX).await.unwrap();
        assert_eq!(BlobInfo::of(&bytes), blob, "other bytes than those of its name");
        writeln!(seen, "{blob:?}").unwrap();
    }
}

/// Returns, for each list, the only item of its first page and the start of the second one.
pub(crate) async fn cursors(backend: &dyn Backend) -> String {
    let storage = backend.tenant(&TenantId::default());
    let sessions = storage.sessions.list(SessionQuery::new().with_limit(1)).await.unwrap();
    let workspaces = storage.workspaces.list(WorkspaceQuery::new().with_limit(1)).await.unwrap();
    let bindings = storage.bindings.list(BindingQuery::new().with_limit(1)).await.unwrap();
    format!(
        "{}\t{}\n{}\t{}\n{}\t{}\n",
        sessions.items[0].id,
        sessions.next.unwrap(),
        workspaces.items[0].id,
        workspaces.next.unwrap(),
        bindings.items[0].device,
        bindings.next.unwrap(),
    )
}

/// Checks that lists go on at cursors that were handed out before.
pub(crate) async fn go_on(backend: &dyn Backend, cursors: &str) {
    let storage = backend.tenant(&TenantId::default());
    let mut lines = cursors.lines().map(|line| line.split_once('\t').unwrap());
    for kind in ["sessions", "workspaces", "devices"] {
        let (shown, cursor) = lines.next().unwrap();
        for format in [1, 3] {
            let other = cursor.replacen("c2.", &format!("c{format}."), 1);
            let error = other.parse::<Cursor>().unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
            let message = format!(
                "is a cursor of format {format}, and this version reads format 2; list from the start"
            );
            assert!(error.to_string().ends_with(&message), "{error}");
        }
        let (mut all, mut rest) = (ids(&storage, kind, None).await, ids(&storage, kind, Some(cursor)).await);
        // On S3 the order within a quarter of an hour is not exact.
        all.retain(|id| id != shown);
        all.sort();
        rest.sort();
        assert_eq!(rest, all, "{kind} behind {shown}");
    }
}

async fn ids(storage: &Storage, kind: &str, cursor: Option<&str>) -> Vec<String> {
    let cursor = cursor.map(|text| text.parse().unwrap());
    match kind {
        "sessions" => {
            let page = storage.sessions.list(SessionQuery::new().with_cursor(cursor)).await.unwrap();
            page.items.iter().map(|session| session.id.to_string()).collect()
        }
        "workspaces" => {
            let page = storage.workspaces.list(WorkspaceQuery::new().with_cursor(cursor)).await.unwrap();
            page.items.iter().map(|workspace| workspace.id.to_string()).collect()
        }
        _ => {
            let page = storage.bindings.list(BindingQuery::new().with_cursor(cursor)).await.unwrap();
            page.items.iter().map(|binding| binding.device.to_string()).collect()
        }
    }
}

/// Checks that a store shows what the script has written, as memory does, and that sessions go on.
pub(crate) async fn check(backend: &dyn Backend) {
    let memory = agent_core::MemoryStore::new();
    let written = write(&memory).await;
    let (expected, seen) = (read_all(&memory, &written).await, read_all(backend, &written).await);
    let other = seen.lines().zip(expected.lines()).find(|(seen, expected)| seen != expected);
    assert!(seen == expected, "the golden files hold something else: {other:#?}");
    assert!(seen.lines().count() > 60, "the script writes something of each kind: {seen}");
    let storage = backend.tenant(&TenantId::default());
    let query = SessionQuery::new().with_states([SessionState::Idle, SessionState::Queued]);
    for idle in storage.sessions.list(query).await.unwrap().items {
        let events = vec![NewEvent::user_message("on")];
        let after = storage.sessions.append(idle.id, idle.head, events).await.unwrap();
        assert_eq!(*storage.sessions.load(idle.id).await.unwrap(), *after.session);
    }
}
