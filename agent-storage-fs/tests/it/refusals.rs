//! Errors of the system, and edits by people, beside sessions: reported as they are, and no edit is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Call, EACCES, EIO, Spy, folder_of, hasty, session, watched};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{BindingQuery, Purge, SessionQuery};
use agent_core::{
    BindingStore, DeviceId, ErrorKind, Seq, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore,
    WriteOutcome,
};
use agent_storage_fs::{FsConfig, FsStore};

const HOME: WorkspaceId = WorkspaceId::DEFAULT;

fn laptop() -> DeviceId {
    "laptop".parse().unwrap()
}

fn home(root: &Path) -> PathBuf {
    root.join("workspaces").join("default")
}

/// Fails the calls of a name on files whose names begin like this.
fn on(name: &'static str, file: &'static str, errno: i32) -> impl Fn(usize, &Call) -> Option<i32> {
    move |_, call| (call.name == name && call.file().starts_with(file)).then_some(errno)
}

// --- bindings --------------------------------------------------------------------------------------------------------

/// A bind that another process wrote and did not make durable is made so before it is acknowledged again;
/// once is enough.
#[tokio::test]
async fn bind_of_another_process_is_synced_first() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let to = effects.new_workspace_id();
    hasty(folder.path()).await.bind(&laptop(), to, Precondition::None).await.unwrap();
    let (store, spy) = watched(folder.path()).await;
    let synced = |calls: Vec<Call>| {
        calls.iter().filter(|call| call.name == "sync_dir" && call.path == folder.path()).count()
    };
    for expected in [1, 0] {
        store.bind(&laptop(), to, Precondition::None).await.unwrap();
        assert_eq!(synced(spy.take()), expected);
    }
}

/// A rebind changes the id and nothing else of its line.
#[tokio::test]
async fn rebind_changes_only_the_id_on_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let [from, to] = [effects.new_workspace_id(), effects.new_workspace_id()];
    store.bind(&laptop(), from, Precondition::None).await.unwrap();
    let path = folder.path().join("bindings.toml");
    let line = format!("laptop = \"{from}\"");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&line), "{text}");
    let text = text.replace(&line, &format!("{line}   # the old one"));
    fs::write(&path, &text).unwrap();
    store.bind(&laptop(), to, Precondition::None).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text.replace(&from.to_string(), &to.to_string()));
}

/// Bindings that are no table are damage, for readers too, and stay as they are.
#[tokio::test]
async fn bindings_without_a_table_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    let store = hasty(folder.path()).await;
    let path = folder.path().join("bindings.toml");
    let text = "bindings = 5\nformat = 1\n# end of bindings\n";
    fs::write(&path, text).unwrap();
    for error in [
        store.resolve(&laptop()).await.unwrap_err(),
        BindingStore::list(&store, BindingQuery::new()).await.unwrap_err(),
        store.bind(&laptop(), HOME, Precondition::None).await.unwrap_err(),
        store.unbind(&laptop()).await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("no table"), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

// --- leases and locks ------------------------------------------------------------------------------------------------

/// A sign of life that cannot be looked for is not said to be missing; and the lock of a lease is given back
/// by name, since a child process may share the open file.
#[tokio::test]
async fn unreadable_lease_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    let id = session(&store, &effects).await.id;
    let commit = Commit::seal(&effects, id, Seq::new(1))
        .with_event(NewEvent::user_message("hello"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("me", effects.new_run_id())));
    let epoch = store.commit(commit).await.unwrap().epoch.unwrap();
    spy.fail(on("open", "lease", EACCES));
    assert_eq!(*store.leases().status(id, epoch).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(*store.leases().heartbeat(id, epoch).await.unwrap_err().kind(), ErrorKind::Denied);
    spy.heal();
    spy.take();
    drop(store);
    let calls = spy.take();
    assert!(calls.iter().any(|call| call.name == "unlock" && call.file().contains("lease")), "{calls:?}");
}

/// A lock that fails is not called a file system without locks, and one that is not there is.
#[tokio::test]
async fn lock_error_differs_from_missing_lock_support() {
    const ENOSYS: i32 = if cfg!(target_os = "linux") { 38 } else { 78 };
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    for (errno, kind, texts) in [
        (EIO, ErrorKind::Unavailable, "try again"),
        (ENOSYS, ErrorKind::Unsupported, "no working file locks"),
    ] {
        let (store, spy) = watched(folder.path()).await;
        spy.fail(on("lock", "", errno));
        let error = store.bind(&laptop(), effects.new_workspace_id(), Precondition::None).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{error}");
        assert!(error.to_string().contains(texts), "{error}");
    }
}

// --- looking ---------------------------------------------------------------------------------------------------------

/// A store whose folder cannot be looked at is not opened as an empty one.
#[tokio::test]
async fn unreadable_store_is_not_opened_as_empty() {
    let folder = tempfile::tempdir().unwrap();
    let spy = Spy::new();
    spy.fail(on("stat", "", EACCES));
    let config = FsConfig::new(folder.path()).with_io(std::sync::Arc::new(spy));
    assert_eq!(*config.open().await.unwrap_err().kind(), ErrorKind::Denied);
}

/// A list names a session without a log as such, and one that cannot be looked at as that; so does a rebuild.
#[tokio::test]
async fn list_reports_the_damage_of_each_session() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let id = session(&hasty(folder.path()).await, &effects).await.id;
    let (store, spy) = watched(folder.path()).await;
    spy.fail(on("stat", "events.jsonl", EIO));
    let reason = async |store: &FsStore| {
        let page = SessionStore::list(store, SessionQuery::new()).await.unwrap();
        assert_eq!((page.items.len(), page.damaged.len()), (0, 1));
        page.damaged[0].reason.clone()
    };
    assert!(reason(&store).await.contains("cannot look at"));
    spy.fail(on("open", "events.jsonl", EACCES));
    let rebuilt = store.maintenance().rebuild().await.unwrap();
    assert_eq!((rebuilt.sessions, rebuilt.damaged.len()), (0, 1));
    assert!(rebuilt.damaged[0].reason.contains("permission denied"), "{rebuilt:?}");
    spy.heal();
    fs::remove_file(folder_of(folder.path(), id).join("events.jsonl")).unwrap();
    assert!(reason(&store).await.contains("is missing"));
}

/// A file where a session's folder should be is named as that.
#[tokio::test]
async fn file_in_place_of_a_session_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    session(&store, &effects).await;
    let id = effects.new_session_id();
    fs::write(folder_of(folder.path(), id), "mine").unwrap();
    let error = SessionStore::load(&store, id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("a file stands where a folder should be"), "{error}");
}

// --- the transcript --------------------------------------------------------------------------------------------------

/// A workspace, its main session with one message, and `session.md` as it was rendered.
async fn rendered(root: &Path, effects: &Effects) -> (Arc<SessionRecord>, String) {
    let store = hasty(root).await;
    let id = effects.new_session_id();
    store.put(Workspace::new(HOME, "home", id, effects.now()), Precondition::MustNotExist).await.unwrap();
    let session = store.sessions(effects).create(NewSession::new(id, HOME)).await.unwrap();
    let events = vec![NewEvent::user_message("hello"), NewEvent::agent_message("hi")];
    let session = store.sessions(effects).append(id, session.head, events).await.unwrap().session;
    store.transcript_edits(HOME).await.unwrap();
    drop(store);
    (session, fs::read_to_string(home(root).join("session.md")).unwrap())
}

fn kept(root: &Path) -> Vec<String> {
    let names = fs::read_dir(home(root)).unwrap().map(|entry| entry.unwrap().file_name());
    let mut kept: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    kept.retain(|name| name.starts_with("session.") && !name.starts_with("session.md"));
    kept.sort();
    kept
}

/// What a person wrote is not rendered over where it could not be looked at, or where no free name for it was
/// found; and what is no file is not opened.
#[tokio::test]
async fn unsaved_edit_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (_, text) = rendered(folder.path(), &effects).await;
    let path = home(folder.path()).join("session.md");
    let edited = text.replace("hello", "good morning");
    fs::write(&path, &edited).unwrap();
    let (store, spy) = watched(folder.path()).await;
    for file in ["session.md", "session.edited-"] {
        spy.fail(on("stat", file, EIO));
        let _ = store.transcript_edits(HOME).await;
        assert!(spy.heal() > 0, "{file}");
        assert_eq!(fs::read_to_string(&path).unwrap(), edited, "{file}");
    }
    assert_eq!(store.transcript_edits(HOME).await.unwrap().len(), 1);
    // The same edit again does not overwrite the first.
    let first = kept(folder.path());
    let stem = first[0].strip_suffix(".md").unwrap();
    for n in 1..3 {
        fs::write(&path, &edited).unwrap();
        store.transcript_edits(HOME).await.unwrap();
        let names: Vec<_> = (1..=n).map(|n| format!("{stem}-{n}.md")).chain([first[0].clone()]).collect();
        assert_eq!(kept(folder.path()), names);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    spy.take();
    let _ = store.transcript_edits(HOME).await;
    assert!(!spy.take().iter().any(|call| call.name == "open" && call.path == path));
}

/// A file that is far too long to be a conversation is kept, and not read as one.
#[tokio::test]
async fn oversized_transcript_is_kept_unread() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (_, text) = rendered(folder.path(), &effects).await;
    let path = home(folder.path()).join("session.md");
    for (length, name) in [(64 << 20, "session.damaged-"), ((64 << 20) + 1, "session.unreadable-")] {
        // Zeros without blocks on the disk.
        fs::File::create(&path).unwrap().set_len(length).unwrap();
        let store = hasty(folder.path()).await;
        store.transcript_edits(HOME).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let names = kept(folder.path());
        assert!(names.len() == 1 && names[0].starts_with(name), "{length}: {names:?}");
        fs::remove_file(home(folder.path()).join(&names[0])).unwrap();
    }
}

/// What was kept and is far too long to be a conversation is passed over; the others are offered.
#[tokio::test]
async fn oversized_saved_edit_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (_, text) = rendered(folder.path(), &effects).await;
    let path = |name: &str| home(folder.path()).join(name);
    fs::File::create(path("session.edited-00000000.md")).unwrap().set_len((64 << 20) + 1).unwrap();
    fs::write(path("session.edited-11111111.md"), &text).unwrap();
    let edits = hasty(folder.path()).await.transcript_edits(HOME).await.unwrap();
    assert_eq!(
        edits.iter().map(|edit| edit.path.clone()).collect::<Vec<_>>(),
        [path("session.edited-11111111.md")]
    );
}

/// Who asks for edits while another is at the file waits for as long as for any lock, and then says what was
/// kept so far: the file itself is not taken for an edit.
#[tokio::test]
async fn edits_are_listed_while_the_file_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (_, text) = rendered(folder.path(), &effects).await;
    fs::write(home(folder.path()).join("session.md"), text.replace("hello", "good morning")).unwrap();
    let wait = Duration::from_millis(150);
    let store = FsConfig::new(folder.path()).with_lock_wait(wait).open().await.unwrap();
    let other = fs::File::options().write(true).open(home(folder.path()).join("session.md.lock")).unwrap();
    other.try_lock().unwrap();
    let before = tokio::time::Instant::now();
    assert_eq!(store.transcript_edits(HOME).await.unwrap(), []);
    assert!((wait..wait * 20).contains(&before.elapsed()), "{:?}", before.elapsed());
    other.unlock().unwrap();
    assert_eq!(store.transcript_edits(HOME).await.unwrap().len(), 1);
}

/// A workspace whose main session was not made yet has no edits; of one that is damaged it is not said.
#[tokio::test]
async fn edits_of_a_damaged_session_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let id = effects.new_session_id();
    store.put(Workspace::new(HOME, "home", id, effects.now()), Precondition::MustNotExist).await.unwrap();
    assert_eq!(store.transcript_edits(HOME).await.unwrap(), []);
    store.sessions(&effects).create(NewSession::new(id, HOME)).await.unwrap();
    drop(store);
    fs::write(folder_of(folder.path(), id).join("events.jsonl"), "rubbish\n").unwrap();
    let store = hasty(folder.path()).await;
    assert_eq!(*store.transcript_edits(HOME).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// What is said later comes into the file by itself, too.
#[tokio::test]
async fn later_messages_are_added_to_the_transcript() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (session, _) = rendered(folder.path(), &effects).await;
    let store = hasty(folder.path()).await;
    WorkspaceStore::load(&store, HOME).await.unwrap();
    let mut head = session.head;
    for n in 0..3 {
        let message = format!("message {n}");
        let event = vec![NewEvent::user_message(message.as_str())];
        head = store.sessions(&effects).append(session.id, head, event).await.unwrap().last;
        let mut tries = 0;
        while !fs::read_to_string(home(folder.path()).join("session.md")).unwrap().contains(&message) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            tries += 1;
            assert!(tries < 1000, "{message} never came");
        }
    }
}

// --- workspaces ------------------------------------------------------------------------------------------------------

/// Who is told that a workspace exists is told so when its name is durable.
#[tokio::test]
async fn workspace_of_another_process_is_synced_first() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let record = || Workspace::new(HOME, "home", effects.new_session_id(), effects.now());
    hasty(folder.path()).await.put(record(), Precondition::MustNotExist).await.unwrap();
    let (store, spy) = watched(folder.path()).await;
    let error = store.put(record(), Precondition::MustNotExist).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    let place = home(folder.path());
    let synced = |spy: &Spy| spy.take().iter().any(|call| call.name == "sync_dir" && call.path == place);
    assert!(synced(&spy));
    // Also where it appears between the look and the lock.
    let path = place.join("workspace.toml");
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let lock = place.clone();
    spy.fail(move |_, call| {
        if call.name == "lock" && call.path == lock {
            fs::write(&path, &text).unwrap();
        }
        None
    });
    let error = store.put(record(), Precondition::MustNotExist).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    assert!(synced(&spy));
}

/// A workspace of which a file could not be removed is deleted, and says that there is more to do; again, it is done.
#[tokio::test]
async fn unfinished_deletion_is_reported_and_resumable() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (store, spy) = watched(folder.path()).await;
    store
        .put(
            Workspace::new(HOME, "home", effects.new_session_id(), effects.now()),
            Precondition::MustNotExist,
        )
        .await
        .unwrap();
    let note = home(folder.path()).join("memory").join("note.md");
    fs::write(&note, "remember").unwrap();
    spy.fail(on("remove_file", "note.md", EACCES));
    let error = store.delete(HOME).await.unwrap_err();
    assert_eq!((error.kind(), error.write_outcome()), (&ErrorKind::Denied, WriteOutcome::Unknown), "{error}");
    assert!(note.exists());
    spy.heal();
    store.delete(HOME).await.unwrap();
    assert!(!note.exists());
}

/// What a person wrote in another form that TOML has for it stays as it is written.
#[tokio::test]
async fn other_toml_syntax_is_preserved() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let store = hasty(folder.path()).await;
    let record =
        Workspace::new(HOME, "home", effects.new_session_id(), "2026-02-15T10:30:00Z".parse().unwrap());
    let record = store.put(record, Precondition::MustNotExist).await.unwrap();
    let path = home(folder.path()).join("workspace.toml");
    let text = fs::read_to_string(&path).unwrap();
    let line = text.lines().find(|line| line.starts_with("created_at")).unwrap();
    let text = text.replace(line, "created_at = 2026-02-15T10:30:00Z # a Sunday");
    assert!(text.contains("name = \"home\""), "{text}");
    fs::write(&path, text.replace("name = \"home\"", "name = 'home'")).unwrap();
    assert_eq!(WorkspaceStore::load(&store, HOME).await.unwrap().created_at, record.created_at);
    store.put(record.with_provider("claude"), Precondition::MustExist).await.unwrap();
    let text = fs::read_to_string(&path).unwrap();
    for line in ["created_at = 2026-02-15T10:30:00Z # a Sunday", "name = 'home'", "provider = \"claude\""] {
        assert!(text.contains(&format!("{line}\n")), "{text}");
    }
}

/// Who is told that a workspace exists does not wait for whoever changes it.
#[tokio::test]
async fn existing_workspace_is_reported_without_a_lock() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let config = FsConfig::new(folder.path()).with_lock_wait(Duration::from_millis(50));
    let store = config.open().await.unwrap();
    let record = || Workspace::new(HOME, "home", effects.new_session_id(), effects.now());
    let there = store.put(record(), Precondition::MustNotExist).await.unwrap();
    let other = fs::File::open(home(folder.path())).unwrap();
    other.try_lock().unwrap();
    let error = store.put(record(), Precondition::MustNotExist).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    let error = store.put(there, Precondition::MustExist).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
}

// --- more of the transcript ------------------------------------------------------------------------------------------

/// A file that is whole but for its last line is damage, and no edit of a person's.
#[tokio::test]
async fn transcript_with_a_bad_last_line_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (_, text) = rendered(folder.path(), &effects).await;
    let path = home(folder.path()).join("session.md");
    let (body, seal) = text.trim_end().rsplit_once('\n').unwrap();
    assert!(seal.starts_with("<!-- rendered "), "{seal}");
    let other = seal.replace(|digit: char| digit.is_ascii_digit(), "7");
    fs::write(&path, format!("{body}\n{other}\n")).unwrap();
    let store = hasty(folder.path()).await;
    assert_eq!(store.transcript_edits(HOME).await.unwrap(), []);
    assert!(kept(folder.path())[0].starts_with("session.damaged-"), "{:?}", kept(folder.path()));
}

/// What was cleared while nobody kept the file is not shown by who finds it.
#[tokio::test]
async fn transcript_from_before_a_clear_is_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (session, text) = rendered(folder.path(), &effects).await;
    let path = home(folder.path()).join("session.md");
    let quiet = FsConfig::new(folder.path()).with_transcripts(false).open().await.unwrap();
    let cleared = quiet.sessions(&effects).clear(session.id).await.unwrap().session;
    let events = vec![NewEvent::user_message("after")];
    quiet.sessions(&effects).append(session.id, cleared.head, events).await.unwrap();
    drop(quiet);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    hasty(folder.path()).await.transcript_edits(HOME).await.unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("after") && !text.contains("hello"), "{text}");
    assert_eq!(kept(folder.path()), [""; 0]);
}

/// A long file is known again by its last line, and goes on.
#[tokio::test]
async fn long_transcript_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (session, _) = rendered(folder.path(), &effects).await;
    let mut head = session.head;
    for n in 0..3 {
        let store = hasty(folder.path()).await;
        WorkspaceStore::load(&store, HOME).await.unwrap();
        let events = vec![NewEvent::user_message(format!("{n}{}", "long ".repeat(40_000)))];
        head = store.sessions(&effects).append(session.id, head, events).await.unwrap().last;
        store.transcript_edits(HOME).await.unwrap();
        assert_eq!(kept(folder.path()), [""; 0], "{n}");
    }
    let length = fs::metadata(home(folder.path()).join("session.md")).unwrap().len();
    assert!(length > 600_000, "{length}");
}

/// A purge removes what was rendered and kept of the session, and nothing of another's or of a person's.
#[tokio::test]
async fn purge_removes_only_its_sessions_transcripts() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let (session, text) = rendered(folder.path(), &effects).await;
    let line = format!("session: {}", session.id);
    assert!(text.contains(&line), "{text}");
    let others = text.replace(&line, &format!("session: {}", effects.new_session_id()));
    let stay = [("session.edited-00000000.md", &others), ("notes.md", &text)];
    for (name, text) in stay.into_iter().chain([("session.edited-11111111.md", &text)]) {
        fs::write(home(folder.path()).join(name), text).unwrap();
    }
    let store = hasty(folder.path()).await;
    let deleted =
        store.sessions(&effects).trigger(session.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    store.purge(Purge::new(session.id, deleted.last)).await.unwrap();
    assert_eq!(kept(folder.path()), ["session.edited-00000000.md"]);
    for (name, text) in stay {
        assert_eq!(fs::read_to_string(home(folder.path()).join(name)).unwrap(), *text);
    }
    assert!(!home(folder.path()).join("session.md").exists());
}
