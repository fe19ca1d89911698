//! A process that does a task: it is started, given orders and ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bench_worker::{Round, Task};

use super::contenders::Contender;
use crate::outcome::Outcome;

/// A process with a task that is prepared.
pub(super) struct Process {
    name: String,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process in a new folder, and waits until the task is prepared; `None` if its library has nothing for it.
    ///
    /// With a log, the calls of the process that sync are written to it, if `strace` is installed.
    pub(super) fn start(
        contender: &Contender,
        folder: &Path,
        task: Task,
        log: Option<&Path>,
    ) -> Outcome<Option<Self>> {
        std::fs::create_dir_all(folder)?;
        let mut command = match log.filter(|_| has_strace()) {
            Some(log) => {
                let mut command = strace(log);
                command.arg(&contender.program);
                command
            }
            None => Command::new(&contender.program),
        };
        command.args(&contender.arguments).arg(folder).args([task.name(), &task.size().to_string()]);
        command.envs(contender.with.clone());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or("no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut process = Self { name: contender.name.clone(), child, orders, answers };
        match process.answer()?.as_str() {
            "ready" => Ok(Some(process)),
            "none" => process.end().map(|()| None),
            other => Err(format!("{}, {task:?}: {other}", process.name).into()),
        }
    }

    fn answer(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("{}: the process ended with {}", self.name, self.child.wait()?).into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Does the task this many times.
    pub(super) fn round(&mut self, times: u32) -> Outcome<Round> {
        writeln!(self.orders, "{times}")?;
        let answer = self.answer()?;
        answer.parse().map_err(|error| format!("{}: {error}", self.name).into())
    }

    /// Ends the process, which must succeed.
    pub(super) fn end(self) -> Outcome {
        let Self { name, mut child, orders, mut answers } = self;
        drop(orders);
        let mut last = String::new();
        answers.read_to_string(&mut last)?;
        let status = child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{name}: the process ended with {status}: {}", last.trim_end()).into())
    }
}

/// Returns the command that writes the calls which sync to a log.
fn strace(log: &Path) -> Command {
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-e", "trace=fsync,fdatasync,msync,sync,syncfs,sync_file_range", "-o"])
        .arg(log);
    command
}

/// A trace of the server's processes that are started while it lasts: those of the connections that are made meanwhile.
pub(super) struct ServerTrace(Child);

impl ServerTrace {
    /// Begins a trace of the server with this process, if `strace` is installed.
    pub(super) fn start(server: u32, log: &Path) -> Outcome<Option<Self>> {
        if !has_strace() {
            return Ok(None);
        }
        let mut trace = Self(strace(log).args(["-p", &server.to_string()]).spawn()?);
        for _ in 0..1_000 {
            let status = std::fs::read_to_string(format!("/proc/{server}/status"))?;
            if status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
                return Ok(Some(trace));
            }
            if let Some(status) = trace.0.try_wait()? {
                return Err(format!("the server cannot be traced: strace ended with {status}").into());
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Err("the server is not traced after 10 s".into())
    }
}

impl Drop for ServerTrace {
    fn drop(&mut self) {
        // Without the process that traces it, the server goes on.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether `strace` is installed.
pub(super) fn has_strace() -> bool {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}
