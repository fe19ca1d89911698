//! List pages of sessions, from the index: keys give the candidates, and the newest commit of each confirms it.

use std::sync::Arc;

use agent_core::session::SessionSummary;
use agent_core::store::{Damaged, Page, SessionQuery};
use agent_core::{Result, SessionId};
use futures::StreamExt;

use crate::error::is_damage;
use crate::layout::keys::{Minute, Slot};
use crate::log::family::children;
use crate::log::index_keys::{Lists, parse_name};
use crate::log::newest::{give_up, newest, newest_seen};
use crate::log::slot::{Entry, Kind};
use crate::log::slots::{Slots, record};
use crate::medium::background::DELAY;
use crate::medium::index_pages::{self, Listable, Now, Request, Source};
use crate::medium::object::{Bucket, PAGE_AT_ONCE};

/// Age of a commit after which the keys that it superseded are deleted at once, as their writer would have by then.
const SETTLED_MICROS: i64 = DELAY.as_micros() as i64;

/// Returns a page of sessions by recency, or by the time at which they are due.
pub(crate) async fn list(slots: &Slots, query: &SessionQuery) -> Result<Page<SessionSummary>> {
    let until = slots.bucket.deadline();
    if let Some(parent) = query.parent {
        return of_parent(slots, query, children(slots, parent, until).await?).await;
    }
    match Lists::of(query, &slots.bucket.settings.index, &slots.keys) {
        Lists::Recent(folders) => {
            let request = Request::new(folders, query.fingerprint(), query.cursor.as_ref(), query.limit)?;
            index_pages::page(&Sessions { slots, query }, request.with_total(query.with_total)).await
        }
        Lists::Running => work(slots, query, Minute::AT_ONCE).await,
        Lists::Due(until) => work(slots, query, until).await,
    }
}

/// Sessions of a query.
#[derive(Debug)]
struct Sessions<'a> {
    slots: &'a Slots,
    query: &'a SessionQuery,
}

impl Listable for Sessions<'_> {
    type Id = SessionId;
    type Item = SessionSummary;

    fn bucket(&self) -> &Bucket {
        &self.slots.bucket
    }

    fn parse(&self, key: &str) -> Option<(SessionId, u64)> {
        parse_name(key).map(|(id, slot)| (id, slot.0))
    }

    async fn read(&self, id: SessionId) -> Result<Option<Now<SessionSummary>>> {
        let Some((head, age)) = newest_seen(self.slots, id).await? else { return Ok(None) };
        let item = summary(&head)?;
        let names = head.head.keys.iter().map(|key| key.name(&self.slots.keys, id)).collect();
        // A stub does not say which keys are in force.
        let keys = (head.head.kind != Kind::Stub).then_some(names);
        Ok(Some(Now { number: head.head.slot.0, keys, item, is_settled: age.is_over(SETTLED_MICROS) }))
    }

    fn describe(&self, id: &SessionId) -> String {
        format!("session {id}")
    }

    fn matches(&self, item: &SessionSummary) -> bool {
        self.query.matches(item)
    }

    fn sort(&self, items: &mut [SessionSummary]) {
        self.query.sort(items);
    }

    fn gives_up(&self, slot: u64) -> bool {
        slot == Slot::FIRST.0
    }

    async fn give_up(&self, id: SessionId) -> Result<bool> {
        give_up(self.slots, id).await
    }

    fn delete_later(&self, keys: Vec<String>) {
        self.slots.delete_later(keys);
    }

    fn delete_now(&self, keys: Vec<String>) {
        self.slots.delete_now(keys);
    }
}

/// Returns a page of the sessions that were created from another, of which all ids are known.
async fn of_parent(slots: &Slots, query: &SessionQuery, ids: Vec<SessionId>) -> Result<Page<SessionSummary>> {
    let (mut shown, mut damaged) = (Vec::new(), Vec::new());
    let mut resolved = resolve_all(slots, ids);
    while let Some((id, newest)) = resolved.next().await {
        match newest.and_then(|newest| newest.as_deref().map_or(Ok(None), summary)) {
            Ok(summary) => shown.extend(summary),
            Err(error) if is_damage(&error) => {
                damaged.push(Damaged::of(format!("session {id}"), &error));
            }
            Err(error) => return Err(error),
        }
    }
    damaged.sort();
    Ok(query.page(shown)?.with_damaged(damaged))
}

/// Returns the summary in a session's newest commit; `None` if the slot was taken so that there is no session.
fn summary(entry: &Entry) -> Result<Option<SessionSummary>> {
    if entry.head.kind == Kind::Void {
        return Ok(None);
    }
    record(entry).map(|record| Some(SessionSummary::from(&**record)))
}

/// Returns the newest commits of sessions, some at a time, in any order. `Ok(None)` if a session does not exist.
fn resolve_all<'a>(
    slots: &'a Slots,
    ids: Vec<SessionId>,
) -> impl futures::Stream<Item = (SessionId, Result<Option<Arc<Entry>>>)> + Unpin + Send + 'a {
    let resolve = move |id| async move { (id, newest(slots, id).await) };
    Box::pin(futures::stream::iter(ids).map(resolve).buffer_unordered(PAGE_AT_ONCE))
}

/// Returns a page of the sessions of the tenant that run, or are due by a minute.
async fn work(slots: &Slots, query: &SessionQuery, until: Minute) -> Result<Page<SessionSummary>> {
    let keys = &slots.keys;
    let of_work = |folder, from| Source::of_work(folder, from, keys.clone(), until);
    // What is due at once or runs is in a folder of the tenant, all other work with that of other tenants.
    let mut sources = vec![of_work(keys.work(Minute::AT_ONCE), None)];
    if until != Minute::AT_ONCE {
        sources.push(of_work(keys.all_work(), Some(keys.work_after_at_once())));
    }
    let mut found = index_pages::all(&Sessions { slots, query }, vec![keys.all_work()], sources).await?;
    let mut damaged = std::mem::take(&mut found.damaged);
    damaged.sort();
    Ok(query.page(found.into_items())?.with_damaged(damaged))
}
