//! Runs adk-session for the harness: `SqliteSessionService`. An agent is that of adk-agent, run by adk-runner with this service.
//!
//! As it is by default, it is opened with `new(url)`. With `BENCH_WAL` set, it is given a pool with a write-ahead log, as its
//! `from_pool` allows.

#![allow(clippy::disallowed_methods, reason = "this measures real time")]

mod agents;

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use adk_core::Content;
use adk_core::identity::{AdkIdentity, AppName, SessionId, UserId};
use adk_session::{
    AppendEventRequest, CreateRequest, Event, GetRequest, ListRequest, SessionService, SqliteSessionService,
};
use agents::Agents;
use bench_worker::{AGENT_MESSAGES, AGENT_TURNS, AtOnce, Contender, Outcome, TURNS, Task, serve, text};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::runtime::Runtime;

const APP: &str = "bench";
const USER: &str = "person";
/// Author of the answers: an agent reads its own only.
const MODEL: &str = "model";

/// Copies the session that is there until there are as many as the parameter.
const MORE_SESSIONS: &str = "
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?1)
    INSERT INTO sessions SELECT app_name, user_id, 'session-' || n, state, created_at, updated_at FROM sessions, n WHERE n < ?1";

/// Copies the events of the first session until so many sessions, the first parameter, have so many times as many, the second. Each
/// has an id and a time of its own; prompts are before answers.
const MORE_EVENTS: &str = "
    WITH RECURSIVE s (s) AS (SELECT 0 UNION ALL SELECT s + 1 FROM s WHERE s + 1 < ?1),
        n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < ?2)
    INSERT INTO events SELECT lower(hex(randomblob(16))), app_name, user_id, 'session-' || s, invocation_id, branch, author,
        substr(timestamp, 1, 20) || printf('%09d', 2 * n + (author <> 'user')) || '+00:00', llm_response, actions,
        long_running_tool_ids
    FROM s, n, events WHERE s + n > 0 ORDER BY s, n";

fn session(n: u32) -> String {
    format!("session-{n}")
}

fn identity(session: &str) -> Outcome<AdkIdentity> {
    Ok(AdkIdentity::new(AppName::try_from(APP)?, UserId::try_from(USER)?, SessionId::try_from(session)?))
}

async fn pool(url: &str, synchronous: SqliteSynchronous, wal: bool) -> Outcome<SqliteSessionService> {
    let mut options = SqliteConnectOptions::from_str(url)?.synchronous(synchronous).foreign_keys(true);
    if wal {
        options = options.journal_mode(SqliteJournalMode::Wal);
    }
    let pool = SqlitePoolOptions::new().connect_with(options).await?;
    Ok(SqliteSessionService::from_pool(pool))
}

async fn create(service: &SqliteSessionService, n: u32) -> Outcome {
    let request = CreateRequest {
        app_name: APP.to_owned(),
        user_id: USER.to_owned(),
        session_id: Some(session(n)),
        state: HashMap::new(),
    };
    service.create(request).await?;
    Ok(())
}

async fn append(
    service: &SqliteSessionService,
    identity: &AdkIdentity,
    author: &str,
    text: String,
) -> adk_core::Result<()> {
    let mut event = Event::new("invocation");
    event.author = author.to_owned();
    event.llm_response.content = Some(Content::new(author).with_text(text));
    service.append_event_for_identity(AppendEventRequest { identity: identity.clone(), event }).await
}

async fn get(service: &SqliteSessionService, recent: Option<usize>) -> Outcome<usize> {
    let request = GetRequest {
        app_name: APP.to_owned(),
        user_id: USER.to_owned(),
        session_id: session(0),
        num_recent_events: recent,
        after: None,
    };
    Ok(service.get(request).await?.events().len())
}

/// Number of refusals in a row that are no longer those of a busy file.
const MOST_REFUSALS: u32 = 1000;

/// Does a turn: two events, each in a transaction of its own, since the interface has no other way. A refused call is repeated.
/// Returns the number of refused calls.
async fn turn(service: &SqliteSessionService, identity: &AdkIdentity) -> Outcome<u32> {
    let mut refused = 0;
    for author in ["user", MODEL] {
        while let Err(error) = append(service, identity, author, text()).await {
            refused += 1;
            if refused > MOST_REFUSALS {
                return Err(error.into());
            }
        }
    }
    Ok(refused)
}

struct Adk {
    task: Task,
    runtime: Runtime,
    service: Arc<SqliteSessionService>,
    agents: Option<Agents>,
}

impl Contender for Adk {
    fn prepare(folder: &Path, task: Task) -> Outcome<Option<Self>> {
        let (sessions, messages) = match task {
            Task::Turn(messages) | Task::Last(messages) | Task::Load(messages) => (1, messages),
            Task::Writers(writers) => (writers, 0),
            Task::List(sessions) => (sessions, 0),
            Task::Agents(count) => (count, AGENT_MESSAGES as u32),
            Task::Fork(_) => return Ok(None),
        };
        let text = if let Task::Agents(_) = task { agents::text() } else { text() };
        let runtime = Runtime::new()?;
        let url = format!("sqlite:{}?mode=rwc", folder.join("sessions.db").display());
        let wal = std::env::var_os("BENCH_WAL").is_some();
        runtime.block_on(async {
            let filling = pool(&url, SqliteSynchronous::Off, wal).await?;
            filling.migrate().await?;
            // What the library writes once is copied with SQL: through its interface, 100,000 events take minutes.
            create(&filling, 0).await?;
            sqlx::query(MORE_SESSIONS).bind(sessions).execute(filling.pool()).await?;
            if messages > 0 {
                for author in ["user", MODEL] {
                    append(&filling, &identity(&session(0))?, author, text.clone()).await?;
                }
                sqlx::query(MORE_EVENTS).bind(sessions).bind(messages / 2).execute(filling.pool()).await?;
            }
            filling.pool().close().await;
            Outcome::Ok(())
        })?;
        let service = runtime.block_on(async {
            if wal {
                return pool(&url, SqliteSynchronous::Full, true).await;
            }
            Ok(SqliteSessionService::new(&url).await?)
        })?;
        let service = Arc::new(service);
        let agents = match task {
            Task::Agents(count) => Some(Agents::new(&service, count)?),
            _ => None,
        };
        Ok(Some(Self { task, runtime, service, agents }))
    }

    fn run(&mut self, times: u32) -> Outcome<AtOnce> {
        let (task, service) = (self.task, &self.service);
        self.runtime.block_on(async {
            if let Some(agents) = &mut self.agents {
                return agents.turns(times as usize * AGENT_TURNS).await;
            }
            if let Task::Writers(writers) = task {
                return at_once(service, writers, times * TURNS).await;
            }
            let identity = identity(&session(0))?;
            let mut done = AtOnce::default();
            for _ in 0..times {
                match task {
                    Task::Turn(_) => done.refused += turn(service, &identity).await?,
                    Task::Last(_) => assert_eq!(get(service, Some(50)).await?, 50),
                    Task::Load(messages) => assert_eq!(get(service, None).await?, messages as usize),
                    _ => {
                        let (app_name, user_id) = (APP.to_owned(), USER.to_owned());
                        let request = ListRequest { app_name, user_id, limit: Some(50), offset: None };
                        assert_eq!(service.list(request).await?.len(), 50);
                    }
                }
            }
            Ok(done)
        })
    }

    fn stored(&mut self) -> Outcome<u64> {
        let count = sqlx::query_scalar("SELECT count(*) FROM events").fetch_one(self.service.pool());
        Ok(self.runtime.block_on(count)?)
    }
}

async fn at_once(service: &Arc<SqliteSessionService>, writers: u32, turns: u32) -> Outcome<AtOnce> {
    let tasks = (0..writers).map(|n| {
        let service = Arc::clone(service);
        tokio::spawn(async move {
            let (identity, mut done) = (identity(&session(n))?, AtOnce::default());
            for _ in 0..turns {
                let start = Instant::now();
                done.refused += turn(&service, &identity).await?;
                done.latencies.push(start.elapsed());
            }
            Outcome::Ok(done)
        })
    });
    let mut all = AtOnce::default();
    for task in tasks.collect::<Vec<_>>() {
        let done = task.await??;
        all.latencies.extend(done.latencies);
        all.refused += done.refused;
    }
    Ok(all)
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    serve::<Adk>(&arguments)
}
