//! Content that stands in the events of a commit, and takes the form of blobs there.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::commit::{COMMIT_MAX_BLOBS, Step};
use agent_core::event::{AgentPart, EventType, FullOutput, Media, MediaSource, NewEvent, Part};
use agent_core::json::{RawFields, RawJson};
use agent_core::store::BlobInfo;
use agent_core::{BlobName, Result};
use bytes::Bytes;

/// Maximum number of bytes that a medium has in the event itself, if the store has blobs.
pub const INLINE_MAX_BYTES: usize = 1 << 10;

/// Content of blobs, by name.
pub(super) type Sources = BTreeMap<BlobName, Bytes>;

/// Returns whether a step may hold content that becomes a blob.
pub(super) fn may_be_large(step: &Step) -> bool {
    matches!(step, Step::Event(event) if may_hold(event))
}

/// Moves the large content of events out of them: media of more than 1 KiB, and the whole of outputs of which an event
/// has a preview. `most` is the maximum size of a blob.
///
/// Returns the content, which must be put before the events are committed. Events without large content keep their
/// bytes. If it is more than a commit may name, the largest pieces are moved, and the others stay in their events.
///
/// # Errors
///
/// Those of the JSON of a changed payload.
pub(super) fn move_out(steps: &mut [Step], most: u64) -> Result<Sources> {
    let mut payloads: Vec<_> = steps
        .iter_mut()
        .filter_map(|step| match step {
            Step::Event(event) => Payload::of(event).map(|payload| (event, payload)),
            _ => None,
        })
        .collect();
    if payloads.is_empty() {
        return Ok(Sources::new());
    }
    let (mut found, mut named) = (Sources::new(), BTreeSet::new());
    for (event, payload) in &mut payloads {
        named.extend(event.blobs.iter().copied());
        payload.each_place(&mut |place| match place.content(most) {
            Content::Large(bytes) => drop(found.insert(BlobName::of(&bytes), bytes)),
            Content::Named(name) => drop(named.insert(name)),
            Content::Small => {}
        });
    }
    let room = COMMIT_MAX_BLOBS.saturating_sub(named.len());
    let is_new = |name: &BlobName| !named.contains(name);
    if found.keys().filter(|name| is_new(name)).count() > room {
        let mut sizes: Vec<_> = found.iter().map(|(name, bytes)| (bytes.len(), *name)).collect();
        sizes.retain(|(_, name)| is_new(name));
        sizes.sort_unstable();
        for (_, name) in &sizes[..sizes.len() - room] {
            found.remove(name);
        }
    }
    for (event, mut payload) in payloads {
        let mut is_changed = false;
        payload.each_place(&mut |mut place| {
            if let Content::Large(bytes) = place.content(most) {
                let blob = BlobInfo::of(&bytes);
                if found.contains_key(&blob.name) {
                    place.name(blob);
                    is_changed = true;
                }
            }
        });
        if is_changed {
            event.payload = payload.json()?;
        }
    }
    Ok(found)
}

/// Changes the media in the payload of an event; `change` returns whether it changed the one that it is given. `None`
/// if nothing was changed.
pub(crate) fn change_media(event: &NewEvent, mut change: impl FnMut(&mut Media) -> bool) -> Option<RawJson> {
    let mut payload = Payload::of(event)?;
    let mut is_changed = false;
    payload.each_place(&mut |place| {
        if let Place::Media(media) = place {
            is_changed |= change(media);
        }
    });
    if is_changed { payload.json().ok() } else { None }
}

/// Returns the medium of a part that a model can be given.
pub fn media_mut(part: &mut Part) -> Option<&mut Media> {
    match part {
        Part::Image(media) | Part::Audio(media) | Part::Video(media) | Part::Resource(media) => Some(media),
        _ => None,
    }
}

/// Returns whether an event may hold media or a whole output.
fn may_hold(event: &NewEvent) -> bool {
    let kind = &event.kind;
    let is_message = [
        EventType::USER_MESSAGE,
        EventType::USER_DEFINE_OUTCOME,
        EventType::AGENT_MESSAGE,
        EventType::AGENT_THINKING,
        EventType::AGENT_PART,
    ]
    .contains(kind);
    // Within a text, a backslash stands before each quote.
    (is_message || is_result(kind)) && event.payload.get().contains("\"media\"")
}

fn is_result(kind: &EventType) -> bool {
    [EventType::AGENT_TOOL_RESULT, EventType::USER_CUSTOM_TOOL_RESULT].contains(kind)
}

/// Payload of an event that may hold large content.
enum Payload {
    /// Item of an answer.
    Item(AgentPart),
    /// Object with a list of parts, and the whole output of a tool.
    Object { fields: RawFields, list: &'static str, parts: Vec<Part>, full: Option<FullOutput> },
}

/// Place in a payload that can refer to a blob.
enum Place<'a> {
    Media(&'a mut Media),
    Full(&'a mut FullOutput),
}

enum Content {
    Large(Bytes),
    /// The content is a blob already.
    Named(BlobName),
    Small,
}

impl Payload {
    /// Returns the payload, unless the event certainly has no content that is or becomes a blob.
    fn of(event: &NewEvent) -> Option<Self> {
        if !may_hold(event) {
            return None;
        }
        if event.kind == EventType::AGENT_PART {
            return Some(Self::Item(event.payload.to().ok()?));
        }
        let is_result = is_result(&event.kind);
        let list = if is_result { "content" } else { "parts" };
        let fields: RawFields = event.payload.to().ok()?;
        let parts = fields.get(list).map(RawJson::to::<Vec<Part>>).transpose().ok()?.unwrap_or_default();
        let full = fields.get("full").filter(|_| is_result).map(RawJson::to::<FullOutput>);
        let full = full.transpose().ok()?;
        Some(Self::Object { fields, list, parts, full })
    }

    fn each_place(&mut self, look: &mut impl FnMut(Place<'_>)) {
        match self {
            Self::Item(item) => media_mut(&mut item.content).into_iter().map(Place::Media).for_each(look),
            Self::Object { parts, full, .. } => {
                parts.iter_mut().filter_map(media_mut).map(Place::Media).for_each(&mut *look);
                full.as_mut().map(Place::Full).into_iter().for_each(look);
            }
        }
    }

    /// Returns the JSON, in which everything but the list and the whole output is as it was.
    fn json(self) -> Result<RawJson> {
        match self {
            Self::Item(item) => RawJson::of(&item),
            Self::Object { mut fields, list, parts, full } => {
                if !parts.is_empty() {
                    fields.insert(list, RawJson::of(&parts)?);
                }
                if let Some(full) = full {
                    fields.insert("full", RawJson::of(&full)?);
                }
                RawJson::of(&fields)
            }
        }
    }
}

impl Place<'_> {
    fn content(&self, most: u64) -> Content {
        let (bytes, name) = match self {
            Self::Media(media) => match &media.source {
                MediaSource::Inline(bytes) if bytes.len() > INLINE_MAX_BYTES => (Some(&bytes[..]), None),
                MediaSource::Blob { sha256, .. } => (None, Some(*sha256)),
                _ => (None, None),
            },
            Self::Full(full) => (full.text.as_deref().map(str::as_bytes), full.sha256),
        };
        match (bytes, name) {
            (Some(bytes), _) if bytes.len() as u64 <= most => Content::Large(Bytes::copy_from_slice(bytes)),
            (_, Some(name)) => Content::Named(name),
            _ => Content::Small,
        }
    }

    /// Replaces the content by the name of its blob.
    fn name(&mut self, blob: BlobInfo) {
        match self {
            Self::Media(media) => media.source = MediaSource::Blob { sha256: blob.name, bytes: blob.bytes },
            Self::Full(full) => {
                **full = FullOutput::blob(blob.name, blob.bytes).with_media_type(&*full.media_type);
            }
        }
    }
}
