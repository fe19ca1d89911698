//! Thread on which the connections live, and the process groups that were started.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Dispatch;
use tracing::dispatcher::{self, DefaultGuard};

/// Time that the thread gives to what it is doing when it ends.
const ENDING: Duration = Duration::from_secs(1);

/// Thread on which the connections live.
///
/// The protocol crate logs whole messages, so it runs where nothing is recorded. Connections also outlive the runtime of
/// the host's call that opened them.
#[derive(Debug)]
pub(crate) struct Hub {
    handle: Handle,
    /// Ends the thread when it is dropped.
    _stop: oneshot::Sender<()>,
    pub(crate) groups: Arc<Groups>,
    /// Subscriber of the host at the time of the first use.
    pub(crate) log: Dispatch,
}

impl Hub {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, started) = mpsc::sync_channel(1);
        let log = dispatcher::get_default(Clone::clone);
        let groups = Arc::<Groups>::default();
        let gone = groups.clone();
        thread::Builder::new().name("agent-mcp".to_owned()).spawn(move || {
            let _silent: DefaultGuard = dispatcher::set_default(&Dispatch::none());
            // Built here: a runtime must not be dropped in a task, as it would be if there is no thread for it.
            match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let _ = ready.send(Ok(runtime.handle().clone()));
                    // An error says that the sender was dropped.
                    let _ = runtime.block_on(stopped);
                    // Reaps the processes, which were killed.
                    let _ = runtime.block_on(async { timeout(ENDING, gone.kept.closed()).await });
                    runtime.shutdown_timeout(ENDING);
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let handle = started.recv().map_err(io::Error::other)??;
        Ok(Self { handle, _stop: stop, groups, log })
    }

    /// Does work on the thread. Returns `None` if it panicked or the thread ended. If the future is dropped, so is the
    /// work.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send + 'static {
        let mut tasks = JoinSet::new();
        tasks.spawn_on(work, &self.handle);
        async move { tasks.join_next().await?.ok() }
    }

    /// Does work on the thread until it ends by itself.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(work));
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // The thread may have no time left, because the process may end now.
        self.groups.kill();
    }
}

/// Process groups of the servers that run.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    first: Mutex<BTreeSet<u32>>,
    /// Has a receiver for each process that is being watched.
    kept: watch::Sender<()>,
}

impl Groups {
    /// Returns a mark for the time in which a process is watched.
    pub(crate) fn keep(&self) -> watch::Receiver<()> {
        self.kept.subscribe()
    }

    /// Adds the group of a new process, of which it is the first.
    pub(crate) fn add(&self, process: u32) {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).insert(process);
    }

    /// Kills what is left of a group.
    pub(crate) fn end(&self, process: u32) {
        let mut groups = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if groups.remove(&process) {
            kill(process);
        }
    }

    /// Kills all groups.
    pub(crate) fn kill(&self) {
        let groups = std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner));
        groups.into_iter().for_each(kill);
    }
}

/// Kills a process and all others of its group.
#[cfg(unix)]
fn kill(process: u32) {
    let id = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        // An error says that there are no such processes any more.
        let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
    }
}

/// The process is killed when its handle is dropped.
#[cfg(not(unix))]
fn kill(_process: u32) {}
