//! Our stores, behind one trait object: no workload knows which one it measures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::{Event, EventType, NewEvent};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::store::{PAGE_MAX, ReadEvents};
use agent_core::{MemoryStore, SessionId, SessionStoreExt, Sessions, Storage, WorkspaceId};
use agent_storage_fs::{FsConfig, Sync as FsSync};
use agent_storage_sqlite::{SqliteConfig, Sync as SqliteSync};
use bench_worker::text;

use crate::outcome::Outcome;
use crate::postgres;

/// Which store is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Files,
    Sqlite,
    Postgres,
}

impl Backend {
    pub(crate) const ALL: [Self; 4] = [Self::Memory, Self::Files, Self::Sqlite, Self::Postgres];
    /// Those that outlive their process, without a server.
    pub(crate) const DURABLE: [Self; 2] = [Self::Files, Self::Sqlite];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Files => "files",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }

    /// Opens the store at a path, at its default durability: the loss of power loses nothing.
    pub(crate) async fn open(self, path: &Path) -> Outcome<Sessions> {
        Ok(self.open_storage(path, false).await?.sessions)
    }

    /// Opens the stores at a path; to fill them, without syncs.
    pub(crate) async fn open_storage(self, path: &Path, fills: bool) -> Outcome<Storage> {
        Ok(match self {
            Self::Memory => MemoryStore::new().into(),
            Self::Files => {
                let sync = if fills { FsSync::Off } else { FsSync::Full };
                FsConfig::new(path).with_sync(sync).open().await?.into()
            }
            Self::Sqlite => {
                let sync = if fills { SqliteSync::Off } else { SqliteSync::Full };
                SqliteConfig::new(path).with_sync(sync).open().await?.into()
            }
            Self::Postgres => postgres::open(path, fills).await?.into(),
        })
    }

    /// Opens the store with all tenants; to fill it, without syncs.
    pub(crate) async fn open_tenants(
        self,
        path: &Path,
        fills: bool,
    ) -> Outcome<Arc<dyn agent_core::Backend>> {
        Ok(match self {
            Self::Memory => Arc::new(MemoryStore::new()),
            Self::Files => {
                let sync = if fills { FsSync::Off } else { FsSync::Full };
                Arc::new(FsConfig::new(path).with_sync(sync).open().await?)
            }
            Self::Sqlite => {
                let sync = if fills { SqliteSync::Off } else { SqliteSync::Full };
                Arc::new(SqliteConfig::new(path).with_sync(sync).open().await?)
            }
            Self::Postgres => Arc::new(postgres::open(path, fills).await?),
        })
    }

    /// Opens the store without syncs, to measure that or to fill it before something else is measured.
    pub(crate) async fn open_to_fill(self, path: &Path) -> Outcome<Sessions> {
        Ok(self.open_storage(path, true).await?.sessions)
    }

    /// Has the store's server, if it has one, do at once what is left of what was filled.
    pub(crate) async fn settle(self) -> Outcome {
        if self == Self::Postgres { postgres::settle().await } else { Ok(()) }
    }

    /// A process of this program that does a part of a workload on the store.
    pub(crate) fn process(self, work: &str) -> Outcome<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--worker", work, self.name()]);
        if self == Self::Postgres {
            command.envs([postgres::variable()]);
        }
        Ok(command)
    }
}

/// A store, and a session in it.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) path: PathBuf,
    pub(crate) store: Sessions,
    pub(crate) effects: Effects,
    pub(crate) session: Arc<SessionRecord>,
}

impl Ours {
    /// A new store at a path that does not exist yet.
    pub(crate) async fn new(backend: Backend, path: PathBuf) -> Outcome<Self> {
        let store = backend.open(&path).await?;
        Self::with(store, path).await
    }

    /// The same without syncs.
    pub(crate) async fn unsynced(backend: Backend, path: PathBuf) -> Outcome<Self> {
        let store = backend.open_to_fill(&path).await?;
        Self::with(store, path).await
    }

    async fn with(store: Sessions, path: PathBuf) -> Outcome<Self> {
        let effects = Effects::default();
        let session = new_session(&store).await?;
        Ok(Self { path, store, effects, session })
    }

    /// The same with so many events of one KiB each, ten in a commit as a run with a few tools makes them, made without
    /// syncs. What follows is synced or not.
    pub(crate) async fn filled(
        backend: Backend,
        path: PathBuf,
        events: u64,
        is_synced: bool,
    ) -> Outcome<Self> {
        let store = backend.open_to_fill(&path).await?;
        let effects = Effects::default();
        let mut session = new_session(&store).await?;
        while session.head.get() < events {
            let left = (events - session.head.get()).min(10);
            let messages = (0..left).map(|_| NewEvent::agent_message(text()));
            let commit = Commit::seal(&effects, session.id, session.head).with_events(messages);
            session = store.commit(commit).await?.session;
        }
        drop(store);
        let store = backend.open_storage(&path, !is_synced).await?.sessions;
        Ok(Self { path, store, effects, session })
    }

    pub(crate) fn seal(&self) -> Commit {
        Commit::seal(&self.effects, self.session.id, self.session.head)
    }

    pub(crate) async fn commit(&mut self, commit: Commit) -> Outcome {
        self.session = self.store.commit(commit).await?.session;
        Ok(())
    }

    /// So many messages of one KiB in one commit: two are a turn.
    pub(crate) async fn append(&mut self, messages: u32) -> Outcome {
        self.commit(self.seal().with_events(turn(messages))).await
    }

    /// All events of the session.
    pub(crate) async fn load(&self) -> Outcome<Vec<Event>> {
        load(&self.store, self.session.id).await
    }
}

/// So many messages of one KiB: two are a turn.
pub(crate) fn turn(messages: u32) -> impl Iterator<Item = NewEvent> {
    (0..messages).map(|n| match n % 2 {
        0 => NewEvent::user_message(text()),
        _ => NewEvent::agent_message(text()),
    })
}

async fn load(store: &Sessions, session: SessionId) -> Outcome<Vec<Event>> {
    let (mut events, mut next) = (Vec::new(), Some(ReadEvents::first(PAGE_MAX)));
    while let Some(read) = next {
        let page = store.history(session, read).await?;
        events.extend(page.events);
        next = page.next;
    }
    Ok(events)
}

/// Counts the messages of sessions, by their events.
pub(crate) async fn messages(store: &Sessions, sessions: &[SessionId]) -> Outcome<u64> {
    let mut count = 0;
    for session in sessions {
        let events = load(store, *session).await?;
        let kinds = events.iter().map(|event| &event.kind);
        let messages =
            kinds.filter(|kind| [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE].contains(*kind));
        count += messages.count() as u64;
    }
    Ok(count)
}

pub(crate) async fn new_session(store: &Sessions) -> Outcome<Arc<SessionRecord>> {
    let new = NewSession::new(store.effects().new_session_id(), WorkspaceId::DEFAULT);
    Ok(store.create(new).await?)
}
