//! Servers that are child processes: how they are started, watched and ended.

use std::env;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::{Dispatch, debug, dispatcher};

use crate::hub::Groups;

/// Time between the end of a server's input and its kill.
const GRACE: Duration = Duration::from_secs(2);
/// Time in which the system reports the end of a killed process.
const REAPING: Duration = Duration::from_secs(1);

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
    ended: watch::Receiver<bool>,
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
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(drain(server.to_owned(), stderr, log.clone()));
        }
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (end, asked) = oneshot::channel();
        let (tell, ended) = watch::channel(false);
        tokio::spawn(keep(child, group, asked, tell));
        match (input, output) {
            (Some(input), Some(output)) => Ok((Self { end: Some(end), ended }, Pipes { input, output })),
            _ => Err(io::Error::other("the process has no pipes")),
        }
    }

    /// Returns when the process has ended.
    pub(crate) async fn ended(&self) {
        // An error says that the task is gone, and with it the process.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow() || self.ended.has_changed().is_err()
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
    tell: watch::Sender<bool>,
) {
    let _kept = group.as_ref().map(|(groups, _)| groups.keep());
    let group = group.map(Group);
    tokio::select! {
        _ = child.wait() => {}
        _ = &mut asked => drop(timeout(GRACE, child.wait()).await),
    }
    drop(group);
    let _ = child.start_kill();
    let _ = timeout(REAPING, child.wait()).await;
    tell.send_replace(true);
}

/// Reads what a server writes to its standard error, so that it is not held up. Logs how much it was.
async fn drain(server: String, mut stderr: ChildStderr, log: Dispatch) {
    let (mut buffer, mut bytes) = ([0; 4096], 0_u64);
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        if bytes == 0 {
            dispatcher::with_default(&log, || debug!(server, "an MCP server writes to its standard error"));
        }
        bytes += count as u64;
    }
    if bytes > 0 {
        dispatcher::with_default(&log, || debug!(server, bytes, "an MCP server wrote to its standard error"));
    }
}

/// Output of a server that ends at a line that is too long: the answer in it would never come.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    inner: R,
    /// Bytes since the last line break.
    line: usize,
    most: usize,
}

impl<R> Lines<R> {
    pub(crate) const fn new(inner: R, most: usize) -> Self {
        Self { inner, line: 0, most }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => {}
            other => return other,
        }
        let (mut line, mut is_too_long) = (self.line, false);
        for piece in buf.filled()[start..].split_inclusive(|byte| *byte == b'\n') {
            line += piece.len();
            is_too_long |= line > self.most;
            if piece.ends_with(b"\n") {
                line = 0;
            }
        }
        if is_too_long {
            // With an error, nothing may be read.
            buf.set_filled(start);
            return Poll::Ready(Err(io::Error::other("a message is too large")));
        }
        self.line = line;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_ends_the_output() {
        let text = format!("{}\n{}\n{}", "a".repeat(9), "b".repeat(9), "c".repeat(10));
        let mut whole = String::new();
        Lines::new(text.as_bytes(), 10).read_to_string(&mut whole).await.unwrap();
        assert_eq!(whole, text);
        assert!(Lines::new(text.as_bytes(), 9).read_to_string(&mut String::new()).await.is_err());
    }
}
