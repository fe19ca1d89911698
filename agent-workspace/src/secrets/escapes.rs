//! Texts without their JSON escapes, and the positions of what is found in them.

use std::ops::Range;

/// Number of bytes of an escape like `\u00e9`, the longest for one byte of text.
pub(super) const ESCAPE: usize = 6;

/// Text with the characters in place of their JSON escapes. What is no escape stays as it is.
#[derive(Debug, Default)]
pub(super) struct Unescaped {
    pub(super) text: Vec<u8>,
    /// True if the source ends within an escape, which the text leaves out.
    pub(super) is_cut: bool,
    /// End of each escape, in the text and in the source.
    ends: Vec<(usize, usize)>,
}

/// What a backslash begins.
enum Escape {
    /// Escape of this number of bytes.
    Whole(char, usize),
    /// Escape that the end of the source cuts, perhaps.
    Cut,
    None,
}

impl Unescaped {
    /// Returns the text of a source; `None` if it has no escape.
    pub(super) fn of(source: &[u8]) -> Option<Self> {
        let (mut out, mut at) = (Self::default(), 0);
        while let Some(next) = source[at..].iter().position(|byte| *byte == b'\\') {
            out.text.extend_from_slice(&source[at..at + next]);
            at += next;
            match escape(&source[at..]) {
                Escape::Whole(c, bytes) => {
                    at += bytes;
                    out.text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    out.ends.push((out.text.len(), at));
                }
                Escape::Cut => {
                    out.is_cut = true;
                    return Some(out);
                }
                Escape::None => {
                    at += 1;
                    out.text.push(b'\\');
                }
            }
        }
        out.text.extend_from_slice(&source[at..]);
        (!out.ends.is_empty()).then_some(out)
    }

    /// Returns the part of the source that a part of the text stands for.
    pub(super) fn in_source(&self, part: Range<usize>) -> Range<usize> {
        self.place(part.start)..self.place(part.end)
    }

    fn place(&self, at: usize) -> usize {
        let before = self.ends.partition_point(|(end, _)| *end <= at);
        let (text, source) = before.checked_sub(1).map_or((0, 0), |last| self.ends[last]);
        source + (at - text)
    }
}

/// Returns what a source begins with, of which the first byte is a backslash.
fn escape(source: &[u8]) -> Escape {
    let plain = match source.get(1) {
        None => return Escape::Cut,
        Some(b'u') => match unit(source) {
            Ok(high @ 0xd800..=0xdbff) => return pair(high, &source[ESCAPE..]),
            Ok(unit) => {
                return char::from_u32(unit.into()).map_or(Escape::None, |c| Escape::Whole(c, ESCAPE));
            }
            Err(is_cut) if is_cut => return Escape::Cut,
            Err(_) => return Escape::None,
        },
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(byte @ (b'"' | b'\\' | b'/')) => char::from(*byte),
        Some(_) => return Escape::None,
    };
    Escape::Whole(plain, 2)
}

/// Returns the character of a surrogate pair, of which the second half should follow.
fn pair(high: u16, source: &[u8]) -> Escape {
    match unit(source) {
        Ok(low) => match char::decode_utf16([high, low]).next() {
            Some(Ok(c)) if c.len_utf16() == 2 => Escape::Whole(c, 2 * ESCAPE),
            _ => Escape::None,
        },
        Err(is_cut) if is_cut => Escape::Cut,
        Err(_) => Escape::None,
    }
}

/// Returns the UTF-16 unit of an escape like `\u00e9`; if there is none, whether the end of the source cuts one.
fn unit(source: &[u8]) -> Result<u16, bool> {
    let mut unit = 0;
    for at in 0..ESCAPE {
        let byte = *source.get(at).ok_or(true)?;
        unit = match (at, byte) {
            (0, b'\\') | (1, b'u') => 0,
            (0 | 1, _) => return Err(false),
            _ => unit << 4 | char::from(byte).to_digit(16).ok_or(false)?,
        };
    }
    u16::try_from(unit).map_err(|_| false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_replaced_and_what_is_none_stays() {
        for (source, text, is_cut) in [
            (r#"a\"\\\/\b\f\n\r\tz"#, "a\"\\/\u{8}\u{c}\n\r\tz", false),
            (r"\u0041\u00E9\ud83d\uDE00!", "A\u{e9}\u{1f600}!", false),
            (r"\n\q\ud83dx\ude00\u+123\ud83d\u0041", "\n\\q\\ud83dx\\ude00\\u+123\\ud83dA", false),
            (r"\nx\", "\nx", true),
            (r"x\u00e", "x", true),
            (r"x\ud83d\ud", "x", true),
        ] {
            let read = Unescaped::of(source.as_bytes()).unwrap();
            assert_eq!(
                (String::from_utf8(read.text).unwrap().as_str(), read.is_cut),
                (text, is_cut),
                "{source}"
            );
        }
        assert!(Unescaped::of(br"C:\q\x").is_none());
    }

    proptest! {
        /// What serde_json writes is read as it reads it, and each character is found where it stands.
        #[test]
        fn escapes_are_read_as_json_is(before in any::<String>(), c in any::<char>(), after in any::<String>()) {
            let quoted = |text: &str| {
                let quoted = serde_json::Value::from(text).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            };
            let parts = [quoted(&before), quoted(&c.to_string()), quoted(&after)];
            if let Some(read) = Unescaped::of(parts.concat().as_bytes()) {
                prop_assert_eq!(&read.text, &format!("{before}{c}{after}").into_bytes());
                let part = read.in_source(before.len()..before.len() + c.len_utf8());
                prop_assert_eq!(part, parts[0].len()..parts[0].len() + parts[1].len());
            }
        }
    }
}
