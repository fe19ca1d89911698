//! Source of an export: the record of a session, and the logs that it shares with its ancestors.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::{BoxStream, StreamExt};

use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::own_events;
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, SessionStore};

/// Loads the record of a session to export.
async fn exported(store: &dyn SessionStore, id: SessionId) -> Result<Arc<SessionRecord>> {
    let session = store.load(id).await?;
    if session.status.state == SessionState::Deleted {
        return Err(Error::deleted(format!("session {id} was deleted; there is nothing to export")));
    }
    if let Some(end) = session.import_end {
        return Err(Error::new(
            ErrorKind::Conflict { head: Some(session.head) },
            format!(
                "session {id} has the events up to {} of an import that ends with event {end}; run the import again, then export \
                 the session",
                session.head
            ),
        ));
    }
    Ok(session)
}

/// Returns events of a log as they are exported: without what an import noted on them.
pub(crate) fn exported_events(
    store: &dyn SessionStore,
    id: SessionId,
    after: Seq,
    until: Seq,
) -> BoxStream<'_, Result<Event>> {
    own_events(store, id, after, Some(until)).map_ok(|event| event.with_import_end(None)).boxed()
}

/// Returns whether the system could not read an object because of its disk: an error of this object, not of the store.
pub(crate) fn is_read_error(error: &Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return cfg!(unix) && error.raw_os_error() == Some(EIO);
        }
        cause = error.source();
    }
    false
}

/// Number of the system's error for a failed read of a disk (POSIX `EIO`).
const EIO: i32 = 5;

/// Returns the error of a read of a session that is exported. What is missing in a session that was deleted meanwhile was
/// purged, and is not damaged.
async fn unless_deleted(store: &dyn SessionStore, id: SessionId, error: Error) -> Error {
    if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) {
        return error;
    }
    match exported(store, id).await {
        Err(deleted) if *deleted.kind() == ErrorKind::Deleted => deleted,
        _ => error,
    }
}

/// Returns the pieces of an exported session, with [`purged`] in place of the error for what is missing in a session that was
/// deleted meanwhile.
pub(crate) fn watched<'a>(
    store: &'a dyn SessionStore,
    id: SessionId,
    pieces: BoxStream<'a, Result<Bytes>>,
) -> BoxStream<'a, Result<Bytes>> {
    let judged = pieces.or_else(move |error| async move {
        let error = unless_deleted(store, id, error).await;
        Err(if *error.kind() == ErrorKind::Deleted { purged(id).with_source(error) } else { error })
    });
    judged.boxed()
}

/// Returns the error for a session of which something was removed between its first and its second reading.
pub(crate) fn purged(id: SessionId) -> Error {
    Error::new(
        ErrorKind::Conflict { head: None },
        format!(
            "a part of session {id} was removed while it was exported; look whether it was deleted and purged"
        ),
    )
}

/// Log in a document: the session's own one, or an ancestor's as far as it is shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    pub(crate) id: SessionId,
    /// Last event before the log.
    pub(crate) base: Seq,
    /// Last event in the document. Before an ancestor was read: the last one that is shared; zero if none is.
    pub(crate) until: Seq,
}

/// Reads a session to export and its ancestors once, and checks that they are complete. `begin` is called with the record;
/// then `take` with each event, with the number of its log and the log's session: first those of the session's own log, then
/// those of its ancestors, parents first. Returns the record, the logs and what was taken.
pub(crate) async fn read_logs<T: Send>(
    store: &dyn SessionStore,
    id: SessionId,
    begin: impl FnOnce(&SessionRecord) -> T + Send,
    mut take: impl FnMut(&mut T, (usize, SessionId), Event) + Send,
) -> Result<(Arc<SessionRecord>, Vec<Log>, T)> {
    let read = async {
        let session = exported(store, id).await?;
        let mut taken = begin(&session);
        let own = Log { id, base: session.lineage.base(), until: session.head };
        let last =
            each_event(store, id, (own.base, own.until), |event| take(&mut taken, (0, id), event)).await?;
        check_head(&session, last.map(|(last, _)| last))?;
        let mut logs = vec![own];
        for mut log in shared_logs(store, &session).await? {
            let place = (logs.len(), log.id);
            if let Some(until) = read_shared(store, log, id, |event| take(&mut taken, place, event)).await? {
                log.until = until;
                logs.push(log);
            }
        }
        Ok((session, logs, taken))
    };
    match read.await {
        Err(error) => Err(unless_deleted(store, id, error).await),
        read => read,
    }
}

/// Checks that the last event that was read is the one that the record names.
fn check_head(session: &SessionRecord, last: Option<Seq>) -> Result<()> {
    if last == Some(session.head) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "session {} has events up to {}, but its record says {}; run `verify`, then `salvage`",
        session.id,
        last.unwrap_or(session.lineage.base()),
        session.head
    )))
}

/// Passes the shared events of an ancestor to `take`, in order, and the rest of the last one's commit. Returns the last
/// event, or `None` if there is none: a deleted session that shares no event may have no events left.
///
/// # Errors
///
/// `Deleted` if the events end within a commit.
async fn read_shared(
    store: &dyn SessionStore,
    log: Log,
    heir: SessionId,
    mut take: impl FnMut(Event) + Send,
) -> Result<Option<Seq>> {
    // The first event is in an export even if it is not shared.
    let until = log.until.max(log.base.next());
    let Some((mut last, end)) = each_event(store, log.id, (log.base, until), &mut take).await? else {
        return Ok(None);
    };
    if last < end {
        last = each_event(store, log.id, (last, end), &mut take).await?.map_or(last, |(last, _)| last);
    }
    if last >= log.until && last == end {
        return Ok(Some(end));
    }
    Err(Error::deleted(format!(
        "session {heir}: the events that it shares with the deleted session {} end within a commit; \
         copy the store instead",
        log.id
    )))
}

/// Passes the events of a session's own log in a range (after the first, up to the second) to `take`. Returns the last one,
/// and the last one of its commit.
async fn each_event(
    store: &dyn SessionStore,
    id: SessionId,
    (after, until): (Seq, Seq),
    mut take: impl FnMut(Event) + Send,
) -> Result<Option<(Seq, Seq)>> {
    let (mut events, mut last) = (exported_events(store, id, after, until), None);
    while let Some(event) = events.try_next().await? {
        last = Some((event.seq, Seq::new(event.seq.get() + u64::from(event.of - event.n))));
        take(event);
    }
    Ok(last)
}

/// Returns the logs that a session shares with its ancestors, parents first.
async fn shared_logs(store: &dyn SessionStore, session: &SessionRecord) -> Result<Vec<Log>> {
    let mut found: HashMap<SessionId, (Arc<SessionRecord>, Seq)> = HashMap::new();
    let mut wanted = shared_by(session);
    while let Some((id, until)) = wanted.pop() {
        match found.entry(id) {
            Entry::Occupied(mut there) => {
                let (_, so_far) = there.get_mut();
                *so_far = until.max(*so_far);
            }
            Entry::Vacant(place) => {
                let record = store.load(id).await?;
                wanted.extend(shared_by(&record));
                place.insert((record, until));
            }
        }
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|(record, _)| (record.depth, record.id));
    let log = |(record, until): (Arc<SessionRecord>, Seq)| Log {
        id: record.id,
        base: record.lineage.base(),
        until,
    };
    Ok(found.into_iter().map(log).collect())
}

/// Returns the ids of the ancestors of a session, each with its last shared event.
fn shared_by(session: &SessionRecord) -> Vec<(SessionId, Seq)> {
    let segments = session.lineage.segments.iter().map(|segment| (segment.session, segment.until));
    segments.chain(session.origin.parent().map(|parent| (parent, Seq::ZERO))).collect()
}
