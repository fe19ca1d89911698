//! Lists of sessions, from the index: which sessions may be in a list say its keys, and whether they are says the newest
//! commit of each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use agent_core::session::SessionSummary;
use agent_core::store::{Cursor, Damaged, PAGE_MAX, Page, SessionQuery};
use agent_core::{Result, SessionId};
use futures::StreamExt;

use crate::error::is_damage;
use crate::family::children;
use crate::index::{Lists, Minute, parse_name};
use crate::object::PAGE_AT_ONCE;
use crate::slot::{Entry, Kind, RECORD_PART, Slot};
use crate::slots::{Slots, record};

/// Number of keys of a list request.
const KEYS: usize = 1000;
/// Limit on the superseded keys that one list deletes.
const DELETED_MAX: usize = 100;

/// Returns a page of sessions by recency, or by the time at which they are due.
pub(crate) async fn list(slots: &Slots, query: &SessionQuery) -> Result<Page<SessionSummary>> {
    let until = slots.bucket.deadline();
    if let Some(parent) = query.parent {
        return of_parent(slots, query, children(slots, parent, until).await?).await;
    }
    match Lists::of(query, &slots.keys) {
        Lists::Recent(folders) => recent(slots, query, folders).await,
        Lists::Running => work(slots, query, Minute::AT_ONCE).await,
        Lists::Due(until) => work(slots, query, until).await,
    }
}

/// Sessions that were found, by their places in the list.
#[derive(Debug, Default)]
struct Found {
    shown: BTreeMap<(String, SessionId), SessionSummary>,
    damaged: Vec<Damaged>,
}

impl Found {
    /// Returns a page of all that was found, in the query's order.
    fn all(mut self, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        self.damaged.sort();
        Ok(query.page(self.shown.into_values())?.with_damaged(self.damaged))
    }
}

/// Returns a page of the sessions that were created from another, of which all ids are known.
async fn of_parent(slots: &Slots, query: &SessionQuery, ids: Vec<SessionId>) -> Result<Page<SessionSummary>> {
    let mut found = Found::default();
    let mut resolved = resolve_all(slots, ids);
    while let Some((id, newest)) = resolved.next().await {
        match newest.and_then(|newest| newest.as_deref().map(summary).transpose()) {
            Ok(Some(summary)) => drop(found.shown.insert((String::new(), id), summary)),
            Ok(None) => {}
            Err(error) if is_damage(&error) => {
                found.damaged.push(Damaged::new(format!("session {id}"), error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    found.all(query)
}

fn summary(entry: &Entry) -> Result<SessionSummary> {
    record(entry).map(|record| SessionSummary::from(&**record))
}

/// Returns the newest commits of sessions, some at a time, in any order. `Ok(None)` if a session does not exist.
fn resolve_all<'a>(
    slots: &'a Slots,
    ids: Vec<SessionId>,
) -> impl futures::Stream<Item = (SessionId, Result<Option<Arc<Entry>>>)> + Unpin + Send + 'a {
    let resolve = move |id| async move { (id, newest(slots, id).await) };
    Box::pin(futures::stream::iter(ids).map(resolve).buffer_unordered(PAGE_AT_ONCE))
}

/// Returns the newest commit of a session; a taken slot without a session is `Void`. Reads no more of an object than its
/// record, if the session is not known.
async fn newest(slots: &Slots, id: SessionId) -> Result<Option<Arc<Entry>>> {
    let until = slots.bucket.deadline();
    if slots.heads.get(id).is_some() {
        return slots.newest(id, until).await;
    }
    let mut emptied = None;
    loop {
        let Some(slot) = slots.newest_slot(id, until).await? else { return Ok(None) };
        let key = slots.keys.slot(id, slot);
        let Some(part) = slots.bucket.get_range(&key, 0..RECORD_PART, until).await? else { return Ok(None) };
        let entry = Arc::new(Entry::parse(&part.bytes, id, slot)?);
        match entry.head.kind {
            Kind::Void => return Ok(None),
            // The slot was the newest when it was listed, and is not any more.
            Kind::Stub if emptied.replace(slot) != Some(slot) => {}
            _ => {
                // The whole object was read, unless it is large.
                if entry.is_whole() && (part.bytes.len() as u64) < RECORD_PART {
                    slots.heads.note(id, &entry);
                }
                return Ok(Some(entry));
            }
        }
    }
}

/// Reader of the keys of one list, or of a part of one.
#[derive(Debug)]
struct Source {
    /// Folder of the keys; ends with a slash.
    folder: String,
    /// Where the next request starts.
    after: Option<String>,
    /// Keys that were listed and not taken yet, in reverse order.
    keys: Vec<String>,
    is_done: bool,
    /// First key of the last request.
    last_first: Option<String>,
}

impl Source {
    fn new(folder: String, after: Option<String>) -> Self {
        Self { folder, after, keys: Vec::new(), is_done: false, last_first: None }
    }

    /// Lists the next keys, if none are left.
    async fn fill(&mut self, slots: &Slots) -> Result<usize> {
        let mut requests = 0;
        while self.keys.is_empty() && !self.is_done {
            let until = slots.bucket.deadline();
            let page =
                slots.bucket.list(&self.folder, self.after.as_deref(), None, KEYS, false, until).await?;
            requests += 1;
            self.is_done = page.next.is_none();
            self.last_first = page.keys.first().cloned().or(self.last_first.take());
            self.after = page.keys.last().cloned().or(self.after.take());
            // A page without keys, and with another one after it, cannot be continued from a key.
            self.is_done |= page.keys.is_empty();
            self.keys = page.keys;
            self.keys.reverse();
        }
        Ok(requests)
    }

    /// Returns the place of the next key in the list.
    fn next(&self) -> Option<&str> {
        self.keys.last().map(|key| self.place(key))
    }

    fn place<'a>(&self, key: &'a str) -> &'a str {
        key.strip_prefix(&self.folder).unwrap_or_default()
    }
}

/// Newest commit of a session, as it was read.
#[derive(Debug)]
struct Read {
    slot: Slot,
    /// Names of the keys in force; `None` if the commit does not say, so that no key is known to be superseded.
    names: Option<Vec<String>>,
    /// Summary, until it is shown.
    summary: Option<SessionSummary>,
}

/// One pass over lists.
#[derive(Debug)]
struct Pass<'a> {
    slots: &'a Slots,
    query: &'a SessionQuery,
    folders: Vec<String>,
    /// Place after which the page starts.
    start: Option<String>,
    found: Found,
    /// Sessions whose newest commit was read.
    read: HashMap<SessionId, Read>,
    /// Keys that may be deleted.
    superseded: Vec<String>,
}

impl Pass<'_> {
    /// Returns the place in these lists of a key, if it is in one of them.
    fn place(&self, name: &str) -> Option<String> {
        let folder = self.folders.iter().find(|folder| name.starts_with(folder.as_str()))?;
        Some(name[folder.len()..].to_owned())
    }

    /// Reads the newest commits of the sessions of some keys, and decides what is shown.
    async fn resolve(&mut self, keys: &[String]) -> Result<()> {
        let (mut ids, mut new) = (Vec::new(), HashSet::new());
        for key in keys {
            if let Some((id, _)) = parse_name(key)
                && !self.read.contains_key(&id)
                && new.insert(id)
            {
                ids.push(id);
            }
        }
        let mut resolved = resolve_all(self.slots, ids);
        let mut newest = HashMap::new();
        while let Some((id, found)) = resolved.next().await {
            newest.insert(id, found);
        }
        drop(resolved);
        for (id, found) in newest {
            self.note(id, found)?;
        }
        for key in keys {
            if let Some((id, slot)) = parse_name(key) {
                self.decide(key, id, slot);
            }
        }
        Ok(())
    }

    fn note(&mut self, id: SessionId, found: Result<Option<Arc<Entry>>>) -> Result<()> {
        let mut read = Read { slot: Slot::FIRST, names: None, summary: None };
        match found.and_then(|found| found.map(|head| Ok((summary(&head)?, head))).transpose()) {
            Ok(Some((summary, head))) => {
                let names = head.head.keys.iter().map(|key| key.name(&self.slots.keys, id)).collect();
                let is_full = matches!(head.head.kind, Kind::Commit | Kind::Purged);
                read = Read { slot: head.head.slot, names: is_full.then_some(names), summary: Some(summary) };
            }
            Ok(None) => {}
            Err(error) if is_damage(&error) => {
                self.found.damaged.push(Damaged::new(format!("session {id}"), error.to_string()));
            }
            Err(error) => return Err(error),
        }
        self.read.insert(id, read);
        Ok(())
    }

    /// Decides what a key means, by the newest commit of its session.
    fn decide(&mut self, key: &str, id: SessionId, slot: Slot) {
        let candidate = self.place(key).unwrap_or_default();
        let Some(Read { slot: newest, names: Some(names), .. }) = self.read.get(&id) else { return };
        if slot <= *newest && !names.iter().any(|name| name == key) {
            self.superseded.push(key.to_owned());
        }
        let place = names.iter().find_map(|name| self.place(name));
        // If the one in force comes later, this is the key of a commit which may come, or was never made. A session that
        // has moved since is shown in its new place, unless that is on an earlier page.
        let is_here = |place: &String| {
            *place <= candidate && self.start.as_ref().is_none_or(|start| place > start)
        };
        let Some(place) = place.filter(is_here) else { return };
        let summary = self.read.get_mut(&id).and_then(|read| read.summary.take());
        if let Some(summary) = summary.filter(|summary| self.query.matches(summary)) {
            self.found.shown.insert((place, id), summary);
        }
    }
}

/// Returns a page of the sessions of lists that are ordered by recency.
async fn recent(slots: &Slots, query: &SessionQuery, folders: Vec<String>) -> Result<Page<SessionSummary>> {
    let print = query.fingerprint();
    let start = query.cursor.as_ref().map(|cursor| cursor.key(print)).transpose()?;
    let limit = query.limit.min(PAGE_MAX);
    if limit == 0 && !query.with_total {
        return Ok(Page::default());
    }
    // A total counts all, from the first on.
    let (from, most) = if query.with_total { (None, usize::MAX) } else { (start.clone(), limit) };
    let after = |folder: &String| from.as_ref().map(|start| format!("{folder}{start}"));
    let mut sources: Vec<_> = folders.iter().map(|folder| Source::new(folder.clone(), after(folder))).collect();
    let mut pass = Pass {
        slots,
        query,
        folders,
        start: from.clone(),
        found: Found::default(),
        read: HashMap::new(),
        superseded: Vec::new(),
    };
    let (mut requests, mut last_listed, mut end) = (0, 0, None::<String>);
    let is_more = loop {
        // As many keys as may be shown, in the order of all lists.
        let wanted = most.saturating_sub(pass.found.shown.len()).min(KEYS);
        let mut batch = Vec::new();
        let mut is_over = false;
        while batch.len() < wanted {
            for (n, source) in sources.iter_mut().enumerate() {
                let sent = source.fill(slots).await?;
                requests += sent;
                last_listed = if sent > 0 { n } else { last_listed };
            }
            let next = sources.iter().enumerate().filter_map(|(n, source)| Some((source.next()?, n))).min();
            let Some((_, n)) = next else {
                is_over = true;
                break;
            };
            batch.extend(sources[n].keys.pop());
        }
        if let Some(last) = batch.last() {
            end = pass.place(last);
        }
        pass.resolve(&batch).await?;
        if is_over || pass.found.shown.len() >= most {
            let rest = sources.iter().any(|source| !source.keys.is_empty() || !source.is_done);
            break !is_over && rest;
        }
    };
    if requests > 1 {
        last_look(&mut pass, &sources, last_listed, end.as_deref().filter(|_| is_more)).await?;
    }
    slots.delete_later(pass.superseded.into_iter().take(DELETED_MAX));
    page(query, pass.found, is_more.then_some(end).flatten(), start, limit)
}

/// Lists again what lies before the last request, until nothing new is there: a session may have moved there while the
/// other requests were made.
async fn last_look(pass: &mut Pass<'_>, sources: &[Source], last: usize, end: Option<&str>) -> Result<()> {
    let mut known: HashSet<String> = HashSet::new();
    loop {
        let mut new = Vec::new();
        for (n, source) in sources.iter().enumerate() {
            let to = if n == last { source.last_first.as_deref() } else { source.after.as_deref() };
            let Some(to) = to.map(|key| source.place(key).to_owned()) else { continue };
            let after = pass.start.as_ref().map(|start| format!("{}{start}", source.folder));
            let mut again = Source::new(source.folder.clone(), after);
            'keys: loop {
                again.fill(pass.slots).await?;
                while let Some(key) = again.keys.pop() {
                    let place = source.place(&key);
                    let is_behind = end.is_some_and(|end| place > end);
                    if (n == last && place >= to.as_str()) || place > to.as_str() || is_behind {
                        break 'keys;
                    }
                    if known.insert(key.clone()) {
                        new.push(key);
                    }
                }
                if again.is_done {
                    break;
                }
            }
        }
        let before = pass.read.len();
        pass.resolve(&new).await?;
        if pass.read.len() == before {
            return Ok(());
        }
    }
}

/// Returns the page of what was found; `end` is the place where the pass has ended, if there is more.
fn page(
    query: &SessionQuery,
    found: Found,
    end: Option<String>,
    start: Option<String>,
    limit: usize,
) -> Result<Page<SessionSummary>> {
    let Found { shown, mut damaged } = found;
    let total = query.with_total.then_some(shown.len() as u64);
    let mut rest: Vec<_> = shown.into_iter().map(|((place, _), summary)| (place, summary)).collect();
    rest.retain(|(place, _)| start.as_ref().is_none_or(|start| place > start));
    let end = if rest.len() > limit {
        rest.truncate(limit);
        rest.last().map(|(place, _)| place.clone())
    } else {
        end
    };
    let mut items: Vec<_> = rest.into_iter().map(|(_, summary)| summary).collect();
    query.sort(&mut items);
    damaged.sort();
    let next = end.filter(|_| limit > 0).map(|end| Cursor::after(query.fingerprint(), &end));
    Ok(Page::new(items).with_next(next).with_total(total).with_damaged(damaged))
}

/// Returns a page of the sessions of the tenant that run, or are due by a minute.
async fn work(slots: &Slots, query: &SessionQuery, until: Minute) -> Result<Page<SessionSummary>> {
    let mut pass = Pass {
        slots,
        query,
        folders: vec![slots.keys.all_work()],
        start: None,
        found: Found::default(),
        read: HashMap::new(),
        superseded: Vec::new(),
    };
    loop {
        let (mut new, mut requests) = (Vec::new(), 0);
        // What is due at once or runs is in a folder of the tenant, all other work with that of other tenants.
        let own = slots.keys.work(Minute::AT_ONCE);
        for (folder, after) in [(own, None), (slots.keys.all_work(), Some(slots.keys.work_after_at_once()))] {
            if until == Minute::AT_ONCE && after.is_some() {
                continue;
            }
            let mut source = Source::new(folder, after);
            'keys: loop {
                requests += source.fill(slots).await?;
                while let Some(key) = source.keys.pop() {
                    if slots.keys.is_later_work(&key, until) {
                        break 'keys;
                    }
                    if slots.keys.is_work(&key) {
                        new.push(key);
                    }
                }
                if source.is_done {
                    break;
                }
            }
        }
        let before = pass.read.len();
        pass.resolve(&new).await?;
        // A session may have moved from a list to another while they were read.
        if requests == 1 || pass.read.len() == before {
            break;
        }
    }
    slots.delete_later(pass.superseded.into_iter().take(DELETED_MAX));
    pass.found.all(query)
}
