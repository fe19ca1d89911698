//! The way to every write: behind the other writers of this process, on a thread that may block, under the locks that
//! keep out those of other processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_core::{Error, ErrorKind, Result, SessionId, WorkspaceId};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use crate::lock::Attempt;
use crate::shell::blocking;
use crate::slot::Slot;
use crate::tenant::Tenant;

/// Most holders are done after one sync of the disk: so long, so often, an attempt is repeated where it stands. A timer
/// of the runtime would wait a multiple of that.
const LINGER: Duration = Duration::from_micros(100);
const LINGERS: usize = 20;
/// The first and the longest pause after that.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// What is written.
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

/// A write of one tenant that is about to begin.
#[derive(Debug)]
pub(crate) struct Writer<G> {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) target: Target,
    /// Where the writers of this process queue, in order, and what the one that is through works on.
    pub(crate) gate: Arc<Mutex<G>>,
}

pub(crate) type SessionWriter = Writer<Slot>;

impl<G: Send + 'static> Writer<G> {
    /// Runs `work`, which takes the locks between processes, until these are free or too much time has passed. Once it
    /// is on its thread it ends, also where the caller is dropped.
    pub(crate) async fn with_lock<T: Send + 'static>(
        self,
        work: impl Fn(&Tenant, &mut G) -> Result<Attempt<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let env = &self.tenant.env;
        let deadline = Instant::now() + env.lock_wait;
        let mut turn = timeout_at(deadline, self.gate.clone().lock_owned()).await.map_err(|_| self.late())?;
        let work = Arc::new(work);
        let mut pause = PAUSE;
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
            // Jitter, so that those who wait do not all come at once.
            let half = u32::try_from(pause.as_micros() / 2).unwrap_or(u32::MAX);
            let jitter = u32::try_from(env.effects.random_u64() % u64::from(half.max(1))).unwrap_or(0);
            sleep(Duration::from_micros(u64::from(half + jitter))).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn late(&self) -> Error {
        let (target, waited) = (self.target, self.tenant.env.lock_wait);
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "{target} is locked by another for {waited:?}; look which process holds it, or try again"
            ),
        )
        .timed_out()
    }
}
