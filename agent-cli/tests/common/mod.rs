//! Chats in real processes, and checks of the sessions that they leave.

#![allow(dead_code, clippy::print_stdout, reason = "each test file uses a part of it; a seed is printed")]

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use agent_core::event::{Event, EventPayload, ToolOutcome};
use agent_core::model::CallId;
use agent_core::session::SessionRecord;
use agent_core::state::{SessionState, TriggerKind};
use agent_core::store::SessionQuery;
use agent_core::{Seq, SessionStoreExt, Storage};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteStore;
use futures::TryStreamExt;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Path of the program: of this package, or of a package of tests with another store.
pub(crate) const PROGRAM: &str = match (
    option_env!("CARGO_BIN_EXE_chat"),
    option_env!("CARGO_BIN_EXE_chat-with-s3"),
    option_env!("CARGO_BIN_EXE_chat-with-postgres"),
) {
    (Some(program), ..) | (_, Some(program), _) | (.., Some(program)) => program,
    _ => panic!("these tests belong to a package with the program"),
};

/// Deadline after which a test fails as stuck. No test measures it.
const STUCK: Duration = Duration::from_secs(60);

/// Chat in its own process; killed when dropped.
pub(crate) struct Chat {
    child: Child,
    stdin: Option<Box<dyn Write + Send>>,
    pub(crate) out: Output,
    pub(crate) err: Output,
}

/// Output of a process so far.
#[derive(Clone, Default)]
pub(crate) struct Output(Arc<(Mutex<Printed>, Condvar)>);

#[derive(Default)]
struct Printed {
    bytes: Vec<u8>,
    ended: bool,
}

impl Output {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let output = Self::default();
        let shared = output.0.clone();
        thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            loop {
                let read = pipe.read(&mut buffer).unwrap_or(0);
                let mut printed = shared.0.lock().unwrap();
                printed.bytes.extend(&buffer[..read]);
                printed.ended = read == 0;
                shared.1.notify_all();
                if read == 0 {
                    break;
                }
            }
        });
        output
    }

    /// Returns the output so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().unwrap().bytes).into_owned()
    }

    /// Waits for the end of the process, and returns its output.
    pub(crate) fn all(&self) -> Vec<u8> {
        let (lock, changed) = &*self.0;
        let (printed, late) = changed.wait_timeout_while(lock.lock().unwrap(), STUCK, |p| !p.ended).unwrap();
        let bytes = printed.bytes.clone();
        drop(printed);
        assert!(!late.timed_out(), "the output does not end: {}", String::from_utf8_lossy(&bytes));
        bytes
    }

    /// Waits until the output contains `text`.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_for_times(text, 1);
    }

    /// Waits until the output contains `text` this number of times.
    #[track_caller]
    pub(crate) fn wait_for_times(&self, text: &str, times: usize) {
        let (lock, changed) = &*self.0;
        let lacks =
            |p: &mut Printed| String::from_utf8_lossy(&p.bytes).matches(text).count() < times && !p.ended;
        let (printed, late) = changed.wait_timeout_while(lock.lock().unwrap(), STUCK, lacks).unwrap();
        let found = String::from_utf8_lossy(&printed.bytes).matches(text).count();
        assert!(
            found >= times,
            "waited for {text:?} {times} times{}; printed was:\n{}",
            if late.timed_out() { " until it was late" } else { ", but the output has ended" },
            String::from_utf8_lossy(&printed.bytes)
        );
    }
}

/// Returns the program on the data in `folder`, as the device `laptop`.
fn program(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    match database(folder) {
        Some(path) => command.arg("--store").arg(format!("sqlite:{}", path.display())),
        None => command.arg("--data-dir").arg(folder),
    };
    // Local time, width and styles of the terminal are those of no machine.
    command.env("TZ", "UTC").env_remove("COLUMNS").env_remove("NO_COLOR");
    command.args(["--device", "laptop"]).args(options);
    command
}

/// Returns a new terminal, and what a process has as its standard streams.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    (terminal.into(), File::options().read(true).write(true).open(name).unwrap())
}

impl Chat {
    /// Starts a chat on the data in `folder`, as the device `laptop`.
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        Self::spawn(program(folder, options))
    }

    /// Starts the same on a terminal, which shows standard error, too.
    pub(crate) fn on_terminal(folder: &Path, options: &[&str]) -> Self {
        Self::spawn_on_terminal(program(folder, options))
    }

    /// Starts the same with the variable that asks for no colours.
    pub(crate) fn without_styles(folder: &Path) -> Self {
        let mut command = program(folder, &[]);
        command.env("NO_COLOR", "1");
        Self::spawn_on_terminal(command)
    }

    /// Starts a process on a terminal.
    pub(crate) fn spawn_on_terminal(mut command: Command) -> Self {
        let (terminal, shown) = terminal();
        command.env("TERM", "xterm").stdin(shown.try_clone().unwrap()).stderr(shown.try_clone().unwrap());
        let child = command.stdout(shown).spawn().expect("the process starts");
        let stdin: Box<dyn Write + Send> = Box::new(terminal.try_clone().unwrap());
        Self { child, stdin: Some(stdin), out: Output::of(terminal), err: Output::of(std::io::empty()) }
    }

    /// Starts the same with a pipe as its input, and a terminal as its standard output.
    pub(crate) fn with_terminal_output(folder: &Path, options: &[&str]) -> Self {
        Self::shown(program(folder, options))
    }

    /// Starts the same with a terminal of this number of columns as its standard output.
    pub(crate) fn on_columns(folder: &Path, options: &[&str], columns: &str) -> Self {
        let mut command = program(folder, options);
        command.env("COLUMNS", columns);
        Self::shown(command)
    }

    fn shown(mut command: Command) -> Self {
        let (terminal, shown) = terminal();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(shown)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the process starts");
        let err = Output::of(child.stderr.take().unwrap());
        Self {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
            out: Output::of(terminal),
            err,
            child,
        }
    }

    /// Starts a process.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the process starts");
        Self {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
            out: Output::of(child.stdout.take().unwrap()),
            err: Output::of(child.stderr.take().unwrap()),
            child,
        }
    }

    /// Types a line.
    pub(crate) fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("the input is open");
        // A write to a killed process fails; the output shows that.
        let _ = stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
    }

    /// Types a part of a line.
    pub(crate) fn type_in(&mut self, part: &str) {
        self.stdin.as_mut().expect("the input is open").write_all(part.as_bytes()).expect("it is read");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    /// Kills the process with SIGKILL, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the process is there");
        self.child.wait().expect("the process ends");
    }

    /// Both send a message on one conversation, see that of the other with its answer, and end.
    pub(crate) fn talk_with(&mut self, other: &mut Self) {
        self.err.wait_for("data in ");
        other.err.wait_for("data in ");
        self.send("from one");
        self.out.wait_for("from one\n");
        other.err.wait_for("laptop: from one\n");
        other.err.wait_for("agent: from one\n");
        other.send("from two");
        other.out.wait_for("from two\n");
        self.err.wait_for("laptop: from two\n");
        self.err.wait_for("agent: from two\n");
        other.send("/history");
        other.out.wait_for("laptop: from one\nagent: from one\nlaptop: from two\nagent: from two\n");
        assert_eq!((self.finish(), other.finish()), (0, 0), "{}{}", self.err.text(), other.err.text());
    }

    /// Closes the input, and waits for the end. Returns the exit code.
    pub(crate) fn finish(&mut self) -> i32 {
        self.stdin = None;
        self.wait()
    }

    /// Waits for the end, with the input still open. Returns the exit code.
    pub(crate) fn wait(&mut self) -> i32 {
        self.out.all();
        self.err.all();
        self.child.wait().expect("the process ends").code().expect("it was not killed")
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Random number generator. Its seed is printed, and can be set in `AGENT_TEST_SEED`.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        let seed = match std::env::var("AGENT_TEST_SEED") {
            Ok(seed) => seed.parse().expect("AGENT_TEST_SEED is a number"),
            Err(_) => agent_core::clock::Effects::default().random_u64(),
        };
        println!("AGENT_TEST_SEED={seed}");
        Self(seed)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// Returns two data folders: one for files, one for a database file.
pub(crate) fn homes() -> [TempDir; 2] {
    [".files", ".sqlite"].map(|suffix| tempfile::Builder::new().suffix(suffix).tempdir().expect("a folder"))
}

/// Returns the database file in a folder, if the folder is for one.
pub(crate) fn database(folder: &Path) -> Option<PathBuf> {
    (folder.extension()? == "sqlite").then(|| folder.join("agent.db"))
}

/// Opens the store in `folder` in the test process.
pub(crate) async fn storage(folder: &Path) -> Storage {
    if let Some(path) = database(folder) {
        return SqliteStore::open(path).await.expect("the store opens").into();
    }
    FsConfig::new(folder).open().await.expect("the store opens").into()
}

/// Session as another process finds it: its record and its whole log, checked against each other.
pub(crate) struct Found {
    pub(crate) session: Arc<SessionRecord>,
    pub(crate) events: Vec<Event>,
}

/// Returns the only session in `folder`.
pub(crate) async fn found(folder: &Path) -> Found {
    let sessions = storage(folder).await.sessions;
    let page = sessions.list(SessionQuery::new()).await.expect("the sessions are listed");
    assert_eq!(page.damaged, [], "damage");
    assert_eq!(page.items.len(), 1, "one session");
    let session = sessions.load(page.items[0].id).await.expect("the session loads");
    let events: Vec<_> = sessions.events(session.id, Seq::ZERO).try_collect().await.expect("the log is read");
    check(&session, &events);
    Found { session, events }
}

/// Checks properties that every log has, whatever happened to its writers.
pub(crate) fn check(session: &SessionRecord, events: &[Event]) {
    let mut folded = SessionRecord::begin(session.id, &events[0]).expect("the log begins");
    let (mut ids, mut commits) = (HashSet::new(), HashMap::new());
    let (mut open, mut done) = (HashSet::<CallId>::new(), HashSet::<(Seq, CallId)>::new());
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event.seq, Seq::new(at as u64 + 1), "no gap");
        assert!(ids.insert(event.id()), "event {} is there twice", event.seq);
        let (of, seen) = commits.entry(event.commit).or_insert((event.of, 0));
        *seen += 1;
        assert_eq!((event.n, event.of), (*seen, *of), "the commit of event {} is whole", event.seq);
        if at > 0 {
            folded.apply(event).expect("the log folds");
        }
        match event.decode().expect("the payload is readable") {
            EventPayload::AgentToolUse(call) => assert!(open.insert(call.call), "the call was not open"),
            EventPayload::AgentToolResult(result) => {
                assert!(open.remove(&result.call), "the result at {} has its call", event.seq);
                done.insert((event.seq, result.call));
            }
            _ => {}
        }
    }
    for (of, seen) in commits.values() {
        assert_eq!(of, seen, "each commit is whole");
    }
    assert_eq!(&folded, session, "the record is the fold of the log");
    if session.status.state != SessionState::Running {
        assert!(open.is_empty(), "calls without a result: {open:?}");
    }
}

impl Found {
    /// Returns the user messages, in order.
    pub(crate) fn prompts(&self) -> Vec<String> {
        self.texts(|body| match body {
            EventPayload::UserMessage(message) => Some(message.text),
            _ => None,
        })
    }

    /// Returns the agent's messages, in order.
    pub(crate) fn answered(&self) -> Vec<String> {
        self.texts(|body| match body {
            EventPayload::AgentMessage(message) => Some(message.text),
            _ => None,
        })
    }

    fn texts(&self, pick: impl Fn(EventPayload) -> Option<String>) -> Vec<String> {
        self.events.iter().filter_map(|event| pick(event.decode().unwrap())).collect()
    }

    /// Returns the outcomes of the tool calls, in order.
    pub(crate) fn outcomes(&self) -> Vec<ToolOutcome> {
        let outcome = |event: &Event| match event.decode().unwrap() {
            EventPayload::AgentToolResult(result) => Some(result.outcome),
            _ => None,
        };
        self.events.iter().filter_map(outcome).collect()
    }

    /// Returns the events by which a run was taken over from a dead holder.
    pub(crate) fn take_overs(&self) -> Vec<&Event> {
        let taken = |event: &&Event| {
            let Some(change) = event.transition().unwrap() else { return false };
            // If the next run begins in the same commit, both are one change.
            change.from == SessionState::Running
                && matches!(change.trigger, TriggerKind::LeaseExpired | TriggerKind::BeginRun)
        };
        self.events.iter().filter(taken).collect()
    }

    /// Returns the events whose status changed by this trigger.
    pub(crate) fn triggers(&self, kind: TriggerKind) -> Vec<&Event> {
        self.events
            .iter()
            .filter(|event| event.transition().unwrap().is_some_and(|change| change.trigger == kind))
            .collect()
    }
}
