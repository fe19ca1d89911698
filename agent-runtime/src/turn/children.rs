//! Child sessions: started with a task, run like any other session, and reported to the parent when they finish.

use std::sync::Arc;

use tracing::{debug, warn};

use crate::agent::runtime::AgentRuntime;
use crate::run::claim::said;
use agent_core::commit::{Commit, Committed};
use agent_core::event::{ChildCreated, EventPayload, EventType, NewEvent};
use agent_core::session::SessionRecord;
use agent_core::store::ReadEvents;
use agent_core::{ErrorKind, Result, SessionStore, SessionStoreExt};

/// Creates a child session, then records it in the parent's log with the commit `tell`. If the child already exists,
/// that one is used, so a caller that retries after a crash continues from there.
pub(crate) async fn start(
    sessions: &dyn SessionStore,
    create: Commit,
    tell: Commit,
) -> Result<(Arc<SessionRecord>, Committed)> {
    let (id, parent) = (create.session, tell.session);
    let child = match sessions.commit_with_retry(create).await {
        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
            let there = sessions.load(id).await?;
            if there.origin.parent() != Some(parent) {
                return Err(error);
            }
            there
        }
        other => other?.session,
    };
    let said = NewEvent::of(&EventPayload::SessionChildCreated(ChildCreated::new(id)));
    let told = sessions.commit_with_retry(tell.with_event(said)).await?;
    Ok((child, told))
}

/// Reports a child that has finished to its parent, unless it was reported already. Returns whether this call reported
/// it.
pub(crate) async fn deliver(runtime: &AgentRuntime, child: &SessionRecord) -> Result<bool> {
    let Some(told) = child.to_report() else { return Ok(false) };
    let sessions = &runtime.storage.sessions;
    let texts = [EventType::AGENT_MESSAGE, EventType::AGENT_PART];
    let read = ReadEvents::last(100).with_after(child.visible_from).with_types(texts);
    let events = sessions.history_of(child, read).await?.events;
    let last = events.last().map(|event| event.commit);
    let answer = events.iter().filter(|event| Some(event.commit) == last).map(said);
    let result = Some(answer.collect::<Result<String>>()?).filter(|text| !text.is_empty());
    match sessions.report_to_parent(child, result, true).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::Deleted | ErrorKind::NotFound) => {
            debug!(session = %child.id, %error, "the child has no parent to report to");
            sessions.note_report(child, told).await?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Calls [`deliver`] right after a run. Errors are only logged; the scheduler delivers the report later.
pub(crate) async fn deliver_now(runtime: &AgentRuntime, child: &SessionRecord) {
    if let Err(error) = deliver(runtime, child).await {
        warn!(session = %child.id, %error, "the child could not be reported to its parent yet");
    }
}
