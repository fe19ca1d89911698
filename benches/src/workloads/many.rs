//! Turns of many conversations in one process, through the runtime, with and without room for their contexts.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::SessionRecord;
use agent_core::{Sessions, Storage};
use agent_runtime::{AgentBuilder, AgentRuntime, Config, Conversation, EchoProvider};
use bench_worker::{AGENT_MESSAGES, AGENT_TEXT_BYTES, AGENT_TURNS, AGENTS_AT_ONCE, Order};
use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::at_once::latencies;
use super::place::Place;
use super::write::prompt_session;
use crate::counts::{Meter, memory, peak_memory, reset_peak};
use crate::ours::{Backend, messages};
use crate::outcome::Outcome;
use crate::report::{Figure, Measured};
use crate::rounds::{Side, compare};

/// Messages of a conversation that has no turns.
const IDLE_MESSAGES: usize = 20;
/// Bytes of memory that hold the context of a conversation that has turns.
const CONTEXT_BYTES: usize = 900_000;

/// What one process measured.
#[derive(Deserialize, Serialize)]
struct Turns {
    ours: Side,
    floor: Side,
    /// Microseconds of a turn while each conversation had its first one, which reads its context.
    first: f64,
    /// Bytes by which the most memory of the process exceeds what it had with all conversations open.
    peak: u64,
}

/// Turns with contexts kept of all conversations, of a tenth and of none; then of all, with nine times as many conversations that
/// are open and idle. Each in a process of its own, on the same store.
pub(super) async fn many(place: &Place) -> Outcome<Vec<Figure>> {
    let count = if place.quick { 100 } else { 1_000 };
    let mut figures = Vec::new();
    for (what, idle, kept) in [
        ("all kept", 0, count),
        ("a tenth kept", 0, count / 10),
        ("none kept", 0, 0),
        ("all kept", 9 * count, count),
    ] {
        let path = place.path("store");
        if place.backend != Backend::Memory {
            let storage = place.backend.open_storage(&path, true).await?;
            fill(storage.clone(), count, idle).await?;
            storage.close().await?;
        }
        let among = if idle > 0 { format!(" among {}", count + idle) } else { String::new() };
        let name = format!("{count} conversations{among}, {what}");
        let turns = process(place.backend, &path, [count, idle, kept * CONTEXT_BYTES])?;
        let sides = (turns.ours, turns.floor);
        let note = format!(
            "ours {}, floor {}; floor: two commits with a lease, {AGENTS_AT_ONCE} at a time; the first turn of each {:.0} us",
            latencies(&sides.0),
            latencies(&sides.1),
            turns.first
        );
        figures.push(Figure::timed(place.backend, format!("{name}: a turn"), sides).note(note));
        let measured = Measured::Value(turns.peak as f64 / f64::from(1 << 20), "MiB");
        let note = "beyond what the process had with all conversations open".to_owned();
        figures.push(Figure::new(place.backend, format!("{name}: peak memory"), measured).note(note));
    }
    Ok(figures)
}

/// Measures in a process of its own: so many conversations that have turns and that are idle, with a budget of contexts.
fn process(backend: Backend, path: &Path, numbers: [usize; 3]) -> Outcome<Turns> {
    let done = backend.process("many")?.arg(path).args(numbers.map(|number| number.to_string())).output()?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into());
    }
    Ok(serde_json::from_slice(&done.stdout)?)
}

/// What the other process does: prints its [`Turns`].
pub(crate) async fn worker(backend: Backend, path: &Path, numbers: &[String]) -> Outcome {
    let numbers: Vec<usize> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
    let [count, idle, budget] = numbers[..] else { return Err("numbers are missing".into()) };
    let storage = backend.open_storage(path, false).await?;
    if backend == Backend::Memory {
        fill(storage.clone(), count, idle).await?;
    }
    let config = Config::new().with_context_cache_bytes(budget);
    let mut chats = Chats::open(storage, count, config).await?;
    let agent = chats.agent.clone();
    let idle = open(&agent, (0..idle).map(idle_key)).await?;
    let bare = open(&agent, (0..count).map(bare_key)).await?;
    let bare: Vec<_> = bare.iter().map(|chat| Arc::new(Mutex::new(chat.record()))).collect();
    let meter = Meter::new(path.parent().ok_or("the store is in no folder")?)?;
    reset_peak()?;
    let before = memory();

    let start = Instant::now();
    chats.turns(count).await?;
    let first = start.elapsed().as_secs_f64() * 1e6 / count as f64;
    let (sessions, mut order) = (&agent.storage().sessions, Order::new(count));
    let (ours, floor) = compare(
        &meter,
        AGENT_TURNS as u32,
        async |times| chats.turns(times as usize).await,
        async |times| bare_turns(sessions, &bare, order.next(times as usize)).await,
    )
    .await?;
    let peak = peak_memory().saturating_sub(before);
    println!("{}", serde_json::to_string(&Turns { ours, floor, first, peak })?);
    drop((chats, idle));
    Ok(agent.close().await?)
}

/// Long conversations, with turns in random order.
pub(crate) struct Chats {
    agent: AgentRuntime,
    all: Vec<Conversation>,
    order: Order,
}

impl Chats {
    /// Makes so many of them in a new store, and opens it with the default budget of kept contexts.
    pub(crate) async fn filled(backend: Backend, path: &Path, count: usize) -> Outcome<Self> {
        let storage = backend.open_storage(path, true).await?;
        fill(storage.clone(), count, 0).await?;
        storage.close().await?;
        Self::open(backend.open_storage(path, false).await?, count, Config::new()).await
    }

    async fn open(storage: Storage, count: usize, config: Config) -> Outcome<Self> {
        let agent = agent(storage, config)?;
        let all = open(&agent, (0..count).map(busy_key)).await?;
        Ok(Self { agent, all, order: Order::new(count) })
    }

    /// Has turns in the next conversations. Returns what each took.
    pub(crate) async fn turns(&mut self, turns: usize) -> Outcome<Vec<Duration>> {
        in_tasks(self.order.next(turns).into_iter().map(|n| {
            let chat = self.all[n].clone();
            async move {
                chat.prompt("x".repeat(AGENT_TEXT_BYTES)).await?.finish().await?;
                Ok(())
            }
        }))
        .await
    }

    /// Counts the messages of all.
    pub(crate) async fn messages(&self) -> Outcome<u64> {
        let sessions: Vec<_> = self.all.iter().map(|chat| chat.record().id).collect();
        messages(&self.agent.storage().sessions, &sessions).await
    }
}

fn agent(storage: Storage, config: Config) -> Outcome<AgentRuntime> {
    Ok(AgentBuilder::new().with_llm(EchoProvider::new()).with_config(config).with_storage(storage).build()?)
}

fn busy_key(n: usize) -> String {
    format!("busy/{n}")
}

fn idle_key(n: usize) -> String {
    format!("idle/{n}")
}

fn bare_key(n: usize) -> String {
    format!("bare/{n}")
}

async fn open(agent: &AgentRuntime, keys: impl Iterator<Item = String>) -> Outcome<Vec<Conversation>> {
    let mut all = Vec::new();
    for key in keys {
        all.push(agent.conversation(&key).await?);
    }
    Ok(all)
}

/// Makes the conversations that are not there yet, each history in one commit, and the sessions of the floor.
async fn fill(storage: Storage, count: usize, idle: usize) -> Outcome {
    let agent = agent(storage, Config::new())?;
    let histories = (0..count).map(|n| (busy_key(n), AGENT_MESSAGES));
    let histories = histories.chain((0..idle).map(|n| (idle_key(n), IDLE_MESSAGES)));
    let all = histories.chain((0..count).map(|n| (bare_key(n), 0)));
    in_tasks(all.map(|(key, messages)| {
        let agent = agent.clone();
        async move {
            let chat = agent.conversation(&key).await?;
            if messages == 0 || chat.record().counts.messages() > 0 {
                return Ok(());
            }
            let history = (0..messages).map(|n| match n % 2 {
                0 => NewEvent::user_message("x".repeat(AGENT_TEXT_BYTES)),
                _ => NewEvent::agent_message("x".repeat(AGENT_TEXT_BYTES)),
            });
            let (sessions, record) = (&agent.storage().sessions, chat.record());
            let commit = Commit::seal(sessions.effects(), record.id, record.head);
            sessions.commit(commit.with_trigger(Trigger::ImportEvents(history.collect()))).await?;
            Ok(())
        }
    }))
    .await?;
    Ok(())
}

/// Makes the two commits of a turn in each of these sessions. Returns what each took.
async fn bare_turns(
    store: &Sessions,
    sessions: &[Arc<Mutex<Arc<SessionRecord>>>],
    order: Vec<usize>,
) -> Outcome<Vec<Duration>> {
    in_tasks(order.into_iter().map(|n| {
        let (store, session) = (store.clone(), sessions[n].clone());
        async move { prompt_session(&store, &mut *session.lock().await, &"x".repeat(AGENT_TEXT_BYTES)).await }
    }))
    .await
}

/// Runs each in a task of its own, [`AGENTS_AT_ONCE`] at a time. Returns what each took.
async fn in_tasks<F>(turns: impl Iterator<Item = F>) -> Outcome<Vec<Duration>>
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let tasks = turns.map(|turn| {
        tokio::spawn(async move {
            let start = Instant::now();
            turn.await.map(|()| start.elapsed())
        })
    });
    stream::iter(tasks).buffer_unordered(AGENTS_AT_ONCE).map(|done| done?).try_collect().await
}
