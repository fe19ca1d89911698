//! The one thread that writes: takes everything that waits, commits it in one transaction, then answers.
//!
//! It owns its connection, so that neither a caller's dropped future nor the end of the host's runtime leaves a
//! transaction open.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use agent_core::{Error, ErrorKind, Result, SessionId, WriteOutcome};
use futures::executor::block_on;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, query, raw_sql};
use tokio::sync::oneshot;

use crate::config::SqliteConfig;
use crate::error::{Fault, again, busy, failed, gone, is_busy, is_io};
use crate::heads::Heads;
use crate::request::{Answer, Request, Task};
use crate::rows::text;
use crate::schema;
use crate::sessions::{Known, record};
use crate::wait::Wait;

/// The most requests, and about the most bytes, of one transaction.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 8 << 20;
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
                    config,
                    heads,
                    conn: Some(conn),
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
    async fn group(&mut self, tasks: Vec<Task>) {
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

    async fn transaction(&mut self, tasks: &[Task]) -> Result<Vec<Result<Answer>>, Failure> {
        self.connect().await.map_err(Failure::whole)?;
        let mut known = self.begin(tasks).await.map_err(Failure::whole)?;
        let mut answers = Vec::with_capacity(tasks.len());
        for task in tasks {
            let Some(conn) = self.conn.as_mut() else { return Err(Failure::whole(gone())) };
            match task.request.run(conn, &mut known, &task.tenant).await {
                Ok(answer) => answers.push(Ok(answer)),
                Err(Fault::Refused(error)) => answers.push(Err(error)),
                Err(Fault::Sql(error)) => {
                    self.roll_back().await;
                    return Err(Failure { error: self.failed(error), alone: true });
                }
            }
        }
        let Some(conn) = self.conn.as_mut() else { return Err(Failure::whole(gone())) };
        if let Err(error) = raw_sql("COMMIT").execute(conn).await {
            // What failed below SQLite may have left the whole transaction in the log, where a recovery after a
            // crash would find it.
            let doubtful = is_io(&error);
            let undone = self.roll_back().await;
            let mut error = self.failed(error);
            if doubtful || !undone {
                error = error.with_outcome(WriteOutcome::Unknown);
            }
            return Err(Failure { error, alone: true });
        }
        if tasks.iter().any(|task| matches!(task.request, Request::Purge(_))) {
            // What was purged is still in the log; readers at work leave it there until the log is written anew.
            self.end_log().await;
        }
        Ok(answers)
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

    /// Takes the write lock, waiting for other processes, and reads the records that the requests will need: in one
    /// round trip to SQLite's thread.
    async fn begin(&mut self, tasks: &[Task]) -> Result<Known> {
        const BEGIN: &str = "BEGIN IMMEDIATE; \
            SELECT s.record, s.record_crc, s.tenant, s.id FROM json_each(?) w \
            JOIN sessions s ON s.tenant = w.value ->> 0 AND s.id = w.value ->> 1";
        const BEGIN_ONE: &str = "BEGIN IMMEDIATE; SELECT record, record_crc, tenant, id FROM sessions WHERE tenant = ? AND id = ?";
        let wanted: Vec<(&Arc<str>, SessionId)> = tasks
            .iter()
            .filter_map(|task| match &task.request {
                Request::Commit(commit) => Some((&task.tenant, commit.session)),
                _ => None,
            })
            .collect();
        let mut wait = Wait::new(self.config.busy_timeout, &self.config.effects);
        loop {
            let Some(conn) = self.conn.as_mut() else { return Err(gone()) };
            let began = match wanted.as_slice() {
                [] => raw_sql("BEGIN IMMEDIATE").execute(conn).await.map(|_| Vec::new()),
                [(tenant, id)] => {
                    query(BEGIN_ONE).bind(Arc::clone(tenant)).bind(id.to_string()).fetch_all(conn).await
                }
                many => {
                    let many: Vec<[String; 2]> =
                        many.iter().map(|(tenant, id)| [tenant.to_string(), id.to_string()]).collect();
                    let many = serde_json::to_string(&many).unwrap_or_default();
                    query(BEGIN).bind(many).fetch_all(conn).await
                }
            };
            match began {
                Ok(rows) => {
                    let mut known = Known::new();
                    for row in &rows {
                        let Some((tenant, id)) = wanted.iter().find(|(tenant, id)| {
                            text(row, 2).ok().flatten() == Some(tenant)
                                && text(row, 3).ok().flatten().and_then(|id| id.parse().ok()) == Some(*id)
                        }) else {
                            continue;
                        };
                        // One that is damaged is looked at again when its turn comes.
                        if let Ok(Some(session)) = record(row, tenant, *id) {
                            known.insert((Arc::clone(tenant), *id), session);
                        }
                    }
                    return Ok(known);
                }
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

    /// Undoes the transaction; `false` where that is not certain. The connection is closed then, which undoes it too.
    async fn roll_back(&mut self) -> bool {
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
