//! Reader threads. There are at most as many as configured, each with its own connection, started when needed. A read
//! that may take long runs on an idle one, and so never blocks the caller's runtime.
//!
//! A page of data that was just written or read is in memory, and reading it takes less time than waking a thread and
//! being woken by it. Such a read runs immediately on the caller's thread, over an extra connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak, mpsc};
use std::time::Duration;

use agent_core::{Error, OpenState, Result, WorkspaceId};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::config::SqliteConfig;
use crate::error::{Fault, Step, failed, gone};
use crate::medium::files::{Files, check_beside};
use crate::medium::known::Key;
use crate::medium::threads::Threads;
use crate::schema;

/// Time for which data that was written or read counts as being in memory. `WARM_SESSIONS` is the number of sessions
/// for which this is remembered.
const WARM: Duration = Duration::from_secs(60);
const WARM_SESSIONS: usize = 1024;

/// Read, including the reply to its caller.
type Job = Box<dyn FnOnce(Result<&Connection>, Seat) + Send>;

/// Pages that are in memory after they were used: those of a session, of a workspace, or of a tenant's lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Warm {
    Session(Key),
    Workspace(Arc<str>, WorkspaceId),
    Lists(Arc<str>),
}

/// Channel to one of the threads, which ends when this is dropped.
type Reader = mpsc::Sender<(Job, Seat)>;

/// Idle threads; `None` once the store is closed.
type Idle = Mutex<Option<Vec<Reader>>>;

/// Assignment of a reader thread to a read. Dropping it instead of giving it back ends the thread.
struct Seat {
    reader: Reader,
    idle: Weak<Idle>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    fn give_back(self) {
        if let Some(idle) = self.idle.upgrade()
            && let Some(idle) = &mut *idle.lock().unwrap_or_else(PoisonError::into_inner)
        {
            idle.push(self.reader);
        }
    }
}

/// Reader threads, and the connection for immediate reads.
#[derive(Debug)]
pub(crate) struct Readers {
    at_once: Arc<Mutex<Option<Connection>>>,
    warm: Mutex<HashMap<Warm, Instant>>,
    config: SqliteConfig,
    files: Arc<Files>,
    permits: Arc<Semaphore>,
    /// Idle threads. The one that read last is at the end, because its page cache is the warmest.
    idle: Arc<Idle>,
    threads: Threads,
    open: OpenState,
}

impl Readers {
    pub(crate) fn new(config: &SqliteConfig, files: Arc<Files>, open: OpenState) -> Self {
        Self {
            config: config.clone(),
            files,
            at_once: Arc::default(),
            warm: Mutex::default(),
            permits: Arc::new(Semaphore::new(config.readers)),
            idle: Arc::new(Mutex::new(Some(Vec::new()))),
            threads: Threads::default(),
            open,
        }
    }

    /// Refuses new reads, ends the threads after their current reads, and waits for them. May block for as long as
    /// these take.
    pub(crate) fn end(&self) {
        self.permits.close();
        drop(self.idle.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.threads.join();
        drop(self.at_once.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Records that pages were just written or read.
    pub(crate) fn warm(&self, what: Warm) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        if warm.len() >= WARM_SESSIONS {
            warm.clear();
        }
        warm.insert(what, Instant::now());
    }

    /// Runs `work` on this thread, if its pages were in use recently. Returns `None` if they were not, if another
    /// caller is using the connection, if `work` finds more than it should read here, or if SQLite fails; the caller
    /// then uses a thread.
    pub(crate) fn read_at_once<T>(
        &self,
        what: &Warm,
        work: impl FnOnce(&Connection) -> Step<Option<T>>,
    ) -> Option<Result<T>> {
        let since = self.warm.lock().unwrap_or_else(PoisonError::into_inner).get(what).copied();
        since.filter(|since| since.elapsed() < WARM)?;
        let mut conn = match self.at_once.try_lock() {
            Ok(conn) => conn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let done = work(conn.as_ref()?);
        if let Err(moved) = self.files.check() {
            *conn = None;
            return Some(Err(moved));
        }
        match done {
            Ok(done) => done.map(Ok),
            Err(Fault::Refused(error)) => Some(Err(error)),
            Err(Fault::Sql(_)) => None,
        }
    }

    /// Runs `work` on a thread, once one is free. If the caller is dropped before that, nothing is read. If it is
    /// dropped later, the read completes and its result is discarded.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        self.open.check()?;
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| self.gone())?;
        let idle = match &mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(idle) => idle.pop(),
            None => return Err(self.gone()),
        };
        let (reader, new) = match idle {
            Some(reader) => (reader, None),
            None => {
                let (reader, jobs) = mpsc::channel();
                (reader, Some(jobs))
            }
        };
        let seat = Seat { reader: reader.clone(), idle: Arc::downgrade(&self.idle), _permit: permit };
        let (reply, answer) = oneshot::channel();
        let (path, files) = (self.config.path.clone(), self.files.clone());
        let job = move |conn: Result<&Connection>, seat: Seat| {
            let done = conn.map(work).and_then(|done| files.check().map(|()| done));
            let done = match done {
                // A connection on which SQLite failed is closed, and so is one on a file that was moved.
                Err(error) => Err(error),
                Ok(Err(Fault::Sql(error))) => Err(failed(&format!("{doing} in {}", path.display()), error)),
                Ok(Err(Fault::Refused(error))) => {
                    seat.give_back();
                    Err(error)
                }
                Ok(Ok(done)) => {
                    seat.give_back();
                    Ok(done)
                }
            };
            // The receiver does not exist any more if the caller was dropped.
            let _ = reply.send(done);
        };
        reader.send((Box::new(job), seat)).map_err(|_| self.gone())?;
        // Only the thread itself waits for more work, also if this caller is never polled again.
        drop(reader);
        if let Some(jobs) = new {
            self.start(jobs)?;
        }
        answer.await.map_err(|_| self.gone())?
    }

    /// Starts another thread, with a connection, for the waiting job and later ones.
    fn start(&self, jobs: mpsc::Receiver<(Job, Seat)>) -> Result<()> {
        let (config, files, at_once) = (self.config.clone(), self.files.clone(), self.at_once.clone());
        self.threads.spawn("agent-sqlite-reader", "read with", move || {
            let opened = open(&config, &files);
            if opened.is_ok() {
                open_at_once(&config, &files, &at_once);
            }
            match opened {
                Ok(conn) => {
                    while let Ok((job, seat)) = jobs.recv() {
                        job(Ok(&conn), seat);
                    }
                }
                Err(error) => {
                    if let Ok((job, seat)) = jobs.recv() {
                        job(Err(error), seat);
                    }
                }
            }
        })
    }

    fn gone(&self) -> Error {
        self.open.check().err().unwrap_or_else(gone)
    }
}

/// Opens a connection for reading, on the file that the store has opened.
fn open(config: &SqliteConfig, files: &Files) -> Result<Connection> {
    files.check()?;
    check_beside(&config.path)?;
    let conn = schema::reader(config)
        .map_err(|error| failed(&format!("open {} to read", config.path.display()), error))?;
    files.check()?;
    Ok(conn)
}

/// Opens the connection for immediate reads, if it is not open. Without it, all reads run on threads.
fn open_at_once(config: &SqliteConfig, files: &Files, at_once: &Mutex<Option<Connection>>) {
    let mut conn = at_once.lock().unwrap_or_else(PoisonError::into_inner);
    if conn.is_none() {
        // A read on the caller's thread never waits for another.
        *conn = open(config, files).ok().filter(|conn| conn.busy_timeout(Duration::ZERO).is_ok());
    }
}
