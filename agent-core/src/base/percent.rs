//! Percent-encoding of text, as in URLs (RFC 3986, section 2.1).

use std::fmt::Write;

use crate::base::{Error, Result};

/// Returns `text` with every byte but ASCII letters, digits, `-`, `.`, `_`, `~` and `:` as `%` and two digits.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                encoded.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
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
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
        let hex = hex.and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = hex.filter(|_| *first == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| Error::invalid("the percent-encoded text is not UTF-8, or contains NUL"))
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
