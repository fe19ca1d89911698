//! A folder, and the program at work on it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use agent_core::Storage;
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use serde_json::Value;
use tempfile::TempDir;

/// The kinds of stores on which everything is tried.
pub(crate) const KINDS: [&str; 2] = ["files", "sqlite"];

/// A store.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    kind: &'static str,
}

/// What a process came to.
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

    /// The store's address.
    pub(crate) fn address(&self) -> String {
        match self.kind {
            "files" => format!("files:{}/data?sync=off", self.path().display()),
            _ => format!("sqlite:{}/data.db?sync=off", self.path().display()),
        }
    }

    /// The store, opened by the test itself.
    pub(crate) async fn open(&self) -> Storage {
        match self.kind {
            "files" => FsStore::open(self.path().join("data")).await.unwrap().into(),
            _ => SqliteStore::open(self.path().join("data.db")).await.unwrap().into(),
        }
    }

    /// The program, with this store and as the device `laptop`.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
        for name in ["ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"] {
            command.env_remove(name);
        }
        let address = self.address();
        command.args(args).args(["--store", &address, "--device", "laptop"]).stdin(Stdio::null());
        // Whatever a test writes to a relative path stays in its folder.
        command.current_dir(self.path());
        // Where the user's own data would be.
        command.env("HOME", self.path()).env_remove("XDG_DATA_HOME");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// What it prints, where all goes well.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }

    /// The JSON that it prints, where all goes well.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["--json"]].concat());
        assert_eq!(out.matches('\n').count(), 1, "one line: {out}");
        serde_json::from_str(&out).unwrap()
    }

    /// Checks that it fails so, and says this: in words, and as JSON with the same code and nothing on standard output.
    #[track_caller]
    pub(crate) fn fails(&self, args: &[&str], code: i32, says: &str) {
        let ran = self.run(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.err.contains(says), "{args:?}: {ran:?}");
        for rust in ["panicked", "Error {", "kind:", "Some("] {
            assert!(!ran.err.contains(rust), "it is for a person: {ran:?}");
        }
        // A wrong command line is found before anybody knows how to say so.
        if code != 2 {
            let ran = self.run(&[args, &["--json"]].concat());
            assert_eq!(ran.code, code, "{args:?}: {ran:?}");
            let last = ran.err.lines().last().unwrap();
            let error: Value = serde_json::from_str(last).unwrap();
            assert!(error["error"]["message"].is_string() && error["error"]["kind"].is_string(), "{error}");
        }
    }

    /// What it comes to if this is typed, without a terminal.
    pub(crate) fn typed(&self, args: &[&str], text: &str) -> Ran {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // One that has ended reads nothing.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes());
        child.wait_with_output().unwrap().into()
    }

    /// Says something in the device's conversation; returns its session and workspace.
    pub(crate) fn say(&self, text: &str) -> (String, String) {
        let ran = self.typed(&[], &format!("{text}\n"));
        assert_eq!(ran.code, 0, "{ran:?}");
        let list = self.json(&["session", "list", "--limit", "1"]);
        let text = |name: &str| list["items"][0][name].as_str().unwrap().to_owned();
        (text("id"), text("workspace"))
    }
}

/// An id that nothing has.
pub(crate) const NOBODY: &str = "019c60d9-9c41-715c-8289-ec2d0a9167ec";
