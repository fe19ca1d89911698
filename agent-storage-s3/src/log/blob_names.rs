//! Blobs that the events of a session name, and the objects that hold its blobs.

use std::collections::{HashMap, HashSet};

use agent_core::model::NeededBlob;
use agent_core::store::{BLOB_CHUNK_BYTES, PAGE_MAX, ReadEvents};
use agent_core::{BlobName, Error, Result, Seq, SessionId};
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use crate::error::corrupt;
use crate::layout::keys::{Slot, last};
use crate::log::read;
use crate::log::slots::Slots;
use crate::medium::object::{AT_ONCE, Listed};

/// Number of events after the head that a blob was put for, up to which a commit may name it. Within them it is not
/// deleted.
const REACH: u64 = 256;
/// Number of bytes of the checksum of a chunk.
pub(crate) const SUM: u64 = 4;

/// Object that holds a blob of a session. Several may hold the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) key: String,
    pub(crate) name: BlobName,
    /// Last event of the session when the blob was put; zero if there was no session.
    head: u64,
    /// Number of bytes of the blob; `None` if the object has a size that no blob has.
    pub(crate) bytes: Option<u64>,
}

impl Copy {
    /// Returns the copies on a page of a list. What has another name was put there by another program.
    pub(crate) fn of(page: Listed) -> Vec<Self> {
        let parse = |(key, size): (String, u64)| {
            let (folder, name) = key.rsplit_once('/')?;
            let (blob, (head, _)) = (last(folder).parse::<BlobName>().ok()?, name.split_once('.')?);
            let head = Slot::parse(head)?.0;
            Some(Self { name: blob, head, bytes: blob_bytes(size), key })
        };
        page.keys.into_iter().zip(page.sizes).filter_map(parse).collect()
    }

    /// Returns whether the commit in a slot may name the blob for the sake of this copy.
    pub(crate) fn may_be_named_in(&self, slot: Slot) -> bool {
        slot.0 <= self.head.saturating_add(REACH)
    }

    /// Returns whether the slot of each commit that may name the blob for the sake of this copy is taken, if `last` is
    /// the last event of the session.
    pub(crate) fn is_beyond_reach(&self, last: Seq) -> bool {
        self.head.saturating_add(REACH) <= last.get()
    }
}

/// Returns the number of bytes of an object that holds a blob: of the blob, and of the checksums of its chunks if it has
/// several.
pub(crate) fn object_bytes(blob: u64) -> u64 {
    let chunks = blob.div_ceil(BLOB_CHUNK_BYTES as u64);
    if chunks > 1 { blob + SUM * chunks } else { blob }
}

/// Returns the number of bytes of the blob that an object of this size holds.
fn blob_bytes(object: u64) -> Option<u64> {
    if object <= BLOB_CHUNK_BYTES as u64 {
        return Some(object);
    }
    let chunks = object.div_ceil(BLOB_CHUNK_BYTES as u64 + SUM);
    let blob = object - SUM * chunks;
    (object_bytes(blob) == object).then_some(blob)
}

/// Returns the blobs that the events of a session name, from the first up to the last that there is now, or that a purge
/// has left.
///
/// # Errors
///
/// `Corrupt` if an event is damaged, so that it is unknown what it names.
pub(crate) async fn named(slots: &Slots, id: SessionId) -> Result<HashSet<BlobName>> {
    let (mut names, mut next) = (HashSet::new(), Some(ReadEvents::first(PAGE_MAX)));
    while let Some(read) = next {
        let page = read::read(slots, id, &read).await?;
        if let Some(damage) = page.damaged.first() {
            return Err(corrupt(&damage.object, &damage.reason));
        }
        names.extend(page.events.into_iter().flat_map(|event| event.blobs));
        next = page.next;
    }
    Ok(names)
}

/// Checks that the session has the blobs that the commit in `slot` names, each in a copy that is not deleted while that
/// slot is free.
pub(crate) async fn require(
    slots: &Slots,
    id: SessionId,
    needed: &[NeededBlob],
    slot: Slot,
    until: Instant,
) -> Result<()> {
    if needed.is_empty() {
        return Ok(());
    }
    let find = |name: BlobName| async move {
        // The one with the farthest reach comes first.
        let page = slots.bucket.list(&slots.keys.copies(id, name), None, None, 1, false, until).await?;
        let copy = Copy::of(page).into_iter().find(|copy| copy.may_be_named_in(slot));
        Ok::<_, Error>((name, copy.and_then(|copy| copy.bytes)))
    };
    let names: Vec<_> = needed.iter().map(|blob| blob.name).collect();
    let found = futures::stream::iter(names).map(find).buffered(AT_ONCE);
    let found: HashMap<_, _> = found.try_collect().await?;
    NeededBlob::check(id, needed, |name| Ok(found.get(&name).copied().flatten()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of an object tells the size of the blob in it.
    #[test]
    fn sizes_of_objects_and_blobs_match() {
        let chunk = BLOB_CHUNK_BYTES as u64;
        let around = |n: u64| (n * chunk).saturating_sub(9)..n * chunk + 9;
        for blob in (0..9).chain([4000, 4095, 4096]).flat_map(around) {
            assert_eq!(blob_bytes(object_bytes(blob)), Some(blob), "{blob}");
        }
        let sizes = (chunk + 1..chunk + 9).map(blob_bytes).collect::<Vec<_>>();
        assert_eq!(sizes, [None; 8], "no blob has an object of such a size");
    }
}
