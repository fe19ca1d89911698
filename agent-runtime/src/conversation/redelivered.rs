//! Second deliveries of an answer, as from a webhook that retries: each gets the result of the first.

use std::sync::Arc;

use tokio::sync::watch;

use crate::agent::runtime::AgentRuntime;
use crate::run::claim::{ANSWERS, Claim};
use crate::run::error::RunError;
use crate::run::handle::Run;
use crate::run::report::Queued;
use crate::tool::toolbox::text_json;
use crate::turn::begin::Cause;
use crate::turn::enqueue::begin_apart;
use crate::turn::session_ref::SessionRef;
use agent_core::event::{
    Decision, Event, EventPayload, EventType, MediaSource, NewEvent, Part, ToolConfirmation, ToolResult,
};
use agent_core::json::RawJson;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::ReadEvents;
use agent_core::text::quoted;
use agent_core::{BlobName, Error, ErrorKind, Result, Seq, WriteOutcome};
use agent_workspace::blobs::media_mut;

/// Maximum number of answers that are read at a time, and of their bytes.
const PAGE: usize = 64;
const PAGE_BYTES: usize = 1 << 20;

/// Returns the event of the first delivery of an answer that a commit has refused; the refusal, if there is none.
///
/// Reads the answers of the session's own log from the newest one back, one page at a time, to the one that is searched.
///
/// # Errors
///
/// `Conflict` if the first answer was another one.
pub(crate) async fn first_delivery(handle: &SessionRef, answer: &NewEvent, refused: Error) -> Result<Seq> {
    let may_be_second =
        matches!(refused.kind(), ErrorKind::InvalidTransition { .. } | ErrorKind::InvalidInput);
    if !may_be_second || refused.write_outcome() != WriteOutcome::NotApplied {
        return Err(refused);
    }
    let runtime = handle.runtime();
    let Some(given) = Given::of(runtime, &answer.kind, &answer.payload)? else { return Err(refused) };
    let now = handle.refresh().await?;
    if now.action.as_ref().is_some_and(|action| action.id.as_str() == given.action()) {
        return Err(refused);
    }
    let read = ReadEvents::last(PAGE).with_max_bytes(PAGE_BYTES).with_types(ANSWERS);
    let mut next = Some(read.with_before(now.head.next()));
    while let Some(read) = next {
        let page = runtime.storage.sessions.read(now.id, read).await?;
        for event in page.events.iter().rev() {
            match Given::of(runtime, &event.kind, &event.payload)? {
                Some(first) if first == given => return Ok(event.seq),
                Some(first) if first.action() == given.action() => return Err(differs(&now, event, &first)),
                _ => {}
            }
        }
        if let Some(damage) = page.damaged.first() {
            return Err(Error::corrupt(format!("session {}: {damage}", now.id)));
        }
        next = page.next;
    }
    Err(refused)
}

/// Returns the run that continues, or continued, from a stored answer; starts it if it has not begun.
pub(crate) async fn run_of_answer(handle: &SessionRef, answer: Seq) -> Result<Run> {
    let active = &handle.runtime().shared.runs.active;
    let mut seen = None;
    loop {
        let now = handle.refresh().await?;
        let claim = Claim::read(&*handle.runtime().storage.sessions, &now, answer).await?;
        let claimed = claim.run();
        if claim.is_ended() {
            return match claim.report(&now) {
                Ok(report) => Ok(Run::of_ended(report)),
                Err(RunError::Failed(report)) => Ok(Run::of_ended(*report)),
                Err(RunError::Queued(queued)) => Ok(Run::of_queued(queued)),
                Err(RunError::Store(error)) => Err(error),
            };
        }
        if let Some(run) = claimed {
            active.begun(run).await;
            if let Some(run) = active.stream(run) {
                return Ok(run);
            }
            if let Some(ended) = active.ended(run) {
                until(ended).await;
                continue;
            }
            // It may have ended here since the log was read.
            if seen.replace(run) != Some(run) {
                continue;
            }
        }
        if now.status.state == SessionState::Queued
            && let Some(run) = begin_apart(handle, Cause::default()).await?.run
        {
            return Ok(run);
        }
        let mut queued = Queued::in_session(&handle.record(), answer);
        queued.run = claimed;
        return Ok(Run::of_queued(queued));
    }
}

/// Waits until a run of this process has ended.
async fn until(mut ended: watch::Receiver<bool>) {
    // The sender is dropped with the run.
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Answer in a form in which two deliveries of it are equal, whatever became of its large outputs and media in a store.
#[derive(PartialEq, Eq)]
enum Given {
    Decision(ToolConfirmation),
    Result(Box<ToolResult>),
}

impl Given {
    /// Returns the answer of an event; `None` if the event is none.
    fn of(runtime: &AgentRuntime, kind: &EventType, payload: &RawJson) -> Result<Option<Self>> {
        // Stored answers are without the values of secrets.
        let payload = runtime.redact_json(payload.clone());
        Ok(match EventPayload::parse(kind, &payload)? {
            EventPayload::UserToolConfirmation(answer) => Some(Self::Decision(answer)),
            EventPayload::UserCustomToolResult(mut result) => {
                let whole = result.full.take().map(|full| (full.sha256, full.text));
                let name = match whole {
                    Some((Some(name), _)) => name,
                    Some((None, text)) => BlobName::of(text.unwrap_or_default().as_bytes()),
                    None => match result.output.to::<String>() {
                        Ok(text) => BlobName::of(text.as_bytes()),
                        Err(_) => BlobName::of(result.output.get().as_bytes()),
                    },
                };
                result.output = text_json(&name.to_string());
                result.content.iter_mut().for_each(|part| by_name(runtime, part));
                Some(Self::Result(Box::new(result)))
            }
            _ => None,
        })
    }

    /// Returns the id of the answered action.
    fn action(&self) -> &str {
        match self {
            Self::Decision(answer) => answer.action.as_str(),
            Self::Result(result) => result.call.as_str(),
        }
    }
}

/// Puts the name of the bytes in place of the bytes of a medium.
fn by_name(runtime: &AgentRuntime, part: &mut Part) {
    let Some(media) = media_mut(part) else { return };
    if let Some(secrets) = &runtime.secrets {
        secrets.redact_media(media);
    }
    if let MediaSource::Inline(bytes) = &media.source {
        media.source = MediaSource::Blob { sha256: BlobName::of(bytes), bytes: bytes.len() as u64 };
    }
}

/// Returns the error for an answer that differs from the first one.
fn differs(now: &Arc<SessionRecord>, event: &Event, first: &Given) -> Error {
    let (id, action, seq) = (now.id, first.action(), event.seq);
    let what = match first {
        Given::Decision(answer) => {
            let decision = match answer.decision {
                Decision::Allow => "allowed",
                Decision::Deny => "denied",
                _ => "decided",
            };
            match &answer.choice {
                Some(choice) => format!("{decision} with the choice {}", quoted(choice)),
                None => decision.to_owned(),
            }
        }
        Given::Result(result) => format!("answered with a result of the outcome {}", result.outcome),
    };
    let text = format!(
        "session {id}: {action} was {what} before, by event {seq} at {}; this answer is another one, and is not stored",
        event.at
    );
    Error::new(ErrorKind::Conflict { head: Some(now.head) }, text)
}
