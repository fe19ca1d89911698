//! List pages from the index: keys give the candidates, each object confirms.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::hash::Hash;

use agent_core::Result;
use agent_core::store::{Cursor, Damaged, PAGE_MAX, Page};
use futures::StreamExt;

use crate::error::is_damage;
use crate::layout::keys::{Keys, Minute};
use crate::medium::object::{Age, Bucket, KEYS, ORPHAN_MICROS, PAGE_AT_ONCE};

/// Limit on the superseded keys that one list deletes.
const DELETED_MAX: usize = 100;

/// Object as it is now.
#[derive(Debug)]
pub(crate) struct Now<I> {
    /// Number of its newest slot, or of its writes. Keys with greater numbers may still come into force.
    pub(crate) number: u64,
    /// Names of the keys in force; `None` if the object does not say, so that no key is known to be superseded.
    pub(crate) keys: Option<Vec<String>>,
    /// Item of the list; `None` if no list shows it.
    pub(crate) item: Option<I>,
    /// True if it is known to be as it is for so long that no list which began before is still read: keys that are not in
    /// force may be deleted at once.
    pub(crate) is_settled: bool,
}

/// Objects of one kind that a list shows.
pub(crate) trait Listable: Sync {
    type Id: Clone + Ord + Hash + fmt::Debug + Send + Sync;
    type Item: fmt::Debug + Send;

    fn bucket(&self) -> &Bucket;

    /// Returns the id of the object that a key belongs to, and the number in the key.
    fn parse(&self, key: &str) -> Option<(Self::Id, u64)>;

    /// Returns the object as it is now, if it exists.
    fn read(&self, id: Self::Id) -> impl Future<Output = Result<Option<Now<Self::Item>>>> + Send;

    /// Returns the name under which damage to an object is reported.
    fn describe(&self, id: &Self::Id) -> String;

    /// Returns whether the list shows an item.
    fn matches(&self, _: &Self::Item) -> bool {
        true
    }

    /// Sorts the items of a page.
    fn sort(&self, _: &mut [Self::Item]) {}

    /// Returns whether a list gives up an object that does not exist, if its key with this number is old.
    fn gives_up(&self, _: u64) -> bool {
        false
    }

    /// Takes care that an object cannot be created any more. Returns `false` if it was created meanwhile.
    fn give_up(&self, _: Self::Id) -> impl Future<Output = Result<bool>> + Send {
        async { Ok(false) }
    }

    /// Deletes keys later that are not in force any more.
    fn delete_later(&self, keys: Vec<String>);

    /// Deletes keys in the background that have not been in force for long.
    fn delete_now(&self, keys: Vec<String>);
}

/// Folder of keys that are listed, or the end of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    /// Name; ends with a slash.
    name: String,
    /// Place after which the keys start.
    start: Option<String>,
}

impl Folder {
    pub(crate) fn whole(name: String) -> Self {
        Self { name, start: None }
    }

    /// Returns the keys of the minute and of earlier ones, which are listed after those of later ones.
    pub(crate) fn until(name: String, minute: Minute) -> Self {
        Self { name, start: Some(minute.inverted()) }
    }
}

/// Page that is asked for.
#[derive(Debug)]
pub(crate) struct Request {
    /// Folders of the keys, which are read like one. The place of an object is that of its key in the first one that has
    /// it.
    folders: Vec<Folder>,
    fingerprint: u64,
    /// Place after which the page starts.
    start: Option<String>,
    limit: usize,
    with_total: bool,
}

impl Request {
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub(crate) fn new(
        folders: Vec<Folder>,
        fingerprint: u64,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Self> {
        let start = cursor.map(|cursor| cursor.key(fingerprint)).transpose()?;
        Ok(Self { folders, fingerprint, start, limit: limit.min(PAGE_MAX), with_total: false })
    }

    pub(crate) fn with_total(self, with_total: bool) -> Self {
        Self { with_total, ..self }
    }
}

/// Items that were found, by their places in the list.
#[derive(Debug)]
pub(crate) struct Found<L: Listable> {
    shown: BTreeMap<(String, L::Id), L::Item>,
    /// Limit on the items that are kept, the first ones after a place. The others are only counted.
    most: usize,
    start: Option<String>,
    count: u64,
    pub(crate) damaged: Vec<Damaged>,
}

impl<L: Listable> Found<L> {
    fn new(start: Option<String>, most: usize) -> Self {
        Self { shown: BTreeMap::new(), most, start, count: 0, damaged: Vec::new() }
    }

    fn add(&mut self, place: String, id: L::Id, item: L::Item) {
        self.count += 1;
        if self.start.as_ref().is_none_or(|start| place > *start) {
            self.shown.insert((place, id), item);
            if self.shown.len() > self.most {
                self.shown.pop_last();
            }
        }
    }

    /// Returns the number of items up to a place in the list.
    fn count_to(&self, end: Option<&str>) -> usize {
        self.shown.keys().take_while(|(place, _)| end.is_some_and(|end| place.as_str() <= end)).count()
    }

    pub(crate) fn into_items(self) -> impl Iterator<Item = L::Item> {
        self.shown.into_values()
    }
}

/// Key, as it was listed.
#[derive(Clone, Debug)]
struct Key {
    name: String,
    /// True if it is older than a creation takes.
    is_old: bool,
}

/// Reader of the keys of one list, or of a part of one.
#[derive(Debug)]
pub(crate) struct Source {
    /// Folder of the keys; ends with a slash.
    folder: String,
    /// Key after which the first request starts, and that after which the next one starts.
    from: Option<String>,
    after: Option<String>,
    /// Owner of the keys of work that are read, and the minute up to which they are.
    work: Option<(Keys, Minute)>,
    /// Keys that were listed and not taken yet, in reverse order.
    keys: Vec<Key>,
    is_done: bool,
    /// First key of the last request.
    last_first: Option<String>,
    requests: usize,
}

impl Source {
    pub(crate) fn new(folder: String, from: Option<String>) -> Self {
        let after = from.clone();
        Self {
            folder,
            from,
            after,
            work: None,
            keys: Vec::new(),
            is_done: false,
            last_first: None,
            requests: 0,
        }
    }

    pub(crate) fn of_work(folder: String, from: Option<String>, keys: Keys, until: Minute) -> Self {
        Self { work: Some((keys, until)), ..Self::new(folder, from) }
    }

    /// Returns a reader of the same keys, from the first one on.
    fn again(&self) -> Self {
        Self { work: self.work.clone(), ..Self::new(self.folder.clone(), self.from.clone()) }
    }

    /// Lists the next keys, if none are left.
    async fn fill(&mut self, bucket: &Bucket) -> Result<usize> {
        let mut requests = 0;
        while self.keys.is_empty() && !self.is_done {
            let until = bucket.deadline();
            let page = bucket.list(&self.folder, self.after.as_deref(), None, KEYS, false, until).await?;
            (requests, self.requests) = (requests + 1, self.requests + 1);
            self.is_done = page.next.is_none();
            self.last_first = page.keys.first().cloned();
            self.after = page.keys.last().cloned().or(self.after.take());
            let key = |(name, age): (String, Age)| Key { name, is_old: age.is_over(ORPHAN_MICROS) };
            self.keys = page.keys.into_iter().zip(page.ages).map(key).collect();
            if let Some((own, until)) = &self.work {
                self.is_done |= self.keys.iter().any(|key| own.is_work_after(&key.name, *until));
                // Those of other tenants are between them.
                self.keys.retain(|key| own.is_own_work(&key.name) && !own.is_work_after(&key.name, *until));
            }
            self.keys.reverse();
        }
        Ok(requests)
    }

    /// Returns the place of the next key in the list.
    fn next(&self) -> Option<&str> {
        self.keys.last().map(|key| self.place(&key.name))
    }

    fn place<'a>(&self, key: &'a str) -> &'a str {
        key.strip_prefix(&self.folder).unwrap_or_default()
    }
}

/// Object, as it was read.
#[derive(Debug)]
struct Read<I> {
    number: u64,
    keys: Option<Vec<String>>,
    /// True if there is no object.
    is_absent: bool,
    is_settled: bool,
    /// Item, until it is shown.
    item: Option<Box<I>>,
}

/// One pass over lists.
struct Pass<'a, L: Listable> {
    listed: &'a L,
    folders: Vec<String>,
    /// Place after which items are looked for.
    start: Option<String>,
    found: Found<L>,
    /// Objects that were read. Each is read once.
    read: HashMap<L::Id, Read<L::Item>>,
    /// True if what was read of an object is forgotten with the keys it was read for, since there are many.
    forgets: bool,
    /// Keys that may be deleted, and those of creations that were begun long ago and never made.
    superseded: Vec<String>,
    /// Those that may be deleted at once.
    settled: Vec<String>,
    orphans: Vec<(L::Id, String)>,
}

impl<'a, L: Listable> Pass<'a, L> {
    fn new(listed: &'a L, folders: Vec<String>, start: Option<String>, found: Found<L>) -> Self {
        let (superseded, settled, orphans) = (Vec::new(), Vec::new(), Vec::new());
        let read = HashMap::new();
        Self { listed, folders, start, found, read, forgets: false, superseded, settled, orphans }
    }

    /// Returns the place in these lists of a key, if it is in one of them.
    fn place(&self, name: &str) -> Option<String> {
        let folder = self.folders.iter().find(|folder| name.starts_with(folder.as_str()))?;
        Some(name[folder.len()..].to_owned())
    }

    /// Reads the objects of some keys, some at a time, and decides what is shown.
    async fn resolve(&mut self, keys: &[Key]) -> Result<()> {
        let mut new = BTreeSet::new();
        for key in keys {
            if let Some((id, _)) = self.listed.parse(&key.name)
                && !self.read.contains_key(&id)
            {
                new.insert(id);
            }
        }
        let listed = self.listed;
        let read = move |id: L::Id| async move { (listed.read(id.clone()).await, id) };
        let ids: Vec<_> = new.iter().cloned().collect();
        let mut resolved = Box::pin(futures::stream::iter(ids).map(read).buffer_unordered(PAGE_AT_ONCE));
        while let Some((now, id)) = resolved.next().await {
            self.note(id, now)?;
        }
        for key in keys {
            if let Some((id, number)) = self.listed.parse(&key.name) {
                self.decide(key, id, number);
            }
        }
        if self.forgets {
            for id in new {
                if let Some(read) = self.read.get_mut(&id) {
                    (read.keys, read.item) = (None, None);
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, id: L::Id, now: Result<Option<Now<L::Item>>>) -> Result<()> {
        let mut read = Read { number: 0, keys: None, is_absent: false, is_settled: false, item: None };
        match now {
            Ok(Some(now)) => {
                (read.number, read.keys, read.item) = (now.number, now.keys, now.item.map(Box::new));
                read.is_settled = now.is_settled;
            }
            Ok(None) => read.is_absent = true,
            Err(error) if is_damage(&error) => {
                self.found.damaged.push(Damaged::of(self.listed.describe(&id), &error));
            }
            Err(error) => return Err(error),
        }
        self.read.insert(id, read);
        Ok(())
    }

    /// Decides what a key means, by its object.
    fn decide(&mut self, key: &Key, id: L::Id, number: u64) {
        let Some(read) = self.read.get(&id) else { return };
        if read.is_absent && key.is_old && self.listed.gives_up(number) && self.orphans.len() < DELETED_MAX {
            self.orphans.push((id, key.name.clone()));
            return;
        }
        let Some(keys) = &read.keys else { return };
        let is_over = number <= read.number && !keys.contains(&key.name);
        if is_over {
            let keys = if read.is_settled { &mut self.settled } else { &mut self.superseded };
            if keys.len() < DELETED_MAX {
                keys.push(key.name.clone());
            }
        }
        let in_folder = |folder: &String| keys.iter().find_map(|name| name.strip_prefix(folder.as_str()));
        let place = self.folders.iter().find_map(in_folder).map(str::to_owned);
        // The key may be another one than that in force: of a write before or after that one. The object is shown where
        // it is now, unless that is on another page.
        let is_here = |place: &String| self.start.as_ref().is_none_or(|start| place > start);
        let Some(place) = place.filter(is_here) else { return };
        let item = self.read.get_mut(&id).and_then(|read| read.item.take());
        if let Some(item) = item.filter(|item| self.listed.matches(item)) {
            self.found.add(place, id, *item);
        }
    }

    /// Deletes the keys that are not in force any more, and those of creations that were never made.
    async fn clean(&mut self) -> Result<()> {
        let mut keys = std::mem::take(&mut self.settled);
        for (id, key) in std::mem::take(&mut self.orphans) {
            // If the creation comes after this, it fails. If it came before, its keys are in force.
            if self.listed.give_up(id).await? {
                keys.push(key);
            }
        }
        keys.truncate(DELETED_MAX);
        self.listed.delete_now(keys);
        self.listed.delete_later(std::mem::take(&mut self.superseded));
        Ok(())
    }

    /// Lists again what lies before the last request, until nothing new is there: an object may have moved there while
    /// the other requests were made.
    async fn last_check(&mut self, sources: &[Source], last: usize, end: Option<&str>) -> Result<()> {
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
                // The last request listed all of it.
                if n == last && source.requests == 1 {
                    continue;
                }
                let to = to.map(|(key, too)| (source.place(key), too));
                let mut again = source.again();
                'keys: loop {
                    again.fill(self.listed.bucket()).await?;
                    while let Some(key) = again.keys.pop() {
                        let place = source.place(&key.name);
                        let is_behind = end.is_some_and(|end| place > end);
                        if is_behind || to.is_some_and(|(to, too)| place > to || (place == to && !too)) {
                            break 'keys;
                        }
                        let id = self.listed.parse(&key.name).map(|(id, _)| id);
                        if id.is_some_and(|id| !self.read.contains_key(&id)) {
                            new.push(key);
                        }
                    }
                    if again.is_done {
                        break;
                    }
                }
            }
            if new.is_empty() {
                return Ok(());
            }
            self.resolve(&new).await?;
        }
    }
}

/// Returns a page of a list.
pub(crate) async fn page<L: Listable>(listed: &L, request: Request) -> Result<Page<L::Item>> {
    let Request { folders, fingerprint, start, limit, with_total } = request;
    if limit == 0 && !with_total {
        return Ok(Page::default());
    }
    // A total counts all, from the first on, and keeps no more than the page.
    let (from, most, kept) =
        if with_total { (None, usize::MAX, limit + 1) } else { (start.clone(), limit, usize::MAX) };
    let source = |folder: &Folder| {
        let start = folder.start.as_ref().max(from.as_ref());
        Source::new(folder.name.clone(), start.map(|start| format!("{}{start}", folder.name)))
    };
    let mut sources: Vec<_> = folders.iter().map(source).collect();
    let folders = folders.into_iter().map(|folder| folder.name).collect();
    let mut pass = Pass::new(listed, folders, from.clone(), Found::new(start.clone(), kept));
    pass.forgets = with_total;
    let (mut sent, mut end) = (Sent::default(), None::<String>);
    let is_more = loop {
        // As many keys as may be shown.
        let wanted = most.saturating_sub(pass.found.count_to(end.as_deref())).min(KEYS);
        let batch = next_keys(listed.bucket(), &mut sources, wanted, &mut sent).await?;
        let is_over = batch.len() < wanted;
        if let Some(last) = batch.last() {
            end = pass.place(&last.name);
        }
        pass.resolve(&batch).await?;
        if is_over || pass.found.count_to(end.as_deref()) >= most {
            let rest = sources.iter().any(|source| !source.keys.is_empty() || !source.is_done);
            break !is_over && rest;
        }
    };
    let end = end.filter(|_| is_more);
    if sent.requests > 1 {
        pass.last_check(&sources, sent.last, end.as_deref()).await?;
    }
    pass.clean().await?;
    let Found { shown, count, mut damaged, .. } = pass.found;
    let mut rest: Vec<_> = shown.into_iter().map(|((place, _), item)| (place, item)).collect();
    rest.retain(|(place, _)| end.as_ref().is_none_or(|end| place <= end));
    let end = if rest.len() > limit {
        rest.truncate(limit);
        rest.last().map(|(place, _)| place.clone())
    } else {
        end
    };
    let mut items: Vec<_> = rest.into_iter().map(|(_, item)| item).collect();
    listed.sort(&mut items);
    damaged.sort();
    let next = end.filter(|_| limit > 0).map(|end| Cursor::after(fingerprint, &end));
    Ok(Page::new(items).with_next(next).with_total(with_total.then_some(count)).with_damaged(damaged))
}

/// Requests for keys that were sent.
#[derive(Default)]
struct Sent {
    requests: usize,
    /// Source for which the last one was sent.
    last: usize,
}

/// Returns the next keys in the order of all sources: as many as are wanted, or fewer at the end.
async fn next_keys(
    bucket: &Bucket,
    sources: &mut [Source],
    wanted: usize,
    sent: &mut Sent,
) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    while keys.len() < wanted {
        for (n, source) in sources.iter_mut().enumerate() {
            let requests = source.fill(bucket).await?;
            sent.requests += requests;
            sent.last = if requests > 0 { n } else { sent.last };
        }
        let next = sources.iter().enumerate().filter_map(|(n, source)| Some((source.next()?, n))).min();
        let Some((_, n)) = next else { break };
        keys.extend(sources[n].keys.pop());
    }
    Ok(keys)
}

/// Returns all items of a list that is read as a whole.
pub(crate) async fn all<L: Listable>(
    listed: &L,
    folders: Vec<String>,
    mut sources: Vec<Source>,
) -> Result<Found<L>> {
    let mut pass = Pass::new(listed, folders, None, Found::new(None, usize::MAX));
    let (mut requests, mut last) = (0, 0);
    for (n, source) in sources.iter_mut().enumerate() {
        loop {
            let sent = source.fill(listed.bucket()).await?;
            (requests, last) = (requests + sent, if sent > 0 { n } else { last });
            if source.keys.is_empty() {
                break;
            }
            let keys = std::mem::take(&mut source.keys);
            pass.resolve(&keys).await?;
        }
    }
    if requests > 1 {
        pass.last_check(&sources, last, None).await?;
    }
    pass.clean().await?;
    Ok(pass.found)
}
