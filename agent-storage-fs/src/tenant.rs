//! What one tenant's handles share in this process: the sessions that are open, and what was read of the rest.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use agent_core::model::Workspace;
use agent_core::session::SessionSummary;
use agent_core::{Result, SessionId, TenantId, WorkspaceId};
use tokio::sync::watch;

use crate::bindings_toml::Cache;
use crate::cached::Cached;
use crate::env::{Env, held};
use crate::error::failed;
use crate::io::{Kind, Stat};
use crate::layout::Layout;
use crate::lock;
use crate::slot::Slot;
use crate::transcript::kept::{Keeping, Main};

/// One tenant of a store.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) env: Arc<Env>,
    pub(crate) layout: Layout,
    cells: Mutex<Cells>,
    /// What lists showed of a session, for as long as its log stays as it was.
    pub(crate) summaries: Mutex<HashMap<SessionId, (Stat, SessionSummary)>>,
    pub(crate) bindings: Mutex<Cache>,
    /// The main sessions of the workspaces that were loaded here.
    pub(crate) mains: Mutex<HashMap<WorkspaceId, Main>>,
    /// Writers of one process queue here, in order, before they try for the lock between processes.
    pub(crate) binding_gate: Gate,
    workspace_gates: [Gate; 16],
    /// What is done with each session when the tenant is let go.
    closing: Closing,
}

pub(crate) type Closing = fn(&Tenant, &Cell, SessionId);

pub(crate) type Gate = Arc<tokio::sync::Mutex<()>>;

#[derive(Debug, Default)]
struct Cells {
    cells: HashMap<SessionId, (Arc<Cell>, u64)>,
    /// Counts uses, to tell which was used longest ago.
    uses: u64,
}

/// What this process keeps of one session.
#[derive(Debug)]
pub(crate) struct Cell {
    /// For its writers, one at a time.
    pub(crate) slot: Arc<tokio::sync::Mutex<Slot>>,
    /// For its readers, who wait for nobody.
    pub(crate) known: Mutex<Known>,
    /// Its head, for those who wait for a change.
    pub(crate) head: watch::Sender<u64>,
    /// Its transcript, where it is a main session.
    pub(crate) transcript: Mutex<Keeping>,
    /// Whether it must stay: it holds a lease, or is poisoned.
    pub(crate) pinned: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) folder: Option<PathBuf>,
    pub(crate) record: Option<Cached>,
}

impl Cell {
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
            summaries: Mutex::default(),
            bindings: Mutex::default(),
            mains: Mutex::default(),
            binding_gate: Gate::default(),
            workspace_gates: Default::default(),
            closing,
        }
    }

    /// Makes the tenant's folder, and sure that locks work there. Before the first write of this process.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.env.ensure_dir(self.layout.root())?;
        lock::probe_once(&self.env, self.layout.root())
    }

    /// The names in the folder of workspaces; none if there never was one.
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

    /// Before something of the tenant is said to be absent: fails if the folders that it would be in were there and are
    /// gone.
    pub(crate) fn absent(&self) -> Result<()> {
        self.env.check_seen(&[&self.env.root, &self.layout.workspaces()])
    }

    pub(crate) fn workspace_gate(&self, id: WorkspaceId) -> Gate {
        self.workspace_gates[usize::from(id.as_uuid().as_bytes()[15] & 0x0f)].clone()
    }

    /// What is kept of a session; and what had to go for it, to be dropped where files may be written.
    pub(crate) fn cell(&self, id: SessionId) -> (Arc<Cell>, Vec<Arc<Cell>>) {
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
            // Several at once, so that not every new one has to look through all.
            let surplus = all.cells.len() + 1 - most + most / 8;
            for (_, id) in idle.into_iter().take(surplus) {
                gone.extend(all.cells.remove(&id).map(|(cell, _)| cell));
            }
        }
        let cell = Arc::new(Cell::new());
        all.cells.insert(id, (cell.clone(), uses));
        (cell, gone)
    }

    /// Remembers which session is a workspace's main one, and what its file says of it.
    pub(crate) fn learn_main(&self, workspace: &Workspace) {
        if !self.env.transcripts {
            return;
        }
        let known = Main { session: workspace.main_session, provider: workspace.provider.clone() };
        held(&self.mains).insert(workspace.id, known);
    }

    /// Brings up to date what is behind, and lets go of all sessions, with their files and locks.
    pub(crate) fn close(&self) {
        let cells = std::mem::take(&mut *held(&self.cells)).cells;
        for (id, (cell, _)) in cells {
            (self.closing)(self, &cell, id);
            // A caller that is not polled any more may hold the rest of it.
            if let Ok(mut slot) = cell.slot.try_lock() {
                *slot = Slot::default();
            }
        }
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.close();
    }
}
