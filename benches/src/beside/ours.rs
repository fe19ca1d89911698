//! Our stores as a process like those of the other libraries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::session::SessionRecord;
use agent_core::store::{ReadEvents, SessionQuery};
use bench_worker::{AGENT_TURNS, AtOnce, Contender, TURNS, Task};
use tokio::runtime::Runtime;

use crate::ours::{Backend, Ours, messages};
use crate::outcome::Outcome;
use crate::workloads::many::Chats;
use crate::workloads::{at_once, list};

/// Variable with which the stores are measured without syncs, beside libraries that have none.
pub(super) const UNSYNCED: &str = "BENCH_UNSYNCED";

/// Runs the process of a store.
pub(crate) fn serve(backend: Backend, arguments: &[String]) -> Outcome {
    match backend {
        Backend::Memory => {
            Err("the other libraries are measured beside stores that outlive a process".into())
        }
        Backend::Files => bench_worker::serve::<Store<{ Backend::Files as usize }>>(arguments),
        Backend::Sqlite => bench_worker::serve::<Store<{ Backend::Sqlite as usize }>>(arguments),
        Backend::Postgres => bench_worker::serve::<Store<{ Backend::Postgres as usize }>>(arguments),
    }
}

/// One of [`Backend::ALL`].
struct Store<const BACKEND: usize>(Side);

impl<const BACKEND: usize> Contender for Store<BACKEND> {
    fn prepare(folder: &Path, task: Task) -> Outcome<Option<Self>> {
        Side::new(Backend::ALL[BACKEND], folder.join("store"), task).map(|side| side.map(Self))
    }

    fn run(&mut self, times: u32) -> Outcome<AtOnce> {
        self.0.run(times)
    }

    fn stored(&mut self) -> Outcome<u64> {
        self.0.stored()
    }
}

struct Side {
    task: Task,
    runtime: Runtime,
    opened: Opened,
}

/// What a task needs.
enum Opened {
    Store {
        ours: Ours,
        /// Sessions that are written to at once.
        sessions: Vec<Arc<SessionRecord>>,
    },
    Agents(Chats),
}

impl Side {
    fn new(backend: Backend, path: PathBuf, task: Task) -> Outcome<Option<Self>> {
        let is_synced = std::env::var_os(UNSYNCED).is_none();
        if !is_synced && !matches!(task, Task::Turn(_)) {
            return Ok(None);
        }
        let runtime = Runtime::new()?;
        let opened = runtime.block_on(async {
            let (ours, sessions) = match task {
                Task::Agents(count) => {
                    return Ok(Opened::Agents(Chats::filled(backend, &path, count as usize).await?));
                }
                Task::Writers(writers) => {
                    let ours = Ours::new(backend, path).await?;
                    let sessions = at_once::sessions(&ours, writers).await?;
                    (ours, sessions)
                }
                Task::List(sessions) => (list::filled(backend, path, sessions).await?, Vec::new()),
                task => (Ours::filled(backend, path, task.size().into(), is_synced).await?, Vec::new()),
            };
            Outcome::Ok(Opened::Store { ours, sessions })
        })?;
        Ok(Some(Self { task, runtime, opened }))
    }

    fn run(&mut self, times: u32) -> Outcome<AtOnce> {
        let Self { task, runtime, opened } = self;
        runtime.block_on(async {
            let (ours, sessions) = match opened {
                Opened::Store { ours, sessions } => (ours, sessions),
                Opened::Agents(chats) => {
                    let latencies = chats.turns(times as usize * AGENT_TURNS).await?;
                    return Ok(AtOnce { latencies, refused: 0 });
                }
            };
            if let Task::Writers(_) = task {
                let latencies = at_once::turns(ours, sessions, times * TURNS).await?;
                return Ok(AtOnce { latencies, refused: 0 });
            }
            for _ in 0..times {
                match task {
                    Task::Turn(_) => ours.append(2).await?,
                    Task::Last(_) => {
                        let page = ours.store.read(ours.session.id, ReadEvents::last(50)).await?;
                        assert_eq!(page.events.len(), 50);
                    }
                    Task::Load(events) => assert_eq!(ours.load().await?.len(), *events as usize),
                    Task::List(_) => {
                        let page = ours.store.list(SessionQuery::new().with_limit(50)).await?;
                        assert_eq!(page.items.len(), 50);
                    }
                    _ => drop(ours.store.fork(ours.session.id, None).await?),
                }
            }
            Ok(AtOnce::default())
        })
    }

    fn stored(&self) -> Outcome<u64> {
        self.runtime.block_on(async {
            let (ours, sessions) = match &self.opened {
                Opened::Store { ours, sessions } => (ours, sessions),
                Opened::Agents(chats) => return chats.messages().await,
            };
            let mut ids: Vec<_> = sessions.iter().map(|session| session.id).collect();
            if ids.is_empty() {
                ids.push(ours.session.id);
            }
            messages(&ours.store, &ids).await
        })
    }
}
