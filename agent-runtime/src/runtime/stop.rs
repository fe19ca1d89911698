//! What ends a run from outside, and what keeps its lease alive meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use agent_core::event::EventType;
use agent_core::isolated::isolated;
use agent_core::model::Request;
use agent_core::session::Session;
use agent_core::store::ReadEvents;
use agent_core::{Epoch, Error, ErrorKind, Seq, SessionId, SessionStore};

/// Why a run has to end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// Somebody wants it to end: here, from another device, or because the process ends.
    Asked,
    /// Another took the session over.
    Fenced(Error),
}

/// The head that the run itself has written, so that it does not look again for its own commits.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnHead(Arc<AtomicU64>);

impl OwnHead {
    pub(crate) fn set(&self, head: Seq) {
        self.0.store(head.get(), Ordering::Release);
    }

    fn get(&self) -> Seq {
        Seq::new(self.0.load(Ordering::Acquire))
    }
}

/// What of a record ends the run of `epoch`.
pub(crate) fn asks_to_stop(session: &Session, epoch: Epoch) -> Option<Stopped> {
    if session.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
        return Some(Stopped::Fenced(Error::new(
            ErrorKind::Fenced { epoch: session.epoch },
            format!(
                "session {}: the lease of epoch {epoch} has ended (newest is {}); this run has stopped",
                session.id, session.epoch
            ),
        )));
    }
    (session.requested == Some(Request::Cancel)).then_some(Stopped::Asked)
}

/// Waits until the run has to end.
pub(crate) async fn stopped(
    sessions: Arc<dyn SessionStore>,
    id: SessionId,
    epoch: Epoch,
    own: OwnHead,
    mut cancel: watch::Receiver<bool>,
    mut stopping: watch::Receiver<bool>,
) -> Stopped {
    tokio::select! {
        () = is_set(&mut cancel) => Stopped::Asked,
        () = is_set(&mut stopping) => Stopped::Asked,
        stopped = watched(&*sessions, id, epoch, own) => stopped,
    }
}

/// Waits until it is set; for ever, where nobody is left to set it.
pub(crate) async fn is_set(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|set| *set).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until the session's record says that the run has to end.
async fn watched(sessions: &dyn SessionStore, id: SessionId, epoch: Epoch, own: OwnHead) -> Stopped {
    let begun = own.get();
    loop {
        let seen = own.get();
        let head = match sessions.changed(id, seen).await {
            Ok(head) => head,
            // A store that cannot be asked says nothing; the next commit will find out.
            Err(_) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        if head <= own.get() {
            continue;
        }
        if let Ok(session) = sessions.load(id).await {
            if let Some(stopped) = asks_to_stop(&session, epoch) {
                return stopped;
            }
            // The record has room for one request: an interrupt beside a suspension is found in the log only.
            if matches!(session.requested, Some(Request::Suspend(_))) {
                let read = ReadEvents::last(1).after(begun).kinds([EventType::USER_INTERRUPT]);
                if sessions.read(id, read).await.is_ok_and(|page| !page.events.is_empty()) {
                    return Stopped::Asked;
                }
            }
            own.set(session.head.max(own.get()));
        } else {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Keeps a lease alive for as long as it exists, in a task of its own, so that no model or tool can starve it.
#[derive(Debug)]
pub(crate) struct Heart(JoinHandle<()>);

impl Heart {
    pub(crate) fn beat(sessions: Arc<dyn SessionStore>, id: SessionId, epoch: Epoch, ttl: Duration) -> Self {
        Self(tokio::spawn(async move {
            let mut ticks = interval(ttl / 3);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                match isolated(|| sessions.beat(id, epoch)).await {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        warn!(session = %id, %epoch, %error, "a sign of life could not be given");
                    }
                    None => warn!(session = %id, %epoch, "the store panicked; a sign of life was not given"),
                }
            }
        }))
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.0.abort();
    }
}
