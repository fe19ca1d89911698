//! Stores without write permission.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::site::{KINDS, Ran, Site};

/// User without write permission. The tests may run as root, who can write everything.
const NOBODY: u32 = 65_534;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn all(folder: &Path, folders: u32, files: u32) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            mode(&path, 0o755);
            all(&path, folders, files);
        } else if path.file_name().unwrap() != "chat" {
            mode(&path, files);
        }
    }
    mode(folder, folders);
}

fn as_nobody(site: &Site, args: &[&str], stdin: &str) -> Ran {
    let mut command = Command::new(site.path().join("chat"));
    command.args(args).args(["--store", &site.address(), "--device", "laptop"]).current_dir("/");
    command.env("HOME", "/nonexistent").env_remove("XDG_DATA_HOME");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), stdin.as_bytes());
    child.wait_with_output().unwrap().into()
}

/// Commands that read work on a read-only store. Commands that write fail with the path of the store and a remedy.
#[test]
fn reads_work_on_a_read_only_store() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("hello");
        let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_chat")).arg(site.path().join("chat")).status();
        assert!(copy.unwrap().success());
        let note = site.path().join("note");
        fs::write(&note, "a note").unwrap();
        site.ok(&["area", "put", &workspace, "memory", "a", note.to_str().unwrap()]);
        let elsewhere = tempfile::tempdir().unwrap();
        mode(elsewhere.path(), 0o777);
        let there = format!("sqlite:{}/copy.db", elsewhere.path().display());
        let here = site.address();
        for files in [0o644, 0o444] {
            all(site.path(), 0o555, files);
            for args in [
                vec!["workspace", "list"],
                vec!["workspace", "show", &workspace],
                vec!["session", "list", "--all"],
                vec!["session", "show", &main],
                vec!["session", "export", &main],
                vec!["area", "list", &workspace, "memory"],
                vec!["area", "get", &workspace, "memory", "a"],
                vec!["device", "list"],
                vec!["config", "show"],
                vec!["audit"],
                vec!["verify"],
                vec!["copy", &here, &there],
            ] {
                let ran = as_nobody(&site, &args, "");
                assert_eq!(ran.code, 0, "{kind} {files:o}: {args:?}: {ran:?}");
            }
            for args in [
                vec!["session", "pin", &main, "--why", "x"],
                vec!["session", "fork", &main],
                vec!["workspace", "create", "--name", "a"],
                vec!["device", "bind", "phone", &workspace],
                vec![],
            ] {
                let ran = as_nobody(&site, &args, "hello\n");
                assert_eq!(ran.code, 1, "{kind} {files:o}: {args:?}: {ran:?}");
                let output = ran.err.to_lowercase();
                assert!(output.contains("data"), "{kind} {files:o}: {args:?}: {ran:?}");
                let message = if kind == "sqlite" { "read-only" } else { "permission" };
                assert!(output.contains(message), "{kind} {files:o}: {args:?}: {ran:?}");
            }
            let names = fs::read_dir(site.path()).unwrap().map(|it| it.unwrap().file_name());
            let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            assert!(!names.iter().any(|name| name.ends_with("-wal")), "{names:?}");
            all(site.path(), 0o755, 0o644);
        }
    }
}

/// If the index cannot be read, no new session is created, because the old one may exist.
#[test]
fn unreadable_index_creates_no_new_session() {
    let site = Site::new("files");
    let (main, workspace) = site.send("hello");
    let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_chat")).arg(site.path().join("chat")).status();
    assert!(copy.unwrap().success());
    mode(site.path(), 0o755);
    if rustix::process::geteuid().is_root() {
        let owner = format!("{NOBODY}:{NOBODY}");
        assert!(
            Command::new("chown")
                .arg("-R")
                .arg(owner)
                .arg(site.path().join("data"))
                .status()
                .unwrap()
                .success()
        );
    }
    let here = site.path().join("data/workspaces").join(&workspace);
    fs::rename(here.join("sessions").join(&main), site.path().join("aside")).unwrap();
    drop(fs::remove_file(here.join("session.md")));
    let index = site.path().join("data/index");
    for closed in [index.join("sessions"), index] {
        mode(&closed, 0o000);
        let output = as_nobody(&site, &[], "again\n");
        let seen = as_nobody(&site, &["verify"], "");
        mode(&closed, 0o700);
        assert_eq!(output.code, 1, "{}: {output:?}", closed.display());
        assert_eq!(seen.code, 5, "{}: {seen:?}", closed.display());
        assert!(!here.join("sessions").join(&main).exists(), "{}", closed.display());
    }
}
