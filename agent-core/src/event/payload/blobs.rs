//! Blobs that a payload refers to.

use crate::base::{BlobName, Error, Result};
use crate::event::body::EventPayload;
use crate::event::payload::content::Part;
use crate::event::payload::media::MediaSource;
use crate::event::payload::tool::ToolResult;
use crate::model::NeededBlob;

/// Blobs that the library finds in a payload.
#[derive(Debug, Default)]
pub(crate) struct NamedBlobs {
    found: Vec<NeededBlob>,
    /// True if the payload may refer to blobs that the library does not find.
    may_have_more: bool,
}

impl NamedBlobs {
    /// Finds the blobs of a payload.
    pub(crate) fn of(payload: &EventPayload) -> Self {
        let mut named = Self::default();
        match payload {
            EventPayload::UserMessage(message)
            | EventPayload::UserDefineOutcome(message)
            | EventPayload::AgentMessage(message)
            | EventPayload::AgentThinking(message) => named.add_parts(&message.parts),
            EventPayload::AgentPart(part) => named.add_parts(std::slice::from_ref(&part.content)),
            EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
                named.add_result(result);
            }
            EventPayload::SessionArtifactRegistered(artifact) => {
                named.found.extend(artifact.blob.map(|blob| NeededBlob::new(blob.name, Some(blob.bytes))));
            }
            // The text of a document may be a manifest of blobs.
            EventPayload::SessionDocumentWritten(_) | EventPayload::Other(..) => named.may_have_more = true,
            _ => {}
        }
        named
    }

    fn add_parts(&mut self, parts: &[Part]) {
        for part in parts {
            match part.media().map(|media| &media.source) {
                Some(MediaSource::Blob { sha256, bytes }) => {
                    self.found.push(NeededBlob::new(*sha256, Some(*bytes)));
                }
                Some(_) => {}
                None => self.may_have_more |= matches!(part, Part::Other(_)),
            }
        }
    }

    fn add_result(&mut self, result: &ToolResult) {
        self.add_parts(&result.content);
        if let Some(full) = &result.full
            && let Some(sha256) = full.sha256
        {
            self.found.push(NeededBlob::new(sha256, Some(full.bytes)));
        }
    }

    /// Returns the number of bytes of the blobs whose size is known.
    pub(crate) fn bytes(&self) -> u64 {
        self.found.iter().filter_map(|blob| blob.bytes).fold(0, u64::saturating_add)
    }

    /// Returns the blobs of an event that also names `given`: sorted, each once.
    pub(crate) fn with_given(self, given: &[BlobName]) -> Result<Vec<NeededBlob>> {
        let is_found = |name: &BlobName| self.found.iter().any(|found| found.name == *name);
        if !self.may_have_more
            && let Some(more) = given.iter().find(|name| !is_found(name))
        {
            return Err(Error::invalid(format!(
                "an event names blob {more}, to which its payload does not refer; name blobs only on events of your own \
                 types"
            )));
        }
        let given = given.iter().map(|name| NeededBlob::new(*name, None));
        NeededBlob::merged(given.chain(self.found))
    }
}
