//! State that one tenant's handles share in this process: the open sessions, and a cache of the rest.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::model::Workspace;
use agent_core::{Result, SessionId, TenantId, WorkspaceId};
use tokio::sync::watch;

use crate::error::failed;
use crate::io::{FileId, Kind};
use crate::medium::cached::{Cached, LogPosition};
use crate::medium::env::{Env, held, parent};
use crate::medium::layout::Layout;
use crate::medium::lock;
use crate::shared::bindings_toml::Cache;
use crate::shared::list_state::{Keeping, Lists, TakenIds, Writing};
use crate::shared::slot::WriterState;
use crate::shared::transcript_state::{self, Main};

/// One tenant of a store.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) env: Arc<Env>,
    pub(crate) layout: Layout,
    cells: Mutex<Cells>,
    /// Sessions as lists show them.
    pub(crate) lists: Mutex<Lists>,
    /// When the file with them is written.
    pub(crate) keeping: Keeping,
    /// File in which writers name the sessions that they change.
    pub(crate) changes: Writing,
    /// Ids of sessions, so that a new one is not looked for in each workspace.
    pub(crate) taken: Mutex<TakenIds>,
    pub(crate) bindings: Mutex<Cache>,
    /// Main sessions of the workspaces that were loaded by this process.
    pub(crate) mains: Mutex<HashMap<WorkspaceId, Main>>,
    /// Queue of the writers of one process, in order, before they try for the lock between processes.
    pub(crate) binding_gate: Gate,
    workspace_gates: [Gate; 16],
    closing: Closing,
}

/// What is done when a tenant is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    pub(crate) each_session: fn(&Tenant, &SharedSession, SessionId),
    /// After all sessions.
    pub(crate) tenant: fn(&Tenant),
}

pub(crate) type Gate = Arc<tokio::sync::Mutex<()>>;

#[derive(Debug, Default)]
struct Cells {
    cells: HashMap<SessionId, (Arc<SharedSession>, u64)>,
    /// Counter of uses, for finding the least recently used cell.
    uses: u64,
}

/// State of one session in this process.
#[derive(Debug)]
pub(crate) struct SharedSession {
    /// State for writers, one at a time.
    pub(crate) slot: Arc<tokio::sync::Mutex<WriterState>>,
    /// Cache for readers, which wait for no writer.
    pub(crate) known: Mutex<Known>,
    /// Head of the session, for callers that wait for a change.
    pub(crate) head: watch::Sender<u64>,
    /// State of the transcript, if this is a main session.
    pub(crate) transcript: Mutex<transcript_state::Keeping>,
    /// True if the cell must stay: it holds a lease, or is poisoned.
    pub(crate) pinned: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) record: Option<Cached>,
    /// Where the last pages began and ended, and the last commits began, the latest last.
    positions: Vec<LogPosition>,
}

impl Known {
    /// Returns the offset behind an event, if it is remembered.
    pub(crate) fn offset_behind(&self, log: FileId, event: u64) -> Option<u64> {
        let mut latest_first = self.positions.iter().rev();
        latest_first.find(|it| (it.log, it.after) == (log, event)).map(|it| it.offset)
    }

    /// Remembers a position. A reader goes on where a page ended or a commit began, or begins again where it began, so a few
    /// are enough.
    pub(crate) fn remember(&mut self, position: LogPosition) {
        const MOST: usize = 6;
        self.positions.retain(|it| (it.log, it.after) != (position.log, position.after));
        if self.positions.len() == MOST {
            self.positions.remove(0);
        }
        self.positions.push(position);
    }
}

impl SharedSession {
    fn new() -> Self {
        Self {
            slot: Arc::default(),
            known: Mutex::default(),
            head: watch::Sender::new(0),
            transcript: Mutex::default(),
            pinned: AtomicBool::new(false),
        }
    }

    pub(crate) fn learn(&self, cached: Cached) {
        let head = cached.record.head.get();
        held(&self.known).record = Some(cached);
        self.head.send_if_modified(|known| {
            let news = *known < head;
            *known = head.max(*known);
            news
        });
    }

    pub(crate) fn forget(&self) {
        *held(&self.known) = Known::default();
    }

    fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
            && Arc::strong_count(&self.slot) == 1
            && !self.pinned.load(Ordering::Relaxed)
    }
}

impl Tenant {
    pub(crate) fn new(env: Arc<Env>, id: &TenantId, closing: Closing) -> Self {
        Self {
            layout: Layout::new(&env.root, id),
            env,
            cells: Mutex::default(),
            lists: Mutex::default(),
            keeping: Keeping::default(),
            changes: Writing::default(),
            taken: Mutex::default(),
            bindings: Mutex::default(),
            mains: Mutex::default(),
            binding_gate: Gate::default(),
            workspace_gates: Default::default(),
            closing,
        }
    }

    /// Returns whether no handle and no task uses the tenant, and none of its sessions has to stay open.
    pub(crate) fn is_unused(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && held(&self.cells).cells.values().all(|(cell, _)| cell.is_idle())
    }

    /// Creates the tenant's folder, and checks that locks work there. Called before the first write of this process.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.env.ensure_dir(self.layout.root())?;
        lock::probe_once(&self.env, self.layout.root())
    }

    /// Creates a folder and those above it, without making them durable.
    pub(crate) fn make_folders(&self, path: &Path) -> io::Result<()> {
        let mut made = self.env.io.create_dir(path);
        if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            && path != self.layout.root()
        {
            self.make_folders(parent(path))?;
            made = self.env.io.create_dir(path);
        }
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// Returns the names in the folder of workspaces; an empty list if it was never created.
    pub(crate) fn list_workspaces(&self) -> Result<Vec<(OsString, Kind)>> {
        let folder = self.layout.workspaces();
        match self.env.io.list(&folder) {
            Ok(names) => {
                self.env.saw(&folder);
                Ok(names)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.absent().map(|()| Vec::new()),
            Err(error) => Err(failed("list the folder", &folder, error)),
        }
    }

    /// Fails if the tenant's folders existed and are now missing. Call it before reporting anything in them as absent.
    pub(crate) fn absent(&self) -> Result<()> {
        self.env.check_seen(&[&self.env.root, &self.layout.workspaces()])
    }

    pub(crate) fn workspace_gate(&self, id: WorkspaceId) -> Gate {
        self.workspace_gates[usize::from(id.as_uuid().as_bytes()[15] & 0x0f)].clone()
    }

    /// Returns the cell of a session, and the cells that were evicted for it. The caller drops these on a thread that
    /// may write files.
    pub(crate) fn cell(&self, id: SessionId) -> (Arc<SharedSession>, Vec<Arc<SharedSession>>) {
        let mut all = held(&self.cells);
        all.uses += 1;
        let uses = all.uses;
        if let Some((cell, used)) = all.cells.get_mut(&id) {
            *used = uses;
            return (cell.clone(), Vec::new());
        }
        let mut gone = Vec::new();
        let most = self.env.open_sessions;
        if all.cells.len() >= most {
            let mut idle: Vec<_> = all
                .cells
                .iter()
                .filter(|(_, (cell, _))| cell.is_idle())
                .map(|(id, (_, used))| (*used, *id))
                .collect();
            idle.sort_unstable();
            // Several at once, so that not every new cell causes a search of all.
            let surplus = all.cells.len() + 1 - most + most / 8;
            for (_, id) in idle.into_iter().take(surplus) {
                gone.extend(all.cells.remove(&id).map(|(cell, _)| cell));
            }
        }
        let cell = Arc::new(SharedSession::new());
        all.cells.insert(id, (cell.clone(), uses));
        (cell, gone)
    }

    /// Returns what is cached of a session, if it is.
    pub(crate) fn known(&self, id: SessionId) -> Option<Cached> {
        let cell = held(&self.cells).cells.get(&id).map(|(cell, _)| cell.clone())?;
        let known = held(&cell.known);
        known.record.clone()
    }

    /// Remembers the main session of a workspace, and the provider that its record names.
    pub(crate) fn learn_main(&self, workspace: &Workspace) {
        if !self.env.transcripts {
            return;
        }
        let known = Main { session: workspace.main_session, provider: workspace.provider.clone() };
        held(&self.mains).insert(workspace.id, known);
    }

    /// Drops everything that is cached of the tenant, since it was deleted.
    pub(crate) fn forget(&self) {
        let cells = std::mem::take(&mut *held(&self.cells)).cells;
        for (cell, _) in cells.into_values() {
            cell.forget();
            held(&cell.transcript).scheduled = false;
        }
        *held(&self.lists) = Lists::default();
        held(&self.mains).clear();
        *held(&self.bindings) = Cache::default();
    }

    /// Brings derived files up to date, and drops all sessions with their files and locks.
    pub(crate) fn close(&self) {
        let cells = std::mem::take(&mut *held(&self.cells)).cells;
        for (id, (cell, _)) in cells {
            (self.closing.each_session)(self, &cell, id);
            // A caller that is not polled any more may hold the rest.
            if let Ok(mut slot) = cell.slot.try_lock() {
                *slot = WriterState::default();
            }
        }
        (self.closing.tenant)(self);
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.close();
    }
}
