//! Sessions that hang: why they do, in `chat session show`; `chat session interrupt` and `chat session release` free them.

use std::time::Duration;

use agent_core::commit::Trigger;
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Lease};
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::{HolderState, LeaseWatch};
use agent_core::{ErrorKind, SessionId};

use super::site::Site;
use crate::failure::{Failure, Result};
use crate::screen::counted;
use crate::zone::second;

/// What is known of the holder of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Its process is proven dead.
    Dead,
    /// No heartbeat came for one time to live of its lease.
    Silent,
    /// A heartbeat or an event came while it was watched.
    Alive,
    /// It was not watched, and is not known to be dead.
    Unknown,
}

impl Holder {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Silent => "silent",
            Self::Alive => "alive",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns what is known of the holder of a session's lease; watches it for one time to live of the lease, at most, if `watches` is true.
pub(super) async fn holder(site: &Site<'_>, now: &SessionRecord, watches: bool) -> Result<Option<Holder>> {
    let sessions = &*site.storage.sessions;
    let Some(mut watch) = LeaseWatch::begin(sessions, now).await? else { return Ok(None) };
    if watch.is_proven_dead() {
        return Ok(Some(Holder::Dead));
    }
    if !watches {
        return Ok(Some(Holder::Unknown));
    }
    loop {
        tokio::time::sleep(watch.pause()).await;
        match watch.check(sessions).await? {
            HolderState::Silent => {}
            HolderState::Gone if watch.is_proven_dead() => return Ok(Some(Holder::Dead)),
            HolderState::Gone => return Ok(Some(Holder::Silent)),
            // It has ended its run, or another has begun one: it was alive.
            _ => return Ok(Some(Holder::Alive)),
        }
    }
}

/// Returns a line for each thing that a session waits for, with what would move it.
pub(super) fn waits(now: &SessionRecord, holder: Option<Holder>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(lease), Some(holder)) = (&now.lease, holder) {
        lines.push(answered_by(now.id, lease, holder));
    }
    if now.stop_request.is_some() {
        lines.push("its run was asked to end, and does at its next step".to_owned());
    }
    if let Some(call) = now.open_calls.iter().min_by_key(|call| call.seq) {
        let count = counted(now.open_calls.len() as u64, "tool call");
        lines.push(format!("{count} without a result, the first in event {}", call.seq));
    }
    if let Some(action) = &now.action {
        let what = match &action.tool {
            Some(tool) => format!("waits for an answer about the tool {tool}"),
            None => "waits for an answer".to_owned(),
        };
        let until = action.expires_at.map(|at| format!(", until {}", second(at))).unwrap_or_default();
        lines.push(format!(
            "{what}{until}: open it with `chat --session {}`; /allow or /deny answers",
            now.id
        ));
    }
    let messages = counted(now.inputs_open, "message");
    match now.status.state {
        SessionState::Queued if now.inputs_open > 0 => {
            let after = now
                .ready_at
                .map(|at| format!("; after a failed run, a scheduler waits until {}", second(at)));
            let after = after.unwrap_or_default();
            lines.push(format!(
                "{messages} without an answer: the next message, /run, or a scheduler goes on{after}"
            ));
        }
        SessionState::Suspended => {
            lines.push(format!(
                "suspended, {messages} without an answer: the next message in `chat` resumes it"
            ));
        }
        SessionState::Failed => {
            let id = now.id;
            lines.push(format!("has failed: mend the cause, then run `chat session release {id}`"));
        }
        _ => {}
    }
    if let Some(failure) = &now.failure {
        lines.push(format!("the last failure: {}", failure.text));
    }
    if let Some(timer) = now.timers.iter().min_by_key(|timer| timer.at) {
        let count = counted(now.timers.len() as u64, "timer");
        lines.push(format!("{count}, the first at {}: a scheduler runs it", second(timer.at)));
    }
    if let Some(by) = now.attributes.superseded_by() {
        lines.push(format!("superseded by session {by}, which goes on in its place"));
    }
    lines
}

fn answered_by(id: SessionId, lease: &Lease, holder: Holder) -> String {
    let ttl = Duration::from_millis(lease.ttl_ms);
    let known = match holder {
        Holder::Dead => {
            format!("whose process is dead: the next message, /run, or `chat session release {id}` goes on")
        }
        Holder::Silent => format!(
            "which has sent no heartbeat for {ttl:?}: the next message, /run, or `chat session release {id}` goes on"
        ),
        Holder::Alive => format!("which is alive: `chat session interrupt {id}` asks it to end"),
        Holder::Unknown => format!("whose heartbeats --watch looks for, {ttl:?} at most"),
    };
    format!("is answered by {} since {}, {known}", lease.holder, second(lease.since))
}

/// Asks the run of a session to end, or discards what waits.
pub(super) async fn interrupt(site: &Site<'_>, id: SessionId) -> Result<()> {
    let sessions = &site.storage.sessions;
    let now = sessions.load(id).await?;
    let interrupt = NewEvent::interrupt().with_actor(Actor::USER);
    let done = match sessions.append(id, now.head, vec![interrupt]).await {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidTransition { .. }) => {
            site.out
                .result(&*now, &format!("nothing runs or waits in session {id}, which is {}", now.status));
            return Ok(());
        }
        done => done?,
    };
    let text = match (done.session.status.state, &done.session.lease) {
        (SessionState::Running, Some(lease)) => {
            let holder = holder(site, &done.session, false).await?;
            asked_to_end(id, lease, holder.unwrap_or(Holder::Unknown))
        }
        _ => format!("nothing waits in session {id} any more; the messages stay, without an answer"),
    };
    site.out.result(&*done.session, &text);
    Ok(())
}

/// Returns what comes of it that a run was asked to end.
fn asked_to_end(id: SessionId, lease: &Lease, holder: Holder) -> String {
    let holder_name = &lease.holder;
    match holder {
        Holder::Dead => format!(
            "nobody answers in session {id}: the process of {holder_name} is dead, and its run ends when the session is freed; run \
             `chat session release {id}`, or send the next message"
        ),
        _ => format!(
            "asked the run of session {id} to end; it does at its next step. If it does not, see by `chat session show {id} \
             --watch` whether {holder_name} is alive"
        ),
    }
}

/// Ends the lease of a holder that is gone, and clears a failure. A holder that lives is left alone, unless `force` is true.
pub(super) async fn release(site: &Site<'_>, id: SessionId, force: bool) -> Result<()> {
    let sessions = &site.storage.sessions;
    let now = sessions.load(id).await?;
    let (trigger, text) = match (&now.lease, now.status.state) {
        (Some(lease), _) => {
            if !force && holder(site, &now, true).await? == Some(Holder::Alive) {
                return Err(Failure::new(
                    4,
                    "busy",
                    format!(
                        "session {id} is answered by {}, which is alive; `chat session interrupt {id}` asks it to end, and --force takes the \
                     session from it",
                        lease.holder
                    ),
                ));
            }
            (
                Trigger::LeaseExpired(lease.epoch),
                format!("session {id} is free; {} can write nothing more to it", lease.holder),
            )
        }
        (None, SessionState::Failed) => {
            (Trigger::ClearFailure, format!("the failure of session {id} is cleared"))
        }
        _ => {
            site.out.result(&*now, &format!("nobody holds session {id}, which is {}", now.status));
            return Ok(());
        }
    };
    // Whoever has taken the session meanwhile keeps it: the lease has another number then.
    let done = sessions.trigger(id, trigger).await?;
    site.out.result(&*done.session, &text);
    Ok(())
}
