//! Objects that other programs put among those of a store: marks of folders, hidden files of file managers. Nothing reads
//! them, and a check names them.

use agent_core::store::Damaged;
use agent_core::{BlobName, Result, SessionId, WorkspaceId};
use futures::TryStreamExt;

use crate::layout::keys::{Keys, Slot, is_hash};
use crate::log::slots::Slots;

/// Returns the objects in the folder of a generation whose keys are none of this store's. Holds one page of names in memory,
/// and what it returns.
pub(crate) async fn check(slots: &Slots) -> Result<Vec<Damaged>> {
    let (mut found, mut pages) = (Vec::new(), slots.bucket.pages(slots.keys.root(), None, false, None));
    while let Some(page) = pages.try_next().await? {
        let foreign = page.keys.iter().filter(|key| !is_ours(&slots.keys, key));
        found.extend(foreign.map(|key| {
            let what = "is of no kind that this store writes, and is ignored; remove it if nobody needs it";
            Damaged::foreign(format!("object {key}"), what)
        }));
    }
    Ok(found)
}

/// Returns whether a store writes objects with such a key.
fn is_ours(keys: &Keys, key: &str) -> bool {
    let Some(name) = key.strip_prefix(keys.root()) else { return false };
    let is_session = |text: &str| text.parse::<SessionId>().is_ok();
    match name.split('/').collect::<Vec<_>>()[..] {
        ["s", _, id, "c", _] => id.parse().is_ok_and(|id: SessionId| keys.slot_of(id, key).is_some()),
        ["s", _, id, "b", blob, copy] => {
            let is_blob = |id: SessionId| {
                blob.parse().is_ok_and(|blob: BlobName| key.starts_with(&keys.copies(id, blob)))
            };
            id.parse().is_ok_and(is_blob) && is_numbered(copy, |head| Slot::parse(head).is_some())
        }
        ["workspaces", id] => id.parse::<WorkspaceId>().is_ok(),
        ["bindings", device] => is_hash(device),
        ["idx", "child", parent, id] => is_session(parent) && is_session(id),
        ["idx", "blob", id] => is_session(id),
        ["idx", _, .., name] => {
            is_numbered(name, |name| is_session(name) || is_hash(name) || name.parse::<WorkspaceId>().is_ok())
        }
        // A later generation of the tenant.
        [generation, _, ..] => {
            let number = generation.strip_prefix('g').unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    }
}

/// Returns whether a name has two parts with a dot between them, the first of which is as it should be.
fn is_numbered(name: &str, is_first: impl Fn(&str) -> bool) -> bool {
    let parts = name.split_once('.');
    parts
        .is_some_and(|(first, number)| is_first(first) && number.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
