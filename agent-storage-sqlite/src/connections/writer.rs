//! Writer thread: takes all waiting requests, commits them in one transaction, then answers.
//!
//! It owns its connection, so that neither a caller's dropped future nor the end of the host's runtime leaves a
//! transaction open.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use agent_core::store::Heads;
use agent_core::{Error, ErrorKind, OpenState, Result, WriteOutcome};
use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::{Access, SqliteConfig, Sync};
use crate::connections::blob_steps::BlobStep;
use crate::connections::pace::Pace;
use crate::connections::request::{Answer, Request, Task};
use crate::connections::space::{LOG_BYTES, Room};
use crate::error::{Fault, busy, corrupt, failed_to_write, gone, is_busy, is_io, log_is_used};
use crate::medium::files::Files;
use crate::medium::holder::Holder;
use crate::medium::known::Known;
use crate::medium::rows::{execute, first_number};
use crate::medium::threads::Threads;
use crate::medium::wait::Wait;
use crate::medium::{path, rewrites};
use crate::schema;

/// Most requests in one transaction. `GROUP_BYTES` limits the bytes, approximately.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 8 << 20;
/// Time for which other processes may delay a request that had to wait for its turn.
const MOMENT: Duration = Duration::from_millis(20);
/// Time for which requests that need no sync wait for one that does, to share its transaction. A host notes that a
/// workspace is in use when a turn begins, just before the first commit of the turn.
const COMPANY: Duration = Duration::from_millis(2);
/// Number of transactions between looks at the size of the write-ahead log.
const LOG_CHECK: u32 = 32;
/// Number of times that closing checks whether the log was removed, over about 20 ms. The log stays while other
/// processes have the file open. The count is the same if this thread has to wait for its turn.
const CLOSING: usize = 8;

/// Message to the writer.
enum Message {
    Task(Task),
    /// The store is closed.
    End,
}

/// Channel to the writer. When it is dropped, the thread finishes the waiting requests, and ends.
#[derive(Debug)]
pub(crate) struct Sender {
    messages: mpsc::Sender<Message>,
    thread: Threads,
    open: OpenState,
    busy_timeout: Duration,
}

impl Sender {
    /// Opens the file and starts the writer thread. Also returns the opened files and the access to them.
    pub(crate) async fn start(
        mut config: SqliteConfig,
        heads: Arc<Heads>,
        known: Known,
        open: OpenState,
    ) -> Result<(Self, Arc<Files>, Access)> {
        let (messages, received) = mpsc::channel();
        let busy_timeout = config.busy_timeout;
        let (ready, opened) = oneshot::channel();
        let state = open.clone();
        let run = move || match schema::open(&mut config) {
            Ok((conn, files)) => {
                let (files, access) = (Arc::new(files), config.access);
                let writer = Writer {
                    files: files.clone(),
                    heads,
                    holder: Holder::new(config.path.clone(), config.effects.clone()),
                    conn: (access == Access::Write).then_some(conn),
                    known,
                    version: None,
                    schema: None,
                    config,
                    transactions: 0,
                    given_up: Vec::new(),
                    open: state,
                };
                if ready.send(Ok((files, access))).is_ok() {
                    writer.run(&received);
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        let thread = Threads::default();
        thread.spawn("agent-sqlite-writer", "write with", run)?;
        let (files, access) = opened.await.map_err(|_| gone())??;
        Ok((Self { messages, thread, open, busy_timeout }, files, access))
    }

    /// Sends a request to the writer and waits for its answer. The request is executed even if the caller is dropped
    /// meanwhile.
    pub(crate) async fn ask(&self, tenant: Arc<str>, request: Request) -> Result<Answer> {
        self.open.check()?;
        let answer = self.enqueue(tenant, request).ok_or_else(|| self.gone())?;
        answer.await.map_err(|_| self.gone())?
    }

    /// Sends a request to the writer. Returns the channel for its answer; `None` if the writer has ended.
    pub(crate) fn enqueue(
        &self,
        tenant: Arc<str>,
        request: Request,
    ) -> Option<oneshot::Receiver<Result<Answer>>> {
        let (reply, answer) = oneshot::channel();
        let until = Instant::now() + self.busy_timeout;
        self.messages.send(Message::Task(Task { tenant, request, until, reply })).ok()?;
        Some(answer)
    }

    fn gone(&self) -> Error {
        self.open.check().err().map_or_else(gone, |closed| closed.with_outcome(WriteOutcome::Unknown))
    }

    /// Makes the thread finish the waiting requests and close the file, and waits for that. May block for as long as
    /// it takes.
    pub(crate) fn end(&self) {
        // If there is no receiver, the thread has ended already.
        let _ = self.messages.send(Message::End);
        self.thread.join();
    }
}

struct Writer {
    config: SqliteConfig,
    files: Arc<Files>,
    heads: Arc<Heads>,
    holder: Holder,
    /// Connection; `None` if the file is read-only, or after a failure that left its transaction in doubt.
    conn: Option<Connection>,
    /// Records that this thread wrote or read last. Those that count as current are as they are in the file at `version`.
    known: Known,
    /// SQLite's `data_version`, which changes as soon as another connection has written.
    version: Option<i64>,
    /// SQLite's `schema_version` when this thread last saw a complete schema.
    schema: Option<i64>,
    transactions: u32,
    /// Blobs that could not be discarded when their put failed. This is done before the next request.
    given_up: Vec<Task>,
    open: OpenState,
}

/// Reason for which a transaction failed as a whole.
struct GroupFailure {
    error: Error,
    /// True if each of its requests may succeed if tried alone.
    alone: bool,
}

impl GroupFailure {
    fn whole(error: Error) -> Self {
        Self { error, alone: false }
    }
}

impl Writer {
    fn run(mut self, messages: &mpsc::Receiver<Message>) {
        let (mut pace, mut ending) = (Pace::default(), false);
        while !ending || !pace.is_empty() {
            let received = match pace.wait(Instant::now()) {
                _ if ending => Err(RecvTimeoutError::Disconnected),
                None => messages.recv().map_err(RecvTimeoutError::from),
                Some(wait) => messages.recv_timeout(wait),
            };
            let (group, ended) = collect(received, messages, &mut pace);
            ending = ended;
            if !group.is_empty() {
                self.commit_group(group);
                self.shorten_log();
            }
            let steps = pace.take(Instant::now(), ending);
            if !steps.is_empty() {
                let (from, version) = (Instant::now(), self.version);
                self.commit_group(steps);
                self.shorten_log();
                pace.took(from, Instant::now());
                if version != self.version {
                    pace.others_wrote();
                }
            }
        }
        for message in messages.try_iter() {
            if let (Message::Task(task), Err(closed)) = (message, self.open.check()) {
                self.answer(task, Err(closed));
            }
        }
        self.close();
    }

    /// Closes the file. The last connection that closes moves the write-ahead log into the file and removes the log.
    /// If two close at the same moment, each assumes that the other is the last one, and the log stays. If the log is
    /// still there, this opens and closes the file once more.
    fn close(mut self) {
        drop(self.conn.take());
        if self.config.access != Access::Write {
            return;
        }
        let mut wait = Wait::new(Duration::from_secs(60), &self.config.effects);
        for _ in 0..CLOSING {
            // Another file may be at that path by now.
            if self.files.check_database().is_err() || !self.files.log().exists() || !wait.pause() {
                break;
            }
            let again = schema::writer(&self.config).map_err(|error| self.failed(error)).and_then(|conn| {
                first_number(&conn?, "PRAGMA schema_version", []).map_err(|error| self.failed(error))
            });
            if let Err(error) = again {
                tracing::debug!(%error, "the write-ahead log stays");
                break;
            }
        }
    }

    /// Executes the waiting requests, in one transaction if that succeeds, else each in its own.
    fn commit_group(&mut self, mut tasks: Vec<Task>) {
        if self.config.access != Access::Write {
            for task in tasks {
                let refused = self.refused(&task.request);
                self.answer(task, Err(refused));
            }
            return;
        }
        if tasks.iter().any(|task| task.request.may_take_a_lease()) {
            self.holder.hold();
        }
        self.discard_again();
        while !tasks.is_empty() {
            tasks = self.commit_or_retry_alone(tasks);
        }
    }

    /// Discards the blobs for which that failed. What fails again waits for the next request.
    fn discard_again(&mut self) {
        let given_up = std::mem::take(&mut self.given_up);
        if !given_up.is_empty() && self.commit_with_space(&given_up).is_err() {
            self.given_up = given_up;
        }
    }

    /// Tries the group once. Returns the requests whose time has not passed, if other processes held the lock.
    fn commit_or_retry_alone(&mut self, tasks: Vec<Task>) -> Vec<Task> {
        match self.commit_with_space(&tasks) {
            Ok(answers) => {
                for (task, answer) in tasks.into_iter().zip(answers) {
                    self.answer(task, answer);
                }
            }
            Err(failure) if failure.error.is_timeout() && !failure.alone => {
                let now = Instant::now();
                let (late, rest): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|task| task.until <= now);
                if late.is_empty() {
                    // The time was not spent on the lock.
                    Wait::new(MOMENT, &self.config.effects).pause();
                }
                for task in late {
                    self.answer(task, Err(failure.error.clone()));
                }
                return rest;
            }
            Err(failure) if failure.alone && tasks.len() > 1 => {
                tracing::warn!(error = %failure.error, requests = tasks.len(), "a group was rolled back; each is tried alone");
                let in_doubt = failure.error.write_outcome() == WriteOutcome::Unknown;
                for task in tasks {
                    let alone = self.commit_with_space(std::slice::from_ref(&task));
                    let answer = alone
                        .map_err(|failure| failure.error)
                        .and_then(|mut answers| answers.pop().unwrap_or_else(|| Err(gone())));
                    // The group may have been stored, which a refusal of this attempt does not exclude.
                    let answer = answer.map_err(|error| {
                        if in_doubt { error.with_outcome(WriteOutcome::Unknown) } else { error }
                    });
                    self.answer(task, answer);
                }
            }
            Err(failure) => {
                for task in tasks {
                    self.answer(task, Err(failure.error.clone()));
                }
            }
        }
        Vec::new()
    }

    fn answer(&mut self, task: Task, answer: Result<Answer>) {
        if let Ok(Answer::Committed(done)) = &answer {
            self.heads.notify(&task.tenant, done.session.id, done.session.head);
        }
        if let (Request::Blob(BlobStep::Discard(blob)), Err(_)) = (&task.request, &answer) {
            let (request, (reply, _)) = (Request::Blob(BlobStep::Discard(*blob)), oneshot::channel());
            self.given_up.push(Task { tenant: task.tenant.clone(), request, until: task.until, reply });
        }
        // The receiver does not exist any more if the caller was dropped.
        let _ = task.reply.send(answer);
    }

    /// Runs one transaction. If no space is left for it in the write-ahead log, first moves the log into the database, so
    /// that it is written from its start, and tries once more.
    fn commit_with_space(&mut self, tasks: &[Task]) -> Result<Vec<Result<Answer>>, GroupFailure> {
        match self.commit_on_connection(tasks) {
            Err(full) if *full.error.kind() == ErrorKind::Full && self.files.check().is_ok() => {
                let is_moved = self.checkpoint("RESTART");
                let again = is_moved && full.error.write_outcome() == WriteOutcome::NotApplied;
                if again { self.commit_on_connection(tasks) } else { Err(full) }
            }
            done => done,
        }
    }

    /// Tries one transaction, from `BEGIN` to `COMMIT`. If it fails, no transaction is left open.
    fn commit_on_connection(&mut self, tasks: &[Task]) -> Result<Vec<Result<Answer>>, GroupFailure> {
        let conn = match self.conn.take() {
            Some(conn) => conn,
            None => {
                self.files.check().map_err(GroupFailure::whole)?;
                let opened =
                    schema::writer(&self.config).map_err(|error| GroupFailure::whole(self.failed(error)))?;
                opened.map_err(GroupFailure::whole)?
            }
        };
        // Others see the transaction at once, and the sync of the next one makes it durable, too.
        let is_unsynced = self.config.sync == Sync::Full && is_advisory(tasks);
        let synchronous = |level| !is_unsynced || conn.pragma_update(None, "synchronous", level).is_ok();
        synchronous("NORMAL");
        let done = self.in_transaction(&conn, tasks);
        let is_moved = done.is_err() && self.files.check().is_err();
        let is_over = roll_back(&conn) && synchronous("FULL");
        if done.is_err() || !is_over {
            self.known.clear();
            (self.version, self.schema) = (None, None);
        }
        // A connection whose transaction does not end is closed, which ends it.
        self.conn = is_over.then_some(conn);
        if let Ok(answers) = &done
            && tasks.iter().zip(answers).any(|(task, answer)| task.request.leaves_bytes_in_log(answer))
        {
            // Purged bytes are still in the log; running readers keep them there until the log is written from its
            // start.
            self.checkpoint("TRUNCATE");
        }
        if is_moved && !self.files.is_log_replaced() {
            // Acknowledged writes are moved into the database file, wherever it is now, and do not stay in a log at
            // another path, or at none. A database that is put in its place finds an empty log there.
            self.checkpoint("TRUNCATE");
        }
        done.map(|answers| self.settled(tasks, answers))
    }

    fn in_transaction(
        &mut self,
        conn: &Connection,
        tasks: &[Task],
    ) -> Result<Vec<Result<Answer>>, GroupFailure> {
        // A request that waited here for its turn still gets a short time to wait for other processes.
        let (now, until) = (Instant::now(), tasks.iter().map(|task| task.until).min());
        let until = until.map_or(now, |until| until.max(now + MOMENT));
        self.take_write_lock(conn, until).map_err(GroupFailure::whole)?;
        let (mut answers, mut room) = (Vec::with_capacity(tasks.len()), Room::default());
        for task in tasks {
            let left = room.take(conn, &self.config.path, self.files.log(), &task.request);
            match left.and_then(|()| task.request.run(conn, &self.known, self.holder.name(), &task.tenant)) {
                Ok(answer) => answers.push(Ok(answer)),
                Err(Fault::Refused(error)) => answers.push(Err(error)),
                Err(Fault::Sql(error)) => {
                    return Err(GroupFailure { error: self.failed(error), alone: true });
                }
            }
        }
        if let Err(error) = execute(conn, "COMMIT", []) {
            // An I/O error may have left the whole transaction in the log, where a recovery after a crash would find
            // it.
            let doubtful = is_io(&error) || !roll_back(conn);
            let error = self.failed(error);
            let error = if doubtful { error.with_outcome(WriteOutcome::Unknown) } else { error };
            return Err(GroupFailure { error, alone: true });
        }
        // The file was moved since the transaction began, so the write may be lost to readers.
        self.files.check().map_err(|error| GroupFailure::whole(error.with_outcome(WriteOutcome::Unknown)))?;
        Ok(answers)
    }

    /// Takes the write lock, waiting for other processes until `until`. If one of them has written, no
    /// remembered record counts as current, and this checks that the file still has this version.
    fn take_write_lock(&mut self, conn: &Connection, until: Instant) -> Result<()> {
        let mut wait = Wait::until(until, &self.config.effects);
        loop {
            match execute(conn, "BEGIN IMMEDIATE", []) {
                Ok(_) => break,
                Err(error) if is_busy(&error) => {
                    if !wait.pause() {
                        return Err(busy(&format!("write to {}", self.config.path.display())));
                    }
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        self.files.check()?;
        let version = first_number(conn, "PRAGMA data_version", []).map_err(|error| self.failed(error))?;
        if version.is_none() || version != self.version {
            let checked = schema::check_again(conn, &self.config.path, &mut self.schema);
            checked.map_err(|error| self.failed(error))??;
        }
        if version.is_none() || version != self.version {
            self.known.others_wrote();
        }
        self.version = version;
        Ok(())
    }

    /// Returns the error for a request if the file is read-only.
    fn refused(&self, request: &Request) -> Error {
        let path = &self.config.path;
        if let Request::Mend(id) = request {
            let what =
                "is damaged or missing, and is rebuilt from its log only if the file may be written to";
            return corrupt(&format!("the record of session {id}"), what);
        }
        let why = path::read_only(path)
            .unwrap_or_else(|| "it was read-only when it was opened: open it again".to_owned());
        Error::new(
            ErrorKind::Denied,
            format!("cannot write to {}, which is read-only: {why}", path.display()),
        )
    }

    fn failed(&self, error: rusqlite::Error) -> Error {
        let path = &self.config.path;
        failed_to_write(path, &format!("write to {}", path.display()), error)
    }

    /// Keeps the write-ahead log from growing without limit if there are always readers.
    fn shorten_log(&mut self) {
        self.transactions = self.transactions.wrapping_add(1);
        if self.transactions.is_multiple_of(LOG_CHECK)
            && std::fs::metadata(self.files.log()).is_ok_and(|log| log.len() > LOG_BYTES)
        {
            self.checkpoint("TRUNCATE");
        }
    }

    /// Does what requests ask for outside of a transaction; returns the answers, which tell whether it was done.
    fn settled(&self, tasks: &[Task], mut answers: Vec<Result<Answer>>) -> Vec<Result<Answer>> {
        for (task, answer) in tasks.iter().zip(&mut answers).filter(|(_, answer)| answer.is_ok()) {
            match task.request {
                Request::Rewrite => *answer = self.rewrite().map(Answer::Was),
                Request::EmptyLog => *answer = self.empty_log().map(Answer::Was),
                _ => {}
            }
        }
        answers
    }

    /// Rewrites the whole file, and empties its write-ahead log, if a rewrite is pending; returns whether it was.
    fn rewrite(&self) -> Result<bool> {
        self.files.check()?;
        let Some(conn) = &self.conn else { return Err(gone()) };
        let Some(erased) = rewrites::pending(conn).map_err(|error| self.failed(error))? else {
            return Ok(false);
        };
        let path = self.config.path.display();
        let what = format!("rewrite {path}, in which purged bytes may be left");
        self.when_free(&what, || execute(conn, "VACUUM", []))?;
        let mut wait = Wait::new(self.config.busy_timeout, &self.config.effects);
        while !self.empty_log()? {
            if !wait.pause() {
                return Err(log_is_used(&self.config.path));
            }
        }
        let what = format!("record in {path} that it was rewritten");
        self.when_free(&what, || rewrites::finish(conn, erased))?;
        Ok(true)
    }

    /// Moves the write-ahead log into the database, and empties it; returns `false` if others use what it holds.
    fn empty_log(&self) -> Result<bool> {
        self.files.check()?;
        let Some(conn) = &self.conn else { return Err(gone()) };
        let log = first_number(conn, "PRAGMA wal_checkpoint(TRUNCATE)", []);
        Ok(log.map_err(|error| self.failed(error))? == Some(0))
    }

    /// Runs a statement outside of a transaction. Waits for other connections that write.
    fn when_free(&self, what: &str, run: impl Fn() -> rusqlite::Result<usize>) -> Result<()> {
        let mut wait = Wait::new(self.config.busy_timeout, &self.config.effects);
        while let Err(error) = run() {
            if !is_busy(&error) {
                return Err(self.failed(error));
            }
            if !wait.pause() {
                return Err(busy(what));
            }
        }
        Ok(())
    }

    /// Moves the write-ahead log into the database; returns whether all of it was moved.
    fn checkpoint(&self, mode: &str) -> bool {
        let Some(conn) = &self.conn else { return false };
        let busy = first_number(conn, &format!("PRAGMA wal_checkpoint({mode})"), []);
        busy.inspect_err(|error| tracing::debug!(%error, "the write-ahead log was not moved"))
            .is_ok_and(|busy| busy == Some(0))
    }
}

/// Takes the waiting requests after a `received` one, for one transaction. Also returns whether no more will come.
fn collect(
    received: Result<Message, RecvTimeoutError>,
    messages: &mpsc::Receiver<Message>,
    pace: &mut Pace,
) -> (Vec<Task>, bool) {
    let (mut group, mut bytes, mut until) = (Vec::new(), 0, None);
    let mut next = received;
    loop {
        match next {
            Ok(Message::Task(task)) => {
                if let Some(task) = pace.divert(task) {
                    bytes += task.request.size_bytes();
                    group.push(task);
                }
            }
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return (group, true),
            Err(RecvTimeoutError::Timeout) => return (group, false),
        }
        if group.len() >= GROUP || bytes >= GROUP_BYTES {
            return (group, false);
        }
        next = match messages.try_recv() {
            Err(TryRecvError::Empty) if is_advisory(&group) && pace.is_empty() => {
                let now = Instant::now();
                let until = *until.get_or_insert(now + COMPANY);
                messages.recv_timeout(until.saturating_duration_since(now))
            }
            received => received.map_err(|_| RecvTimeoutError::Timeout),
        };
    }
}

/// Returns whether requests need no sync.
fn is_advisory(tasks: &[Task]) -> bool {
    !tasks.is_empty() && tasks.iter().all(|task| task.request.is_advisory())
}

/// Rolls back the open transaction, if any; returns `false` if one is still open.
fn roll_back(conn: &Connection) -> bool {
    if !conn.is_autocommit()
        && let Err(error) = execute(conn, "ROLLBACK", [])
    {
        tracing::debug!(%error, "a transaction was not rolled back");
    }
    conn.is_autocommit()
}
