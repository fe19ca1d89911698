//! Deletion of a tenant: begins a new generation, and removes the objects of the former ones.
//!
//! Slots of commits are emptied, and stay taken: a store that has read a session before the deletion, however long ago,
//! wins no slot behind it. All other objects are deleted.

use std::collections::BTreeSet;

use agent_core::store::DeletedTenant;
use agent_core::{Error, Result, SessionId, TenantId, WorkspaceId};
use futures::{StreamExt, TryStreamExt};

use crate::error::is_damage;
use crate::layout::keys::{self, Keys, Minute, Slot, is_hash, last};
use crate::log::slot::{Entry, Head, Kind};
use crate::log::slots::Slots;
use crate::medium::object::{AT_ONCE, Bucket, Condition, Put};
use crate::places::generations::{Generations, StoredGeneration};
use crate::places::tenant::Tenant;

/// Length of a first part of an object that always contains its header, in bytes.
const HEADER_PART: u64 = 8 << 10;

/// Begins a new generation of a tenant if the current one has objects, and removes the objects of the former ones.
pub(crate) async fn delete(
    bucket: &Bucket,
    generations: &Generations,
    tenant: &TenantId,
) -> Result<DeletedTenant> {
    let mut now = generations.read(tenant, bucket.deadline()).await?;
    if has_objects(bucket, &generations.part(tenant, now.generation)).await? {
        let from = now.generation;
        let next = |mut stored: StoredGeneration| {
            // Another deletion may have begun the generation.
            stored.generation = stored.generation.max(from + 1);
            stored
        };
        now = generations.change(tenant, bucket.deadline(), next).await?;
    }
    let mut sum = DeletedTenant::default();
    // The last removed generation is searched again: an interrupted creation may have arrived since.
    for generation in now.removed.saturating_sub(1)..now.generation {
        let part = generations.part(tenant, generation);
        let removed = remove(bucket, &part).await?;
        sum.workspaces += removed.workspaces;
        sum.sessions += removed.sessions;
        sum.bindings += removed.bindings;
    }
    if now.removed < now.generation {
        let removed = |mut stored: StoredGeneration| {
            stored.removed = stored.removed.max(now.generation);
            stored
        };
        generations.change(tenant, bucket.deadline(), removed).await?;
    }
    Ok(sum)
}

/// Returns the tenants that have data: of each that was ever deleted, the current generation has an object.
pub(crate) async fn tenants(
    bucket: &Bucket,
    prefix: &str,
    generations: &Generations,
    after: Option<&TenantId>,
) -> Result<Vec<TenantId>> {
    let parse = |key: &String| last(key).parse::<TenantId>().ok();
    let deleted = bucket.list_all(&keys::generations(prefix), false, bucket.deadline()).await?.keys;
    let deleted: BTreeSet<TenantId> = deleted.iter().filter_map(parse).collect();
    let folders = bucket.list_all(&keys::tenants(prefix), true, bucket.deadline()).await?.folders;
    let mut found: Vec<TenantId> = folders.iter().filter_map(parse).collect();
    found.retain(|tenant| after.is_none_or(|after| tenant > after));
    let held = futures::stream::iter(found)
        .map(|tenant| {
            let was_deleted = deleted.contains(&tenant);
            async move {
                if was_deleted {
                    // Users of that tenant get an error for the damage; it does not hide the others.
                    let now = match generations.read(&tenant, bucket.deadline()).await {
                        Err(error) if is_damage(&error) => return Ok(Some(tenant)),
                        now => now?,
                    };
                    let part = generations.part(&tenant, now.generation);
                    if !has_objects(bucket, &part).await? {
                        return Ok(None);
                    }
                }
                Ok::<_, Error>(Some(tenant))
            }
        })
        .buffer_unordered(AT_ONCE);
    let mut found: Vec<_> = held.try_filter_map(|tenant| async { Ok(tenant) }).try_collect().await?;
    found.sort();
    Ok(found)
}

async fn has_objects(bucket: &Bucket, tenant: &Tenant) -> Result<bool> {
    for folder in tenant.slots.keys.folders() {
        if bucket.first(&folder, None, bucket.deadline()).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the objects of a former generation.
async fn remove(bucket: &Bucket, tenant: &Tenant) -> Result<DeletedTenant> {
    let keys = &tenant.slots.keys;
    let sessions = remove_sessions(&tenant.slots).await?;
    let is_workspace = |key: &str| last(key).parse::<WorkspaceId>().is_ok();
    let workspaces = remove_objects(bucket, &keys.workspaces(), is_workspace).await?;
    let is_binding = |key: &str| is_hash(last(key));
    let bindings = remove_objects(bucket, &keys.bindings(), is_binding).await?;
    remove_objects(bucket, &keys.families(), |_| true).await?;
    remove_work(bucket, keys).await?;
    Ok(DeletedTenant::new(workspaces, sessions, bindings))
}

/// Deletes all objects under a prefix; returns the number of those that count.
async fn remove_objects(bucket: &Bucket, prefix: &str, counts: impl Fn(&str) -> bool) -> Result<u64> {
    let (mut removed, mut pages) = (0, bucket.pages(prefix, None, false, None));
    while let Some(page) = pages.try_next().await? {
        removed += page.keys.iter().filter(|key| counts(key)).count() as u64;
        delete_all(bucket, page.keys).await?;
    }
    Ok(removed)
}

/// Deletes objects, some at once.
async fn delete_all(bucket: &Bucket, keys: impl IntoIterator<Item = String>) -> Result<()> {
    let delete = |key: String| async move { bucket.delete(&key, bucket.deadline()).await };
    futures::stream::iter(keys.into_iter().map(Ok)).try_for_each_concurrent(AT_ONCE, delete).await
}

/// Deletes the keys of the generation's work, in force or not. No commit can bring one into force any more.
async fn remove_work(bucket: &Bucket, keys: &Keys) -> Result<()> {
    remove_objects(bucket, &keys.work(Minute::AT_ONCE), |_| true).await?;
    // What is due later is among that of the other tenants.
    let (all, after) = (keys.all_work(), keys.work_after_at_once());
    let mut pages = bucket.pages(&all, Some(&after), false, None);
    while let Some(page) = pages.try_next().await? {
        let own = page.keys.into_iter().filter(|key| keys.is_own_work(key));
        delete_all(bucket, own).await?;
    }
    Ok(())
}

/// Empties all sessions; returns the number of those that were not empty.
async fn remove_sessions(slots: &Slots) -> Result<u64> {
    let bucket = &*slots.bucket;
    let mut removed = 0;
    for shard in bucket.list_all(&slots.keys.sessions(), true, bucket.deadline()).await?.folders {
        let shard = format!("{shard}/");
        let mut pages = bucket.pages(&shard, None, true, None);
        while let Some(page) = pages.try_next().await? {
            let ids: Vec<SessionId> =
                page.folders.iter().filter_map(|folder| last(folder).parse().ok()).collect();
            let emptied =
                futures::stream::iter(ids).map(|id| remove_session(slots, id)).buffer_unordered(AT_ONCE);
            removed += emptied.try_fold(0, |sum, was| async move { Ok(sum + u64::from(was)) }).await?;
        }
    }
    Ok(removed)
}

/// Empties all slots of a session, takes the one behind the newest, and deletes the blobs. Returns whether there was anything to empty.
pub(crate) async fn remove_session(slots: &Slots, id: SessionId) -> Result<bool> {
    let bucket = &*slots.bucket;
    let fence = take_next(slots, id).await?;
    // No commit names them any more.
    remove_objects(bucket, &slots.keys.blobs(id), |_| true).await?;
    let Some(fence) = fence else { return Ok(false) };
    let folder = slots.keys.slots(id);
    let mut pages = bucket.pages(&folder, None, false, None);
    while let Some(page) = pages.try_next().await? {
        let mut others = page.keys;
        others.retain(|key| slots.keys.slot_of(id, key) != Some(fence));
        futures::stream::iter(others.into_iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |key| async move { empty(slots, id, &key).await })
            .await?;
    }
    // Recorded last: the next deletion finishes an interrupted one.
    let done = Head { removed: true, ..void(slots, id, fence) };
    put(slots, id, &done).await?;
    Ok(true)
}

fn void(slots: &Slots, id: SessionId, slot: Slot) -> Head {
    Head::bare(Kind::Void, id, slot, slots.bucket.effects.new_commit_id())
}

/// Overwrites a slot, without a condition: no other writer changes a taken slot of a former generation.
async fn put(slots: &Slots, id: SessionId, head: &Head) -> Result<()> {
    let (key, body) = (slots.keys.slot(id, head.slot), Entry::encode_bare(head, None));
    slots.bucket.put(&key, &body, &Condition::Any, slots.bucket.deadline()).await.map(drop)
}

async fn empty(slots: &Slots, id: SessionId, key: &str) -> Result<()> {
    match slots.keys.slot_of(id, key) {
        Some(slot) => {
            let stub = Head::bare(Kind::Stub, id, slot, slots.bucket.effects.new_commit_id());
            put(slots, id, &stub).await
        }
        // An object that is no slot was put there by another program.
        None => slots.bucket.delete(key, slots.bucket.deadline()).await,
    }
}

/// Takes the slot behind the newest, so that nothing is committed any more. Returns it; `None` if the session was
/// emptied before, or has no slot.
async fn take_next(slots: &Slots, id: SessionId) -> Result<Option<Slot>> {
    let bucket = &*slots.bucket;
    loop {
        let until = bucket.deadline();
        let Some(newest) = slots.newest_slot(id, until).await? else { return Ok(None) };
        let key = slots.keys.slot(id, newest);
        let Some(part) = bucket.get_range(&key, 0..HEADER_PART, until).await? else { continue };
        let next = match Entry::parse_head(&part.bytes, id, newest) {
            Ok(head) if head.kind == Kind::Void => return Ok((!head.removed).then_some(newest)),
            Ok(head) => Slot(head.last.next().get()),
            // The next slot cannot be determined, so no commit can be planned on this one.
            Err(error) if is_damage(&error) => {
                put(slots, id, &void(slots, id, newest)).await?;
                return Ok(Some(newest));
            }
            Err(error) => return Err(error),
        };
        let body = Entry::encode_bare(&void(slots, id, next), None);
        if let Put::Stored(_) =
            bucket.put(&slots.keys.slot(id, next), &body, &Condition::Absent, until).await?
        {
            return Ok(Some(next));
        }
        // Another commit was stored meanwhile, or an attempt in doubt.
    }
}
