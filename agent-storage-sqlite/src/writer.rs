//! The one thread that writes: takes everything that waits, commits it in one transaction, then answers.
//!
//! It owns its connection, so that neither a caller's dropped future nor the end of the host's runtime leaves a
//! transaction open.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use agent_core::session::{Plan, plan};
use agent_core::{Error, ErrorKind, Result, WriteOutcome};
use futures::executor::block_on;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, query, raw_sql};
use tokio::sync::oneshot;

use crate::batch::{AtOnce, Batch};
use crate::config::SqliteConfig;
use crate::error::{Fault, again, busy, failed, gone, is_busy, is_io};
use crate::heads::Heads;
use crate::holder::Holder;
use crate::request::{Answer, Request, Task};
use crate::rows::{int, number, optional};
use crate::schema;
use crate::sessions::{Key, Known, Stored, keeps_labels, record};
use crate::wait::Wait;

/// The most requests, and about the most bytes, of one transaction.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 8 << 20;
/// How many records are kept.
const KEPT: usize = 256;
/// How long the write-ahead log may grow before its end is asked for, and after how many transactions it is looked at.
const LOG_BYTES: u64 = 16 << 20;
const LOG_LOOK: u32 = 32;

/// The way to the writer. When the last one is dropped, the thread finishes what waits, and ends.
#[derive(Clone, Debug)]
pub(crate) struct Sender(mpsc::Sender<Task>);

impl Sender {
    /// Opens the file and starts the thread that writes to it.
    pub(crate) async fn start(config: SqliteConfig, heads: Arc<Heads>) -> Result<Self> {
        let (sender, tasks) = mpsc::channel();
        let (ready, opened) = oneshot::channel();
        let run = move || match block_on(schema::open(&config)) {
            Ok(conn) => {
                let writer = Writer {
                    options: schema::writer(&config),
                    log: log_path(&config),
                    heads,
                    holder: Holder::new(config.path.clone(), config.effects.clone()),
                    conn: Some(conn),
                    kept: Known::new(),
                    config,
                    transactions: 0,
                };
                if ready.send(Ok(())).is_ok() {
                    writer.run(&tasks);
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        thread::Builder::new().name("agent-sqlite-writer".to_owned()).spawn(run).map_err(|source| {
            Error::new(ErrorKind::Unavailable, "the system gives no thread to write with; try again")
                .with_source(source)
        })?;
        opened.await.map_err(|_| gone())??;
        Ok(Self(sender))
    }

    /// Has a request carried out, also where the caller is dropped meanwhile.
    pub(crate) async fn ask(&self, tenant: Arc<str>, request: Request) -> Result<Answer> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Task { tenant, request, reply }).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn log_path(config: &SqliteConfig) -> PathBuf {
    let mut path = config.path.clone().into_os_string();
    path.push("-wal");
    path.into()
}

struct Writer {
    config: SqliteConfig,
    options: SqliteConnectOptions,
    log: PathBuf,
    heads: Arc<Heads>,
    /// `None` after a failure that left in doubt what the connection is in the middle of.
    conn: Option<SqliteConnection>,
    holder: Holder,
    /// The records that this thread wrote or read last. Another process may have written since: each use compares heads.
    kept: Known,
    transactions: u32,
}

/// Why a transaction failed as a whole.
struct Failure {
    error: Error,
    /// Whether each of its requests may do better alone.
    alone: bool,
}

impl Failure {
    fn whole(error: Error) -> Self {
        Self { error, alone: false }
    }
}

impl Writer {
    fn run(mut self, tasks: &mpsc::Receiver<Task>) {
        while let Ok(first) = tasks.recv() {
            let mut bytes = first.request.size_bytes();
            let mut group = vec![first];
            while group.len() < GROUP && bytes < GROUP_BYTES {
                let Ok(task) = tasks.try_recv() else { break };
                bytes += task.request.size_bytes();
                group.push(task);
            }
            block_on(self.group(group));
        }
    }

    /// Carries out what waits, in one transaction where that succeeds, else each request in its own.
    async fn group(&mut self, mut tasks: Vec<Task>) {
        if tasks.iter().any(|task| task.request.may_take_a_lease()) {
            self.holder.hold();
        }
        if tasks.len() == 1
            && let Some(task) = tasks.pop()
        {
            match self.at_once(&task).await {
                Some(answer) => {
                    self.answer(task, answer);
                    return self.shorten_log().await;
                }
                None => tasks.push(task),
            }
        }
        match self.transaction(&tasks).await {
            Ok(answers) => {
                for (task, answer) in tasks.into_iter().zip(answers) {
                    self.answer(task, answer);
                }
            }
            Err(failure) if failure.alone && tasks.len() > 1 => {
                tracing::warn!(error = %failure.error, requests = tasks.len(), "a group was rolled back; each is tried alone");
                for task in tasks {
                    let alone = self.transaction(std::slice::from_ref(&task)).await;
                    let answer = alone
                        .map_err(|failure| failure.error)
                        .and_then(|mut answers| answers.pop().unwrap_or_else(|| Err(gone())));
                    self.answer(task, answer);
                }
            }
            Err(failure) => {
                for task in tasks {
                    self.answer(task, Err(again(&failure.error)));
                }
            }
        }
        self.shorten_log().await;
    }

    fn answer(&self, task: Task, answer: Result<Answer>) {
        if let Ok(Answer::Committed(done)) = &answer {
            self.heads.tell(&task.tenant, done.session.id, done.session.head);
        }
        // Nobody is left to be told where the caller was dropped.
        let _ = task.reply.send(answer);
    }

    /// A lone commit to a session whose record is kept: planned on that, and written in one round trip, where the head
    /// in the file is still the kept one's. `None` where that cannot be, and nothing was written.
    async fn at_once(&mut self, task: &Task) -> Option<Result<Answer>> {
        let Request::Commit(commit) = &task.request else { return None };
        let key = (Arc::clone(&task.tenant), commit.session);
        let Stored { log, session } = self.kept.get(&key)?;
        // Who is refused, or answered from before, is so by what is in the file, not by what is kept.
        let Ok(planned @ Plan::Write { .. }) = plan(Some(session), commit) else { return None };
        let Plan::Write { events, after, .. } = &planned else { return None };
        if !keeps_labels(session, after) {
            return None;
        }
        let (log, head) = (*log, int(session.head.get()));
        let mut batch = Batch::new(self.holder.name());
        batch.add_events(&task.tenant, log, after, events);
        batch.add_record(&task.tenant, log, after);
        match batch.write_at_once(self.conn.as_mut()?, head).await {
            AtOnce::Done => {
                let done = planned.committed();
                self.keep(key, Stored { log, session: done.session.clone() });
                Some(Ok(Answer::Committed(Box::new(done))))
            }
            AtOnce::Not => {
                self.kept.remove(&key);
                None
            }
            AtOnce::Failed { error, committing: true } => Some(Err(self.commit_failed(error).await)),
            AtOnce::Failed { error, committing: false } => {
                self.roll_back().await;
                // Others hold the lock: they are waited for.
                (!is_busy(&error)).then(|| Err(self.failed(error)))
            }
        }
    }

    fn keep(&mut self, key: Key, stored: Stored) {
        if self.kept.len() >= KEPT {
            self.kept.clear();
        }
        self.kept.insert(key, stored);
    }

    async fn transaction(&mut self, tasks: &[Task]) -> Result<Vec<Result<Answer>>, Failure> {
        self.connect().await.map_err(Failure::whole)?;
        let mut known = self.begin(tasks).await.map_err(Failure::whole)?;
        let mut batch = Batch::new(self.holder.name());
        let mut answers = Vec::with_capacity(tasks.len());
        for task in tasks {
            let Some(conn) = self.conn.as_mut() else { return Err(Failure::whole(gone())) };
            match task.request.run(conn, &mut known, &mut batch, &task.tenant).await {
                Ok(answer) => answers.push(Ok(answer)),
                Err(Fault::Refused(error)) => answers.push(Err(error)),
                Err(Fault::Sql(error)) => {
                    self.roll_back().await;
                    return Err(Failure { error: self.failed(error), alone: true });
                }
            }
        }
        let Some(conn) = self.conn.as_mut() else { return Err(Failure::whole(gone())) };
        if let Err(error) = batch.write(conn).await {
            self.roll_back().await;
            return Err(Failure { error: self.failed(error), alone: true });
        }
        if let Err(error) = raw_sql("COMMIT").execute(conn).await {
            return Err(Failure { error: self.commit_failed(error).await, alone: true });
        }
        for (key, stored) in known {
            self.keep(key, stored);
        }
        if tasks.iter().any(|task| matches!(task.request, Request::Purge(_))) {
            // What was purged is still in the log; readers at work leave it there until the log is written anew.
            self.end_log().await;
        }
        Ok(answers)
    }

    /// The error for a COMMIT that failed.
    async fn commit_failed(&mut self, error: sqlx::Error) -> Error {
        // What failed below SQLite may have left the whole transaction in the log, where a recovery after a crash would
        // find it.
        let doubtful = is_io(&error);
        let undone = self.roll_back().await;
        let error = self.failed(error);
        if doubtful || !undone { error.with_outcome(WriteOutcome::Unknown) } else { error }
    }

    fn failed(&self, error: sqlx::Error) -> Error {
        failed(&format!("write to {}", self.config.path.display()), error)
    }

    async fn connect(&mut self) -> Result<()> {
        if self.conn.is_none() {
            let conn = self.options.connect().await.map_err(|error| self.failed(error))?;
            self.conn = Some(conn);
        }
        Ok(())
    }

    /// Takes the write lock, waiting for other processes, and learns the records that the requests will need: in one
    /// round trip to SQLite's thread. Of those that are kept only the heads are read, where these are still the same.
    async fn begin(&mut self, tasks: &[Task]) -> Result<Known> {
        const BEGIN: &str = "BEGIN IMMEDIATE; \
            SELECT w.key, iif(s.head = w.value ->> 2, NULL, s.record), s.record_crc, s.log, s.head = w.value ->> 2 \
            FROM json_each(?) w \
            CROSS JOIN logs l ON l.tenant = w.value ->> 0 AND l.session = w.value ->> 1 \
            CROSS JOIN sessions s ON s.log = l.log";
        let mut wanted: Vec<Key> = tasks
            .iter()
            .filter_map(|task| match &task.request {
                Request::Commit(commit) => Some((Arc::clone(&task.tenant), commit.session)),
                _ => None,
            })
            .collect();
        wanted.sort();
        wanted.dedup();
        let head = |key: &Key| self.kept.get(key).map(|kept| kept.session.head);
        let asked: Vec<_> = wanted.iter().map(|key| (&*key.0, key.1.to_string(), head(key))).collect();
        let asked = serde_json::to_string(&asked).unwrap_or_default();
        let mut wait = Wait::new(self.config.busy_timeout, &self.config.effects);
        loop {
            let Some(conn) = self.conn.as_mut() else { return Err(gone()) };
            let began = if wanted.is_empty() {
                raw_sql("BEGIN IMMEDIATE").execute(conn).await.map(|_| Vec::new())
            } else {
                query(BEGIN).bind(asked.clone()).fetch_all(conn).await
            };
            match began {
                Ok(rows) => return Ok(self.learn(&wanted, &rows)),
                Err(error) if is_busy(&error) => {
                    if !wait.pause() {
                        return Err(busy(&format!("write to {}", self.config.path.display())));
                    }
                }
                Err(error) => {
                    self.roll_back().await;
                    return Err(self.failed(error));
                }
            }
        }
    }

    /// What the rows of [`begin`](Self::begin) tell. A record that is damaged is looked at again when its turn comes.
    fn learn(&mut self, wanted: &[Key], rows: &[SqliteRow]) -> Known {
        let mut known = Known::new();
        for row in rows {
            let place = number(row, 0).ok().and_then(|place| usize::try_from(place).ok());
            let Some(key) = place.and_then(|place| wanted.get(place)) else { continue };
            let stored = match optional(row, 4) {
                Ok(Some(1)) => self.kept.remove(key),
                _ => match (record(row, 1, &key.0, key.1), number(row, 3)) {
                    (Ok(Some(session)), Ok(log)) => Some(Stored { log, session }),
                    _ => None,
                },
            };
            known.extend(stored.map(|stored| (key.clone(), stored)));
        }
        known
    }

    /// Undoes the transaction; `false` where that is not certain. The connection is closed then, which undoes it too.
    async fn roll_back(&mut self) -> bool {
        self.kept.clear();
        let Some(conn) = self.conn.as_mut() else { return false };
        match raw_sql("ROLLBACK").execute(conn).await {
            Ok(_) => true,
            // Some failures have SQLite roll back by itself, so that there is nothing left to undo.
            Err(sqlx::Error::Database(error)) if error.message().contains("no transaction is active") => true,
            Err(_) => {
                self.conn = None;
                false
            }
        }
    }

    /// Keeps the write-ahead log from growing for as long as there are readers at every moment.
    async fn shorten_log(&mut self) {
        self.transactions = self.transactions.wrapping_add(1);
        if self.transactions.is_multiple_of(LOG_LOOK)
            && std::fs::metadata(&self.log).is_ok_and(|log| log.len() > LOG_BYTES)
        {
            self.end_log().await;
        }
    }

    async fn end_log(&mut self) {
        if let Some(conn) = self.conn.as_mut()
            && let Err(error) = raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(conn).await
        {
            tracing::debug!(%error, "the write-ahead log was not shortened");
        }
    }
}
