//! Purge of a deleted session: its events are removed, its record stays as a tombstone.

use agent_core::SessionId;
use agent_core::store::Purge;

use crate::blobs::removal;
use crate::error::{Step, corrupt};
use crate::medium::db::Db;
use crate::medium::rows::int;
use crate::medium::stored::{Stored, bury, lock, no_session, write_record};

/// Most bytes of events, but for one event more, that are removed in one transaction.
const BYTES: i64 = 4 << 20;

/// Takes a deleted session's events after `keep_through` out of sight, and the blobs that no other event names. From then on
/// nobody reads them.
pub(crate) async fn purge(db: &mut Db, purge: &Purge) -> Step<()> {
    let id = purge.session;
    let session = match lock(db, id).await? {
        Stored::Whole(found) => found.session,
        Stored::Broken => return Err(corrupt(&format!("the record of session {id}"), "is damaged").into()),
        Stored::Absent => return Err(no_session(id).into()),
    };
    purge.check(&session)?;
    let tombstone = purge.tombstone_of(&session);
    removal::purge(db, &session, purge.keep_through).await?;
    let kept = bury(db, &tombstone, int(purge.keep_through.get())).await?;
    // The row of the last heartbeats has the owner's name.
    let sql = "DELETE FROM @.heartbeats WHERE tenant = $1 AND session = $2";
    db.execute(db.query(sql).bind(*id.as_uuid())).await?;
    write_record(db, &tombstone, Some(kept)).await?;
    Ok(())
}

/// Removes some of the events of a session that are out of sight, the last ones first; returns how many.
pub(crate) async fn remove(db: &mut Db, id: SessionId) -> Step<u64> {
    let sql = "DELETE FROM @.events WHERE tenant = $1 AND session = $2 AND seq = ANY (SELECT seq FROM (\
        SELECT seq, sum(octet_length(json)) OVER (ORDER BY seq DESC) - octet_length(json) AS before FROM (\
        SELECT seq, json FROM @.events WHERE tenant = $1 AND session = $2 AND seq > (\
        SELECT kept FROM @.sessions WHERE tenant = $1 AND session = $2) ORDER BY seq DESC LIMIT 1000) AS page) AS summed \
        WHERE before < $3)";
    db.execute(db.query(sql).bind(*id.as_uuid()).bind(BYTES)).await
}
