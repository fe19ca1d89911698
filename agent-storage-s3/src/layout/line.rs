//! Lines of an object, `<checksum> <tag> <json>`: damage is detected line by line.

use std::borrow::Cow;

use bytes::Bytes;

/// Format of objects that is written, and the only one that is read. Formats 1 to 6 were never released.
pub(crate) const FORMAT: u32 = 7;
/// Number of bytes of a line before its JSON: eight hexadecimal digits, a space, the tag, a space.
const FRAME: usize = 11;

/// Kind of a line's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Header of the object.
    Head,
    /// Record of a session or a workspace.
    Record,
    /// Event.
    Event,
    /// Location of an event of an earlier object.
    Reference,
    /// Configuration, as a JSON string.
    Config,
}

impl Tag {
    fn byte(self) -> u8 {
        match self {
            Self::Head => b'H',
            Self::Record => b'S',
            Self::Event => b'E',
            Self::Reference => b'R',
            Self::Config => b'C',
        }
    }
}

/// Appends a line. The JSON must not have a raw line break, and compact JSON never has one.
pub(crate) fn push(out: &mut Vec<u8>, tag: Tag, json: &str) {
    let start = out.len() + 9;
    out.extend_from_slice(b"00000000 ");
    out.extend_from_slice(&[tag.byte(), b' ']);
    out.extend_from_slice(json.as_bytes());
    let sum = format!("{:08x}", crc32c::crc32c(&out[start..]));
    out[start - 9..start - 1].copy_from_slice(sum.as_bytes());
    out.push(b'\n');
}

/// Line as it was found, with its checksum not verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Bytes without the line break.
    pub(crate) raw: Bytes,
    /// Offset of the line in its object.
    pub(crate) offset: u64,
}

impl Line {
    /// Returns the number of bytes that the line takes in its object, with the line break.
    pub(crate) fn size(&self) -> u64 {
        self.raw.len() as u64 + 1
    }

    pub(crate) fn is(&self, tag: Tag) -> bool {
        self.raw.get(9) == Some(&tag.byte())
    }

    /// Returns the checksum that is stored in the line.
    pub(crate) fn crc(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.raw.get(..8).unwrap_or_default())
    }

    /// Returns the JSON, if the line is of this kind and undamaged.
    pub(crate) fn json(&self, tag: Tag) -> Option<&str> {
        let (sum, checked) = (self.raw.get(..8)?, self.raw.get(9..)?);
        let framed = self.raw.get(8) == Some(&b' ') && self.raw.get(10) == Some(&b' ') && self.is(tag);
        let sound = framed && sum == format!("{:08x}", crc32c::crc32c(checked)).as_bytes();
        sound.then(|| std::str::from_utf8(self.raw.get(FRAME..)?).ok()).flatten()
    }
}

/// Returns the whole lines of an object.
pub(crate) fn lines(bytes: &Bytes) -> Vec<Line> {
    let (mut lines, mut offset) = (Vec::new(), 0);
    while let Some(length) = bytes[offset..].iter().position(|byte| *byte == b'\n') {
        lines.push(Line { raw: bytes.slice(offset..offset + length), offset: offset as u64 });
        offset += length + 1;
    }
    lines
}
