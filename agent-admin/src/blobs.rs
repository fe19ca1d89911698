//! Blobs of a session, and the events that name them.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;

use agent_core::event::{Event, EventPayload, MediaSource, Part, ToolResult};
use agent_core::store::{BlobQuery, PAGE_MAX, pages};
use agent_core::{BlobName, Error, ErrorKind, Result, SessionId, SessionStore};

/// Returns the blobs of a session's own log with their numbers of bytes. Empty for a store without blobs.
pub(crate) async fn sizes(store: &dyn SessionStore, id: SessionId) -> Result<BTreeMap<BlobName, u64>> {
    let mut sizes = BTreeMap::new();
    if store.capabilities().blob_max_bytes == 0 {
        return Ok(sizes);
    }
    let mut pages = pages(BlobQuery::new(id).with_limit(PAGE_MAX), |query| store.blobs().list(query));
    while let Some(page) = pages.try_next().await? {
        sizes.extend(page.items.iter().map(|blob| (blob.name, blob.bytes)));
    }
    Ok(sizes)
}

/// Returns the numbers of bytes that the payload of an event states for its blobs. An event of a host's own type, or of
/// a newer version, states none.
pub(crate) fn stated_sizes(event: &Event) -> Vec<(BlobName, u64)> {
    let of_parts = |parts: &[Part]| parts.iter().filter_map(blob_of).collect::<Vec<_>>();
    let of_result = |result: &ToolResult| {
        let full = result.full.as_ref().and_then(|full| Some((full.sha256?, full.bytes)));
        let mut stated = of_parts(&result.content);
        stated.extend(full);
        stated
    };
    match event.decode() {
        Ok(
            EventPayload::UserMessage(message)
            | EventPayload::UserDefineOutcome(message)
            | EventPayload::AgentMessage(message)
            | EventPayload::AgentThinking(message),
        ) => of_parts(&message.parts),
        Ok(EventPayload::AgentPart(part)) => of_parts(&[part.content]),
        Ok(EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result)) => {
            of_result(&result)
        }
        _ => Vec::new(),
    }
}

/// Returns the blob of a part, if its media is one.
pub(crate) fn blob_of(part: &Part) -> Option<(BlobName, u64)> {
    match part.media()?.source {
        MediaSource::Blob { sha256, bytes } => Some((sha256, bytes)),
        _ => None,
    }
}

/// Blob that the document names.
#[derive(Debug, Default)]
pub(crate) struct WantedBlob {
    /// Number of bytes, if an event states it.
    pub(crate) stated: Option<u64>,
    /// Sessions for which the blob is stored.
    pub(crate) owners: BTreeSet<SessionId>,
    /// Sessions of which an event that names the blob is not in the store yet.
    pub(crate) needed_by: BTreeSet<SessionId>,
}

/// Returns the blobs that the events of a document name. `members` are the sessions with their events, of which the last so
/// many are missing in a store; `own` is the session itself. Of ancestors, only blobs of missing events are stored.
pub(crate) fn wanted<'a>(
    own: SessionId,
    members: impl Iterator<Item = (SessionId, &'a [Event], usize)>,
) -> Result<BTreeMap<BlobName, WantedBlob>> {
    let mut wanted: BTreeMap<_, WantedBlob> = BTreeMap::new();
    for (id, events, missing) in members {
        for (n, event) in events.iter().enumerate() {
            let is_missing = n >= events.len() - missing;
            for name in &event.blobs {
                let blob = wanted.entry(*name).or_default();
                if is_missing || id == own {
                    blob.owners.insert(id);
                }
                if is_missing {
                    blob.needed_by.insert(id);
                }
            }
            for (name, bytes) in stated_sizes(event) {
                // An event that does not name the blobs of its payload is refused when it is planned.
                let Some(blob) = wanted.get_mut(&name) else { continue };
                if blob.stated.is_some_and(|stated| stated != bytes) {
                    return Err(Error::corrupt(format!(
                        "event {} of session {id} states another size of blob {name} than an event before it; export the \
                         session again",
                        event.seq
                    )));
                }
                blob.stated = Some(bytes);
            }
        }
    }
    Ok(wanted)
}

/// Checks that the store has all blobs that the missing events name, since the document has none.
pub(crate) async fn check_there(
    store: &dyn SessionStore,
    id: SessionId,
    wanted: &BTreeMap<BlobName, WantedBlob>,
) -> Result<()> {
    let mut there: BTreeMap<SessionId, BTreeMap<BlobName, u64>> = BTreeMap::new();
    let mut missing = Vec::new();
    for (name, blob) in wanted {
        for owner in &blob.needed_by {
            if !there.contains_key(owner) {
                there.insert(*owner, sizes(store, *owner).await?);
            }
            let found = there.get(owner).and_then(|there| there.get(name));
            if found.is_none_or(|found| blob.stated.is_some_and(|stated| stated != *found)) {
                missing.push(*name);
                break;
            }
        }
    }
    let count = missing.len();
    if count == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::BlobMissing { blobs: missing },
        format!(
            "the document of session {id} names {count} blobs whose bytes are neither in it nor in this store; import \
             the archive of the session, which contains them"
        ),
    ))
}
