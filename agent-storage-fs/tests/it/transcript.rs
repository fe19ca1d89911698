//! `session.md`: kept equal to the log, distinguished from an edit and from damage, and imported on request.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{hasty, watched};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::{
    AgentPart, AgentResponse, Citation, EventPayload, HostedResult, Media, Message, NewEvent, Part,
};
use agent_core::json::RawJson;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents};
use agent_core::{
    ErrorKind, Seq, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore, WorkspaceStoreExt,
};
use agent_storage_fs::FsStore;
use agent_transcript::{
    Frontmatter, Mark, Speaker, Transcript, TranscriptForm, TranscriptMessage, TranscriptWriter,
};

const HOME: WorkspaceId = WorkspaceId::DEFAULT;

fn folder(root: &Path) -> PathBuf {
    root.join("workspaces").join("default")
}

fn text(root: &Path) -> String {
    fs::read_to_string(folder(root).join("session.md")).unwrap()
}

/// The files beside `session.md` whose names begin like this, with what they hold.
fn kept(root: &Path, prefix: &str) -> Vec<Vec<u8>> {
    let mut found: Vec<_> = fs::read_dir(folder(root))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    found.sort();
    found.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn messages(text: &str) -> Vec<(Speaker, String)> {
    let parsed = Transcript::parse(text).unwrap();
    assert!(matches!(parsed.form, TranscriptForm::Sealed(_)), "{text}");
    parsed.transcript.messages.into_iter().map(|message| (message.speaker, message.text)).collect()
}

/// A workspace and its main session.
async fn home(store: &FsStore, effects: &Effects) -> Arc<SessionRecord> {
    let id = effects.new_session_id();
    let record = Workspace::new(HOME, "home", id, effects.now());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    store.sessions(effects).create(NewSession::new(id, HOME)).await.unwrap()
}

/// One message of each, and the head after them.
async fn turn(store: &FsStore, effects: &Effects, session: &SessionRecord, text: &str) -> Arc<SessionRecord> {
    let events = vec![NewEvent::user_message(text), NewEvent::agent_message(text.to_uppercase())];
    store.sessions(effects).append(session.id, session.head, events).await.unwrap().session
}

fn by_user(texts: &[&str]) -> Vec<(Speaker, String)> {
    let both = |text: &&str| [(Speaker::User, (*text).to_owned()), (Speaker::Assistant, text.to_uppercase())];
    texts.iter().flat_map(both).collect()
}

/// Makes the store look at the file now, instead of in a moment.
async fn settle(store: &FsStore) {
    store.transcript_edits(HOME).await.unwrap();
}

/// Images, refusals and cited sources are lines of the text; the file is still what the log renders to.
#[tokio::test]
async fn transcript_shows_media_as_one_line() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let session = home(&store, &effects).await;
    let cat = || Part::Image(Media::inline("image/png", vec![7; 48_213]).with_name("cat.png"));
    let cited =
        Message::new("A tabby.").with_citation(Citation::new("https://cats.example").with_title("Cats"));
    let events = vec![
        NewEvent::from(Message::new("What is this?").with_part(cat())),
        NewEvent::of(&EventPayload::AgentThinking(Message::new("hm"))),
        NewEvent::of(&EventPayload::AgentPart(AgentPart::new(Part::refusal("## User")))),
        NewEvent::of(&EventPayload::AgentPart(AgentPart::new(cat()))),
        NewEvent::of(&EventPayload::AgentPart(AgentPart::new(Part::HostedResult(HostedResult::new(
            RawJson::constant("1"),
        ))))),
        NewEvent::of(&EventPayload::AgentMessage(cited)),
        NewEvent::of(&EventPayload::AgentResponse(AgentResponse::new(session.head))),
    ];
    store.sessions(&effects).append(session.id, session.head, events).await.unwrap();
    settle(&store).await;
    let line = "[image cat.png, image/png, 47 KiB]";
    let shown = [
        (Speaker::User, format!("What is this?\n{line}")),
        (Speaker::Assistant, "## User".to_owned()),
        (Speaker::Assistant, line.to_owned()),
        (Speaker::Assistant, "A tabby.\n[1] Cats, https://cats.example".to_owned()),
    ];
    assert_eq!(messages(&text(root)), shown);
    let again = text(root);
    drop(store);
    fs::remove_file(folder(root).join("session.md")).unwrap();
    settle(&hasty(root).await).await;
    assert_eq!(text(root), again, "made anew, it is the same");
}

/// It follows the log by itself; it holds the main session's texts, byte for byte, and nothing else;
/// made anew, it is the same.
#[tokio::test]
async fn transcript_follows_the_log() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let session = home(&store, &effects).await;
    let hard = "\\## User\n## User\n---\r\n\u{0}\u{7}\n\n";
    let session = turn(&store, &effects, &session, hard).await;
    let tool = NewEvent::tool_use("c1".parse().unwrap(), "ls", agent_core::json::RawJson::empty_object());
    let session =
        store.sessions(&effects).append(session.id, session.head, vec![tool]).await.unwrap().session;
    let other = NewSession::new(effects.new_session_id(), HOME);
    let other = store.sessions(&effects).create(other).await.unwrap();
    turn(&store, &effects, &other, "elsewhere").await;
    // Nobody asks for it; it comes.
    let mut tries = 0;
    while fs::read_to_string(folder(root).join("session.md")).is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        tries += 1;
        assert!(tries < 1000, "session.md was never written");
    }
    assert_eq!(messages(&text(root)), by_user(&[hard]));

    let mut session = turn(&store, &effects, &session, "and more").await;
    settle(&store).await;
    assert_eq!(messages(&text(root)), by_user(&[hard, "and more"]));
    for n in 0..5 {
        session = turn(&store, &effects, &session, &format!("turn {n}")).await;
        settle(&store).await;
    }
    let grown = text(root);
    fs::remove_file(folder(root).join("session.md")).unwrap();
    let again = hasty(root).await;
    settle(&again).await;
    assert_eq!(text(root), grown, "piece by piece and at once are the same");
    assert_eq!(kept(root, "session."), [grown.into_bytes(), Vec::new()], "the file and its lock");
}

/// Who closes the store leaves it up to date; another process goes on with it.
#[tokio::test]
async fn closing_brings_the_transcript_up_to_date() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let mut session = home(&store, &effects).await;
    drop(store);
    let texts: Vec<_> = (0..6).map(|n| format!("turn {n}")).collect();
    for (n, text_now) in texts.iter().enumerate() {
        let store = hasty(root).await;
        WorkspaceStore::load(&store, HOME).await.unwrap();
        session = turn(&store, &effects, &session, text_now).await;
        drop(store);
        let so_far: Vec<_> = texts[..=n].iter().map(String::as_str).collect();
        assert_eq!(messages(&text(root)), by_user(&so_far));
    }
    assert_eq!(kept(root, "session.").len(), 2, "nothing was set aside");
}

/// It costs no sync, and a commit's answer does not wait for it; what is added is written, not the whole.
#[tokio::test]
async fn transcript_update_appends_without_a_sync() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let quick = hasty(root).await;
    let mut session = home(&quick, &effects).await;
    for _ in 0..20 {
        let events = (0..100).map(|n| NewEvent::agent_message(format!("message {n:04}"))).collect();
        session = quick.sessions(&effects).append(session.id, session.head, events).await.unwrap().session;
    }
    settle(&quick).await;
    drop(quick);
    let whole = text(root).len();
    let (store, spy) = watched(root).await;
    settle(&store).await;
    session = turn(&store, &effects, &session, "first").await;
    settle(&store).await;
    spy.take();
    for n in 0..5 {
        session = turn(&store, &effects, &session, &format!("turn {n}")).await;
        settle(&store).await;
    }
    let calls = spy.take();
    let of = |name: &str, file: &str| calls.iter().filter(|c| c.name == name && c.file() == file).count();
    assert_eq!((of("sync", "events.jsonl"), of("write", "events.jsonl")), (5, 5));
    assert_eq!(calls.iter().filter(|call| call.name == "sync" || call.name == "sync_dir").count(), 5);
    let written: usize = calls
        .iter()
        .filter(|c| c.name == "write" && c.file().starts_with("session.md"))
        .map(|c| c.bytes)
        .sum();
    assert!(written > 0 && written < 2000 && whole > 50_000, "{written} bytes for 5 turns, {whole} in all");
    let read: usize = calls.iter().filter(|c| c.name == "read").map(|c| c.bytes).sum();
    assert!(read < 100 << 10, "{read} bytes read: the end of the log, five times");
}

/// Where the file cannot be written, a commit tries once; reading goes on, and never tries.
#[tokio::test(start_paused = true)]
async fn unwritable_transcript_is_tried_once_per_commit() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let session = home(&store, &effects).await;
    let session = turn(&store, &effects, &session, "first").await;
    drop(store);
    for path in ["session.md", "session.md.lock"].map(|name| folder(root).join(name)) {
        fs::remove_file(&path).ok();
    }
    fs::create_dir(folder(root).join("session.md")).unwrap();
    let (store, spy) = watched(root).await;
    WorkspaceStore::load(&store, HOME).await.unwrap();
    let tried = async || {
        // The clock stands still while files are worked on.
        tokio::time::sleep(Duration::from_secs(5)).await;
        spy.take().iter().filter(|call| call.file().starts_with("session.md")).count()
    };
    SessionStore::load(&store, session.id).await.unwrap();
    assert_eq!(tried().await, 0, "who only looks does not");
    let session = turn(&store, &effects, &session, "second").await;
    assert!(tried().await > 0, "a commit does");
    for _ in 0..3 {
        SessionStore::load(&store, session.id).await.unwrap();
        assert_eq!(tried().await, 0, "and nobody after it");
    }
    turn(&store, &effects, &session, "third").await;
    assert!(tried().await > 0, "what is new does");
}

/// Cut anywhere, as by a crash while it is written, it is damage: kept, and made again from the log. The
/// older state, whole, is simply brought up to date.
#[tokio::test]
async fn truncated_transcript_is_rewritten() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let session = home(&store, &effects).await;
    let session = turn(&store, &effects, &session, "one").await;
    settle(&store).await;
    let older = text(root);
    turn(&store, &effects, &session, "two").await;
    settle(&store).await;
    drop(store);
    let whole = text(root);
    let path = folder(root).join("session.md");
    let reopened = async |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let store = hasty(root).await;
        settle(&store).await;
        assert!(store.transcript_edits(HOME).await.unwrap().is_empty(), "no edit: {bytes:?}");
        assert_eq!(text(root), whole);
    };
    reopened(older.as_bytes()).await;
    assert!(kept(root, "session.damaged-").is_empty());
    for cut in 1..whole.len() {
        reopened(&whole.as_bytes()[..cut]).await;
        let damaged = kept(root, "session.damaged-");
        assert_eq!(damaged, [whole.as_bytes()[..cut].to_vec()], "cut at {cut}");
        for entry in fs::read_dir(folder(root)).unwrap() {
            let path = entry.unwrap().path();
            if path.to_str().unwrap().contains("damaged") {
                fs::remove_file(path).unwrap();
            }
        }
    }
    reopened(b"").await;
    assert!(kept(root, "session.damaged-").is_empty());
    // What the disk filled with zeros, and what was rendered of a log that is no longer there.
    let mut zeros = whole.clone().into_bytes();
    zeros[100..150].fill(0);
    reopened(&zeros).await;
    let mut writer = TranscriptWriter::start(&Frontmatter::default());
    writer.message(&TranscriptMessage::new(Speaker::User, "from the future"));
    let seal = writer.seal(Mark::new(Seq::new(3), effects.new_commit_id()));
    let future = writer.take() + &seal;
    reopened(future.as_bytes()).await;
    let mut damaged = kept(root, "session.damaged-");
    damaged.sort();
    let mut expected = vec![zeros, future.into_bytes()];
    expected.sort();
    assert_eq!(damaged, expected);
}

/// A person's change is noticed, kept and offered; imported, it is what the session shows; the log keeps
/// what was said before.
#[tokio::test]
async fn an_edit_is_kept_and_imported() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let session = home(&store, &effects).await;
    let session = turn(&store, &effects, &session, "one").await;
    let session = turn(&store, &effects, &session, "two").await;
    settle(&store).await;
    let rendered = text(root);
    let edited = rendered.replace("\none\n", "\nuno\n").replace("TWO", "TWO\n\n## User\n\nand three?");
    fs::write(folder(root).join("session.md"), &edited).unwrap();

    let edits = store.transcript_edits(HOME).await.unwrap();
    assert_eq!(text(root), rendered, "the log is the truth");
    assert_eq!(kept(root, "session.edited-"), [edited.clone().into_bytes()]);
    let [edit] = edits.as_slice() else { panic!("{edits:?}") };
    assert_eq!((edit.workspace, edit.session, edit.legacy), (HOME, session.id, false));
    let expected = [
        (Speaker::User, "uno".to_owned()),
        (Speaker::Assistant, "ONE".to_owned()),
        (Speaker::User, "two".to_owned()),
        (Speaker::Assistant, "TWO".to_owned()),
        (Speaker::User, "and three?".to_owned()),
    ];
    // Somebody wrote meanwhile: the person is to look again.
    let stale = store.import_transcript(edit, Seq::new(session.head.get() - 1)).await.unwrap_err();
    assert!(matches!(stale.kind(), ErrorKind::Conflict { .. }));
    assert_eq!(store.transcript_edits(HOME).await.unwrap(), edits);

    let imported = store.import_transcript(edit, session.head).await.unwrap();
    assert_eq!((imported.counts.user, imported.counts.agent, imported.inputs_open), (3, 2, 0));
    settle(&store).await;
    assert_eq!(messages(&text(root)), expected);
    assert_eq!(store.transcript_edits(HOME).await.unwrap(), []);
    assert_eq!(kept(root, "session.imported-"), [edited.into_bytes()]);
    let all = store.read(session.id, ReadEvents::first(100)).await.unwrap().events;
    assert_eq!(all.iter().filter(|event| event.payload.get().contains("\"one\"")).count(), 1);

    // A crash between the commit and the new name: importing again changes nothing.
    let left = folder(root).join("session.edited-00000000.md");
    fs::copy(
        fs::read_dir(folder(root))
            .unwrap()
            .map(|e| e.unwrap().path())
            .find(|p| p.to_str().unwrap().contains("imported"))
            .unwrap(),
        &left,
    )
    .unwrap();
    let edits = store.transcript_edits(HOME).await.unwrap();
    assert_eq!(store.import_transcript(&edits[0], imported.head).await.unwrap(), imported);
    assert_eq!(store.transcript_edits(HOME).await.unwrap(), []);
}

/// A file that is gone is made anew with every message, also where few messages hold more than is read at a time.
#[tokio::test]
async fn recreated_transcript_holds_long_messages() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let mut session = home(&store, &effects).await;
    let long = |n: usize| format!("{n} {}", "x".repeat(100_000));
    for n in 0..30 {
        let message = vec![NewEvent::user_message(long(n))];
        session = store.sessions(&effects).append(session.id, session.head, message).await.unwrap().session;
    }
    settle(&store).await;
    drop(store);
    fs::remove_file(folder(root).join("session.md")).unwrap();
    let store = hasty(root).await;
    let last = vec![NewEvent::user_message("last")];
    store.sessions(&effects).append(session.id, session.head, last).await.unwrap();
    settle(&store).await;
    let texts: Vec<_> = messages(&text(root)).into_iter().map(|(_, text)| text).collect();
    let expected: Vec<_> = (0..30).map(long).chain(["last".to_owned()]).collect();
    assert!(texts == expected, "{} messages", texts.len());
}

/// What is not of the grammar is kept, and never an empty conversation; what is of a newer version is left
/// alone.
#[tokio::test]
async fn unreadable_transcript_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let session = home(&store, &effects).await;
    let session = turn(&store, &effects, &session, "one").await;
    settle(&store).await;
    let rendered = text(root);
    let path = folder(root).join("session.md");
    let odd: [&[u8]; 3] = [b"my notes\n", b"---\nformat: 2\n---\nno heading\n", b"\xff\xfe broken"];
    for bytes in odd {
        fs::write(&path, bytes).unwrap();
        assert_eq!(store.transcript_edits(HOME).await.unwrap(), []);
        assert_eq!(text(root), rendered);
        assert!(kept(root, "session.unreadable-").contains(&bytes.to_vec()));
    }
    assert_eq!(SessionStore::load(&store, session.id).await.unwrap().counts.messages(), 2);
    let newer = "---\nformat: 3\n---\n\n## User\n\nhello\n";
    fs::write(&path, newer).unwrap();
    turn(&store, &effects, &session, "two").await;
    settle(&store).await;
    assert_eq!(text(root), newer);
}

/// What the Aptove agent left is never rewritten, is offered, and is imported once.
#[tokio::test]
async fn old_format_transcript_is_imported_once() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let legacy = "---\nprovider: claude\n---\n\n## User\n\nhello\n\n## Assistant\n\nhi\n";
    fs::create_dir_all(folder(root)).unwrap();
    fs::write(folder(root).join("session.md"), legacy).unwrap();
    let store = hasty(root).await;
    let session = home(&store, &effects).await;
    let session = turn(&store, &effects, &session, "new").await;
    settle(&store).await;
    assert_eq!(text(root), legacy);
    let edits = store.transcript_edits(HOME).await.unwrap();
    assert!(edits.len() == 1 && edits[0].legacy, "{edits:?}");
    store.import_transcript(&edits[0], session.head).await.unwrap();
    settle(&store).await;
    let expected = [(Speaker::User, "hello".to_owned()), (Speaker::Assistant, "hi".to_owned())];
    assert_eq!(messages(&text(root)), expected);
    assert_eq!(store.transcript_edits(HOME).await.unwrap(), []);
    assert_eq!(kept(root, "session.imported-"), [legacy.as_bytes().to_vec()]);
}

/// What was cleared is not shown; what was purged is gone from the file, and from what was kept of it.
#[tokio::test]
async fn transcript_drops_cleared_and_purged_text() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let session = home(&store, &effects).await;
    let session = turn(&store, &effects, &session, "secret").await;
    settle(&store).await;
    fs::write(folder(root).join("session.md"), text(root).replace("secret", "secret!")).unwrap();
    settle(&store).await;
    let cleared = store.sessions(&effects).clear(session.id).await.unwrap().session;
    settle(&store).await;
    assert_eq!(messages(&text(root)), []);
    let session = turn(&store, &effects, &cleared, "after").await;
    settle(&store).await;
    assert_eq!(messages(&text(root)), by_user(&["after"]));
    let deleted = store
        .sessions(&effects)
        .trigger(session.id, Trigger::Delete(Reason::UserDeleted))
        .await
        .unwrap()
        .session;
    store.purge(Purge::new(session.id, deleted.head)).await.unwrap();
    settle(&store).await;
    assert_eq!(kept(root, "session."), [Vec::<u8>::new()], "the lock");
}

/// Of a fork that is a workspace's main session, the ancestors' part is shown too.
#[tokio::test]
async fn transcript_of_a_fork_shows_shared_history() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let mut session = crate::support::session(&store, &effects).await;
    let texts: Vec<_> = (0..40).map(|n| format!("turn {n}")).collect();
    for text in &texts {
        session = turn(&store, &effects, &session, text).await;
        session = store.sessions(&effects).fork(session.id, None).await.unwrap();
    }
    let record = Workspace::new(HOME, "home", session.id, effects.now());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    settle(&store).await;
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    assert_eq!(messages(&text(root)), by_user(&texts));
}

/// If another session becomes the main one, its text takes the place of the former one's, which is in that one's log; an edit of that text is kept.
#[tokio::test]
async fn the_text_of_a_former_main_session_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let effects = Effects::default();
    let store = hasty(root).await;
    let mut main = home(&store, &effects).await;
    main = turn(&store, &effects, &main, "one").await;
    settle(&store).await;
    for (words, is_edited) in [("two", false), ("three", true)] {
        if is_edited {
            let path = folder(root).join("session.md");
            fs::write(&path, text(root).replace("two", "tow")).unwrap();
        }
        let new = NewSession::fork(effects.new_session_id(), &main);
        let next = store.sessions(&effects).create(new).await.unwrap();
        let mut workspace = WorkspaceStore::load(&store, HOME).await.unwrap();
        workspace.main_session = next.id;
        store.update(workspace).await.unwrap();
        main = turn(&store, &effects, &next, words).await;
        settle(&store).await;
        assert!(text(root).contains(words) && text(root).contains(&main.id.to_string()), "{}", text(root));
        assert!(kept(root, "session.damaged-").is_empty(), "{words}");
        assert_eq!(kept(root, "session.edited-").len(), usize::from(is_edited), "{words}");
    } // Text that names a session whose log does not have it is kept.
    let former =
        store.sessions(&effects).create(NewSession::new(effects.new_session_id(), HOME)).await.unwrap();
    let mut writer = TranscriptWriter::start(&Frontmatter::new(former.id, effects.now()));
    writer.message(&TranscriptMessage::new(Speaker::User, "of a log that is gone"));
    let seal = writer.seal(Mark::new(Seq::new(1), effects.new_commit_id()));
    let gone = writer.take() + &seal;
    fs::write(folder(root).join("session.md"), &gone).unwrap();
    turn(&store, &effects, &main, "four").await;
    settle(&store).await;
    assert_eq!(kept(root, "session.damaged-"), [gone.into_bytes()]);
}
