//! Servers that are child processes: how they are started, watched and ended.

use std::collections::VecDeque;
use std::env;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::{Dispatch, debug, dispatcher};

use crate::hub::Groups;

/// Time between the end of a server's input and its kill.
const GRACE: Duration = Duration::from_secs(2);
/// Time in which the system reports the end of a killed process.
const REAPING: Duration = Duration::from_secs(1);
/// Bytes that are kept of a server's standard error. What is shown is less, so that no half of a secret is.
const KEPT_MAX_BYTES: usize = 16 << 10;

/// Variables that a server inherits: what programs need to work, and no keys of the host.
const INHERITED: [&str; 27] = [
    "APPDATA",
    "COMSPEC",
    "HOME",
    "HOMEDRIVE",
    "HOMEPATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOCALAPPDATA",
    "LOGNAME",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SHELL",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// Child process. It is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    end: Option<oneshot::Sender<()>>,
    /// How it ended, if it did.
    ended: watch::Receiver<Option<Ending>>,
    stderr: Stderr,
}

/// How a process ended; `None` if the system does not say it.
pub(crate) type Ending = Option<ExitStatus>;

/// Last bytes of a standard error, and whether it is still read.
#[derive(Clone, Debug)]
struct Stderr {
    last: Arc<Mutex<VecDeque<u8>>>,
    /// Closed when all was read.
    open: watch::Receiver<()>,
}

/// Ends of the pipes of a child process.
pub(crate) struct Pipes {
    pub(crate) input: ChildStdin,
    pub(crate) output: ChildStdout,
}

impl ChildProcess {
    /// Starts a program in a process group of its own. Called on the thread of the connections.
    pub(crate) fn start(
        server: &str,
        (command, args, cwd): (&str, &[String], Option<&Path>),
        env: &[(String, SecretString)],
        groups: &Arc<Groups>,
        log: &Dispatch,
    ) -> io::Result<(Self, Pipes)> {
        let mut program = Command::new(command);
        program.args(args).env_clear().kill_on_drop(true);
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in INHERITED {
            if let Some(value) = env::var_os(name) {
                program.env(name, value);
            }
        }
        for (name, value) in env {
            program.env(name, value.expose_secret());
        }
        if let Some(cwd) = cwd {
            program.current_dir(cwd);
        }
        #[cfg(unix)]
        program.process_group(0);
        let mut child = program.spawn()?;
        let group = child.id().map(|process| {
            groups.add(process);
            (groups.clone(), process)
        });
        let (reading, open) = watch::channel(());
        let stderr = Stderr { last: Arc::default(), open };
        if let Some(pipe) = child.stderr.take() {
            tokio::spawn(drain(server.to_owned(), pipe, log.clone(), stderr.last.clone(), reading));
        }
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (end, asked) = oneshot::channel();
        let (sender, ended) = watch::channel(None);
        tokio::spawn(keep(child, group, asked, sender));
        match (input, output) {
            (Some(input), Some(output)) => {
                Ok((Self { end: Some(end), ended, stderr }, Pipes { input, output }))
            }
            _ => Err(io::Error::other("the process has no pipes")),
        }
    }

    /// Returns when the process has ended.
    pub(crate) async fn ended(&self) {
        // An error means that the task has ended, and with it the process.
        let _ = self.ended.clone().wait_for(Option::is_some).await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.borrow().is_some() || self.ended.has_changed().is_err()
    }

    /// Returns how the process ended, if it did, and the last bytes that it wrote to its standard error. Waits at most so
    /// long for its end, and for the end of these, which others may hold open.
    pub(crate) async fn last_words(&self, wait: Duration) -> (Ending, Vec<u8>) {
        let mut open = self.stderr.open.clone();
        let all = async {
            self.ended().await;
            while open.changed().await.is_ok() {}
        };
        let _ = timeout(wait, all).await;
        let ending = self.ended.borrow().flatten();
        let last = self.stderr.last.lock().unwrap_or_else(PoisonError::into_inner);
        (ending, last.iter().copied().collect())
    }

    /// Ends the process, whose input was closed, and returns when it has ended.
    pub(crate) async fn end(mut self) {
        drop(self.end.take());
        self.ended().await;
    }
}

/// Group of a process, which is killed when this is dropped.
struct Group((Arc<Groups>, u32));

impl Drop for Group {
    fn drop(&mut self) {
        let (groups, process) = &self.0;
        groups.end(*process);
    }
}

/// Waits for the end of a process, or for the wish to end it; then kills what is left of its group.
async fn keep(
    mut child: Child,
    group: Option<(Arc<Groups>, u32)>,
    mut asked: oneshot::Receiver<()>,
    sender: watch::Sender<Option<Ending>>,
) {
    let _kept = group.as_ref().map(|(groups, _)| groups.keep());
    let group = group.map(Group);
    tokio::select! {
        _ = child.wait() => {}
        _ = &mut asked => drop(timeout(GRACE, child.wait()).await),
    }
    drop(group);
    let _ = child.start_kill();
    let ending = timeout(REAPING, child.wait()).await.ok().and_then(Result::ok);
    sender.send_replace(Some(ending));
}

/// Reads what a server writes to its standard error, so that it is not held up. Logs how much it was, and keeps the last
/// of it.
async fn drain(
    server: String,
    mut stderr: ChildStderr,
    log: Dispatch,
    last: Arc<Mutex<VecDeque<u8>>>,
    _reading: watch::Sender<()>,
) {
    let (mut buffer, mut bytes) = ([0; 4096], 0_u64);
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        if bytes == 0 {
            dispatcher::with_default(&log, || debug!(server, "an MCP server writes to its standard error"));
        }
        bytes += count as u64;
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        last.extend(&buffer[..count]);
        let more = last.len().saturating_sub(KEPT_MAX_BYTES);
        last.drain(..more);
    }
    if bytes > 0 {
        dispatcher::with_default(&log, || debug!(server, bytes, "an MCP server wrote to its standard error"));
    }
}
