//! Removal of blobs: which ones a log names, and what a sweep and a purge take away.
//!
//! The column `named` of a blob is derived: what is removed for lack of an event is looked for in the log first.

use std::collections::HashMap;

use agent_core::session::SessionRecord;
use agent_core::store::{SweepBlobs, SweptBlobs};
use agent_core::{BlobName, Error, Seq, SessionId, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::{Step, corrupt};
use crate::medium::db::Db;
use crate::medium::rows::{int, seq};
use crate::medium::stored::{self, Stored};

/// Time after its last chunk, in microseconds, at which a put that did not end counts as given up.
const GIVEN_UP: i64 = 3_600_000_000;
/// Number of events that are read at once.
const EVENTS: i64 = 500;

/// Blobs that the events of a log name.
#[derive(Debug, Default)]
struct Named {
    /// First event that names each.
    first: HashMap<BlobName, Seq>,
    /// Damage of the log, because of which it may name others, too.
    damage: Option<Error>,
}

impl Named {
    /// Reads a session's own events up to `last`.
    async fn read(db: &mut Db, session: &SessionRecord, last: Seq) -> Step<Self> {
        let (mut named, id, mut due) =
            (Self::default(), session.id.to_string(), session.lineage.base().next());
        let damaged = |due: Seq| corrupt(&format!("event {due} of session {id}"), "is missing");
        let sql = "SELECT seq, crc, json FROM @.events WHERE tenant = $1 AND session = $2 AND seq >= $3 AND seq <= $4 \
            ORDER BY seq LIMIT $5";
        loop {
            let statement = db.query(sql).bind(*session.id.as_uuid()).bind(int(due.get()));
            let rows = db.rows(statement.bind(int(last.get())).bind(EVENTS)).await?;
            for row in &rows {
                let at = seq(row.try_get(0)?);
                if at != due {
                    named.damage.get_or_insert_with(|| damaged(due));
                }
                due = at.next();
                match stored::event(row, 0, &db.scope.tenant, &id)? {
                    Ok(event) => event.blobs.into_iter().for_each(|name| {
                        named.first.entry(name).or_insert(at);
                    }),
                    Err(error) => drop(named.damage.get_or_insert(error)),
                }
            }
            if rows.len() < usize::try_from(EVENTS).unwrap_or(usize::MAX) {
                break;
            }
        }
        if due <= last {
            named.damage.get_or_insert_with(|| damaged(due));
        }
        Ok(named)
    }

    /// Reads all events that are left of a session; none if there is no such session.
    async fn of(db: &mut Db, id: SessionId) -> Step<Self> {
        let session = match stored::read(db, id).await? {
            Stored::Whole(found) => found.session,
            Stored::Absent => return Ok(Self::default()),
            Stored::Broken => {
                return Err(corrupt(&format!("the record of session {id}"), "is damaged").into());
            }
        };
        let last = left(db, &session, session.head).await?;
        Self::read(db, &session, last).await
    }
}

/// Returns whether an event that is left of a session names a blob.
pub(crate) async fn names(db: &mut Db, id: SessionId, name: BlobName) -> Step<bool> {
    let named = Named::of(db, id).await?;
    match named.damage {
        _ if named.first.contains_key(&name) => Ok(true),
        Some(damage) => Err(damage.into()),
        None => Ok(false),
    }
}

/// Returns the last event up to `last` that is left of a session.
async fn left(db: &mut Db, session: &SessionRecord, last: Seq) -> Step<Seq> {
    let sql = "SELECT kept FROM @.tombstones WHERE tenant = $1 AND session = $2";
    let row = db.first(db.query(sql).bind(*session.id.as_uuid())).await?;
    let kept = row.map(|row| row.try_get(0)).transpose()?;
    Ok(kept.map_or(session.head, seq).min(session.head).min(last))
}

/// Columns that a sweep reads; `$2` and `$3` are the times between which a put may still go on.
macro_rules! swept {
    ($scope:literal) => {
        concat!(
            "SELECT blob, name, bytes, state = 'whole', at < $2 OR at > $3, \
             CASE WHEN state = 'whole' THEN 0 ELSE coalesce((SELECT sum(octet_length(c.data)) FROM @.blob_chunks c \
             WHERE c.blob = b.blob), 0) END::bigint FROM @.blobs b \
             WHERE tenant = $1 AND named IS NULL AND state <> 'removed' AND ",
            $scope
        )
    };
}

const OF_SESSION: &str = swept!("session = $4");
const WITHOUT_SESSION: &str = swept!(
    "NOT EXISTS (SELECT 1 FROM @.sessions s WHERE s.tenant = b.tenant AND s.session = b.session) \
     AND NOT EXISTS (SELECT 1 FROM @.events e WHERE e.tenant = b.tenant AND e.session = b.session) \
     AND NOT EXISTS (SELECT 1 FROM @.tombstones t WHERE t.tenant = b.tenant AND t.session = b.session)"
);

/// Blob that a sweep has found.
struct Unnamed {
    blob: i64,
    /// Name of a whole blob.
    name: Option<BlobName>,
    bytes: u64,
    /// True if a put is given up, or a blob is whole.
    is_gone: bool,
}

impl Unnamed {
    fn of(row: &PgRow) -> Step<Self> {
        let (bytes, stored): (i64, i64) = (row.try_get(2)?, row.try_get(5)?);
        let (is_whole, is_given_up): (bool, bool) = (row.try_get(3)?, row.try_get(4)?);
        let name = row.try_get::<&str, _>(1)?.parse().ok().filter(|_| is_whole);
        let bytes = u64::try_from(if is_whole { bytes } else { stored }).unwrap_or(0);
        Ok(Self { blob: row.try_get(0)?, name, bytes, is_gone: is_whole || is_given_up })
    }
}

/// Takes the blobs that no event names out of sight, and the puts that were given up. With `dry_run` it only counts them.
pub(crate) async fn sweep(db: &mut Db, sweep: SweepBlobs, now: Timestamp) -> Step<SweptBlobs> {
    if let (Some(id), false) = (sweep.session, sweep.dry_run) {
        // From here on, no commit names a blob of the session.
        if matches!(stored::lock(db, id).await?, Stored::Broken) {
            return Err(corrupt(&format!("the record of session {id}"), "is damaged").into());
        }
    }
    let now = now.as_micros();
    // A time that lies ahead is from a clock that was wrong.
    let (from, until) = (now.saturating_sub(GIVEN_UP), now.saturating_add(GIVEN_UP));
    let statement =
        db.query(if sweep.session.is_some() { OF_SESSION } else { WITHOUT_SESSION }).bind(from).bind(until);
    let statement = match sweep.session {
        Some(id) => statement.bind(*id.as_uuid()),
        None => statement,
    };
    let (mut gone, mut swept) = (Vec::new(), SweptBlobs::default());
    for row in db.rows(statement).await? {
        let found = Unnamed::of(&row)?;
        if found.is_gone {
            gone.push(found);
        } else {
            swept.unfinished += found.bytes;
        }
    }
    let named = match sweep.session {
        Some(id) if gone.iter().any(|found| found.name.is_some()) => Named::of(db, id).await?,
        _ => Named::default(),
    };
    if let Some(damage) = named.damage {
        return Err(damage.into());
    }
    for Unnamed { blob, name, bytes, .. } in gone {
        match name.and_then(|name| named.first.get(&name)) {
            Some(_) if sweep.dry_run => {}
            Some(seq) => set_named(db, blob, Some(*seq)).await?,
            None if sweep.dry_run || remove(db, blob).await? => swept += SweptBlobs::new(1, bytes),
            None => {}
        }
    }
    Ok(swept)
}

async fn set_named(db: &mut Db, blob: i64, seq: Option<Seq>) -> Step<()> {
    let sql = "UPDATE @.blobs SET named = $3 WHERE tenant = $1 AND blob = $2 AND named IS DISTINCT FROM $3";
    db.execute(db.query(sql).bind(blob).bind(seq.map(|seq| int(seq.get())))).await.map(drop)
}

/// Takes a blob out of sight, unless a commit has named it since it was looked for; returns whether it did.
async fn remove(db: &mut Db, blob: i64) -> Step<bool> {
    let sql = "UPDATE @.blobs SET state = 'removed' WHERE tenant = $1 AND blob = $2 AND named IS NULL AND state <> 'removed'";
    Ok(db.execute(db.query(sql).bind(blob)).await? > 0)
}

/// Blob of a session, and the event that is stored as the first that names it.
struct StoredNamed {
    blob: i64,
    is_whole: bool,
    name: Option<BlobName>,
    named: Option<Seq>,
}

async fn stored_of(db: &mut Db, id: SessionId) -> Step<Vec<StoredNamed>> {
    let sql = "SELECT blob, state = 'whole', name, named FROM @.blobs \
        WHERE tenant = $1 AND session = $2 AND state <> 'removed' ORDER BY blob FOR UPDATE";
    let rows = db.rows(db.query(sql).bind(*id.as_uuid())).await?;
    let blob = |row: &PgRow| -> Step<StoredNamed> {
        Ok(StoredNamed {
            blob: row.try_get(0)?,
            is_whole: row.try_get(1)?,
            name: row.try_get::<&str, _>(2)?.parse().ok(),
            named: row.try_get::<Option<i64>, _>(3)?.map(seq),
        })
    };
    rows.iter().map(blob).collect()
}

/// Takes the blobs of a session out of sight that no event up to `keep` names, with the unfinished ones. If a kept event
/// is damaged, also keeps the blobs that such an event named when it was stored.
pub(crate) async fn purge(db: &mut Db, session: &SessionRecord, keep: Seq) -> Step<()> {
    let blobs = stored_of(db, session.id).await?;
    if blobs.is_empty() {
        return Ok(());
    }
    let keep = left(db, session, keep).await?;
    let kept = Named::read(db, session, keep).await?;
    for StoredNamed { blob, name, named, is_whole } in blobs {
        let read = name.and_then(|name| kept.first.get(&name).copied());
        let stored = named.filter(|named| kept.damage.is_some() && *named <= keep);
        match read.or(stored).filter(|_| is_whole) {
            Some(seq) => set_named(db, blob, Some(seq)).await?,
            None => {
                let sql = "UPDATE @.blobs SET state = 'removed' WHERE tenant = $1 AND blob = $2";
                db.execute(db.query(sql).bind(blob)).await?;
            }
        }
    }
    Ok(())
}

/// Stores again which event names each blob of a session first. Leaves it as it is if the log is damaged.
pub(crate) async fn rebuild(db: &mut Db, id: SessionId) -> Step<()> {
    let blobs = stored_of(db, id).await?;
    if blobs.is_empty() {
        return Ok(());
    }
    let named = Named::of(db, id).await?;
    if named.damage.is_some() {
        return Ok(());
    }
    for StoredNamed { blob, name, is_whole, .. } in blobs {
        let name = name.filter(|_| is_whole);
        set_named(db, blob, name.and_then(|name| named.first.get(&name).copied())).await?;
    }
    Ok(())
}

/// Deletes a few removed blobs of the tenant with their chunks; returns whether any may be left.
pub(crate) async fn delete(db: &mut Db) -> Step<bool> {
    let sql = "WITH gone AS (SELECT blob FROM @.blobs WHERE tenant = $1 AND state = 'removed' ORDER BY blob LIMIT 4 FOR UPDATE \
        SKIP LOCKED), chunks AS (DELETE FROM @.blob_chunks c USING gone WHERE c.blob = gone.blob) \
        DELETE FROM @.blobs b USING gone WHERE b.blob = gone.blob";
    Ok(db.execute(db.query(sql)).await? > 0)
}
