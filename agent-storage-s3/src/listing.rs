//! Lists of sessions: each session's newest commit is looked up and read. Right, and as slow as that sounds.

use agent_core::session::SessionSummary;
use agent_core::store::{Damaged, Page, SessionQuery};
use agent_core::{ErrorKind, Result, SessionId, TenantId};
use futures::StreamExt;
use tokio::time::Instant;

use crate::error::is_damage;
use crate::family::children;
use crate::keys::{self, last};
use crate::object::{AT_ONCE, Bucket};
use crate::slot::{Entry, Kind, RECORD_PART};
use crate::slots::{Slots, absent, record};

/// A page of sessions by recency.
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
    let folders = slots.bucket.list_all(&slots.keys.sessions(), true, until).await?;
    // What is not a session's was put there by somebody else.
    Ok(folders.iter().filter_map(|folder| last(folder).parse().ok()).collect())
}

/// What a session's newest commit says of it. Reads no more of that than its record.
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
            // It was the newest when it was listed, and is not any more.
            Kind::Stub if emptied.replace(slot) != Some(slot) => {}
            _ => return record(&entry).map(|record| SessionSummary::from(&**record)),
        }
    }
}

/// The tenants that hold anything.
pub(crate) async fn tenants(
    bucket: &Bucket,
    prefix: &str,
    after: Option<&TenantId>,
) -> Result<Page<TenantId>> {
    let all = keys::tenants(prefix);
    let folders = bucket.list_all(&all, true, bucket.deadline());
    let mut found: Vec<TenantId> =
        folders.await?.iter().filter_map(|folder| last(folder).parse().ok()).collect();
    found.retain(|tenant| after.is_none_or(|after| tenant > after));
    found.sort();
    Ok(Page::new(found))
}
