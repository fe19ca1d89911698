//! Percent-encoding of text, as in URLs (RFC 3986, section 2.1).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::base::{Error, Result};

const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// Returns `text` with every byte but ASCII letters, digits, `-`, `.`, `_`, `~` and `:` as `%` and two digits.
pub(crate) fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Decodes percent-encoded text, in which `%` and two hexadecimal digits stand for a byte. Any other `%` stands for
/// itself.
///
/// ```
/// assert_eq!(agent_core::store::percent_decode("/srv/a%20b")?, "/srv/a b");
/// assert_eq!(agent_core::store::percent_decode("100%")?, "100%");
/// # Ok::<(), agent_core::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidInput` if the result is not UTF-8, or contains NUL.
pub fn percent_decode(text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8().ok().filter(|text| !text.contains('\0'));
    text.map(Cow::into_owned)
        .ok_or_else(|| Error::invalid("the percent-encoded text is not UTF-8, or contains NUL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_survives_encoding() {
        for text in
            ["", "a b", "100%", "%41", "ключ/🗝", "1739615400000000 019c60d9-9c41-715c-8289-ec2d0a9167ec"]
        {
            let encoded = percent_encode(text);
            assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()), "{encoded}");
            assert_eq!(percent_decode(&encoded).ok().as_deref(), Some(text));
        }
    }
}
