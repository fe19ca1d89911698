//! The threads that read: as many as configured, each with a connection of its own, started when they are needed. A read
//! is handed to one that is idle, and so never blocks the caller's runtime.

use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread;

use agent_core::{Error, ErrorKind, Result};
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::config::SqliteConfig;
use crate::error::{Fault, Step, failed, gone};
use crate::schema;

/// A read, and the answer to whoever asked for it.
type Job = Box<dyn FnOnce(&Connection, Seat) + Send>;

/// The way to one of the threads, which ends when this is dropped.
type Reader = mpsc::Sender<(Job, Seat)>;

type Idle = Mutex<Vec<Reader>>;

/// The place of a thread that reads. Dropped instead of given back it ends the thread.
struct Seat {
    reader: Reader,
    idle: Weak<Idle>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    fn give_back(self) {
        if let Some(idle) = self.idle.upgrade() {
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.reader);
        }
    }
}

/// The threads that read.
#[derive(Debug)]
pub(crate) struct Readers {
    config: SqliteConfig,
    permits: Arc<Semaphore>,
    /// Those that do nothing, the one that read last at the end: its page cache is the warmest.
    idle: Arc<Idle>,
}

impl Readers {
    pub(crate) fn new(config: &SqliteConfig) -> Self {
        Self {
            config: config.clone(),
            permits: Arc::new(Semaphore::new(config.readers)),
            idle: Arc::default(),
        }
    }

    /// Has `work` done on a thread, once one is free. Where the caller is dropped before that, nothing is read; after it
    /// the read goes on to its end, for nobody.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| gone())?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = match idle {
            Some(reader) => reader,
            None => self.start().await?,
        };
        let seat = Seat { reader: reader.clone(), idle: Arc::downgrade(&self.idle), _permit: permit };
        let (reply, answer) = oneshot::channel();
        let job = move |conn: &Connection, seat: Seat| {
            let done = match work(conn) {
                // One on which SQLite failed is closed.
                Err(Fault::Sql(error)) => Err(failed(doing, error)),
                Err(Fault::Refused(error)) => {
                    seat.give_back();
                    Err(error)
                }
                Ok(done) => {
                    seat.give_back();
                    Ok(done)
                }
            };
            // Nobody is left to be told where the caller was dropped.
            let _ = reply.send(done);
        };
        reader.send((Box::new(job), seat)).map_err(|_| gone())?;
        drop(reader);
        answer.await.map_err(|_| gone())?
    }

    /// Starts another thread, with a connection.
    async fn start(&self) -> Result<Reader> {
        let (reader, jobs) = mpsc::channel::<(Job, Seat)>();
        let (ready, opened) = oneshot::channel();
        let config = self.config.clone();
        let run = move || match schema::reader(&config) {
            Ok(conn) => {
                let _ = ready.send(Ok(()));
                while let Ok((job, seat)) = jobs.recv() {
                    job(&conn, seat);
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        thread::Builder::new().name("agent-sqlite-reader".to_owned()).spawn(run).map_err(|source| {
            Error::new(ErrorKind::Unavailable, "the system gives no thread to read with; try again")
                .with_source(source)
        })?;
        let opened = opened.await.map_err(|_| gone())?;
        opened.map_err(|error| failed("open the file to read", error))?;
        Ok(reader)
    }
}
