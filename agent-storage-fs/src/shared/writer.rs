//! Runs every write: queued behind the other writers of this process, on a thread that may block, under the locks that
//! exclude other processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Backoff;
use agent_core::{Error, Result, SessionId, WorkspaceId};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::medium::lock::Attempt;
use crate::medium::shell::blocking;
use crate::shared::slot::WriterState;
use crate::shared::tenant::Tenant;

/// Pause between the first attempts, which repeat on the same thread, `LINGERS` times. Most lock holders are done
/// after one sync of the disk, and a timer of the runtime would wait many times as long.
const LINGER: Duration = Duration::from_micros(100);
const LINGERS: usize = 20;
/// Pauses of the later attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(32));

/// Object that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Session(SessionId),
    Workspace(WorkspaceId),
    Bindings,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(f, "session {id}"),
            Self::Workspace(id) => write!(f, "workspace {id}"),
            Self::Bindings => f.write_str("the file bindings.toml"),
        }
    }
}

/// Write of one tenant that is about to begin.
#[derive(Debug)]
pub(crate) struct Writer<G> {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) target: Target,
    /// Queue of the writers of this process, in order, with the state that the current writer works on.
    pub(crate) gate: Arc<Mutex<G>>,
}

pub(crate) type SessionWriter = Writer<WriterState>;

impl<G: Send + 'static> Writer<G> {
    /// Runs `work`, which takes the locks between processes, and repeats it until they are free or the wait limit has
    /// passed. Once `work` runs on its thread it completes, even if the caller is dropped.
    pub(crate) async fn with_lock<T: Send + 'static>(
        self,
        work: impl Fn(&Tenant, &mut G) -> Result<Attempt<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let env = &self.tenant.env;
        let deadline = Instant::now() + env.lock_wait;
        let mut turn = timeout_at(deadline, self.gate.clone().lock_owned()).await.map_err(|_| self.late())?;
        let work = Arc::new(work);
        let mut pauses = 0;
        loop {
            let (tenant, work) = (self.tenant.clone(), work.clone());
            let attempts = move || -> Result<_> {
                let _working = tenant.env.open.begin()?;
                let mut attempt = work(&tenant, &mut turn)?;
                for _ in 0..LINGERS {
                    if let Attempt::Done(_) = attempt {
                        break;
                    }
                    #[allow(
                        clippy::disallowed_methods,
                        reason = "this thread has no runtime's time, and nothing is decided by it"
                    )]
                    std::thread::sleep(LINGER);
                    attempt = work(&tenant, &mut turn)?;
                }
                Ok((turn, attempt))
            };
            let (back, attempt) = blocking(attempts).await??;
            if let Attempt::Done(done) = attempt {
                return Ok(done);
            }
            if Instant::now() >= deadline {
                return Err(self.late());
            }
            turn = back;
            sleep(PAUSES.pause(pauses, &env.effects)).await;
            pauses += 1;
        }
    }

    fn late(&self) -> Error {
        let (target, waited) = (self.target, self.tenant.env.lock_wait);
        Error::unavailable(format!(
            "{target} is locked by another for {waited:?}; find the process that holds it, or try again"
        ))
        .timed_out()
    }
}
