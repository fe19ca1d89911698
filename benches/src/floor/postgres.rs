//! PostgreSQL by hand: one table, a row for each message, nothing checked, and no row of the session.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent_core::async_trait;
use agent_core::event::Event;
use sqlx::postgres::PgConnection;
use sqlx::{Executor, Row};

use super::work::{Floor, LINE, RECORD};
use crate::outcome::Outcome;
use crate::postgres;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS events (session text, seq bigint, json text, PRIMARY KEY (session, seq));
    CREATE TABLE IF NOT EXISTS listed (id bigint PRIMARY KEY, active bigint, record text);
    CREATE INDEX IF NOT EXISTS listed_by_active ON listed (active, id)";

const ONE: &str = "INSERT INTO events VALUES ($1, $2, $3)";
const TWO: &str = "INSERT INTO events VALUES ($1, $2, $3), ($1, $2 + 1, $4)";

/// The session that is read, and the one that is written.
const READ: &str = "018f4e9a-7a2b-7c3d-8e4f-000000000001";
const WRITTEN: &str = "018f4e9a-7a2b-7c3d-8e4f-000000000002";

/// Number of rows of one insert that fills a table.
const BATCH: usize = 1_000;

pub(super) struct Postgres {
    path: PathBuf,
    conn: PgConnection,
    /// A connection for each of several writers.
    writers: Vec<PgConnection>,
    head: i64,
}

impl Postgres {
    pub(super) fn new(path: PathBuf, is_synced: bool) -> Outcome<Self> {
        let conn = wait(async {
            let mut conn = postgres::connect(&path, is_synced).await?;
            conn.execute(TABLES).await?;
            Outcome::Ok(conn)
        })?;
        Ok(Self { path, conn, writers: Vec::new(), head: 0 })
    }
}

/// Waits on this thread, as a program does that awaits.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(future))
}

async fn insert(conn: &mut PgConnection, session: &str, head: i64, messages: u32) -> Outcome {
    let line = || "x".repeat(LINE);
    let insert = match messages {
        1 => sqlx::query(ONE).bind(session).bind(head).bind(line()),
        2 => sqlx::query(TWO).bind(session).bind(head).bind(line()).bind(line()),
        _ => return Err("the floor inserts a message or a turn".into()),
    };
    insert.execute(conn).await?;
    Ok(())
}

fn writer_id(n: usize) -> String {
    format!("018f4e9a-7a2b-7c3d-8e4f-1{n:011}")
}

#[async_trait]
impl Floor for Postgres {
    fn write(&mut self, messages: u32) -> Outcome {
        let head = self.head;
        self.head += i64::from(messages);
        wait(insert(&mut self.conn, WRITTEN, head, messages))
    }

    async fn write_at_once(&mut self, writers: u32, turns: u32, messages: u32) -> Outcome<Vec<Duration>> {
        while self.writers.len() < writers as usize {
            self.writers.push(postgres::connect(&self.path, true).await?);
        }
        let before = self.head;
        self.head += i64::from(turns * messages);
        let tasks = self.writers.drain(..).enumerate().map(|(n, mut conn)| {
            tokio::spawn(async move {
                let (session, mut latencies) = (writer_id(n), Vec::new());
                for turn in 0..turns {
                    let start = Instant::now();
                    insert(&mut conn, &session, before + i64::from(turn * messages), messages).await?;
                    latencies.push(start.elapsed());
                }
                Outcome::Ok((conn, latencies))
            })
        });
        let mut all = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            let (conn, latencies) = task.await??;
            self.writers.push(conn);
            all.extend(latencies);
        }
        Ok(all)
    }

    fn fill(&mut self, lines: &[String]) -> Outcome {
        wait(async {
            self.conn.execute(sqlx::query("DELETE FROM events WHERE session = $1").bind(READ)).await?;
            for (n, batch) in (0_i64..).step_by(BATCH).zip(lines.chunks(BATCH)) {
                let rows = "INSERT INTO events SELECT $1, $2 + n, line FROM unnest($3::text[]) WITH ORDINALITY AS l (line, n)";
                self.conn.execute(sqlx::query(rows).bind(READ).bind(n).bind(batch)).await?;
            }
            Ok(())
        })
    }

    fn last_50(&mut self) -> Outcome {
        let select =
            sqlx::query("SELECT json FROM events WHERE session = $1 ORDER BY seq DESC LIMIT 50").bind(READ);
        assert_eq!(wait(select.fetch_all(&mut self.conn))?.len(), 50);
        Ok(())
    }

    fn load(&mut self) -> Outcome {
        let select = sqlx::query("SELECT json FROM events WHERE session = $1 ORDER BY seq").bind(READ);
        let rows = wait(select.fetch_all(&mut self.conn))?;
        let parsed: Vec<Event> =
            rows.iter().map(|row| Event::from_json(row.get(0))).collect::<agent_core::Result<_>>()?;
        std::hint::black_box(parsed);
        Ok(())
    }

    fn fill_list(&mut self, sessions: u32) -> Outcome {
        let rows = "INSERT INTO listed SELECT n, n, $1 FROM generate_series(1, $2) n";
        let insert = sqlx::query(rows).bind("x".repeat(RECORD)).bind(i64::from(sessions));
        wait(insert.execute(&mut self.conn))?;
        Ok(())
    }

    fn list_50(&mut self) -> Outcome {
        let select = sqlx::query("SELECT record FROM listed ORDER BY active DESC, id DESC LIMIT 50");
        assert_eq!(wait(select.fetch_all(&mut self.conn))?.len(), 50);
        Ok(())
    }

    fn create(&mut self) -> Outcome {
        self.head += 1;
        // Those that are listed have lower numbers.
        let insert = sqlx::query("INSERT INTO listed VALUES ($1, 0, $2)");
        wait(insert.bind(i64::MAX - self.head).bind("x".repeat(RECORD)).execute(&mut self.conn))?;
        Ok(())
    }
}
