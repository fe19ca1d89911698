//! Erasure of a session: in one call, of every byte, after any interruption.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{Access, Actor, ExternalHandle, Failure, Patch, Role, Timer, Title, Workspace};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{HiddenSession, ReadEvents};
use agent_core::{ErrorKind, Seq, SessionId, Storage, Timestamp};
use agent_runtime::retention::Erasure;
use agent_runtime::{AgentBuilder, AgentRuntime, Gate, LlmProvider, RunOutcome, ScriptedProvider, Turn};
use agent_tests::each_store;
use tokio::time::{Instant, timeout};

use crate::endings::cut::{Cut, Cutting};
use crate::endings::delete::holds;
use crate::endings::site::{
    Hands, SECRET, Site, append_text, effects, history, manager, sessions, small_world,
};

/// What other sessions say, and must stay.
const OTHERS: &str = "what-others-said";

fn agent(storage: &Storage, clock: &Hands, model: impl LlmProvider) -> AgentRuntime {
    let builder = AgentBuilder::new().with_llm(model);
    builder.with_storage(storage.clone()).with_effects(effects(clock)).build().unwrap()
}

/// Fills a session with the secret, in every place for a text: in its record, and in events of all sizes.
async fn fill(storage: &Storage, clock: &Hands, id: SessionId) -> Arc<SessionRecord> {
    let effects = effects(clock);
    let now = storage.sessions.load(id).await.unwrap();
    let patch = Patch::new()
        .with_title(Title::by_user(SECRET))
        .with_label(SECRET, SECRET)
        .with_metadata(SECRET, RawJson::of(&SECRET).unwrap())
        .with_reference(SECRET, SECRET)
        .with_handle(SECRET, ExternalHandle::new(SECRET, SECRET).with_note(SECRET))
        .mount(SECRET, Access::Read)
        .pin(SECRET);
    let timer = Timer::new(SECRET, Timestamp::from_micros(i64::MAX / 2));
    let document = DocumentWritten::after(None, SECRET, Some(SECRET.repeat(1000)));
    let author = Actor::named(Role::User, SECRET).unwrap();
    let run = effects.new_run_id();
    let begin = Commit::seal(&effects, id, now.head)
        .with_event(NewEvent::updated(patch))
        .with_event(NewEvent::user_message(SECRET).with_actor(author))
        .with_event(NewEvent::timer_scheduled(timer))
        .with_event(NewEvent::document_written(document))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new(SECRET, run)));
    let running = storage.sessions.commit(begin).await.unwrap().session;
    let end = Commit::seal(&effects, id, running.head)
        .with_fence(run, running.epoch)
        .with_event(NewEvent::agent_message(SECRET))
        .with_trigger(Trigger::EndRun(RunEnd::Failed(Failure::new(Reason::RunError, SECRET))));
    let mut head = storage.sessions.commit(end).await.unwrap().last;
    for size in [1, 50, 3000, 70_000, 20, 9000, 1, 300_000] {
        let text = format!("{SECRET} ").repeat(size / 16 + 1);
        let events = vec![NewEvent::user_message(text.clone()), NewEvent::agent_message(text)];
        head = storage.sessions.append(id, head, events).await.unwrap().last;
    }
    storage.sessions.load(id).await.unwrap()
}

/// Says something in other sessions, so that their bytes lie between those that are erased.
async fn between(storage: &Storage, clock: &Hands, others: &[SessionId]) {
    for id in others {
        let text = format!("{OTHERS} ").repeat(100);
        let events = vec![NewEvent::user_message(text.clone()), NewEvent::agent_message(text)];
        sessions(storage, clock).append(*id, Seq::ZERO, events).await.unwrap();
    }
}

/// What is left of an erased session is its tombstone, which has no word of it.
async fn check_erased(storage: &Storage, was: &SessionRecord, when: &str) {
    let left = storage.sessions.load(was.id).await.unwrap();
    assert_eq!(left.status.state, SessionState::Deleted, "{when}");
    assert_eq!(*left, left.tombstone(), "{when}");
    assert!(!left.to_json().contains(SECRET), "{when}: {}", left.to_json());
    // What a tombstone is said to keep.
    assert_eq!((left.workspace, left.created_at), (was.workspace, was.created_at), "{when}");
    assert_eq!(left.counts.user, was.counts.user, "{when}");
    assert_eq!(storage.sessions.read(was.id, ReadEvents::first(10)).await.unwrap().events, [], "{when}");
}

/// No byte of an erased session is left in any file of the store, the file of SQLite and what lies beside it included;
/// the sessions around it are as they were.
async fn no_byte_of_it_is_left(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let world = small_world(&storage, &clock, "others").await;
    // The secret of its one message is not that of this test.
    sessions(&storage, &clock).trigger(world.main, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    manager(&storage, &clock).purge(world.main).await.unwrap();
    let agent = agent(&storage, &clock, ScriptedProvider::new([]));
    let mut others = Vec::new();
    for n in 0..3 {
        others.push(agent.conversation(&format!("other {n}")).await.unwrap().id());
    }
    // The main session of a workspace has a readable transcript, too, in files.
    let main = agent.open(&"laptop".parse().unwrap()).await.unwrap();
    let by_key = agent.conversation(&format!("by/{SECRET}")).await.unwrap();
    let mut erased = Vec::new();
    for chat in [&main, &by_key] {
        between(&storage, &clock, &others).await;
        erased.push(fill(&storage, &clock, chat.id()).await);
        between(&storage, &clock, &others).await;
    }
    let folder = site.folder.path();
    let transcript = || find(folder, "session.md").is_some_and(|file| holds_text(&file, SECRET));
    if site.name == "files" {
        until(transcript).await;
    }
    let was: Vec<_> = [history(&storage, others[0]).await, history(&storage, others[2]).await].into();
    for (chat, was) in [&main, &by_key].into_iter().zip(&erased) {
        let done = chat.erase().now().await.unwrap();
        assert_eq!((done.events, done.needed_by), (was.head.get() + 1, None), "{}", site.name);
        check_erased(&storage, was, site.name).await;
        assert!(!chat.record().to_json().contains(SECRET), "{}: nor does the handle know it", site.name);
        assert_eq!(chat.erase().now().await.unwrap(), Erasure::default(), "{}: again", site.name);
    }
    // Also before it is closed.
    assert!(!holds(folder, SECRET), "{}: while it is open", site.name);
    between(&storage, &clock, &others).await;
    for (other, was) in [others[0], others[2]].into_iter().zip(was) {
        assert_eq!(history(&storage, other).await[..was.len()], was, "{}", site.name);
    }
    storage.sessions.maintenance().rebuild().await.unwrap();
    storage.close().await.unwrap();
    assert!(!holds(folder, SECRET), "{}: after it was closed", site.name);
    assert!(site.name == "memory" || holds(folder, OTHERS), "{}: the search finds texts", site.name);
}

each_store!(no_byte_of_it_is_left);

fn find(folder: &Path, name: &str) -> Option<std::path::PathBuf> {
    std::fs::read_dir(folder).unwrap().map(Result::unwrap).find_map(|entry| {
        let path = entry.path();
        if path.is_dir() { find(&path, name) } else { path.ends_with(name).then_some(path) }
    })
}

fn holds_text(file: &Path, text: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|found| found.contains(text))
}

/// Waits until `holds`, for a while.
async fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to hold");
}

/// What forks read stays, and one of them is named; when it is erased, too, a repeated erasure removes the rest.
async fn what_forks_read_stays_until_they_go(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let agent = agent(&storage, &clock, ScriptedProvider::new([]));
    let chat = agent.conversation("original").await.unwrap();
    fill(&storage, &clock, chat.id()).await;
    let fork = chat.fork(None).await.unwrap();
    let nested = fork.fork(None).await.unwrap();
    let of_nested = history(&storage, nested.id()).await;
    append_text(&storage, &clock, chat.id(), "after the fork").await.unwrap();
    let shared = fork.record().lineage.base().get();
    let was = chat.refresh().await.unwrap();

    let done = chat.erase().now().await.unwrap();
    assert_eq!(
        (done.events, done.needed_by),
        (was.head.get() + 1 - shared, Some(fork.id())),
        "{}",
        site.name
    );
    assert!(!storage.sessions.load(chat.id()).await.unwrap().to_json().contains(SECRET), "{}", site.name);
    let done = fork.erase().now().await.unwrap();
    assert_eq!(done.needed_by, Some(nested.id()), "{}: its first event is shared", site.name);
    assert_eq!(history(&storage, nested.id()).await, of_nested, "{}", site.name);
    assert_eq!(
        chat.erase().now().await.unwrap().needed_by,
        Some(nested.id()),
        "{}: by way of the fork",
        site.name
    );

    assert_eq!(nested.erase().now().await.unwrap().needed_by, None, "{}", site.name);
    assert_eq!(fork.erase().now().await.unwrap().needed_by, None, "{}", site.name);
    let done = chat.erase().now().await.unwrap();
    assert_eq!((done.events, done.needed_by), (shared, None), "{}", site.name);
    check_erased(&storage, &was, site.name).await;
    storage.close().await.unwrap();
    assert!(!holds(site.folder.path(), SECRET), "{}", site.name);
}

each_store!(what_forks_read_stays_until_they_go);

/// Cut at every call, by an error, a death before it and a death after it, an erasure is finished by the next one: by
/// the id, by the key, or by the handle that was there before.
async fn one_that_is_cut_at_any_step_is_finished(site: Site) {
    let (clock, mut round) = (Hands::new(), 0);
    for cut in Cut::ALL {
        for at in 1.. {
            round += 1;
            let when = format!("{}, {cut:?} at call {at}", site.name);
            let storage = site.fresh(round);
            let whole = agent(&storage, &clock, ScriptedProvider::new([]));
            let chat = whole.conversation("key").await.unwrap();
            append_text(&storage, &clock, chat.id(), "hello").await.unwrap();
            assert!(chat.fork(None).await.unwrap().erase().now().await.unwrap().events > 0);
            let was = chat.refresh().await.unwrap();
            let cutting = Cutting::new(&storage, at, cut);
            let result = manager(&cutting.storage(), &clock).erase(chat.id()).now().await;
            let was_cut = cutting.calls() >= at;
            assert_eq!(result.is_err(), was_cut, "{when}");
            match at % 3 {
                0 => drop(manager(&storage, &clock).erase(chat.id()).now().await.unwrap()),
                1 => drop(whole.erase_conversation("key").now().await.unwrap()),
                _ => drop(chat.erase().now().await.unwrap()),
            }
            check_erased(&storage, &was, &when).await;
            if !was_cut {
                assert!(at > 3, "{when}: it took no more calls");
                break;
            }
        }
    }
    drop(site.fresh(0).close().await);
    assert!(!holds(site.folder.path(), SECRET), "{}", site.name);
}

each_store!(one_that_is_cut_at_any_step_is_finished and mixed);

/// A run of this process is ended by the erasure, in one call, also one that somebody else here began; it leaves nothing.
async fn a_run_of_this_process_is_ended(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let gate = Gate::new();
    let turn = || Turn::new().text(SECRET).gate(&gate).text(SECRET);
    let here = agent(&storage, &clock, ScriptedProvider::new([turn(), turn(), turn()]));
    for how in 0..3 {
        let begun = here.conversation_with(&format!("{how}"), SECRET).await.unwrap();
        let (chat, run) = (begun.conversation, begun.run);
        let was = chat.refresh().await.unwrap();
        assert_eq!(was.status.state, SessionState::Running, "{}", site.name);
        let erasing = async {
            match how {
                0 => chat.erase().now().await,
                // As a scheduler does for each tenant.
                1 => {
                    here.for_storage(storage.clone())
                        .conversation_by_id(chat.id())
                        .await
                        .unwrap()
                        .erase()
                        .now()
                        .await
                }
                _ => here.erase_conversation(&format!("{how}")).await,
            }
        };
        let done = timeout(Duration::from_secs(60), erasing).await.unwrap().unwrap();
        assert_eq!(done.needed_by, None, "{}", site.name);
        check_erased(&storage, &was, site.name).await;
        let ended = timeout(Duration::from_secs(60), run.finish()).await.unwrap();
        let interrupted = ended.as_ref().is_ok_and(|report| report.outcome == RunOutcome::Interrupted);
        assert!(interrupted, "{}: {ended:?}", site.name);
    }
    gate.open();
    here.close().await.unwrap();
    assert!(!holds(site.folder.path(), SECRET), "{}", site.name);
}

each_store!(a_run_of_this_process_is_ended);

/// While another process runs a session, its erasure is refused and leaves it alone; when that process gives no sign of
/// life for the time of its lease, it is done.
async fn a_run_elsewhere_is_left_alone(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let here = agent(&storage, &clock, ScriptedProvider::new([]));
    let chat = here.conversation("key").await.unwrap();
    let (run, ttl) = (here.effects().new_run_id(), Duration::from_millis(600));
    let begin = Commit::seal(here.effects(), chat.id(), chat.record().head)
        .with_event(NewEvent::user_message(SECRET))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("another host", run).with_ttl(ttl)));
    let running = storage.sessions.commit(begin).await.unwrap().session;
    let is_over = Arc::new(AtomicBool::new(false));
    let beats = {
        let (sessions, id, epoch) = (storage.sessions.clone(), chat.id(), running.epoch);
        let is_over = is_over.clone();
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                sessions.leases().heartbeat(id, epoch).await.unwrap();
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
        })
    };
    for error in [
        chat.erase().await.unwrap_err(),
        here.erase_conversation("key").await.unwrap_err(),
        here.workspaces().erase(chat.id()).await.unwrap_err(),
    ] {
        let holder = ErrorKind::Busy { holder: "another host".to_owned() };
        assert_eq!(*error.kind(), holder, "{}: {error}", site.name);
        let text = error.to_string();
        assert!(text.contains("another host") && text.contains("interrupt"), "{text}");
    }
    assert_eq!(*storage.sessions.load(chat.id()).await.unwrap(), *running, "{}", site.name);
    // None is under way any more: one that is dropped may still arrive.
    is_over.store(true, Ordering::Relaxed);
    beats.await.unwrap();
    let begun = Instant::now();
    let done = chat.erase().now().await.unwrap();
    assert!(done.events > 0 && begun.elapsed() >= ttl, "{}: {:?}", site.name, begun.elapsed());
    check_erased(&storage, &running, site.name).await;
}

each_store!(a_run_elsewhere_is_left_alone and mixed);

/// By its key a conversation is erased with all that were deleted before it and had the same key.
async fn all_of_one_key_are_erased(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let here = agent(&storage, &clock, ScriptedProvider::new([]));
    let absent = here.erase_conversation("key").await.unwrap_err();
    assert_eq!(*absent.kind(), ErrorKind::NotFound, "{}", site.name);
    let mut all = Vec::new();
    for _ in 0..5 {
        let chat = here.recreate_conversation("key").await.unwrap();
        all.push(fill(&storage, &clock, chat.id()).await);
        chat.delete().await.unwrap();
    }
    let last = here.recreate_conversation("key").await.unwrap();
    all.push(fill(&storage, &clock, last.id()).await);
    let done = here.erase_conversation("key").now().await.unwrap();
    let events: u64 = all.iter().map(|session| session.head.get() + 1).sum();
    assert_eq!((done.events, done.needed_by), (events, None), "{}", site.name);
    for was in &all {
        check_erased(&storage, was, site.name).await;
    }
    assert_eq!(here.erase_conversation("key").now().await.unwrap(), Erasure::default(), "{}", site.name);
    let next = here.recreate_conversation("key").await.unwrap();
    assert!(all.iter().all(|session| session.id != next.id()), "{}", site.name);
    storage.close().await.unwrap();
    assert!(!holds(site.folder.path(), SECRET), "{}", site.name);
}

each_store!(all_of_one_key_are_erased);

/// A hidden session is not erased by itself, nor is what does not exist; one that is damaged is.
async fn what_cannot_be_erased_is_named(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let here = agent(&storage, &clock, ScriptedProvider::new([]));
    let workspace: Workspace = here.workspaces().default_workspace().await.unwrap();
    let hidden = HiddenSession::project(workspace.id, "apollo").open(&storage.sessions).await.unwrap();
    for error in [
        here.workspaces().erase(hidden.id).await.unwrap_err(),
        here.conversation_by_id(hidden.id).await.unwrap().erase().await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}: {error}", site.name);
    }
    assert_eq!(*storage.sessions.load(hidden.id).await.unwrap(), *hidden, "{}", site.name);
    let nobody = here.workspaces().erase(here.effects().new_session_id()).await.unwrap_err();
    assert_eq!(*nobody.kind(), ErrorKind::NotFound, "{}", site.name);
    // A host's own label of that name changes nothing.
    let labelled = here.conversation("key").await.unwrap();
    labelled.update(Patch::new().with_label(HiddenSession::LABEL, "of books")).await.unwrap();
    assert!(labelled.erase().now().await.unwrap().events > 0, "{}", site.name);
}

each_store!(what_cannot_be_erased_is_named and mixed);

/// A damaged session is erased with its damaged bytes.
#[tokio::test]
async fn a_damaged_session_is_erased() {
    let site = Site::new("files").await;
    let (storage, clock) = (site.fresh(0), Hands::new());
    let here = agent(&storage, &clock, ScriptedProvider::new([]));
    let chat = here.conversation("key").await.unwrap();
    fill(&storage, &clock, chat.id()).await;
    storage.close().await.unwrap();
    let log = crate::endings::delete::log_of(site.folder.path(), &chat.id().to_string());
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    std::fs::remove_file(log.with_file_name("session.json")).ok();
    let opened = agent_storage_fs::FsStore::open(site.folder.path().join("files")).await.unwrap();
    let storage: Storage = opened.for_tenant(&"round-0".parse().unwrap()).into();
    let here = agent(&storage, &clock, ScriptedProvider::new([]));
    assert_eq!(*here.conversation("key").await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(here.erase_conversation("key").now().await.unwrap().needed_by, None);
    storage.close().await.unwrap();
    assert!(!holds(site.folder.path(), SECRET));
}

/// Sessions whose events lie among each other are erased one after the other: no byte of those that are erased is left,
/// though a store moves bytes when others go. SQLite leaves copies of what it moved, in about one of thirty such sessions,
/// unless the file is rewritten.
async fn no_byte_is_left_among_others(site: Site) {
    for seed in [2_u64, 3, 5] {
        let site = Site::new(site.name).await;
        let (storage, clock) = (site.fresh(0), Hands::new());
        let here = agent(&storage, &clock, ScriptedProvider::new([]));
        let random = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        let pick = |of: usize| usize::try_from(random.random_u64() % of as u64).unwrap();
        let mut living = Vec::new();
        for n in 0..16 {
            let chat = here.conversation(&format!("{n}")).await.unwrap();
            living.push((chat, format!("<secret-{n}>")));
        }
        for _ in 0..20 * living.len() {
            let (chat, secret) = &living[pick(16)];
            let events = vec![NewEvent::user_message(secret.repeat(1 + pick(30)))];
            storage.sessions.append(chat.id(), Seq::ZERO, events).await.unwrap();
        }
        while !living.is_empty() {
            let (chat, secret) = living.swap_remove(pick(living.len()));
            assert!(holds(site.folder.path(), &secret), "{}: {secret} is found before", site.name);
            assert_eq!(chat.erase().now().await.unwrap().needed_by, None);
            assert!(!holds(site.folder.path(), &secret), "{}: {secret}", site.name);
        }
    }
}

each_store!(no_byte_is_left_among_others on disk);

/// An erasure that is not done `now` removes events, records and blobs at once. On SQLite it says that copies may be left
/// in the file; the store names that until it is maintained, and then no byte is left.
async fn copies_that_may_be_left_are_reported(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let here = agent(&storage, &clock, ScriptedProvider::new([]));
    let chat = here.conversation("key").await.unwrap();
    let was = fill(&storage, &clock, chat.id()).await;
    let done = chat.erase().await.unwrap();
    assert_eq!(done.events, was.head.get() + 1, "{}", site.name);
    check_erased(&storage, &was, site.name).await;
    let pending = storage.sessions.maintenance().pending().await.unwrap();
    assert_eq!(
        (done.rewrite_pending, pending.len()),
        (site.name == "sqlite", usize::from(site.name == "sqlite"))
    );
    let again = here.erase_conversation("key").await.unwrap();
    assert_eq!((again.events, again.rewrite_pending), (0, done.rewrite_pending), "{}", site.name);
    assert_eq!(storage.sessions.maintenance().maintain().await.unwrap(), pending, "{}", site.name);
    assert!(!holds(site.folder.path(), SECRET), "{}", site.name);
    assert_eq!(chat.erase().await.unwrap(), Erasure::default(), "{}: nothing is pending", site.name);
}

each_store!(copies_that_may_be_left_are_reported on disk);
