//! Error of a run: the model failed, the input is only queued, or a store, a shutdown or another holder ended the run.

use std::{error, fmt};

use crate::model::fault::ProviderFault;
use crate::run::report::{Queued, RunOutcome, RunReport};
use agent_core::state::SessionState;
use agent_core::{Error, ErrorKind, WriteOutcome};

/// Reason for which a run gave no answer.
///
/// Converts into [`agent_core::Error`], so that `?` works in functions that return it: [`Failed`](Self::Failed) becomes
/// the kind `Provider` with the [fault](ProviderFault::of), if its kind is known, [`Queued`](Self::Queued) the kind `Busy` with the holder (empty if no process runs the
/// session), and [`Store`](Self::Store) the error itself. In the first two cases the input is stored, so the
/// [outcome](Error::write_outcome) of the write is `Unknown`, which keeps a caller from sending it again.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_runtime::{AgentBuilder, RunError, ScriptedProvider, Turn};
///
/// let model = ScriptedProvider::new([Turn::silent().text("It is ").fail("overloaded")]);
/// # let (agent, chat) = scripted(model).await?;
/// match chat.prompt("What time is it?").await?.finish().await {
///     Ok(report) => println!("{}", report.text),
///     Err(RunError::Failed(report)) => assert_eq!(report.text, "It is "),
///     Err(RunError::Queued(queued)) => println!("{}", chat.wait_for_answer(&queued).await?.text),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum RunError {
    /// Failure of the model, or of the session. The report has the [failure](RunOutcome::Failed) and the text before
    /// it.
    ///
    /// The input is in the history and counts as handled. The next prompt, whatever its text, gives it to the model
    /// again; sending the same text stores it twice.
    Failed(Box<RunReport>),
    /// Input that is stored and for which no run was started.
    /// [`Conversation::wait_for_answer`](crate::conversation::handle::Conversation::wait_for_answer) waits for its answer.
    #[doc(alias = "Waiting")]
    Queued(Queued),
    /// Error that is not the model's.
    ///
    /// An error of a store; `Unavailable` in a shutdown; `Fenced` if another holder took the session over; `Provider`
    /// if the run panicked.
    Store(Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(report) => failed(report, f),
            Self::Queued(queued) => waits(queued, f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// Prints the message first, because a program whose `main` returns the error prints this form; and not the text of the
/// answer, because logs have it.
impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(report) => {
                let mut shown = f.debug_struct("Failed");
                shown.field("message", &self.to_string()).field("usage", &report.usage);
                shown.field("text", &format_args!("{} bytes", report.text.len())).finish_non_exhaustive()
            }
            Self::Queued(queued) => {
                f.debug_struct("Queued").field("message", &self.to_string()).field("queued", queued).finish()
            }
            Self::Store(error) => f.debug_tuple("Store").field(error).finish(),
        }
    }
}

fn failed(report: &RunReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "session {}: ", report.session)?;
    match report.run {
        Some(run) => write!(f, "run {run} failed")?,
        None => write!(f, "the session failed")?,
    }
    if let RunOutcome::Failed(failure) = &report.outcome {
        write!(f, ": {}", failure.text)?;
    }
    match report.status.state {
        SessionState::Failed => write!(f, "; fix the cause, then clear the failure of the session"),
        _ => write!(f, "; fix the cause if it persists, and prompt again"),
    }
}

fn waits(queued: &Queued, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Queued { session, seq, run, holder, state } = queued;
    write!(f, "session {session}: the input of event {seq} ")?;
    if let Some(run) = run {
        return write!(f, "is answered by run {run}; wait for its answer, do not send it again");
    }
    let remedy = match state {
        SessionState::Running => {
            let holder = holder.as_deref().unwrap_or("another run");
            return write!(f, "is queued behind {holder}; wait for its answer, do not send it again");
        }
        SessionState::RequiresAction => "answer the pending action",
        SessionState::Suspended => "resume the session",
        SessionState::Failed => "fix the cause, then clear the failure of the session",
        SessionState::Archived => "unarchive the session",
        SessionState::Terminated => "start another session",
        _ => "wait for its answer, do not send it again",
    };
    write!(f, "is stored and has no answer, and the session is {state}; {remedy}")
}

impl error::Error for RunError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            Self::Failed(_) | Self::Queued(_) => None,
        }
    }
}

impl From<Error> for RunError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        let text = error.to_string();
        let kind = match error {
            RunError::Failed(report) => {
                let failed = Self::new(ErrorKind::Provider, text.clone()).with_outcome(WriteOutcome::Unknown);
                return match report.fault() {
                    Some(kind) => failed.with_source(ProviderFault::new(kind, text)),
                    None => failed,
                };
            }
            RunError::Queued(queued) => ErrorKind::Busy { holder: queued.holder.unwrap_or_default() },
            RunError::Store(error) => return error,
        };
        Self::new(kind, text).with_outcome(WriteOutcome::Unknown)
    }
}
