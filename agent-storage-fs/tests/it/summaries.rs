//! The file of summaries: what it saves the first list of a process. It makes no list wrong, and keeps nothing that was purged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{EIO, Spy, append_text, files, folder_of, framed, session};
use agent_core::clock::{Clock, Effects};
use agent_core::commit::{Commit, Trigger};
use agent_core::model::{Patch, Title};
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{Purge, SessionQuery};
use agent_core::{Backend, SessionId, SessionStore, SessionStoreExt, TenantId, Timestamp, WorkspaceId};
use agent_storage_fs::{FsConfig, FsStore, Sync};
use tokio::time::timeout;

const COUNT: usize = 100;
/// Logs that a process reads before it looks into the file.
const READ_BEFORE: usize = 32;
/// The session with words that are purged: none that is read before the file.
const WORDY: usize = 77;
const WORD: &str = "my password";
const DEADLINE: Duration = Duration::from_secs(120);

/// A clock of an hour later, for which all files were last changed long ago.
#[derive(Debug)]
struct Later;

impl Clock for Later {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(Effects::default().now().as_micros() + 3_600_000_000)
    }
}

fn config(root: &Path) -> FsConfig {
    let effects = Effects::default().with_clock(Arc::new(Later));
    FsConfig::new(root).with_sync(Sync::Off).with_effects(effects)
}

async fn open(root: &Path) -> FsStore {
    config(root).open().await.unwrap()
}

async fn watched(root: &Path) -> (FsStore, Spy) {
    let spy = Spy::new();
    (config(root).with_io(Arc::new(spy.clone())).open().await.unwrap(), spy)
}

fn path(root: &Path) -> PathBuf {
    root.join("index/summaries")
}

async fn listed(store: &FsStore, query: SessionQuery) -> Vec<SessionSummary> {
    let page = timeout(DEADLINE, SessionStore::list(store, query.with_limit(1_000))).await.unwrap().unwrap();
    assert_eq!(page.damaged, []);
    page.items
}

/// The summaries of all sessions from their records, in the order of lists.
async fn truth(root: &Path, ids: &[SessionId]) -> Vec<SessionSummary> {
    let store = open(root).await;
    let mut all = Vec::new();
    for id in ids {
        all.push(SessionSummary::from(&*SessionStore::load(&store, *id).await.unwrap()));
    }
    all.sort_by_key(|it| std::cmp::Reverse((it.last_active_at, it.id)));
    all
}

/// A store with sessions, a title in one of them, and the file.
async fn filled(root: &Path, effects: &Effects) -> Vec<SessionId> {
    let store = open(root).await;
    let mut ids = Vec::new();
    for n in 0..COUNT {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let words = if n == WORDY { WORD } else { "other words" };
        let new =
            new.with_patch(&Patch::new().with_title(Title::by_user(words)).with_label("n", format!("{n}")));
        let made = store.sessions(effects).create(new).await.unwrap();
        append_text(&store, effects, made.id, made.head, "hello").await;
        ids.push(made.id);
    }
    keep(&store).await;
    ids
}

/// Lists all, and closes the store. It has changed something, so that it writes the file.
async fn keep(store: &FsStore) {
    listed(store, SessionQuery::new().with_hidden()).await;
    store.close().await.unwrap();
}

/// The number of logs that are opened by the first list of a process, which is the one expected.
async fn first_list(root: &Path, expected: &[SessionSummary]) -> usize {
    let (store, spy) = watched(root).await;
    assert_eq!(listed(&store, SessionQuery::new().with_hidden()).await, expected);
    spy.take().iter().filter(|call| call.name == "open" && call.file() == "events.jsonl").count()
}

fn has_word(bytes: &[u8]) -> bool {
    bytes.windows(WORD.len()).any(|part| part == WORD.as_bytes())
}

fn with_word(root: &Path) -> Vec<PathBuf> {
    files(root).into_iter().filter(|(_, bytes)| has_word(bytes)).map(|(path, _)| path).collect()
}

async fn delete(store: &FsStore, effects: &Effects, id: SessionId) -> Arc<SessionRecord> {
    let head = SessionStore::load(store, id).await.unwrap().head;
    let delete = Commit::seal(effects, id, head).with_trigger(Trigger::Delete(Reason::UserDeleted));
    store.commit(delete).await.unwrap().session
}

async fn purge(store: &FsStore, effects: &Effects, id: SessionId) {
    let head = delete(store, effects, id).await.head;
    store.purge(Purge::new(id, head)).await.unwrap();
}

/// The first list of a process reads a few logs and those that changed since the file was written; all fields, labels, totals and
/// filters are as they are without it.
#[tokio::test]
async fn first_list_reads_only_what_changed() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let ids = filled(root, &effects).await;
    assert_eq!(first_list(root, &truth(root, &ids).await).await, READ_BEFORE);
    let writer = open(root).await;
    append_text(&writer, &effects, ids[90], agent_core::Seq::new(2), "more").await;
    let expected = truth(root, &ids).await;
    assert_eq!(first_list(root, &expected).await, READ_BEFORE + 1);
    fs::remove_file(path(root)).unwrap();
    assert_eq!(first_list(root, &expected).await, COUNT);
    keep(&writer).await;
    assert_eq!(first_list(root, &expected).await, READ_BEFORE);
    let store = open(root).await;
    let page = store.list(SessionQuery::new().with_label("n", "93").with_total()).await.unwrap();
    assert_eq!((page.items[0].id, page.total), (ids[93], Some(1)));
    assert_eq!(store.list(SessionQuery::new().with_total()).await.unwrap().total, Some(COUNT as u64));
}

/// A process that lists and changes nothing writes nothing, also when it is closed; one that changes a session writes the file a
/// while later, without being closed.
#[tokio::test]
async fn only_a_process_that_writes_keeps_summaries() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let ids = filled(root, &effects).await;
    fs::remove_file(path(root)).unwrap();
    let (reader, spy) = watched(root).await;
    listed(&reader, SessionQuery::new()).await;
    reader.close().await.unwrap();
    assert_eq!(spy.take().into_iter().filter(crate::support::Call::writes).collect::<Vec<_>>(), []);
    let writer = open(root).await;
    listed(&writer, SessionQuery::new()).await;
    append_text(&writer, &effects, ids[90], agent_core::Seq::new(2), "more").await;
    let written = async {
        while !path(root).exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, written).await.unwrap();
    assert_eq!(first_list(root, &truth(root, &ids).await).await, READ_BEFORE);
}

/// A clock that stands still, before everything that is written.
#[derive(Debug)]
struct Earlier(Timestamp);

impl Clock for Earlier {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// What was read so soon after its last change that a later one could have the same times is not written.
#[tokio::test]
async fn summaries_read_soon_after_a_change_are_not_kept() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let start = effects.now();
    let ids = filled(root, &effects).await;
    let expected = truth(root, &ids).await;
    fs::remove_file(path(root)).unwrap();
    let soon = [start, Timestamp::from_micros(effects.now().as_micros() + 1_000_000)];
    for now in soon {
        let at = Effects::default().with_clock(Arc::new(Earlier(now)));
        let store = config(root).with_effects(at).open().await.unwrap();
        listed(&store, SessionQuery::new()).await;
        purge(&store, &effects, session(&store, &effects).await.id).await;
        keep(&store).await;
        assert_eq!(fs::read(path(root)).unwrap(), b"", "{now}");
        let (reader, spy) = watched(root).await;
        let all = listed(&reader, SessionQuery::new()).await;
        assert_eq!(all, expected);
        assert!(
            spy.take().iter().filter(|call| call.file() == "events.jsonl" && call.name == "open").count()
                > COUNT
        );
    }
}

/// A log that was replaced or written by another program is read, also if its length and the time of its last write are those of
/// the file of summaries.
#[tokio::test]
async fn summaries_of_another_state_of_a_log_are_not_believed() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let ids = filled(root, &effects).await;
    let id = ids[90];
    let log = folder_of(root, id).join("events.jsonl");
    let (hello, at) = (fs::read(&log).unwrap(), fs::metadata(&log).unwrap().modified().unwrap());
    // Another history of the same length.
    let created = hello.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let copy = tempfile::tempdir().unwrap();
    let other = folder_of(copy.path(), id);
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("events.jsonl"), &hello[..created]).unwrap();
    append_text(&open(copy.path()).await, &effects, id, agent_core::Seq::new(1), "howdy").await;
    let howdy = fs::read(other.join("events.jsonl")).unwrap();
    assert_eq!(howdy.len(), hello.len());
    let set_back =
        |path: &Path| fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    let replace = |bytes: &[u8]| {
        let temp = root.join("new");
        fs::write(&temp, bytes).unwrap();
        set_back(&temp);
        fs::rename(&temp, &log).unwrap();
    };
    for round in 0..4 {
        match round {
            0 => {
                fs::write(&log, &howdy).unwrap();
                set_back(&log);
            }
            1 => replace(&howdy),
            2 => {
                fs::write(&log, &hello[..created]).unwrap();
                set_back(&log);
            }
            _ => {
                fs::write(&log, [&howdy[..], b"{\"seq\":3,"].concat()).unwrap();
                set_back(&log);
            }
        }
        let expected = truth(root, &ids).await;
        let shown = expected.iter().find(|it| it.id == id).unwrap();
        assert_eq!(shown.preview.as_deref(), if round == 2 { None } else { Some("howdy") });
        assert_eq!(first_list(root, &expected).await, READ_BEFORE + 1, "round {round}");
        replace(&hello);
        keep_anew(root, &effects).await;
    }
}

/// Writes the file as of now.
async fn keep_anew(root: &Path, effects: &Effects) {
    let _ = fs::remove_file(path(root));
    let store = open(root).await;
    let made = session(&store, effects).await;
    purge(&store, effects, made.id).await;
    fs::remove_dir_all(folder_of(root, made.id)).unwrap();
    let pointer = files(&root.join("index/sessions")).into_iter().map(|(path, _)| path);
    let own = pointer.filter(|path| path.ends_with(made.id.to_string()));
    own.for_each(|path| fs::remove_file(root.join("index/sessions").join(path)).unwrap());
    keep(&store).await;
}

/// The file with something replaced in each line, with right checksums.
fn forged(bytes: &[u8], from: &str, to: &str) -> String {
    let text = std::str::from_utf8(bytes).unwrap();
    let lines = text.lines().map(|line| {
        let id: SessionId = line.split("\"summary\":{\"id\":\"").nth(1).unwrap()[..36].parse().unwrap();
        let json = format!("{}}}", line.split(",\"crc\"").next().unwrap());
        framed(id, &json.replace(from, to))
    });
    lines.collect()
}

type Put = fn(&Path, &[u8]);

/// Whatever is in the place of the file, each list is right, ends, and reads no more than the file may have; and a process that
/// writes goes on.
#[tokio::test]
async fn odd_summaries_change_no_list() {
    let puts: [(&str, Put); 17] = [
        ("nothing", |_, _| {}),
        ("empty", |path, _| fs::write(path, "").unwrap()),
        ("cut", |path, bytes| fs::write(path, &bytes[..bytes.len() / 2]).unwrap()),
        ("cut within a line", |path, bytes| fs::write(path, &bytes[..bytes.len() - 30]).unwrap()),
        ("zeros", |path, bytes| fs::write(path, vec![0; bytes.len()]).unwrap()),
        ("no lines", |path, _| fs::write(path, "{}\n[]\nnull\n\n{\"format\":6}\n").unwrap()),
        ("flipped", |path, bytes| {
            let flipped: Vec<_> =
                bytes.iter().enumerate().map(|(n, b)| if n % 900 == 400 { b ^ 1 } else { *b }).collect();
            fs::write(path, flipped).unwrap();
        }),
        ("twice", |path, bytes| fs::write(path, [bytes, bytes].concat()).unwrap()),
        ("other words", |path, bytes| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            fs::write(path, text.replace("other words", "OTHER WORDS")).unwrap();
        }),
        ("of another tenant", |path, bytes| {
            let other = "acme".parse::<TenantId>().unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap().replace("other words", "OTHER WORDS");
            let lines = text.lines().map(|line| {
                let id = line.split("\"summary\":{\"id\":\"").nth(1).unwrap()[..36].to_owned();
                let json = format!("{}}}", line.split(",\"crc\"").next().unwrap());
                crate::support::framed_for(&format!("{other}/{id}/6"), &json)
            });
            fs::write(path, lines.collect::<String>()).unwrap();
        }),
        ("no summary, with the right checksum", |path, bytes| {
            fs::write(path, forged(bytes, "\"head\":2", "\"head\":\"x\"")).unwrap();
        }),
        ("folder", |path, _| fs::create_dir(path).unwrap()),
        ("link", |path, bytes| {
            let away = path.with_file_name("away");
            fs::write(&away, bytes).unwrap();
            std::os::unix::fs::symlink(&away, path).unwrap();
        }),
        ("link to itself", |path, _| std::os::unix::fs::symlink(path, path).unwrap()),
        ("pipe", |path, _| {
            assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("20 GB", |path, bytes| {
            fs::write(path, bytes).unwrap();
            fs::File::options().write(true).open(path).unwrap().set_len(20 << 30).unwrap();
        }),
        ("long line", |path, bytes| {
            fs::write(path, [&b" ".repeat(10 << 20), bytes].concat()).unwrap();
        }),
    ];
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let ids = filled(root, &effects).await;
    let sound = fs::read(path(root)).unwrap();
    for (what, put) in puts {
        let place = path(root);
        if fs::symlink_metadata(&place).is_ok_and(|it| it.is_dir()) {
            fs::remove_dir(&place).unwrap();
        } else {
            let _ = fs::remove_file(&place);
        }
        put(&place, &sound);
        let expected = truth(root, &ids).await;
        let (store, spy) = watched(root).await;
        assert_eq!(listed(&store, SessionQuery::new().with_hidden()).await, expected, "{what}");
        let read: usize =
            spy.take().iter().filter(|call| call.file() == "summaries").map(|call| call.bytes).sum();
        assert!(read <= 64 << 20, "{what}: {read}");
        append_text(&store, &effects, ids[3], expected.iter().find(|it| it.id == ids[3]).unwrap().head, "x")
            .await;
        timeout(DEADLINE, keep(&store)).await.unwrap();
        first_list(root, &truth(root, &ids).await).await;
    }
}

/// A line with the right checksum and metadata is believed, as `session.json` is; a rebuild believes none, and writes the file
/// anew.
#[tokio::test]
async fn rebuild_makes_summaries_anew() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let ids = filled(root, &effects).await;
    let sound = fs::read(path(root)).unwrap();
    fs::write(path(root), forged(&sound, "other words", "forged words")).unwrap();
    let store = open(root).await;
    store.maintenance().rebuild().await.unwrap();
    let expected = truth(root, &ids).await;
    assert_eq!(listed(&store, SessionQuery::new()).await, expected);
    assert_eq!(first_list(root, &expected).await, READ_BEFORE);
}

/// A purge, a deletion of a damaged session and that of the tenant leave nothing in the file of what was said, and nothing in what
/// a killed writer has left of it; no process that has listed the session before brings it back.
#[tokio::test]
async fn purged_words_leave_the_summaries() {
    for how in 0..3 {
        let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
        let root = folder.path();
        let ids = filled(root, &effects).await;
        fs::copy(path(root), root.join("index/.summaries.new-0123456789abcdef")).unwrap();
        assert!(has_word(&fs::read(path(root)).unwrap()));
        let (one, two) = (open(root).await, open(root).await);
        // One that has the file in memory, for a workspace that it does not list.
        let three = open(root).await;
        let elsewhere = effects.new_workspace_id();
        for n in 0..COUNT {
            let new = NewSession::new(effects.new_session_id(), elsewhere);
            let made = three.sessions(&effects).create(new).await.unwrap();
            assert!(n > 0 || made.workspace == elsewhere);
        }
        listed(&two, SessionQuery::new()).await;
        listed(&three, SessionQuery::new().with_workspace(elsewhere)).await;
        match how {
            0 => purge(&one, &effects, ids[WORDY]).await,
            1 => {
                let log = folder_of(root, ids[WORDY]).join("events.jsonl");
                fs::write(&log, "").unwrap();
                let at = effects.now();
                one.maintenance().delete_damaged(ids[WORDY], at, Reason::UserDeleted).await.unwrap();
            }
            _ => drop(one.delete_tenant(&TenantId::default()).await.unwrap()),
        }
        assert_eq!(with_word(root), Vec::<PathBuf>::new(), "{how}");
        for store in [&two, &three] {
            let made = session(store, &effects).await;
            append_text(store, &effects, made.id, made.head, "hello").await;
            store.close().await.unwrap();
            assert_eq!(with_word(root), Vec::<PathBuf>::new(), "{how}");
        }
        drop(one);
        assert_eq!(with_word(root), Vec::<PathBuf>::new(), "{how}");
    }
}

/// Holds a store at the renaming of a file, until this is dropped.
struct Hold {
    is_reached: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Hold {
    fn at(spy: &Spy, file: &'static str) -> Self {
        let hold = Self { is_reached: Arc::default(), is_over: Arc::default() };
        let (is_reached, is_over) = (hold.is_reached.clone(), hold.is_over.clone());
        spy.fail(move |_, call| {
            if call.name == "rename" && call.file() == file {
                is_reached.store(true, Ordering::SeqCst);
                while !is_over.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            }
            None
        });
        hold
    }

    async fn reached(&self) {
        let waiting = async {
            while !self.is_reached.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, waiting).await.unwrap();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// A process that writes the file while a session is purged leaves that session out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_being_purged_are_left_out() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let ids = filled(root, &effects).await;
    let (two, (one, spy)) = (open(root).await, watched(root).await);
    listed(&two, SessionQuery::new()).await;
    let id = ids[WORDY];
    let head = delete(&one, &effects, id).await.head;
    let hold = Hold::at(&spy, "tombstone.json");
    let purging = tokio::spawn(async move { one.purge(Purge::new(id, head)).await });
    hold.reached().await;
    session(&two, &effects).await;
    keep(&two).await;
    let written = fs::read(path(root)).unwrap();
    drop(hold);
    assert!(!written.is_empty() && !has_word(&written));
    timeout(DEADLINE, purging).await.unwrap().unwrap().unwrap();
    assert_eq!(with_word(root), Vec::<PathBuf>::new());
}

/// A purge waits for a process that is writing the file, and removes what that has written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_waits_for_a_writer_of_summaries() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let ids = filled(root, &effects).await;
    let (one, (two, spy)) = (open(root).await, watched(root).await);
    listed(&two, SessionQuery::new()).await;
    let made = session(&two, &effects).await;
    purge(&two, &effects, made.id).await;
    let hold = Hold::at(&spy, "summaries");
    let closing = tokio::spawn(async move { two.close().await });
    hold.reached().await;
    let id = ids[WORDY];
    let purging = tokio::spawn(async move { purge(&one, &Effects::default(), id).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let has_waited = !purging.is_finished();
    drop(hold);
    assert!(has_waited);
    timeout(DEADLINE, closing).await.unwrap().unwrap().unwrap();
    timeout(DEADLINE, purging).await.unwrap().unwrap();
    assert_eq!(with_word(root), Vec::<PathBuf>::new());
}

/// A purge of which each call that writes fails in turn leaves no file that shows the session as it was before, whichever process
/// writes it.
#[tokio::test]
async fn failed_purge_leaves_no_wrong_summary() {
    for at in 1.. {
        let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
        let root = folder.path();
        let ids = filled(root, &effects).await;
        let (two, (one, spy)) = (open(root).await, watched(root).await);
        let head = delete(&one, &effects, ids[WORDY]).await.head;
        for store in [&one, &two] {
            listed(store, SessionQuery::new().with_hidden()).await;
        }
        let writes = std::sync::atomic::AtomicUsize::new(0);
        spy.fail(move |_, call| {
            let is_due = call.writes() && writes.fetch_add(1, Ordering::SeqCst) + 1 == at;
            is_due.then_some(EIO)
        });
        let purged = one.purge(Purge::new(ids[WORDY], head)).await;
        let failed = spy.heal();
        let expected = truth(root, &ids[WORDY..=WORDY]).await;
        for store in [&one, &two] {
            session(store, &effects).await;
            keep(store).await;
            let shown = listed(&open(root).await, SessionQuery::new().with_hidden()).await;
            let of_it: Vec<_> = shown.into_iter().filter(|it| it.id == ids[WORDY]).collect();
            assert_eq!(of_it, expected, "call {at}");
        }
        if failed == 0 {
            purged.unwrap();
            assert!(at > 5);
            assert_eq!(with_word(root), Vec::<PathBuf>::new());
            break;
        }
    }
}

/// Sessions that were purged are in the file too, with their tombstones, and a tombstone that is not the same is read.
#[tokio::test]
async fn purged_sessions_are_listed_from_the_summaries() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let ids = filled(root, &effects).await;
    let store = open(root).await;
    for id in &ids {
        purge(&store, &effects, *id).await;
    }
    keep(&store).await;
    assert_eq!(first_list(root, &truth(root, &ids).await).await, READ_BEFORE);
    let tombstone = folder_of(root, ids[90]).join("tombstone.json");
    let mut bytes = fs::read(&tombstone).unwrap();
    bytes[50] ^= 1;
    fs::write(&tombstone, bytes).unwrap();
    let page = open(root).await.list(SessionQuery::new().with_hidden()).await.unwrap();
    assert_eq!(page.damaged.len(), 1);
}

/// A process that lists one workspace and writes the file keeps what it has of the others.
#[tokio::test]
async fn summaries_of_other_workspaces_are_kept() {
    let (folder, effects) = (tempfile::tempdir().unwrap(), Effects::default());
    let root = folder.path();
    let mut ids = filled(root, &effects).await;
    let store = open(root).await;
    let elsewhere = effects.new_workspace_id();
    for _ in 0..COUNT {
        let new = NewSession::new(effects.new_session_id(), elsewhere);
        ids.push(store.sessions(&effects).create(new).await.unwrap().id);
    }
    listed(&store, SessionQuery::new().with_workspace(elsewhere)).await;
    store.close().await.unwrap();
    assert_eq!(first_list(root, &truth(root, &ids).await).await, READ_BEFORE);
}
