//! Sessions as documents: out of one store, into another, the same to the byte.

use std::sync::Arc;

use crate::common::{call, json};
use crate::documents::pieces::in_pieces;
use agent_admin::archive::Archive;
use agent_admin::export::SessionExport;
use agent_admin::manifest::{ImportOutcome, Manifest};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Patch, Timer, Title};
use agent_core::session::{Fork, NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery, SessionStoreWrapper};
use agent_core::{
    Error, ErrorKind, MemoryStore, Result, Seq, SessionId, SessionStore, SessionStoreExt, Sessions,
    WorkspaceId, async_trait,
};
use agent_runtime::state_payload::StatePayload;
use agent_storage_fs::{FsConfig, FsStore, Sync};
use futures::{StreamExt, TryStreamExt, stream};
use proptest::prelude::*;

async fn files(root: &std::path::Path) -> FsStore {
    FsConfig::new(root).with_sync(Sync::Off).open().await.unwrap()
}

/// A session with a bit of everything, and more commits than a record remembers.
async fn rich(store: &Sessions, effects: &Effects) -> Arc<SessionRecord> {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = store.create(new).await.unwrap();
    for n in 0..30 {
        let run = effects.new_run_id();
        let prompt = Commit::seal(effects, session.id, session.head)
            .with_actor("user:alice".parse().unwrap())
            .with_event(
                NewEvent::user_message(format!("안녕 {n}\n## User\u{0}")).with_extra("x", json("1e400")),
            )
            .with_trigger(Trigger::BeginRun(LeaseRequest::new("test", run)));
        session = store.commit(prompt).await.unwrap().session;
        let answer = Commit::seal(effects, session.id, session.head)
            .with_fence(run, session.epoch)
            .with_event(NewEvent::tool_use(call("c1"), "ls", json("{\"n\":1.10}")))
            .with_event(NewEvent::new("x.app.note".parse().unwrap(), json("[12345678901234567890.10]")))
            .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
        session = store.commit(answer).await.unwrap().session;
    }
    let patch = Patch::new().with_title(Title::by_user("Küche")).with_label("project", "x");
    session = store.update(session.id, session.head, patch).await.unwrap().session;
    session = store.clear(session.id).await.unwrap().session;
    let timer = Timer::new("later", effects.now());
    let timer = vec![NewEvent::timer_scheduled(timer), NewEvent::agent_message("after")];
    store.append(session.id, session.head, timer).await.unwrap().session
}

/// Exported, imported and exported again it is the same document, through memory, files, and a new
/// process on these; the session goes on there.
#[tokio::test]
async fn a_document_comes_back_byte_for_byte() {
    let (effects, root) = (Effects::default(), tempfile::tempdir().unwrap());
    let memory = MemoryStore::new();
    let session = rich(&memory.sessions(&effects), &effects).await;
    let document = Manifest::export(&memory, session.id).await.unwrap().to_json().unwrap();
    assert_eq!(in_pieces(&memory, session.id).await.unwrap(), document);

    let on_files = files(root.path()).await;
    let imported = Manifest::parse(&document).unwrap().import(&on_files).await.unwrap();
    let events = document.matches("\n{\"seq\":").count() as u64;
    assert_eq!((imported.outcome, imported.events), (ImportOutcome::New, events));
    assert_eq!(imported.session, session);
    drop(on_files);
    let on_files = files(root.path()).await;
    let again = Manifest::export(&on_files, session.id).await.unwrap();
    assert_eq!(again.to_json().unwrap(), document);
    assert_eq!(SessionStore::load(&on_files, session.id).await.unwrap(), session);

    let back = MemoryStore::new();
    again.import(&back).await.unwrap();
    assert_eq!(Manifest::export(&back, session.id).await.unwrap().to_json().unwrap(), document);
    let page = SessionStore::list(&back, SessionQuery::new()).await.unwrap();
    assert_eq!(page, SessionStore::list(&memory, SessionQuery::new()).await.unwrap());
    back.sessions(&effects)
        .append(session.id, session.head, vec![NewEvent::user_message("on")])
        .await
        .unwrap();
}

/// An import that was cut off is finished by the next; one that is done writes nothing; nothing is merged.
#[tokio::test]
async fn import_is_resumed_and_never_merged() {
    let (effects, there) = (Effects::default(), MemoryStore::new());
    let here = MemoryStore::new();
    let session = rich(&here.sessions(&effects), &effects).await;
    let whole = Manifest::export(&here, session.id).await.unwrap();
    for events in whole.events.chunk_by(|a, b| a.commit == b.commit).take(17) {
        there.commit(Commit::restore(session.id, events.to_vec()).unwrap()).await.unwrap();
    }
    let completed = whole.import(&there).await.unwrap();
    assert_eq!((&completed.session, completed.outcome), (&session, ImportOutcome::Completed));
    assert!(completed.events > 0 && completed.events < whole.events.len() as u64, "{}", completed.events);
    let present = whole.import(&there).await.unwrap();
    assert_eq!(
        (present.session, present.outcome, present.events),
        (session.clone(), ImportOutcome::Present, 0)
    );
    let ahead =
        there.sessions(&effects).append(session.id, session.head, vec![NewEvent::user_message("mine")]).await;
    let ahead = ahead.unwrap().session;
    // The document is older than the store: nothing is restored, and the store says how many events it has more.
    let older = whole.import(&there).await.unwrap();
    assert_eq!((older.outcome, older.events, older.ahead), (ImportOutcome::Ahead, 0, 1));
    assert_eq!(older.session, ahead);
    let export = SessionExport::read(&here, session.id, |_| {}).await.unwrap();
    let archive = stream::iter(export.to_archive().unwrap().collect::<Vec<_>>().await).boxed();
    let older = Archive::open(archive).await.unwrap().import(&there).await.unwrap();
    assert_eq!((older.outcome, older.events, older.ahead), (ImportOutcome::Ahead, 0, 1));
    // A session that went on differently since an earlier event has a different event.
    let cut = MemoryStore::new();
    let commits: Vec<_> = whole.events.chunk_by(|a, b| a.commit == b.commit).collect();
    for events in &commits[..commits.len() - 1] {
        cut.commit(Commit::restore(session.id, events.to_vec()).unwrap()).await.unwrap();
    }
    let before = SessionStore::load(&cut, session.id).await.unwrap();
    for text in ["mine", "and more", "and more"] {
        let head = SessionStore::load(&cut, session.id).await.unwrap().head;
        cut.sessions(&effects).append(session.id, head, vec![NewEvent::user_message(text)]).await.unwrap();
    }
    let refused = whole.import(&cut).await.unwrap_err();
    let named = format!("a different event {}", before.head.next());
    assert!(refused.to_string().contains(&named), "{refused}");

    // Another history under the same id.
    let other = MemoryStore::new();
    let created = other
        .commit_with_retry(Commit::create(&effects, NewSession::new(session.id, WorkspaceId::DEFAULT)))
        .await;
    let created = created.unwrap().session;
    let refused = whole.import(&other).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }));
    assert_eq!(SessionStore::load(&other, session.id).await.unwrap(), created);
    other.sessions(&effects).trigger(session.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    assert_eq!(*whole.import(&other).await.unwrap_err().kind(), ErrorKind::Deleted);
    assert_eq!(*Manifest::export(&other, session.id).await.unwrap_err().kind(), ErrorKind::Deleted);
    let nobody = effects.new_session_id();
    assert_eq!(*Manifest::export(&other, nobody).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A session of a few turns in which nothing waits.
async fn calm(store: &MemoryStore, effects: &Effects) -> Arc<SessionRecord> {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = store.sessions(effects).create(new).await.unwrap();
    for n in 0..3 {
        let run = effects.new_run_id();
        let prompt = Commit::seal(effects, session.id, session.head)
            .with_event(NewEvent::user_message(format!("question {n}")))
            .with_trigger(Trigger::BeginRun(LeaseRequest::new("test", run)));
        session = store.commit(prompt).await.unwrap().session;
        let answer = Commit::seal(effects, session.id, session.head)
            .with_fence(run, session.epoch)
            .with_event(NewEvent::agent_message("answer"))
            .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
        session = store.commit(answer).await.unwrap().session;
    }
    session
}

/// The document of a fork or a child brings what it shares with the sessions that it was made from, and is the
/// same out of the store that has nothing else; their own documents complete them.
#[tokio::test]
async fn document_of_a_fork_is_self_contained() {
    let (effects, here) = (Effects::default(), MemoryStore::new());
    let add = async |id: SessionId, head: Seq, text: &str| {
        let note = |text: &str| NewEvent::new("x.app.note".parse().unwrap(), RawJson::of(&text).unwrap());
        here.sessions(&effects).append(id, head, vec![note(text), note("and")]).await.unwrap().session
    };
    let root = calm(&here, &effects).await;
    let fork = here.sessions(&effects).fork(root.id, None).await.unwrap();
    let fork = add(fork.id, fork.head, "own").await;
    let inside = Some(Seq::new(fork.head.get() - 1));
    let refused = here.sessions(&effects).fork(fork.id, inside).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
    let (before, after) = (fork.head.get() - 2, fork.head);
    let named = format!("inside a commit; fork at {before} or {after}");
    assert!(refused.to_string().contains(&named), "{refused}");
    let deep = here.sessions(&effects).fork(fork.id, Some(fork.head)).await.unwrap();
    let deep = add(deep.id, deep.head, "deeper").await;
    add(fork.id, fork.head, "after the fork").await;
    // At a point before its parent was: the parent shares nothing.
    let early = here.sessions(&effects).fork(deep.id, Some(Seq::new(1))).await.unwrap();
    let child = here.sessions(&effects).create_child(early.id, Patch::new()).await.unwrap();
    for (id, ancestors) in [(root.id, 0), (fork.id, 1), (deep.id, 2), (early.id, 3), (child.id, 4)] {
        let document = Manifest::export(&here, id).await.unwrap().to_json().unwrap();
        assert_eq!(in_pieces(&here, id).await.unwrap(), document);
        let parsed = Manifest::parse(&document).unwrap();
        assert_eq!(parsed.ancestors.len(), ancestors, "{document}");
        if let [_, of_fork, ..] = &parsed.ancestors[..] {
            // Whole commits, and what came later is not in it.
            assert_eq!(of_fork.events.last().map(|last| last.seq), Some(fork.head));
        }
        let folder = tempfile::tempdir().unwrap();
        let there = files(folder.path()).await;
        let imported = parsed.import(&there).await.unwrap().session;
        assert_eq!(imported, SessionStore::load(&here, id).await.unwrap());
        assert_eq!(parsed.import(&there).await.unwrap().session, imported, "a second time");
        assert_eq!(Manifest::export(&there, id).await.unwrap().to_json().unwrap(), document);
        let all = ReadEvents::first(1000);
        assert_eq!(
            there.history(id, all.clone()).await.unwrap(),
            here.history(id, all.clone()).await.unwrap()
        );
        for id in [root.id, fork.id, deep.id, early.id, child.id] {
            let whole = Manifest::export(&here, id).await.unwrap();
            assert_eq!(whole.import(&there).await.unwrap().session, whole.session);
            assert_eq!(Manifest::export(&there, id).await.unwrap(), whole);
        }
    }
}

/// A fork is exported after its parent was deleted and purged, with what it shares; where the parent was deleted
/// in the target nothing is made from it, and where it is another there nothing is written.
#[tokio::test]
async fn exported_fork_includes_its_deleted_parent() {
    let (effects, here) = (Effects::default(), MemoryStore::new());
    let root = calm(&here, &effects).await;
    let fork = here.sessions(&effects).fork(root.id, None).await.unwrap();
    let before = Manifest::export(&here, fork.id).await.unwrap();
    let gone =
        here.sessions(&effects).trigger(root.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().session;
    SessionStore::purge(&here, Purge::new(root.id, gone.head).with_keep_through(root.head)).await.unwrap();
    let after = Manifest::export(&here, fork.id).await.unwrap();
    assert_eq!(after, before);
    assert_eq!(in_pieces(&here, fork.id).await.unwrap(), before.to_json().unwrap());
    let there = MemoryStore::new();
    after.import(&there).await.unwrap();
    assert_eq!(SessionStore::load(&there, root.id).await.unwrap().status.state, root.status.state);

    let deleted = MemoryStore::new();
    Manifest::export(&there, root.id).await.unwrap().import(&deleted).await.unwrap();
    deleted.sessions(&effects).trigger(root.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    assert_eq!(*after.import(&deleted).await.unwrap_err().kind(), ErrorKind::Deleted);
    let other = MemoryStore::new();
    other.sessions(&effects).create(NewSession::new(root.id, WorkspaceId::DEFAULT)).await.unwrap();
    let refused = after.import(&other).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }), "{refused}");
    assert_eq!(*SessionStore::load(&other, fork.id).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// The state of a session has what was said last.
#[tokio::test]
async fn exported_state_ends_with_the_last_message() {
    let (effects, here) = (Effects::default(), MemoryStore::new());
    let session = calm(&here, &effects).await;
    let events = vec![NewEvent::user_message("and?"), NewEvent::agent_message("no more")];
    let session = here.sessions(&effects).append(session.id, session.head, events).await.unwrap().session;
    let state = StatePayload::export(&here, session.id).await.unwrap();
    assert_eq!((state.history.len(), state.history.last().unwrap().text.as_str()), (8, "no more"));
}

/// Of a parent that was purged in the middle of a commit there is no whole part to bring along.
#[tokio::test]
async fn half_a_commit_of_a_deleted_parent_is_not_exported() {
    let (effects, here) = (Effects::default(), MemoryStore::new());
    let root = calm(&here, &effects).await;
    let messages = vec![NewEvent::agent_message("one"), NewEvent::agent_message("two")];
    let root = here.sessions(&effects).append(root.id, root.head, messages).await.unwrap().session;
    let within = Seq::new(root.head.get() - 1);
    // As a host that keeps records of its own could make it.
    let events: Vec<_> = here.events(root.id, Seq::ZERO).try_collect().await.unwrap();
    let mut past = SessionRecord::begin(root.id, &events[0]).unwrap();
    for event in &events[1..usize::try_from(within.get()).unwrap()] {
        past.apply(event).unwrap();
    }
    let fork = NewSession::fork(effects.new_session_id(), &past);
    let fork = here.sessions(&effects).create(fork).await.unwrap();
    let gone =
        here.sessions(&effects).trigger(root.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().session;
    SessionStore::purge(&here, Purge::new(root.id, gone.head).with_keep_through(within)).await.unwrap();
    for refused in [
        Manifest::export(&here, fork.id).await.map(drop).unwrap_err(),
        in_pieces(&here, fork.id).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(*refused.kind(), ErrorKind::Deleted);
        assert!(refused.to_string().contains("end within a commit"), "{refused}");
    }
}

/// Contract 6: where a store cannot say whether it has a session, it is not taken for one that has none.
#[tokio::test]
async fn import_is_refused_if_the_target_is_unreadable() {
    let (effects, here) = (Effects::default(), MemoryStore::new());
    let root = calm(&here, &effects).await;
    let fork = here.sessions(&effects).fork(root.id, None).await.unwrap();
    let document = Manifest::export(&here, fork.id).await.unwrap();
    for silent in [root.id, fork.id] {
        let there = Silent { inner: MemoryStore::new(), of: silent };
        let refused = document.import(&there).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Unavailable);
        let all = SessionStore::list(&there.inner, SessionQuery::new()).await.unwrap();
        assert_eq!(all.items, [], "nothing is written");
    }
}

/// A store that does not say whether it has one of its sessions.
#[derive(Debug)]
struct Silent {
    inner: MemoryStore,
    of: SessionId,
}

#[async_trait]
impl SessionStoreWrapper for Silent {
    fn inner(&self) -> &dyn SessionStore {
        &self.inner
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        match id == self.of {
            true => Err(Error::new(ErrorKind::Unavailable, "as told")),
            false => SessionStore::load(&self.inner, id).await,
        }
    }
}

/// An ancestor that was in the middle of its work is not brought along, since a scheduler would do
/// that work again; with its own document the session comes after it. Nothing is written before all of it can be.
#[tokio::test]
async fn import_brings_no_pending_work_of_ancestors() {
    let (effects, here) = (Effects::default(), MemoryStore::new());
    let root = calm(&here, &effects).await;
    let commit = |now: &SessionRecord| Commit::seal(&effects, now.id, now.head);
    let timer = Timer::new("daily", effects.now());
    let woken =
        here.commit(commit(&root).with_event(NewEvent::timer_scheduled(timer))).await.unwrap().session;
    let of_woken = here.sessions(&effects).fork(woken.id, None).await.unwrap();
    let other = calm(&here, &effects).await;
    let asked = here.commit(commit(&other).with_event(NewEvent::user_message("and?"))).await.unwrap().session;
    assert!(asked.inputs_open > 0);
    let with_work = Fork::new().with_open_inputs();
    let of_asked = here.sessions(&effects).fork(asked.id, with_work).await.unwrap();
    let second = here.sessions(&effects).fork(of_asked.id, with_work).await.unwrap();
    // A child that its parent has not heard of.
    let child = here.sessions(&effects).create_child(root.id, Patch::new()).await.unwrap();
    let run = effects.new_run_id();
    let prompt = Commit::seal(&effects, child.id, child.head)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("test", run)));
    let child = here.commit(prompt).await.unwrap().session;
    let end = Trigger::EndRun(RunEnd::Completed(Reason::EndTurn));
    let answer = Commit::seal(&effects, child.id, child.head).with_fence(run, child.epoch).with_trigger(end);
    let child = here.commit(answer).await.unwrap().session;
    assert!(child.to_report().is_some());
    let of_child = here.sessions(&effects).fork(child.id, None).await.unwrap();
    // Set aside with something before them, and one that is not ready yet.
    let suspend = Trigger::Suspend(Reason::UserPaused);
    let mut paused = Vec::new();
    for before in [NewEvent::user_message("and?"), NewEvent::timer_scheduled(Timer::new("w", effects.now()))]
    {
        let other = calm(&here, &effects).await;
        let other = here.commit(commit(&other).with_event(before)).await.unwrap().session;
        paused.push(here.commit(commit(&other).with_trigger(suspend.clone())).await.unwrap().session);
    }
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let unready = Commit::seal(&effects, new.id, Seq::ZERO).with_precondition(Precondition::MustNotExist);
    let unready = here.commit(unready.with_trigger(Trigger::Create(Box::new(new)))).await.unwrap().session;
    let others = [&paused[0], &paused[1], &unready].map(|session| session.id);
    let mut of_others = Vec::new();
    for id in others {
        of_others.push((here.sessions(&effects).fork(id, None).await.unwrap().id, vec![id]));
    }
    // A fork that takes along what waits waits, too.
    let cases = [
        (of_woken.id, vec![woken.id]),
        (of_asked.id, vec![asked.id]),
        (second.id, vec![asked.id, of_asked.id]),
        (of_child.id, vec![child.id]),
    ];
    for (id, busy) in cases.into_iter().chain(of_others) {
        let there = MemoryStore::new();
        let document = Manifest::export(&here, id).await.unwrap();
        let refused = document.import(&there).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::NotFound);
        assert!(refused.to_string().contains(&busy[0].to_string()), "{refused}");
        let all = SessionStore::list(&there, SessionQuery::new()).await.unwrap();
        assert_eq!(all.items, [], "nothing is written");
        for busy in busy {
            Manifest::export(&here, busy).await.unwrap().import(&there).await.unwrap();
        }
        assert_eq!(document.import(&there).await.unwrap().session, document.session);
    }

    // Of two ancestors the second is another session there: the first is not written.
    let early = here.sessions(&effects).fork(root.id, Some(root.head)).await.unwrap();
    let last = here.sessions(&effects).fork(early.id, None).await.unwrap();
    let there = MemoryStore::new();
    there.sessions(&effects).create(NewSession::new(early.id, WorkspaceId::DEFAULT)).await.unwrap();
    let refused = Manifest::export(&here, last.id).await.unwrap().import(&there).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }), "{refused}");
    assert_eq!(*SessionStore::load(&there, root.id).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A newer version, and another kind, are refused by name.
#[tokio::test]
async fn a_newer_document_is_refused_by_name() {
    are_refused(&[
        (
            "\"format\":5",
            "\"format\":6",
            "of format 6, and a \"session\" of format 4 or 5 is read here; update",
        ),
        ("\"kind\":\"session\"", "\"kind\":\"archive\"", "archive"),
    ])
    .await;
}

/// Formats that were never released are refused by name, with what to do.
#[tokio::test]
async fn an_older_document_is_refused_by_name() {
    are_refused(&[
        ("\"format\":5", "\"format\":0", "of format 0"),
        (
            "\"format\":5",
            "\"format\":1",
            "of format 1, and a \"session\" of format 4 or 5 is read here; use the version",
        ),
        (
            "\"format\":5",
            "\"format\":2",
            "of format 2, and a \"session\" of format 4 or 5 is read here; use the version",
        ),
        (
            "\"format\":5",
            "\"format\":3",
            "of format 3, and a \"session\" of format 4 or 5 is read here; use the version",
        ),
    ])
    .await;
}

/// A document in which `from` is `to` is refused with `says`, also with the right checksum, and is not called damaged.
async fn are_refused(cases: &[(&str, &str, &str)]) {
    let (effects, here) = (Effects::default(), MemoryStore::new());
    let document = Manifest::export(&here, rich(&here.sessions(&effects), &effects).await.id)
        .await
        .unwrap()
        .to_json()
        .unwrap();
    for (from, to, expected) in cases {
        let text = document.replacen(from, to, 1);
        assert_ne!(text, document);
        let (body, _) = text.rsplit_once(",\"crc32c\"").unwrap();
        for text in [sealed(body), text.clone()] {
            let error = Manifest::parse(&text).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unsupported);
            let outcome = error.to_string();
            assert!(outcome.contains(expected) && !outcome.contains("damage"), "{outcome}");
        }
    }
}

fn document() -> &'static str {
    static DOCUMENT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let here = MemoryStore::new();
        let effects = Effects::seeded(7, "2026-02-15T10:30:00Z".parse().unwrap());
        let export = async {
            let id = rich(&here.sessions(&effects), &effects).await.id;
            Manifest::export(&here, id).await.unwrap().to_json().unwrap()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(export)
    })
}

/// A document with the checksum of what stands in it.
fn sealed(body: &str) -> String {
    let mut json = String::from(body);
    json.push_str(&format!(",\"crc32c\":\"{:08x}\"}}\n", crc32c::crc32c(body.as_bytes())));
    json
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No change of a byte, and no cut, is taken for a document.
    #[test]
    fn a_changed_document_is_refused(at in any::<prop::sample::Index>(), to in any::<char>(), cut in any::<bool>()) {
        let text = document();
        let at = text.floor_char_boundary(at.index(text.len()));
        let end = text.ceil_char_boundary(at + 1);
        let changed = if cut { text[..at].to_owned() } else { format!("{}{to}{}", &text[..at], &text[end..]) };
        prop_assume!(changed != text);
        let error = Manifest::parse(&changed).unwrap_err();
        prop_assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{error}");
    }

    /// A document that somebody made up, with a checksum that fits, is read or refused; what is read is a fold.
    #[test]
    fn forged_document_is_read_or_refused(
        any in any::<String>(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
    ) {
        let _ = Manifest::parse(&any);
        let body = &document()[..document().len() - 22];
        let (from, to) = (from.index(body.len()), to.index(body.len()));
        let (from, to) = (body.floor_char_boundary(from.min(to)), body.floor_char_boundary(from.max(to)));
        // A piece left out, and a piece twice.
        for changed in [
            format!("{}{}", &body[..from], &body[to..]),
            format!("{}{}{}", &body[..to], &body[from..to], &body[to..]),
            format!("{}{any}{}", &body[..from], &body[from..]),
        ] {
            if let Ok(manifest) = Manifest::parse(&sealed(&changed)) {
                let folded = crate::common::fold(manifest.session.id, &manifest.events);
                prop_assert_eq!(folded, (*manifest.session).clone());
            }
        }
        prop_assert!(Manifest::parse(&sealed(body)).is_ok());
    }
}
