//! Blobs of a session: which there are, and what its events say of them.

use std::collections::BTreeMap;

use futures::TryStreamExt;

use agent_core::event::{Event, EventPayload, MediaSource, Part, ToolResult};
use agent_core::store::{BlobQuery, PAGE_MAX, pages};
use agent_core::{BlobName, Result, SessionId, SessionStore};

/// Returns the blobs of a session's own log with their numbers of bytes. Empty for a store without blobs.
pub(crate) async fn sizes<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
) -> Result<BTreeMap<BlobName, u64>> {
    let mut sizes = BTreeMap::new();
    if store.capabilities().blob_max_bytes == 0 {
        return Ok(sizes);
    }
    let mut pages = pages(BlobQuery::new(id).with_limit(PAGE_MAX), |query| store.list_blobs(query));
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
