//! Comparison of a session in two stores, and ids of what a copy makes by itself.

use agent_core::commit::Commit;
use agent_core::json::RawJson;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::SessionState;
use agent_core::{CommitId, Seq, SessionId, Timestamp};
use sha2::{Digest, Sha256};
use uuid::Builder;

use crate::copy::Stop;

/// Returns an error if a session that exists in both stores must not be continued. Whether the target may be ahead is up to the caller.
pub(super) fn check(
    there: &SessionRecord,
    here: &SessionRecord,
    kept: Option<Seq>,
    may_be_ahead: bool,
) -> Result<(), Stop> {
    let is_deleted = |session: &SessionRecord| session.status.state == SessionState::Deleted;
    let reason = match (is_deleted(here), is_deleted(there)) {
        (false, true) => "it was deleted in the target, and a deleted id cannot be used again".to_owned(),
        (true, true) => return Ok(()),
        // Its events cannot be compared any more, unless an interrupted copy created it only to delete it.
        (true, false) if kept.is_some_and(|kept| there.head > kept) && !is_bare(there, here) => {
            "it was copied earlier, then deleted and purged in the source; delete it in the target".to_owned()
        }
        (false, false) if may_be_ahead => return Ok(()),
        _ if there.head > here.head => {
            format!("the target is at event {}, ahead of the source, which is at {}", there.head, here.head)
        }
        _ => return Ok(()),
    };
    Err(Stop::Refused(reason))
}

/// Returns whether a copy created the session only for its tombstone.
fn is_bare(there: &SessionRecord, here: &SessionRecord) -> bool {
    let bare = made(here.id, "create", here.created_at, here.lineage.base()).id;
    there.recent.iter().any(|commit| commit.id == bare)
}

/// Returns what tells one state of a session in a list from another.
pub(super) fn fingerprint(listed: &SessionSummary) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(RawJson::sure(listed).get())[..16]);
    bytes
}

/// Returns a commit whose id is derived from its effect, so that it takes effect once in repeated copies.
pub(super) fn made(session: SessionId, what: &str, at: Timestamp, seen: Seq) -> Commit {
    let digest =
        Sha256::new().chain_update("agent-core copy ").chain_update(what).chain_update(session.as_uuid());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    let id = CommitId::from_uuid(Builder::from_custom_bytes(bytes).into_uuid());
    Commit::new(id, session, at, seen)
}
