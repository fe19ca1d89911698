//! Pictures whose bytes are of another type than the declared one: what a provider would refuse, request after request.

use agent_core::event::{MediaSource, Part};

/// Number of first bytes that are looked at.
pub(crate) const LOOKED_AT_BYTES: usize = 512;

/// Types whose first bytes are known, and which every model that takes pictures takes.
const CHECKED: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// First bytes of these and of some other types; a zero stands for any byte.
const MAGIC: [(&[u8], &str); 9] = [
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"RIFF\0\0\0\0WEBP", "image/webp"),
    (b"\0\0\0\0ftyphei", "image/heic"),
    (b"\0\0\0\0ftypmif", "image/heif"),
    (b"\0\0\0\0ftypavif", "image/avif"),
    (b"%PDF-", "application/pdf"),
];

/// Gives a picture whose bytes are of another type that type. One that is no picture becomes a resource.
pub(crate) fn checked(part: &mut Part) {
    let Part::Image(media) = part else { return };
    if let MediaSource::Inline(bytes) = &media.source {
        media.media_type = shown_type(&media.media_type, bytes);
    }
    if essence(&media.media_type).split('/').next() != Some("image")
        && let Part::Image(media) = std::mem::replace(part, Part::whole_text())
    {
        *part = Part::Resource(media);
    }
}

/// Returns the type of content by its first bytes, if they contradict a declared type of a picture; otherwise the declared
/// type.
pub(crate) fn shown_type(declared: &str, first: &[u8]) -> String {
    let essence = essence(declared);
    if first.is_empty()
        || !CHECKED.contains(&&*essence)
        || MAGIC.iter().any(|(magic, of)| *of == essence && begins(first, magic))
    {
        return declared.to_owned();
    }
    let found = MAGIC.iter().find(|(magic, _)| first.len() >= magic.len() && begins(first, magic));
    match found {
        Some((_, of)) => (*of).to_owned(),
        None => text_type(first).unwrap_or("application/octet-stream").to_owned(),
    }
}

/// Returns whether a picture of this declared type is looked at.
pub(crate) fn is_checked(declared: &str) -> bool {
    CHECKED.contains(&&*essence(declared))
}

fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns whether content begins with these bytes, as far as it goes.
fn begins(first: &[u8], magic: &[u8]) -> bool {
    first.iter().zip(magic).all(|(byte, of)| *of == 0 || byte == of)
}

/// Returns the type of a text; `None` if it is none.
fn text_type(first: &[u8]) -> Option<&'static str> {
    let first = &first[..first.len().min(LOOKED_AT_BYTES)];
    let text = match std::str::from_utf8(first) {
        Ok(text) => text,
        // A character may go on behind them.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&first[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    if text.chars().any(|c| c.is_control() && !c.is_whitespace()) {
        return None;
    }
    Some(if text.contains("<svg") { "image/svg+xml" } else { "text/plain" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_fit_keep_the_declared_type() {
        for (declared, bytes) in [
            ("image/png", &b"\x89PNG"[..]),
            ("image/png; a=b", b"\x89PNG\r\n\x1a\n more"),
            ("image/PNG", b"\x89"),
            ("image/webp", b"RIFF\x10\x20\x30\x40WEBPVP8 "),
            ("image/gif", b"GIF87a"),
            ("image/png", b""),
            ("image/bmp", b"no bitmap"),
            ("text/plain", b"\x89PNG\r\n\x1a\n"),
        ] {
            assert_eq!(shown_type(declared, bytes), declared, "{bytes:?}");
        }
    }

    #[test]
    fn text_is_recognized_though_it_is_cut() {
        let long = "한".repeat(300);
        assert_eq!(shown_type("image/png", long.as_bytes()), "text/plain");
        assert_eq!(shown_type("image/png", b"\xed\x95"), "text/plain");
        assert_eq!(shown_type("image/png", b"a\xff\xff"), "application/octet-stream");
        assert_eq!(shown_type("image/png", b"a\0b"), "application/octet-stream");
    }
}
