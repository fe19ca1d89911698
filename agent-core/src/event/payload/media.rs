//! Media of a part: its type, its name, and its bytes or their address.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

use crate::base::text::check_text;
use crate::base::{BlobName, Error, RawFields, RawJson, Result, quoted};

/// Maximum number of bytes of a medium's name.
const NAME_MAX_BYTES: usize = 1024;
/// Maximum number of bytes of an address.
const URI_MAX_BYTES: usize = 64 << 10;

/// Image, audio, video or other data in a message: its media type, and its bytes or their address.
///
/// ```
/// use agent_core::event::{Media, MediaSource};
///
/// let cat = Media::inline("image/png", *b"\x89PNG").with_name("cat.png");
/// assert_eq!(cat.line("image"), "[image cat.png, image/png, 4 bytes]");
/// assert_eq!(cat.source, MediaSource::Inline(b"\x89PNG".as_slice().into()));
/// let remote = Media::uri("image/png", "https://example.com/dog.png");
/// assert_eq!(remote.line("image"), "[image, image/png, https://example.com/dog.png]");
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Media {
    /// Media type, like `image/png`; stored as `media`.
    pub media_type: String,
    /// Bytes, or their address.
    pub source: MediaSource,
    /// Name of the file, for people.
    pub name: Option<String>,
    /// Members that this version does not know, in order.
    pub extra: RawFields,
}

/// Bytes of a medium, or their address.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediaSource {
    /// Bytes in the event itself, stored in base64 as `data`.
    Inline(Arc<[u8]>),
    /// Blob of the session, which is [put](crate::store::BlobStore::put) before the event is committed.
    Blob {
        /// SHA-256 of the bytes: the name of the blob.
        sha256: BlobName,
        /// Number of bytes.
        bytes: u64,
    },
    /// Address from which a provider or a host reads the bytes. The library does not.
    Uri(String),
}

impl MediaSource {
    /// Returns the number of bytes; `None` for an address.
    pub fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Inline(bytes) => Some(bytes.len() as u64),
            Self::Blob { bytes, .. } => Some(*bytes),
            Self::Uri(_) => None,
        }
    }
}

/// Shows no bytes, since payloads never appear in logs.
impl fmt::Debug for MediaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::Blob { sha256, bytes } => write!(f, "Blob({sha256}, {bytes} bytes)"),
            Self::Uri(uri) => write!(f, "Uri({})", quoted(uri)),
        }
    }
}

/// Stored form of a blob of a medium.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlobJson {
    sha256: BlobName,
    bytes: u64,
}

impl Media {
    /// Creates a medium whose bytes are in the event itself, in base64: a commit refuses more than about 12 MB of them,
    /// because an event has at most [`EVENT_MAX_BYTES`](crate::event::EVENT_MAX_BYTES). Larger ones are put as a
    /// [blob](Self::blob).
    pub fn inline(media_type: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::new(media_type, MediaSource::Inline(bytes.into()))
    }

    /// Creates a medium whose bytes are a blob of the session.
    ///
    /// ```
    /// use agent_core::BlobName;
    /// use agent_core::event::Media;
    ///
    /// let cat = Media::blob("image/png", BlobName::of(b"\x89PNG"), 4).with_name("cat.png");
    /// assert_eq!(cat.line("image"), "[image cat.png, image/png, 4 bytes]");
    /// ```
    pub fn blob(media_type: impl Into<String>, sha256: BlobName, bytes: u64) -> Self {
        Self::new(media_type, MediaSource::Blob { sha256, bytes })
    }

    /// Creates a medium at an address.
    pub fn uri(media_type: impl Into<String>, uri: impl Into<String>) -> Self {
        Self::new(media_type, MediaSource::Uri(uri.into()))
    }

    /// Creates a medium from its source.
    pub fn new(media_type: impl Into<String>, source: MediaSource) -> Self {
        Self { media_type: media_type.into(), source, name: None, extra: RawFields::new() }
    }

    /// Sets the name of the file.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a member that this version does not know, stored unchanged.
    pub fn with_extra(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.extra.insert(name, value);
        self
    }

    /// Returns the line that stands for the medium in a text: its kind, name, media type, and size or address.
    pub fn line(&self, kind: &str) -> String {
        let name = self.name.as_deref().map_or_else(String::new, |name| format!(" {}", on_a_line(name)));
        let place = match &self.source {
            MediaSource::Uri(uri) => on_a_line(uri),
            source => size(source.size_bytes().unwrap_or_default()),
        };
        format!("[{kind}{name}, {}, {place}]", on_a_line(&self.media_type))
    }

    /// Returns the SHA-256 of the bytes; for an address, that of the address.
    ///
    /// Computed again for bytes in the event itself.
    pub fn digest(&self) -> BlobName {
        match &self.source {
            MediaSource::Inline(bytes) => BlobName::of(bytes),
            MediaSource::Blob { sha256, .. } => *sha256,
            MediaSource::Uri(uri) => BlobName::of(uri.as_bytes()),
        }
    }

    /// Takes the members of a medium out of an object; `None` if they do not have the shape of one.
    pub(super) fn take(fields: &mut RawFields) -> Option<Self> {
        let media_type = fields.remove("media")?.to().ok()?;
        let data = fields.remove("data");
        let blob = fields.remove("blob");
        let source = match (data, blob) {
            (Some(data), None) => {
                MediaSource::Inline(STANDARD.decode(data.to::<String>().ok()?).ok()?.into())
            }
            (None, Some(blob)) => {
                let BlobJson { sha256, bytes } = blob.to().ok()?;
                MediaSource::Blob { sha256, bytes }
            }
            (None, None) => MediaSource::Uri(fields.remove("uri")?.to().ok()?),
            (Some(_), Some(_)) => return None,
        };
        let name = match fields.remove("name") {
            Some(name) => Some(name.to().ok()?),
            None => None,
        };
        Some(Self { media_type, source, name, extra: std::mem::take(fields) })
    }

    /// Writes the members of a medium into an object.
    pub(super) fn put<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("media", &self.media_type)?;
        match &self.source {
            MediaSource::Inline(bytes) => map.serialize_entry("data", &STANDARD.encode(bytes))?,
            MediaSource::Blob { sha256, bytes } => {
                map.serialize_entry("blob", &BlobJson { sha256: *sha256, bytes: *bytes })?;
            }
            MediaSource::Uri(uri) => map.serialize_entry("uri", uri)?,
        }
        if let Some(name) = &self.name {
            map.serialize_entry("name", name)?;
        }
        self.extra.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))
    }

    /// Checks the lengths and the source, for a commit.
    pub(super) fn check(&self) -> Result<()> {
        check_media_type(&self.media_type)?;
        if let Some(name) = &self.name {
            check_text("name of a medium", name, NAME_MAX_BYTES)?;
        }
        match &self.source {
            MediaSource::Inline(bytes) if bytes.is_empty() => Err(no_bytes()),
            MediaSource::Inline(_) => Ok(()),
            MediaSource::Blob { bytes: 0, .. } => Err(no_bytes()),
            MediaSource::Blob { .. } => Ok(()),
            MediaSource::Uri(uri) => Ok(check_text("address of a medium", uri, URI_MAX_BYTES)?),
        }
    }
}

/// Checks that a media type is `type/subtype`, in a length that providers accept.
pub(super) fn check_media_type(media_type: &str) -> Result<()> {
    check_text("media type", media_type, 255)?;
    let mut halves = media_type.split(';').next().unwrap_or_default().split('/');
    let plain = |half: Option<&str>| half.is_some_and(|half| !half.trim().is_empty());
    if plain(halves.next()) && plain(halves.next()) && halves.next().is_none() && media_type.is_ascii() {
        return Ok(());
    }
    Err(Error::invalid(format!("media type {} must be like image/png", quoted(media_type))))
}

fn no_bytes() -> Error {
    Error::invalid("a medium has no bytes; leave it out, since providers refuse it")
}

/// Returns a number of bytes for people.
fn size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        1 => "1 byte".to_owned(),
        0..KIB => format!("{bytes} bytes"),
        KIB..MIB => format!("{} KiB", (bytes + KIB / 2) / KIB),
        _ => {
            let tenths = (u128::from(bytes) * 10 + u128::from(MIB) / 2) / u128::from(MIB);
            format!("{}.{} MiB", tenths / 10, tenths % 10)
        }
    }
}

/// Returns text from outside so that it fits on one line: without line breaks of any kind, other control characters and
/// characters that change the direction of text, and cut after 200 characters.
pub(super) fn on_a_line(text: &str) -> String {
    const MOST: usize = 200;
    let mut line: String = text
        .chars()
        .take(MOST)
        .map(|c| {
            let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if c.is_control() || turns {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect();
    if text.chars().nth(MOST).is_some() {
        line.push('…');
    }
    line
}
