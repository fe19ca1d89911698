//! Media of a request that are blobs: their bytes are loaded before the first call that has them.
//!
//! The further requests of the run share them.

use std::sync::Arc;

use agent_core::event::{MediaSource, Part};
use agent_core::session::SessionRecord;
use agent_core::store::{BlobContent, ReadBlob};
use agent_core::{BlobName, Error, ErrorKind, Result, SessionStore};
use tracing::warn;

use crate::context::{ItemContent, ModelMessage};
use agent_workspace::blobs::media_mut;

/// Maximum number of bytes of one medium of a request, and of all together.
const MEDIUM_MAX_BYTES: u64 = 32 << 20;
pub(crate) const MEDIA_MAX_BYTES: u64 = 64 << 20;

/// Gives the media of messages their bytes, the earliest first, as long as there is room for them in the request.
///
/// A text takes the place of a medium that is too large, for which no room is left, or whose bytes are lost or damaged: a
/// conversation goes on without them. What stands for a medium depends on it and on what is before it, so that a longer
/// request begins as the one before.
pub(crate) async fn load_media(
    store: &dyn SessionStore,
    session: &SessionRecord,
    messages: &mut [ModelMessage],
    room: &mut u64,
) -> Result<()> {
    for message in messages {
        let mut parts: Vec<&mut Part> = match message {
            ModelMessage::User(content) => content.parts.iter_mut().collect(),
            ModelMessage::ToolResults(results) => {
                results.iter_mut().flat_map(|result| &mut result.content).collect()
            }
            ModelMessage::Agent(said) => {
                let parts = said.items.iter_mut().filter_map(|item| match &mut item.content {
                    ItemContent::Part(part) => Some(part),
                    _ => None,
                });
                parts.collect()
            }
            ModelMessage::Summary(_) | ModelMessage::System(_) => continue,
        };
        for part in &mut parts {
            load_part(store, session, part, room).await?;
        }
    }
    Ok(())
}

async fn load_part(
    store: &dyn SessionStore,
    session: &SessionRecord,
    part: &mut Part,
    room: &mut u64,
) -> Result<()> {
    let left_out = |part: &Part, why: &str| {
        Part::text(format!("{} (left out: {why})", part.text_view("").unwrap_or_default()))
    };
    let Some(media) = media_mut(part) else { return Ok(()) };
    // Bytes that a run still has in memory count like those of the blob that they are in the log.
    let Some(bytes) = media.source.size_bytes() else { return Ok(()) };
    if bytes > MEDIUM_MAX_BYTES || bytes > *room {
        *part = left_out(part, "it is too large for a request");
        return Ok(());
    }
    *room -= bytes;
    let MediaSource::Blob { sha256, .. } = media.source else { return Ok(()) };
    match read(store, session, sha256).await? {
        Some(bytes) => media.source = MediaSource::Inline(bytes),
        None => *part = left_out(part, "its bytes are lost"),
    }
    Ok(())
}

/// Opens a blob of a session or of one of its ancestors.
pub(crate) async fn open_blob(
    store: &dyn SessionStore,
    session: &SessionRecord,
    read: ReadBlob,
) -> Result<BlobContent> {
    let ancestors = session.lineage.segments.iter().rev().map(|segment| segment.session);
    let owners: Vec<_> = std::iter::once(session.id).chain(ancestors).collect();
    for owner in owners {
        let mut own = ReadBlob::new(owner, read.name);
        own.range = read.range.clone();
        match store.blobs().read(own).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {}
            read => return read,
        }
    }
    let text = format!(
        "neither session {} nor one from which it was forked has blob {}; put the same bytes again, or restore the store from \
         a backup",
        session.id, read.name
    );
    Err(Error::not_found(text))
}

/// Reads a blob of the session or of one of its ancestors; `None` if it is lost or damaged.
async fn read(
    store: &dyn SessionStore,
    session: &SessionRecord,
    name: BlobName,
) -> Result<Option<Arc<[u8]>>> {
    let most = usize::try_from(MEDIUM_MAX_BYTES).unwrap_or(usize::MAX);
    let read =
        async { open_blob(store, session, ReadBlob::new(session.id, name)).await?.into_bytes(most).await };
    match read.await {
        Ok(bytes) => Ok(Some((&*bytes).into())),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::LimitExceeded | ErrorKind::Unsupported => {
                warn!(session = %session.id, %error, "a medium is left out of a request");
                Ok(None)
            }
            _ => Err(error),
        },
    }
}
