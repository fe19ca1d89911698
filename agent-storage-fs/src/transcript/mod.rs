//! `session.md`: the conversation of a workspace's main session, for people. It is a view of the log, updated after
//! commits have been acknowledged. Edits by people are kept beside it until they are imported.

mod edits;
mod keep;
mod messages;

use std::sync::{Arc, Weak};
use std::time::Duration;

use agent_core::SessionId;

pub use crate::transcript::edits::TranscriptEdit;
pub(crate) use crate::transcript::edits::{imported, pending};
pub(crate) use crate::transcript::messages::visible;

use crate::medium::env::held;
use crate::medium::shell::blocking;
use crate::shared::tenant::{SharedSession, Tenant};

/// Delay after which the file is brought up to date, so that a burst of commits is written once.
const QUIET: Duration = Duration::from_millis(100);

/// Schedules an update of a session's file, if it is a main session that has one. Each head is tried only once, so that
/// a folder that cannot be written to does not cause the same attempt and warning repeatedly.
pub(crate) fn schedule(
    tenant: &Arc<Tenant>,
    cell: &Arc<SharedSession>,
    session: &agent_core::session::SessionRecord,
) {
    let main = held(&tenant.mains).get(&session.workspace).is_some_and(|main| main.session == session.id);
    if !main {
        return;
    }
    {
        let mut keeping = held(&cell.transcript);
        let current = keeping.file.as_ref().is_some_and(|file| file.seen == session.head);
        if keeping.scheduled || current || keeping.tried == Some(session.head) {
            return;
        }
        keeping.scheduled = true;
        keeping.tried = Some(session.head);
    }
    // Held weakly while it waits, so that dropping the store closes it.
    let (tenant, cell, id) = (Arc::downgrade(tenant), Arc::downgrade(cell), session.id);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(QUIET).await;
            let (tenant, cell) = (tenant.clone(), cell.clone());
            if !matches!(blocking(move || refresh(&tenant, &cell, id)).await, Ok(true)) {
                break;
            }
        }
    });
}

/// Brings the file up to date; returns whether there is more to do.
fn refresh(tenant: &Weak<Tenant>, cell: &Weak<SharedSession>, id: SessionId) -> bool {
    let (Some(tenant), Some(cell)) = (tenant.upgrade(), cell.upgrade()) else { return false };
    // Closing does the scheduled update.
    let Ok(_working) = tenant.env.open.begin() else { return false };
    held(&cell.transcript).scheduled = false;
    let again = bring_up_to_date(&tenant, &cell, id);
    held(&cell.transcript).scheduled |= again;
    again
}

/// Brings the file up to date, as far as possible; returns `true` if another process or handle has it locked.
pub(crate) fn bring_up_to_date(tenant: &Tenant, cell: &SharedSession, id: SessionId) -> bool {
    if !tenant.env.transcripts {
        return false;
    }
    match keep::bring_up_to_date(tenant, cell, id) {
        Ok(done) => !done,
        Err(error) => {
            // The log is the truth; the file is tried again with the next commit.
            tracing::warn!(session = %id, error = &error as &dyn std::error::Error, "session.md could not be brought up to date");
            false
        }
    }
}

/// Brings the file up to date if it is behind, when the store is closed.
pub(crate) fn close(tenant: &Tenant, cell: &SharedSession, id: SessionId) {
    if std::mem::take(&mut held(&cell.transcript).scheduled) {
        bring_up_to_date(tenant, cell, id);
    }
}
