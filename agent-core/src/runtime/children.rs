//! Sessions that help others: started with a task, run like any other, and their outcome told to the parent.

use tracing::{debug, warn};

use crate::base::error::{ErrorKind, Result};
use crate::handle::SessionHandle;
use crate::runtime::AgentRuntime;
use crate::runtime::run::Input;
use crate::session::report::{note, report};
use crate::session::{
    Body, ChildCreated, Commit, Committed, EventType, NewEvent, NewSession, Patch, ReadEvents, Session,
    SessionStore, SessionStoreExt,
};

impl SessionHandle {
    /// Starts a session that helps this one: in its workspace, with a history of its own, and `task` as its first input.
    /// Whoever looks after the sessions runs it, see [`Scheduler`](crate::runtime::Scheduler); or [prompt](Self::prompt)
    /// and [wake](Self::wake) it. When it has come to rest, its last text is an input of this session, once.
    ///
    /// The child comes first, with its parent's name and its task in it, and is then told of in the parent's log. A crash
    /// in between leaves a child that the parent's log does not mention before its outcome; lists by parent find it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a task that is empty or white space only; `Deleted` for this session; those of the store.
    pub async fn start_child(&self, task: impl Into<Input>, patch: &Patch) -> Result<Self> {
        let runtime = self.runtime();
        let (sessions, effects) = (&runtime.storage.sessions, runtime.effects());
        let Input { message, actor } = task.into().checked(self.id())?;
        let parent = self.refresh().await?;
        let new = NewSession::child(effects.new_session_id(), &parent).with(patch);
        let create = Commit::create(effects, new).event(NewEvent::from(message).with_actor(actor));
        let tell = Commit::seal(effects, parent.id, parent.head);
        let (child, told) = start(&**sessions, create, tell).await?;
        self.note(&told.session);
        Self::new(runtime.clone(), child).freeze_config().await
    }
}

/// Creates a child, then says so in its parent's log by `tell`. Where the child is there already, it is that one: whoever
/// starts it again, after a crash in between, goes on from there.
pub(super) async fn start(
    sessions: &dyn SessionStore,
    create: Commit,
    tell: Commit,
) -> Result<(Session, Committed)> {
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
    match report(sessions, effects, child, result, true).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::Deleted | ErrorKind::NotFound) => {
            debug!(session = %child.id, %error, "there is no parent to tell");
            note(sessions, effects, child, told).await?;
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
