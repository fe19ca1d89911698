//! Runs tea-session for the harness: `SqliteSessionStore`.
//!
//! It keeps every session that it has read in memory. So a load opens the store anew, as after a restart, and everything else finds
//! the session in memory, as in a process that has run for a while.

#![allow(clippy::disallowed_methods, reason = "this measures real time")]

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use bench_worker::{AtOnce, Contender, Outcome, TURNS, Task, serve, text};
use tea_protocol::{
    CanonicalMessage, ContentBlock, MessageId, ProfileId, ProtocolMetadata, ProtocolTimestamp,
    RecordEnvelope, RecordId, SessionId, SessionRecord, SessionSequence, StopReason,
};
use tea_session::{AppendTransaction, SessionCatalog, SessionStore};
use tea_session_sqlite::SqliteSessionStore;
use tokio::runtime::Runtime;

/// Returns an id with this number in the digits that are random otherwise.
fn id<T: FromStr>(kind: u32, session: u32, n: u32) -> Outcome<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    Ok(format!("0195a0b1-5e3a-7{kind:03x}-8{:03x}-{session:06x}{n:06x}", 0).parse()?)
}

fn now() -> Outcome<ProtocolTimestamp> {
    Ok("2026-07-23T09:30:12.125Z".parse()?)
}

fn envelope(session: u32, n: u32, record: SessionRecord) -> Outcome<RecordEnvelope> {
    let (id, owner): (RecordId, SessionId) = (id(1, session, n)?, id(0, session, 0)?);
    let sequence = SessionSequence::new(n.into());
    Ok(RecordEnvelope::new(
        id,
        owner,
        sequence,
        now()?,
        None,
        None,
        None,
        ProtocolMetadata::default(),
        record,
    )?)
}

/// Copies the session that is there until there are as many as the parameter. Each id has its number in the same digits.
const MORE_SESSIONS: &str = "
    WITH RECURSIVE n (n, ids) AS (
        SELECT 1, '-8000-000001' UNION ALL SELECT n + 1, '-8000-' || printf('%06x', n + 1) FROM n WHERE n + 1 < ?1)
    INSERT INTO records
    SELECT replace(session_id, '-8000-000000', ids), sequence, replace(record_id, '-8000-000000', ids),
        replace(envelope, '-8000-000000', ids)
    FROM records, n WHERE n < ?1";

/// A session with the sequence number of its last record.
#[derive(Clone, Copy)]
struct Session {
    number: u32,
    head: u32,
}

impl Session {
    async fn new(store: &SqliteSessionStore, number: u32) -> Outcome<Self> {
        let created = SessionRecord::SessionCreated {
            profile_id: ProfileId::from_str("bench")?,
            metadata: ProtocolMetadata::default(),
        };
        let records = vec![envelope(number, 0, created)?];
        store.append(AppendTransaction::new(id(0, number, 0)?, None, records)).await?;
        Ok(Self { number, head: 0 })
    }

    /// Appends messages in one transaction: two are a turn.
    async fn append(&mut self, store: &SqliteSessionStore, messages: u32) -> Outcome {
        let mut records = Vec::new();
        for n in self.head + 1..=self.head + messages {
            let (message, content) = (id::<MessageId>(2, self.number, n)?, vec![ContentBlock::text(text())?]);
            let message = match n % 2 {
                1 => CanonicalMessage::user(message, content, now()?)?,
                _ => CanonicalMessage::assistant(message, content, StopReason::Completed, now()?)?,
            };
            records.push(envelope(self.number, n, SessionRecord::MessageCommitted { message })?);
        }
        let expected = Some(SessionSequence::new(self.head.into()));
        store.append(AppendTransaction::new(id(0, self.number, 0)?, expected, records)).await?;
        self.head += messages;
        Ok(())
    }
}

struct Tea {
    task: Task,
    path: PathBuf,
    runtime: Runtime,
    store: Arc<SqliteSessionStore>,
    sessions: Vec<Session>,
}

fn open(path: &Path) -> Outcome<SqliteSessionStore> {
    Ok(SqliteSessionStore::open(&path.display().to_string())?)
}

impl Contender for Tea {
    fn prepare(folder: &Path, task: Task) -> Outcome<Option<Self>> {
        let (count, messages) = match task {
            Task::Turn(messages) | Task::Last(messages) | Task::Load(messages) => (1, messages),
            Task::Writers(writers) => (writers, 0),
            Task::List(sessions) => (sessions, 1),
            // A branch is a record within the session, and no session of its own. There is no agent.
            Task::Fork(_) | Task::Agents(_) => return Ok(None),
        };
        let (runtime, path) = (Runtime::new()?, folder.join("sessions.db"));
        let mut store = open(&path)?;
        let new = if let Task::List(_) = task { 1 } else { count };
        let sessions = runtime.block_on(async {
            let mut sessions = Vec::new();
            for number in 0..new {
                let mut session = Session::new(&store, number).await?;
                while session.head < messages {
                    session.append(&store, (messages - session.head).min(1000)).await?;
                }
                sessions.push(session);
            }
            Outcome::Ok(sessions)
        })?;
        if new < count {
            // Through its interface, each of 100,000 sessions is a transaction that waits for the disk.
            drop(store);
            rusqlite::Connection::open(&path)?.execute(MORE_SESSIONS, [count])?;
            store = open(&path)?;
        }
        Ok(Some(Self { task, path, runtime, store: Arc::new(store), sessions }))
    }

    fn run(&mut self, times: u32) -> Outcome<AtOnce> {
        if let Task::Writers(_) = self.task {
            return self.runtime.block_on(at_once(&self.store, &mut self.sessions, times * TURNS));
        }
        let session = self.sessions.first_mut().ok_or("there is no session")?;
        for _ in 0..times {
            self.runtime.block_on(async {
                match self.task {
                    Task::Turn(_) => session.append(&self.store, 2).await?,
                    Task::Last(_) => {
                        let snapshot = self.store.load(id(0, 0, 0)?).await?;
                        assert_eq!(snapshot.records().iter().rev().take(50).count(), 50);
                    }
                    Task::Load(messages) => {
                        let snapshot = open(&self.path)?.load(id(0, 0, 0)?).await?;
                        assert_eq!(snapshot.records().len(), messages as usize + 1);
                    }
                    _ => assert_eq!(self.store.list_sessions().await?.iter().take(50).count(), 50),
                }
                Outcome::Ok(())
            })?;
        }
        Ok(AtOnce::default())
    }

    fn stored(&mut self) -> Outcome<u64> {
        let store = open(&self.path)?;
        let mut count = 0;
        for session in &self.sessions {
            let snapshot = self.runtime.block_on(store.load(id(0, session.number, 0)?))?;
            // The first record is the creation.
            count += snapshot.records().len() as u64 - 1;
        }
        Ok(count)
    }
}

async fn at_once(
    store: &Arc<SqliteSessionStore>,
    sessions: &mut Vec<Session>,
    turns: u32,
) -> Outcome<AtOnce> {
    let tasks = std::mem::take(sessions).into_iter().map(|mut session| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            for _ in 0..turns {
                let start = Instant::now();
                session.append(&store, 2).await?;
                latencies.push(start.elapsed());
            }
            Outcome::Ok((session, latencies))
        })
    });
    let mut all = AtOnce::default();
    for task in tasks.collect::<Vec<_>>() {
        let (session, latencies) = task.await??;
        sessions.push(session);
        all.latencies.extend(latencies);
    }
    Ok(all)
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    serve::<Tea>(&arguments)
}
