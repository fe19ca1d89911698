//! Objects that are replaced and that lists show: each has a key in the index for each list that shows it.
//!
//! A key is an empty object, `idx/<folder>/<name of the object>.<writes>`. Its name ends with the number of the write
//! that brings it into force. It is put before that write, and the header of each write names the key in force, which
//! may be one of a former write. So a key in force always exists. Another one may be deleted by a writer that has read the
//! object when it was written as often.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use agent_core::Result;
use agent_core::store::{Damaged, Page};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};

use crate::error::is_damage;
use crate::layout::keys::{Keys, last};
use crate::medium::background::Background;
use crate::medium::index_pages::{self, Listable, Now, Request};
use crate::medium::object::{AT_ONCE, Bucket, Condition, ORPHAN_MICROS};
use crate::places::replaced::{Content, Decision, Loaded};

/// Contents of an object that lists show.
pub(crate) trait Indexed: Content + Clone + fmt::Debug + Send + Sync {
    /// Folder of all keys of these objects, below that of the index.
    const LIST: &'static str;
    /// Contents of an object that was never created: it takes the number of an attempt that was cut off.
    const NEVER: Self;

    /// Returns the name under which damage to an object is reported.
    fn describe(name: &str) -> String;

    /// Returns whether an object, or a key, can have this name. Others were put there by another program.
    fn is_name(name: &str) -> bool;
}

/// Objects of one kind, and their keys in the index.
#[derive(Debug)]
pub(crate) struct Objects<C> {
    bucket: Arc<Bucket>,
    background: Arc<Background>,
    /// Folder of the objects; ends with a slash.
    folder: String,
    /// Folder of the index; ends with a slash.
    index: String,
    content: PhantomData<fn() -> C>,
}

/// Key of the index, as it was listed.
#[derive(Clone, Debug)]
struct ListedKey {
    key: String,
    /// Name of the object, and the number of the write.
    name: String,
    writes: u64,
    /// True if it is older than a creation takes.
    is_old: bool,
}

/// All objects, compared with their keys.
#[derive(Debug)]
struct Compared {
    /// Keys that are not in force, by the names of their objects.
    others: BTreeMap<String, Vec<ListedKey>>,
    /// Names of objects, and their keys in force that do not exist.
    missing: Vec<(String, String)>,
    /// Objects that cannot be read.
    damaged: Vec<Damaged>,
}

impl<C: Indexed> Objects<C> {
    pub(crate) fn new(bucket: Arc<Bucket>, keys: &Keys, folder: String, background: Arc<Background>) -> Self {
        Self { bucket, background, folder, index: keys.families(), content: PhantomData }
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.folder)
    }

    /// Returns the object's contents, if it exists.
    pub(crate) async fn load(&self, name: &str) -> Result<Option<C>> {
        self.bucket.load(&self.key(name), self.bucket.deadline()).await
    }

    /// Changes an object, and its key with it.
    pub(crate) async fn change<T>(
        &self,
        name: &str,
        decide: impl FnMut(Option<&C>) -> Result<Decision<C, T>>,
    ) -> Result<T> {
        let until = self.bucket.deadline();
        let done = self.bucket.replace_indexed(&self.key(name), until, decide, &self.index).await?;
        self.background.delete(done.superseded);
        Ok(done.answer)
    }

    /// Removes an object that was just created, and its key, in a generation that is not current any more.
    pub(crate) async fn remove(&self, name: &str) -> Result<()> {
        let (key, until) = (self.key(name), self.bucket.deadline());
        let now = self.bucket.load_counted::<C>(&key, until).await?;
        self.bucket.delete(&key, until).await?;
        for index in now.iter().flat_map(|now| self.in_force(name, now)) {
            self.bucket.delete(&index, until).await?;
        }
        Ok(())
    }

    /// Returns the names of the keys in force of an object.
    fn in_force(&self, name: &str, now: &Loaded<C>) -> Vec<String> {
        now.places.iter().map(|place| place.name(&self.index, name)).collect()
    }

    fn parse(key: &str) -> Option<(&str, u64)> {
        let (name, writes) = last(key).split_once('.')?;
        let writes = writes.parse().ok().filter(|_| C::is_name(name))?;
        Some((name, writes))
    }

    /// Returns the names of the objects that have keys in a folder of the index.
    pub(crate) async fn names(&self, folder: &str) -> Result<Vec<String>> {
        let mut names: Vec<_> = self.listed_keys(folder).await?.into_iter().map(|key| key.name).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn listed_keys(&self, folder: &str) -> Result<Vec<ListedKey>> {
        let found = self.bucket.list_all(folder, false, self.bucket.deadline()).await?;
        let parsed = found.keys.into_iter().zip(found.ages).filter_map(|(key, age)| {
            let (name, writes) = Self::parse(&key)?;
            Some(ListedKey { name: name.to_owned(), writes, is_old: age.is_over(ORPHAN_MICROS), key })
        });
        Ok(parsed.collect())
    }

    /// Returns those of an object's keys that are not in force, and never will be.
    fn superseded(&self, keys: &[ListedKey], now: &Loaded<C>) -> Vec<String> {
        let over =
            |key: &&ListedKey| key.writes <= now.writes && !self.in_force(&key.name, now).contains(&key.key);
        keys.iter().filter(over).map(|key| key.key.clone()).collect()
    }

    /// Returns a page of the items that `item` makes of the objects, in the order of their keys in a folder of the
    /// index, or in that of `sort` within the page.
    pub(crate) async fn page<I: fmt::Debug + Send>(
        &self,
        request: Request,
        item: impl Fn(C) -> Option<I> + Send + Sync,
        sort: impl Fn(&mut [I]) + Send + Sync,
    ) -> Result<Page<I>> {
        index_pages::page(&List { objects: self, item, sort }, request).await
    }

    /// Returns the folder of all keys; ends with a slash.
    pub(crate) fn all(&self) -> String {
        self.list(C::LIST)
    }

    /// Returns the folder of a list of the index; ends with a slash.
    pub(crate) fn list(&self, list: &str) -> String {
        format!("{}{list}/", self.index)
    }

    /// Returns the objects whose keys are missing, and those that cannot be read and have no key by which a list would
    /// say so.
    pub(crate) async fn check(&self) -> Result<Vec<Damaged>> {
        let Compared { others, missing, damaged } = self.compare().await?;
        let fault = |(name, key): &(String, String)| {
            let what = format!("its key {key} is missing, so that lists do not show it; run `rebuild`");
            Damaged::new(C::describe(name), what)
        };
        let listed: HashSet<_> = others.keys().map(|name| C::describe(name)).collect();
        let unlisted = damaged.into_iter().filter(|damaged| !listed.contains(&damaged.object));
        Ok(missing.iter().map(fault).chain(unlisted).collect())
    }

    /// Puts the keys that are missing, and removes those that are not in force. Returns the objects that cannot be
    /// read. Holds the names of all keys in memory.
    pub(crate) async fn rebuild(&self) -> Result<Vec<Damaged>> {
        let Compared { others, missing, damaged } = self.compare().await?;
        for (_, key) in &missing {
            self.bucket.put(key, &Bytes::new(), &Condition::Any, self.bucket.deadline()).await?;
        }
        let tidy = |(name, keys): (String, Vec<ListedKey>)| async move {
            match self.tidy(&name, &keys).await {
                // It is among the damaged ones.
                Err(error) if is_damage(&error) => Ok(()),
                done => done,
            }
        };
        let all = futures::stream::iter(others).map(tidy).buffer_unordered(AT_ONCE);
        all.try_collect::<()>().await?;
        Ok(damaged)
    }

    /// Deletes those of an object's keys that are not in force, and never will be.
    async fn tidy(&self, name: &str, keys: &[ListedKey]) -> Result<()> {
        let key = self.key(name);
        let mut now = self.bucket.load_counted::<C>(&key, self.bucket.deadline()).await?;
        let next = now.as_ref().map_or(0, |now| now.writes) + 1;
        // An attempt that was cut off: once the object is written, it cannot come any more. How long ago it was is a
        // courtesy.
        if keys.iter().any(|key| key.writes == next && key.is_old) {
            let decide = |stored: Option<&C>| Ok(Decision::Write(stored.cloned().unwrap_or(C::NEVER), ()));
            self.change(name, decide).await?;
            now = self.bucket.load_counted(&key, self.bucket.deadline()).await?;
        }
        if let Some(now) = now {
            self.background.delete(self.superseded(keys, &now));
        }
        Ok(())
    }

    /// Compares all objects with their keys.
    async fn compare(&self) -> Result<Compared> {
        let mut keys: BTreeMap<String, Vec<ListedKey>> = BTreeMap::new();
        for key in self.listed_keys(&self.all()).await? {
            keys.entry(key.name.clone()).or_default().push(key);
        }
        let mut all = self.bucket.list_all(&self.folder, false, self.bucket.deadline()).await?.keys;
        all.retain(|key| key.strip_prefix(&self.folder).is_some_and(C::is_name));
        let mut expected = Vec::new();
        let pick = |key: &str, loaded: Loaded<C>| {
            let name = last(key).to_owned();
            expected.extend(self.in_force(&name, &loaded).into_iter().map(|key| (name.clone(), key)));
            None::<()>
        };
        let (_, damaged) = self.bucket.load_each(all, pick, |key| C::describe(last(key))).await?;
        let mut missing = Vec::new();
        for (name, key) in expected {
            let others = keys.entry(name.clone()).or_default();
            let before = others.len();
            others.retain(|other| other.key != key);
            // It may have been put since the keys were listed, or may not be in force any more.
            if others.len() == before && self.is_missing(&name, &key).await? {
                missing.push((name, key));
            }
        }
        missing.sort();
        keys.retain(|_, others| !others.is_empty());
        Ok(Compared { others: keys, missing, damaged })
    }

    /// Returns whether a key in force that was not listed does not exist.
    async fn is_missing(&self, name: &str, key: &str) -> Result<bool> {
        let until = self.bucket.deadline();
        if self.bucket.get(key, until).await?.is_some() {
            return Ok(false);
        }
        let now = self.bucket.load_counted::<C>(&self.key(name), until).await?;
        Ok(now.is_some_and(|now| self.in_force(name, &now).iter().any(|in_force| in_force == key)))
    }
}

/// List of objects, each shown as an item.
struct List<'a, C, F, S> {
    objects: &'a Objects<C>,
    item: F,
    sort: S,
}

impl<C: Indexed, I, F, S> Listable for List<'_, C, F, S>
where
    I: fmt::Debug + Send,
    F: Fn(C) -> Option<I> + Send + Sync,
    S: Fn(&mut [I]) + Send + Sync,
{
    type Id = String;
    type Item = I;

    fn bucket(&self) -> &Bucket {
        &self.objects.bucket
    }

    fn parse(&self, key: &str) -> Option<(String, u64)> {
        Objects::<C>::parse(key).map(|(name, writes)| (name.to_owned(), writes))
    }

    async fn read(&self, name: String) -> Result<Option<Now<I>>> {
        let Objects { bucket, .. } = self.objects;
        let now = bucket.load_counted::<C>(&self.objects.key(&name), bucket.deadline()).await?;
        Ok(now.map(|now| Now {
            number: now.writes,
            keys: Some(self.objects.in_force(&name, &now)),
            item: (self.item)(now.content),
            // Its writer deletes its keys, and these are rarely searched for.
            is_settled: false,
        }))
    }

    fn describe(&self, name: &String) -> String {
        C::describe(name)
    }

    fn sort(&self, items: &mut [I]) {
        (self.sort)(items);
    }

    fn delete_later(&self, keys: Vec<String>) {
        self.objects.background.delete(keys);
    }

    fn delete_now(&self, keys: Vec<String>) {
        self.objects.background.delete_now(keys);
    }
}
