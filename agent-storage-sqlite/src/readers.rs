//! Reading. The threads that read are as many as configured, each with a connection of its own, started when they are
//! needed; a read that may take long is handed to one that is idle, and so never blocks the caller's runtime.
//!
//! A page of what was just written or read is in memory, and read in less time than it takes to wake a thread and be
//! woken by it. It is read at once, on the caller's thread, over one connection more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak, mpsc};
use std::time::Duration;

use agent_core::{Error, OpenState, Result};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::config::SqliteConfig;
use crate::error::{Fault, Step, failed, gone};
use crate::files::Files;
use crate::schema;
use crate::sessions::Key;
use crate::threads::Threads;

/// For how long what was written or read counts as being in memory, and for how many sessions that is remembered.
const WARM: Duration = Duration::from_secs(60);
const WARM_SESSIONS: usize = 1024;

/// A read, and the answer to whoever asked for it.
type Job = Box<dyn FnOnce(Result<&Connection>, Seat) + Send>;

/// Pages that are in memory after they were used: those of a session, or those of a tenant's lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Warm {
    Session(Key),
    Lists(Arc<str>),
}

/// The way to one of the threads, which ends when this is dropped.
type Reader = mpsc::Sender<(Job, Seat)>;

/// `None` once the store is closed.
type Idle = Mutex<Option<Vec<Reader>>>;

/// The place of a thread that reads. Dropped instead of given back it ends the thread.
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

/// The threads that read, and the connection for what is read at once.
#[derive(Debug)]
pub(crate) struct Readers {
    at_once: Arc<Mutex<Option<Connection>>>,
    warm: Mutex<HashMap<Warm, Instant>>,
    config: SqliteConfig,
    files: Arc<Files>,
    permits: Arc<Semaphore>,
    /// Those that do nothing, the one that read last at the end: its page cache is the warmest.
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

    /// Starts no more reads, ends the threads when they have read what they are at, and waits for that. May block for as
    /// long as it takes.
    pub(crate) fn end(&self) {
        self.permits.close();
        drop(self.idle.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.threads.join();
        drop(self.at_once.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Notes that pages were written or read a moment ago.
    pub(crate) fn warm(&self, what: Warm) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        if warm.len() >= WARM_SESSIONS {
            warm.clear();
        }
        warm.insert(what, Instant::now());
    }

    /// Does `work` on this thread, where its pages were in use a moment ago. `None` where they were not, where another
    /// caller is at it, where `work` finds more than it should read here, and where SQLite fails: then a thread is asked.
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

    /// Has `work` done on a thread, once one is free. Where the caller is dropped before that, nothing is read; after it
    /// the read goes on to its end, for nobody.
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
                // One on which SQLite failed is closed, as is one on a file that was moved.
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
            // Nobody is left to be told where the caller was dropped.
            let _ = reply.send(done);
        };
        reader.send((Box::new(job), seat)).map_err(|_| self.gone())?;
        // Only the thread keeps itself waiting for more, also where this caller is never polled again.
        drop(reader);
        if let Some(jobs) = new {
            self.start(jobs)?;
        }
        answer.await.map_err(|_| self.gone())?
    }

    /// Starts another thread, with a connection, for the job that waits and those after it.
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

/// Opens a connection that reads, on the file that the store has opened.
fn open(config: &SqliteConfig, files: &Files) -> Result<Connection> {
    files.check()?;
    let conn = schema::reader(config)
        .map_err(|error| failed(&format!("open {} to read", config.path.display()), error))?;
    files.check()?;
    Ok(conn)
}

/// Opens the connection for what is read at once, where it is not open. Without it all reads are on threads.
fn open_at_once(config: &SqliteConfig, files: &Files, at_once: &Mutex<Option<Connection>>) {
    let mut conn = at_once.lock().unwrap_or_else(PoisonError::into_inner);
    if conn.is_none() {
        // Nobody waits for others on a caller's thread.
        *conn = open(config, files).ok().filter(|conn| conn.busy_timeout(Duration::ZERO).is_ok());
    }
}
