//! Files in a session: listed and saved under any name; and progress on a terminal.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{
    EventPayload, FullOutput, Media, Message, NewEvent, Part, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::json::RawJson;
use agent_core::model::CallId;
use agent_core::state::Reason;
use agent_core::store::PutBlob;
use agent_core::{SessionId, Storage};

use crate::site::{KINDS, Site};

/// Size of the larger file.
const SIZE: usize = 700_000;
/// A message cannot have control characters in a name, but whatever turns the direction of text.
const HOSTILE: &str = "../../x\u{202e}gnp.exe";

pub(crate) fn large() -> Vec<u8> {
    (0..SIZE).map(|n| (n % 251) as u8).collect()
}

/// Puts a large blob, and commits a message with two files, of which one has a hostile name, and an output of a tool.
pub(crate) async fn stock(storage: &Storage, id: SessionId) {
    let (sessions, effects) = (&storage.sessions, Effects::default());
    let put = PutBlob::of_bytes(id, large());
    let film = Media::blob("video/mp4", put.blob.name, put.blob.bytes).with_name("film.mp4");
    let output = PutBlob::of_bytes(id, "the whole output".repeat(10_000));
    let full = FullOutput::blob(output.blob.name, output.blob.bytes);
    sessions.blobs().put(put).await.unwrap();
    sessions.blobs().put(output).await.unwrap();
    let mut cat = Media::inline("image/png", *b"\x89PNG");
    cat.name = Some(HOSTILE.to_owned());
    let message = Message::new("Look").with_part(Part::Image(cat)).with_part(Part::Video(film));
    let head = sessions.load(id).await.unwrap().head;
    let event = NewEvent::of(&EventPayload::UserMessage(message));
    let head = sessions.append(id, head, vec![event]).await.unwrap().last;
    let run = effects.new_run_id();
    let begin = Trigger::BeginRun(LeaseRequest::new("test", run));
    let begun = sessions.commit(Commit::seal(&effects, id, head).with_trigger(begin)).await.unwrap();
    let call: CallId = "call 1".parse().unwrap();
    let mut result = ToolResult::new(call.clone(), ToolOutcome::Ok, RawJson::parse("\"the who…\"").unwrap());
    result.full = Some(full);
    let called = ToolUse::new(call, "search", RawJson::empty_object());
    let end = Commit::seal(&effects, id, begun.last)
        .with_fence(run, begun.epoch.unwrap())
        .with_event(NewEvent::of(&EventPayload::AgentToolUse(called)))
        .with_event(NewEvent::of(&EventPayload::AgentToolResult(result)))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    sessions.commit(end).await.unwrap();
}

/// Files are listed with their numbers, and saved with their bytes: those of messages, and the whole output of a tool.
#[tokio::test]
async fn files_of_a_session_are_listed_and_saved() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (id, _) = site.send("hello");
        let storage = site.open().await;
        stock(&storage, id.parse().unwrap()).await;
        storage.close().await.unwrap();
        drop(storage);
        let list = site.json(&["session", "files", &id]);
        let items = list["items"].as_array().unwrap();
        let rows: Vec<_> = items
            .iter()
            .map(|item| (item["media"].as_str().unwrap(), item["bytes"].as_u64().unwrap()))
            .collect();
        assert_eq!(rows, [("image/png", 4), ("video/mp4", SIZE as u64), ("text/plain", 160_000)]);
        assert_eq!((&list["more"], items[0]["name"].as_str()), (&false.into(), Some(HOSTILE)));
        let number = |n: usize| items[n]["file"].as_str().unwrap();
        assert!(
            number(0).ends_with(".1") && number(1).ends_with(".2") && !number(2).contains('.'),
            "{items:?}"
        );

        let text = site.ok(&["session", "save", &id, number(2)]);
        assert_eq!(text, "the whole output".repeat(10_000));
        let output = site.ok(&["session", "save", &id, number(1), "--output", "film.mp4"]);
        assert!(output.contains("film.mp4") && output.contains("700000 bytes"), "{output}");
        assert_eq!(fs::read(site.path().join("film.mp4")).unwrap(), large());
        let mode = fs::metadata(site.path().join("film.mp4")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let several = number(0).split('.').next().unwrap();
        for (number, code, expected) in [
            (several, 3, format!("{several}.1 to {several}.2")),
            ("1", 3, "has no file 1".to_owned()),
            ("999", 3, "has no file 999".to_owned()),
            ("0", 1, "no number of a file".to_owned()),
            ("../x", 1, "no number of a file".to_owned()),
            (&format!("{several}.3"), 3, "has no file".to_owned()),
        ] {
            site.fails(&["session", "save", &id, number, "--output", "none"], code, &expected);
        }
        assert!(!site.path().join("none").exists());
    }
}

/// A name from a message becomes no path and steers no terminal, in commands and in a conversation.
#[tokio::test]
async fn names_of_files_are_never_paths() {
    let site = Site::new("files");
    let (id, _) = site.send("hello");
    stock(&site.open().await, id.parse().unwrap()).await;
    let number = site.json(&["session", "files", &id])["items"][0]["file"].as_str().unwrap().to_owned();
    let target = site.path().join("cat.png");
    let attached = site.path().join("x\u{202e}gnp.png");
    fs::write(&attached, b"\x89PNG").unwrap();
    let lines = [
        "/files",
        &format!("/save {number}"),
        &format!("/save {number} {}", target.display()),
        &format!("/attach {}", attached.display()),
        "look",
        "/history",
    ];
    let ran = site.typed(&[], &(lines.join("\n") + "\n"));
    assert_eq!(ran.code, 1, "a path is needed: {ran:?}");
    assert!(ran.err.contains("/save N PATH"), "{ran:?}");
    assert!(ran.out.contains(&format!("{number}  [image ../../x")), "{ran:?}");
    let table = site.ok(&["session", "files", &id]);
    assert!(ran.out.contains("[image x\u{fffd}gnp.png, image/png, 4 bytes] (left out: "), "{ran:?}");
    for text in [&ran.out, &ran.err, &table] {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
    }
    assert_eq!(fs::read(target).unwrap(), b"\x89PNG");
    let beside: Vec<_> = names(site.path());
    assert_eq!(beside, ["cat.png", "data", "x\u{202e}gnp.png"], "nothing else is written");
    assert!(!site.path().join("../../x").exists());
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What exists is replaced only if that is asked for, and only if it is a file; a failure leaves nothing behind.
#[tokio::test]
async fn saving_replaces_nothing_unasked() {
    let site = Site::new("sqlite");
    let (id, _) = site.send("hello");
    let storage = site.open().await;
    stock(&storage, id.parse().unwrap()).await;
    drop(storage);
    let number = site.json(&["session", "files", &id])["items"][0]["file"].as_str().unwrap().to_owned();
    let folder = site.path().join("out");
    fs::create_dir_all(folder.join("folder")).unwrap();
    fs::write(folder.join("mine"), "mine").unwrap();
    symlink("mine", folder.join("link")).unwrap();
    for name in ["mine", "link", "folder"] {
        let path = format!("out/{name}");
        site.fails(&["session", "save", &id, &number, "--output", &path], 4, "it exists already");
        let ran = site.typed(&[], &format!("/save {number} {}/{name}\n", folder.display()));
        assert!(ran.code == 1 && ran.err.contains("it exists already"), "{ran:?}");
    }
    let taken = ["session", "save", &id, &number, "--output", "out/mine"];
    site.fails(&taken, 4, "--replace replaces it");
    for name in ["out/link", "out/folder", "/dev/null"] {
        site.fails(&["session", "save", &id, &number, "--output", name, "--replace"], 4, "is not a file");
    }
    site.fails(&["session", "save", &id, &number, "--output", "none/cat.png"], 1, "folder not found");
    assert_eq!(fs::read(folder.join("mine")).unwrap(), b"mine");
    site.ok(&["session", "save", &id, &number, "--output", "out/mine", "--replace"]);
    assert_eq!(fs::read(folder.join("mine")).unwrap(), b"\x89PNG");
    assert_eq!(names(&folder), ["folder", "link", "mine"]);
}

/// What a killed process left of a save is removed by a later save or export to the folder, and nothing else.
#[tokio::test]
async fn leftovers_of_killed_saves_are_removed() {
    let site = Site::new("files");
    let (id, _) = site.send("hello");
    stock(&site.open().await, id.parse().unwrap()).await;
    let number = site.json(&["session", "files", &id])["items"][1]["file"].as_str().unwrap().to_owned();
    for args in [
        &["session", "save", &id, &number, "--output", "out/saved"][..],
        &["session", "export", &id, "--output", "out/saved"],
    ] {
        let folder = site.path().join("out");
        fs::create_dir(&folder).unwrap();
        let made = |name: &str| {
            let file = fs::File::create(folder.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            file
        };
        let (dead, others) =
            (".chat-0123456789abcDEF.part", [".chat-notes.part", ".chat-0123456789abcDEF", "cat.part"]);
        made(dead);
        others.iter().for_each(|name| drop(made(name)));
        let young = ".chat-0123456789abcYNG.part";
        fs::write(folder.join(young), "").unwrap();
        let used = ".chat-0123456789abcUSE.part";
        let written = made(used);
        written.try_lock().unwrap();
        site.ok(args);
        let mut kept = [&others[..], &[young, used, "saved"]].concat();
        kept.sort_unstable();
        assert_eq!(names(&folder), kept);
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// A large file shows progress on a terminal, which is removed in the end, and none elsewhere.
#[test]
fn large_files_show_progress_on_a_terminal_only() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::io::Read;
    let site = Site::new("files");
    let (_, workspace) = site.send("hello");
    fs::write(site.path().join("large"), vec![7; 20 << 20]).unwrap();
    let put = ["area", "put", &workspace, "memory", "large", "large"];
    let ran = site.run(&put);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));

    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let shown = fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut terminal, mut text, mut piece) = (fs::File::from(terminal), Vec::new(), [0; 4096]);
        // It ends with an error when no process has the terminal open.
        while let Ok(read @ 1..) = terminal.read(&mut piece) {
            text.extend_from_slice(&piece[..read]);
        }
        let _ = sender.send(String::from_utf8(text).unwrap());
    });
    let mut command = site.command(&put);
    let status = command.stderr(shown).stdout(std::process::Stdio::null()).status().unwrap();
    drop(command);
    assert!(status.success());
    let text = receiver.recv_timeout(Duration::from_secs(60)).expect("the end of the terminal's output");
    assert!(
        text.contains("reading [") && text.contains("storing [") && text.contains(" of 20 MiB"),
        "{text:?}"
    );
    assert!(text.ends_with("\r\u{1b}[2K"), "{text:?}");
}

/// A file says enough without a text: an empty line sends it alone.
#[test]
fn an_empty_line_sends_an_attached_file_alone() {
    let site = Site::new("files");
    let cat = site.path().join("cat.png");
    fs::write(&cat, b"\x89PNG").unwrap();
    let ran = site.typed(&[], &format!("\n/attach {}\n\n\n/history\n", cat.display()));
    assert_eq!(ran.code, 0, "{ran:?}");
    let line = "[image cat.png, image/png, 4 bytes]";
    assert!(ran.out.contains(&format!("laptop: {line}\nagent: ")), "{ran:?}");
    assert_eq!(ran.out.matches("laptop: ").count(), 1, "{ran:?}");
}
