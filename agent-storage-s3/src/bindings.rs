//! Device bindings: one object for each device that was ever bound, named by the hash of its id, and an index of the
//! devices of each workspace.
//!
//! The name of a key of the index ends with the number of the write of the object that brings it into force. It is put
//! before that write. So a key in force always exists, and one may be deleted once the object was written as often, and
//! is not bound by it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::store::{Binding, BindingQuery, Damaged, Page, decide_bind};
use agent_core::{DeviceId, Result, Timestamp, WorkspaceId, WriteOutcome};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use crate::background::Background;
use crate::error::is_damage;
use crate::keys::{Keys, last};
use crate::line::Line;
use crate::lister::{DELETED_MAX, ORPHAN_MICROS};
use crate::object::{AT_ONCE, Bucket, Condition};
use crate::replaced::{self, Content, Decision, Loaded};

/// Device as it is stored. The object stays when the device is unbound, so that no late write binds it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredBinding {
    /// Device; `None` if it was never bound, and only the key of an attempt was found.
    pub(crate) device: Option<DeviceId>,
    pub(crate) workspace: Option<WorkspaceId>,
}

/// Key of the index of the devices of a workspace: its last part is `<hash of the device>.<writes>`.
#[derive(Clone, Debug)]
struct BoundKey {
    name: String,
    hash: String,
    writes: u64,
    /// Time at which it was put, by the server's clock.
    at: Timestamp,
}

impl BoundKey {
    fn parse(name: String, at: Timestamp) -> Option<Self> {
        let (hash, writes) = last(&name).split_once('.')?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let writes = writes.parse().ok().filter(|_| is_hash)?;
        Some(Self { hash: hash.to_owned(), writes, at, name })
    }
}

impl Content for StoredBinding {
    const KIND: &'static str = "binding";

    fn write(&self, out: &mut Vec<u8>) {
        replaced::write_record(self, out);
    }

    fn read(lines: &[Line]) -> Result<Self, &'static str> {
        replaced::read_record(lines)
    }
}

/// Bindings of one tenant.
#[derive(Debug)]
pub(crate) struct Bindings {
    bucket: Arc<Bucket>,
    keys: Keys,
    background: Arc<Background>,
}

impl Bindings {
    pub(crate) fn new(bucket: Arc<Bucket>, keys: Keys, background: Arc<Background>) -> Self {
        Self { bucket, keys, background }
    }

    /// Returns the key of the index of a binding that was written for the given time.
    fn in_force(&self, hash: &str, stored: &StoredBinding, writes: u64) -> Option<String> {
        stored.workspace.map(|to| format!("{}{hash}.{writes}", self.keys.bound(to)))
    }

    /// Changes the binding with this key, and its key of the index with it.
    async fn change<T>(
        &self,
        key: &str,
        decide: impl FnMut(Option<&StoredBinding>) -> Result<Decision<StoredBinding, T>>,
    ) -> Result<T> {
        let index = |stored: &StoredBinding, writes| self.in_force(last(key), stored, writes);
        let done = self.bucket.replace_indexed(key, self.bucket.deadline(), decide, index).await?;
        self.background.delete(done.superseded);
        Ok(done.answer)
    }

    pub(crate) async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let key = self.keys.binding(device);
        let stored = self.bucket.load::<StoredBinding>(&key, self.bucket.deadline()).await?;
        Ok(stored.and_then(|stored| stored.workspace))
    }

    /// Binds a device. Also returns whether that created its object.
    pub(crate) async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<(WorkspaceId, bool)> {
        let decide = |stored: Option<&StoredBinding>| {
            let now = stored.and_then(|stored| stored.workspace);
            let bound = decide_bind(device, now, to, expect)?;
            if now == Some(bound) {
                return Ok(Decision::Leave((bound, false)));
            }
            let new = StoredBinding { device: Some(device.clone()), workspace: Some(bound) };
            Ok(Decision::Write(new, (bound, stored.is_none())))
        };
        self.change(&self.keys.binding(device), decide).await
    }

    /// Removes the object of a device that was just bound, in a generation that is not current any more.
    pub(crate) async fn remove(&self, device: &DeviceId, bound: WorkspaceId) -> Result<()> {
        let (key, until) = (self.keys.binding(device), self.bucket.deadline());
        self.bucket.delete(&key, until).await?;
        let index = format!("{}{}.1", self.keys.bound(bound), last(&key));
        self.bucket.delete(&index, until).await
    }

    pub(crate) async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.unbind_from(&self.keys.binding(device), None).await
    }

    /// Unbinds a device; if `from` is given, only from that workspace. Returns whether it was bound.
    async fn unbind_from(&self, key: &str, from: Option<WorkspaceId>) -> Result<bool> {
        let decide = |stored: Option<&StoredBinding>| {
            let bound =
                stored.filter(|stored| stored.workspace.is_some_and(|to| from.is_none_or(|from| from == to)));
            Ok(match bound {
                Some(stored) => Decision::Write(StoredBinding { workspace: None, ..stored.clone() }, true),
                None => Decision::Leave(false),
            })
        };
        self.change(key, decide).await
    }

    /// Unbinds the devices of a workspace one by one, and returns their number. Each is bound or unbound at every
    /// moment, and all are unbound when this returns. After a failure some may be unbound; the same call again unbinds
    /// the rest.
    pub(crate) async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let hashes: HashSet<String> = self.bound_to(id).await?.into_iter().map(|key| key.hash).collect();
        let unbind = |hash: String| async move {
            self.unbind_from(&format!("{}{hash}", self.keys.bindings()), Some(id)).await
        };
        let done = futures::stream::iter(hashes).map(unbind).buffer_unordered(AT_ONCE);
        let count = done.try_fold(0, |count, was| async move { Ok(count + u64::from(was)) }).await;
        // The outcome of the failed one says nothing about the others.
        count.map_err(|error| error.with_outcome(WriteOutcome::Unknown))
    }

    pub(crate) async fn list(&self, query: &BindingQuery) -> Result<Page<Binding>> {
        let bound = |stored: StoredBinding| Some(Binding::new(stored.device?, stored.workspace?));
        let (bindings, damaged) = match query.workspace {
            None => {
                let keys =
                    self.bucket.list_all(&self.keys.bindings(), false, self.bucket.deadline()).await?.keys;
                let pick = |_: &str, loaded: Loaded<_>| bound(loaded.content);
                self.bucket.load_each(keys, pick, str::to_owned).await?
            }
            Some(workspace) => {
                // A device that was unbound and bound again may have several keys.
                let mut keys: HashMap<String, Vec<BoundKey>> = HashMap::new();
                for key in self.bound_to(workspace).await? {
                    keys.entry(format!("{}{}", self.keys.bindings(), key.hash)).or_default().push(key);
                }
                let mut superseded = Vec::new();
                let pick = |key: &str, loaded: Loaded<StoredBinding>| {
                    let names = keys.get(key).map_or(&[][..], Vec::as_slice);
                    superseded.extend(self.superseded(names, &loaded));
                    bound(loaded.content)
                };
                let found =
                    self.bucket.load_each(keys.keys().cloned().collect(), pick, str::to_owned).await?;
                superseded.truncate(DELETED_MAX);
                self.background.delete(superseded);
                found
            }
        };
        Ok(query.page(bindings)?.with_damaged(damaged))
    }

    /// Returns the keys of the devices that may be bound to a workspace.
    async fn bound_to(&self, id: WorkspaceId) -> Result<Vec<BoundKey>> {
        self.bound_keys(&self.keys.bound(id)).await
    }

    /// Returns the keys in a folder of the index. Others were put there by another program.
    async fn bound_keys(&self, folder: &str) -> Result<Vec<BoundKey>> {
        let found = self.bucket.list_all(folder, false, self.bucket.deadline()).await?;
        let keys = found.keys.into_iter().zip(found.modified);
        Ok(keys.filter_map(|(name, at)| BoundKey::parse(name, at)).collect())
    }

    /// Returns those of a device's keys that are not in force, and never will be.
    fn superseded(&self, keys: &[BoundKey], now: &Loaded<StoredBinding>) -> Vec<String> {
        let over = |key: &&BoundKey| {
            let in_force = self.in_force(&key.hash, &now.content, now.writes);
            key.writes <= now.writes && Some(&key.name) != in_force.as_ref()
        };
        keys.iter().filter(over).map(|key| key.name.clone()).collect()
    }

    /// Returns the bindings whose keys in the index are missing.
    pub(crate) async fn check(&self) -> Result<Vec<Damaged>> {
        let missing = self.compare().await?.missing;
        let fault = |(hash, name): &(String, String)| {
            let what = format!(
                "its key {name} is missing, so that lists of its workspace do not show it; run `rebuild`"
            );
            Damaged::new(format!("the binding of the device with the hash {hash}"), what)
        };
        Ok(missing.iter().map(fault).collect())
    }

    /// Puts the keys of the index that are missing, and removes those that are not in force. Returns the bindings that
    /// cannot be read. Holds the names of all keys in memory.
    pub(crate) async fn rebuild(&self) -> Result<Vec<Damaged>> {
        let Compared { others, missing, damaged } = self.compare().await?;
        for (_, name) in &missing {
            self.bucket.put(name, &Bytes::new(), &Condition::Any, self.bucket.deadline()).await?;
        }
        let long_ago = self.bucket.effects.now().plus_micros(-ORPHAN_MICROS);
        let tidy = |(hash, keys): (String, Vec<BoundKey>)| async move {
            let key = format!("{}{hash}", self.keys.bindings());
            match self.tidy(&key, &keys, long_ago).await {
                // It is among the damaged ones.
                Err(error) if is_damage(&error) => Ok(()),
                done => done,
            }
        };
        let all = futures::stream::iter(others).map(tidy).buffer_unordered(AT_ONCE);
        all.try_collect::<()>().await?;
        Ok(damaged)
    }

    /// Deletes those of a device's keys that are not in force, and never will be.
    async fn tidy(&self, key: &str, keys: &[BoundKey], long_ago: Timestamp) -> Result<()> {
        let mut now = self.bucket.load_counted::<StoredBinding>(key, self.bucket.deadline()).await?;
        let next = now.as_ref().map_or(0, |now| now.writes) + 1;
        // An attempt that was cut off: once the object is written, it cannot come any more. How long ago it was is a
        // courtesy.
        if keys.iter().any(|key| key.writes == next && key.at < long_ago) {
            let none = StoredBinding { device: None, workspace: None };
            let decide = |stored: Option<&StoredBinding>| {
                Ok(Decision::Write(stored.cloned().unwrap_or_else(|| none.clone()), ()))
            };
            self.change(key, decide).await?;
            now = self.bucket.load_counted(key, self.bucket.deadline()).await?;
        }
        if let Some(now) = now {
            self.background.delete(self.superseded(keys, &now));
        }
        Ok(())
    }

    /// Compares all bindings with their keys.
    async fn compare(&self) -> Result<Compared> {
        let mut keys: HashMap<String, Vec<BoundKey>> = HashMap::new();
        for key in self.bound_keys(&self.keys.all_bound()).await? {
            keys.entry(key.hash.clone()).or_default().push(key);
        }
        let all = self.bucket.list_all(&self.keys.bindings(), false, self.bucket.deadline()).await?.keys;
        let mut expected = Vec::new();
        let pick = |key: &str, loaded: Loaded<StoredBinding>| {
            let hash = last(key).to_owned();
            let name = self.in_force(&hash, &loaded.content, loaded.writes)?;
            expected.push((hash, name));
            Some(())
        };
        let (_, damaged) = self.bucket.load_each(all, pick, str::to_owned).await?;
        let mut missing = Vec::new();
        for (hash, name) in expected {
            let others = keys.entry(hash.clone()).or_default();
            let before = others.len();
            others.retain(|key| key.name != name);
            // It may have been put since the keys were listed, or may not be in force any more.
            if others.len() == before && self.is_missing(&hash, &name).await? {
                missing.push((hash, name));
            }
        }
        missing.sort();
        keys.retain(|_, others| !others.is_empty());
        Ok(Compared { others: keys, missing, damaged })
    }

    /// Returns whether a key in force that was not listed does not exist.
    async fn is_missing(&self, hash: &str, name: &str) -> Result<bool> {
        let until = self.bucket.deadline();
        if self.bucket.get(name, until).await?.is_some() {
            return Ok(false);
        }
        let key = format!("{}{hash}", self.keys.bindings());
        let now = self.bucket.load_counted::<StoredBinding>(&key, until).await?;
        let in_force = now.and_then(|now| self.in_force(hash, &now.content, now.writes));
        Ok(in_force.is_some_and(|in_force| in_force == name))
    }
}

/// All bindings, compared with their keys.
#[derive(Debug)]
struct Compared {
    /// Keys that are not in force, by the hashes of their devices.
    others: HashMap<String, Vec<BoundKey>>,
    /// Hashes and names of the keys in force that do not exist.
    missing: Vec<(String, String)>,
    /// Bindings that cannot be read.
    damaged: Vec<Damaged>,
}
