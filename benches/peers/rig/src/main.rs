//! Runs rig-memory for the harness: `DirStore`, a folder for each session, and its `Writer`, which appends without a sync. An agent
//! is that of rig-agent with such a store as its memory.

#![allow(clippy::disallowed_methods, reason = "this measures real time")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bench_worker::{
    AGENT_MESSAGES, AGENT_TEXT_BYTES, AGENT_TURNS, AGENTS_AT_ONCE, AtOnce, Contender, Order, Outcome, TURNS,
    Task, serve, text,
};
use rig_agent::AgentBuilder;
use rig_core::conversation::Conversation;
use rig_core::message::Message;
use rig_core::test_utils::MockCompletionModel;
use rig_memory::recent::{LastMessages, view};
use rig_memory::{DirStore, Writer, load};
use tokio::runtime::Runtime;

const LOG: &str = "main";

/// A session with its writer.
struct Session {
    folder: PathBuf,
    writer: Writer,
    conversation: Conversation,
}

impl Session {
    fn new(folder: PathBuf) -> Outcome<Self> {
        let (writer, _) = Writer::open(Arc::new(DirStore::open(&folder)?))?;
        writer.start();
        Ok(Self { folder, writer, conversation: Conversation::new() })
    }

    fn turn(&mut self) -> Outcome {
        self.conversation.push(Message::user(text()));
        self.conversation.push(Message::assistant(text()));
        self.writer.save(LOG, &mut self.conversation);
        Ok(self.writer.flush()?)
    }

    fn filled(folder: PathBuf, messages: u32) -> Outcome<Self> {
        let mut session = Self::new(folder)?;
        for _ in 0..messages / 2 {
            session.turn()?;
        }
        Ok(session)
    }

    fn load(&self) -> Outcome<Conversation> {
        Ok(load(&DirStore::open(&self.folder)?, LOG)?)
    }
}

struct Rig {
    task: Task,
    sessions: Vec<Session>,
    forks: u32,
    agents: Option<Agents>,
}

/// Stores of conversations with agents, which read and append to them by themselves.
struct Agents {
    runtime: Runtime,
    stores: Vec<DirStore>,
    order: Order,
}

impl Agents {
    fn new(folder: &Path, count: u32) -> Outcome<Self> {
        let mut stores = Vec::new();
        for n in 0..count {
            let folder = folder.join(n.to_string());
            let mut session = Session::new(folder.clone())?;
            for _ in 0..AGENT_MESSAGES / 2 {
                session.conversation.push(Message::user("x".repeat(AGENT_TEXT_BYTES)));
                session.conversation.push(Message::assistant("x".repeat(AGENT_TEXT_BYTES)));
            }
            session.writer.save(LOG, &mut session.conversation);
            session.writer.flush()?;
            drop(session);
            stores.push(DirStore::open(&folder)?);
        }
        Ok(Self { runtime: Runtime::new()?, order: Order::new(stores.len()), stores })
    }

    /// Has turns in the next conversations.
    fn turns(&mut self, turns: usize) -> Outcome<AtOnce> {
        let next: Vec<_> = self.order.next(turns).into_iter().map(|n| self.stores[n].clone()).collect();
        let next = Arc::new(Mutex::new(next));
        let tasks = (0..AGENTS_AT_ONCE).map(|_| {
            let next = Arc::clone(&next);
            let pop = move || next.lock().ok()?.pop();
            self.runtime.spawn(async move {
                let mut latencies = Vec::new();
                while let Some(store) = pop() {
                    let start = Instant::now();
                    let model = MockCompletionModel::text("x".repeat(AGENT_TEXT_BYTES));
                    let agent = AgentBuilder::new(model).memory(store).conversation(LOG).build();
                    agent.prompt("x".repeat(AGENT_TEXT_BYTES)).await?;
                    latencies.push(start.elapsed());
                }
                Outcome::Ok(latencies)
            })
        });
        let mut all = AtOnce::default();
        for task in tasks.collect::<Vec<_>>() {
            all.latencies.extend(self.runtime.block_on(task)??);
        }
        Ok(all)
    }
}

impl Contender for Rig {
    fn prepare(folder: &Path, task: Task) -> Outcome<Option<Self>> {
        let filled = |messages| Outcome::Ok(vec![Session::filled(folder.join("session"), messages)?]);
        let sessions = match task {
            Task::Turn(messages) | Task::Last(messages) | Task::Load(messages) | Task::Fork(messages) => {
                filled(messages)?
            }
            Task::Writers(writers) => {
                (0..writers).map(|n| Session::new(folder.join(n.to_string()))).collect::<Outcome<_>>()?
            }
            // Its interface ends at one session: a host keeps the list.
            Task::List(_) => return Ok(None),
            Task::Agents(_) => Vec::new(),
        };
        let agents = match task {
            Task::Agents(count) => Some(Agents::new(folder, count)?),
            _ => None,
        };
        Ok(Some(Self { task, sessions, forks: 0, agents }))
    }

    fn run(&mut self, times: u32) -> Outcome<AtOnce> {
        if let Task::Writers(_) = self.task {
            return at_once(&mut self.sessions, times * TURNS);
        }
        if let Some(agents) = &mut self.agents {
            let mut all = AtOnce::default();
            for _ in 0..times {
                all.latencies.extend(agents.turns(AGENT_TURNS)?.latencies);
            }
            return Ok(all);
        }
        let session = self.sessions.first_mut().ok_or("there is no session")?;
        for _ in 0..times {
            match self.task {
                Task::Turn(_) => session.turn()?,
                Task::Last(_) => {
                    let conversation = session.load()?;
                    assert_eq!(view(conversation.messages(), &LastMessages(50)).len(), 50);
                }
                Task::Load(messages) => assert_eq!(session.load()?.messages().len(), messages as usize),
                _ => {
                    self.forks += 1;
                    session.writer.fork_log(LOG, &format!("fork-{}", self.forks), None)?;
                }
            }
        }
        Ok(AtOnce::default())
    }

    fn stored(&mut self) -> Outcome<u64> {
        let mut count = 0;
        for session in &self.sessions {
            count += session.load()?.messages().len() as u64;
        }
        for store in self.agents.iter().flat_map(|agents| &agents.stores) {
            count += load(store, LOG)?.messages().len() as u64;
        }
        Ok(count)
    }
}

/// Runs the turns of each session in a thread of its own.
fn at_once(sessions: &mut [Session], turns: u32) -> Outcome<AtOnce> {
    let mut all = AtOnce::default();
    std::thread::scope(|scope| {
        let threads = sessions.iter_mut().map(|session| {
            scope.spawn(move || {
                let one = |_| {
                    let start = Instant::now();
                    session.turn().map(|()| start.elapsed())
                };
                (0..turns).map(one).collect::<Outcome<Vec<_>>>()
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            all.latencies.extend(thread.join().map_err(|_| "a writer panicked")??);
        }
        Ok(all)
    })
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    serve::<Rig>(&arguments)
}
