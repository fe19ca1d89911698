//! Sessions that help others: started with a task, run like any other, and their outcome told to the parent.

use std::sync::Arc;

use tracing::{debug, warn};

use crate::runtime::agent::AgentRuntime;
use agent_core::commit::{Commit, Committed};
use agent_core::event::{Body, ChildCreated, EventType, NewEvent};
use agent_core::session::Session;
use agent_core::store::{ReadEvents, note_report, report_to_parent};
use agent_core::{ErrorKind, Result, SessionStore, SessionStoreExt};

/// Creates a child, then says so in its parent's log by `tell`. Where the child is there already, it is that one: whoever
/// starts it again, after a crash in between, goes on from there.
pub(crate) async fn start(
    sessions: &dyn SessionStore,
    create: Commit,
    tell: Commit,
) -> Result<(Arc<Session>, Committed)> {
    let (id, parent) = (create.session, tell.session);
    let child = match sessions.settle(create).await {
        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
            let there = sessions.load(id).await?;
            if there.origin.parent() != Some(parent) {
                return Err(error);
            }
            there
        }
        other => other?.session,
    };
    let said = NewEvent::of(&Body::SessionChildCreated(ChildCreated::new(id)));
    let told = sessions.settle(tell.event(said)).await?;
    Ok((child, told))
}

/// Tells the parent of a child that has come to rest, where it has not been told; returns whether it was told now.
pub(crate) async fn deliver(runtime: &AgentRuntime, child: &Session) -> Result<bool> {
    let Some(told) = child.to_report() else { return Ok(false) };
    let (sessions, effects) = (&*runtime.storage.sessions, runtime.effects());
    let said = ReadEvents::last(1).after(child.visible_from).kinds([EventType::AGENT_MESSAGE]);
    let said = sessions.history_of(child, said).await?.events.pop();
    let result = match said.map(|event| event.body()).transpose()? {
        Some(Body::AgentMessage(message)) => Some(message.text),
        _ => None,
    };
    match report_to_parent(sessions, effects, child, result, true).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::Deleted | ErrorKind::NotFound) => {
            debug!(session = %child.id, %error, "there is no parent to tell");
            note_report(sessions, effects, child, told).await?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// As [`deliver`], right after a run; what goes wrong is left to whoever looks after the sessions.
pub(crate) async fn deliver_now(runtime: &AgentRuntime, child: &Session) {
    if let Err(error) = deliver(runtime, child).await {
        warn!(session = %child.id, %error, "the parent could not be told yet");
    }
}
