//! Store in a temporary folder, and runs of the program on it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use agent_core::Storage;
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use serde_json::Value;
use tempfile::TempDir;

/// Kinds of stores on which the tests run.
pub(crate) const KINDS: [&str; 2] = ["files", "sqlite"];

/// Store in a temporary folder.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    kind: &'static str,
}

/// Result of a process.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Site {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), kind }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the address of the store.
    pub(crate) fn address(&self) -> String {
        match self.kind {
            "files" => format!("files:{}/data?sync=off", self.path().display()),
            _ => format!("sqlite:{}/data.db?sync=off", self.path().display()),
        }
    }

    /// Opens the store in the test process.
    pub(crate) async fn open(&self) -> Storage {
        match self.kind {
            "files" => FsStore::open(self.path().join("data")).await.unwrap().into(),
            _ => SqliteStore::open(self.path().join("data.db")).await.unwrap().into(),
        }
    }

    /// Returns the program with this store, as the device `laptop`.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_on("laptop", args)
    }

    fn command_on(&self, device: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
        for name in ["ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"] {
            command.env_remove(name);
        }
        let address = self.address();
        command.args(args).args(["--store", &address, "--device", device]).stdin(Stdio::null());
        // Relative paths are in the test's folder.
        command.current_dir(self.path());
        // The data folder of the user is in the test's folder, too.
        command.env("HOME", self.path()).env_remove("XDG_DATA_HOME");
        // Local time is that of no machine.
        command.env("TZ", "UTC").env_remove("COLUMNS");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    /// Runs a command that must succeed, and returns its JSON output.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["--json"]].concat());
        assert_eq!(out.matches('\n').count(), 1, "one line: {out}");
        serde_json::from_str(&out).unwrap()
    }

    /// Checks that a command fails with this code and message, as text and as JSON.
    #[track_caller]
    pub(crate) fn fails(&self, args: &[&str], code: i32, expected: &str) {
        let ran = self.run(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.err.contains(expected), "{args:?}: {ran:?}");
        for rust in ["panicked", "Error {", "kind:", "Some("] {
            assert!(!ran.err.contains(rust), "it is for a person: {ran:?}");
        }
        // Errors in the command line are always text.
        if code != 2 {
            let ran = self.run(&[args, &["--json"]].concat());
            assert_eq!(ran.code, code, "{args:?}: {ran:?}");
            let last = ran.err.lines().last().unwrap();
            let error: Value = serde_json::from_str(last).unwrap();
            assert!(error["error"]["message"].is_string() && error["error"]["kind"].is_string(), "{error}");
        }
    }

    /// Runs the program with this standard input.
    pub(crate) fn typed(&self, args: &[&str], text: &str) -> Ran {
        self.typed_on("laptop", args, text)
    }

    /// Runs the program as a device with this standard input.
    pub(crate) fn typed_on(&self, device: &str, args: &[&str], text: &str) -> Ran {
        let mut command = self.command_on(device, args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A program that has ended reads nothing.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes());
        child.wait_with_output().unwrap().into()
    }

    /// Sends messages in the device's conversation; returns the ids of its session and workspace.
    pub(crate) fn send(&self, text: &str) -> (String, String) {
        let ran = self.typed(&[], &format!("{text}\n"));
        assert_eq!(ran.code, 0, "{ran:?}");
        let list = self.json(&["session", "list", "--limit", "1"]);
        let text = |name: &str| list["items"][0][name].as_str().unwrap().to_owned();
        (text("id"), text("workspace"))
    }
}

/// Id without an object.
pub(crate) const NOBODY: &str = "019c60d9-9c41-715c-8289-ec2d0a9167ec";
