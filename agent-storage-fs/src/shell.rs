//! The async shell: runs the synchronous core where it may block, and waits where the core says that others are at
//! work.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent_core::{Error, ErrorKind, OpenState, Result, SessionId, WorkspaceId, WriteOutcome};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::env::Env;
use crate::lock::Attempt;

/// Most holders are done after one sync of the disk: so long, so often, an attempt is repeated where it stands. A timer
/// of the runtime would wait a multiple of that.
const LINGER: Duration = Duration::from_micros(100);
const LINGERS: usize = 20;
/// The first and the longest pause after that.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// Runs `work` to its end on a thread that may block, also where the caller is dropped.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let span = Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.map_err(|source| {
        if source.is_cancelled() {
            return Error::new(
                ErrorKind::Unavailable,
                "the runtime is shutting down; open the store in another",
            );
        }
        Error::new(ErrorKind::Poisoned, "the file store failed unexpectedly; open it again")
            .with_outcome(WriteOutcome::Unknown)
    })
}

/// The same for work on a store, which is refused once the store is closed.
pub(crate) async fn working<T: Send + 'static>(
    open: &OpenState,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let open = open.clone();
    blocking(move || {
        let _working = open.begin()?;
        work()
    })
    .await?
}

/// What a write is behind the gate of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gated {
    Session(SessionId),
    Workspace(WorkspaceId),
    Bindings,
}

impl fmt::Display for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => write!(f, "session {id}"),
            Self::Workspace(id) => write!(f, "workspace {id}"),
            Self::Bindings => f.write_str("the file bindings.toml"),
        }
    }
}

/// Runs `work` behind `gate`, again and again until the locks that it needs are free, or too much time has passed.
pub(crate) async fn exclusively<G, T>(
    env: &Env,
    what: Gated,
    gate: impl Future<Output = G>,
    work: impl Fn(&mut G) -> Result<Attempt<T>> + Send + Sync + 'static,
) -> Result<T>
where
    G: Send + 'static,
    T: Send + 'static,
{
    let late = || {
        Error::new(
            ErrorKind::Unavailable,
            format!(
                "{what} is locked by another for {:?}; look which process holds it, or try again",
                env.lock_wait
            ),
        )
        .timed_out()
    };
    let deadline = Instant::now() + env.lock_wait;
    let mut guard = tokio::time::timeout_at(deadline, gate).await.map_err(|_| late())?;
    let work = Arc::new(work);
    let mut pause = PAUSE;
    loop {
        let attempt = work.clone();
        let (back, attempted) = working(&env.open, move || {
            let attempted = persist(|| attempt(&mut guard))?;
            Ok((guard, attempted))
        })
        .await?;
        guard = back;
        if let Attempt::Done(done) = attempted {
            return Ok(done);
        }
        if Instant::now() >= deadline {
            return Err(late());
        }
        // Jitter, so that those who wait do not all come at once.
        let half = u32::try_from(pause.as_micros() / 2).unwrap_or(u32::MAX);
        let jitter = u32::try_from(env.effects.random_u64() % u64::from(half.max(1))).unwrap_or(0);
        tokio::time::sleep(Duration::from_micros(u64::from(half + jitter))).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Attempts what others may be about to be done with, on a thread that may block.
fn persist<T>(mut attempt: impl FnMut() -> Result<Attempt<T>>) -> Result<Attempt<T>> {
    for _ in 0..LINGERS {
        if let done @ Attempt::Done(_) = attempt()? {
            return Ok(done);
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "this thread has no runtime's time, and nothing is decided by it"
        )]
        std::thread::sleep(LINGER);
    }
    attempt()
}

/// Runs an operation in its span, and notes there how it ended.
pub(crate) async fn observed<T>(span: Span, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = work.instrument(span.clone()).await;
    span.record("outcome", done.as_ref().map_or_else(|error| error.kind().name(), |_| "ok"));
    done
}
