//! Lists of sessions. Each session's newest commit is looked up and read, so that lists are correct, but slow.

use agent_core::session::SessionSummary;
use agent_core::store::{Damaged, Page, SessionQuery};
use agent_core::{ErrorKind, Result, SessionId};
use futures::StreamExt;
use tokio::time::Instant;

use crate::error::is_damage;
use crate::family::children;
use crate::keys::last;
use crate::object::AT_ONCE;
use crate::slot::{Entry, Kind, RECORD_PART};
use crate::slots::{Slots, absent, record};

/// Returns a page of sessions by recency.
pub(crate) async fn list(slots: &Slots, query: &SessionQuery) -> Result<Page<SessionSummary>> {
    let until = slots.bucket.deadline();
    let ids = match query.parent {
        Some(parent) => children(slots, parent, until).await?,
        None => all(slots, until).await?,
    };
    let found: Vec<_> = futures::stream::iter(ids)
        .map(|id| async move { (id, summary(slots, id).await) })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let (mut summaries, mut damaged) = (Vec::new(), Vec::new());
    for (id, found) in found {
        match found {
            Ok(summary) => summaries.push(summary),
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            Err(error) if is_damage(&error) => {
                damaged.push(Damaged::new(format!("session {id}"), error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    damaged.sort();
    Ok(query.page(summaries)?.with_damaged(damaged))
}

async fn all(slots: &Slots, until: Instant) -> Result<Vec<SessionId>> {
    let mut all = Vec::new();
    for shard in slots.bucket.list_all(&slots.keys.sessions(), true, until).await? {
        let folders = slots.bucket.list_all(&format!("{shard}/"), true, until).await?;
        // An object that belongs to no session was put there by another program.
        all.extend(folders.iter().filter_map(|folder| last(folder).parse::<SessionId>().ok()));
    }
    Ok(all)
}

/// Returns the summary in a session's newest commit. Reads no more of the object than its record.
async fn summary(slots: &Slots, id: SessionId) -> Result<SessionSummary> {
    let until = slots.bucket.deadline();
    let mut emptied = None;
    loop {
        let slot = slots.newest_slot(id, until).await?.ok_or_else(|| absent(id))?;
        let key = slots.keys.slot(id, slot);
        let part = slots.bucket.get_range(&key, 0..RECORD_PART, until).await?.ok_or_else(|| absent(id))?;
        let entry = Entry::parse(&part.bytes, id, slot)?;
        match entry.head.kind {
            Kind::Void => return Err(absent(id)),
            // The slot was the newest when it was listed, and is not any more.
            Kind::Stub if emptied.replace(slot) != Some(slot) => {}
            _ => return record(&entry).map(|record| SessionSummary::from(&**record)),
        }
    }
}
