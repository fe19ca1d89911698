//! Text from outside: checks, quotation in errors, and reading from JSON.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Error of parsing an id (of a workspace, session, commit, run, event, device or tenant) or a time.
///
/// Converts into an [`Error`](crate::base::error::Error) of kind
/// [`InvalidInput`](crate::base::error::ErrorKind::InvalidInput), with the same text.
///
/// ```
/// use agent_core::{Error, ErrorKind, SessionId};
///
/// let parsed = "no id".parse::<SessionId>().map_err(Error::from);
/// assert_eq!(*parsed.unwrap_err().kind(), ErrorKind::InvalidInput);
/// ```
#[derive(Debug)]
pub struct ParseError {
    message: String,
    source: Option<Source>,
}

impl ParseError {
    /// Creates an error. Its text names the object and the remedy.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the text and the source error.
    pub(crate) fn into_parts(self) -> (String, Option<Source>) {
        (self.message, self.source)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ParseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Checks text from outside: it must have 1 to `max` bytes and no control character.
///
/// # Errors
///
/// [`ParseError`] that names `noun` and the fault.
///
/// ```
/// use agent_core::text::check_text;
///
/// assert!(check_text("label", "Küche", 64).is_ok());
/// let error = check_text("label", "", 64).unwrap_err();
/// assert_eq!(error.to_string(), "label is empty; give 1 to 64 bytes");
/// ```
pub fn check_text(noun: &str, text: &str, max: usize) -> Result<(), ParseError> {
    if text.is_empty() {
        return Err(ParseError::new(format!("{noun} is empty; give 1 to {max} bytes")));
    }
    if text.len() > max {
        return Err(ParseError::new(format!("{noun} has {} bytes; at most {max} are allowed", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(ParseError::new(format!("{noun} {} holds a control character", quoted(text))));
    }
    Ok(())
}

/// Quotes text from outside for an error message: escaped, and cut after 60 characters.
///
/// ```
/// use agent_core::text::quoted;
///
/// assert_eq!(quoted("two\nlines"), r#""two\nlines""#);
/// ```
pub fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let mut short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// Returns a JSON text with whole characters, and whether it had others: U+FFFD stands for each byte that is not UTF-8, and
/// `\ufffd` for each escape that is half of a surrogate pair, like `\ud83d` before anything but its other half.
///
/// Readers of JSON refuse a whole text for one such character. A text that is no JSON is returned likewise.
///
/// ```
/// use agent_core::text::with_whole_characters;
///
/// let (line, is_changed) = with_whole_characters(br#"{"cut":"\ud83d","whole":"\ud83d\ude00"}"#.to_vec());
/// assert_eq!((&*line, is_changed), (r#"{"cut":"\ufffd","whole":"\ud83d\ude00"}"#, true));
/// assert_eq!(with_whole_characters(line.clone()), (line, false));
/// ```
pub fn with_whole_characters(json: impl Into<Vec<u8>>) -> (String, bool) {
    let mut json = json.into();
    let has_halves = replace_half_pairs(&mut json);
    match String::from_utf8(json) {
        Ok(text) => (text, has_halves),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    }
}

/// Replaces each escape that is half of a surrogate pair. Returns whether there was one.
fn replace_half_pairs(json: &mut [u8]) -> bool {
    /// Number of bytes of an escape like `\u00e9`.
    const ESCAPE: usize = 6;
    let unit = |json: &[u8], at: usize| {
        let digits = json.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut at, mut is_changed) = (0, false);
    while let Some(next) = json.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        at += next;
        at += match unit(json, at) {
            Some(0xd800..=0xdbff) if matches!(unit(json, at + ESCAPE), Some(0xdc00..=0xdfff)) => 2 * ESCAPE,
            Some(0xd800..=0xdfff) => {
                json[at..at + ESCAPE].copy_from_slice(b"\\ufffd");
                is_changed = true;
                ESCAPE
            }
            Some(_) => ESCAPE,
            // An escape like `\n`, or a backslash that is escaped.
            None => 2,
        };
    }
    is_changed
}

/// Returns the text with marks like `<U+200B>` in place of characters that nobody sees.
///
/// For what a model or a tool wants to do, before a person consents to it. Marked are control characters, characters
/// without a width, those that change the direction of text, tags, variation selectors and fillers. Line feeds and tabs
/// stay; in a JSON text they are no part of a value.
///
/// ```
/// use agent_core::text::marked;
///
/// assert_eq!(marked("rm\u{200b} \u{202e}a\u{1b}[2J"), "rm<U+200B> <U+202E>a<U+001B>[2J");
/// assert_eq!(marked("Küche, 한국어\n"), "Küche, 한국어\n");
/// ```
pub fn marked(text: &str) -> Cow<'_, str> {
    with_marks(text, |c| is_unseen(c) && !matches!(c, '\n' | '\t'))
}

/// Returns a name like [`marked`], with marks for line feeds and tabs, too.
pub fn marked_name(name: &str) -> Cow<'_, str> {
    with_marks(name, is_unseen)
}

fn with_marks(text: &str, has_mark: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&has_mark) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if has_mark(c) {
            out.push_str(&format!("<U+{:04X}>", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// Returns whether a character shows nothing of its own, or steers how others are shown.
fn is_unseen(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}');
    is_format || c.is_control()
}

/// String of a JSON text, borrowed from it if it has no escapes.
#[doc(hidden)]
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// Implements serde through `Display` and `FromStr`, so that text read from JSON is checked like typed text.
#[doc(hidden)]
#[macro_export]
macro_rules! text_serde {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> std::result::Result<Self, D::Error> {
                let text = <$crate::text::Text<'de> as serde::Deserialize<'de>>::deserialize(deserializer)?;
                text.0.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use crate::text_serde;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* } newer = $newer:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl $name {
            /// All values that this version of the library knows.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the stored word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Returns the value of a stored word, if this version knows the word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => $newer }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                let word = <$crate::text::Text<'de> as serde::Deserialize<'de>>::deserialize(deserializer)?.0;
                Self::from_word(&word)
                    .ok_or_else(|| serde::de::Error::custom(format_args!("unknown {} {word:?}", stringify!($name))))
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_read_with_replacements() {
        for (json, read) in [
            (&br#"{"a":"\ud83d"}"#[..], r#"{"a":"\ufffd"}"#),
            (br#""\ude00\ud83d\ud83d\ude00 \ud83dx""#, r#""\ufffd\ufffd\ud83d\ude00 \ufffdx""#),
            (br#""\\ud83d \\\ud83d \n\u00e9""#, r#""\\ud83d \\\ufffd \n\u00e9""#),
            (br#""\uD83D\uDE00 \uDBFF""#, r#""\uD83D\uDE00 \ufffd""#),
            (br#"{"a":"\ud83dA\\ud83d"}"#, r#"{"a":"\ufffdA\\ud83d"}"#),
            (br#"{"a":"\u0041\n\\"}"#, r#"{"a":"\u0041\n\\"}"#),
            (br#""\ud83"#, r#""\ud83"#),
            (br#""\u+fff\"#, r#""\u+fff\"#),
            (br"\u", r"\u"),
            (b"\"\xff \xf0\x9f\x98\"", "\"\u{fffd} \u{fffd}\""),
            (b"{\"a\":\"\xff\xc3\"}", "{\"a\":\"\u{fffd}\u{fffd}\"}"),
        ] {
            assert_eq!(with_whole_characters(json), (read.to_owned(), json != read.as_bytes()));
        }
    }
}
