//! Lists of sessions, from the index: which sessions may be in a list say its keys, and whether they are says the newest
//! commit of each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use agent_core::session::SessionSummary;
use agent_core::store::{Cursor, Damaged, PAGE_MAX, Page, SessionQuery};
use agent_core::{Result, SessionId};
use futures::StreamExt;

use crate::error::is_damage;
use crate::family::{children, void};
use crate::index::{Lists, parse_name};
use crate::keys::{Minute, Slot};
use crate::object::PAGE_AT_ONCE;
use crate::slot::{Entry, Kind, RECORD_PART};
use crate::slots::{Slots, record};
use crate::watch::Watch;

/// Number of keys of a list request.
const KEYS: usize = 1000;
/// Time after which the key of a creation without a session is an orphan. It is a courtesy: whether the session may
/// still be created is decided by its slot.
pub(crate) const ORPHAN_MICROS: i64 = 7 * 24 * 3600 * 1_000_000;
/// Limit on the superseded keys that one list deletes.
pub(crate) const DELETED_MAX: usize = 100;

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
    /// Returns the number of sessions up to a place in the list.
    fn count_to(&self, end: Option<&str>) -> usize {
        self.shown.keys().take_while(|(place, _)| end.is_some_and(|end| place.as_str() <= end)).count()
    }

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
        match newest.and_then(|newest| newest.as_deref().map_or(Ok(None), summary)) {
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

/// Returns the newest commit of a session, or the object that takes the slot so that there is none. Reads no more of an object than its
/// record, if the session is not known.
pub(crate) async fn newest(slots: &Slots, id: SessionId) -> Result<Option<Arc<Entry>>> {
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
            // Nothing is committed behind it.
            Kind::Void => return Ok(Some(entry)),
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
    /// Key after which the first request starts, and that after which the next one starts.
    from: Option<String>,
    after: Option<String>,
    /// Minute up to which keys of work are read.
    until: Option<Minute>,
    /// Keys that were listed and not taken yet, in reverse order.
    keys: Vec<String>,
    is_done: bool,
    /// First key of the last request.
    last_first: Option<String>,
    /// Keys of creations that were put long ago.
    old: HashSet<String>,
}

impl Source {
    fn new(folder: String, from: Option<String>) -> Self {
        Self {
            folder,
            after: from.clone(),
            from,
            until: None,
            keys: Vec::new(),
            is_done: false,
            last_first: None,
            old: HashSet::new(),
        }
    }

    fn of_work(folder: String, from: Option<String>, until: Minute) -> Self {
        Self { until: Some(until), ..Self::new(folder, from) }
    }

    /// Returns a reader of the same keys, from the first one on.
    fn again(&self) -> Self {
        Self { until: self.until, ..Self::new(self.folder.clone(), self.from.clone()) }
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
            self.last_first = page.keys.first().cloned();
            self.after = page.keys.last().cloned().or(self.after.take());
            let long_ago = slots.bucket.effects.now().plus_micros(-ORPHAN_MICROS);
            let all = page.keys.iter().zip(&page.modified);
            let old = all.filter(|(key, at)| is_of_creation(key) && **at < long_ago);
            self.old.extend(old.map(|(key, _)| key.clone()));
            self.keys = page.keys;
            if let Some(until) = self.until {
                self.is_done |= self.keys.iter().any(|key| slots.keys.is_work_after(key, until));
                // Those of other tenants are between them.
                self.keys.retain(|key| slots.keys.is_own_work(key) && !slots.keys.is_work_after(key, until));
            }
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
    /// True if there is no commit, nor anything else in a slot.
    is_absent: bool,
    /// Summary, until it is shown.
    summary: Option<SessionSummary>,
}

/// Returns whether a key was put for a creation.
fn is_of_creation(key: &str) -> bool {
    parse_name(key).is_some_and(|(_, slot)| slot == Slot::FIRST)
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
        let mut read = Read { slot: Slot::FIRST, names: None, is_absent: false, summary: None };
        match found.and_then(|found| found.map(|head| Ok((summary(&head)?, head))).transpose()) {
            Ok(Some((None, head))) => {
                (read.slot, read.names) = (head.head.slot, Some(Vec::new()));
            }
            Ok(Some((summary, head))) => {
                let names = head.head.keys.iter().map(|key| key.name(&self.slots.keys, id)).collect();
                let is_full = matches!(head.head.kind, Kind::Commit | Kind::Purged);
                read =
                    Read { slot: head.head.slot, names: is_full.then_some(names), is_absent: false, summary };
            }
            Ok(None) => read.is_absent = true,
            Err(error) if is_damage(&error) => {
                self.found.damaged.push(Damaged::new(format!("session {id}"), error.to_string()));
            }
            Err(error) => return Err(error),
        }
        self.read.insert(id, read);
        Ok(())
    }

    /// Deletes, later, the keys that are not in force any more, and those of creations that were never made.
    async fn clean(&mut self, old: HashSet<String>) -> Result<()> {
        let is_absent = |id: &SessionId| self.read.get(id).is_some_and(|read| read.is_absent);
        let orphans: Vec<_> = old
            .into_iter()
            .filter_map(|key| parse_name(&key).map(|(id, _)| (id, key)))
            .filter(|(id, _)| is_absent(id))
            .take(DELETED_MAX)
            .collect();
        for (id, key) in orphans {
            // If the creation comes after all, it loses the slot.
            void(self.slots, id, self.slots.bucket.deadline()).await?;
            self.superseded.push(key);
        }
        self.slots.delete_later(self.superseded.drain(..).take(DELETED_MAX));
        Ok(())
    }

    /// Decides what a key means, by the newest commit of its session.
    fn decide(&mut self, key: &str, id: SessionId, slot: Slot) {
        let Some(Read { slot: newest, names: Some(names), .. }) = self.read.get(&id) else { return };
        if slot <= *newest && !names.iter().any(|name| name == key) {
            self.superseded.push(key.to_owned());
        }
        let place = names.iter().find_map(|name| self.place(name));
        // The key may be another one than that in force: of a commit before or after that one. The session is shown where
        // it is now, unless that is on another page.
        let is_here = |place: &String| self.start.as_ref().is_none_or(|start| place > start);
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
    let mut sources: Vec<_> =
        folders.iter().map(|folder| Source::new(folder.clone(), after(folder))).collect();
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
        let wanted = most.saturating_sub(pass.found.count_to(end.as_deref())).min(KEYS);
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
        if is_over || pass.found.count_to(end.as_deref()) >= most {
            let rest = sources.iter().any(|source| !source.keys.is_empty() || !source.is_done);
            break !is_over && rest;
        }
    };
    if requests > 1 {
        last_look(&mut pass, &sources, last_listed, end.as_deref().filter(|_| is_more)).await?;
    }
    let old = sources.into_iter().flat_map(|source| source.old).collect();
    pass.clean(old).await?;
    page(query, pass.found, is_more.then_some(end).flatten(), start.as_deref(), limit)
}

/// Lists again what lies before the last request, until nothing new is there: a session may have moved there while the
/// other requests were made.
async fn last_look(pass: &mut Pass<'_>, sources: &[Source], last: usize, end: Option<&str>) -> Result<()> {
    let mut known: HashSet<String> = HashSet::new();
    loop {
        let mut new = Vec::new();
        for (n, source) in sources.iter().enumerate() {
            let is_exhausted = source.is_done && source.keys.is_empty();
            // Keys that were listed last are not listed again.
            let to = match (n == last, &source.last_first) {
                (true, Some(first)) => Some((first, false)),
                (false, _) if !is_exhausted => source.after.as_ref().map(|key| (key, true)),
                _ => None,
            };
            if n == last && source.after == source.from {
                continue;
            }
            let to = to.map(|(key, too)| (source.place(key), too));
            let mut again = source.again();
            'keys: loop {
                again.fill(pass.slots).await?;
                while let Some(key) = again.keys.pop() {
                    let place = source.place(&key);
                    let is_behind = end.is_some_and(|end| place > end);
                    if is_behind || to.is_some_and(|(to, too)| place > to || (place == to && !too)) {
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
    start: Option<&str>,
    limit: usize,
) -> Result<Page<SessionSummary>> {
    let Found { shown, mut damaged } = found;
    let total = query.with_total.then_some(shown.len() as u64);
    let mut rest: Vec<_> = shown.into_iter().map(|((place, _), summary)| (place, summary)).collect();
    let is_here = |place: &String| {
        start.is_none_or(|start| place.as_str() > start) && end.as_ref().is_none_or(|end| place <= end)
    };
    rest.retain(|(place, _)| is_here(place));
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
    let keys = &slots.keys;
    let (folders, mut sources) = if slots.bucket.watch == Watch::Off {
        // There are no keys of work, so all sessions are read.
        let folders = [keys.index("t/a"), keys.index("t/z")];
        let sources = folders.iter().map(|folder| Source::new(folder.clone(), None)).collect();
        (folders.to_vec(), sources)
    } else {
        // What is due at once or runs is in a folder of the tenant, all other work with that of other tenants.
        let mut sources = vec![Source::of_work(keys.work(Minute::AT_ONCE), None, until)];
        if until != Minute::AT_ONCE {
            sources.push(Source::of_work(keys.all_work(), Some(keys.work_after_at_once()), until));
        }
        (vec![keys.all_work()], sources)
    };
    let mut pass = Pass {
        slots,
        query,
        folders,
        start: None,
        found: Found::default(),
        read: HashMap::new(),
        superseded: Vec::new(),
    };
    let (mut requests, mut last) = (0, 0);
    for (n, source) in sources.iter_mut().enumerate() {
        loop {
            let sent = source.fill(slots).await?;
            (requests, last) = (requests + sent, if sent > 0 { n } else { last });
            if source.keys.is_empty() {
                break;
            }
            let keys = std::mem::take(&mut source.keys);
            pass.resolve(&keys).await?;
        }
    }
    if requests > 1 {
        last_look(&mut pass, &sources, last, None).await?;
    }
    let old = sources.into_iter().flat_map(|source| source.old).collect();
    pass.clean(old).await?;
    pass.found.all(query)
}
