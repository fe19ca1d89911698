//! Chat on a database file. The tests of kills and of two chats run on both kinds of stores.

use std::path::Path;
use std::process::Command;

use crate::common::Chat;

fn start(file: &Path, options: &[&str]) -> Chat {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
    command
        .arg("--store")
        .arg(format!("sqlite:{}", file.display()))
        .args(["--device", "laptop"])
        .args(options);
    Chat::spawn(command)
}

/// A wrong option, and a file that is not a database, are refused.
#[test]
fn non_database_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "these are my notes, and no database\n".repeat(40)).unwrap();
    let before = std::fs::read(&file).unwrap();
    let mut chat = start(&file, &[]);
    assert_eq!(chat.finish(), 1);
    assert!(chat.err.text().contains("notes.txt"), "{}", chat.err.text());
    assert_eq!(std::fs::read(&file).unwrap(), before, "it is as it was");
    let mut chat = start(Path::new("x.db?speed=fast"), &[]);
    assert_eq!(chat.finish(), 2);
    assert!(chat.err.text().contains("busy_timeout_ms"), "it names the known ones: {}", chat.err.text());
}
