//! Failures of standard output: a full disk, and a reader that closed the pipe.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::process::{Command, Stdio};

use crate::site::{Ran, Site};

/// Every command that prints. `ID`, `FILE`, `FORK`, `WORKSPACE` and `FOLDER` are placeholders.
const COMMANDS: &[&[&str]] = &[
    &["workspace", "list"],
    &["workspace", "create", "--name", "other"],
    &["workspace", "show", "WORKSPACE"],
    &["workspace", "set-main", "WORKSPACE", "FORK"],
    &["workspace", "delete", "WORKSPACE", "--yes"],
    &["workspace", "gc", "--max-age", "0", "--dry-run"],
    &["session", "list"],
    &["session", "show", "ID"],
    &["session", "export", "ID"],
    &["session", "export", "ID", "--output", "FOLDER/out.json"],
    &["session", "export", "ID", "--as", "markdown"],
    &["session", "export", "ID", "--as", "jsonl", "--output", "FOLDER/out.jsonl"],
    &["session", "files", "ID"],
    &["session", "save", "ID", "FILE"],
    &["session", "restore-file", "ID", "large.md"],
    &["session", "save", "ID", "FILE", "--output", "FOLDER/out.json"],
    &["session", "import", "FOLDER/document.json"],
    &["session", "fork", "ID"],
    &["session", "compare", "ID", "FORK"],
    &["session", "salvage", "ID"],
    &["session", "pin", "ID", "--why", "because"],
    &["session", "unpin", "ID"],
    &["session", "delete", "FORK"],
    &["session", "erase", "FORK", "--yes"],
    &["area", "list", "WORKSPACE", "memory"],
    &["area", "get", "WORKSPACE", "memory", "notes/a.md"],
    &["area", "put", "WORKSPACE", "memory", "b.md", "FOLDER/document.json"],
    &["area", "import", "WORKSPACE", "FOLDER/areas"],
    &["area", "delete", "WORKSPACE", "memory", "notes/a.md"],
    &["device", "list"],
    &["device", "bind", "phone", "WORKSPACE"],
    &["device", "unbind", "laptop"],
    &["tenant", "list"],
    &["tenant", "export", "default", "sqlite:FOLDER/copy.db"],
    &["tenant", "delete", "default", "--yes"],
    &["tenant", "audit"],
    &["erase", "owner", "alice", "--receipt", "FOLDER/receipt.json", "--yes"],
    &["erase", "creator", "user:laptop", "--receipt", "FOLDER/receipt.json", "--yes"],
    &["erase", "tenant", "default", "--receipt", "FOLDER/receipt.json", "--yes"],
    &["config", "show", "--config", "FOLDER/host.toml"],
    &["copy", "STORE", "sqlite:FOLDER/copy.db"],
    &["import", "claude-code", "FOLDER/transcripts"],
    &["backup", "FOLDER/backup.db"],
    &["backup", "sqlite:FOLDER/copy.db"],
    &["restore", "--in-place"],
    &["sweep", "--inactive", "0", "--dry-run"],
    &["sweep", "--policy", "FOLDER/retention.toml", "--yes"],
    &["audit"],
    &["search", "hello"],
    &["session", "restore", "ID", "--from", "FOLDER/document.json"],
    &["session", "interrupt", "ID"],
    &["session", "release", "ID"],
    &["index"],
    &["index", "--remove"],
    &["sizes"],
    &["upgrade"],
    &["verify"],
    &["verify", "--erased", "FOLDER/bob.json"],
    &["maintain"],
    &["rebuild"],
    &["completions", "bash"],
    &["demo"],
    &["key", "new", "FOLDER/new.key"],
    &["key", "show", "FOLDER/root.key"],
    &["key", "rotate"],
    &["--help"],
    &["--version"],
    &["session", "--help"],
];

/// Store with objects of every kind, and their ids.
struct Stocked {
    site: Site,
    id: String,
    /// Number of a file in the session.
    file: String,
    fork: String,
    workspace: String,
    bytes: Vec<u8>,
}

impl Stocked {
    fn new() -> Self {
        let site = Site::new("sqlite");
        let folder = site.path();
        fs::create_dir_all(folder.join("areas/memory")).unwrap();
        fs::write(folder.join("areas/memory/c.md"), "kept").unwrap();
        fs::create_dir_all(folder.join("transcripts")).unwrap();
        let line = r#"{"type":"user","uuid":"a","timestamp":"2026-02-03T04:05:06Z","message":{"content":"When do the ferries leave?"}}"#;
        fs::write(folder.join("transcripts/a.jsonl"), format!("{line}\n")).unwrap();
        // Stored as a blob.
        fs::write(folder.join("large.md"), "kept".repeat(1000)).unwrap();
        let (id, workspace) = site.send("/attach areas/memory/c.md\n/attach large.md\nhello\nagain");
        let fork = site.ok(&["session", "fork", &id]).trim().to_owned();
        fs::write(folder.join("host.toml"), "provider = 'claude'").unwrap();
        fs::write(folder.join("retention.toml"), "[sessions]\ninactive = '0d'\n").unwrap();
        site.ok(&["area", "put", &workspace, "memory", "notes/a.md", "areas/memory/c.md"]);
        fs::write(folder.join("document.json"), site.ok(&["session", "export", &id])).unwrap();
        let files = site.json(&["session", "files", &id]);
        let file = files["items"][0]["file"].as_str().unwrap().to_owned();
        for owner in ["alice", "bob"] {
            assert_eq!(site.typed(&["--owner", owner], "hello\n").code, 0);
        }
        site.ok(&["erase", "owner", "bob", "--receipt", "bob.json", "--yes"]);
        let bytes = fs::read(folder.join("data.db")).unwrap();
        site.ok(&["key", "new", folder.join("root.key").to_str().unwrap()]);
        Self { site, id, file, fork, workspace, bytes }
    }

    /// Runs a command on a fresh copy of the store, with this standard output.
    fn run(&self, words: &[&str], json: bool, out: Stdio) -> Ran {
        let folder = self.site.path();
        fs::write(folder.join("data.db"), &self.bytes).unwrap();
        for name in ["out.json", "out.jsonl", "copy.db", "backup.db", "new.key", "receipt.json"] {
            let _ = fs::remove_file(folder.join(name));
        }
        let words: Vec<_> = words
            .iter()
            .map(|word| match *word {
                "ID" => self.id.clone(),
                "FILE" => self.file.clone(),
                "FORK" => self.fork.clone(),
                "WORKSPACE" => self.workspace.clone(),
                "STORE" => self.site.address(),
                word => word.replace("FOLDER", folder.to_str().unwrap()),
            })
            .chain(json.then(|| "--json".to_owned()))
            .collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let mut command = match words[0] {
            "demo" => own(&words),
            // An encrypted store of its own, which is empty.
            "key" => {
                let address = format!("memory:?key_file={}/root.key", folder.display());
                own(&[&["--store", &address], &*words].concat())
            }
            _ => self.site.command(&words),
        };
        command.stdout(out).stderr(Stdio::piped()).output().unwrap().into()
    }
}

/// Returns a command that has a store of its own.
fn own(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
    command.args(words);
    command
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

/// Returns a pipe whose reader is closed.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Collects the commands in the help of `words`, and their subcommands.
fn commands_below(words: &[String], found: &mut BTreeSet<Vec<String>>) {
    let help = Command::new(env!("CARGO_BIN_EXE_chat")).args(words).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        found.insert(words.to_vec());
        return;
    };
    let names = list.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
        let name = line.strip_prefix("  ")?;
        (!name.starts_with(' ')).then(|| name.split_whitespace().next().unwrap().to_owned())
    });
    for name in names.filter(|name| name != "help") {
        commands_below(&[words, &[name]].concat(), found);
    }
}

/// The help of each command begins with a summary on one line, has examples, and fits the width of the terminal.
#[test]
fn help_fits_the_width_of_the_terminal() {
    let mut commands = BTreeSet::from([Vec::new()]);
    commands_below(&[], &mut commands);
    for words in &commands {
        for (columns, width) in [("80", 80), ("120", 100)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
            let help = command.args(words).arg("--help").env("COLUMNS", columns).output().unwrap();
            let help = String::from_utf8(help.stdout).unwrap();
            let summary = help.lines().next().unwrap();
            assert!(!summary.ends_with('.') && summary.starts_with(char::is_uppercase), "{words:?}: {help}");
            let widest = help.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(widest.chars().count() <= width, "{words:?}, {columns} columns: {widest}");
            assert!(words.is_empty() || help.contains("\nExamples:\n  chat "), "{words:?}: {help}");
        }
    }
}

/// Incomplete output is an error of every command: exit code 1, and the reason on standard error. Every command is
/// tried.
#[cfg(target_os = "linux")]
#[test]
fn every_command_fails_if_its_output_is_cut_off() {
    let mut there = BTreeSet::new();
    commands_below(&[], &mut there);
    assert!(there.len() > 25, "{there:?}");
    // It prints nothing, but answers its client: see `tests/bridges/acp.rs`.
    assert!(there.remove(&["acp".to_owned()][..]));
    for command in there {
        let tried = COMMANDS
            .iter()
            .any(|words| words.iter().zip(&command).all(|(a, b)| a == b) && words.len() >= command.len());
        assert!(tried, "{command:?} is not tried");
    }
    let site = Stocked::new();
    let mut silent = Vec::new();
    for words in COMMANDS {
        for json in [false, true] {
            let ran = site.run(words, json, full());
            if ran.code != 1 || !ran.err.contains("standard output") || !ran.err.contains("No space left") {
                silent.push(format!("{words:?}, json {json}: {ran:?}"));
            }
            assert!(!ran.err.contains("panicked"), "{words:?}: {ran:?}");
        }
    }
    assert!(silent.is_empty(), "{} of {}: {silent:#?}", silent.len(), 2 * COMMANDS.len());
}

/// A reader that closed the pipe, as `head` does, is not an error: no message, and the exit code of the command.
#[test]
fn closed_output_pipe_is_not_an_error() {
    let site = Stocked::new();
    for words in COMMANDS {
        for json in [false, true] {
            let ran = site.run(words, json, closed());
            assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
            assert!(!ran.err.contains("chat:") && !ran.err.contains("error"), "{words:?}: {ran:?}");
        }
    }
    let ran = site.run(&["session", "show", crate::site::NOBODY], false, closed());
    assert_eq!(ran.code, 3, "{ran:?}");
}

/// A conversation ends with an error if its output is incomplete; the messages are stored.
#[cfg(target_os = "linux")]
#[test]
fn chat_fails_if_its_output_is_cut_off() {
    let site = Site::new("sqlite");
    site.send("first");
    fs::write(site.path().join("said"), "second\nthird\n").unwrap();
    let talk = |out: Stdio| -> Ran {
        let messages = fs::File::open(site.path().join("said")).unwrap();
        site.command(&[]).stdin(messages).stdout(out).stderr(Stdio::piped()).output().unwrap().into()
    };
    let ran = talk(full());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("standard output") && ran.err.contains("No space left"), "{ran:?}");
    let ran = talk(closed());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.err.contains("standard output"), "{ran:?}");
    let list = site.json(&["session", "list"]);
    let shown = site.ok(&["session", "show", list["items"][0]["id"].as_str().unwrap()]);
    assert!(shown.contains("laptop: second") && shown.contains("agent: second"), "{shown}");
}

/// A command that fails, and whose output is incomplete, reports both.
#[cfg(target_os = "linux")]
#[test]
fn damage_and_output_errors_are_both_reported() {
    let mut site = Stocked::new();
    let raw = rusqlite::Connection::open(site.site.path().join("data.db")).unwrap();
    raw.execute_batch("UPDATE events SET json = replace(json, 'hello', 'hullo')").unwrap();
    raw.close().unwrap();
    site.bytes = fs::read(site.site.path().join("data.db")).unwrap();
    let ran = site.run(&["verify"], false, full());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("damaged") && ran.err.contains("standard output"), "{ran:?}");
    assert_eq!(site.run(&["verify"], false, closed()).code, 5);
}

/// A failed export leaves no incomplete file: the same command works when there is space.
#[test]
fn an_export_that_fails_leaves_no_file() {
    let site = Stocked::new();
    let file = site.site.path().join("out.json");
    let program = env!("CARGO_BIN_EXE_chat");
    let id = &site.fork;
    let (store, to) = (site.site.address(), file.display());
    let long = site.site.typed(&["--session", id], &format!("{}\n", "x".repeat(200_000)));
    assert_eq!(long.code, 0);
    // In blocks of 512 bytes. The signal that a write beyond it raises ends nothing.
    let limited =
        format!("ulimit -f 100; exec {program} session export {id} --store '{store}' --output '{to}'");
    let ran: Ran = Command::new("sh").arg("-c").arg(limited).output().unwrap().into();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("cannot write"), "{ran:?}");
    assert!(!file.exists(), "half a document is left");
    site.site.ok(&["session", "export", id, "--output", file.to_str().unwrap()]);
    let deletion = format!("ulimit -f 100; exec {program} tenant delete default --yes --store '{store}'");
    let ran: Ran = Command::new("sh").arg("-c").arg(deletion).output().unwrap().into();
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("ulimit -f"), "{ran:?}");
}
