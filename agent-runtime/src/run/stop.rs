//! Signals that end a run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use agent_core::event::EventType;
use agent_core::model::Request;
use agent_core::session::SessionRecord;
use agent_core::store::ReadEvents;
use agent_core::{Epoch, Error, ErrorKind, Seq, SessionId, SessionStore};

/// Reason for which a run must end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// A stop was requested: here, from another device, or because the process ends.
    Asked,
    /// Another holder took the session over.
    Fenced(Error),
}

/// Head that the run itself has written, so that it does not react to its own commits.
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

/// Returns the reason to end the run of `epoch`, if the record holds one.
pub(crate) fn asks_to_stop(session: &SessionRecord, epoch: Epoch) -> Option<Stopped> {
    if session.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
        return Some(Stopped::Fenced(Error::new(
            ErrorKind::Fenced { epoch: session.epoch },
            format!(
                "session {}: the lease of epoch {epoch} has ended (newest is {}); this run has stopped",
                session.id, session.epoch
            ),
        )));
    }
    (session.stop_request == Some(Request::Cancel)).then_some(Stopped::Asked)
}

/// Waits until the run must end.
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

/// Waits until the flag is set; never returns if its sender was dropped unset.
pub(crate) async fn is_set(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|set| *set).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until the session's record says that the run must end.
async fn watched(sessions: &dyn SessionStore, id: SessionId, epoch: Epoch, own: OwnHead) -> Stopped {
    let begun = own.get();
    loop {
        let seen = own.get();
        let head = match sessions.changed(id, seen).await {
            Ok(head) => head,
            // An error of the store is ignored here; the next commit reports it.
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
            if matches!(session.stop_request, Some(Request::Suspend(_))) {
                let read = ReadEvents::last(1).with_after(begun).with_types([EventType::USER_INTERRUPT]);
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
