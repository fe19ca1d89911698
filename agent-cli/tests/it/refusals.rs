//! Error messages name the object and the remedy, with an exit code; nothing is overwritten.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Chat, storage};
use agent_core::store::ReadEvents;

/// User without write permission. The tests may run as root, who can write everything.
const NOBODY: u32 = 65_534;

/// Starts a chat as the user `nobody`.
fn as_nobody(program: &Path, data: &Path) -> Chat {
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(data).args(["--device", "laptop"]).current_dir("/");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    Chat::spawn(command)
}

/// Copies the program to a place that `nobody` can read. A separate process does it: a file that this process has open
/// for writing cannot be executed while a child of another test has inherited it.
fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_chat")).arg(to).status().unwrap().success());
}

/// Checks the error of a chat that cannot start, and returns it.
#[track_caller]
fn refused(chat: &mut Chat, names: &Path) -> String {
    chat.send("hello");
    assert_eq!(chat.finish(), 1, "{}", chat.err.text());
    let output = chat.err.text();
    assert_eq!(chat.out.text(), "", "nothing was answered");
    assert!(output.contains(names.to_str().unwrap()), "it names {}: {output}", names.display());
    for rust in ["panicked", "Error {", "Os {", "kind:", "Some(", "RUST_BACKTRACE"] {
        assert!(!output.contains(rust), "it is for a person: {output}");
    }
    output
}

/// A read-only folder.
#[test]
fn read_only_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (program, data) = (folder.path().join("chat"), folder.path().join("data"));
    copy_program(&program);
    fs::create_dir(&data).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o555)).unwrap();
    let output = refused(&mut as_nobody(&program, &data), &data);
    assert!(output.to_lowercase().contains("permission"), "{output}");
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0, "nothing was written");
}

/// A folder without read permission.
#[test]
fn unreadable_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (program, data) = (folder.path().join("chat"), folder.path().join("data"));
    copy_program(&program);
    let mut chat = Chat::start(&data, &[]);
    chat.send("mine");
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o000)).unwrap();
    let output = refused(&mut as_nobody(&program, &data), &data);
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    assert!(output.to_lowercase().contains("permission"), "{output}");
}

/// A file in place of the data folder, or of one of its subfolders.
#[test]
fn file_in_place_of_a_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::write(&data, "precious").unwrap();
    refused(&mut Chat::start(&data, &[]), &data);
    assert_eq!(fs::read_to_string(&data).unwrap(), "precious");

    let data = folder.path().join("other");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("workspaces"), "precious").unwrap();
    refused(&mut Chat::start(&data, &[]), &data.join("workspaces"));
    assert_eq!(fs::read_to_string(data.join("workspaces")).unwrap(), "precious");
}

/// A truncated bindings file is reported, and not overwritten.
#[test]
fn damaged_bindings_are_reported_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(folder.path(), &[]);
    chat.send("hello");
    assert_eq!(chat.finish(), 0);
    let file = folder.path().join("bindings.toml");
    let whole = fs::read_to_string(&file).unwrap();
    let cut = &whole[..whole.len() - 20];
    fs::write(&file, cut).unwrap();
    refused(&mut Chat::start(folder.path(), &[]), &file);
    let mut other = Chat::start(folder.path(), &["--device", "phone"]);
    other.send("hello");
    other.finish();
    assert_eq!(fs::read_to_string(&file).unwrap(), cut, "the damaged file is as it was");
}

/// Damage in the middle of a log is reported; the damaged bytes are kept, and the events before them can be read.
#[tokio::test]
async fn damage_in_a_log_is_reported_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(folder.path(), &[]);
    for line in ["first", "second", "third"] {
        chat.send(line);
    }
    assert_eq!(chat.finish(), 0);
    let log = find(folder.path(), "events.jsonl");
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.windows(6).position(|window| window == b"second").unwrap();
    bytes[at] ^= 0x20;
    fs::write(&log, &bytes).unwrap();

    let output = refused(&mut Chat::start(folder.path(), &[]), &log);
    assert!(output.contains("damaged at event"), "{output}");
    assert!(fs::read(&log).unwrap() == bytes, "the damaged bytes are as they were");

    let id = log.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap();
    let sessions = storage(folder.path()).await.sessions;
    let page = sessions.read(id.parse().unwrap(), ReadEvents::first(100)).await.unwrap();
    let texts: Vec<_> = page.events.iter().map(|event| event.payload.get().to_owned()).collect();
    assert!(texts.iter().any(|text| text.contains("first")), "what is before the damage is there: {texts:?}");
    assert!(!texts.iter().any(|text| text.contains("Second")), "what is damaged is not: {texts:?}");
    assert_eq!(page.damaged.len(), 1);
}

/// Returns the only file with this name below a folder.
fn find(folder: &Path, name: &str) -> std::path::PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|file| file == name) {
                return path;
            }
        }
    }
    panic!("no {name}");
}

/// A wrong command line returns exit code 2; a session that does not exist, 1.
#[test]
fn a_wrong_command_line_ends_with_2_and_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    for options in [["--device", ""], ["--store", "tape"], ["--session", "../../x"]] {
        let mut chat = Chat::start(folder.path(), &options);
        assert_eq!(chat.finish(), 2, "{options:?}");
        assert!(chat.err.text().contains("--help"), "{}", chat.err.text());
    }
    let mut absent = Chat::start(folder.path(), &["--session", "019c60d9-9c41-715c-8289-ec2d0a9167ec"]);
    assert_eq!(absent.finish(), 1);
    assert!(absent.err.text().contains("019c60d9-9c41-715c-8289-ec2d0a9167ec does not exist"));
}

/// Input that cannot be read is reported once.
#[test]
fn unreadable_input_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_chat"))
        .arg("--data-dir")
        .arg(folder.path())
        .args(["--device", "laptop"])
        .stdin(fs::File::open(folder.path()).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(printed.matches("cannot read standard input").count(), 1, "{printed}");
}

/// `/history` refuses an argument that is not a positive number.
#[test]
fn history_with_a_bad_number_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(folder.path(), &[]);
    for line in ["hello", "/history 0", "/history all", "/history 1"] {
        chat.send(line);
    }
    assert_eq!(chat.finish(), 1);
    assert_eq!(
        chat.err.text().matches("write how many messages, at least 1").count(),
        2,
        "{}",
        chat.err.text()
    );
    assert!(chat.out.text().ends_with("agent: hello\n"), "{}", chat.out.text());
}

/// If the last commit of a log is damaged, its bytes are kept in a file that a warning names, and the events before it
/// are intact.
#[test]
fn damaged_last_commit_is_kept_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(folder.path(), &["--lease-ttl-ms", "500"]);
    for line in ["one", "three"] {
        chat.send(line);
    }
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    let sessions = only(&only(&folder.path().join("workspaces")).join("sessions"));
    let log = sessions.join("events.jsonl");
    let mut bytes = fs::read(&log).unwrap();
    let answer = bytes.windows(5).rposition(|window| window == b"three").unwrap();
    bytes[answer] ^= 1;
    fs::write(&log, &bytes).unwrap();

    let mut chat = Chat::start(folder.path(), &[]);
    chat.send("hi");
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    let outcome = chat.err.text();
    assert!(outcome.contains("events.tail-"), "it names where the bytes are kept: {outcome}");
    let kept =
        fs::read_dir(&sessions).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(kept.filter(|name| name.starts_with("events.tail-")).count(), 1);
    let whole = fs::read_to_string(&log).unwrap();
    assert!(whole.contains("\"text\":\"one\"") && whole.contains("\"text\":\"hi\""), "{whole}");
}

/// Returns the only entry of a folder.
fn only(folder: &Path) -> std::path::PathBuf {
    let mut entries = fs::read_dir(folder).unwrap();
    entries.next().unwrap().unwrap().path()
}
