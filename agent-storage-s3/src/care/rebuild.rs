//! Check and repair of the index: each key in force exists, and others are removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::state::SessionState;
use agent_core::store::{Damaged, Rebuilt};
use agent_core::{Result, SessionId};
use bytes::Bytes;
use futures::StreamExt;

use crate::care::scrub;
use crate::error::is_damage;
use crate::layout::keys::{Slot, last};
use crate::log::index_keys::parse_name;
use crate::log::newest::{give_up, newest};
use crate::log::slot::{Entry, Kind};
use crate::log::slots::Slots;
use crate::medium::background::DELAY;
use crate::medium::object::{AT_ONCE, Age, Condition, ORPHAN_MICROS};

/// Age of a commit after which no list is read any more that began before it.
const HOUR_MICROS: i64 = 3_600_000_000;

/// Puts the keys that are missing, removes those that are not in force, and takes the slots of creations that were begun
/// long ago and never made. Holds the names of all keys of the tenant in memory.
pub(crate) async fn rebuild(slots: &Slots) -> Result<Rebuilt> {
    let mut keys = all_keys(slots).await?;
    let (mut sessions, mut damaged) = (0, Vec::new());
    for (_, found) in all_sessions(slots, &mut keys).await? {
        match found {
            Session::Damaged(what) => damaged.push(what),
            Session::Sound { missing, superseded, is_old, .. } => {
                sessions += u64::from(!missing.is_empty() || !superseded.is_empty());
                for name in missing {
                    let until = slots.bucket.deadline();
                    // A heartbeat may have put it meanwhile.
                    slots.bucket.put(&name, &Bytes::new(), &Condition::Absent, until).await?;
                }
                remove(slots, superseded, is_old).await?;
            }
            Session::Void { keys } => remove(slots, keys, true).await?,
        }
    }
    // What is left belongs to no session.
    for (id, names) in keys.into_iter().filter(|(_, names)| is_orphan(names)) {
        if !give_up(slots, id).await? {
            continue;
        }
        remove(slots, names.into_iter().map(|(name, _)| name).collect(), true).await?;
    }
    damaged.sort();
    Ok(Rebuilt::new(sessions).with_damaged(damaged))
}

/// Returns what breaks an invariant: slots that are missing or damaged, keys in force that do not exist, and creations
/// that were begun long ago and never made.
pub(crate) async fn check(slots: &Slots) -> Result<Vec<Damaged>> {
    let mut keys = all_keys(slots).await?;
    let mut faults = Vec::new();
    for (id, found) in all_sessions(slots, &mut keys).await? {
        // A damaged session is reported by its next reader.
        let Session::Sound { missing, is_deleted, .. } = found else { continue };
        for name in missing {
            let what = format!("its key {name} is missing, so that lists do not show it; run `rebuild`");
            faults.push(Damaged::new(format!("session {id}"), what));
        }
        // Nobody writes to a deleted one any more, and a purge removes what is there.
        if !is_deleted {
            faults.extend(scrub::faults(slots, id).await?);
        }
    }
    for (id, _) in keys.iter().filter(|(_, names)| is_orphan(names)) {
        let what =
            "it was begun more than 7 days ago and never created, and its keys are left; run `rebuild`";
        faults.push(Damaged::new(format!("session {id}"), what));
    }
    faults.sort();
    Ok(faults)
}

/// Names of the keys of each session, with the age of each.
type Names = BTreeMap<SessionId, Vec<(String, Age)>>;

/// Returns the keys of all sessions, in any list.
async fn all_keys(slots: &Slots) -> Result<Names> {
    let mut found = Names::new();
    let bucket = &slots.bucket;
    for folder in [slots.keys.families(), slots.keys.all_work()] {
        let all = bucket.list_all(&folder, false, bucket.deadline()).await?;
        for (key, age) in all.keys.into_iter().zip(all.ages) {
            if key.starts_with(&slots.keys.all_work()) && !slots.keys.is_own_work(&key) {
                continue;
            }
            if let Some((id, _)) = parse_name(&key) {
                found.entry(id).or_default().push((key, age));
            }
        }
    }
    Ok(found)
}

/// Session, compared with its keys.
enum Session {
    Sound {
        missing: Vec<String>,
        superseded: Vec<String>,
        /// True if its newest commit is old, so that no list which has begun before is still read.
        is_old: bool,
        is_deleted: bool,
    },
    /// The slot was taken so that the session cannot be created.
    Void {
        keys: Vec<String>,
    },
    Damaged(Damaged),
}

/// Compares all sessions with their keys, and takes these out of `keys`.
async fn all_sessions(slots: &Slots, keys: &mut Names) -> Result<Vec<(SessionId, Session)>> {
    let bucket = &slots.bucket;
    let mut all = Vec::new();
    for shard in bucket.list_all(&slots.keys.sessions(), true, bucket.deadline()).await?.folders {
        let folders = bucket.list_all(&format!("{shard}/"), true, bucket.deadline()).await?.folders;
        let ids = folders.iter().filter_map(|folder| last(folder).parse::<SessionId>().ok());
        let with_keys: Vec<_> = ids.map(|id| (id, keys.remove(&id).unwrap_or_default())).collect();
        let mut compared = futures::stream::iter(with_keys)
            .map(|(id, names)| async move { (id, compare(slots, id, &names).await, names) })
            .buffer_unordered(AT_ONCE);
        while let Some((id, session, names)) = compared.next().await {
            match session? {
                Some(session) => all.push((id, session)),
                // They are of a creation that was cut off, and the id has blobs that were put before.
                None if !names.is_empty() => drop(keys.insert(id, names)),
                None => {}
            }
        }
    }
    Ok(all)
}

/// Compares a session with its keys; `None` if there is no session.
async fn compare(slots: &Slots, id: SessionId, names: &[(String, Age)]) -> Result<Option<Session>> {
    let found = match newest(slots, id).await {
        Err(error) if is_damage(&error) => {
            return Ok(Some(Session::Damaged(Damaged::of(format!("session {id}"), &error))));
        }
        found => found?,
    };
    let Some(head) = found else { return Ok(None) };
    let names: Vec<_> = names.iter().map(|(name, _)| name.clone()).collect();
    if head.head.kind == Kind::Void {
        return Ok(Some(Session::Void { keys: names }));
    }
    let in_force = names_of(slots, id, &head);
    let is_over = |name: &String| {
        parse_name(name).is_some_and(|(_, slot)| slot <= head.head.slot) && !in_force.contains(name)
    };
    let superseded: Vec<_> = names.iter().filter(|name| is_over(name)).cloned().collect();
    let mut missing = Vec::new();
    for name in in_force {
        if !names.contains(&name) && is_missing(slots, id, &name, head.head.slot).await? {
            missing.push(name);
        }
    }
    let is_old = !superseded.is_empty() && is_old(slots, id, head.head.slot).await?;
    let is_deleted = head.record.as_ref().is_none_or(|record| record.status.state == SessionState::Deleted);
    Ok(Some(Session::Sound { missing, superseded, is_old, is_deleted }))
}

/// Returns whether a commit was written more than an hour ago, by the server's clock.
async fn is_old(slots: &Slots, id: SessionId, slot: Slot) -> Result<bool> {
    let (key, until) = (slots.keys.slot(id, slot), slots.bucket.deadline());
    let seen = slots.bucket.see(&key, Some(0..1), until).await?;
    Ok(seen.is_some_and(|seen| seen.age.is_over(HOUR_MICROS)))
}

fn names_of(slots: &Slots, id: SessionId, head: &Arc<Entry>) -> Vec<String> {
    head.head.keys.iter().map(|key| key.name(&slots.keys, id)).collect()
}

/// Returns whether a key that was not listed is missing. It may have been put since, or may not be in force any more.
async fn is_missing(slots: &Slots, id: SessionId, name: &str, slot: Slot) -> Result<bool> {
    let until = slots.bucket.deadline();
    if slots.bucket.get(name, until).await?.is_some() {
        return Ok(false);
    }
    let now = slots.newest(id, until).await?;
    Ok(now.is_some_and(|now| now.head.slot == slot || names_of(slots, id, &now).iter().any(|it| it == name)))
}

async fn remove(slots: &Slots, names: Vec<String>, at_once: bool) -> Result<()> {
    if !at_once {
        tracing::debug!(keys = names.len(), after = ?DELAY, "superseded keys are deleted later");
        slots.delete_later(names);
        return Ok(());
    }
    for name in names {
        slots.bucket.delete(&name, slots.bucket.deadline()).await?;
    }
    Ok(())
}

/// Returns whether the keys of a session that does not exist were put long ago.
fn is_orphan(names: &[(String, Age)]) -> bool {
    names.iter().all(|(_, age)| age.is_over(ORPHAN_MICROS))
}
