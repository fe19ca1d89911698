//! Damaged files: reported, kept, never taken for absent; what is readable stays readable; derived data is rebuilt.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{append_text, files, fill, folder_of, framed, hasty, session, texts};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BindingQuery, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{
    BindingStore, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore,
};
use agent_storage_fs::FsStore;

async fn open(root: &Path) -> FsStore {
    FsStore::open(root).await.unwrap()
}

fn log_of(root: &Path, id: SessionId) -> PathBuf {
    folder_of(root, id).join("events.jsonl")
}

async fn all(store: &FsStore, id: SessionId) -> Vec<Event> {
    store.read(id, ReadEvents::first(1000)).await.unwrap().events
}

fn tails(root: &Path, id: SessionId) -> Vec<Vec<u8>> {
    let folder = folder_of(root, id);
    let mut tails: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("events.tail-"))
        .collect();
    tails.sort();
    tails.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A session of one message, and then a commit of three.
async fn small(root: &Path) -> (SessionId, Arc<SessionRecord>, Vec<Event>) {
    let effects = Effects::default();
    let store = hasty(root).await;
    let id = session(&store, &effects).await.id;
    append_text(&store, &effects, id, Seq::new(1), "first").await;
    let before = SessionStore::load(&store, id).await.unwrap();
    let three = (0..3).map(|n| NewEvent::user_message(format!("part {n}"))).collect();
    store.sessions(&effects).append(id, Seq::new(2), three).await.unwrap();
    (id, before, all(&store, id).await)
}

fn line_ends(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|at| bytes[*at] == b'\n').map(|at| at + 1).collect()
}

/// A log cut at any byte of its last commit is the log before that commit, for readers and writers; the
/// bytes are kept, and the session goes on.
#[tokio::test]
async fn torn_last_commit_is_kept_but_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let (id, before, events) = small(root).await;
    let log = log_of(root, id);
    let whole = fs::read(&log).unwrap();
    let start = line_ends(&whole)[1];
    for cut in start..whole.len() {
        fs::write(&log, &whole[..cut]).unwrap();
        // One that knows nothing of the log yet.
        let page = open(root).await.read(id, ReadEvents::last(2)).await.unwrap();
        assert_eq!((page.events.as_slice(), page.damaged.len()), (&events[..2], 0), "cut at {cut}");
        let reader = open(root).await;
        assert_eq!(SessionStore::load(&reader, id).await.unwrap(), before, "cut at {cut}");
        assert_eq!(all(&reader, id).await, events[..2], "cut at {cut}");
        assert_eq!(reader.read(id, ReadEvents::last(2)).await.unwrap().events, events[..2], "cut at {cut}");
        if cut % 7 != 0 && cut != start + 1 {
            continue;
        }
        // A writer moves it aside, and goes on where the last whole commit ends.
        let writer = hasty(root).await;
        append_text(&writer, &effects, id, Seq::new(2), "instead").await;
        assert_eq!(texts(&reader, id).await, ["first", "instead"]);
        let kept = tails(root, id);
        if cut > start {
            assert_eq!(kept.last().unwrap(), &whole[start..cut], "cut at {cut}");
        }
        for tail in fs::read_dir(folder_of(root, id)).unwrap() {
            let tail = tail.unwrap().path();
            if tail.to_string_lossy().contains("events.tail-") {
                fs::remove_file(tail).unwrap();
            }
        }
    }
}

/// A second torn end at the same place does not overwrite the first.
#[tokio::test]
async fn saved_torn_ends_are_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let (id, _, _) = small(root).await;
    let log = log_of(root, id);
    let whole = fs::read(&log).unwrap();
    let start = line_ends(&whole)[1];
    for garbage in ["one", "two\n", "\0\0\0\0"] {
        fs::write(&log, [&whole[..start], garbage.as_bytes()].concat()).unwrap();
        append_text(&hasty(root).await, &effects, id, Seq::new(2), "on").await;
    }
    let mut kept = tails(root, id);
    kept.sort();
    assert_eq!(kept, [b"\0\0\0\0".to_vec(), b"one".to_vec(), b"two\n".to_vec()]);
    for suffix in ["", "-1", "-2"] {
        assert!(folder_of(root, id).join(format!("events.tail-{start}{suffix}")).exists(), "{suffix:?}");
    }
}

/// Blocks of one write may reach the disk in any order: a commit of which any line is bad did not happen,
/// also where its last line is good.
#[tokio::test]
async fn last_commit_with_a_bad_line_is_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (id, before, events) = small(root).await;
    let log = log_of(root, id);
    let whole = fs::read(&log).unwrap();
    let ends = line_ends(&whole);
    for line in 2..5 {
        let mut bytes = whole.clone();
        bytes[ends[line - 1]..ends[line] - 1].fill(0);
        fs::write(&log, &bytes).unwrap();
        // One that knows nothing of the log yet.
        assert_eq!(all(&open(root).await, id).await, events[..2], "line {line}");
        let store = open(root).await;
        assert_eq!(SessionStore::load(&store, id).await.unwrap(), before, "line {line}");
        assert_eq!(all(&store, id).await, events[..2], "line {line}");
        assert_eq!(store.read(id, ReadEvents::last(1)).await.unwrap().events, events[1..2], "line {line}");
    }
}

/// Damage in the middle is named, and everything around it can be read; nothing is written there.
#[tokio::test]
async fn damage_in_the_middle_is_named_and_blocks_writes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let id = session(&store, &effects).await.id;
    let mut seen = Seq::new(1);
    for n in 2..=9 {
        seen = append_text(&store, &effects, id, seen, &format!("message {n}")).await;
    }
    let events = all(&store, id).await;
    drop(store);
    let _ = fs::remove_file(folder_of(root, id).join("session.json"));
    let log = log_of(root, id);
    let whole = fs::read(&log).unwrap();
    let ends = line_ends(&whole);
    // Event 5: a flipped bit at any place of its line, its line break too.
    for at in ends[3]..ends[4] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(&log, &bytes).unwrap();
        let store = open(root).await;
        let error = SessionStore::load(&store, id).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "byte {at}");
        assert!(error.to_string().contains("events.jsonl is damaged at event 5"), "{error}");
        let page = store.read(id, ReadEvents::first(1000)).await.unwrap();
        assert_eq!(page.events, events[..4], "byte {at}");
        assert!(page.damaged[0].reason.contains("event 5"), "{:?}", page.damaged);
        let page = store.read(id, ReadEvents::last(1000)).await.unwrap();
        // Where the line break went, the next line is gone with it.
        let first = if at + 1 == ends[4] { 6 } else { 5 };
        assert_eq!((page.events.as_slice(), page.damaged.len()), (&events[first..], 1), "byte {at}");
        let error = store.read(id, ReadEvents::first(10).with_after(Seq::new(4))).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt);
        let error = store.read(id, ReadEvents::last(10).with_before(Seq::new(6))).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt);
        let page = store.read(id, ReadEvents::first(10).with_after(Seq::new(6))).await.unwrap();
        assert_eq!(page.events, events[6..]);
        let commit = Commit::seal(&effects, id, Seq::new(9)).with_event(NewEvent::user_message("x"));
        assert_eq!(*store.commit(commit).await.unwrap_err().kind(), ErrorKind::Corrupt);
        let listed = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
        assert_eq!((listed.items.len(), listed.damaged.len()), (0, 1));
        assert_eq!(fs::read(&log).unwrap(), bytes, "nothing was written");
    }
}

/// Every kind of rubbish in place of a log is an error with a name, or what could still be read; never a panic,
/// never another text.
#[tokio::test]
async fn damaged_log_never_yields_other_text() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (id, _, events) = small(root).await;
    let log = log_of(root, id);
    let whole = fs::read(&log).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] = bytes[at].wrapping_add(1);
        fs::write(&log, &bytes).unwrap();
        let store = open(root).await;
        match store.read(id, ReadEvents::first(1000)).await {
            Ok(page) => assert_eq!(page.events, events[..page.events.len()], "byte {at}"),
            Err(error) => assert_eq!(*error.kind(), ErrorKind::Corrupt, "byte {at}"),
        }
        if let Err(error) = SessionStore::load(&store, id).await {
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "byte {at}");
        }
    }
    for bytes in [&b""[..], b"\n", b"{}\n", b"\0\0\0\0\0\0\0\0", b"{\"seq\":1,"] {
        fs::write(&log, bytes).unwrap();
        let store = open(root).await;
        assert_eq!(*SessionStore::load(&store, id).await.unwrap_err().kind(), ErrorKind::Corrupt);
        let commit =
            Commit::seal(&Effects::default(), id, Seq::new(1)).with_event(NewEvent::user_message("x"));
        assert_eq!(*store.commit(commit).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(fs::read(&log).unwrap(), bytes);
    }
    fs::remove_file(&log).unwrap();
    let error = SessionStore::load(&open(root).await, id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "a folder without a log is no absent session");
}

/// What is derived can be cut, damaged or deleted: the same record comes of the log.
#[tokio::test]
async fn derived_files_can_be_lost_or_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let id = session(&store, &effects).await.id;
    fill(&store, &effects, id, 300).await;
    append_text(&store, &effects, id, Seq::new(300), "the last").await;
    let record = SessionStore::load(&store, id).await.unwrap();
    let list = SessionStore::list(&store, SessionQuery::new()).await.unwrap();
    drop(store);
    let snapshot = folder_of(root, id).join("session.json");
    let whole = fs::read(&snapshot).unwrap();
    assert!(whole.starts_with(b"{\"format\":6,\"offset\":"));
    let mut damaged: Vec<Vec<u8>> = (0..whole.len()).step_by(97).map(|cut| whole[..cut].to_vec()).collect();
    for at in (0..whole.len()).step_by(53) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        damaged.push(bytes);
    }
    for bytes in damaged {
        fs::write(&snapshot, &bytes).unwrap();
        assert_eq!(SessionStore::load(&open(root).await, id).await.unwrap(), record);
    }
    fs::remove_file(&snapshot).unwrap();
    fs::remove_dir_all(root.join("index")).unwrap();
    let store = open(root).await;
    assert_eq!(SessionStore::load(&store, id).await.unwrap(), record);
    assert_eq!(SessionStore::list(&store, SessionQuery::new()).await.unwrap(), list);
    assert!(!root.join("index").exists(), "reading writes nothing");
    // A pointer to the wrong place is as good as none, and is mended by the next commit.
    let digits = format!("{:02x}", id.as_uuid().as_bytes()[15]);
    let pointer = root.join("index").join("sessions").join(digits).join(id.to_string());
    fs::create_dir_all(pointer.parent().unwrap()).unwrap();
    for text in ["", "default/..", "00000000-0000-0000-0000-000000000001\n"] {
        fs::write(&pointer, text).unwrap();
        let store = open(root).await;
        append_text(&store, &effects, id, Seq::new(301), "found").await;
        assert_eq!(fs::read_to_string(&pointer).unwrap(), "default\n");
    }
}

/// A snapshot of a log that was since replaced by another is not believed.
#[tokio::test]
async fn snapshot_of_another_log_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let id = session(&store, &effects).await.id;
    let early = fs::read(log_of(root, id)).unwrap();
    fill(&store, &effects, id, 300).await;
    drop(store);
    assert!(folder_of(root, id).join("session.json").exists());
    // From a backup, and then on another way.
    fs::write(log_of(root, id), &early).unwrap();
    let store = open(root).await;
    assert_eq!(SessionStore::load(&store, id).await.unwrap().head, Seq::new(1));
    append_text(&store, &effects, id, Seq::new(1), "another way").await;
    drop(store);
    assert_eq!(texts(&open(root).await, id).await, ["another way"]);

    // Also where the other log is as long and ends its lines at the same places.
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let id = effects.new_session_id();
    for folder in &folders {
        let store = hasty(folder.path()).await;
        let new = NewSession::new(id, WorkspaceId::DEFAULT);
        store.sessions(&effects).create(new).await.unwrap();
        fill(&store, &effects, id, 300).await;
    }
    let [mine, other] = [0, 1].map(|n| folder_of(folders[n].path(), id));
    fs::copy(other.join("events.jsonl"), mine.join("events.jsonl")).unwrap();
    assert_eq!(fs::metadata(mine.join("events.jsonl")).unwrap().len(), offset_of(&mine));
    let foreign = SessionStore::load(&open(folders[1].path()).await, id).await.unwrap();
    let record = SessionStore::load(&open(folders[0].path()).await, id).await.unwrap();
    assert_eq!((&record.recent, record.created_at), (&foreign.recent, foreign.created_at));
}

/// How much of the log the snapshot in a folder covers.
fn offset_of(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("session.json")).unwrap();
    let text = text.strip_prefix("{\"format\":6,\"offset\":").unwrap();
    text.split_once(',').unwrap().0.parse().unwrap()
}

/// A purged session is its tombstone; a damaged tombstone is damage, and a newer one is not guessed at.
#[tokio::test]
async fn purged_session_is_read_from_its_tombstone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let id = session(&store, &effects).await.id;
    fill(&store, &effects, id, 300).await;
    let deleted =
        store.sessions(&effects).trigger(id, Trigger::Delete(Reason::UserDeleted)).await.unwrap().session;
    // Keeps a part that ends inside a commit.
    let purge = Purge::new(id, deleted.head).with_keep_through(Seq::new(20));
    assert_eq!(store.purge(purge.clone()).await.unwrap().events, 281);
    assert_eq!(store.purge(purge).await.unwrap().events, 0);
    for store in [store, open(root).await] {
        let record = SessionStore::load(&store, id).await.unwrap();
        assert_eq!(*record, deleted.tombstone());
        assert_eq!(record.status.state, SessionState::Deleted);
        let page = store.read(id, ReadEvents::first(1000)).await.unwrap();
        assert_eq!((page.events.len(), page.damaged.len()), (20, 0));
        let page = store.read(id, ReadEvents::last(5)).await.unwrap();
        assert_eq!(page.events[4].seq, Seq::new(20));
    }
    let store = open(root).await;
    assert_eq!(store.purge(Purge::new(id, deleted.head)).await.unwrap().events, 20);
    assert_eq!(fs::read(log_of(root, id)).unwrap(), b"");
    let names: Vec<_> = fs::read_dir(folder_of(root, id)).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(*SessionStore::load(&open(root).await, id).await.unwrap(), deleted.tombstone());

    let tombstone = folder_of(root, id).join("tombstone.json");
    let whole = fs::read_to_string(&tombstone).unwrap();
    fs::write(&tombstone, &whole[..whole.len() / 2]).unwrap();
    let error = SessionStore::load(&open(root).await, id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("tombstone.json"), "{error}");
    let newer = format!("{{\"format\":7{}}}", &whole["{\"format\":6".len()..whole.len() - 19]);
    fs::write(&tombstone, framed(id, &newer)).unwrap();
    let error = SessionStore::load(&open(root).await, id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
}

/// `bindings.toml` cut short at any byte is damage; a copy is kept, and no bind erases anything.
#[tokio::test]
async fn truncated_bindings_are_damage_and_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    for n in 0..3 {
        let device = format!("device {n}").parse().unwrap();
        store.bind(&device, effects.new_workspace_id(), Precondition::MustNotExist).await.unwrap();
    }
    let path = root.join("bindings.toml");
    // A comment of a person's, before all that is ours, is no sign of a whole file.
    let whole = [b"# devices\n", &*fs::read(&path).unwrap()].concat();
    let new = "new".parse().unwrap();
    for cut in 0..whole.len() - 1 {
        fs::write(&path, &whole[..cut]).unwrap();
        for store in [&store, &hasty(root).await] {
            let error = store.resolve(&new).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "cut at {cut}: {error}");
            assert!(error.to_string().contains("bindings.toml"), "{error}");
            let error = store.bind(&new, WorkspaceId::DEFAULT, Precondition::MustNotExist).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "cut at {cut}");
            assert_eq!(*store.unbind(&new).await.unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(
                *store.unbind_workspace(WorkspaceId::DEFAULT).await.unwrap_err().kind(),
                ErrorKind::Corrupt
            );
        }
        assert_eq!(fs::read(&path).unwrap(), &whole[..cut], "not erased");
        let copies: Vec<_> = files(root)
            .into_iter()
            .filter(|(path, _)| path.to_string_lossy().contains("bindings.toml.damaged-"))
            .collect();
        assert_eq!(copies.len(), 1, "one copy, however often it is met");
        assert_eq!(copies[0].1, &whole[..cut]);
        fs::remove_file(root.join(&copies[0].0)).unwrap();
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(BindingStore::list(&store, BindingQuery::new()).await.unwrap().items.len(), 3);
    store.bind(&new, WorkspaceId::DEFAULT, Precondition::MustNotExist).await.unwrap();
}

/// What people wrote into the bindings stays; one entry that cannot be read harms no other, and is not the
/// same as none.
#[tokio::test]
async fn one_bad_binding_affects_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let text = "# mine\n[bindings]\n\"b\" = \"default\" # home\n\"a\" = \"no id\"\n\"c\\n\" = \"default\"\n\n[other]\nx = 1\n";
    fs::write(root.join("bindings.toml"), text).unwrap();
    let store = hasty(root).await;
    let [a, b, d] = ["a", "b", "d"].map(|device| device.parse().unwrap());
    assert_eq!(store.resolve(&b).await.unwrap(), Some(WorkspaceId::DEFAULT));
    assert_eq!(store.resolve(&d).await.unwrap(), None);
    assert_eq!(*store.resolve(&a).await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(
        *store.bind(&a, WorkspaceId::DEFAULT, Precondition::None).await.unwrap_err().kind(),
        ErrorKind::Corrupt
    );
    store.bind(&b, WorkspaceId::DEFAULT, Precondition::MustNotExist).await.unwrap();
    assert_eq!(fs::read_to_string(root.join("bindings.toml")).unwrap(), text, "nothing to write");
    let page = BindingStore::list(&store, BindingQuery::new()).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (1, 2));
    store.bind(&d, WorkspaceId::DEFAULT, Precondition::MustNotExist).await.unwrap();
    let now = fs::read_to_string(root.join("bindings.toml")).unwrap();
    for line in text.lines() {
        assert!(now.contains(line), "{line:?} is gone from\n{now}");
    }
    assert!(store.unbind(&d).await.unwrap());
    for (format, kind) in [(2, ErrorKind::Unsupported), (0, ErrorKind::Corrupt), (-1, ErrorKind::Corrupt)] {
        let other = now.replace("format = 1", &format!("format = {format}"));
        fs::write(root.join("bindings.toml"), &other).unwrap();
        let error = store.bind(&d, WorkspaceId::DEFAULT, Precondition::None).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{format}: {error}");
        assert_eq!(fs::read_to_string(root.join("bindings.toml")).unwrap(), other);
    }
}

/// A workspace's record that cannot be read, or is newer, is listed as damaged and left alone.
#[tokio::test]
async fn damaged_workspace_is_listed_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let id = effects.new_workspace_id();
    let good = Workspace::new(WorkspaceId::DEFAULT, "good", effects.new_session_id(), effects.now());
    let good = store.put(good, Precondition::MustNotExist).await.unwrap();
    let record = Workspace::new(id, "bad", effects.new_session_id(), effects.now());
    let record = store.put(record, Precondition::MustNotExist).await.unwrap();
    let path = root.join("workspaces").join(id.to_string()).join("workspace.toml");
    let whole = fs::read_to_string(&path).unwrap();
    let newer = whole.replace("format = 2", "format = 3");
    let older = whole.replace("format = 2", "format = 1");
    let none = whole.replace("format = 2", "format = 0");
    let foreign = whole.replace(&id.to_string(), "00000000-0000-0000-0000-000000000001");
    for (text, kind) in [
        (&whole[..whole.len() / 2], ErrorKind::Corrupt),
        ("", ErrorKind::Corrupt),
        ("name = 3", ErrorKind::Corrupt),
        (newer.as_str(), ErrorKind::Unsupported),
        (older.as_str(), ErrorKind::Unsupported),
        (none.as_str(), ErrorKind::Corrupt),
        (foreign.as_str(), ErrorKind::Corrupt),
    ] {
        fs::write(&path, text).unwrap();
        for error in [
            WorkspaceStore::load(&store, id).await.unwrap_err(),
            store.put(record.clone(), Precondition::MustNotExist).await.unwrap_err(),
            store.put(record.clone(), Precondition::MustExist).await.unwrap_err(),
            store.touch(id, effects.now()).await.unwrap_err(),
            store.save_config(id, None, Precondition::MustExist).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), kind, "{error}");
            assert!(error.to_string().contains("workspace.toml"), "{error}");
        }
        let page = WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap();
        assert_eq!(page.items, std::slice::from_ref(&good));
        assert!(page.damaged[0].object.contains(&id.to_string()));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    store.delete(id).await.unwrap();
    assert_eq!(*WorkspaceStore::load(&store, id).await.unwrap_err().kind(), ErrorKind::Deleted);
}

/// A log that somebody made up, its checksums right, its numbers as large as can be, is read or refused; so is a
/// request of any numbers.
#[tokio::test]
async fn extreme_numbers_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let (id, _, events) = small(root).await;
    let store = open(root).await;
    for number in [0, 1, 5, 6, u64::MAX - 1, u64::MAX] {
        let seq = Seq::new(number);
        for read in [ReadEvents::first(10), ReadEvents::last(10)] {
            let page = store.read(id, read.clone().with_after(seq)).await.unwrap();
            assert!(page.events.iter().all(|event| event.seq > seq));
            let page = store.read(id, read.clone().with_before(seq)).await.unwrap();
            assert!(page.events.iter().all(|event| event.seq < seq));
            store.read(id, read.with_after(seq).with_before(seq).with_max_bytes(0)).await.unwrap();
        }
    }
    let log = log_of(root, id);
    let whole = fs::read_to_string(&log).unwrap();
    let top = u64::MAX.to_string();
    for (from, to) in [
        ("\"seq\":2,", format!("\"seq\":{top},")),
        ("\"seq\":1,", format!("\"seq\":{top},")),
        ("\"n\":1,\"of\":1,", "\"n\":4294967295,\"of\":4294967295,".into()),
        ("\"n\":3,\"of\":3,", "\"n\":4294967295,\"of\":4294967295,".into()),
        ("\"n\":1,\"of\":1,", "\"n\":0,\"of\":0,".into()),
        ("\"data\":{\"text\"", "\"seq\":7,\"data\":{\"text\"".into()),
    ] {
        let mut made_up = String::new();
        for line in whole.lines() {
            let body = line[..line.len() - 18].replace(from, &to);
            made_up += &framed(id, &format!("{body}}}"));
        }
        assert_ne!(made_up, whole);
        fs::write(&log, &made_up).unwrap();
        let _ = fs::remove_file(folder_of(root, id).join("session.json"));
        let store = open(root).await;
        for error in [
            SessionStore::load(&store, id).await.err(),
            store.read(id, ReadEvents::first(10)).await.err(),
            store.read(id, ReadEvents::last(10)).await.err(),
            store.read(id, ReadEvents::first(10).with_after(Seq::new(u64::MAX - 1))).await.err(),
            store.read(id, ReadEvents::last(10).with_before(Seq::new(u64::MAX))).await.err(),
        ] {
            assert!(error.is_none_or(|error| *error.kind() == ErrorKind::Corrupt), "{from} -> {to}");
        }
    }
    fs::write(&log, &whole).unwrap();
    assert_eq!(all(&open(root).await, id).await, events);
}

/// While ends are torn and cut off again, no reader fails, and none sees more or less than whole commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_never_fail_during_torn_end_repair() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let (id, _, _) = small(&root).await;
    let reader = open(&root).await;
    let writing = tokio::spawn(async move {
        let effects = Effects::default();
        for round in 0..60 {
            let log = log_of(&root, id);
            let rubbish = "x".repeat(50 + round * 331);
            let mut log = fs::OpenOptions::new().append(true).open(log).unwrap();
            log.write_all(rubbish.as_bytes()).unwrap();
            // A store that knows nothing of it finds it.
            append_text(&hasty(&root).await, &effects, id, Seq::new(5), &format!("round {round}")).await;
        }
    });
    let mut reads = 0;
    while !writing.is_finished() {
        let page = reader.read(id, ReadEvents::last(20)).await.unwrap();
        assert_eq!(page.damaged, []);
        SessionStore::load(&reader, id).await.unwrap();
        for pair in page.events.windows(2) {
            assert_eq!(pair[1].seq, pair[0].seq.next());
        }
        reads += 1;
    }
    writing.await.unwrap();
    assert!(reads > 10);
    assert_eq!(texts(&reader, id).await.len(), 64);
}

/// Rebuilding makes anew what is derived from each log that can be read, says of how many, and leaves the others.
#[tokio::test]
async fn rebuild_skips_damaged_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects::default();
    let ids = {
        let store = hasty(folder.path()).await;
        assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 0);
        let mut ids = Vec::new();
        for _ in 0..3 {
            let id = session(&store, &effects).await.id;
            append_text(&store, &effects, id, Seq::new(1), "first").await;
            ids.push(id);
        }
        ids
    };
    let store = open(folder.path()).await;
    assert_eq!(store.maintenance().rebuild().await.unwrap().sessions, 3);
    let log = log_of(folder.path(), ids[1]);
    let whole = fs::read(&log).unwrap();
    fs::write(&log, [b"x", &whole[1..]].concat()).unwrap();
    let rebuilt = open(folder.path()).await.maintenance().rebuild().await.unwrap();
    assert_eq!((rebuilt.sessions, rebuilt.damaged.len()), (2, 1));
    assert!(rebuilt.damaged[0].object.contains(&ids[1].to_string()), "{:?}", rebuilt.damaged);
    assert_eq!(fs::read(&log).unwrap()[1..], whole[1..], "what is damaged stays as it is");
    for id in [ids[0], ids[2]] {
        assert_eq!(SessionStore::load(&store, id).await.unwrap().head, Seq::new(2));
    }
}
