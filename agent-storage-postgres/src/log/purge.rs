//! Purge of a deleted session: its events are removed, its record stays as a tombstone.

use agent_core::store::{Purge, Purged};

use crate::blobs::removal;
use crate::error::{Step, corrupt};
use crate::medium::db::Db;
use crate::medium::rows::int;
use crate::medium::stored::{Stored, bury, lock, no_session, write_record};

/// Removes a deleted session's events after `keep_through`, and takes the blobs out of sight that no other event names. In
/// one transaction, so that a purge that is cut off has done nothing.
pub(crate) async fn purge(db: &mut Db, purge: &Purge) -> Step<Purged> {
    let id = purge.session;
    let session = match lock(db, id).await? {
        Stored::Whole(found) => found.session,
        Stored::Broken => return Err(corrupt(&format!("the record of session {id}"), "is damaged").into()),
        Stored::Absent => return Err(no_session(id).into()),
    };
    purge.check(&session)?;
    let tombstone = session.tombstone();
    removal::purge(db, &session, purge.keep_through).await?;
    let keep = int(purge.keep_through.get());
    let sql = "DELETE FROM @.events WHERE tenant = $1 AND session = $2 AND seq > $3";
    let removed = db.execute(db.query(sql).bind(*id.as_uuid()).bind(keep)).await?;
    let kept = bury(db, &tombstone, keep).await?;
    write_record(db, &tombstone, Some(kept)).await?;
    Ok(Purged::new(removed))
}
