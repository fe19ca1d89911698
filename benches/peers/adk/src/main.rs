//! Runs adk-session for the harness: `SqliteSessionService`. An agent is that of adk-agent, run by adk-runner with this service.
//!
//! As it is by default, it is opened with `new(url)`. With `BENCH_WAL` set, it is given a pool with a write-ahead log, as its
//! `from_pool` allows. With the address of a server in `BENCH_POSTGRES`, it is `PostgresSessionService`, opened with `new(url)`, in a
//! database of its own.

#![allow(clippy::disallowed_methods, reason = "this measures real time")]

mod agents;
mod database;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adk_core::Content;
use adk_core::identity::{AdkIdentity, AppName, SessionId, UserId};
use adk_session::{AppendEventRequest, CreateRequest, Event, GetRequest, ListRequest, SessionService};
use agents::Agents;
use bench_worker::{AGENT_MESSAGES, AGENT_TURNS, AtOnce, Contender, Outcome, TURNS, Task, serve, text};
use database::{Database, Pool};
use tokio::runtime::Runtime;

const APP: &str = "bench";
const USER: &str = "person";
/// Author of the answers: an agent reads its own only.
const MODEL: &str = "model";

fn session(n: u32) -> String {
    format!("session-{n}")
}

fn identity(session: &str) -> Outcome<AdkIdentity> {
    Ok(AdkIdentity::new(AppName::try_from(APP)?, UserId::try_from(USER)?, SessionId::try_from(session)?))
}

async fn create(service: &dyn SessionService, n: u32) -> Outcome {
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
    service: &dyn SessionService,
    identity: &AdkIdentity,
    author: &str,
    text: String,
) -> adk_core::Result<()> {
    let mut event = Event::new("invocation");
    event.author = author.to_owned();
    event.llm_response.content = Some(Content::new(author).with_text(text));
    service.append_event_for_identity(AppendEventRequest { identity: identity.clone(), event }).await
}

async fn get(service: &dyn SessionService, recent: Option<usize>) -> Outcome<usize> {
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
async fn turn(service: &dyn SessionService, identity: &AdkIdentity) -> Outcome<u32> {
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
    service: Arc<dyn SessionService>,
    pool: Pool,
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
        let (service, pool) = runtime.block_on(async {
            let database = Database::new(folder).await?;
            let (filling, pool) = database.open(true).await?;
            // What the library writes once is copied with SQL: through its interface, 100,000 events take minutes.
            create(&*filling, 0).await?;
            pool.copy_session(sessions).await?;
            if messages > 0 {
                for author in ["user", MODEL] {
                    append(&*filling, &identity(&session(0))?, author, text.clone()).await?;
                }
                pool.copy_events(sessions, messages / 2).await?;
            }
            pool.close().await;
            database.open(false).await
        })?;
        let agents = match task {
            Task::Agents(count) => Some(Agents::new(&service, count)?),
            _ => None,
        };
        Ok(Some(Self { task, runtime, service, pool, agents }))
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
                    Task::Turn(_) => done.refused += turn(&**service, &identity).await?,
                    Task::Last(_) => assert_eq!(get(&**service, Some(50)).await?, 50),
                    Task::Load(messages) => assert_eq!(get(&**service, None).await?, messages as usize),
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
        self.runtime.block_on(self.pool.count_events())
    }
}

async fn at_once(service: &Arc<dyn SessionService>, writers: u32, turns: u32) -> Outcome<AtOnce> {
    let tasks = (0..writers).map(|n| {
        let service = Arc::clone(service);
        tokio::spawn(async move {
            let (identity, mut done) = (identity(&session(n))?, AtOnce::default());
            for _ in 0..turns {
                let start = Instant::now();
                done.refused += turn(&*service, &identity).await?;
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
