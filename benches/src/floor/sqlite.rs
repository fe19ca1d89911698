//! SQLite by hand, WAL and `synchronous=FULL` or `OFF`: rows of text, a row for each session, nothing checked.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use agent_core::async_trait;
use agent_core::event::Event;
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::work::{Floor, LINE, RECORD};
use crate::outcome::Outcome;

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL; PRAGMA cache_size = -16384;
    CREATE TABLE IF NOT EXISTS events (session TEXT, seq INTEGER, json TEXT, PRIMARY KEY (session, seq));
    CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, head INTEGER, record TEXT);
    CREATE TABLE IF NOT EXISTS listed (id TEXT PRIMARY KEY, active INTEGER, record TEXT);
    CREATE INDEX IF NOT EXISTS listed_by_active ON listed (active, id);";

/// The session that is read, and the one that is written.
const READ: &str = "018f4e9a-7a2b-7c3d-8e4f-000000000001";
const WRITTEN: &str = "018f4e9a-7a2b-7c3d-8e4f-000000000002";

pub(super) struct Sqlite {
    conn: Arc<Mutex<Connection>>,
    head: u32,
}

impl Sqlite {
    pub(super) fn new(path: &Path, is_synced: bool) -> Outcome<Self> {
        let conn = Connection::open(path)?;
        conn.set_prepared_statement_cache_capacity(64);
        conn.execute_batch(SCHEMA)?;
        conn.pragma_update(None, "synchronous", if is_synced { "FULL" } else { "OFF" })?;
        let this = Self { conn: Arc::new(Mutex::new(conn)), head: 0 };
        this.lock().execute("INSERT OR IGNORE INTO sessions VALUES (?, 0, '')", [WRITTEN])?;
        Ok(this)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.conn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The messages and the session's row, in the transaction that is open.
fn write(conn: &Connection, session: &str, head: u32, messages: u32) -> rusqlite::Result<()> {
    let mut insert = conn.prepare_cached("INSERT INTO events VALUES (?, ?, ?)")?;
    for n in 1..=messages {
        insert.execute(params![session, head + n, "x".repeat(LINE)])?;
    }
    conn.prepare_cached("UPDATE sessions SET head = ?, record = ? WHERE id = ?")?.execute(params![
        head + messages,
        "x".repeat(RECORD),
        session
    ])?;
    Ok(())
}

fn run(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(drop)
}

fn texts(conn: &Connection, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached(sql)?.query_map(values, |row| row.get(0))?.collect()
}

fn writer_id(n: u32) -> String {
    format!("018f4e9a-7a2b-7c3d-8e4f-1{n:011}")
}

/// A turn that waits for the writer: its session, the session's head, whom to answer.
type Turn = (String, u32, oneshot::Sender<()>);

/// Commits all that waits in one transaction, then answers, until nobody can send any more.
fn group_commit(conn: &Connection, turns: &mpsc::Receiver<Turn>, messages: u32) -> rusqlite::Result<()> {
    while let Ok(first) = turns.recv() {
        let group: Vec<Turn> = std::iter::once(first).chain(turns.try_iter()).collect();
        run(conn, "BEGIN IMMEDIATE")?;
        for (session, head, _) in &group {
            write(conn, session, *head, messages)?;
        }
        run(conn, "COMMIT")?;
        for (_, _, reply) in group {
            // Who asked waits for the answer.
            let _ = reply.send(());
        }
    }
    Ok(())
}

#[async_trait]
impl Floor for Sqlite {
    fn write(&mut self, messages: u32) -> Outcome {
        let conn = self.lock();
        run(&conn, "BEGIN IMMEDIATE")?;
        write(&conn, WRITTEN, self.head, messages)?;
        run(&conn, "COMMIT")?;
        drop(conn);
        self.head += messages;
        Ok(())
    }

    async fn write_at_once(&mut self, writers: u32, turns: u32, messages: u32) -> Outcome<Vec<Duration>> {
        for n in 0..writers {
            self.lock().execute("INSERT OR IGNORE INTO sessions VALUES (?, 0, '')", [writer_id(n)])?;
        }
        let (sender, waiting) = mpsc::channel::<Turn>();
        let conn = Arc::clone(&self.conn);
        let writer = std::thread::spawn(move || {
            let conn = conn.lock().unwrap_or_else(PoisonError::into_inner);
            group_commit(&conn, &waiting, messages)
        });
        self.head += turns * messages;
        let before = self.head;
        let tasks = (0..writers).map(|n| {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                for turn in 0..turns {
                    let start = Instant::now();
                    let (reply, answer) = oneshot::channel();
                    if sender.send((writer_id(n), before + turn * messages, reply)).is_err()
                        || answer.await.is_err()
                    {
                        return Err("the writer ended");
                    }
                    latencies.push(start.elapsed());
                }
                Ok(latencies)
            })
        });
        let tasks: Vec<_> = tasks.collect();
        drop(sender);
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.extend(task.await??);
        }
        writer.join().map_err(|_| "the writer panicked")??;
        Ok(latencies)
    }

    fn fill(&mut self, lines: &[String]) -> Outcome {
        let conn = self.lock();
        run(&conn, "BEGIN")?;
        for (n, line) in (0_i64..).zip(lines) {
            conn.prepare_cached("INSERT OR REPLACE INTO events VALUES (?, ?, ?)")?
                .execute(params![READ, n, line])?;
        }
        Ok(run(&conn, "COMMIT")?)
    }

    fn last_50(&mut self) -> Outcome {
        let sql = "SELECT json FROM events WHERE session = ? ORDER BY seq DESC LIMIT 50";
        assert_eq!(texts(&self.lock(), sql, [READ])?.len(), 50);
        Ok(())
    }

    fn load(&mut self) -> Outcome {
        let sql = "SELECT json FROM events WHERE session = ? ORDER BY seq";
        let lines = texts(&self.lock(), sql, [READ])?;
        let parsed: Vec<Event> =
            lines.iter().map(|line| Event::from_json(line)).collect::<agent_core::Result<_>>()?;
        std::hint::black_box(parsed);
        Ok(())
    }

    fn fill_list(&mut self, sessions: u32) -> Outcome {
        let conn = self.lock();
        run(&conn, "BEGIN")?;
        for n in 0..sessions {
            let id = format!("018f4e9a-7a2b-7c3d-8e4f-2{n:011}");
            conn.prepare_cached("INSERT INTO listed VALUES (?, ?, ?)")?.execute(params![
                id,
                n,
                "x".repeat(RECORD)
            ])?;
        }
        Ok(run(&conn, "COMMIT")?)
    }

    fn list_50(&mut self) -> Outcome {
        let sql = "SELECT record FROM listed ORDER BY active DESC, id DESC LIMIT 50";
        assert_eq!(texts(&self.lock(), sql, [])?.len(), 50);
        Ok(())
    }

    fn create(&mut self) -> Outcome {
        self.head += 1;
        let id = format!("018f4e9a-7a2b-7c3d-8e4f-3{:011}", self.head);
        self.lock()
            .prepare_cached("INSERT INTO sessions VALUES (?, 0, ?)")?
            .execute(params![id, "x".repeat(RECORD)])?;
        Ok(())
    }
}
